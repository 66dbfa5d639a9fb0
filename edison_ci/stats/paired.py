"""Paired comparisons: scores of two sides on the same cases, differences and permutation tests.

Under "the change makes no difference" the scores of a case may be swapped between the sides for any
distribution, so the tests need no normality and hold for any number of cases.
"""

from __future__ import annotations

import math
from functools import cache
from itertools import combinations
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.stats.arrays import (
    TIE,
    TOLERANCE,
    Range,
    bounded,
    dot,
    finite,
    grouped,
    mean_of,
    np,
    special,
    sum_of,
    variance_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from edison_ci.stats.arrays import Array, Floats, Groups


_EQUAL_SD = 1e-12
_EQUAL_VARIANCE = 1e-15
MIN_COMMON = 20
"""Fewest common cases on which two different datasets are still compared pairwise."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean difference with the values between which the truth likely lies."""

    value: float
    n: int
    method: str
    interval: Range | None
    """None when there are fewer than two cases (or clusters): no interval is possible."""
    level: float
    sd: float | None = None
    """Spread of the differences; None without two of them, or unpaired."""
    se: float | None = None


@dataclass(frozen=True, slots=True)
class Pairs:
    """The scores of the same cases on both sides, repeats kept apart."""

    base: tuple[tuple[float, ...], ...]
    head: tuple[tuple[float, ...], ...]
    clusters: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if len(self.base) != len(self.head):
            raise ValueError(f"{len(self.base)} cases of the base but {len(self.head)} of the head")
        if self.clusters is not None and len(self.clusters) != len(self.base):
            raise ValueError(f"{len(self.base)} cases but {len(self.clusters)} clusters")
        if not all(self.base) or not all(self.head):
            raise ValueError("a case without a score on one side leaves the pairing")

    @classmethod
    def of(
        cls, base: Sequence[float], head: Sequence[float], clusters: Sequence[str] | None = None
    ) -> Pairs:
        """Pair one score a case and side."""
        return cls(
            tuple((float(score),) for score in base),
            tuple((float(score),) for score in head),
            None if clusters is None else tuple(clusters),
        )

    @property
    def n(self) -> int:
        """The number of cases, which is the number that counts."""
        return len(self.base)

    @property
    def differences(self) -> Array:
        """Head minus base, one a case, each the mean over the repeats."""
        base, head = self.sides
        return head - base

    @property
    def sides(self) -> tuple[Array, Array]:
        """Base and head, one number a case, the mean over the repeats."""
        return self.means("base"), self.means("head")

    @property
    def equal_repeats(self) -> bool:
        """Whether every case was asked equally often on both sides."""
        return all(len(b) == len(h) for b, h in zip(self.base, self.head, strict=True))

    def means(self, side: Literal["base", "head"]) -> Array:
        """Return the mean over repeats of each case on a side, base or head."""
        cases = self.head if side == "head" else self.base
        return finite([math.fsum(case) / len(case) for case in cases], f"scores of the {side}")


class MeanError(NamedTuple):
    """A mean, its standard error and the degrees of freedom of that error."""

    mean: float
    se: float
    df: int

    def lower(self, alpha: float) -> float:
        """Return the one-sided lower t bound at confidence 1 - alpha."""
        return self.mean - float(special.stdtrit(self.df, 1 - alpha)) * self.se

    def upper(self, alpha: float) -> float:
        """Return the one-sided upper t bound at confidence 1 - alpha."""
        return self.mean + float(special.stdtrit(self.df, 1 - alpha)) * self.se


def mean_error(groups: Groups) -> MeanError | None:
    """Return the mean over cases with the clustered standard error (Miller 2024), else None.

    With one case a group it is the ordinary s / sqrt(n). None below two groups.
    """
    count, total = groups.sums.size, float(groups.sizes.sum())
    if count < 2:
        return None
    mean = sum_of(groups.sums) / total
    residuals = groups.sums - groups.sizes * mean
    variance = count / (count - 1) * dot(residuals, residuals) / (total * total)
    return MeanError(mean, math.sqrt(variance), count - 1)


def paired_difference(
    differences: Floats, *, clusters: Sequence[str] | None = None, level: float = 0.95
) -> Difference | None:
    """Return the mean difference with its t interval (STATS 6); None without any case.

    Differences lie in [-1, 1], so does the interval, and it never has zero width: identical
    differences are weak evidence that no case differs.
    """
    d = bounded(differences, "differences", low=-1, high=1)
    if not d.size:
        return None
    mean, alpha = mean_of(d), 1 - level
    error = mean_error(grouped(d, clusters))
    if error is None:
        what = "one case" if clusters is None or d.size < 2 else "one cluster"
        return Difference(mean, d.size, f"no interval from {what}", None, level)
    sd = math.sqrt(variance_of(d))
    equal = sd < _EQUAL_SD if clusters is None else error.se**2 < _EQUAL_VARIANCE
    if equal:
        q = 1 - (alpha / 2) ** (1 / (error.df + 1))
        interval = Range((1 - q) * mean - q, (1 - q) * mean + q)
        return Difference(mean, d.size, "all differences equal", interval, level, sd, error.se)
    interval = Range(max(-1.0, error.lower(alpha / 2)), min(1.0, error.upper(alpha / 2)))
    method = "paired t" if clusters is None else "paired t, clustered"
    return Difference(mean, d.size, method, interval, level, sd, error.se)


class WelchError(NamedTuple):
    """Difference of two unpaired means with its standard error."""

    mean: float
    se: float
    df: float


def welch_error(base: Array, head: Array) -> WelchError | None:
    """Return head minus base with Welch's standard error and degrees of freedom."""
    if min(base.size, head.size) < 2:
        return None
    parts = [variance_of(side) / side.size for side in (base, head)]
    total = parts[0] + parts[1]
    mean = mean_of(head) - mean_of(base)
    if total < _EQUAL_SD**2:
        return WelchError(mean, 0.0, float(min(base.size, head.size) - 1))
    df = total**2 / sum(
        part**2 / (side.size - 1) for part, side in zip(parts, (base, head), strict=True)
    )
    return WelchError(mean, math.sqrt(total), df)


def unpaired_difference(base: Floats, head: Floats, *, level: float = 0.95) -> Difference | None:
    """Return head minus base for different cases (Welch 1947); None with an empty side.

    It is the fallback: pairing is typically 3 to 10 times more sensitive. `n` is the number of
    cases on the smaller side.
    """
    first, second = (bounded(side, "scores", low=0, high=1) for side in (base, head))
    n, alpha = min(first.size, second.size), 1 - level
    if not n:
        return None
    error = welch_error(first, second)
    if error is None:
        mean = mean_of(second) - mean_of(first)
        return Difference(mean, n, "no interval from one case", None, level)
    if error.se == 0:
        # Each side's zero-variance line at half the error, so that both hold together.
        spans = [1 - (alpha / 4) ** (1 / side.size) for side in (first, second)]
        (b, h), (qb, qh) = (float(first[0]), float(second[0])), spans
        low = h * (1 - qh) - (b * (1 - qb) + qb)
        interval = Range(low, h * (1 - qh) + qh - b * (1 - qb))
        return Difference(error.mean, n, "unpaired, all scores equal", interval, level, None, 0.0)
    reach = float(special.stdtrit(error.df, 1 - alpha / 2)) * error.se
    interval = Range(max(-1.0, error.mean - reach), min(1.0, error.mean + reach))
    return Difference(error.mean, n, "unpaired t (Welch)", interval, level, None, error.se)


@dataclass(frozen=True, slots=True)
class Matching:
    """Which cases two runs have in common, and whether they are compared on those."""

    common: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    """Same id, other content: they count on neither side of the pairing."""
    paired: bool
    n: int
    method: str


def match_cases(base: Mapping[str, str], head: Mapping[str, str]) -> Matching:
    """Match case ids by the hash of their content, and decide whether to compare in pairs.

    The same dataset is always paired. Different ones are when at least 20 cases, and half of
    either side, are common (STATS 6).
    """
    both = base.keys() & head.keys()
    common = sorted(case for case in both if base[case] == head[case])
    same = len(common) == len(base) == len(head)
    enough = len(common) >= MIN_COMMON and 2 * len(common) >= max(len(base), len(head))
    paired = bool(common) and (same or enough)
    return Matching(
        common=tuple(common),
        added=tuple(sorted(head.keys() - base.keys())),
        removed=tuple(sorted(base.keys() - head.keys())),
        changed=tuple(sorted(both - set(common))),
        paired=paired,
        n=len(common),
        method="paired" if paired else "unpaired: about 3-10x less sensitive",
    )


Side: TypeAlias = Literal["two-sided", "less", "greater"]

DRAWS = 9_999
_ENUMERATED = 16
"""Differing cases up to which every sign vector is tried."""
_COMBINATIONS = 20_000
_TABLED = 2_000
"""Ways to relabel one case up to which their differences are listed rather than shuffled."""
_CHUNK = 64


@cache
def _signs() -> Array:
    """Return the signs of eight sizes, one column for each byte."""
    return np.asarray(((np.arange(256) >> np.arange(8)[:, None]) & 1) * 2.0 - 1.0, np.float64)


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
    """Random relabellings; None when every one was tried, so the value is exact."""


def sign_flip(
    differences: Floats,
    *,
    rng: np.random.Generator,
    side: Side = "two-sided",
    clusters: Sequence[str] | None = None,
) -> PValue:
    """Test that the differences are as likely to be positive as negative (Fisher 1935).

    For pass or fail scores it is the exact McNemar test. Declared clusters flip as a whole.
    """
    d = finite(differences, "differences")
    sums = grouped(d, clusters).sums
    sums = sums[np.abs(sums) > TIE]
    unit = "sign flip" if clusters is None else "sign flip of clusters"
    if not sums.size:
        return PValue(1.0, d.size, f"{unit}: no case differs", side, 0, None)
    sizes, observed = np.abs(sums), sum_of(sums)
    if sums.size <= _ENUMERATED:
        totals = np.zeros(1)
        for size in sizes:
            totals = np.concatenate((totals - size, totals + size))
        share = float(np.mean(_as_extreme(totals, observed, side)))
        return PValue(share, d.size, f"exact {unit}", side, sums.size, None)
    count = int(np.count_nonzero(_as_extreme(_randomly_signed(sizes, rng), observed, side)))
    return PValue((1 + count) / (DRAWS + 1), d.size, unit, side, sums.size, DRAWS)


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


def relabel_repeats(pairs: Pairs, *, rng: np.random.Generator, side: Side = "two-sided") -> PValue:
    """Test by relabelling, inside each case, which of its repeats were the head's.

    It is for unequal repeats, where the sign flip is no longer exact: a mean of three scores and
    a single score are not exchangeable, but the four scores are.
    """
    cases = [_Relabelling.of(*both) for both in zip(pairs.base, pairs.head, strict=True)]
    observed = math.fsum(case.observed for case in cases)
    open_cases = [case for case in cases if np.ptp(case.pool) > TIE]
    if not open_cases:
        return PValue(1.0, pairs.n, "relabelled repeats: no case differs", side, 0, None)
    ways = math.prod(case.ways for case in open_cases)
    if ways <= _COMBINATIONS:
        totals = np.zeros(1)
        for case in open_cases:
            totals = (totals[:, None] + case.table()[None, :]).ravel()
        share = float(np.mean(_as_extreme(totals, observed, side)))
        return PValue(share, pairs.n, "exact relabelled repeats", side, len(open_cases), None)
    totals = np.zeros(DRAWS)
    for case in open_cases:
        totals += case.drawn(rng)
    count = int(np.count_nonzero(_as_extreme(totals, observed, side)))
    value = (1 + count) / (DRAWS + 1)
    return PValue(value, pairs.n, "relabelled repeats", side, len(open_cases), DRAWS)


def paired_p(pairs: Pairs, *, rng: np.random.Generator, side: Side = "two-sided") -> PValue:
    """Test with the method that is exact for these repeats (STATS 6).

    Declared clusters and unequal repeats at once: the larger of the two tests' p-values, since
    neither alone respects both.
    """
    if pairs.equal_repeats:
        return sign_flip(pairs.differences, rng=rng, side=side, clusters=pairs.clusters)
    relabelled = relabel_repeats(pairs, rng=rng, side=side)
    if pairs.clusters is None:
        return relabelled
    flipped = sign_flip(pairs.differences, rng=rng, side=side, clusters=pairs.clusters)
    return max(relabelled, flipped, key=lambda found: found.value)


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


def _as_extreme(totals: Array, observed: float, side: Side) -> NDArray[np.bool_]:
    if side == "less":
        return np.asarray(totals <= observed + TOLERANCE)
    if side == "greater":
        return np.asarray(totals >= observed - TOLERANCE)
    return np.asarray(np.abs(totals) >= abs(observed) - TOLERANCE)
