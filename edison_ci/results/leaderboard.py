"""How do models and prompt versions stand against each other, and which differences are shown?

Who is better is told by differences on the same cases, allowing for the number of comparisons,
never by two intervals side by side; what is not shown to differ is a tie (STATS 6, 8 and 12).
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.frozen import dataclass
from edison_ci.results.comparable import may_compare
from edison_ci.results.measured import measurements_of
from edison_ci.results.preferences import Key, preferences_of
from edison_ci.rounding import NOISE, snap
from edison_ci.stats.arrays import Range, generator_for
from edison_ci.stats.correction import holm
from edison_ci.stats.paired import MIN_COMMON, paired_difference
from edison_ci.stats.permutation import sign_flip

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

    from edison_ci.results.measured import Measurements, Standing
    from edison_ci.results.preferences import Preferences
    from edison_ci.results.roll import Roll
    from edison_ci.results.samples import Sample

_EXACT = 400
"""Up to so many cases or clusters chance is tried out; the mean of more is as good as normal."""
_LEVEL = 0.95


class Contrast(NamedTuple):
    """Two standings on the cases that both have."""

    better: int
    """Index of the one with the higher mean."""
    worse: int
    difference: float
    interval: Range | None
    n: int
    p: float
    p_holm: float
    shown: bool
    method: str
    sd: float | None
    """Spread of the differences; None with one case."""


@dataclass(frozen=True, slots=True)
class Board:
    """The standings of one experiment, best first."""

    experiment: str
    rows: tuple[Standing, ...]
    contrasts: tuple[Contrast, ...]
    """Pairs with enough cases in common, in the order of the ranks."""
    runs: int
    """Complete runs that the rows come from."""
    other_yardstick: int
    """Rows left out because they were graded otherwise than the newest run."""
    too_few: int
    """Rows left out because they have fewer cases than asked for."""
    beyond: int
    """Rows left out because there are more than asked for."""
    quarantined: int
    preferences: Preferences | None = None
    """The same by what judges prefer; None where nothing was compared."""


@dataclass(frozen=True, slots=True)
class BoardRule:
    """What a board shows."""

    min_cases: int = 1
    most: int = 20


def board_of(
    connection: sqlite3.Connection, experiment: str, roll: Roll, rule: BoardRule | None = None
) -> Board | None:
    """Return how everything measured in an experiment stands; None without a complete run."""
    rule = rule or BoardRule()
    found = measurements_of(connection, experiment, roll)
    if found is None:
        return None
    scored = [row for row in found.rows if row.composite is not None]
    scored.sort(key=lambda row: (-_estimate(row), row.cost_microusd or 0.0, row.place[2:]))
    enough = [row for row in scored if len(row.scores.cases) >= rule.min_cases]
    shown = enough[: rule.most]
    contrasts = _contrasts(shown, roll)
    return Board(
        experiment=experiment,
        rows=tuple(_ranked(shown, contrasts)),
        contrasts=tuple(contrasts),
        runs=len({row.place.run.id for row in shown}),
        other_yardstick=found.other_yardstick,
        too_few=len(found.rows) - len(enough),
        beyond=len(enough) - len(shown),
        quarantined=len(roll.quarantined),
        preferences=_preferences(connection, found, roll),
    )


def _preferences(
    connection: sqlite3.Connection, found: Measurements, roll: Roll
) -> Preferences | None:
    if not may_compare(found.newest):
        return None  # looking for comparisons would go through every cell of every run
    keys = (Key(*row.place[2:]) for row in found.rows)
    return preferences_of(connection, found.runs, {key: "\0".join(key) for key in keys}, roll)


def _estimate(row: Standing) -> float:
    return 0.0 if row.composite is None else snap(row.composite.estimate)


# --- who is better --------------------------------------------------------------------------------


def _contrasts(rows: Sequence[Standing], roll: Roll) -> list[Contrast]:
    found = []
    for better, worse in combinations(range(len(rows)), 2):
        contrast = contrast_of(Scores.of(rows[worse]), Scores.of(rows[better]), roll)
        if contrast is not None:
            found.append(_turned(contrast._replace(better=better, worse=worse)))
    adjusted = holm([contrast.p for contrast in found], alpha=round(1 - _LEVEL, 12))
    return [
        contrast._replace(p_holm=p, shown=stands_out)
        for contrast, p, stands_out in zip(found, adjusted.value, adjusted.stands_out, strict=True)
    ]


def _turned(contrast: Contrast) -> Contrast:
    """Name the one that is better on the common cases first; a mean over others may differ."""
    if contrast.difference >= -NOISE:
        return contrast
    ends = contrast.interval and Range(-contrast.interval.high, -contrast.interval.low)
    return contrast._replace(
        better=contrast.worse,
        worse=contrast.better,
        difference=-contrast.difference,
        interval=ends,
    )


class Scores(NamedTuple):
    """Scores of cases, with what the cases were."""

    sample: Sample
    contents: Mapping[str, str]

    @classmethod
    def of(cls, row: Standing) -> Scores:
        """Return the scores of a row."""
        return cls(row.scores, row.contents)


def common_cases(base: Scores, head: Scores) -> list[str]:
    """Return the cases of both, if they can be compared in pairs (STATS 6).

    A case with the same id and another content counts on neither side. Different datasets are
    compared when at least 20 cases, and half of either side, are common.
    """
    before, sides = set(base.sample.cases), (base.sample.cases, head.sample.cases)
    common = [
        case
        for case in head.sample.cases
        if case in before and _same(base.contents.get(case), head.contents.get(case))
    ]
    same = all(len(common) == len(side) for side in sides)
    enough = len(common) >= MIN_COMMON and 2 * len(common) >= max(map(len, sides))
    return common if same or enough else []


def _same(one: str | None, other: str | None) -> bool:
    return one is None or other is None or one == other


def contrast_of(base: Scores, head: Scores, roll: Roll) -> Contrast | None:
    """Return head minus base on the cases of both; None if too few are common."""
    common = common_cases(base, head)
    if not common:
        return None
    before, after = (dict(zip(s.cases, s.values, strict=True)) for s in (base.sample, head.sample))
    differences = [after[case] - before[case] for case in common]
    clusters = roll.clusters_of(common)
    found = paired_difference(differences, clusters=clusters, level=_LEVEL)
    assert found is not None, "there is a common case"
    units = len(common) if clusters is None else len(set(clusters))
    if units <= _EXACT:
        rng = generator_for(common)
        tested = sign_flip(differences, rng=rng, clusters=clusters)
        p, method = tested.value, f"{found.method}; {tested.method}"
    else:
        z = abs(found.value) / found.se if found.se else math.inf if snap(found.value) else 0.0
        p, method = math.erfc(z / math.sqrt(2)), f"{found.method}; normal"
    return Contrast(
        better=0,
        worse=1,
        difference=found.value,
        interval=found.interval,
        n=len(common),
        p=p,
        p_holm=p,
        shown=p <= round(1 - _LEVEL, 12),
        method=method,
        sd=found.sd,
    )


def _ranked(rows: Sequence[Standing], contrasts: Sequence[Contrast]) -> Iterator[Standing]:
    """Yield the rows with the ranks that they may have: ties share theirs."""
    above, below = [0] * len(rows), [0] * len(rows)
    for contrast in contrasts:
        if contrast.shown:
            above[contrast.worse] += 1
            below[contrast.better] += 1
    for index, row in enumerate(rows):
        yield replace(row, best_rank=1 + above[index], worst_rank=len(rows) - below[index])
