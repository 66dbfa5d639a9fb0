"""The simulated methods are those of the package, row by row."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import simulate
from benchmarks import simulate_alerts as alerts
from benchmarks import simulate_batch as batch
from benchmarks import simulate_edges as edges
from benchmarks import simulate_trials as trials
from benchmarks import simulate_watching as watching
from benchmarks.simulate_cells import AT_MARGIN, UNCHANGED
from benchmarks.simulate_figures import Figures, Setting
from benchmarks.simulate_judges import (
    agreement_lows,
    corrected_gates,
    judges_of,
    point_kappa,
)
from benchmarks.simulate_repeated import repeated_inputs
from edison_ci.records import Verdict
from edison_ci.stats.calibration import agreement_bound
from edison_ci.stats.convergence import sampled_gain, sampled_p
from edison_ci.stats.corrected import LabelledScores, corrected_mean, decide_corrected
from edison_ci.stats.gates import Limit, decide, decide_level
from edison_ci.stats.intervals import mean_interval
from edison_ci.stats.other_metrics import decide_amount
from edison_ci.stats.paired import Pairs, paired_difference
from edison_ci.stats.permutation import paired_p
from edison_ci.stats.scores import Unseen, clustered_mean
from edison_ci.stats.sequential import planned_levels, repeated_p
from edison_ci.stats.verdicts import GateRule, holm
from tests.stats.anytime import by_looks

SHAPES = {**UNCHANGED, **AT_MARGIN}


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def pairs_of(d: list[float]) -> Pairs:
    return Pairs.of([max(0.0, -x) for x in d], [max(0.0, x) for x in d])


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("n", [8, 60])
def test_gates(name: str, n: int) -> None:
    d = SHAPES[name](rng(), 40, n)
    found = batch.gates(d, rng())
    for row, passes, fails in zip(d.tolist(), found.passes, found.fails, strict=True):
        decision = decide(pairs_of(row), rng=rng())
        assert passes == (decision.verdict is Verdict.PASS)
        p = decision.p.value if decision.p is not None else 1.0
        if abs(p - 0.05) > 0.006 or n == 8:  # random signs may fall either side of .05
            assert fails == (decision.verdict is Verdict.FAIL)


def test_intervals() -> None:
    passes = (rng().random((3, 12)) < 0.9).astype(float)
    x = np.vstack((rng().beta(8, 1, (20, 12)), np.ones((1, 12)), passes))
    for row, low, high in zip(x, *batch.score_ends(x), strict=True):
        shown = mean_interval(row)
        assert shown is not None and shown.interval == pytest.approx((low, high), abs=1e-12)
    d = np.vstack((rng().normal(0, 0.5, (20, 12)).clip(-1, 1), np.zeros((1, 12))))
    for row, low, high in zip(d, *batch.paired_ends(d), strict=True):
        found = paired_difference(row)
        assert found is not None and found.interval == pytest.approx((low, high), abs=1e-12)


@pytest.mark.parametrize("name", edges.SIZES)
def test_clusters(name: str) -> None:
    sizes = edges.SIZES[name](rng(), 10, 30)
    sums = -sizes * (rng().random(sizes.shape) < 0.1)
    for unseen in (None, Unseen(1.7, -1.0)):
        found = edges.clustered_errors(sums, sizes, unseen)
        df = np.broadcast_to(found.df, found.mean.shape)
        for row, (mean, se, free) in enumerate(zip(found.mean, found.se, df, strict=True)):
            one = clustered_mean(sums[row].tolist(), sizes[row].tolist(), unseen)
            assert (mean, se**2, free) == pytest.approx((one.mean, one.variance, one.df))


@pytest.mark.parametrize("name", edges.FLOORS)
def test_floors(name: str) -> None:
    x = edges.FLOORS[name](rng(), 0.9, (20, 30))
    found = edges.LevelBounds(x)
    for row, low, high in zip(x, found.low, found.high, strict=True):
        decision = decide_level(row, Limit(0.9))
        bounds = decision.worst_plausible, decision.best_plausible
        assert bounds == pytest.approx((max(0.0, low), high), abs=1e-9)


@pytest.mark.parametrize("name", SHAPES)
def test_early_stopping(name: str) -> None:
    d = SHAPES[name](rng(), 3, 120)
    found = batch.anytime(d)
    for index, row in enumerate(d):
        decision = by_looks(row.tolist(), n_max=120)
        assert found.verdicts.passes[index] == (decision.verdict is Verdict.PASS)
        assert found.verdicts.fails[index] == (decision.verdict is Verdict.FAIL)
        assert found.cases[index] == decision.n


def test_corrections_and_costs() -> None:
    p = rng().random((30, 6)) ** 4
    shown = rng().random((30, 6)) < 0.5
    for row, mask, fails in zip(p, shown, batch.holm_fails(p, shown), strict=True):
        adjusted = np.array(holm(row).value)
        assert fails == bool(((adjusted <= 0.05) & mask).any())
    base = rng().lognormal(0, 0.6, (30, 12))
    head = base * np.random.default_rng(2).lognormal(0.15, 0.2, (30, 12))
    costs = batch.amounts(base, head, rng())
    for b, h, passes, fails in zip(base, head, costs.passes, costs.fails, strict=True):
        verdict = decide_amount(Pairs.of(b, h), rng=rng()).verdict
        assert (passes, fails) == (verdict is Verdict.PASS, verdict is Verdict.FAIL)
    human, judge, rest = rng().random((3, 5, 30))
    for h, j, r, low, high in zip(
        human, judge, rest, *batch.ppi_ends(human, judge, rest), strict=True
    ):
        assert corrected_mean(LabelledScores(h, j, r)).interval == pytest.approx((low, high))


@pytest.mark.parametrize("n", [20, 60])
def test_corrections_of_a_judge_that_is_rarely_wrong(n: int) -> None:
    human = (rng().random((30, 200)) < 0.8).astype(float)
    judge = np.maximum(human, np.random.default_rng(2).random(human.shape) < 0.15)
    ends = batch.ppi_ends(human[:, :n], judge[:, :n], judge[:, n:])
    for h, j, low, high in zip(human, judge, *ends, strict=True):
        found = corrected_mean(LabelledScores(h[:n], j[:n], j[n:]))
        assert found.interval == pytest.approx((low, high))


@pytest.mark.parametrize("drop", [0.0, 0.05, 0.12])
def test_gates_corrected_by_labels(drop: float) -> None:
    human = rng().normal(-drop, 0.1, (20, 300)).clip(-1, 1)
    judge = (human + np.random.default_rng(2).normal(0.05, 0.1, human.shape)).clip(-1, 1)
    found = corrected_gates(human[:, :80], judge[:, :80], judge[:, 80:], rng())
    verdicts = found.verdicts
    for h, j, passes, fails, enough in zip(
        human, judge, verdicts.passes, verdicts.fails, found.enough, strict=True
    ):
        decided = decide_corrected(LabelledScores(h[:80], j[:80], j[80:]), GateRule(), rng=rng())
        assert enough == (decided is not None)
        if decided is not None:
            assert passes == (decided.decision.verdict is Verdict.PASS)
            assert fails == (decided.decision.verdict is Verdict.FAIL)


@pytest.mark.parametrize("answers", [1, 3])
def test_lower_bounds_of_agreement(answers: int) -> None:
    units = [str(case) for case in range(20) for _ in range(answers)]
    for draw in judges_of(0.6).values():
        human, judge = draw(rng(), (8, 20, answers))
        lows, values = agreement_lows(human, judge), point_kappa(human, judge)
        for h, j, low, value in zip(human, judge, lows, values, strict=True):
            found = agreement_bound(h.ravel(), j.ravel(), units)
            if found is None:
                assert np.isnan(low)
            else:
                assert (found.low, found.value) == pytest.approx((low, value))


def test_figures_become_a_table_between_the_marks() -> None:
    figures = Figures("Title", "what", ("n = 10",), (("a", "5.0"),), "at most 5")
    text = simulate.markdown(figures)
    assert "| what | n = 10 |" in text and "| a | 5.0 |" in text
    page = f"before\n{simulate.START}\nold\n{simulate.END}\nafter"
    new = simulate.replaced(page, text)
    assert "old" not in new and new.startswith("before") and new.endswith("after")
    with pytest.raises(SystemExit):
        simulate.replaced("no marks", text)


def test_questions_under_several_ids_are_counted_once() -> None:
    figures = repeated_inputs(Setting(40, rng()))
    at_margin, _, clustered, clustered_more = (
        [float(row[column]) for row in figures.rows] for column in (1, 2, 3, 4)
    )
    assert max(at_margin) > 15, "by id, a drop of the margin passes often"
    assert max(clustered + clustered_more) <= 5


def test_families_at_planned_analyses_are_those_of_holm() -> None:
    p = rng().random((30, 4, 3)) ** 3
    null = np.array([True, True, False, False])
    levels = np.array([planned_levels(3, alpha=0.05 / m) for m in range(1, 5)])
    for family in p:
        wrong = False
        for look in range(3):
            repeated = [repeated_p(float(x), look=look + 1, looks=3) for x in family[:, look]]
            rejected = np.array(holm(repeated).value) <= 0.05
            wrong |= bool((rejected & null).any())
            if rejected.any():
                break
        assert watching.any_false(family[None], levels, null) == wrong


def test_the_tables_of_watching_have_their_rows() -> None:
    setting = Setting(20, rng())
    for table in (watching.pruning, watching.planned_family):
        found = table(setting)
        assert all(len(row) == len(found.columns) + 1 for row in found.rows)


@pytest.mark.nightly
@pytest.mark.parametrize(("schedule", "runs"), [("weekly", 60), ("daily", 90), ("hourly", 90)])
def test_quiet_years_raise_no_more_alarms_than_promised(schedule: str, runs: int) -> None:
    """All conditions together: a WARN at most once a quarter, an ALERT in at most 1 of 20 years."""
    generator, series, warned, alerted = rng(), 5, 0, 0
    for shape in (alerts.Shape(20), alerts.Shape(50, documents=5), alerts.Shape(20, repeats=3)):
        for _ in range(series):
            days = alerts.DAYS[schedule]
            judge = alerts.judge_paths(generator, runs, days)
            path = np.concatenate([alerts.quiet_paths(generator, shape, runs, days), judge])
            above = path >= 0.25
            warned += int((above[:, 1:] & ~above[:, :-1]).sum())
            alerted += int((path >= 20).any(axis=1).sum())
    years = 3 * series * (runs - 5) * alerts.DAYS[schedule] / 365.25
    assert warned <= 4 * years + 2 * math.sqrt(4 * years) + 1
    assert alerted <= years / 20 + 2 * math.sqrt(years / 20) + 1


@pytest.mark.nightly
def test_a_real_fall_or_rate_is_found_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    # Those of another method, for which the next test is.
    monkeypatch.setattr(alerts, "kendall_limits", lambda between: np.arange(1.0, 1 + len(between)))
    setting = Setting(500, rng())
    for row in alerts.falls(setting).rows:
        if row[0].startswith(("-10 at once", "-20 at once")) and "graded" in row[0]:
            assert int(row[2].split()[0]) <= 2, row
    for row in alerts.call_delays(Setting(150, rng())).rows:
        if row[0].startswith("50%"):
            assert all(int(cell.split()[0]) <= 2 for cell in row[1:]), row


def test_limits_of_other_methods_have_the_stated_time_between_false_alarms() -> None:
    """A CUSUM of standard normal numbers, and Kendall's z over 26 of them."""
    generator, runs = rng(), 100.0
    limit, alarms, steps = alerts.cusum_limit(runs), 0, 20_000
    total = 0.0
    for u in generator.normal(size=steps):
        total = max(0.0, total - u - 0.5)
        if total >= limit:
            alarms, total = alarms + 1, 0.0
    assert alarms == pytest.approx(steps / runs, rel=0.2)
    often, seldom = alerts.kendall_limits((26.0, 200.0), series_=20, length=300)
    assert 0.5 < often < seldom < 5
    fall = np.linspace(1, 0, 30)
    assert alerts.kendall_path(fall)[-1] > 5 > 0 > alerts.kendall_path(fall[::-1])[-1]


@pytest.mark.nightly
@pytest.mark.parametrize("gain", [-0.2, 0.0, 0.05, 0.15])
def test_sampled_trials(gain: float) -> None:
    d = rng().normal(gain, 0.2, (25, 50)).clip(-1, 1)
    found = trials.sampled_trials(d, rng())
    for row, accepted, cases in zip(d, found.accepted, found.cases, strict=True):
        looks: list[int] = []
        for look in (20, 40, 50):
            looks.append(look)
            seen = sampled_gain(pairs_of(row[:look].tolist()), looks=looks)
            if (seen.shown and row[:look].mean() > 0) or seen.hopeless:
                break
        assert cases == look
        final = paired_p(pairs_of(row.tolist()), rng=rng(), side="greater").value
        p = sampled_p(seen.p, final if look == 50 else None)
        if abs(p - 0.1) > 0.01:  # random signs may fall either side of it
            assert accepted == (row[:look].mean() > 0 and p <= 0.1)


@pytest.mark.nightly
def test_the_tables_of_trials_keep_their_promises_roughly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch, "_REPEATS", 1_000)
    table = trials.sampling(Setting(60, rng()))
    unchanged = [row for row in table.rows if row[0].endswith("gain +0")]
    assert len(unchanged) == 3
    for row in unchanged:
        assert float(row[2]) < float(row[3]), "sampling accepts less than naive looks do"
    few = Setting(30, rng())
    for pruned in (trials.candidates(few), trials.looped(few)):
        assert all(float(row[1]) == 0 for row in pruned.rows), "3 runs a row"
        assert max(float(row[2]) for row in pruned.rows if row[2] != "-") > 50


def test_one_table_is_renewed_and_the_others_stay() -> None:
    old, new = (Figures("B", "x", ("n",), ((value, "1"),), "none") for value in ("old", "new"))
    other = simulate.markdown(Figures("A", "x", ("n",), (("a", "1"),), "none"))
    text = f"before\n\n{simulate.START}\n\n{other}\n\n{simulate.END}\nafter\n"
    added = simulate.renewed(text, old)
    assert added == text.replace(other, f"{other}\n\n{simulate.markdown(old)}")
    first = simulate.renewed(added, Figures("A", "x", ("n",), (("z", "1"),), "none"))
    assert first == added.replace("| a | 1 |", "| z | 1 |")
    assert simulate.renewed(added, new) == added.replace("| old |", "| new |")
