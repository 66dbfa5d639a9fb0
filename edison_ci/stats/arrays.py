"""Arrays of numbers with their checks, and numpy and scipy.special, loaded at first use.

Missing scores are removed and counted by the caller, so a value that is refused here is a mistake
of the caller and not a property of the data.
"""

from __future__ import annotations

import hashlib
import json
import math
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from edison_ci.numeric import NOISE, TOLERANCE
from edison_ci.stats.scores import Range

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    import numpy as np
    from numpy.typing import NDArray
    from scipy import special

    Array: TypeAlias = NDArray[np.float64]
    Floats: TypeAlias = NDArray[np.float64] | Sequence[float]
else:
    # Most commands, and runs without gates, need neither: loading the two would take longer than
    # all the rest of such a command.
    class _Library:
        """A library that is imported at the first access to one of its names."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            attribute = getattr(self._imported(), name)
            setattr(self, name, attribute)
            return attribute

        def _imported(self) -> ModuleType:
            return import_module(self._name)

    class _Special(_Library):
        """`scipy.special`, which looks at every name of numpy and so loads all its parts.

        Its Fortran compiler, test tools and the like take 17 MB and more time than the rest, and
        nothing of `scipy.special` needs them: they are hidden from it, and found as ever later.
        """

        def _imported(self) -> ModuleType:
            numpy = import_module("numpy")
            loaded = [name for name in numpy.__all__ if name in vars(numpy)]
            before = numpy.__all__, numpy.__dir__
            numpy.__all__, numpy.__dir__ = loaded, lambda: loaded
            try:
                return super()._imported()
            finally:
                numpy.__all__, numpy.__dir__ = before

    np, special = _Library("numpy"), _Special("scipy.special")

__all__ = [
    "TIE",
    "TOLERANCE",
    "Array",
    "Floats",
    "Groups",
    "Range",
    "bounded",
    "dot",
    "finite",
    "generator_for",
    "grouped",
    "mean_of",
    "np",
    "seed_of",
    "special",
    "sum_of",
    "variance_of",
]

_IDS_AT_ONCE = 1_000
TIE = NOISE
"""Differences this small are ties."""


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
    sizes = np.bincount(index)
    sums = np.bincount(index, weights=values).astype(np.float64)
    # Two terms have the same sum in either order; most clusters are no larger.
    if sizes.max() > 2:
        members, ends = values[np.argsort(index, kind="stable")], np.cumsum(sizes)
        for group in np.flatnonzero(sizes > 2):
            sums[group] = sum_of(members[ends[group] - sizes[group] : ends[group]])
    return Groups(sums, sizes.astype(np.float64))


# Numpy adds in an order that depends on the processor, and BLAS in yet another. What is decided
# or written rests on these instead, which round once; elementwise arithmetic is the same anywhere.


def sum_of(values: Array) -> float:
    """Return the sum, the same in any order and on any machine."""
    return math.fsum(values.data)


def mean_of(values: Array) -> float:
    """Return the mean of at least one value, the same in any order and on any machine."""
    return sum_of(values) / values.size


def dot(a: Array, b: Array) -> float:
    """Return the sum of the products, the same in any order and on any machine."""
    return sum_of(a * b)


def variance_of(values: Array) -> float:
    """Return the variance of at least two values, the same in any order and on any machine."""
    away = values - mean_of(values)
    return dot(away, away) / (values.size - 1)


def seed_of(case_ids: Sequence[str], *, config_hash: str = "") -> int:
    """Return the seed of everything random about these cases (STATS 20).

    The ids are sorted, so the order of a dataset does not change a report, and written as JSON,
    so that no two lists of ids are the same text.
    """
    encoder, ids = json.JSONEncoder(ensure_ascii=False), sorted(case_ids)
    digest = hashlib.sha256(b"[[")
    for start in range(0, len(ids), _IDS_AT_ONCE):
        text = encoder.encode(ids[start : start + _IDS_AT_ONCE])[1:-1]
        digest.update((f", {text}" if start else text).encode("utf-8", "surrogatepass"))
    digest.update(f"], {encoder.encode(config_hash)}]".encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "big")


def generator_for(case_ids: Sequence[str], *, config_hash: str = "") -> np.random.Generator:
    """Return a generator that is the same for the same cases and configuration."""
    return np.random.default_rng(seed_of(case_ids, config_hash=config_hash))
