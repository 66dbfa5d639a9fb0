"""Scores of a run, case by case, and what they come to.

The cases are read once for everybody who wants to know them, in the order in which an index has
them: sorting the cells takes longer than all that is done with them.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import field
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.stats.intervals import clustered_interval
from edison_ci.stats.scores import Interval, mean_interval, pass_interval

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

_BATCH = 1000
_GRADED = "c.side = 'head' and c.status in ('ok', 'malformed', 'blocked')"
_YES_OR_NO = frozenset((0.0, 1.0))

CaseScore = tuple[
    str, str, str, float | None, float | None, str | None, str | None, int | None, str | None, int
]
"""Prompt and model, both empty over all of them; case, mean composite, share that passed, cluster;
then what kind of case it is: tags as JSON, difficulty, kind, words. The kind is None if nobody said
anything of it."""


@dataclass(frozen=True, slots=True)
class Scored:
    """What a prompt with a model, or everything, is worth and costs."""

    prompt: str
    model: str
    composite: Interval | None
    pass_rate: Interval | None
    cost_microusd: int = 0
    p50_ms: int | None = None
    p95_ms: int | None = None


class Taker(Protocol):
    """Whoever wants to know what cases scored."""

    def take(self, cases: Sequence[CaseScore]) -> None:
        """Take some cases, in their order."""
        ...


class Spread(NamedTuple):
    """Over what the cells of a run are spread."""

    clustered: bool
    """Whether some cases belong together."""
    several: bool
    """Whether there is more than one prompt with a model."""


def spread_of(connection: sqlite3.Connection, run_id: str) -> Spread:
    """Return over what the cells of a run are spread."""
    most = f"{{0}}({{1}}) filter (where {_GRADED})"
    differ = (
        f"{most.format('min', 'c.' + name)} <> {most.format('max', 'c.' + name)}"
        for name in ("prompt", "model")
    )
    row = connection.execute(
        f"select max(c.cluster) is not null, {' or '.join(differ)} from cell c where c.run_id = ?",
        (run_id,),
    ).fetchone()
    return Spread(*map(bool, row))


def read_cases(connection: sqlite3.Connection, run_id: str, spread: Spread, *takers: Taker) -> None:
    """Tell what each case scored with each prompt and model, then over all if there are several.

    A case's score is the mean of its draws: with one model, or over all of them.
    """
    who = "c.prompt, c.model"
    groups = [(who, f"{who}, c.case_id"), ("'', ''", "c.case_id")]
    for name, by in groups if spread.several else [(who, "c.case_id")]:
        rows = connection.execute(
            f"select {name}, c.case_id, avg(c.composite), avg(c.passed), max(c.cluster), f.tags, "
            "f.difficulty, f.kind, f.words from cell c "
            "left join run_case f on f.run_id = c.run_id and f.case_id = c.case_id "
            f"where c.run_id = ? and {_GRADED} group by {by}",
            (run_id,),
        )
        while cases := rows.fetchmany(_BATCH):
            for taker in takers:
                taker.take(cases)


def group_of(case: CaseScore) -> str:
    """Return what a case is one unit with: its cluster, or nobody else."""
    return f"cluster {case[5]}" if case[5] is not None else f"case {case[2]}"


@dataclass(slots=True)
class _Sample:
    """Scores and pass shares, case by case; the unit is the case, or a cluster of them."""

    composites: array[float] = field(default_factory=lambda: array("d"))
    passes: array[float] = field(default_factory=lambda: array("d"))
    clusters: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    """Of the composites and of the passes; empty unless some case has one."""

    def add(self, cases: Sequence[CaseScore], *, clustered: bool) -> None:
        self.composites.extend([case[3] for case in cases if case[3] is not None])
        self.passes.extend([case[4] for case in cases if case[4] is not None])
        if clustered:
            for at, groups in zip((3, 4), self.clusters, strict=True):
                groups += [group_of(case) for case in cases if case[at] is not None]

    def composite(self) -> Interval | None:
        """Return the mean score with its interval."""
        if self.clusters[0]:
            return clustered_interval(self.composites, self.clusters[0])
        return mean_interval(self.composites)

    def pass_rate(self) -> Interval | None:
        """Return the pass rate with its interval."""
        if self.clusters[1]:
            return clustered_interval(self.passes, self.clusters[1])
        if _YES_OR_NO.issuperset(self.passes):
            return pass_interval(int(sum(self.passes)), len(self.passes))
        return mean_interval(self.passes)


class Samples:
    """The scores of a run."""

    def __init__(self, spread: Spread) -> None:
        self._spread = spread
        self._found: defaultdict[tuple[str, str], _Sample] = defaultdict(_Sample)

    def take(self, cases: Sequence[CaseScore]) -> None:
        """Take some cases."""
        for who, same in by_model(cases, several=self._spread.several).items():
            self._found[who].add(same, clustered=self._spread.clustered)

    def scored(self) -> list[Scored]:
        """Return the scores of the whole run, then those of each prompt with each model."""
        rows = [
            Scored(*who, sample.composite(), sample.pass_rate())
            for who, sample in sorted(self._found.items(), key=itemgetter(0))
        ]
        if not rows:
            return [Scored("", "", None, None)]
        if self._spread.several:
            return rows
        return [Scored("", "", rows[0].composite, rows[0].pass_rate), *rows]


def by_model(
    cases: Sequence[CaseScore], *, several: bool
) -> dict[tuple[str, str], Sequence[CaseScore]]:
    """Return cases by their prompt and model."""
    if not several:
        return {cases[0][:2]: cases}
    found: defaultdict[tuple[str, str], list[CaseScore]] = defaultdict(list)
    for case in cases:
        found[case[:2]].append(case)
    return dict(found)


def scores_of(connection: sqlite3.Connection, run_id: str) -> list[Scored]:
    """Return the scores of a whole run, then those of each prompt with each model."""
    spread = spread_of(connection, run_id)
    samples = Samples(spread)
    read_cases(connection, run_id, spread, samples)
    return samples.scored()
