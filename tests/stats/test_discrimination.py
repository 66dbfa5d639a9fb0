"""Item discrimination: against scipy, by its edges, and by the coverage of its interval."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from benchmarks import simulate_items
from benchmarks.simulate_figures import Setting
from benchmarks.simulate_items import coverage, verdicts
from edison_ci.stats.discrimination import discrimination

PASSES = [0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0]
REST = [0.2, 0.3, 0.25, 0.4, 0.5, 0.6, 0.55, 0.9]
EIGHT = [f"m{i}" for i in range(8)]


def test_the_value_is_the_point_biserial_correlation() -> None:
    found = discrimination(PASSES, REST, EIGHT)
    assert found.value == pytest.approx(stats.pointbiserialr(PASSES, REST).statistic)
    assert (found.method, found.n, found.subjects) == ("point-biserial", 8, 8)
    scores = [0.5 * x + 0.1 for x in PASSES]
    other = discrimination(scores, REST, EIGHT)
    assert other.method == "item-rest correlation"
    assert other.value == pytest.approx(found.value)


def test_the_interval_is_the_wider_of_fisher_and_the_jackknife() -> None:
    found = discrimination(PASSES, REST, EIGHT)
    assert found.value is not None and found.interval is not None and found.p is not None
    left = [
        math.atanh(stats.pearsonr(np.delete(PASSES, i), np.delete(REST, i)).statistic)
        for i in range(8)
    ]
    jackknife = math.sqrt(7 / 8 * sum((z - np.mean(left)) ** 2 for z in left))
    error, z = max(jackknife, 1 / math.sqrt(5)), math.atanh(found.value)
    away = stats.t.ppf(0.975, 7) * error
    assert found.interval == pytest.approx((math.tanh(z - away), math.tanh(z + away)))
    assert found.p == pytest.approx(2 * stats.t.sf(z / error, 7))
    assert (found.p < 0.05) == (found.interval.low > 0)


def test_the_other_direction_is_the_mirror_image() -> None:
    found = discrimination(PASSES, REST, EIGHT)
    other = discrimination([1 - x for x in PASSES], REST, EIGHT)
    assert found.interval is not None and other.interval is not None
    assert other.value == pytest.approx(-(found.value or 0))
    assert other.interval == pytest.approx((-found.interval.high, -found.interval.low))


def test_repeats_of_a_model_do_not_count_as_models() -> None:
    once = discrimination(PASSES, REST, EIGHT)
    thrice = discrimination(PASSES * 3, REST * 3, EIGHT * 3)
    alone = discrimination(PASSES * 3, REST * 3, [f"m{i}" for i in range(24)])
    assert once.value == pytest.approx(thrice.value) and thrice.subjects == 8
    widths = [one.interval.high - one.interval.low for one in (once, thrice, alone) if one.interval]
    assert widths[1] > 1.5 * widths[2], "equal answers of one model are hardly more than one"
    assert widths[1] <= widths[0]


@pytest.mark.parametrize(
    ("scores", "rest", "subjects"),
    [
        ([1.0] * 8, REST, EIGHT),
        (PASSES, [0.5] * 8, EIGHT),
        ([], [], []),
        ([1.0], [0.5], ["m0"]),
    ],
    ids=["all pass", "the rest is all alike", "nothing", "one answer"],
)
def test_without_variation_there_is_no_number(
    scores: list[float], rest: list[float], subjects: list[str]
) -> None:
    found = discrimination(scores, rest, subjects)
    assert (found.value, found.interval, found.p) == (None, None, None)


def test_too_few_answers_have_no_interval() -> None:
    four = discrimination(PASSES[2:6], REST[2:6], EIGHT[:4])
    assert four.value is not None and four.interval is None and four.p is None
    lonely = discrimination([0.0, 0.0] + [1.0] * 18, [x / 20 for x in range(20)], names(20))
    assert lonely.value is not None and lonely.interval is None, "two answers decide it all"
    three = discrimination([0.0] * 3 + [1.0] * 17, [x / 20 for x in range(20)], names(20))
    assert three.interval is not None


def names(count: int) -> list[str]:
    return [f"m{i}" for i in range(count)]


def test_a_perfect_order_of_few_answers_is_not_certain() -> None:
    steps = [x / 10 for x in range(6)]
    found = discrimination(steps, steps, names(6))
    assert found.value == 1 and found.interval is not None
    assert found.interval.high == 1 and found.interval.low < 0.7
    back = discrimination(steps[::-1], steps, names(6))
    assert back.interval is not None and back.interval.low == -1 and back.interval.high > -0.7


@pytest.mark.nightly
def test_the_interval_covers_what_it_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate_items, "_TRUTH", 4_000)  # to 0.016, which few intervals notice
    figures = coverage(Setting(300, np.random.default_rng(1)))
    for name, *cells in figures.rows:
        shares = [float(cell) for cell in cells if cell != "-"]
        # Nine cells of 30 cases: the mean of a row is known to about 1.3 points.
        assert np.mean(shares) >= 91, (name, shares)


@pytest.mark.nightly
def test_known_cases_are_found_and_useless_ones_seldom_praised() -> None:
    figures = verdicts(Setting(600, np.random.default_rng(1)))
    found = {name: [float(cell) for cell in cells] for name, *cells in figures.rows}
    for shape in ("pass or fail", "scores, noise 15"):
        assert max(found[f"{shape}: useless, said to tell apart"]) <= 12
        assert max(found[f"{shape}: good, said to be dead"]) <= 10
        assert max(found[f"{shape}: good, said to be reversed"]) <= 2
        assert found[f"{shape}: good, found to tell apart"][-1] >= 90
        assert found[f"{shape}: useless, found dead"][-1] >= 25
