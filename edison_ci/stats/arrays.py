"""Are these numbers that can be counted with?

A score that is missing never comes this far: `missing.present` takes it out and counts it. What is
refused here is therefore a mistake of the caller, not a property of somebody's data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from edison_ci.stats.scores import Range

__all__ = [
    "TIE",
    "TOLERANCE",
    "Array",
    "Floats",
    "Groups",
    "Range",
    "bounded",
    "finite",
    "generator_for",
    "grouped",
    "seed_of",
]

Array: TypeAlias = NDArray[np.float64]
Floats: TypeAlias = NDArray[np.float64] | Sequence[float]

TIE = 1e-12
"""Differences this small are ties."""
TOLERANCE = 1e-9
"""Sums of floats that differ by less are equal (STATS 20)."""


class Groups(NamedTuple):
    """Values added up by group; without declared groups every case is its own."""

    sums: Array
    sizes: Array


def finite(values: Floats, what: str) -> Array:
    """Return the values as an array, or refuse those that are not finite numbers in a row."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or not np.isfinite(array).all():
        raise ValueError(f"{what} must be finite numbers, one a case: leave missing ones out")
    return array


def bounded(values: Floats, what: str, *, low: float, high: float) -> Array:
    """Return the values, which must lie from `low` to `high`, rounding noise taken off."""
    array = finite(values, what)
    if not np.all((array >= low - TOLERANCE) & (array <= high + TOLERANCE)):
        raise ValueError(f"{what} must lie from {low:g} to {high:g}")
    return np.clip(array, low, high)


def grouped(values: Array, clusters: Sequence[str] | None) -> Groups:
    """Add the values up by cluster, in the order of the clusters' names."""
    if clusters is None:
        return Groups(values, np.ones(values.size))
    if len(clusters) != values.size:
        raise ValueError(f"{values.size} values but {len(clusters)} clusters")
    if not values.size:
        return Groups(values, values)
    _, index = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)
    sums = np.bincount(index, weights=values)
    return Groups(np.asarray(sums, dtype=np.float64), np.bincount(index).astype(np.float64))


def seed_of(case_ids: Sequence[str], *, config_hash: str = "") -> int:
    """Return the seed of everything random about these cases (STATS 20).

    The ids are sorted, so the order of a dataset does not change a report, and written as JSON,
    so that no two lists of ids are the same text.
    """
    text = json.dumps([sorted(case_ids), config_hash], ensure_ascii=False)
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(), "big")


def generator_for(case_ids: Sequence[str], *, config_hash: str = "") -> np.random.Generator:
    """Return a generator that is the same for the same cases and configuration."""
    return np.random.default_rng(seed_of(case_ids, config_hash=config_hash))
