"""Permutation tests: how often chance alone gives a difference at least this large.

Under "the change makes no difference" the scores of a case may be swapped between the sides for any
distribution, so the tests need no normality and hold for any number of cases. The p-value is exact
where every relabelling can be counted: by the binomial distribution for differences of one size,
by convolution for differences on a grid, by listing up to a million sums. Otherwise relabellings
are drawn at random, and more of them while the result is too near to the level of the decision to
be called, so that no seed decides. Every command asks here, so that one question has one p-value.
Whether the mix of what users ask changed is a permutation test as well.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.stats.arrays import (
    TIE,
    TOLERANCE,
    dot,
    finite,
    generator_for,
    grouped,
    np,
    special,
    sum_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from edison_ci.stats.arrays import Array, Floats
    from edison_ci.stats.paired import Pairs


Side: TypeAlias = Literal["two-sided", "less", "greater"]

DRAWS = 9_999
"""Random relabellings in a first attempt; with the observed one they are 10,000."""
MOST_DRAWS = 100 * DRAWS
"""Random relabellings after which a p-value near its level stays as it is."""
_UNDECIDED = 3.3
"""Standard errors from the level within which more is drawn: 1 in 1,000 is beyond."""
_LISTED = 1 << 20
"""Sums that are listed one by one: all signs of 20 clusters."""
_MOST_UNITS = 20
_MOST_DRAWN = 20_000
"""Differing cases above which random signs give way to their normal limit."""
_CONVOLVED = 100_000_000
"""Additions that a convolution may take."""
_FINEST = 10_000
"""Largest denominator of scores on a grid."""
_MOST_VALUES = 2_000
_GRID_NOISE = 1e-10
_TABLED = 2_000
"""Ways to relabel one case up to which their differences are listed rather than shuffled."""
_CHUNK = 64


@dataclass(frozen=True, slots=True)
class PValue:
    """How often chance alone gives a difference at least this large."""

    value: float
    n: int
    method: str
    side: Side
    differing: int
    """Cases (or clusters) that differ at all; the others say nothing."""
    draws: int | None
    """Random relabellings; None when every one was counted, so the value is exact."""
    two_sided: float | None = None
    """The value for "there is a difference" on either side; None where there is none."""


class _Tails(NamedTuple):
    """How often chance alone gives a sum at least this low, this high, or this far from 0."""

    less: float
    greater: float
    two_sided: float

    @classmethod
    def of(cls, totals: Array, observed: float, shares: Array | None = None) -> _Tails:
        """Count sums, or add up their shares."""
        low, high = totals <= observed + TOLERANCE, totals >= observed - TOLERANCE
        far = np.abs(totals) >= abs(observed) - TOLERANCE
        if shares is None:
            return cls(*(float(np.count_nonzero(tail)) for tail in (low, high, far)))
        return cls(*(min(1.0, math.fsum(shares[tail].tolist())) for tail in (low, high, far)))

    def p(
        self, n: int, method: str, side: Side, differing: int, draws: int | None = None
    ) -> PValue:
        value = {"less": self.less, "greater": self.greater, "two-sided": self.two_sided}[side]
        return PValue(value, n, method, side, differing, draws, self.two_sided)


_NO_DIFFERENCE = _Tails(1.0, 1.0, 1.0)


def sign_flip(
    differences: Floats,
    *,
    rng: np.random.Generator,
    side: Side = "two-sided",
    clusters: Sequence[str] | None = None,
    level: float = 0.05,
) -> PValue:
    """Test that the differences are as likely to be positive as negative (Fisher 1935).

    For pass or fail scores it is the exact McNemar test. Declared clusters flip as a whole.
    `level` is that of the decision, near which a random p-value is drawn more precisely.
    """
    d = finite(differences, "differences")
    sums = grouped(d, clusters).sums
    sums = sums[np.abs(sums) > TIE]
    unit = "permutation test" if clusters is None else "permutation test of clusters"
    if not sums.size:
        return _NO_DIFFERENCE.p(d.size, f"{unit}: no case differs", side, 0)
    sizes, observed = np.abs(sums), sum_of(sums)
    if float(np.ptp(sizes)) <= TIE:
        tails = _binomial(int(np.count_nonzero(sums > 0)), sums.size)
        return tails.p(d.size, f"exact {unit.replace('permutation', 'sign')}", side, sums.size)
    exact = _counted(np.column_stack((-sizes, sizes)), observed)
    if exact is not None:
        return exact.p(d.size, f"exact {unit}", side, sums.size)
    if sums.size > _MOST_DRAWN:
        tails = _normal(observed / math.sqrt(dot(sizes, sizes)))
        return tails.p(d.size, f"{unit}, normal approximation", side, sums.size)
    tails, draws = _drawn(lambda: _randomly_signed(sizes, rng), observed, level)
    return tails.p(d.size, _monte_carlo(unit, draws), side, sums.size, draws)


def relabel_repeats(
    pairs: Pairs, *, rng: np.random.Generator, side: Side = "two-sided", level: float = 0.05
) -> PValue:
    """Test by relabelling, inside each case, which of its repeats were the head's.

    It is for unequal repeats, where the sign flip is no longer exact: a mean of three scores and
    a single score are not exchangeable, but the four scores are.
    """
    cases = [_Relabelling.of(*both) for both in zip(pairs.base, pairs.head, strict=True)]
    observed = math.fsum(case.observed for case in cases)
    differing = [case for case in cases if np.ptp(case.pool) > TIE]
    unit = "permutation test of repeats"
    if not differing:
        return _NO_DIFFERENCE.p(pairs.n, f"{unit}: no case differs", side, 0)
    exact = None
    if all(case.ways <= _TABLED for case in differing):
        exact = _counted([case.table() for case in differing], observed)
    if exact is not None:
        return exact.p(pairs.n, f"exact {unit}", side, len(differing))
    tails, draws = _drawn(
        lambda: np.sum([case.drawn(rng) for case in differing], axis=0), observed, level
    )
    return tails.p(pairs.n, _monte_carlo(unit, draws), side, len(differing), draws)


def paired_p(
    pairs: Pairs, *, rng: np.random.Generator, side: Side = "two-sided", level: float = 0.05
) -> PValue:
    """Test with the method that is exact for these repeats (STATS 6).

    Declared clusters and unequal repeats at once: the larger of the two tests' p-values, since
    neither alone respects both.
    """

    def flipped() -> PValue:
        return sign_flip(
            pairs.differences, rng=rng, side=side, clusters=pairs.clusters, level=level
        )

    if pairs.equal_repeats:
        return flipped()
    relabelled = relabel_repeats(pairs, rng=rng, side=side, level=level)
    if pairs.clusters is None:
        return relabelled
    return max(relabelled, flipped(), key=lambda p: p.value)


def _binomial(better: int, n: int) -> _Tails:
    less, greater = (float(special.bdtr(k, n, 0.5)) for k in (better, n - better))
    return _Tails(less, greater, min(1.0, 2 * min(less, greater)))


def _normal(z: float) -> _Tails:
    less, greater = float(special.ndtr(z)), float(special.ndtr(-z))
    return _Tails(less, greater, 2 * min(less, greater))


def _counted(units: Sequence[Array] | Array, observed: float) -> _Tails | None:
    """Return the exact shares of relabellings at least as extreme; None if they are too many.

    A unit has the differences that its relabellings give, all equally likely.
    """
    on_grid = _grid(units)
    if on_grid is not None:
        shares, lowest, scale = _convolved(on_grid)
        # Whole numbers of steps, so that equal sums are equal to the last digit.
        steps = np.arange(lowest, lowest + shares.size, dtype=np.float64)
        return _Tails.of(steps, float(round(observed * scale)), shares)
    if len(units) > _MOST_UNITS or math.prod(unit.size for unit in units) > _LISTED:
        return None
    totals = np.zeros(1)
    for unit in units:
        totals = (totals[:, None] + unit[None, :]).ravel()
    counts = _Tails.of(totals, observed)
    return _Tails(*(count / totals.size for count in counts))


class _Grid(NamedTuple):
    """Differences as whole numbers of steps."""

    units: list[tuple[NDArray[np.int64], Array]]
    """The distinct differences of each unit, with their shares of its relabellings."""
    scale: int
    """Steps in 1."""


def _grid(units: Sequence[Array] | Array) -> _Grid | None:
    """Return differences on the coarsest grid that has all of them, if it can be convolved."""
    values = np.unique(np.abs(np.concatenate(units)))
    # Values that differ by rounding only are one.
    values = values[np.append(True, np.diff(values) > _GRID_NOISE)]
    if values.size > _MOST_VALUES:
        return None
    scale = 1
    for value in values.tolist():
        near = Fraction(value).limit_denominator(_FINEST)
        if abs(value - near) > _GRID_NOISE:
            return None
        scale = math.lcm(scale, near.denominator)
        if scale > _FINEST:
            return None
    shares, span, steps = [], 0, 0
    for unit in units:
        places, counts = np.unique(np.rint(unit * scale).astype(np.int64), return_counts=True)
        shares.append((places, counts / unit.size))
        span += int(places[-1] - places[0])
        steps += span * places.size
        if steps > _CONVOLVED:
            return None
    return _Grid(shares, scale)


def _convolved(grid: _Grid) -> tuple[Array, int, int]:
    """Return the distribution of the sum, the least sum in steps, and the steps in 1."""
    shares, lowest = np.ones(1), 0
    for places, weights in grid.units:
        wider = np.zeros(shares.size + int(places[-1] - places[0]))
        for place, weight in zip((places - places[0]).tolist(), weights.tolist(), strict=True):
            wider[place : place + shares.size] += weight * shares
        shares, lowest = wider, lowest + int(places[0])
    return shares, lowest, grid.scale


def _drawn(draw: Callable[[], Array], observed: float, level: float) -> tuple[_Tails, int]:
    """Return the p-values of random relabellings, and their number.

    `draw` returns the sums of some. The observed labelling is one more, so that no p-value is too
    small (Phipson and Smyth 2010). All tails are watched, so that every side that is asked for
    rests on the same draws.
    """
    counts, draws = np.zeros(3), 0
    while True:
        totals = draw()
        counts += _Tails.of(totals, observed)
        draws += totals.size
        values = (1 + counts) / (1 + draws)
        unsure = _UNDECIDED * math.sqrt(level * (1 - level) / draws)
        if (np.abs(values - level) > unsure).all() or draws >= MOST_DRAWS:
            return _Tails(*values.tolist()), draws


def _monte_carlo(unit: str, draws: int) -> str:
    return f"{unit}, Monte Carlo with {draws:,} draws"


@cache
def _signs() -> Array:
    """Return the signs of eight sizes, one column for each byte."""
    return np.asarray(((np.arange(256) >> np.arange(8)[:, None]) & 1) * 2.0 - 1.0, np.float64)


def _randomly_signed(sizes: Array, rng: np.random.Generator) -> Array:
    """Return sums of the sizes under random signs.

    A random byte signs eight sizes at once, by a table of its 256 sums: ten times as fast as one
    random number a sign, and in little memory.
    """
    eights = np.concatenate((sizes, np.zeros(-sizes.size % 8))).reshape(-1, 8)
    totals = np.zeros(DRAWS)
    for start in range(0, len(eights), _CHUNK):
        tables = eights[start : start + _CHUNK] @ _signs()
        drawn = rng.integers(0, 256, size=(len(tables), DRAWS), dtype=np.uint8)
        for table, byte in zip(tables, drawn, strict=True):
            totals += table[byte]
    return totals


@dataclass(frozen=True, slots=True)
class _Relabelling:
    """The repeats of one case, of which `taken` are the head's."""

    pool: Array
    taken: int
    observed: float

    @classmethod
    def of(cls, base: Sequence[float], head: Sequence[float]) -> _Relabelling:
        pool = finite([*head, *base], "scores")
        observed = float(pool[: len(head)].mean() - pool[len(head) :].mean())
        return cls(pool, len(head), observed)

    @property
    def ways(self) -> int:
        return math.comb(self.pool.size, self.taken)

    def table(self) -> Array:
        """Return the difference of means under every choice."""
        chosen = np.array(list(combinations(range(self.pool.size), self.taken)))
        return self._difference(self.pool[chosen].sum(axis=1))

    def drawn(self, rng: np.random.Generator) -> Array:
        """Return the difference of means under random choices."""
        if self.ways <= _TABLED:
            return self.table()[rng.integers(0, self.ways, size=DRAWS)]
        shuffled = rng.permuted(np.tile(self.pool, (DRAWS, 1)), axis=1)
        return self._difference(shuffled[:, : self.taken].sum(axis=1))

    def _difference(self, head_sums: Array) -> Array:
        rest = self.pool.size - self.taken
        return np.asarray(head_sums / self.taken - (self.pool.sum() - head_sums) / rest)


_SHUFFLES = 4_999


@dataclass(frozen=True, slots=True)
class MixShift:
    """How the shares of categories changed, and whether by more than chance."""

    value: float
    """Half the sum of the absolute changes of shares: 0 for the same mix, 1 for another one."""
    n: int
    """Questions of the newer sample."""
    method: str
    p: float
    category: str
    """The one whose share changed most."""
    before: float
    now: float


def mix_shift(before: Mapping[str, int], now: Mapping[str, int]) -> MixShift | None:
    """Compare two samples of categories by permutation (Pitman 1937); None with an empty one.

    The statistic is Pearson's chi-square of the two rows; questions are shuffled between them.
    """
    names = sorted(before.keys() | now.keys())
    old = np.array([before.get(name, 0) for name in names], dtype=np.int64)
    new = np.array([now.get(name, 0) for name in names], dtype=np.int64)
    if not old.sum() or not new.sum():
        return None
    total, size = old + new, int(new.sum())
    expected = total * size / total.sum()
    rng = generator_for(names, config_hash=f"{old.tolist()} {new.tolist()}")
    drawn = rng.multivariate_hypergeometric(total, size, size=_SHUFFLES)
    seen = float(((new - expected) ** 2 / expected).sum())
    extreme = int((((drawn - expected) ** 2 / expected).sum(axis=1) >= seen - TIE).sum())
    shares = old / old.sum(), new / new.sum()
    moved = np.abs(shares[1] - shares[0])
    most = int(np.argmax(moved))
    return MixShift(
        value=float(moved.sum() / 2),
        n=size,
        method="chi-square by permutation",
        p=(1 + extreme) / (1 + _SHUFFLES),
        category=names[most],
        before=float(shares[0][most]),
        now=float(shares[1][most]),
    )
