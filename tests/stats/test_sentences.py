"""The words of STATS.md, from the records they describe."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edison_ci.records import Verdict
from edison_ci.stats.agreement import Agreement, severity_of
from edison_ci.stats.arrays import Range
from edison_ci.stats.calibration import SideBias
from edison_ci.stats.corrected import CorrectedMean
from edison_ci.stats.drift import Alarm, DriftEvidence, DriftReport, Drop, Forecast, Trend
from edison_ci.stats.gates import Limit, decide, decide_as_is, decide_level, identical_outputs
from edison_ci.stats.other_metrics import decide_amount
from edison_ci.stats.paired import Pairs
from edison_ci.stats.pairwise import BothOrders, OrderEffect, Preference, WinRate, win_rate
from edison_ci.stats.permutation import PValue
from edison_ci.stats.sentences import (
    agreement_sentence,
    comparisons_sentence,
    correction_sentence,
    drift_sentence,
    gate_p_words,
    gate_sentence,
    judges_sentence,
    order_sentence,
    p_words,
    points,
    side_sentence,
    signed,
    two_sided,
    value_sentence,
    win_sentence,
)
from edison_ci.stats.value import Contender, recommend
from edison_ci.stats.verdicts import GateDecision, GateRule

P = PValue(0.002, 40, "permutation test", "less", 30, 9_999)
GATE = GateDecision(
    verdict=Verdict.FAIL,
    value=-0.091,
    n=40,
    method="",
    interval=Range(-0.14, -0.042),
    level=0.95,
    margin=0.05,
    worst_plausible=-0.15,
    best_plausible=-0.05,
    p=P,
    tests="any drop",
    p_adjusted=0.002,
)


def passed(passes: int, of: int) -> list[float]:
    return [1.0] * passes + [0.0] * (of - passes)


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


@pytest.mark.parametrize(
    ("p", "said"),
    [
        (0.2, "p = 0.2"),
        (0.0123, "p = 0.012"),
        (0.001, "p = 0.001"),
        (0.0005, "p < 0.001"),
        (0, "p < 0.001"),
        (1, "p > 0.99"),
    ],
)
def test_p_values(p: float, said: str) -> None:
    assert p_words(p) == said


def test_a_p_value_says_what_it_tests() -> None:
    assert two_sided(0.27) == "two-sided p = 0.27 for any difference"
    assert gate_p_words(replace(GATE, family=3)) == (
        " One-sided p = 0.002 for any drop, corrected for 3 tests."
    )
    assert gate_p_words(replace(GATE, p_adjusted=None)) == ""
    milder = GateRule(margin=0.1, fail_rule="beyond_margin")
    assert milder.sequential_question() == "a drop beyond 10 points"
    assert milder.sequential_question(0.1) == "a drop beyond 10%"


def test_numbers_are_rounded_at_the_end_and_zero_has_no_sign() -> None:
    assert (points(0.814), points(1.0), points(-0.0001), points(0.05)) == ("81.4", "100", "0", "5")
    assert (signed(-0.012), signed(0.015), signed(-0.0001)) == ("-1.2", "+1.5", "0")


def test_the_three_verdicts() -> None:
    assert gate_sentence(GATE) == (
        "Quality dropped by 9.1 points (at least 5, one-sided 95%) on the same 40 cases. One-sided "
        "p = 0.002 for any drop."
    )
    kept = replace(GATE, verdict=Verdict.PASS, value=0.001, worst_plausible=-0.029, n=120)
    assert gate_sentence(kept) == (
        "No drop beyond your 5-point tolerance: worst plausible change -2.9 points "
        "(one-sided 95%, 120 cases)."
    )
    unclear = replace(
        GATE, verdict=Verdict.INCONCLUSIVE, value=-0.01, interval=Range(-0.076, 0.056), n=30,
        n_more=97,
    )  # fmt: skip
    assert gate_sentence(unclear) == (
        "Changed by -1.0 (likely -7.6 to +5.6). 30 cases are too few: about 97 more would settle "
        "it if nothing really changed."
    )


def test_verdicts_with_notes_and_without_numbers() -> None:
    assert "inside your tolerance" in gate_sentence(
        replace(GATE, verdict=Verdict.PASS, notes=("small real drop, inside your tolerance",))
    )
    assert gate_sentence(identical_outputs(5)).startswith("Nothing to compare")
    none = gate_sentence(decide(Pairs.of([], []), rng=rng()))
    assert "could not be compared" in none and "about 200 more" in none
    few = gate_sentence(decide(Pairs.of([0.1, 0.5, 0.9], [0.3, 0.2, 0.9]), rng=rng()))
    assert " to " in few and "3 cases are too few" in few
    wide = replace(GATE, interval=Range(-0.2, 0.01), alpha=0.0015)
    assert "(at least 5, one-sided 99.85%)" in gate_sentence(wide)


def test_clusters_are_what_is_missing_where_there_are_any() -> None:
    unclear = replace(GATE, verdict=Verdict.INCONCLUSIVE, n=30, clusters=6, n_needed=120, n_more=90)
    said = gate_sentence(unclear)
    assert "30 cases in 6 clusters are too few: about 18 clusters more" in said
    never = gate_sentence(replace(unclear, n_needed=None, n_more=None))
    assert never.endswith("No number of clusters settles it.")
    floor = replace(unclear, kind="level", value=0.8, margin=0.7)
    assert gate_sentence(floor).endswith("About 18 more clusters like these would settle it.")


def test_levels_and_amounts() -> None:
    assert "keeps the limit of 80" in gate_sentence(
        decide_level(passed(49, 50), Limit(0.8)), what="Pass rate"
    )
    assert "misses" in gate_sentence(decide_level(passed(10, 50), Limit(0.8)))
    assert "more cases like these" in gate_sentence(decide_level(passed(42, 50), Limit(0.8)))
    at_limit = gate_sentence(decide_level(passed(40, 50), Limit(0.8)))
    assert at_limit.endswith("keeps the limit of 80.")
    assert "keeps its limit" in gate_sentence(decide_as_is(0.01, 50, Limit(0.02, "at_most")))
    same = gate_sentence(
        decide_amount(Pairs.of([1, 2, 3] * 20, [1, 2, 3] * 20), rng=rng()), what="Cost"
    )
    assert "inside the 10%" in same
    dear = gate_sentence(
        decide_amount(Pairs.of([1, 2, 3] * 4, [2, 4, 5] * 4), rng=rng()), what="Cost"
    )
    assert dear.startswith("Cost +83% (at least ") and "more than the 10%" in dear
    assert dear.endswith("One-sided p < 0.001 for any increase.")


def test_many_comparisons() -> None:
    assert comparisons_sentence(made=12, stand_out=1) == (
        "12 comparisons were made; 1 stands out after correction for their number."
    )


def test_judges() -> None:
    table = [[0.9, 0.24 if i < 4 else 0.84, 0.9] for i in range(50)]
    said = judges_sentence(["A", "B", "C"], severity_of(table, 3), apart=4, of=50)
    assert said.startswith("3 judges, they differ by 50+ points on 4 of 50 cases (listed below).")
    assert "Judge B is 11 points stricter than the others." in said
    apart = judges_sentence(["A", "B"], severity_of([[0.9, 0.5]] * 9, 2), apart=0, of=9)
    assert "Judge A is 40 points more generous" in apart
    alpha = Agreement(0.7, 50, "Krippendorff's alpha, interval", Range(0.6, 0.8), 0.95, 0.62)
    assert agreement_sentence(alpha) == (
        "Usable with care (Krippendorff's alpha, interval 0.70, likely 0.60 to 0.80). "
        "Equal judgments: 62%."
    )
    assert "not computable" in agreement_sentence(replace(alpha, value=None))


def test_head_to_heads() -> None:
    order = OrderEffect(0.02, 60, "", None, 0.95, P, 0.81)
    rate = WinRate(0.38, 60, "", Range(0.28, 0.49), 0.95, Preference.B, P, order, 0, ())
    assert win_sentence(rate) == (
        "B preferred in 62% (likely 51 to 72) of 60 cases, ties counted half. "
        "Judge agreed with itself after swapping on 81%."
    )
    assert "No clear preference" in win_sentence(replace(rate, preference=Preference.UNCLEAR))
    assert "both orders" in win_sentence(win_rate([BothOrders(None, 1)], rng=rng()))
    assert order_sentence(replace(order, consistency=0.69)) == (
        "this judge follows position on 3 of 10 cases"
    )
    assert order_sentence(order) is None


def test_corrections() -> None:
    corrected = CorrectedMean(0.69, 60, "ppi", Range(0.64, 0.74), 0.95, 240, 0.78, 0.8)
    assert correction_sentence(corrected) == (
        "Judge says 78. Checked against 60 human labels it is 9 too generous: corrected 69 "
        "(64 to 74)."
    )
    assert "about right" in correction_sentence(replace(corrected, value=0.78))
    alone = replace(corrected, trust=0.0, method="labels alone: fewer than 20 labels", n=8)
    assert correction_sentence(alone).startswith("8 human labels say 69 (64 to 74)")
    assert correction_sentence(replace(corrected, value=None)) == "No human labels."
    bias = SideBias(0.08, 30, "", None, 0.95, P)
    assert "judge may favour one side" in (side_sentence(bias) or "")
    assert side_sentence(replace(bias, p=replace(P, value=0.5))) is None


def test_drift() -> None:
    drop = Drop(0.1111, 20, "", None, 0.95, 0.81, 0.72, runs=3)
    falling = Trend(-0.006 / 7, 12, "", 0.012, -40, 0.812)
    report = DriftReport(Alarm.ALERT, drop, DriftEvidence(30.0, 12, "", 9), falling, 12)
    forecast = Forecast(28.0, 12, "", Range(21.0, 51.0), 0.95)
    said = drift_sentence(report, forecast, when=lambda day: f"day {day:.0f}", threshold=0.7)
    assert said == (
        "Quality 72 over the last 3 runs, was 81 (5-run reference): -11%. Without a change, seen "
        "at most once in 20 years on average. Falling about 0.6 points a week (from 81.2, "
        "two-sided p = 0.012 for any trend); at this pace it reaches 70 around day 28 "
        "(day 21 to day 51)."
    )
    warned = replace(report, alarm=Alarm.WARN, trend=replace(falling, p=0.4))
    assert drift_sentence(warned, when=str) == (
        "Quality 72 over the last 3 runs, was 81 (5-run reference): -11%. Without a change, seen "
        "at most once a quarter on average. No clear trend: -0.6 points a week (from 81.2, "
        "two-sided p = 0.4 for any trend)."
    )
    quiet = replace(
        report, alarm=Alarm.NONE, drop=replace(drop, runs=1), evidence=replace(report.evidence,
        value=0.1), trend=replace(falling, value=0.006 / 7)
    )  # fmt: skip
    assert drift_sentence(quiet, when=str) == (
        "Quality 72, was 81 (5-run reference): -11%, within the noise of these runs. Rising about "
        "0.6 points a week (from 81.2, two-sided p = 0.012 for any trend)."
    )
    small = replace(quiet, evidence=report.evidence, trend=replace(falling, equal=True))
    assert drift_sentence(small, when=str).endswith(
        ": -11%, a small drop. All 12 runs score the same: no trend."
    )
    far = replace(forecast, value=None, reason="too far to predict")
    assert "too far to predict" in drift_sentence(report, far, when=str, threshold=0.7)
    empty = replace(report, drop=replace(drop, current=None))
    assert "Nothing to compare" in drift_sentence(empty, when=str)


def test_best_value() -> None:
    best = np.random.default_rng(1).beta(8, 2, 200)
    near = np.clip(best - 0.004 + np.random.default_rng(2).normal(0, 0.02, 200), 0, 1)
    said = value_sentence(
        recommend([Contender("large", best, 1.0), Contender("small-2", near, 0.12)])
    )
    assert said.startswith("Use small-2: within 5 points of the best (worst plausible -")
    assert said.endswith("at 12% of the cost.")
    far = recommend([Contender("large", best, 1.0), Contender("tiny", best - 0.2, 0.01)])
    assert value_sentence(far) == (
        "Use large: no other model is shown to be within 5 points of it. The cheapest choice is "
        "tiny: 20 points lower at 1% of the cost."
    )
