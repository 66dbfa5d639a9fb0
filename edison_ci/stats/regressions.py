"""Regressions that gates may let pass: more cases that break than are fixed, and worse slices.

Each of the two is tested two-sided at 5%, so that an unchanged head shows either in at most 2.5% of
runs, and any in at most 5%. Slices are corrected for their number (Holm 1979).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from edison_ci.numeric import NOISE
from edison_ci.stats.arrays import generator_for, grouped, mean_of
from edison_ci.stats.flips import flip_p, flips_of
from edison_ci.stats.paired import Pairs, mean_error
from edison_ci.stats.permutation import paired_p
from edison_ci.stats.verdicts import SMALLEST_SLICE, holm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.stats.paired import MeanError

LEVEL = 0.05
"""Two-sided level of either test."""
_NEAR = 1.0
"""Standard errors below which a drop is not tested: no number of cases makes it significant."""
Name = TypeVar("Name")


class Drop(NamedTuple):
    """By how much a slice scores lower."""

    value: float
    n: int
    p: float
    """Two-sided, after correction for all slices."""


def more_broken(passes: Pairs) -> bool:
    """Whether more cases break than chance gives: than are repaired, or than by noise."""
    return flips_of(passes).shown > NOISE and 2 * flip_p(passes).value <= LEVEL


def worse_slices(scores: Pairs, slices: Mapping[Name, Sequence[int]]) -> dict[Name, Drop]:
    """Return the slices that are shown to score lower on the head, by their places in `scores`.

    Slices of fewer than 10 cases, or clusters, are not tested.
    """
    parts = {name: _part(scores, places) for name, places in slices.items()}
    errors = {
        name: error
        for name, part in parts.items()
        if (error := mean_error(grouped(part.differences, part.clusters))) is not None
        and len(set(part.clusters or range(part.n))) >= SMALLEST_SLICE
    }
    level = LEVEL / max(1, len(errors))
    adjusted = holm([_p(parts[name], error, level) for name, error in errors.items()], alpha=LEVEL)
    return {
        name: Drop(mean_of(parts[name].differences), parts[name].n, p)
        for name, p, worse in zip(errors, adjusted.value, adjusted.stands_out, strict=True)
        if worse
    }


def _part(scores: Pairs, places: Sequence[int]) -> Pairs:
    clusters = scores.clusters
    return Pairs(
        tuple(scores.base[place] for place in places),
        tuple(scores.head[place] for place in places),
        None if clusters is None else tuple(clusters[place] for place in places),
    )


def _p(part: Pairs, error: MeanError, level: float) -> float:
    """Return the p-value of a slice; 1 for one that is not lower, or by little."""
    if error.mean > -NOISE or error.mean > -_NEAR * error.se:
        return 1.0
    rng = generator_for([f"{base} {head}" for base, head in zip(part.base, part.head, strict=True)])
    return paired_p(part, rng=rng, level=level).value
