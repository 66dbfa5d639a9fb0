"""Agreement of judges.

A table has a row a case and a column a judge; None is a judgment that is missing. Agreement is
not correctness: two copies of one model agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.numeric import reaches
from edison_ci.stats.arrays import TIE, Range, bounded, finite, mean_of, np, variance_of
from edison_ci.stats.scores import Estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from edison_ci.stats.arrays import Array, Floats


Row: TypeAlias = Sequence[float | None]
Method: TypeAlias = Literal["mean", "median", "trimmed"]

TRIM = 0.2
_FLAG_RANGE, _FLAG_SD = 0.5, 0.25


@dataclass(frozen=True, slots=True)
class PanelScore:
    """What the judges of one case say together."""

    value: float | None
    """None when no judge answered."""
    n: int
    """Judges that answered."""
    method: str
    sd: float | None
    """Disagreement on 0-1; None below two judges."""
    spread: float | None
    """Highest minus lowest; None below two judges."""
    flagged: bool
    """Whether they differ by 50 points, or have an sd of 25."""


def panel_score(row: Row, *, method: Method = "mean") -> PanelScore:
    """Put the judges of one case together (STATS 3); with 3 or 4 judges prefer the median."""
    scores = np.sort(bounded([x for x in row if x is not None], "scores", low=0, high=1))
    if not scores.size:
        return PanelScore(None, 0, method, None, None, False)
    sd = spread = None
    if scores.size >= 2:
        sd, spread = math.sqrt(variance_of(scores)), float(scores[-1] - scores[0])
    flagged = reaches(spread or 0.0, _FLAG_RANGE) or reaches(sd or 0.0, _FLAG_SD)
    return PanelScore(_together(scores, method), scores.size, method, sd, spread, flagged)


def _together(scores: Array, method: Method) -> float:
    """Return the ensemble of sorted scores."""
    if method == "median":
        return float(np.median(scores))
    cut = int(TRIM * scores.size) if method == "trimmed" else 0
    kept = scores[cut : scores.size - cut]
    return mean_of(kept)


def severity_of(table: Sequence[Row], judges: int) -> tuple[float | None, ...]:
    """Return how far each judge is above or below the panel; all together are 0.

    Fits score = case + judge by least squares, with the cases eliminated: there are few judges.
    None for all where the judges are not tied together by common cases: then a difference of
    judges cannot be distinguished from one of cases.
    """
    left, right = np.zeros((judges, judges)), np.zeros(judges)
    for row in table:
        present = [j for j, x in enumerate(row) if x is not None]
        if not present:
            continue
        scores = np.array([x for x in row if x is not None], dtype=np.float64)
        left[present, present] += 1
        left[np.ix_(present, present)] -= 1 / len(present)
        right[present] += scores - mean_of(scores)
    # One condition too few, that they add up to 0, is what the shortest solution keeps.
    severity, _, rank, _ = np.linalg.lstsq(left, right, rcond=None)
    if rank < judges - 1 or not any(x is not None for row in table for x in row):
        return (None,) * judges
    return tuple(severity.tolist())


Table: TypeAlias = Sequence[Sequence[float | None]]
Metric: TypeAlias = Literal["nominal", "ordinal", "interval"]

BOOTSTRAP = 1_000
_HELD = 1_000_000
"""Numbers that are held at once while cases are resampled."""
FEWEST_CASES = 10
"""Number of cases below which there is no interval."""


@dataclass(frozen=True, slots=True)
class Agreement(Estimate):
    """How far judges agree beyond chance: 1 is always, 0 is as chance would.

    The value is None if nothing varies or nothing was judged twice; `n` are the cases with at least
    two judgments.
    """

    raw: float | None
    """Share of pairs of judgments that are equal."""

    @property
    def words(self) -> str:
        """The agreement in words (STATS 13)."""
        if self.value is None:
            return "agreement is not computable: no variation"
        if reaches(self.value, 0.8):
            return "judges largely agree"
        if reaches(self.value, 0.67):
            return "usable with care"
        return "judges disagree: treat differences as tentative"


def krippendorff(
    table: Table,
    *,
    rng: np.random.Generator,
    metric: Metric = "interval",
    cases: Sequence[str] | None = None,
    level: float = 0.95,
) -> Agreement:
    """Return Krippendorff's alpha, for any number of judges and missing judgments.

    Nominal scores are equal or not, interval scores differ by their distance, and ordinal ones by
    the ratings between them. Where a row is an answer and not a case, `cases` names the case of
    each row: the interval then resamples cases.
    """
    units = _units(table)
    if metric == "interval":
        twice = [sum(x is not None for x in row) >= 2 for row in table]
        named = cases if cases is not None else [str(index) for index in range(len(table))]
        groups = [case for case, counts in zip(named, twice, strict=True) if counts]
        return _interval_alpha(units, groups, _Settings(rng, level, raw_agreement(table)))
    if cases is not None:
        raise ValueError("only interval scores are resampled by case")
    return _with_interval(
        lambda chosen: _alpha([units[index] for index in chosen], metric),
        len(units),
        f"Krippendorff's alpha, {metric}",
        _Settings(rng, level, raw_agreement(table)),
    )


def cohen(
    first: Floats,
    second: Floats,
    *,
    rng: np.random.Generator,
    weights: Literal["none", "quadratic"] = "none",
    level: float = 0.95,
) -> Agreement:
    """Return Cohen's kappa of two judges; quadratic weights suit ordered scales."""
    a, b = finite(first, "judgments"), finite(second, "judgments")
    if a.size != b.size:
        raise ValueError(f"{a.size} judgments of one judge but {b.size} of the other")
    return _with_interval(
        lambda chosen: _kappa(a[chosen], b[chosen], quadratic=weights == "quadratic"),
        a.size,
        "Cohen's kappa" if weights == "none" else "Cohen's kappa, quadratic weights",
        _Settings(rng, level, float(np.mean(np.abs(a - b) <= TIE)) if a.size else None),
    )


def cohen_of_cases(
    first: Floats, second: Floats, cases: Sequence[str], *, rng: np.random.Generator
) -> Agreement:
    """Return Cohen's kappa with quadratic weights where a case may have several judgments.

    `cases` names the case of each pair: the interval is that of resampled cases.
    """
    a, b = finite(first, "judgments"), finite(second, "judgments")
    if not a.size == b.size == len(cases):
        raise ValueError(f"{a.size} and {b.size} judgments of {len(cases)} cases")
    places: dict[str, list[int]] = {}
    for place, case in enumerate(cases):
        places.setdefault(case, []).append(place)
    groups = [np.asarray(places[case], dtype=np.intp) for case in sorted(places)]
    agreement = _with_interval(
        lambda chosen: _kappa(
            *(x[np.concatenate([groups[i] for i in chosen])] for x in (a, b)), quadratic=True
        ),
        len(groups),
        "Cohen's kappa, quadratic weights",
        _Settings(rng, 0.95, float(np.mean(np.abs(a - b) <= TIE)) if a.size else None),
    )
    return replace(agreement, n=int(a.size))


def intraclass(
    table: Table,
    *,
    rng: np.random.Generator,
    of: Literal["one judge", "panel"] = "one judge",
    cases: Sequence[str] | None = None,
    level: float = 0.95,
) -> Agreement:
    """Return ICC(2,1), how good one judge is, or ICC(2,k), how good the panel's average is.

    Two-way random effects, absolute agreement (Shrout and Fleiss 1979); nothing may be missing.
    """
    ratings = _complete(table)
    name = "ICC(2,1), one judge" if of == "one judge" else "ICC(2,k), this panel's average"
    return _with_interval(
        lambda chosen: _icc(ratings[chosen], panel=of == "panel"),
        len(ratings),
        name,
        _Settings(rng, level, raw_agreement(table), cases),
    )


def raw_agreement(table: Table) -> float | None:
    """Return the share of pairs of judgments on a case that are equal.

    With 95% of scores identical every kappa collapses, although nearly all pairs are equal.
    """
    equal = pairs = 0.0
    for unit in _units(table):
        _, counts = np.unique(unit, return_counts=True)
        equal += float((counts * (counts - 1)).sum()) / 2
        pairs += unit.size * (unit.size - 1) / 2
    return equal / pairs if pairs else None


@dataclass(frozen=True, slots=True)
class _Settings:
    rng: np.random.Generator
    level: float
    raw: float | None
    cases: Sequence[str] | None = None
    """The case of each row, where several rows may be of one; cases are what is resampled."""


def _with_interval(
    statistic: Callable[[NDArray[np.intp]], float | None],
    n: int,
    method: str,
    settings: _Settings,
) -> Agreement:
    """Add the percentile interval over resampled cases."""
    value = statistic(np.arange(n)) if n else None
    interval = None
    rows = _Rows.of(settings.cases if settings.cases is not None else range(n))
    if value is not None and rows.sizes.size >= FEWEST_CASES:
        resampled = [statistic(rows.drawn(settings.rng)) for _ in range(BOOTSTRAP)]
        values = [x for x in resampled if x is not None]
        tail = (1 - settings.level) / 2
        if values:
            low, high = np.quantile(values, [tail, 1 - tail])
            # A percentile interval can miss its own estimate; the estimate is never outside.
            interval = Range(min(float(low), value), max(float(high), value))
    return Agreement(value, n, method, interval, settings.level, settings.raw)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of each case, for drawing cases with all their rows."""

    order: NDArray[np.intp]
    starts: NDArray[np.intp]
    sizes: NDArray[np.intp]

    @classmethod
    def of(cls, cases: Sequence[str] | range) -> _Rows:
        _, owner = np.unique(np.asarray(cases), return_inverse=True)
        sizes = np.bincount(owner)
        return cls(np.argsort(owner, kind="stable"), np.cumsum(sizes) - sizes, sizes)

    def drawn(self, rng: np.random.Generator) -> NDArray[np.intp]:
        count = self.sizes.size
        chosen = rng.integers(0, count, size=count)
        sizes = self.sizes[chosen]
        offsets = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.asarray(self.order[np.repeat(self.starts[chosen], sizes) + offsets])


def _interval_alpha(
    units: Sequence[Array], groups: Sequence[str], settings: _Settings
) -> Agreement:
    """Return alpha of interval scores, whose parts add up over cases: a resample is a sum."""
    name = "Krippendorff's alpha, interval"
    if not units:
        return Agreement(None, 0, name, None, settings.level, settings.raw)
    middle = float(np.concatenate(units).mean())  # distances do not depend on where 0 is
    parts = np.array([_parts_of_alpha(unit - middle) for unit in units])
    _, owner = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    sums = np.stack([np.bincount(owner, part) for part in parts.T], axis=1).astype(np.float64)
    value = _alpha_of_parts(sums.sum(axis=0)[None, :])[0]
    count, interval = len(sums), None
    alpha = None if math.isnan(value) else float(value)
    if alpha is not None and count >= FEWEST_CASES:
        resampled = np.concatenate(
            [_alpha_of_parts(part) for part in _resampled(sums, settings.rng)]
        )
        tail = (1 - settings.level) / 2
        low, high = np.nanquantile(resampled, [tail, 1 - tail])
        interval = Range(min(float(low), alpha), max(float(high), alpha))
    return Agreement(alpha, len(units), name, interval, settings.level, settings.raw)


def _resampled(sums: Array, rng: np.random.Generator) -> Iterator[Array]:
    """Yield the sums over resampled cases, a few resamples at a time so that little is held."""
    count, left = len(sums), BOOTSTRAP
    while left:
        size = min(left, max(1, _HELD // count))
        picks = rng.multinomial(count, np.full(count, 1 / count), size=size)
        yield picks.astype(np.float64) @ sums
        left -= size


def _parts_of_alpha(unit: Array) -> tuple[float, float, float, float]:
    """Return what a unit adds: ratings, their sum and squares, and disagreement inside it."""
    size, total, squares = unit.size, float(unit.sum()), float(unit @ unit)
    return size, total, squares, 2 * (size * squares - total**2) / (size - 1)


def _alpha_of_parts(sums: Array) -> Array:
    """Return alpha of each row of summed parts; nan where nothing varies."""
    n, total, squares, within = sums.T
    expected = 2 * (n * squares - total**2)
    varies = expected > TIE * np.maximum(1, n)
    with np.errstate(divide="ignore", invalid="ignore"):
        alpha = 1 - (within / n) / (expected / (n * (n - 1)))
    return np.where(varies, alpha, np.nan)


def _units(table: Table) -> list[Array]:
    """Return the judgments of the cases that have at least two."""
    rows = [finite([x for x in row if x is not None], "judgments") for row in table]
    return [row for row in rows if row.size >= 2]


def _complete(table: Table) -> Array:
    rows = [[x for x in row if x is not None] for row in table]
    widths = {len(row) for row in table}
    if any(len(kept) != len(row) for kept, row in zip(rows, table, strict=True)):
        raise ValueError("judgments are missing: use Krippendorff's alpha")
    if len(widths) > 1 or (widths and widths.pop() < 2):
        raise ValueError("every case needs the same judges, at least two")
    if not rows:
        return np.zeros((0, 2))
    finite([x for row in rows for x in row], "judgments")
    return np.array(rows, dtype=np.float64)


def _alpha(units: Sequence[Array], metric: Metric) -> float | None:
    pooled = np.concatenate(units)
    values, inverse, counts = np.unique(pooled, return_inverse=True, return_counts=True)
    total = pooled.size
    sizes = np.array([unit.size for unit in units])
    owner = np.repeat(np.arange(len(units)), sizes)
    if metric == "nominal":
        cells, repeated = np.unique(owner * values.size + inverse, return_counts=True)
        same = np.bincount(cells // values.size, repeated.astype(np.float64) ** 2)
        within = np.asarray(sizes.astype(np.float64) ** 2 - same)
        expected = float(total) ** 2 - float((counts.astype(np.float64) ** 2).sum())
    else:
        # The ordinal distance, ratings between two values with half of the ends, is the
        # distance of their mid-ranks.
        placed = (np.cumsum(counts) - counts / 2)[inverse]
        placed = placed - placed.mean()
        sums, squares = np.bincount(owner, placed), np.bincount(owner, placed**2)
        within = np.asarray(2 * (sizes * squares - sums**2), dtype=np.float64)
        expected = 2 * (total * float((placed**2).sum()) - float(placed.sum()) ** 2)
    if values.size < 2 or expected <= 0:
        return None
    observed = float((within / (sizes - 1)).sum()) / total
    return 1 - observed / (expected / (total * (total - 1)))


def _kappa(a: Array, b: Array, *, quadratic: bool) -> float | None:
    if quadratic:
        # The mean squared distance, over that of judgments paired at random.
        chance = float((a**2).mean() + (b**2).mean() - 2 * a.mean() * b.mean())
        return None if chance <= TIE else 1 - float(((a - b) ** 2).mean()) / chance
    values, codes = np.unique(np.concatenate((a, b)), return_inverse=True)
    first, second = codes[: a.size], codes[a.size :]
    table = np.zeros((values.size, values.size))
    np.add.at(table, (first, second), 1 / a.size)
    cost = 1 - np.eye(values.size)
    expected = float((np.outer(table.sum(axis=1), table.sum(axis=0)) * cost).sum())
    return None if expected <= 0 else 1 - float((table * cost).sum()) / expected


def _icc(ratings: Array, *, panel: bool) -> float | None:
    n, k = ratings.shape
    if n < 2:
        return None
    grand = ratings.mean()
    rows, columns = ratings.mean(axis=1), ratings.mean(axis=0)
    msr = k * float(((rows - grand) ** 2).sum()) / (n - 1)
    msc = n * float(((columns - grand) ** 2).sum()) / (k - 1)
    residual = ratings - rows[:, None] - columns[None, :] + grand
    mse = float((residual**2).sum()) / ((n - 1) * (k - 1))
    below = msr + (msc - mse) / n if panel else msr + (k - 1) * mse + k * (msc - mse) / n
    return None if below <= TIE else (msr - mse) / below
