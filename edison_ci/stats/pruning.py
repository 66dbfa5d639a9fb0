"""Pruning: which of several prompts are shown to be worse than the best, on the same cases."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.stats.arrays import TOLERANCE, bounded, mean_of, np
from edison_ci.stats.permutation import sign_flip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.stats.arrays import Array, Floats

ALPHA = 0.05
_DRAWS, _MOST_DRAWS = 2_000, 20_000
_CHUNK = 1_000_000
"""Scores that are permuted at a time, so that memory stays small."""


@dataclass(frozen=True, slots=True)
class Contrast:
    """A prompt compared with the best one, on the cases that all of them have."""

    prompt: str
    best: str
    value: float
    """Its mean minus that of the best."""
    n: int
    method: str
    p: float
    """Chance that prompts which are all alike lie this far apart."""
    draws: int | None
    """Random permutations; None where the value is exact."""
    level: float = ALPHA

    @property
    def weak(self) -> bool:
        """Whether it is shown to be worse."""
        return self.p <= self.level + TOLERANCE


def contrasts(
    scores: Mapping[str, Floats],
    *,
    rng: np.random.Generator,
    clusters: Sequence[str] | None = None,
    level: float = ALPHA,
) -> tuple[Contrast, ...]:
    """Compare prompts with the best of them by the range of their means (after Tukey 1949).

    The best was picked from the same cases, so a paired test against it finds a worse one far too
    often. If all prompts are alike, their scores of a case may be permuted, and the range of the
    means shows how far apart the best and the worst of them lie by chance. The worst is tested
    first; if it is weak, it leaves, and the next is tested among the rest. Declared clusters are
    permuted as a whole. Two prompts are a sign-flip test. Where prompts are compared several times,
    each look has its share of the error as its `level`.
    """
    names = sorted(scores)
    columns = [bounded(scores[name], "scores", low=0, high=1) for name in names]
    if len({column.size for column in columns}) > 1:
        raise ValueError("prompts are compared on the same cases")
    if len(names) < 2 or not columns[0].size:
        return ()
    table = np.column_stack(columns)
    means = {name: mean_of(column) for name, column in zip(names, columns, strict=True)}
    # In a tie the first by name is the best, so that the result is always the same.
    order = sorted(names, key=lambda name: (-round(means[name], 12), name))
    compared: list[Contrast] = []
    highest = 0.0
    for size in range(len(order), 1, -1):
        among = order[:size]
        gaps = [means[order[0]] - means[name] for name in among]
        kept = table[:, [names.index(name) for name in among]]
        test = _range_test(_Question(kept, gaps, clusters, level), rng)
        # A prompt that is better than one tested before cannot be shown to be worse sooner.
        p_values = [max(p, highest) for p in test.p]
        last = p_values[-1] > level + TOLERANCE
        for place in range(1, size) if last else [size - 1]:
            contrast = Contrast(
                among[place], order[0], -gaps[place], len(table), test.method,
                p_values[place], test.draws, level,
            )  # fmt: skip
            compared.append(contrast)
        if last:
            break
        highest = p_values[-1]
    return tuple(sorted(compared, key=lambda contrast: contrast.prompt))


def shared_level(look: int) -> float:
    """Return the level of a look of a series without a planned end; `look` counts from 1.

    Each look has half of the error that is left: .025, .0125 and so on, together at most .05. Early
    looks get most of it, because a prompt that is dropped early saves most.
    """
    if look < 1:
        raise ValueError(f"looks count from 1, not {look!r}")
    return float(ALPHA / 2**look)


class _Question(NamedTuple):
    table: Array
    gaps: Sequence[float]
    clusters: Sequence[str] | None
    level: float


@dataclass(frozen=True, slots=True)
class _RangeTest:
    p: tuple[float, ...]
    method: str
    draws: int | None


def _range_test(question: _Question, rng: np.random.Generator) -> _RangeTest:
    """Return for each gap how often the range of the permuted means is at least as large."""
    table, gaps, clusters, level = question
    if table.shape[1] == 2:
        flip = sign_flip(table[:, 1] - table[:, 0], rng=rng, clusters=clusters)
        return _RangeTest((1.0, flip.value), flip.method, flip.draws)
    units = _units(table - table.mean(axis=1, keepdims=True), clusters)
    # Units in which all prompts are alike stay as they are.
    units = units[np.ptp(units, axis=1) > TOLERANCE]
    least_ranges = np.asarray(gaps) * len(table) - TOLERANCE
    counts, draws = np.zeros(least_ranges.size), 0
    while draws < _MOST_DRAWS and _near(counts[-1], draws, level):
        ranges = _permuted_ranges(units, _DRAWS, rng)
        counts += (ranges[:, None] >= least_ranges).sum(axis=0)
        draws += _DRAWS
    p = tuple(((1 + counts) / (1 + draws)).tolist())
    unit = "cases" if clusters is None else "clusters"
    return _RangeTest(p, f"range of means, permuted within {unit}", draws)


def _near(count: float, draws: int, level: float) -> bool:
    """Whether more draws could still change the verdict: within 3.3 standard errors of it."""
    spread = math.sqrt(level * (1 - level) * draws)
    return abs(count - level * draws) <= 3.3 * spread


def _units(table: Array, clusters: Sequence[str] | None) -> Array:
    if clusters is None:
        return table
    if len(clusters) != len(table):
        raise ValueError(f"{len(table)} cases but {len(clusters)} clusters")
    _, index = np.unique(np.asarray(clusters, dtype=str), return_inverse=True)
    sums = np.zeros((int(index.max()) + 1, table.shape[1]))
    np.add.at(sums, index, table)
    return sums


def _permuted_ranges(units: Array, draws: int, rng: np.random.Generator) -> Array:
    count, prompts = units.shape
    sums = np.zeros((draws, prompts))
    step = max(1, _CHUNK // (draws * prompts))
    for start in range(0, count, step):
        part = np.broadcast_to(
            units[start : start + step], (draws, *units[start : start + step].shape)
        )
        sums += rng.permuted(part, axis=2).sum(axis=1)
    return np.asarray(np.ptp(sums, axis=1))
