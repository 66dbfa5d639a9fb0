"""Gates decide what STATS says they decide, on cells that are known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from docs.gates import Answer, Graded
from edison_ci.decide.verdict import RunDecision
from edison_ci.errors import ExitCode
from edison_ci.records import CellStatus, Verdict
from edison_ci.results.decisions import SHOWN, GateRow
from edison_ci.store.cells import Component
from edison_ci.store.judgments import JudgeScoreRow, write_judge_scores

if TYPE_CHECKING:
    from docs.gates import Results

COMPOSITE = {"metric": "composite", "no_worse_than": "base"}


def about(value: float) -> Any:
    """Return a number that equals its neighbours; typed, so that it may stand in a tuple."""
    return pytest.approx(value)


def only(decision: RunDecision) -> GateRow:
    (row,) = decision.rows
    return row


def fill(results: Results, n: int, base: float, head: float, **more: Any) -> None:
    for index in range(n):
        results.both(f"case-{index:03}", base, head, **more)


# --- against the base -----------------------------------------------------------------------------


def test_a_clear_drop_fails_and_ends_with_1(results: Results) -> None:
    fill(results, 20, 0.9, 0.7)
    decision = results.decide(COMPOSITE)
    row = only(decision)
    assert (decision.verdict, decision.exit_code) == ("fail", ExitCode.GATE_FAILED)
    assert row.estimate == about(-0.2)
    assert (row.prompt, row.model, row.n, row.n_more) == ("support-reply", "small", 20, None)
    assert row.p is not None and row.p < 0.001
    assert row.p == row.p_holm


def test_an_unchanged_prompt_passes_on_enough_cases(results: Results) -> None:
    fill(results, 53, 0.8, 0.8)
    assert results.decide(COMPOSITE).verdict == "pass"


def test_ties_on_few_cases_prove_little(results: Results) -> None:
    fill(results, 40, 0.8, 0.8)
    decision = results.decide(COMPOSITE)
    assert (decision.verdict, decision.exit_code) == ("inconclusive", ExitCode.DONE)
    assert only(decision).n_more == 13
    assert only(decision).sentence.endswith(
        " All 40 differences are 0: up to 8.8% of cases could differ and not have been seen."
    )


def test_the_same_answers_on_both_sides_pass_without_statistics(results: Results) -> None:
    for index in range(3):
        results.both(f"case-{index}", 0.8, 0.8, answer=Answer(name=f"shared-{index}"))
    row = only(results.decide(COMPOSITE))
    assert (row.verdict, row.p, row.n) == ("pass", None, 3)
    assert row.sentence == "Nothing to compare: identical outputs (3 cases)."


def test_the_same_answers_graded_differently_are_compared(results: Results) -> None:
    for index in range(3):
        results.both(f"case-{index}", 0.8, 0.7, answer=Answer(name=f"shared-{index}"))
    assert only(results.decide(COMPOSITE)).verdict == "inconclusive"


def test_a_relative_margin_is_a_share_of_the_base(results: Results) -> None:
    fill(results, 60, 0.4, 0.4)
    row = only(results.decide({**COMPOSITE, "margin": "10%"}))
    assert row.detail["margin"] == about(0.04)
    assert row.verdict == "inconclusive"


@pytest.mark.parametrize("margin", ["0pp", "0%", "100pp"])
def test_margins_at_their_ends_do_not_break(results: Results, margin: str) -> None:
    fill(results, 12, 0.4, 0.5)
    gate = {**COMPOSITE, "margin": margin, "confidence": "50%"}
    assert only(results.decide(gate)).verdict in ("pass", "inconclusive")


def test_beyond_margin_fails_later_than_beyond_zero(results: Results) -> None:
    for index in range(30):
        drop = 0.02 if index % 2 else 0.1
        results.both(f"case-{index:02}", 0.9, 0.9 - drop)
    assert only(results.decide(COMPOSITE)).verdict == "fail"
    assert only(results.decide({**COMPOSITE, "fail_rule": "beyond_margin"})).verdict != "fail"


def test_strict_guarantee_uses_e_values(results: Results) -> None:
    fill(results, 93, 0.8, 0.8)
    row = only(results.decide({**COMPOSITE, "guarantee": "strict"}))
    assert (row.verdict, row.detail["method"]) == (
        "pass",
        "sequential test (e-values), read once at the end",
    )


def test_a_case_that_cannot_lose_everything_needs_fewer_cases(results: Results) -> None:
    fill(results, 20, 0.8, 0.8)
    assert only(results.decide(COMPOSITE)).verdict == "inconclusive"
    assert only(results.decide({**COMPOSITE, "worst_case_drop": 0.1})).verdict == "pass"


def test_without_a_base_a_comparison_is_skipped_and_says_how_to_get_one(results: Results) -> None:
    results.add(*(Graded(f"case-{index}", 0.8) for index in range(5)))
    decision = results.decide(COMPOSITE, has_base=False)
    assert (decision.verdict, decision.exit_code) == ("skipped", ExitCode.DONE)
    assert "edison run --against REF" in only(decision).sentence


def test_a_new_prompt_is_skipped_and_the_others_are_decided(results: Results) -> None:
    fill(results, 60, 0.8, 0.8)
    results.add(Graded("case-000", 0.1, prompt="brand-new"))
    decision = results.decide(COMPOSITE)
    assert [(row.prompt, row.verdict) for row in decision.rows] == [
        ("brand-new", "skipped"),
        ("support-reply", "pass"),
    ]
    assert decision.verdict == "pass"


def test_clusters_count_once_each(results: Results) -> None:
    fill(results, 60, 0.8, 0.8)
    clusters = {f"case-{index:03}": f"document-{index // 20}" for index in range(60)}
    assert only(results.decide(COMPOSITE)).verdict == "pass"
    assert only(results.decide(COMPOSITE, clusters=clusters)).verdict == "inconclusive"


def test_quarantined_cases_never_gate(results: Results) -> None:
    fill(results, 60, 0.8, 0.8)
    bad = {f"flaky-{index}" for index in range(30)}
    for case in bad:
        results.both(case, 1.0, 0.0)
    assert only(results.decide(COMPOSITE)).verdict == "fail"
    row = only(results.decide(COMPOSITE, quarantined=bad))
    assert (row.verdict, row.n) == ("pass", 60)


# --- rows, families, run verdict ------------------------------------------------------------------


def test_each_prompt_and_model_is_decided_against_its_own_base(results: Results) -> None:
    fill(results, 20, 0.9, 0.7, model="small")
    fill(results, 60, 0.8, 0.8, model="large")
    decision = results.decide(COMPOSITE)
    assert [(row.model, row.verdict) for row in decision.rows] == [
        ("large", "pass"),
        ("small", "fail"),
    ]
    assert decision.exit_code == ExitCode.GATE_FAILED


def test_overall_is_one_row_with_cases_as_the_unit(results: Results) -> None:
    fill(results, 60, 0.9, 0.8, model="small")
    fill(results, 60, 0.7, 0.8, model="large")
    row = only(results.decide({**COMPOSITE, "per": "overall"}))
    assert (row.prompt, row.model, row.n) == (None, None, 60)
    assert row.estimate == about(0.0)


def test_overall_counts_only_repeats_that_both_sides_have(results: Results) -> None:
    fill(results, 10, 0.9, 0.9, model="small")
    for index in range(10):
        results.both(f"case-{index:03}", 0.1, None, model="large")
    row = only(results.decide({**COMPOSITE, "per": "overall"}))
    assert (row.estimate, row.n) == (about(0.0), 10)


def test_rows_allow_for_each_other(results: Results) -> None:
    for index in range(5):  # five cases that all drop: p = 1/32, and no more with so few
        results.both(f"case-{index}", 0.9, 0.6)
        results.both(f"case-{index}", 0.8, 0.8, model="large")
    alone = results.decide({**COMPOSITE, "per": "model"})
    small = next(row for row in alone.rows if row.model == "small")
    assert (small.p, small.p_holm, small.verdict) == (0.03125, 0.0625, "inconclusive")
    assert small.detail["family"] == 2


def test_a_row_that_others_hold_back_promises_no_cases(results: Results) -> None:
    for index in range(100):
        results.both(f"case-{index:03}", 0.8, 0.0 if index < 7 else 0.8)
        for model in range(6):
            results.both(f"case-{index:03}", 0.8, 0.8, model=f"large-{model}")
    *_, small = results.decide({**COMPOSITE, "margin": "5.5pp", "worst_case_drop": 0}).rows
    assert (small.p, small.p_holm, small.n_more) == (2**-7, 7 * 2**-7, None)
    assert small.sentence.endswith("Not clear after allowing for 7 comparisons.")


def test_a_drop_near_the_margin_says_so(results: Results) -> None:
    for index in range(400):
        results.both(f"case-{index:03}", 0.8, 0.9 if index % 5 < 2 else 0.7 - index % 3 / 50)
    row = only(results.decide({**COMPOSITE, "margin": "4pp"}))
    assert row.verdict == "inconclusive"
    assert "perhaps a real drop close to your tolerance" in row.sentence
    assert row.n_more is not None and row.n_more > 1


def test_unclear_may_pass_be_neutral_or_end_with_5(results: Results) -> None:
    fill(results, 10, 0.8, 0.8)
    found = {
        word: results.decide({**COMPOSITE, "if_unclear": word})
        for word in ("pass", "neutral", "fail", "more_repeats")
    }
    assert {word: (d.verdict, int(d.exit_code)) for word, d in found.items()} == {
        "pass": ("pass", 0),
        "neutral": ("inconclusive", 0),
        "fail": ("inconclusive", 5),
        "more_repeats": ("inconclusive", 0),
    }
    assert {only(d).verdict for d in found.values()} == {"inconclusive"}
    assert "need both sides in one run" in only(found["more_repeats"]).sentence


def test_a_failure_goes_before_what_is_unclear(results: Results) -> None:
    fill(results, 20, 0.9, 0.5)
    decision = results.decide(
        COMPOSITE, {"metric": "latency_ms.p95", "at_most": 10, "if_unclear": "fail"}
    )
    assert (decision.verdict, int(decision.exit_code)) == ("fail", 1)


def test_no_gates_decide_nothing(results: Results) -> None:
    fill(results, 3, 0.9, 0.5)
    assert results.decide() == RunDecision((), Verdict.SKIPPED, ExitCode.DONE)


def test_rows_are_json_with_the_promised_keys(results: Results) -> None:
    fill(results, 20, 0.9, 0.7)
    document = json.loads(json.dumps(only(results.decide(COMPOSITE)).as_json()))
    assert tuple(document)[: len(SHOWN)] == SHOWN
    assert document["detail"]["seed"] is not None


def test_the_same_cells_give_the_same_rows(results: Results) -> None:
    for index in range(40):
        results.both(f"case-{index:02}", 0.5 + index % 7 / 20, 0.5 + index % 5 / 20)
    assert results.decide(COMPOSITE) == results.decide(COMPOSITE)


# --- what is missing ------------------------------------------------------------------------------


def test_a_run_without_cells_is_inconclusive(results: Results) -> None:
    decision = results.decide(COMPOSITE, {"metric": "pass_rate", "at_least": "80%"})
    assert [(row.verdict, row.n, row.estimate) for row in decision.rows] == [
        ("inconclusive", 0, None)
    ] * 2


def test_one_case_has_a_number_and_no_verdict(results: Results) -> None:
    results.both("only", 0.9, 0.4)
    row = only(results.decide(COMPOSITE))
    assert (row.verdict, row.low, row.n) == ("inconclusive", None, 1)
    assert row.estimate == about(-0.5)


def test_errors_are_missing_and_never_failures(results: Results) -> None:
    for index in range(100):
        results.both(f"case-{index:03}", 0.8, None if index < 4 else 0.8)
    row = only(results.decide(COMPOSITE))
    assert (row.verdict, row.estimate, row.n, row.detail["missing"]) == ("inconclusive", 0, 96, 4)
    said = "nswers of the head are missing in 4 cases: would not pass if they had gone badly"
    assert said in row.sentence and row.n_more is None
    for floor, verdict in (("95%", "inconclusive"), ("90%", "pass")):
        row = only(results.decide({"metric": "pass_rate", "at_least": floor}))
        assert (row.verdict, row.estimate, row.n) == (verdict, 1.0, 96)


@pytest.mark.parametrize("status", [CellStatus.ERROR, CellStatus.BLOCKED, CellStatus.SKIPPED])
def test_losing_bad_answers_never_helps_to_pass(results: Results, status: CellStatus) -> None:
    """A head that fails 10 of 100 cases does not pass by losing these answers."""
    for index in range(100):
        results.add(Graded(f"case-{index:03}", 0.8, "base"))
        if index < 10:
            results.add(Graded(f"case-{index:03}", None, status=status))
        else:
            results.add(Graded(f"case-{index:03}", 0.8))
    rows = results.decide(COMPOSITE, {**COMPOSITE, "guarantee": "strict"}).rows
    assert [row.verdict for row in rows] == ["inconclusive"] * 2


def test_answers_that_the_base_has_lost_leave_the_pairing(results: Results) -> None:
    for index in range(100):
        results.both(f"case-{index:03}", None if index < 10 else 0.8, 0.8)
    row = only(results.decide(COMPOSITE))
    assert (row.verdict, row.n, row.detail["missing"]) == ("pass", 90, 10)


def test_all_errors_are_inconclusive_without_a_number(results: Results) -> None:
    for index in range(30):
        results.both(f"case-{index:02}", 0.8, None)
    decision = results.decide(COMPOSITE, {"metric": "composite", "at_least": "50%"})
    assert [(row.verdict, row.estimate) for row in decision.rows] == [("inconclusive", None)] * 2
    assert "30 cases missing" in decision.rows[0].sentence


def test_more_than_a_fifth_missing_never_passes(results: Results) -> None:
    for index in range(100):
        results.both(f"case-{index:03}", 0.9, None if index < 21 else 0.95)
    for gate in (COMPOSITE, {"metric": "pass_rate", "at_least": "10%"},
                 {"metric": "composite", "at_least": "1%"},
                 {"metric": "cost_usd.mean", "no_worse_than": "base"},
                 {"metric": "cost_usd.mean", "at_most": 1}):  # fmt: skip
        row = only(results.decide(gate))
        assert row.verdict == "inconclusive"
        assert "21 of 100 cases are missing" in row.sentence


def test_what_is_missing_could_have_gone_badly(results: Results) -> None:
    for index in range(120):
        head = None if index < 20 else 0.2 if index < 27 else 0.85
        results.both(f"case-{index:03}", 0.8, head)
    row = only(results.decide({**COMPOSITE, "margin": "10pp"}))
    assert row.verdict == "inconclusive"
    assert "would not pass if they had gone badly" in row.sentence


def test_a_floor_also_asks_what_the_missing_would_have_done(results: Results) -> None:
    for index in range(200):
        head = None if index < 30 else 0.2 if index < 40 else 0.9
        results.both(f"case-{index:03}", 0.8, head)
    passing = {"metric": "pass_rate", "at_least": "88%"}
    assert "would not pass" in only(results.decide(passing)).sentence
    assert only(results.decide(passing)).verdict == "inconclusive"
    score = {"metric": "composite", "at_least": "82%"}
    assert "would not pass" in only(results.decide(score)).sentence


def test_everything_blocked_is_inconclusive_and_passes_nothing(results: Results) -> None:
    for index in range(20):
        for side in ("base", "head"):
            results.add(Graded(f"case-{index:02}", side=side, status="blocked"))
    decision = results.decide(COMPOSITE, {"metric": "pass_rate", "at_least": "50%"})
    assert [row.verdict for row in decision.rows] == ["inconclusive", "fail"]


def test_a_blocked_answer_is_missing_on_both_sides_of_its_pair(results: Results) -> None:
    fill(results, 60, 0.8, 0.8)
    results.add(Graded("leak", 1.0, "base", passed=True), Graded("leak", status="blocked"))
    row = only(results.decide(COMPOSITE))
    assert (row.n, row.detail["missing"], row.estimate) == (60, 1, about(0.0))
    compared = only(results.decide({"metric": "pass_rate", "no_worse_than": "base"}))
    assert (compared.n, compared.estimate) == (60, 0.0)
    floor = only(results.decide({"metric": "pass_rate", "at_least": "50%"}))
    assert (floor.n, floor.estimate) == (61, about(60 / 61))


def test_a_blocked_repeat_takes_only_its_own_pair_away(results: Results) -> None:
    for repeat, head in enumerate(("ok", "blocked")):
        results.add(
            Graded("case", 0.4 if repeat else 0.8, "base", repeat=repeat),
            Graded("case", 0.8, repeat=repeat, status=head),
        )
    assert only(results.decide(COMPOSITE)).estimate == about(0.0)


def test_a_malformed_answer_is_worth_nothing(results: Results) -> None:
    fill(results, 20, 0.8, 0.8)
    for index in range(20):
        results.add(
            Graded(f"broken-{index}", 0.8, "base", passed=True),
            Graded(f"broken-{index}", status="malformed"),
        )
    row = only(results.decide(COMPOSITE))
    assert (row.verdict, row.n, row.estimate) == ("fail", 40, about(-0.4))


def test_skipped_cells_are_missing(results: Results) -> None:
    fill(results, 60, 0.8, 0.8)
    results.add(Graded("unrecorded", 0.8, "base"), Graded("unrecorded", status="skipped"))
    assert only(results.decide(COMPOSITE)).detail["missing"] == 1


def test_a_lost_repeat_leaves_the_case_its_other_repeats(results: Results) -> None:
    for index in range(60):
        for repeat in range(2):
            lost = repeat == 1 and index < 5
            results.both(f"case-{index:02}", 0.8, None if lost else 0.8, repeat=repeat)
    row = only(results.decide(COMPOSITE))
    assert (row.verdict, row.estimate, row.n) == ("inconclusive", 0, 60)
    assert "permutation test of repeats" in row.detail["method"]
    assert "missing in 5 cases" in row.sentence
    floors = results.decide(*({"metric": "composite", "at_least": f} for f in ("70%", "60%"))).rows
    assert [floor.verdict for floor in floors] == ["inconclusive", "pass"]


def test_a_composite_that_is_no_number_is_missing(results: Results) -> None:
    fill(results, 60, 0.8, 0.8)
    results.add(Graded("endless", float("inf")), Graded("endless", 0.8, "base"))
    results.add(Graded("too-good", 7.0), Graded("too-good", 0.8, "base"))
    assert only(results.decide(COMPOSITE)).detail["missing"] == 2


# --- properties -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_swapping_the_sides_flips_the_sign(results: Results, seed: int) -> None:
    for index in range(25):
        base, head = ((index * (seed + 3) * k) % 11 / 10 for k in (1, 7))
        results.both(f"case-{index:02}", base, head, model="forward")
        results.both(f"case-{index:02}", head, base, model="backward")
    backward, forward = results.decide(COMPOSITE).rows
    assert forward.estimate is not None and backward.estimate is not None
    assert forward.estimate == about(-backward.estimate)
    assert (forward.low, forward.high) == (
        about(-(backward.high or 0)),
        about(-(backward.low or 0)),
    )


@pytest.mark.parametrize("errors", [0, 1, 2])
def test_errors_change_the_count_and_not_the_estimate(results: Results, errors: int) -> None:
    fill(results, 50, 0.7, 0.6)
    for index in range(errors):
        results.both(f"lost-{index}", 0.9, None)
    row = only(results.decide(COMPOSITE))
    assert (row.estimate, row.n, row.verdict) == (about(-0.1), 50, "fail")


# --- fair pairs -----------------------------------------------------------------------------------


def judged(easy: float | None, hard: float | None) -> tuple[float, tuple[Component, ...]]:
    found = [score for score in (easy, hard) if score is not None]
    rubric = sum(found) / len(found)
    return rubric, (
        Component("support", "rubric", rubric, True, 1.0, CellStatus.OK),
        Component(
            "Easy",
            "criterion",
            easy,
            None,
            0.5,
            CellStatus.ERROR if easy is None else CellStatus.OK,
        ),
        Component(
            "Very Hard",
            "criterion",
            hard,
            None,
            0.5,
            CellStatus.ERROR if hard is None else CellStatus.OK,
        ),
    )


def test_a_hard_criterion_missing_on_one_side_is_no_improvement(results: Results) -> None:
    for index in range(60):
        for side, hard in (("base", 0.2), ("head", None if index < 30 else 0.2)):
            composite, components = judged(0.9, hard)
            results.add(Graded(f"case-{index:02}", composite, side, components=components))
    row = only(results.decide(COMPOSITE))
    assert (row.n, row.estimate) == (60, about(0.0))


def test_a_strict_judge_that_fails_on_one_side_is_no_improvement(results: Results) -> None:
    """A judge that gives 0.9 graded everything; one that gives 0.5 failed on half of the heads."""
    for index in range(60):
        for side in ("base", "head"):
            strict = None if side == "head" and index < 30 else 0.5
            easy = 0.9 if strict is None else 0.7
            composite, components = judged(easy, 0.2)
            case = f"case-{index:02}"
            results.add(Graded(case, composite, side, components=components))
            (cell,) = results.connection.execute(
                "select id from cell where case_id = ? and side = ?", (case, side)
            ).fetchone()
            rows = [
                JudgeScoreRow("lenient", "Easy", 0.9, 0.9),
                JudgeScoreRow("strict", "Easy", strict, strict),
                *(JudgeScoreRow(judge, "Very Hard", 0.2, 0.2) for judge in ("lenient", "strict")),
            ]
            write_judge_scores(results.connection, ((cell, row) for row in rows))
    row = only(results.decide(COMPOSITE))
    assert (row.n, row.estimate) == (60, about(0.0))


@pytest.mark.parametrize("name", ["Very Hard", "very-hard"])
def test_a_criterion_is_found_by_name_and_by_slug(results: Results, name: str) -> None:
    for index in range(20):
        for side, hard in (("base", 0.8), ("head", 0.4)):
            composite, components = judged(0.9, hard)
            results.add(Graded(f"case-{index:02}", composite, side, components=components))
    row = only(results.decide({"metric": f"criterion.{name}", "no_worse_than": "base"}))
    assert (row.verdict, row.estimate) == ("fail", about(-0.4))
    assert row.sentence.startswith("Very Hard dropped by 40 points")


# --- a drop that somebody hides -------------------------------------------------------------------

HIDDEN = 200
BROKEN = range(0, HIDDEN, 10)
ARRANGED: dict[str, dict[int, str]] = {
    "each case alone": {},
    "broken cases in one cluster": dict.fromkeys(BROKEN, "all"),
    "each broken case among good ones": {i: f"{i // 10}" for i in range(HIDDEN)},
    "good cases in one cluster": {i: "good" for i in range(HIDDEN) if i % 10},
    "two halves": {i: f"{i % 20}" for i in range(HIDDEN)},
}


@pytest.mark.parametrize("lost", [None, CellStatus.ERROR, CellStatus.BLOCKED, CellStatus.SKIPPED])
@pytest.mark.parametrize("clusters", ARRANGED.values(), ids=ARRANGED)
@pytest.mark.parametrize("guarantee", ["exact", "strict"])
def test_a_real_drop_of_ten_points_cannot_be_arranged_to_pass(
    results: Results, guarantee: str, clusters: dict[int, str], lost: CellStatus | None
) -> None:
    """One case in ten breaks; ids, clusters and lost answers are as somebody wants them."""
    for index in range(HIDDEN):
        name, broken = f"case-{index:03}", index in BROKEN
        results.add(Graded(name, 1.0, "base", passed=True))
        status = lost if broken and lost is not None else CellStatus.OK
        score = None if status is not CellStatus.OK else float(not broken)
        results.add(Graded(name, score, status=status, passed=bool(score)))
    named = {f"case-{index:03}": name for index, name in clusters.items()}
    flips = {"metric": "flips", "at_most": "5%"}
    rows = results.decide({**COMPOSITE, "guarantee": guarantee}, flips, clusters=named).rows
    assert Verdict.PASS not in {row.verdict for row in rows}
