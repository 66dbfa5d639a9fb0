"""Convergence: whether refining still gains, and whether the gain is real."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.stats.arrays import TIE, bounded, finite, mean_of, np
from edison_ci.stats.permutation import PValue, sign_flip

if TYPE_CHECKING:
    from edison_ci.stats.arrays import Floats

MIN_DELTA, WINDOW = 0.02, 3
ACCEPTED_P, FEWEST_SEARCH_CASES = 0.10, 20
FEWEST_HOLDOUT_CASES = 16


@dataclass(frozen=True, slots=True)
class Convergence:
    """Whether the loop has stopped gaining."""

    value: bool
    """Whether to stop."""
    n: int
    """Rounds."""
    method: str
    gains: tuple[float, ...]
    """Gain of the best so far, round by round."""
    best: int
    """The round with the best score, the first of several; 0 is the original."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Whether a candidate replaces the incumbent."""

    value: bool
    n: int
    method: str
    gain: float | None
    p: PValue
    """One-sided, for "the candidate is better"."""
    reason: str


def converged(scores: Floats, *, min_delta: float = MIN_DELTA, window: int = WINDOW) -> Convergence:
    """Say whether the last `window` rounds all gained less than `min_delta` (STATS 16).

    `scores` starts with the original's; a gain is that of the best so far.
    """
    x = finite(scores, "scores")
    if not x.size or window < 1:
        raise ValueError("there is the original's score, and a window of at least 1")
    best = np.maximum.accumulate(x)
    gains = tuple(float(after - before) for before, after in pairwise(best))
    idle = all(gain < min_delta - TIE for gain in gains[-window:])
    return Convergence(
        value=len(gains) >= window and idle,
        n=len(gains),
        method=f"last {window} gains below {min_delta:g}",
        gains=gains,
        best=int(np.argmax(x)),
    )


def accept(differences: Floats, *, rng: np.random.Generator) -> Acceptance:
    """Decide whether a candidate replaces the incumbent, on the search cases (STATS 16).

    It must gain, with one-sided p <= .10 on at least 20 cases; otherwise the loop would drift on
    noise: the best of 20 equally good prompts looks 3 points better by luck at 50 cases.
    """
    d = bounded(differences, "differences", low=-1, high=1)
    p = sign_flip(d, rng=rng, side="greater")
    gain = mean_of(d) if d.size else None
    if d.size < FEWEST_SEARCH_CASES:
        value, reason = False, f"fewer than {FEWEST_SEARCH_CASES} search cases"
    elif gain is None or gain <= TIE:
        value, reason = False, "no gain"
    elif p.value > ACCEPTED_P:
        value, reason = False, "the gain may be luck"
    else:
        value, reason = True, "gained"
    return Acceptance(value, d.size, p.method, gain, p, reason)


def verified(holdout_cases: int) -> bool:
    """Return whether the holdout is large enough to call the improvement verified."""
    return holdout_cases >= FEWEST_HOLDOUT_CASES
