"""Which quantiles and tails do intervals and tests of scores need?

In plain Python: numpy and scipy take longer to load than a run of a thousand stored answers takes
altogether. The tests hold these to scipy.
"""

from __future__ import annotations

import math
from functools import lru_cache

_TINY = 1e-300
_ENOUGH = 1e-15
_STEPS = 500
_NEARLY_NORMAL = 2_000


@lru_cache(maxsize=256)
def normal_quantile(p: float) -> float:
    """Return the value below which a standard normal lies with probability `p`.

    Newton's method on the error function, from the approximation of Hastings (1955).
    """
    if not 0 < p < 1:
        raise ValueError(f"{p} is not between 0 and 1")
    tail = min(p, 1 - p)
    s = math.sqrt(-2 * math.log(tail))
    x = s - (2.515517 + s * (0.802853 + s * 0.010328)) / (
        1 + s * (1.432788 + s * (0.189269 + s * 0.001308))
    )
    for _ in range(_STEPS):
        density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        step = (tail - math.erfc(x / math.sqrt(2)) / 2) / density
        x -= step
        if abs(step) < _ENOUGH * max(1.0, abs(x)):
            break
    return x if p > 0.5 else -x


@lru_cache(maxsize=256)
def t_quantile(p: float, df: float) -> float:
    """Return the value below which Student's t lies with probability `p`.

    Bisection on the distribution function: it is monotone, and a run needs a handful of these.
    """
    if not 0 < p < 1 or df <= 0:
        raise ValueError(f"no quantile {p} of t with {df} degrees of freedom")
    if df > _NEARLY_NORMAL:
        return _expanded(normal_quantile(p), df)
    tail, low, high = min(p, 1 - p), 0.0, 1.0
    while t_tail(high, df) > tail:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if t_tail(middle, df) > tail:
            low = middle
        else:
            high = middle
    return math.copysign((low + high) / 2, p - 0.5) if p != 0.5 else 0.0


def _expanded(z: float, df: float) -> float:
    """Return t from the normal quantile by powers of 1/df (Cornish and Fisher 1938)."""
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / df + second / df**2 + third / df**3


def t_tail(t: float, df: float) -> float:
    """Return the probability that t is larger than a value that is not negative."""
    if df > _NEARLY_NORMAL:  # Wallace (1959), to the fourth digit
        z = t * (1 - 1 / (4 * df)) / math.sqrt(1 + t * t / (2 * df))
        return math.erfc(z / math.sqrt(2)) / 2
    return _beta_share(df / (df + t * t), df / 2, 0.5) / 2


def _beta_share(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function by its continued fraction (Lentz 1976)."""
    if x <= 0 or x >= 1:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):  # the other end converges faster
        return 1 - _beta_share(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return front * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, _STEPS):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away(1 + numerator * d)
            c = _away(1 + numerator / c)
            found *= c * d
        if abs(c * d - 1) < _ENOUGH:
            break
    return found


def _away(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
