"""The plain-Python quantiles are scipy's."""

from __future__ import annotations

from itertools import product

import pytest
from scipy.special import ndtri, stdtrit

from edison_ci.stats.scores import normal_quantile, t_quantile

LEVELS = (0.5, 0.6, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995, 0.9995, 0.999999, 0.05, 0.001)
DEGREES = (1, 2, 3, 4, 5, 9, 10, 29, 49, 93, 399, 1_000, 9_999, 99_999, 1_000_000, 2.5)


def test_the_normal_quantile_is_scipys(subtests: pytest.Subtests) -> None:
    for p in LEVELS:
        with subtests.test(p=p):
            assert normal_quantile(p) == pytest.approx(float(ndtri(p)), rel=1e-10, abs=1e-15)


def test_the_t_quantile_is_scipys(subtests: pytest.Subtests) -> None:
    for p, df in product(LEVELS, DEGREES):
        with subtests.test(p=p, df=df):
            assert t_quantile(p, df) == pytest.approx(float(stdtrit(df, p)), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("p", "df"), [(0.0, 3), (1.0, 3), (0.5, 0), (-1.0, 3)])
def test_what_has_no_quantile_is_refused(p: float, df: float) -> None:
    with pytest.raises(ValueError, match=r"quantile|between"):
        t_quantile(p, df)
    if not 0 < p < 1:
        with pytest.raises(ValueError, match="between"):
            normal_quantile(p)
