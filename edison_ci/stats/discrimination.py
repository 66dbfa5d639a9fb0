"""Item discrimination: which cases distinguish prompt versions and models.

A case is discriminating if the answers that score well on it come from those who score well on the
other cases. The measure is the corrected item-total correlation of classical test theory: of the
scores of one case with the mean of all other cases, over the answers; for pass or fail it is the
point-biserial correlation.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.stats.scores import ALL_EQUAL, Range, t_quantile, t_tail

if TYPE_CHECKING:
    from collections.abc import Sequence

FEWEST_SUBJECTS = 5
"""Prompt versions with models below which nothing is said of a case."""
FEWEST_OTHERWISE = 3
"""Answers that must come out otherwise than most: one or two alone decide the correlation."""


@dataclass(frozen=True, slots=True)
class Discrimination:
    """The correlation of a case with the other cases."""

    value: float | None
    """None if it cannot be computed: all answers score the same, here or elsewhere."""
    n: int
    """Answers."""
    subjects: int
    """Prompt versions with models that gave them."""
    method: str
    interval: Range | None
    """None where there are too few answers."""
    p: float | None
    """Two-sided, of no correlation at all; None without an interval."""
    level: float = 0.95


def discrimination(
    scores: Sequence[float],
    rest: Sequence[float],
    subjects: Sequence[str],
    *,
    level: float = 0.95,
) -> Discrimination:
    """Return how far a case goes with the rest, over answers of subjects that may repeat.

    The interval is made on Fisher's z scale. Its standard error is the larger of Fisher's (1921)
    and of the jackknife that leaves out one subject with all its answers: Fisher's is too small
    where a case is nearly always passed, the jackknife's where subjects are few. With Student's t
    it is right or too wide (docs/statistics.md has the figures); the bootstrap is far too narrow.
    """
    n, names = len(scores), sorted(set(subjects))
    method = "point-biserial" if set(scores) <= {0.0, 1.0} else "item-rest correlation"
    x, y = _centred(scores), _centred(rest)
    correlation = _correlation(_products(x, x), _products(x, y), _products(y, y))
    if correlation is None:
        return Discrimination(None, n, len(names), method, None, None, level)
    most = max(Counter(scores).values())
    if len(names) < FEWEST_SUBJECTS or n - most < FEWEST_OTHERWISE:
        return Discrimination(correlation, n, len(names), method, None, None, level)
    z = math.atanh(_inside(correlation, n))
    error = max(1 / math.sqrt(n - 3), _jackknife(x, y, subjects))
    df = len(names) - 1
    away = t_quantile((1 + level) / 2, df) * error
    low, high = math.tanh(z - away), math.tanh(z + away)
    reach = 1 - 1 / n
    interval = Range(-1.0 if correlation < -reach else low, 1.0 if correlation > reach else high)
    p = min(1.0, 2 * t_tail(abs(z) / error, df))
    return Discrimination(correlation, n, len(names), method, interval, p, level)


def _centred(values: Sequence[float]) -> list[float]:
    mean = math.fsum(values) / len(values) if values else 0.0
    return [value - mean for value in values]


def _products(a: Sequence[float], b: Sequence[float]) -> float:
    return math.fsum(one * other for one, other in zip(a, b, strict=True))


def _correlation(xx: float, xy: float, yy: float) -> float | None:
    if xx <= ALL_EQUAL or yy <= ALL_EQUAL:
        return None
    return max(-1.0, min(1.0, xy / math.sqrt(xx * yy)))


def _inside(correlation: float, n: int) -> float:
    """Keep a correlation away from 1, where z has no end: few answers never show a perfect one."""
    reach = 1 - 1 / n
    return max(-reach, min(reach, correlation))


def _jackknife(x: Sequence[float], y: Sequence[float], subjects: Sequence[str]) -> float:
    """Return the standard error of z by leaving out one subject at a time (Tukey 1958)."""
    n, values = len(x), []
    xx, xy, yy = _products(x, x), _products(x, y), _products(y, y)
    order = sorted(range(n), key=subjects.__getitem__)
    for _, group in groupby(order, key=subjects.__getitem__):
        out = list(group)
        left, a, b = n - len(out), [x[i] for i in out], [y[i] for i in out]
        sx, sy = math.fsum(a), math.fsum(b)
        # Both sums are 0 over all answers, so what is left has the means -sx / left, -sy / left.
        without = _correlation(
            xx - _products(a, a) - sx * sx / left,
            xy - _products(a, b) - sx * sy / left,
            yy - _products(b, b) - sy * sy / left,
        )
        values.append(math.atanh(_inside(without or 0.0, left)))
    spread = _centred(values)
    return math.sqrt((len(values) - 1) / len(values) * _products(spread, spread))
