"""Agreement against published tables, statsmodels and hand computation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.inter_rater import cohens_kappa

from edison_ci.stats.agreement import (
    Agreement,
    cohen,
    intraclass,
    krippendorff,
    raw_agreement,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability": 4 observers, 12 units.
X = None
PUBLISHED = list(
    zip(
        [1, 2, 3, 3, 2, 1, 4, 1, 2, X, X, X],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, X, 3],
        [X, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, X],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, X],
        strict=True,
    )
)
# Shrout and Fleiss (1979), table 2: 6 targets, 4 judges.
TARGETS = [(9, 2, 5, 8), (6, 1, 3, 2), (8, 4, 6, 8), (7, 1, 2, 6), (10, 5, 6, 9), (6, 2, 4, 7)]


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


@pytest.mark.parametrize(
    ("metric", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)]
)
def test_alpha_is_the_published_one(metric: str, alpha: float) -> None:
    found = krippendorff(PUBLISHED, metric=metric, rng=rng())  # type: ignore[arg-type]  # str
    assert found.value == pytest.approx(alpha, abs=5e-4)
    assert found.n == 11  # the unit with one rating says nothing


def test_the_intraclass_correlations_are_the_published_ones() -> None:
    assert intraclass(TARGETS, rng=rng()).value == pytest.approx(0.29, abs=5e-3)
    assert intraclass(TARGETS, of="panel", rng=rng()).value == pytest.approx(0.62, abs=5e-3)


def test_kappas_agree_with_statsmodels() -> None:
    repeat = np.random.default_rng(2)
    a = repeat.integers(1, 6, 60)
    b = np.clip(a + repeat.integers(-1, 2, 60), 1, 5)
    table = np.zeros((5, 5))
    np.add.at(table, (a - 1, b - 1), 1)
    plain = cohens_kappa(table, return_results=False)
    assert cohen(a.astype(float), b.astype(float), rng=rng()).value == pytest.approx(plain)
    weighted = cohens_kappa(table, wt="quadratic", return_results=False)
    found = cohen(a.astype(float), b.astype(float), weights="quadratic", rng=rng())
    assert found.value == pytest.approx(weighted)


def test_no_variation_is_not_computable_rather_than_perfect() -> None:
    same = [(1.0, 1.0)] * 20
    for found in (
        krippendorff(same, rng=rng()),
        krippendorff(same, metric="nominal", rng=rng()),
        cohen([1.0] * 20, [1.0] * 20, rng=rng()),
        intraclass(same, rng=rng()),
    ):
        assert (found.value, found.interval, found.raw) == (None, None, 1.0)
        assert "not computable" in found.words


def test_raw_agreement_stays_high_where_kappa_collapses() -> None:
    first = [1.0] * 96 + [0.0, 0.0, 1.0, 1.0]
    second = [1.0] * 96 + [1.0, 1.0, 0.0, 0.0]
    found = cohen(first, second, rng=rng())
    assert found.value is not None and found.value < 0.1
    assert found.raw == 0.96


@pytest.mark.parametrize(
    ("noise", "words"), [(0.03, "largely agree"), (0.17, "with care"), (0.6, "tentative")]
)
def test_the_words_follow_the_value(noise: float, words: str) -> None:
    repeat = np.random.default_rng(3)
    truth = repeat.uniform(0, 1, 200)
    table = (truth[:, None] + repeat.normal(0, noise, (200, 2))).tolist()
    assert words in krippendorff(table, rng=rng()).words


def test_fewer_than_ten_cases_have_no_interval_and_ten_do() -> None:
    repeat = np.random.default_rng(4)
    table = repeat.uniform(0, 1, (10, 3)).tolist()
    assert krippendorff(table[:9], rng=rng()).interval is None
    found = krippendorff(table, rng=rng())
    assert found.interval is not None and found.value is not None
    assert found.interval.low <= found.value <= found.interval.high


@pytest.mark.parametrize("measure", [krippendorff, intraclass])
def test_answers_to_one_case_are_not_independent(measure: Callable[..., Agreement]) -> None:
    """Four copies of each case are no more evidence than the cases themselves."""
    random = np.random.default_rng(1)
    truth = random.uniform(0, 1, 30)
    table = [
        [float(t), float(t + e)] for t, e in zip(truth, random.normal(0, 0.3, 30), strict=True)
    ]
    once = measure(table, rng=rng())
    copies = [row for row in table for _ in range(4)]
    cases = [f"case {index}" for index in range(30) for _ in range(4)]
    grouped = measure(copies, rng=rng(), cases=cases)
    plain = measure(copies, rng=rng())
    widths = [f.interval.high - f.interval.low for f in (once, grouped, plain) if f.interval]
    assert grouped.n == 120
    assert widths[1] == pytest.approx(widths[0], rel=0.15)
    assert widths[2] < 0.7 * widths[1]


def test_nine_cases_have_no_interval_however_many_answers() -> None:
    table = [[index / 40, index / 50] for index in range(36)]
    cases = [f"case {index % 9}" for index in range(36)]
    assert krippendorff(table, rng=rng(), cases=cases).interval is None
    assert intraclass(table, rng=rng(), cases=cases).interval is None
    with pytest.raises(ValueError, match="resampled by case"):
        krippendorff(table, rng=rng(), metric="nominal", cases=cases)


def test_nothing_judged_twice_has_no_agreement() -> None:
    found = krippendorff([(0.5, None), (None, 0.2), (None, None)], rng=rng())
    assert (found.value, found.n, found.raw) == (None, 0, None)
    assert krippendorff([], rng=rng()).value is None
    assert raw_agreement([]) is None


def test_tables_with_holes_are_for_alpha_only() -> None:
    with pytest.raises(ValueError, match="Krippendorff"):
        intraclass([(1, None), (1, 1)], rng=rng())
    with pytest.raises(ValueError, match="same judges"):
        intraclass([(1, 2), (1, 2, 3)], rng=rng())
    with pytest.raises(ValueError, match="finite"):
        krippendorff([(1, float("nan"))], rng=rng())
    with pytest.raises(ValueError, match="other"):
        cohen([1.0], [1.0, 2.0], rng=rng())


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 4), min_size=2, max_size=4), min_size=2, max_size=8),
    st.sampled_from(["nominal", "ordinal", "interval"]),
)
def test_alpha_agrees_with_its_definition(rows: list[list[int]], metric: str) -> None:
    table = [[float(x) for x in row] for row in rows]
    found = krippendorff(table, metric=metric, rng=rng()).value  # type: ignore[arg-type]  # str
    pooled = [x for row in table for x in row]
    counts = {x: pooled.count(x) for x in pooled}

    def distance(a: float, b: float) -> float:
        if metric == "nominal":
            return float(a != b)
        if metric == "interval":
            return (a - b) ** 2
        low, high = min(a, b), max(a, b)
        between = sum(n for x, n in counts.items() if low <= x <= high)
        return (between - (counts[a] + counts[b]) / 2) ** 2 if a != b else 0.0

    n = len(pooled)
    observed = sum(distance(a, b) / (len(row) - 1) for row in table for a in row for b in row) / n
    expected = sum(distance(a, b) for a in pooled for b in pooled) / (n * (n - 1))
    if expected == 0:
        assert found is None
    else:
        assert found == pytest.approx(1 - observed / expected, abs=1e-9)
