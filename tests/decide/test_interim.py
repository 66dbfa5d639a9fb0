"""Gates that look several times keep their promises, and what was clear stays clear."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from scipy.stats import binom

from docs.gates import Graded, Results
from edison_ci.config.gates import Gate
from edison_ci.decide.interim import continues, unclear_variants
from edison_ci.decide.verdict import RunDecision, VerdictContext, decide
from edison_ci.plan.interim_analysis import (
    InterimAnalysis,
    batch_size,
    batches_of,
    count_analyses,
    repeats_analysis,
)
from edison_ci.records import CellStatus, Verdict
from edison_ci.results.samples import TwoSidedSample
from edison_ci.stats.sequential import planned_levels, repeated_p
from edison_ci.stats.verdicts import GateRule
from edison_ci.store.cells import Component
from tests.stats.anytime import by_capital

if TYPE_CHECKING:
    from edison_ci.results.decisions import GateRow

pytestmark = pytest.mark.daily

COMPOSITE = {"metric": "composite", "no_worse_than": "base"}
MORE = {**COMPOSITE, "if_unclear": "more_repeats"}


def at(
    results: Results, interim: InterimAnalysis, *gates: dict[str, Any], **more: Any
) -> RunDecision:
    written = [Gate.model_validate(gate) for gate in gates]
    background = VerdictContext(has_base=True, interim=interim, **more)
    return decide(TwoSidedSample.of_run(results.connection, results.run_id), written, background)


def pair(results: Results, case: str, scores: tuple[float, float], **more: Any) -> None:
    for side, score in zip(("base", "head"), scores, strict=True):
        results.add(Graded(case, score, side, answer=None, **more))


# --- planned looks --------------------------------------------------------------------------------


def test_an_early_look_must_be_surer_than_a_late_one(results: Results) -> None:
    """Eight cases that all drop: p = 1/256, which is clear at the second look and not before."""
    for index in range(8):
        for repeat in range(3):
            pair(results, f"case-{index}", (0.9, 0.6 + index / 100), repeat=repeat)
    first, second = (at(results, repeats_analysis(k, 1), MORE).rows[0] for k in (1, 2))
    levels = planned_levels(3)
    assert (first.verdict, first.detail["interim"]["alpha"]) == ("inconclusive", levels[0])
    assert (second.verdict, second.detail["interim"]["alpha"]) == ("fail", levels[1])
    assert (first.p, second.p) == tuple(repeated_p(2**-8, look=look, looks=3) for look in (1, 2)), (
        "the p-value of all planned analyses together"
    )
    assert first.p is not None and second.p is not None and second.p < 0.05 < first.p
    assert first.low == second.low, "the interval that is shown keeps the level of the gate"
    assert first.detail["level"] == 0.95


def test_a_look_sees_only_the_repeats_it_had(results: Results) -> None:
    for index in range(10):
        pair(results, f"case-{index}", (0.9, 0.9), repeat=0)
        pair(results, f"case-{index}", (0.9, 0.1), repeat=1)
    assert at(results, repeats_analysis(1, 1), MORE).rows[0].estimate == 0
    second = at(results, repeats_analysis(2, 1), MORE).rows[0]
    assert second.estimate == pytest.approx(-0.4)


def test_what_was_clear_is_kept_and_counts_in_the_family(results: Results) -> None:
    for index in range(60):
        pair(results, f"case-{index:02}", (0.8, 0.8), model="large")
        pair(results, f"case-{index:02}", (0.8, 0.5 + index % 3 / 5), model="small")
    gate = {**MORE, "margin": "15pp"}
    first = at(results, repeats_analysis(1, 1), gate)
    assert [row.verdict for row in first.rows] == ["pass", "inconclusive"]
    assert continues(first.rows, repeats_analysis(1, 1))
    open_one = frozenset({("support-reply", "small")})
    assert unclear_variants(first.rows, repeats_analysis(1, 1)) == open_one
    second = at(results, repeats_analysis(2, 1), gate, before=first.rows)
    assert second.rows[0] == first.rows[0]
    assert second.rows[1].detail["interim"]["number"] == 2
    assert second.rows[1].detail["family"] == 2


def test_comparisons_at_a_look_share_the_error_and_not_the_level(results: Results) -> None:
    """Two models, one of which drops with p = 1/64 at the second look: alone it is clear."""
    for index in range(6):
        for repeat in range(2):
            pair(results, f"case-{index}", (0.9, 0.6 + index / 100), repeat=repeat, model="small")
            pair(results, f"case-{index}", (0.9, 0.9), repeat=repeat, model="large")
    rows = {row.model: row for row in at(results, repeats_analysis(2, 1), MORE).rows}
    alone = repeated_p(2**-6, look=2, looks=3)
    assert alone < 0.05 < 2 * alone
    assert rows["small"].p_holm == pytest.approx(2 * alone)
    assert rows["small"].verdict == "inconclusive"


def test_a_gate_that_looks_once_is_not_looked_at_again(results: Results) -> None:
    for index in range(10):
        pair(results, f"case-{index}", (0.8, 0.8))
    first = at(results, repeats_analysis(1, 1), MORE, COMPOSITE)
    for index in range(10):
        pair(results, f"case-{index}", (0.9, 0.1), repeat=1)
    second = at(results, repeats_analysis(2, 1), MORE, COMPOSITE, before=first.rows)
    assert second.rows[1] == first.rows[1]
    assert second.rows[0].verdict == "fail"


def test_an_unsafe_answer_counts_whenever_it_came(results: Results) -> None:
    flag = Component("pii", "safety", None, None, 0.0, CellStatus.OK, "flag")
    safety = {"metric": "safety.pii", "at_most": 0.0}
    for index in range(10):
        pair(results, f"case-{index}", (0.8, 0.8))
    first = at(results, repeats_analysis(1, 1), MORE, safety)
    for index in range(10):
        pair(
            results, f"case-{index}", (0.8, 0.8), repeat=1, components=(flag,) if index == 3 else ()
        )
    second = at(results, repeats_analysis(2, 1), MORE, safety, before=first.rows)
    assert [first.rows[1].verdict, second.rows[1].verdict] == ["pass", "fail"]
    assert not continues(second.rows, repeats_analysis(2, 1))


def test_repeats_are_not_added_where_they_cannot_help(results: Results) -> None:
    pair(results, "only", (0.8, 0.8))
    rows = at(results, repeats_analysis(1, 1), MORE).rows
    assert rows[0].verdict == "inconclusive"
    assert not continues(rows, repeats_analysis(1, 1)), "one case stays one case"


def test_a_failure_ends_the_looks(results: Results) -> None:
    for index in range(40):
        pair(results, f"case-{index:02}", (0.9, 0.4), model="small")
        pair(results, f"case-{index:02}", (0.9, 0.88 + index % 2 / 50), model="large")
    rows = at(results, repeats_analysis(1, 1), {**MORE, "margin": "2pp"}).rows
    assert [row.verdict for row in rows] == ["inconclusive", "fail"]
    assert not continues(rows, repeats_analysis(1, 1))


def test_overall_is_about_every_prompt_and_model(results: Results) -> None:
    for index in range(10):
        pair(results, f"case-{index}", (0.8, 0.8))
    rows = at(results, repeats_analysis(1, 1), {**MORE, "per": "overall"}).rows
    assert unclear_variants(rows, repeats_analysis(1, 1)) is None


# --- cases one after another ----------------------------------------------------------------------


def sampling(cases: int, taken: int, number: int) -> InterimAnalysis:
    return InterimAnalysis("cases", number, count_analyses(cases), taken, cases, "seed")


def shuffled(cases: int) -> list[list[str]]:
    names = [(f"case-{index:03}", None) for index in range(cases)]
    return batches_of(names, seed="seed", size=batch_size(cases))


def test_sampling_decides_as_the_anytime_rule_does(results: Results) -> None:
    random, order = Random(5), shuffled(200)
    scores = {c: (0.7, min(1.0, max(0.0, random.gauss(0.7, 0.15)))) for b in order for c in b}
    before: tuple[GateRow, ...] = ()
    for number, batch in enumerate(order, 1):
        for case in batch:
            pair(results, case, scores[case])
        interim = sampling(200, 20 * number, number)
        rows = at(results, interim, COMPOSITE, before=before).rows
        before = rows
        taken = [case for batch in order[:number] for case in batch]
        differences = [scores[c][1] - scores[c][0] for c in taken]
        expected = by_capital(differences, GateRule(), n_max=200)
        assert rows[0].verdict == expected.verdict.value
        unclear = expected.verdict is Verdict.INCONCLUSIVE
        assert continues(rows, interim) == (unclear and number < len(order))
        if not continues(rows, interim):
            break
    assert rows[0].verdict == "pass"
    assert rows[0].n < 200


def test_every_gate_that_takes_part_must_be_clear(results: Results) -> None:
    for case in shuffled(100)[0]:
        pair(results, case, (0.9, 0.2), passed=True)
    gate = {"metric": "pass_rate", "no_worse_than": "base"}
    rows = at(results, sampling(100, 20, 1), COMPOSITE, gate).rows
    assert [row.verdict for row in rows] == ["fail", "inconclusive"]
    assert continues(rows, sampling(100, 20, 1))


def test_other_gates_wait_and_are_decided_once(results: Results) -> None:
    order = shuffled(60)
    floor = {"metric": "composite", "at_least": "50%"}
    for case in order[0]:
        pair(results, case, (0.9, 0.85))
    first = at(results, sampling(60, 20, 1), COMPOSITE, floor)
    assert [row.sentence for row in first.rows][1] == "Decided when sampling stops."
    for case in [*order[1], *order[2]]:
        pair(results, case, (0.9, 0.85))
    last = at(results, sampling(60, 60, 3), COMPOSITE, floor, before=first.rows)
    assert [row.verdict for row in last.rows] == ["inconclusive", "pass"]
    assert last.rows[1].n == 60


def test_a_comparison_that_waits_counts_in_the_family(results: Results) -> None:
    tokens = {"metric": "tokens.mean", "no_worse_than": "base"}
    for case in shuffled(100)[0]:
        results.both(case, 0.9, 0.5)
    rows = at(results, sampling(100, 20, 1), COMPOSITE, {**COMPOSITE, "margin": "9pp"}, tokens).rows
    assert rows[0].detail["family"] == 3
    assert rows[0].p is not None and rows[0].p_holm == pytest.approx(3 * rows[0].p)


def test_a_relative_margin_needs_no_mean_to_be_known(results: Results) -> None:
    """Base 0.4, so 10% are 4 points: a drop of 5 fails a margin that 5 points would not."""
    random = Random(1)
    for case in [c for batch in shuffled(300) for c in batch]:
        base = random.uniform(0.35, 0.45)
        pair(results, case, (base, base - 0.05 + random.uniform(-0.02, 0.02)))
    interim = sampling(300, 300, 15)
    relative, points = (
        at(results, interim, {**COMPOSITE, "margin": margin}).rows[0] for margin in ("10%", "12pp")
    )
    assert (relative.verdict, points.verdict) == ("fail", "pass")


@pytest.mark.parametrize(
    ("head", "side", "verdict"),
    [
        (0.9, "head", "inconclusive"),
        (0.2, "head", "fail"),  # also with what is lost at the base's score
        (0.2, "base", "inconclusive"),  # the base has no score to put in its place
    ],
)
def test_too_much_missing_decides_only_what_it_could_not_change(
    results: Results, head: float, side: str, verdict: str
) -> None:
    for index, case in enumerate(shuffled(100)[0]):
        lost = index % 3 == 0
        sides = {"base": 0.9, "head": head, **({side: None} if lost else {})}
        results.both(case, sides["base"], sides["head"])
    row = at(results, sampling(100, 20, 1), COMPOSITE).rows[0]
    assert row.verdict == verdict
    assert ("too many to decide" in row.sentence) == (verdict == "inconclusive")


def test_equal_answers_so_far_are_no_proof_about_those_to_come(results: Results) -> None:
    """Sides of two versions: a template may say something new to later cases only."""
    for case in shuffled(100)[0]:
        pair(results, case, (0.8, 0.8))
    assert at(results, sampling(100, 20, 1), COMPOSITE).rows[0].verdict == "inconclusive"


# --- promises -------------------------------------------------------------------------------------

RUNS = 50


def simulated(
    results: Results, random: Random, drop: float, gate: dict[str, Any]
) -> tuple[str, str]:
    """Run a comparison as `more_repeats` does, and as if every look were the only one."""
    results.connection.execute("savepoint trial")
    levels = [random.uniform(0.4, 0.9) for _ in range(30)]
    rows: tuple[GateRow, ...] = ()
    planned = careless = "inconclusive"
    for number in (1, 2, 3):
        results.add(
            *(
                Graded(f"c{i}", _clip(random.gauss(q - shift, 0.2)), side, number - 1, answer=None)
                for i, q in enumerate(levels)
                for side, shift in (("base", 0.0), ("head", drop))
            )
        )
        if planned == "inconclusive":
            rows = at(results, repeats_analysis(number, 1), gate, before=rows).rows
            planned = rows[0].verdict
        if careless == "inconclusive":
            careless = results.decide(gate).rows[0].verdict
        if "inconclusive" not in (planned, careless):
            break
    results.connection.execute("rollback to trial")
    return planned, careless


def _clip(score: float) -> float:
    return min(1.0, max(0.0, score))


def counts(
    results: Results, seed: int, drop: float, gate: dict[str, Any], verdict: str
) -> tuple[int, int]:
    """Return how often planned looks, and careless ones at the same answers, say a verdict."""
    random = Random(seed)
    found = [simulated(results, random, drop, gate) for _ in range(RUNS)]
    planned, careless = (list(each).count(verdict) for each in zip(*found, strict=True))
    return planned, careless


def most_by_luck(share: float) -> int:
    """Return the most of RUNS that a share comes to in 99.5 of 100 simulations."""
    return int(binom.ppf(0.995, RUNS, share))


@pytest.mark.nightly
def test_three_looks_together_fail_an_unchanged_prompt_at_most_as_often_as_one(
    results: Results,
) -> None:
    """A margin of next to nothing leaves the test alone to guard against false alarms."""
    planned, careless = counts(results, 7, 0.0, {**MORE, "margin": "0.1pp"}, "fail")
    assert planned <= most_by_luck(0.05)
    assert 0 < planned < careless, "looking thrice at 5% costs"


@pytest.mark.nightly
def test_three_looks_together_pass_a_drop_of_the_margin_as_rarely_as_one(results: Results) -> None:
    """Clipping at 0 and 1 takes a little off a drop, so the drop is a little over the margin."""
    gate = {**MORE, "margin": "10pp", "worst_case_drop": 0.3}
    planned, careless = counts(results, 8, 0.105, gate, "pass")
    assert planned <= most_by_luck(0.067)
    assert 0 < planned < careless, "looking thrice at 5% costs"
