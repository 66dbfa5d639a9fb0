"""Search over experiments, prompts, runs and cases by their names."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.results.run_lists import experiments, last_of, last_whole
from edison_ci.results.snapshot import objective_of
from edison_ci.results.versions import measured_prompts
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.results.versions import MeasuredPrompt
    from edison_ci.store.runs import Run

MOST = 10
"""Most results of each kind."""
SEARCHED_CASES = 20_000
"""Cases of an experiment that are searched for a part of a name or tag; beginnings are all."""
_MOST_EXPERIMENTS = 50


class FoundExperiment(NamedTuple):
    """An experiment, with its objective."""

    name: str
    objective: str


class FoundCase(NamedTuple):
    """A case of the newest complete run of an experiment."""

    experiment: str
    run_id: str
    case: str
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SearchResults:
    """What a text was found in, at most `MOST` of each kind."""

    experiments: tuple[FoundExperiment, ...] = ()
    prompts: tuple[MeasuredPrompt, ...] = ()
    cases: tuple[FoundCase, ...] = ()
    runs: tuple[Run, ...] = ()

    @property
    def count(self) -> int:
        """Number of results."""
        return len(self.experiments) + len(self.prompts) + len(self.cases) + len(self.runs)


def search(connection: sqlite3.Connection, wanted: str) -> SearchResults:
    """Return what has a text in its name, objective, tag, id or commit; nothing for no text."""
    text = wanted.strip().casefold()
    if not text:
        return SearchResults()
    names = experiments(connection)
    return SearchResults(
        experiments=tuple(_experiments(connection, names, text)[:MOST]),
        prompts=tuple(
            each for each in measured_prompts(connection) if text in each.prompt.casefold()
        )[:MOST],
        cases=tuple(_cases(connection, names[:_MOST_EXPERIMENTS], wanted.strip())),
        runs=tuple(_runs(connection, text)),
    )


def _experiments(
    connection: sqlite3.Connection, names: list[str], text: str
) -> list[FoundExperiment]:
    known = (
        FoundExperiment(name, objective_of(find_run(connection, last_of(connection, name))))
        for name in names
    )
    return [each for each in known if any(text in part.casefold() for part in each)]


def _runs(connection: sqlite3.Connection, text: str) -> list[Run]:
    rows = connection.execute(
        "select id from run where id like ?1 escape '\\' or commit_id like ?2 escape '\\' "
        "or base_ref like ?1 escape '\\' or labels like ?1 escape '\\' "
        "order by created_at desc, rowid desc limit ?3",
        (f"%{_escaped(text)}%", f"{_escaped(text)}%", MOST),
    )
    return [find_run(connection, run_id) for (run_id,) in rows.fetchall()]


def _cases(connection: sqlite3.Connection, names: list[str], text: str) -> list[FoundCase]:
    found: list[FoundCase] = []
    for name in names:
        found += find_cases(connection, name, text, most=MOST - len(found))
        if len(found) == MOST:
            break
    return found


def find_cases(
    connection: sqlite3.Connection, experiment: str, text: str, *, most: int = MOST
) -> list[FoundCase]:
    """Return cases of an experiment by the beginning of their name, then by a part of it or a tag.

    Beginnings are found by the index, in any number of cases.
    """
    run_id = last_whole(connection, experiment)
    starts = connection.execute(
        "select case_id, tags from run_case where run_id = ? and case_id >= ? and case_id < ? "
        "order by case_id limit ?",
        (run_id, text, f"{text}\U0010ffff", most),
    ).fetchall()
    rows = dict(starts)
    if len(rows) < most:
        parts = connection.execute(
            "select case_id, tags from (select case_id, tags from run_case where run_id = ?1 "
            "order by case_id limit ?2) where case_id like ?3 escape '\\' "
            "or tags like ?3 escape '\\' limit ?4",
            (run_id, SEARCHED_CASES, f"%{_escaped(text)}%", most),
        )
        rows |= dict(parts.fetchall())
    return [
        FoundCase(experiment, run_id, case, tuple(json.loads(tags)))
        for case, tags in list(rows.items())[:most]
    ]


def _escaped(text: str) -> str:
    """Return a text whose signs have no meaning in `like`."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
