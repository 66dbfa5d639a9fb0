"""How did each version of a prompt do, and which of these scores can stand side by side?

A score is comparable with another one if the experiment, the models, the cases and what grades the
answers are the same. Each version is told by a run that is like that of the newest version, where
there is one, and otherwise by its newest run, with what differs.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.frozen import dataclass
from edison_ci.plan.versions import short
from edison_ci.results.comparable import yardstick
from edison_ci.results.versions import Version
from edison_ci.stats.intervals import clustered_interval, mean_interval
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

    from edison_ci.stats.intervals import Interval
    from edison_ci.store.runs import Run

_MOST_TRIED = 20
"""Runs of a version that are looked at for one that is like the newest version's."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a version did in one complete run, over its models."""

    run: Run
    side: str
    composite: Interval | None
    models: tuple[str, ...]
    answers: int
    answer_cost_microusd: float | None
    cases: frozenset[tuple[str, str | None]]
    """Its cases, each with the hash of what it says."""
    differs: tuple[str, ...] = ()
    """In what it was not measured like the newest version."""
    prompt: str = ""
    """The id under which it was measured."""


class _Measured(NamedTuple):
    """Where a version was measured."""

    run_id: str
    side: str
    experiment: str
    models: tuple[str, ...]
    answers: int
    cost_microusd: int


def results_by_version(
    connection: sqlite3.Connection,
    prompt: str,
    newest_first: Sequence[str],
    newest: Result | None = None,
) -> dict[str, Result]:
    """Return a complete result of each version of a prompt, whole runs before partial ones.

    `newest` is what they are held against, if that is none of them.
    """
    places = _places(connection, prompt)
    found: dict[str, Result] = {}
    for version in dict.fromkeys([*newest_first, *places]):
        if version not in places:
            continue
        found[version] = _result(connection, prompt, version, places[version], newest)
        newest = newest or found[version]
    return found


def measured_as(connection: sqlite3.Connection, version: str, prompt: str) -> list[str]:
    """Return the other prompts under whose names the very same version was measured."""
    rows = connection.execute(
        "select distinct m.prompt from rollup_model m join run r on r.id = m.run_id "
        "where m.version = ? and m.prompt <> ? and r.complete = 1 and r.status = 'COMPLETED' "
        "order by m.prompt",
        (version, prompt),
    )
    return [name for (name,) in rows]


def _places(connection: sqlite3.Connection, prompt: str) -> dict[str, list[_Measured]]:
    rows = connection.execute(
        "select m.version, m.run_id, m.side, r.experiment, json_group_array(m.model), "
        "sum(m.answers), sum(m.cost_microusd + m.saved_microusd) "
        "from rollup_model m join run r on r.id = m.run_id "
        "where m.prompt = ? and r.complete = 1 and r.status = 'COMPLETED' "
        "group by m.version, m.run_id, m.side "
        "order by r.partial, r.created_at desc, r.rowid desc, m.side desc",
        (prompt,),
    )
    found: dict[str, list[_Measured]] = {}
    for version, run_id, side, experiment, models, answers, cost in rows:
        names = tuple(sorted(json.loads(models)))
        place = _Measured(run_id, side, experiment, names, answers or 0, cost or 0)
        found.setdefault(version, []).append(place)
    return found


def _result(
    connection: sqlite3.Connection,
    prompt: str,
    version: str,
    places: Sequence[_Measured],
    newest: Result | None,
) -> Result:
    first = _read(connection, prompt, version, places[0])
    if newest is None:
        return first
    same = (newest.run.experiment, newest.models)
    alike = (place for place in places if (place.experiment, place.models) == same)
    for place, _ in zip(alike, range(_MOST_TRIED), strict=False):
        one = _read(connection, prompt, version, place)
        if not _differences(one, newest):
            return one
    return replace(first, differs=_differences(first, newest))


def _read(connection: sqlite3.Connection, prompt: str, version: str, place: _Measured) -> Result:
    rows = connection.execute(
        "select case_id, max(case_hash), avg(composite), max(cluster) from cell "
        "where run_id = ? and side = ? and prompt = ? and version = ? "
        "and status in ('ok', 'malformed') and composite is not null group by case_id",
        (place.run_id, place.side, prompt, version),
    ).fetchall()
    return Result(
        run=find_run(connection, place.run_id),
        side=place.side,
        composite=_interval(rows),
        models=place.models,
        answers=place.answers,
        answer_cost_microusd=place.cost_microusd / place.answers if place.answers else None,
        cases=frozenset((case, content) for case, content, _, _ in rows),
        prompt=prompt,
    )


def _interval(rows: Sequence[tuple[str, str | None, float, str | None]]) -> Interval | None:
    scores = [score for _, _, score, _ in rows]
    if all(cluster is None for _, _, _, cluster in rows):
        return mean_interval(scores)
    groups = [f"case {case}" if cluster is None else f"cluster {cluster}"
              for case, _, _, cluster in rows]  # fmt: skip
    return clustered_interval(scores, groups)


def _differences(one: Result, newest: Result) -> tuple[str, ...]:
    told = {
        "experiment": one.run.experiment != newest.run.experiment,
        "models": one.models != newest.models,
        "grading": yardstick(one.run) != yardstick(newest.run),
        "cases": one.cases != newest.cases,
    }
    return tuple(what for what, differs in told.items() if differs)


def with_measured(
    versions: Iterable[Version], results: dict[str, Result], prompt: str
) -> list[Version]:
    """Add the versions that only results tell of, oldest first, before the others."""
    versions = list(versions)
    known = {version.hash for version in versions}
    alone = [
        Version(version, _told(result, prompt, version), None, date=result.run.created_at)
        for version, result in results.items()
        if version not in known
    ]
    return [*sorted(alone, key=lambda version: version.date or ""), *versions]


def _told(result: Result, prompt: str, version: str) -> str:
    label = result.run.labels.get(prompt) if result.side == "head" else None
    # A label from before a merge may by now be that of another text.
    return label if label and short(version) in label else f"?+{short(version)}"
