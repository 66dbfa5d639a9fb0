"""What is the chance that all of k draws pass, or any of them?

In plain Python: every run with several draws asks it.
"""

from __future__ import annotations

import math


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
