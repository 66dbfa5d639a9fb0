"""Each metric reads what it should from the cells, and is decided by its own rule."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from docs.gates import Answer, Graded
from edison_ci.records import CellStatus
from edison_ci.store.cells import Component

if TYPE_CHECKING:
    from docs.gates import Results
    from edison_ci.results.decisions import GateRow


def about(value: float) -> Any:
    """Return a number that equals its neighbours; typed, so that it may stand in a tuple."""
    return pytest.approx(value)


def decided(results: Results, metric: str, **rule: Any) -> GateRow:
    (row,) = results.decide({"metric": metric, **rule}).rows
    return row


def against(results: Results, metric: str, **rule: Any) -> GateRow:
    return decided(results, metric, no_worse_than="base", **rule)


def check(name: str, score: float | None, kind: str = "check") -> Component:
    status = CellStatus.OK if score is not None else CellStatus.SKIPPED
    passed = None if score is None else score >= 0.5
    return Component(name, kind, score, passed, 1.0, status)


def flag(kind: str, status: str = "ok", reason: str = "flag: e-mail") -> Component:
    score = 0.0 if status == "ok" else None
    return Component(kind, "safety", score, None, 0.0, CellStatus(status), reason)


# --- floors and ceilings --------------------------------------------------------------------------


def test_a_pass_rate_is_decided_by_exact_bounds(results: Results) -> None:
    for index in range(20):
        results.add(Graded(f"case-{index:02}", float(index < 17), passed=index < 17))
    verdicts = {
        floor: decided(results, "pass_rate", at_least=floor).verdict for floor in (0.6, 0.8, 0.98)
    }
    assert verdicts == {0.6: "pass", 0.8: "inconclusive", 0.98: "fail"}
    row = decided(results, "pass_rate", at_least=0.8)
    assert (row.estimate, row.n) == (0.85, 20)
    assert row.detail["method"] == "exact binomial bound (Clopper-Pearson)"
    as_scores = decided(results, "composite", at_least=0.8)
    assert (as_scores.p, as_scores.detail["worst_plausible"]) == (
        row.p,
        row.detail["worst_plausible"],
    )


@pytest.mark.nightly
def test_a_floor_of_many_cases_does_not_hold_their_names(results: Results) -> None:
    cases = 5_000
    results.add(*(Graded(f"case-{number:08}", 1.0, passed=True) for number in range(cases)))
    decided(results, "pass_rate", at_least=0.9)  # imports and compiles
    tracemalloc.start()
    row = decided(results, "pass_rate", at_least=0.9)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (row.verdict, row.n) == ("pass", cases)
    assert peak < 60 * cases, "a name of each case would take 70 bytes more"


@pytest.mark.parametrize("at_least", [1, "100%"])
def test_a_pass_rate_of_100_percent_is_counted(results: Results, at_least: Any) -> None:
    for index in range(3):
        results.add(Graded(f"case-{index}", 1.0, passed=True))
    row = decided(results, "pass_rate", at_least=at_least)
    assert (row.verdict, row.p, row.detail["method"]) == ("pass", None, "compared as it is")
    assert row.sentence == "All 3 cases passed, as they must."
    results.add(Graded("case-3", 0.9, passed=False))
    row = decided(results, "pass_rate", at_least=at_least)
    assert (row.verdict, row.n, row.estimate) == ("fail", 4, 0.75)
    assert row.sentence == "1 of 4 cases failed; all must pass."


def test_one_failure_of_several_repeats_fails_100_percent(results: Results) -> None:
    for repeat in range(3):
        results.add(Graded("case-0", 1.0, passed=repeat != 1, repeat=repeat))
    assert decided(results, "pass_rate", at_least=1).verdict == "fail"


def test_a_lost_answer_keeps_100_percent_from_passing_but_not_from_failing(
    results: Results,
) -> None:
    results.add(Graded("case-0", 1.0, passed=True))
    results.add(Graded("case-1", None, passed=None, status=CellStatus.ERROR))
    assert decided(results, "pass_rate", at_least=1).verdict == "inconclusive"
    results.add(Graded("case-2", 0.0, passed=False))
    assert decided(results, "pass_rate", at_least=1).verdict == "fail"


@pytest.mark.parametrize(
    ("metric", "rule"),
    [
        ("composite", {"no_worse_than": "base", "margin": "5pp"}),
        ("pass_rate", {"no_worse_than": "base", "margin": "5pp"}),
        ("pass_rate", {"at_least": "95%"}),
        ("composite", {"at_least": "90%"}),
    ],
)
@pytest.mark.parametrize(("good", "verdict"), [(15, "fail"), (58, "inconclusive")])
def test_a_fail_that_lost_answers_could_not_undo_stays_one(
    results: Results, metric: str, rule: dict[str, Any], good: int, verdict: str
) -> None:
    for index in range(90):
        head = None if index >= 60 else 1.0 if index < good else 0.0
        results.both(f"case-{index}", 1.0, head)
    (row,) = results.decide({"metric": metric, **rule}).rows
    assert (row.verdict, row.detail["missing"]) == (verdict, 30)
    words = "fails even if they had gone as well" if verdict == "fail" else "too many to decide"
    assert any(words in note for note in row.detail["notes"]), row.detail["notes"]


def test_a_case_that_nothing_graded_is_neither_missing_nor_passed(results: Results) -> None:
    results.add(Graded("case-0", 1.0, passed=True, components=(check("contains", 1.0),)))
    for index in range(1, 5):
        skipped = (check("contains", None),)
        results.add(Graded(f"case-{index}", None, passed=None, components=skipped))
    for metric in ("pass_rate", "composite"):
        row = decided(results, metric, at_least=1)
        assert (row.n, row.detail["missing"]) == (1, 0), metric
    assert decided(results, "pass_rate", at_least=1).verdict == "pass"


def test_floors_are_allowed_for_like_every_other_test(results: Results) -> None:
    """A floor that alone would fail, at p just below .05, does not among three."""
    for index in range(20):
        results.add(Graded(f"case-{index:02}", 0.9, passed=index < 16))
    floor = {"metric": "pass_rate", "at_least": "94%"}
    alone = results.decide(floor).rows[0]
    assert alone.verdict == "fail" and 0.02 < (alone.p or 0) <= 0.05
    kept = {"metric": "composite", "at_least": "50%"}
    row = results.decide(floor, kept, kept).rows[0]
    assert (row.verdict, row.detail["family"]) == ("inconclusive", 3)
    assert row.p_holm == pytest.approx(3 * (row.p or 0))


def test_pass_shares_of_several_repeats_are_decided_as_scores(results: Results) -> None:
    for index in range(30):
        for repeat in range(4):
            results.add(Graded(f"case-{index:02}", 0.5, repeat=repeat, passed=repeat != index % 4))
    row = decided(results, "pass_rate", at_least=0.5)
    assert (row.estimate, row.n, row.verdict) == (0.75, 30, "pass")
    assert row.detail["method"] == "exact binomial bound (Clopper-Pearson) of the scores"


def test_a_score_has_a_floor_and_a_ceiling(results: Results) -> None:
    for index in range(60):
        results.add(Graded(f"case-{index:02}", 0.7 + index % 5 / 20))
    assert decided(results, "composite", at_least="75%").verdict == "pass"
    assert decided(results, "composite", at_least="90%").verdict == "fail"
    assert decided(results, "composite", at_most="90%").verdict == "pass"
    assert decided(results, "composite", at_least="80%").verdict == "inconclusive"


@pytest.mark.parametrize("metric", ["composite", "pass_rate"])
def test_a_floor_that_the_base_misses_as_well_says_so(results: Results, metric: str) -> None:
    for index in range(40):
        results.both(f"case-{index:02}", 0.2, 0.2)
        results.both(f"other-{index:02}", 0.9, 0.9)
    said = decided(results, metric, at_least="80%")
    assert said.verdict == "fail"
    assert said.sentence.endswith(" The base fails it too.")
    for index in range(40):
        results.add(Graded(f"case-{index:02}", 0.9, "base", passed=True))
    assert "base fails" not in decided(results, metric, at_least="80%").sentence


def test_clustered_cases_make_a_floor_harder(results: Results) -> None:
    for index in range(40):
        results.add(Graded(f"case-{index:02}", 0.6 + index // 20 * 0.3, passed=index >= 2))
    clusters = {f"case-{index:02}": f"document-{index // 20}" for index in range(40)}
    for metric in ("composite", "pass_rate"):
        gate = {"metric": metric, "at_least": "65%"}
        assert results.decide(gate).verdict == "pass"
        assert results.decide(gate, clusters=clusters).verdict == "inconclusive"


# --- components
# ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["check", "grader"])
def test_a_part_has_its_own_gate(results: Results, kind: str) -> None:
    for index in range(30):
        for side, score in (("base", 0.9), ("head", 0.6)):
            components = (check("polite", score, kind), check("short", 0.9, kind))
            results.add(Graded(f"case-{index:02}", 0.8, side, components=components))
    assert against(results, f"{kind}.polite").verdict == "fail"
    row = against(results, f"{kind}.short")
    assert (row.estimate, row.verdict) == (0.0, "inconclusive")


def test_cases_to_which_a_check_does_not_apply_are_not_missing(results: Results) -> None:
    for index in range(80):
        applies = index < 55
        for side in ("base", "head"):
            components = (check("contains", 1.0 if applies else None),)
            results.add(Graded(f"case-{index:02}", 0.8, side, components=components))
    row = against(results, "check.contains")
    assert (row.n, row.detail["missing"], row.verdict) == (55, 0, "pass")
    floor = decided(results, "check.contains", at_least="90%")
    assert (floor.n, floor.detail["missing"]) == (55, 0)


def test_a_malformed_answer_fails_every_check(results: Results) -> None:
    for index in range(30):
        components = (check("contains", 1.0),)
        results.add(
            Graded(f"case-{index:02}", 1.0, "base", components=components),
            Graded(f"case-{index:02}", status="malformed"),
        )
    assert against(results, "check.contains").estimate == -1.0


def test_a_check_that_broke_is_missing(results: Results) -> None:
    for index in range(30):
        broken = (
            Component("contains", "check", None, None, 1.0, CellStatus.ERROR)
            if index == 0
            else None
        )
        for side in ("base", "head"):
            components = (broken or check("contains", 1.0),)
            results.add(Graded(f"case-{index:02}", 1.0, side, components=components))
    row = against(results, "check.contains")
    assert (row.n, row.detail["missing"]) == (29, 1)


# --- shares ---------------------------------------------------------------------------------------


def test_errors_are_a_share_of_the_cells_that_were_asked(results: Results) -> None:
    for index in range(20):
        results.both(f"case-{index:02}", 0.8, None if index < 3 else 0.8)
    results.add(Graded("unrecorded", status="skipped"))
    row = decided(results, "errors", at_most="15%")
    assert (row.verdict, row.estimate, row.n) == ("pass", 0.15, 20)
    assert decided(results, "errors", at_most="10%").verdict == "fail"
    compared = against(results, "errors", margin="15pp")
    assert (compared.verdict, compared.estimate) == ("pass", about(0.15))
    assert against(results, "errors", margin="14pp").verdict == "fail"


def test_safety_is_the_share_of_answers_with_a_finding(results: Results) -> None:
    for index in range(10):
        components = (flag("pii"),) if index < 2 else (flag("jailbreak"),)
        results.add(
            Graded(
                f"case-{index}", 0.8, components=components, status="blocked" if not index else "ok"
            )
        )
    results.add(Graded("lost", status="error"))
    row = decided(results, "safety.pii", at_most=0)
    assert (row.verdict, row.estimate, row.n) == ("fail", 0.2, 10)
    assert decided(results, "safety.secrets", at_most=0).verdict == "pass"


def test_a_screen_by_a_model_counts_what_it_has_seen(results: Results) -> None:
    results.add(
        Graded("clean", 0.8),
        Graded("toxic", 0.8, components=(flag("moderation"),)),
        Graded("failed", 0.8, components=(flag("moderation", "error"),)),
        Graded("blocked", components=(flag("pii", reason="block: e-mail"),), status="blocked"),
        Graded("stopped", components=(flag("moderation"),), status="blocked"),
    )
    row = decided(results, "safety.moderation", at_most="50%")
    assert (row.estimate, row.n) == (about(2 / 3), 3)


def test_shares_without_answers_are_inconclusive(results: Results) -> None:
    results.add(Graded("lost", status="error"), Graded("lost", 0.8, "base"))
    assert decided(results, "safety.pii", at_most="5%").verdict == "inconclusive"
    assert against(results, "safety.pii").verdict == "inconclusive"


def test_quarantined_cases_are_in_no_share(results: Results) -> None:
    results.add(Graded("flaky", status="error"), Graded("fine", 0.8))
    (row,) = results.decide({"metric": "errors", "at_most": 0}, quarantined={"flaky"}).rows
    assert (row.verdict, row.n) == ("pass", 1)


# --- amounts and latency --------------------------------------------------------------------------


def priced(results: Results, n: int, base: Answer, head: Answer) -> None:
    for index in range(n):
        results.add(
            Graded(f"case-{index:03}", 0.8, "base", answer=base),
            Graded(f"case-{index:03}", 0.8, answer=head),
        )


def test_a_dearer_head_fails(results: Results) -> None:
    priced(results, 20, Answer(cost_microusd=1_000), Answer(cost_microusd=1_500))
    row = against(results, "cost_usd.mean")
    assert (row.verdict, row.estimate) == ("fail", about(0.5))
    assert against(results, "cost_usd.mean", margin="60%").verdict == "pass"


def test_what_was_free_and_costs_now_fails(results: Results) -> None:
    priced(results, 20, Answer(cost_microusd=0), Answer(cost_microusd=1_500))
    row = against(results, "cost_usd.mean")
    assert (row.verdict, row.estimate) == ("fail", None)
    assert "was 0 in the base" in row.sentence


def test_nothing_spent_on_either_side_passes(results: Results) -> None:
    priced(results, 20, Answer(cost_microusd=0), Answer(cost_microusd=0))
    assert against(results, "cost_usd.mean").verdict == "pass"


def test_amounts_have_ceilings_in_their_own_unit(results: Results) -> None:
    priced(results, 4, Answer(), Answer(cost_microusd=12_345, tokens_in=300, tokens_out=100))
    row = decided(results, "cost_usd.mean", at_most=0.02)
    assert (row.verdict, row.estimate) == ("pass", about(0.012345))
    assert row.sentence == "Cost $0.012345 a case (4 cases): keeps the ceiling of $0.02."
    tokens = decided(results, "tokens.mean", at_most=399)
    assert (tokens.verdict, tokens.estimate) == ("fail", 400)


def test_tokens_that_nobody_counted_are_missing(results: Results) -> None:
    priced(results, 20, Answer(), Answer(tokens_out=None))
    row = against(results, "tokens.mean")
    assert (row.verdict, row.n, row.detail["missing"]) == ("inconclusive", 0, 20)


def test_a_missing_amount_could_have_been_dear(results: Results) -> None:
    for index in range(100):
        head = None if index < 20 else 0.8
        cost = 5_000 if index >= 94 else 900
        results.add(
            Graded(f"case-{index:03}", 0.8, "base", answer=Answer(cost_microusd=1_500)),
            Graded(
                f"case-{index:03}",
                head,
                status="error" if head is None else "ok",
                answer=Answer(cost_microusd=cost),
            ),
        )
    row = against(results, "cost_usd.mean")
    assert row.verdict == "inconclusive"
    assert "would not pass if they had gone badly" in row.sentence


@pytest.mark.parametrize(
    ("calls", "limit", "verdict"),
    [
        (59, 100, "inconclusive"),
        (60, 600, "pass"),
        (60, 400, "inconclusive"),
        (199, 400, "inconclusive"),
        (200, 400, "fail"),
    ],
)
def test_a_latency_needs_60_calls_to_show_and_200_to_fail(
    results: Results, calls: int, limit: int, verdict: str
) -> None:
    for index in range(calls):
        results.add(Graded(f"case-{index:03}", 0.8, answer=Answer(latency_ms=500)))
    row = decided(results, "latency_ms.p95", at_most=limit)
    assert (row.verdict, row.n) == (verdict, calls)
    assert row.estimate == (500 if calls >= 60 else None)


def test_latencies_are_compared_as_they_are(results: Results) -> None:
    priced(results, 200, Answer(latency_ms=500), Answer(latency_ms=600))
    row = against(results, "latency_ms.p95")
    assert (row.verdict, row.estimate, row.p) == ("fail", about(0.2), None)
    assert against(results, "latency_ms.p95", margin="20%").verdict == "pass"


def test_replayed_answers_have_no_latency(results: Results) -> None:
    priced(results, 200, Answer(), Answer(cost_kind="replayed"))
    row = decided(results, "latency_ms.p95", at_most=1_000)
    assert (row.verdict, row.n) == ("inconclusive", 0)


def test_what_a_run_does_not_measure_is_inconclusive(results: Results) -> None:
    priced(results, 20, Answer(), Answer())
    for row in (against(results, "win_rate"), against(results, "composite", use="human")):
        assert (row.verdict, row.n, row.estimate) == ("inconclusive", 0, None)
