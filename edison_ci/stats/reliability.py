"""Reliability: how often a case passes when it is run several times."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from edison_ci.stats.intervals import Interval, mean_interval, pass_interval
from edison_ci.stats.libraries import special

if TYPE_CHECKING:
    from collections.abc import Sequence


# In plain Python: every run with several draws asks it.
def pass_at_k(passes: int, runs: int, k: int) -> float | None:
    """Return the chance that at least one of k runs passes (Chen et al. 2021).

    None when there are fewer runs than k. Unbiased, which 1 - (1 - share)^k is not.
    """
    _require(passes, runs, k)
    if k > runs:
        return None
    return 1 - math.comb(runs - passes, k) / math.comb(runs, k)


def pass_all_k(passes: int, runs: int, k: int) -> float | None:
    """Return pass^k, the chance that all of k runs pass; None with fewer runs than k."""
    _require(passes, runs, k)
    if k > runs:
        return None
    return math.comb(passes, k) / math.comb(runs, k)


def _require(passes: int, runs: int, k: int) -> None:
    if not 0 <= passes <= runs or k < 1:
        raise ValueError(f"{passes} passes of {runs} runs, k = {k} cannot be")


__all__ = ["exact_pass_interval", "jeffreys_interval", "pass_all_k", "pass_at_k", "reliability"]


def reliability(
    cases: Sequence[tuple[int, int]],
    k: int,
    *,
    of: Literal["any", "all"] = "all",
    level: float = 0.95,
) -> Interval | None:
    """Return pass@k ("any") or pass^k ("all") over cases, given (passes, runs) of each.

    The interval is over cases; a case with fewer runs than k has no value and is left out.
    """
    one = pass_at_k if of == "any" else pass_all_k
    values = [one(passes, runs, k) for passes, runs in cases]
    found = mean_interval([x for x in values if x is not None], level=level)
    if found is None:
        return None
    name = f"pass@{k}" if of == "any" else f"pass^{k}"
    return replace(found, method=f"{name}, {found.method}")


def exact_pass_interval(passes: int, n: int, *, level: float = 0.95) -> Interval | None:
    """Return the two-sided Clopper-Pearson interval, which never covers too rarely."""
    found = pass_interval(passes, n, level=level)
    if found is None or found.low is None:
        return found
    tail = (1 - level) / 2
    low = float(special.betaincinv(passes, n - passes + 1, tail)) if passes else 0.0
    high = float(special.betaincinv(passes + 1, n - passes, 1 - tail)) if passes < n else 1.0
    return replace(found, low=low, high=high, method="Clopper-Pearson")


def jeffreys_interval(passes: int, n: int, *, level: float = 0.95) -> Interval | None:
    """Return the Jeffreys interval: the middle of a Beta(k + 1/2, n - k + 1/2) (Brown 2001)."""
    found = pass_interval(passes, n, level=level)
    if found is None or found.low is None:
        return found
    a, b, tail = passes + 0.5, n - passes + 0.5, (1 - level) / 2
    low = float(special.betaincinv(a, b, tail)) if passes else 0.0
    high = float(special.betaincinv(a, b, 1 - tail)) if passes < n else 1.0
    return replace(found, low=low, high=high, method="Jeffreys")
