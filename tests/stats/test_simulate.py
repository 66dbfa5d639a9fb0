"""The simulated methods are those of the package, row by row."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import simulate
from benchmarks import simulate_batch as batch
from benchmarks.simulate_cells import AT_MARGIN, UNCHANGED, Figures
from edison_ci.records import Verdict
from edison_ci.stats.calibration import LabelledScores, corrected_mean
from edison_ci.stats.correction import holm
from edison_ci.stats.drift import cusum
from edison_ci.stats.gates import decide
from edison_ci.stats.intervals import mean_interval
from edison_ci.stats.other_metrics import decide_amount
from edison_ci.stats.paired import Pairs, paired_difference
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


@pytest.mark.parametrize("name", SHAPES)
def test_early_stopping(name: str) -> None:
    d = SHAPES[name](rng(), 4, 200)
    found = batch.anytime(d)
    for index, row in enumerate(d):
        decision = by_looks(row.tolist(), n_max=200)
        assert found.verdicts.passes[index] == (decision.verdict is Verdict.PASS)
        assert found.verdicts.fails[index] == (decision.verdict is Verdict.FAIL)
        assert found.cases[index] == decision.n


def test_corrections_costs_and_drift() -> None:
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
    series = rng().normal(0.8, 0.02, (20, 30))
    series[:, 20:] -= 0.03
    for row, warned in zip(series, batch.cusum_warnings(series), strict=True):
        assert cusum(row).warnings == tuple(np.flatnonzero(warned).tolist())
    human, judge, rest = rng().random((3, 5, 30))
    for h, j, r, low, high in zip(
        human, judge, rest, *batch.ppi_ends(human, judge, rest), strict=True
    ):
        assert corrected_mean(LabelledScores(h, j, r)).interval == pytest.approx((low, high))


def test_figures_become_a_table_between_the_marks() -> None:
    figures = Figures("Title", "what", ("n = 10",), (("a", "5.0"),), "at most 5")
    text = simulate.markdown(figures)
    assert "| what | n = 10 |" in text and "| a | 5.0 |" in text
    page = f"before\n{simulate.START}\nold\n{simulate.END}\nafter"
    new = simulate.replaced(page, text)
    assert "old" not in new and new.startswith("before") and new.endswith("after")
    with pytest.raises(SystemExit):
        simulate.replaced("no marks", text)
