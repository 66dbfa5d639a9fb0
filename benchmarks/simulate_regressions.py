"""What is simulated of passing runs that are marked: with nothing changed, and with a regression.

The table has random numbers of its own, so that it can be renewed by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.simulate_figures import Figures, Setting, percent
from edison_ci.stats.flips import decide_flips
from edison_ci.stats.paired import Pairs
from edison_ci.stats.power import flips_limit
from edison_ci.stats.regressions import more_broken, worse_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_SEED = 20261120
_SIZES = (20, 50, 94, 200)
_SLICES = 8


class _Shape(NamedTuple):
    """How cases pass: some always, some never, and the rest by chance."""

    name: str
    mixed: float
    """Share of cases that pass by chance, half of the time."""
    broken: float = 0.0
    """Share of all cases that always fail on the head, and do not on the base."""
    in_slice: float = 0.0
    """The same, of the first slice alone."""
    repeats: int = 1
    clusters: int = 1
    """Cases of a cluster, which have the same chances."""

    def drawn(self, n: int, rng: np.random.Generator) -> tuple[Pairs, list[list[int]]]:
        """Return passes of both sides, and the cases of each slice."""
        groups = np.arange(n) // self.clusters
        chances = rng.permutation(np.linspace(0, 1, groups[-1] + 1, endpoint=False))[groups]
        steady = 1 - self.mixed
        chance = np.where(chances < steady, np.where(chances < 0.6 * steady, 1.0, 0.0), 0.5)
        member = rng.integers(_SLICES, size=n)
        lost = rng.random(n) < np.where(member == 0, self.in_slice + self.broken, self.broken)
        base, head = (
            rng.random((n, self.repeats)) < (chance * keeps)[:, None]
            for keeps in (np.ones(n), 1.0 - lost)
        )
        names = tuple(map(str, groups)) if self.clusters > 1 else None
        base_passes, head_passes = (
            tuple(map(tuple, side.astype(float).tolist())) for side in (base, head)
        )
        slices = [np.flatnonzero(member == number).tolist() for number in range(_SLICES)]
        return Pairs(base_passes, head_passes, names), slices


_SHAPES = (
    _Shape("nothing changed, 10% mixed", 0.1),
    _Shape("nothing changed, 30% mixed", 0.3),
    _Shape("nothing changed, 30% mixed, 3 answers", 0.3, repeats=3),
    _Shape("nothing changed, 30% mixed, clusters of 2", 0.3, clusters=2),
    _Shape("1 in 6 breaks, 10% mixed", 0.1, broken=1 / 6),
    _Shape("most of one slice breaks, 10% mixed", 0.1, in_slice=0.8),
)


def regressions(setting: Setting) -> Figures:
    """Simulate runs: marked for flips or slices, and passed by the gate on flips of a template."""
    runs = max(setting.runs // 5, 1)
    rows = tuple(row for number, shape in enumerate(_SHAPES) for row in _rows(number, shape, runs))
    return Figures(
        f"Regressions that are marked, {_SLICES} slices, % of {runs:,} runs",
        "head",
        tuple(f"n = {n}" for n in _SIZES),
        rows,
        "marked at most 5 where nothing changed; the gate that `edison init` writes passes in at "
        "least 80 there, with one answer a case",
    )


def _rows(number: int, shape: _Shape, runs: int) -> Iterator[tuple[str, ...]]:
    cells = [_measured(shape, n, runs, np.random.default_rng([_SEED, number, n])) for n in _SIZES]
    marked, passed = zip(*cells, strict=True)
    yield f"{shape.name}: marked", *map(percent, marked)
    yield f"{shape.name}: gate passes", *map(percent, passed)


def _measured(shape: _Shape, n: int, runs: int, rng: np.random.Generator) -> tuple[float, float]:
    limit, marked, passed = flips_limit(n), 0, 0
    for _ in range(runs):
        passes, slices = shape.drawn(n, rng)
        found = dict(enumerate(slices))
        marked += more_broken(passes) or bool(worse_slices(passes, found))
        passed += decide_flips(passes, limit, net=True).verdict == "pass"
    return marked / runs, passed / runs


TABLES: tuple[Callable[[Setting], Figures], ...] = (regressions,)
