"""Convergence: whether refining still gains, and whether the gain is real."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.stats.arrays import TIE, bounded, finite, mean_of, np
from edison_ci.stats.permutation import PValue, sign_flip
from edison_ci.stats.sequential import Units, always_valid_interval, evidence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.stats.arrays import Floats, Range
    from edison_ci.stats.paired import Pairs

MIN_DELTA, WINDOW = 0.02, 3
ACCEPTED_P, FEWEST_SEARCH_CASES = 0.10, 20
FEWEST_HOLDOUT_CASES = 16
SAMPLED_LEVEL = 0.975
"""Of the interval of a sampled gain: the looks have half of the 5%, the end has the other half."""


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


@dataclass(frozen=True, slots=True)
class SampledGain:
    """What the cases so far show about a candidate, at the last of several looks (STATS 9)."""

    p: float
    """For "the candidate is better": 1 / the largest e-value, valid at any time."""
    p_worse: float
    """For "the candidate is worse", likewise."""
    p_small: float
    """For "the candidate gains less than it should", likewise."""
    interval: Range | None
    """Of the gain, valid at any time, at half of the error of a 95% interval."""

    @property
    def shown(self) -> bool:
        """Whether the gain is shown, for any results of the remaining cases."""
        return sampled_p(self.p, None) <= ACCEPTED_P

    @property
    def hopeless(self) -> bool:
        """Whether it is shown that the gain is smaller than it should be."""
        return self.p_small <= ACCEPTED_P / 2


def sampled_gain(
    pairs: Pairs,
    *,
    looks: Sequence[int],
    planned: Mapping[int, int] | None = None,
    min_gain: float = MIN_DELTA,
) -> SampledGain:
    """Return what sequential cases show about a candidate; `looks` count pairs or clusters.

    `planned` has the number of all planned clusters by size. Stopping because a gain of `min_gain`
    is refuted can only refuse a candidate, so it costs power and adds no error.
    """
    bases, heads = pairs.sides
    units = Units.of(heads - bases, pairs.clusters, planned)
    taken = sorted({look for look in looks if 0 < look <= units.means.size})
    if not taken:
        return SampledGain(1.0, 1.0, 1.0, None)
    return SampledGain(
        p=evidence(units, null="at most", mean=0.0, looks=taken).p,
        p_worse=evidence(units, null="at least", mean=0.0, looks=taken).p,
        p_small=evidence(units, null="at least", mean=min_gain, looks=taken).p,
        interval=always_valid_interval(units, looks=taken, level=SAMPLED_LEVEL),
    )


def sampled_p(sequential: float, final: float | None) -> float:
    """Return the p-value of a sampled candidate: half of the error for each way to accept it.

    `final` is the exact p-value on all cases; None if sampling stopped before the last one. Without
    this split the exact test at the end would be one look too many.
    """
    return min(1.0, 2 * min(sequential, 1.0 if final is None else final))


def verified(holdout_cases: int) -> bool:
    """Return whether the holdout is large enough to call the improvement verified."""
    return holdout_cases >= FEWEST_HOLDOUT_CASES
