"""Convergence: whether refining still gains, whether a gain is real, and which prompts to drop.

A loop may drop prompts that are shown to be worse than the best one, on the same cases.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.stats.arrays import TIE, TOLERANCE, bounded, finite, mean_of, np
from edison_ci.stats.permutation import PValue, sign_flip
from edison_ci.stats.sequential import Units, always_valid_interval, evidence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.stats.arrays import Array, Floats, Range
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
    """Return whether the last `window` rounds all gained less than `min_delta` (STATS 16).

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
