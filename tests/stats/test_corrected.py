"""Means corrected by labels, and gates on them: formulas by hand, promises by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, t

from edison_ci.records import Verdict
from edison_ci.stats.corrected import (
    LabelledScores,
    corrected_mean,
    decide_corrected,
    favors_head,
)
from edison_ci.stats.intervals import mean_interval
from edison_ci.stats.verdicts import GateRule


def sample(n: int, others: int, seed: int, *, bias: float = 0.1) -> tuple[LabelledScores, float]:
    """Return labels and scores of a judge that is too generous, and the true mean."""
    repeat = np.random.default_rng(seed)
    truth = repeat.beta(4, 2, n + others)
    judge = np.clip(truth + bias + repeat.normal(0, 0.1, n + others), 0, 1)
    return LabelledScores(truth[:n], judge[:n], judge[n:]), 4 / 6


def test_the_prediction_powered_mean_is_the_formula() -> None:
    data, _ = sample(40, 200, 1)
    human, judge, rest = (np.asarray(x) for x in (data.human, data.judge, data.unlabelled))
    everything = np.concatenate((judge, rest))
    lam = np.cov(human, judge)[0, 1] / ((1 + 40 / 200) * everything.var(ddof=1))
    lam = min(1, max(0, lam))
    mean = lam * rest.mean() + (human - lam * judge).mean()
    se = math.sqrt(lam**2 * rest.var(ddof=1) / 200 + (human - lam * judge).var(ddof=1) / 40)
    found = corrected_mean(data)
    assert found.value == pytest.approx(mean)
    assert found.trust == pytest.approx(lam)
    reach = t.ppf(0.975, 39) * se
    assert found.interval == pytest.approx((mean - reach, mean + reach))


def test_a_generous_judge_is_corrected_and_the_interval_is_narrower() -> None:
    data, truth = sample(60, 300, 2)
    found = corrected_mean(data)
    assert found.value is not None and found.judge_mean is not None and found.interval is not None
    assert found.judge_mean > truth + 0.05
    assert abs(found.value - truth) < 0.05
    alone = mean_interval(data.human)
    assert alone is not None and alone.interval is not None
    assert found.interval.high - found.interval.low < alone.interval.high - alone.interval.low


def test_a_useless_judge_is_not_trusted() -> None:
    repeat = np.random.default_rng(3)
    human = repeat.uniform(0, 1, 50)
    assert corrected_mean(LabelledScores(human, [0.7] * 50, [0.7] * 100)).trust == 0
    backwards = corrected_mean(LabelledScores(human, 1 - human, repeat.uniform(0, 1, 100)))
    assert backwards.trust == 0
    assert backwards.value == pytest.approx(human.mean())


def test_few_labels_stand_alone() -> None:
    data, _ = sample(19, 100, 4)
    found = corrected_mean(data)
    assert "labels alone" in found.method and found.trust == 0
    assert found.value == pytest.approx(np.mean(data.human))
    assert corrected_mean(LabelledScores([], [], [0.5])).value is None
    everything = corrected_mean(LabelledScores([0.5, 0.6] * 15, [0.5, 0.6] * 15, []))
    assert "all cases labelled" in everything.method


def test_labels_without_spread_still_have_width() -> None:
    found = corrected_mean(LabelledScores([1.0] * 30, [1.0] * 30, [1.0] * 50))
    assert found.value == 1 and found.interval is not None and found.interval.low < 0.95


def test_differences_are_corrected_too() -> None:
    repeat = np.random.default_rng(5)
    human = repeat.normal(-0.05, 0.2, 150).clip(-1, 1)
    judge = (human + 0.1 + repeat.normal(0, 0.1, 150)).clip(-1, 1)
    found = corrected_mean(LabelledScores(human[:40], judge[:40], judge[40:]), differences=True)
    assert found.value is not None and found.value < 0 < float(judge.mean())
    few = corrected_mean(LabelledScores(human[:5], judge[:5], judge[5:]), differences=True)
    assert few.interval is not None and few.interval.low >= -1


def test_labels_that_do_not_match_are_refused() -> None:
    with pytest.raises(ValueError, match="labels"):
        corrected_mean(LabelledScores([0.5], [], [0.5]))
    with pytest.raises(ValueError, match="finite"):
        corrected_mean(LabelledScores([math.nan], [0.5], [0.5]))


def test_the_corrected_mean_covers_the_truth_where_the_judge_does_not() -> None:
    runs, hits, judge_hits = 600, 0, 0
    for seed in range(runs):
        data, truth = sample(40, 260, 100 + seed)
        found = corrected_mean(data)
        assert found.interval is not None
        hits += found.interval.low <= truth <= found.interval.high
        alone = mean_interval(np.concatenate((data.judge, data.unlabelled)))
        assert alone is not None and alone.interval is not None
        judge_hits += alone.interval.low <= truth <= alone.interval.high
    assert hits / runs >= 0.93
    assert judge_hits / runs < 0.5


def test_every_case_for_itself_is_nearly_the_same_as_no_clusters() -> None:
    repeat = np.random.default_rng(5)
    people, judge, rest = (repeat.uniform(0, 1, n) for n in (40, 40, 200))
    judge = 0.5 * judge + 0.5 * people
    alone = ([f"a{i}" for i in range(40)], [f"b{i}" for i in range(200)])
    plain = corrected_mean(LabelledScores(people, judge, rest))
    clustered = corrected_mean(LabelledScores(people, judge, rest, alone))
    assert plain.value == clustered.value
    assert plain.interval is not None
    assert clustered.interval is not None
    assert clustered.method == "prediction-powered mean, clustered"
    assert clustered.interval.low == pytest.approx(plain.interval.low, abs=0.003)


def test_cases_that_are_copies_of_each_other_count_once() -> None:
    repeat = np.random.default_rng(5)
    people, judge, rest = (repeat.uniform(0, 1, n) for n in (40, 40, 200))
    names = ([f"a{i}" for i in range(40)], [f"b{i}" for i in range(200)])
    twice = (names[0] * 2, names[1] * 2)
    once = corrected_mean(LabelledScores(people, judge, rest, names))
    more = [np.concatenate((x, x)) for x in (people, judge, rest)]
    doubled = corrected_mean(LabelledScores(more[0], more[1], more[2], twice))
    careless = corrected_mean(LabelledScores(more[0], more[1], more[2]))
    widths = [
        found.interval.high - found.interval.low
        for found in (once, doubled, careless)
        if found.interval is not None
    ]
    assert widths[1] == pytest.approx(widths[0], rel=0.05)
    assert widths[2] < 0.8 * widths[0]


def test_few_labels_of_clusters_stand_alone_with_the_interval_of_clusters() -> None:
    found = corrected_mean(
        LabelledScores(
            [1.0, 1.0, 0.0, 0.0], [1.0] * 4, [1.0] * 5, (["a", "a", "b", "b"], list("vwxyz"))
        )
    )
    plain = corrected_mean(LabelledScores([1.0, 1.0, 0.0, 0.0], [1.0] * 4, [1.0] * 5))
    assert found.interval is not None
    assert plain.interval is not None
    assert found.interval.high - found.interval.low > plain.interval.high - plain.interval.low


@pytest.mark.parametrize(("wrong", "n"), [(0.01, 20), (0.05, 20), (0.03, 60)])
def test_errors_too_rare_to_be_seen_are_allowed_for(wrong: float, n: int) -> None:
    """The judge lets some fails pass, and is right about all else; the truth is 90% passes."""
    repeat, runs, hits = np.random.default_rng(9), 300, 0
    for _ in range(runs):
        human = (repeat.random(300) < 0.9).astype(float)
        judge = np.maximum(human, repeat.random(300) < wrong / 0.1)
        found = corrected_mean(LabelledScores(human[:n], judge[:n], judge[n:]))
        assert found.interval is not None and found.value is not None
        assert found.interval.low <= found.value <= found.interval.high
        hits += found.interval.low <= 0.9 <= found.interval.high
    assert hits >= 0.925 * runs


def test_a_judge_without_a_seen_error_is_still_worth_something() -> None:
    human = [float(index % 10 > 2) for index in range(300)]
    found = corrected_mean(LabelledScores(human[:60], human[:60], human[60:]))
    alone = mean_interval(human[:60])
    assert found.method.endswith("one unseen error allowed for")
    assert found.interval is not None and alone is not None and alone.interval is not None
    assert found.interval.high - found.interval.low < alone.interval.high - alone.interval.low
    # By hand: all gaps are equal but for rounding, plus one at a distance of 1.
    lam = found.trust
    gap, rest = np.array(human[:60]) * (1 - lam), np.array(human[60:]) * lam
    more = np.append(gap, gap.mean() - 1)
    se = math.sqrt(more.var(ddof=1) / 61 + rest.var(ddof=1) / 240)
    low = rest.mean() + more.mean() - t.ppf(0.975, 60) * se
    assert found.interval.low == pytest.approx(low)


def test_rare_errors_in_few_labels_leave_the_labels_alone() -> None:
    human = [0.2 * (index % 3) + 0.5 for index in range(100)]
    found = corrected_mean(LabelledScores(human[:20], human[:20], human[20:]))
    assert found.method == "labels alone: the judge's errors are too rare in them"
    assert found.value == pytest.approx(np.mean(human[:20]))


# --- gates ----------------------------------------------------------------------------------------


def changes(
    n: int, total: int, seed: int, *, human: float, flattery: float, noise: float = 0.1
) -> LabelledScores:
    """Return changes by people and a judge that flatters the head, of which n are labelled."""
    repeat = np.random.default_rng(seed)
    people = repeat.normal(human, 0.15, total).clip(-1, 1)
    judge = (people + flattery + repeat.normal(0, noise, total)).clip(-1, 1)
    return LabelledScores(people[:n], judge[:n], judge[n:])


RULE = GateRule()


def decided(data: LabelledScores, rule: GateRule = RULE) -> Verdict | None:
    found = decide_corrected(data, rule, rng=np.random.default_rng(1))
    return None if found is None else found.decision.verdict


def test_a_judge_that_flatters_the_head_cannot_make_a_gate_pass() -> None:
    assert decided(changes(100, 400, 1, human=-0.1, flattery=0.1)) is Verdict.FAIL
    assert decided(changes(100, 400, 1, human=-0.1, flattery=0.0)) is Verdict.FAIL
    assert decided(changes(200, 800, 1, human=0.0, flattery=-0.1)) is Verdict.PASS
    unclear = decided(changes(100, 400, 1, human=-0.03, flattery=0.1))
    assert unclear is Verdict.INCONCLUSIVE


def test_the_corrected_change_and_its_bounds_are_the_formula() -> None:
    data = changes(100, 400, 2, human=0.0, flattery=0.05)
    human, judge, rest = (np.asarray(x) for x in (data.human, data.judge, data.unlabelled))
    everything = np.concatenate((judge, rest))
    lam = min(1.0, human @ judge / 100 / ((1 + 100 / 300) * (everything @ everything) / 400))
    gap = human - lam * judge
    far = lam**2 * rest.var(ddof=1) / 300
    mean, more = lam * rest.mean() + gap.mean(), np.append(gap, -1.0)
    found = decide_corrected(data, RULE, rng=np.random.default_rng(1))
    assert found is not None
    assert found.trust == pytest.approx(lam)
    assert found.judge == pytest.approx(everything.mean())
    decision = found.decision
    assert decision.value == pytest.approx(mean)
    assert decision.n == 400
    low = lam * rest.mean() + more.mean()
    low -= t.ppf(0.95, 100) * math.sqrt(far + more.var(ddof=1) / 101)
    high = mean + t.ppf(0.95, 99) * math.sqrt(far + gap.var(ddof=1) / 100)
    assert decision.worst_plausible == pytest.approx(low)
    assert decision.best_plausible == pytest.approx(high)


def test_too_few_labels_do_not_decide() -> None:
    assert decided(changes(30, 400, 1, human=0.0, flattery=0.0)) is None
    assert decided(changes(15, 400, 1, human=0.0, flattery=0.0), GateRule(margin=0.5)) is None
    strict = GateRule(guarantee="strict")
    assert decided(changes(200, 400, 1, human=0.0, flattery=0.0), strict) is None


def test_lost_heads_count_as_dropped_to_nothing() -> None:
    data = changes(150, 600, 1, human=0.0, flattery=0.0)
    found = [
        decide_corrected(data, RULE, rng=np.random.default_rng(1), lost=lost)
        for lost in ((), (1.0,) * 40)
    ]
    assert found[0] is not None and found[1] is not None
    assert found[0].decision.verdict is Verdict.PASS
    assert found[1].decision.verdict is Verdict.INCONCLUSIVE
    whole, part = found[0].decision.worst_plausible, found[1].decision.worst_plausible
    assert whole is not None
    assert part == pytest.approx((600 * whole - 40) / 640)


def test_when_all_cases_are_labelled_people_decide() -> None:
    data = changes(200, 200, 1, human=-0.1, flattery=0.1)
    assert decided(data) is Verdict.FAIL
    assert decided(changes(400, 400, 1, human=0.0, flattery=-0.2)) is Verdict.PASS


def test_clusters_of_copies_decide_as_one() -> None:
    data = changes(100, 400, 1, human=0.0, flattery=0.0)
    human, judge, rest = (
        np.repeat(np.asarray(x), 2) for x in (data.human, data.judge, data.unlabelled)
    )
    names = ([f"c{i // 2}" for i in range(200)], [f"c{100 + i // 2}" for i in range(600)])
    copies = decide_corrected(
        LabelledScores(human, judge, rest, names), RULE, rng=np.random.default_rng(1)
    )
    once = decide_corrected(data, RULE, rng=np.random.default_rng(1))
    assert copies is not None and once is not None
    assert copies.decision.worst_plausible == pytest.approx(once.decision.worst_plausible, abs=1e-3)


def test_a_drop_at_the_margin_rarely_passes_and_no_change_rarely_fails() -> None:
    """One case in 20 breaks, and the judge sees only half of the breaks."""
    repeat, runs, passes, fails, judge_alone = np.random.default_rng(4), 80, 0, 0, 0
    for seed in range(runs):
        human = -(repeat.random(400) < 0.05).astype(float)
        judge = np.where(repeat.random(400) < 0.5, human, 0.0)
        verdict = decided(LabelledScores(human[:150], judge[:150], judge[150:]))
        passes += verdict is Verdict.PASS
        judge_alone += judge.mean() > -0.035
        fair = changes(100, 300, 1000 + seed, human=0.0, flattery=0.1)
        fails += decided(fair) is Verdict.FAIL
    assert passes <= binom.ppf(0.995, runs, 0.067)
    assert fails <= 0.05 * runs
    assert judge_alone > 0.8 * runs, "by the judge alone most would"


def test_labels_show_that_a_judge_favors_the_head() -> None:
    data = changes(20, 20, 3, human=0.0, flattery=0.1)
    rng = np.random.default_rng(1)
    found = favors_head(data.human, data.judge, rng=rng)
    assert found.n == 20
    assert found.value == pytest.approx(0.1, abs=0.05)
    assert found.p.value < 0.01
    assert favors_head(data.judge, data.human, rng=rng).p.value > 0.9
