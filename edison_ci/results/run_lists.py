"""Lists of stored experiments and runs, a search by name, and runs that make no progress."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.results.snapshot import (
    MEASURED,
    MOST_RUNS,
    has_pairwise_judge,
    newest_ids,
    objective_of,
    runs_where,
)
from edison_ci.store.cells import find_cell
from edison_ci.store.runs import NO_OUTPUTS, NO_TRIAL, find_run
from edison_ci.store.steering import newest_dispatches as newest_dispatches
from edison_ci.store.suggestions import open_suggestions as open_suggestions

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.store.runs import Run


class MeasuredPrompt(NamedTuple):
    """A prompt that was ever run."""

    prompt: str
    versions: int
    last: str
    """When it was run last."""
    experiment: str


def measured_prompts(connection: sqlite3.Connection) -> list[MeasuredPrompt]:
    """Return every prompt that was run, trials of suggestions aside, the last one first."""
    rows = connection.execute(
        "select m.prompt, count(distinct m.version), max(r.created_at), max(r.experiment) "
        f"from rollup_model m join run r on r.id = m.run_id where {NO_TRIAL} "
        f"and {NO_OUTPUTS} group by m.prompt order by 3 desc"
    )
    return [MeasuredPrompt(*row) for row in rows]


def experiments(connection: sqlite3.Connection) -> list[str]:
    """Return every experiment that was ever run, by name."""
    rows = connection.execute("select distinct experiment from run order by 1")
    return [name for (name,) in rows]


class RunPage(NamedTuple):
    """The runs of a page."""

    experiment: str = ""
    """Empty for all."""
    status: str = ""
    after: str = ""
    """The run before the page; empty for the newest ones."""
    most: int = 50


def runs_page(connection: sqlite3.Connection, wanted: RunPage) -> list[Run]:
    """Return runs, the newest first, without trials; raises UsageError if `after` is none."""
    where, values = [NO_TRIAL], list[str]()
    for column, value in (("experiment", wanted.experiment), ("status", wanted.status)):
        if value:
            where.append(f"{column} = ?")
            values.append(value)
    if wanted.after:
        before = find_run(connection, wanted.after)
        where.append("(created_at, rowid) < (select created_at, rowid from run where id = ?)")
        values.append(before.id)
    return runs_where(connection, " and ".join(where), tuple(values), most=wanted.most)


class CellPage(NamedTuple):
    """The cells of a page."""

    run_id: str
    status: str = ""
    """Empty for all."""
    after: str = ""
    """The cell before the page; empty for the first ones."""
    most: int = 50


class ListedCell(NamedTuple):
    """A cell with its answer, in numbers."""

    cell: str
    side: str
    prompt: str
    version: str
    model: str
    case: str
    repeat: int
    status: str
    composite: float | None
    passed: int | None
    reason: str | None
    error: str | None
    cost_microusd: int | None
    latency_ms: int | None
    tokens_in: int | None
    tokens_out: int | None

    def as_json(self) -> dict[str, str | int | float | None]:
        """Return it for a document."""
        return {**self._asdict(), "passed": None if self.passed is None else bool(self.passed)}


def cells_page(connection: sqlite3.Connection, wanted: CellPage) -> list[ListedCell]:
    """Return cells of a run by the name of their case; raises UsageError if `after` is none."""
    where, values = ["c.run_id = ?"], [wanted.run_id]
    if wanted.status:
        where.append("c.status = ?")
        values.append(wanted.status)
    if wanted.after:
        before = find_cell(connection, wanted.run_id, wanted.after)
        where.append("(c.case_id, c.id) > (?, ?)")
        values += [before.case_id, before.id]
    rows = connection.execute(
        "select c.id, c.side, c.prompt, c.version, c.model, c.case_id, c.repeat, c.status, "
        "c.composite, c.passed, c.reason, c.error, a.cost_microusd, a.latency_ms, a.tokens_in, "
        "a.tokens_out from cell c left join answer a using (request_hash, answer_no) "
        f"where {' and '.join(where)} order by c.case_id, c.id limit ?",
        (*values, wanted.most),
    )
    return [ListedCell(*row) for row in rows]


def last_of(connection: sqlite3.Connection, experiment: str) -> str:
    """Return the newest run of an experiment; a trial of a suggestion only if there is no other."""
    return newest_ids(connection, "experiment = ?", (experiment,), first=f"{NO_TRIAL} desc,")[0]


def ids_of(
    connection: sqlite3.Connection, experiment: str, *, most: int, offset: int = 0
) -> list[str]:
    """Return runs of an experiment, newest first, trials of suggestions too."""
    rows = connection.execute(
        "select id from run where experiment = ? order by created_at desc, rowid desc "
        "limit ? offset ?",
        (experiment, most, offset),
    )
    return [run_id for (run_id,) in rows]


def cells_of(connection: sqlite3.Connection, experiment: str) -> int:
    """Return how many cells the complete runs of an experiment have that are set side by side."""
    row = connection.execute(
        "select coalesce(sum(cells_planned), 0) from (select cells_planned from run where "
        f"experiment = ? and complete = 1 and {NO_TRIAL} and {NO_OUTPUTS} "
        "order by created_at desc limit ?)",
        (experiment, MOST_RUNS),
    )
    return int(row.fetchone()[0])


def ranked_cells(connection: sqlite3.Connection, experiment: str, newest: Run) -> int:
    """Return the number of cells that a leaderboard reads: of each variant, those of one run.

    With a pairwise judge, the cells of every run are read.
    """
    if has_pairwise_judge(newest):
        return cells_of(connection, experiment)
    row = connection.execute(
        "select coalesce(sum(most), 0) from (select max(m.cells) as most from rollup_model m "
        "where m.run_id in (select id from run where experiment = ? and complete = 1 "
        f"and {NO_TRIAL} and {NO_OUTPUTS} order by created_at desc limit ?) "
        "group by m.prompt, m.version, m.model)",
        (experiment, MOST_RUNS),
    )
    return int(row.fetchone()[0])


def count_of(connection: sqlite3.Connection, experiment: str) -> int:
    """Return how many runs an experiment has."""
    row = connection.execute("select count(*) from run where experiment = ?", (experiment,))
    return int(row.fetchone()[0])


def cases_of(connection: sqlite3.Connection, run_id: str) -> int:
    """Return how many cases a run has; of a running one, those with a cell so far."""
    row = connection.execute(
        "select cases from rollup_marked where run_id = ? and side = 'head' and kind = 'all'",
        (run_id,),
    ).fetchone()
    if row is None:
        row = connection.execute("select count(*) from run_case where run_id = ?", (run_id,))
        row = row.fetchone()
    return int(row[0])


def tags_of(connection: sqlite3.Connection, run_id: str) -> list[tuple[str, int]]:
    """Return the tags of the cases of a run with their numbers, the most frequent first."""
    rows = connection.execute(
        "select value, cases from rollup_marked where run_id = ? and side = 'head' "
        "and kind = 'tag' order by cases desc, value",
        (run_id,),
    )
    return rows.fetchall()


def runs_by_status(connection: sqlite3.Connection) -> list[tuple[str, str, int]]:
    """Return experiment, status and number of the runs that are stored."""
    rows = connection.execute("select experiment, status, count(*) from run group by 1, 2")
    return rows.fetchall()


def last_run_at(connection: sqlite3.Connection) -> str | None:
    """Return when the newest run of all was started."""
    row = connection.execute("select max(created_at) from run").fetchone()
    return None if row[0] is None else str(row[0])


def newest_measured(connection: sqlite3.Connection) -> str | None:
    """Return the experiment of the newest complete run, trials of suggestions aside."""
    row = connection.execute(
        f"select experiment from run where complete = 1 and status = 'COMPLETED' and {NO_TRIAL} "
        f"and {NO_OUTPUTS} order by created_at desc, rowid desc limit 1"
    ).fetchone()
    return None if row is None else str(row[0])


def last_whole(connection: sqlite3.Connection, experiment: str) -> str:
    """Return the newest whole run of an experiment that is complete, else its newest run."""
    run_ids: list[str] = []
    measured = f"experiment = ? and {MEASURED} and {NO_OUTPUTS}"
    if newest_ids(connection, measured, (experiment,)):
        order = f"{NO_TRIAL} desc, partial,"
        where = "experiment = ? and complete = 1"
        run_ids = newest_ids(connection, where, (experiment,), first=order)
    return run_ids[0] if run_ids else last_of(connection, experiment)


def recent_ids(connection: sqlite3.Connection, most: int) -> list[str]:
    """Return the newest runs of all experiments, trials of suggestions too."""
    return newest_ids(connection, "1", most=most)


def last_complete(connection: sqlite3.Connection, experiment: str) -> str | None:
    """Return the newest complete run of an experiment, trials of suggestions aside."""
    where = f"experiment = ? and complete = 1 and {NO_TRIAL}"
    return next(iter(newest_ids(connection, where, (experiment,))), None)


def recent_scores(connection: sqlite3.Connection, experiment: str, most: int) -> list[float | None]:
    """Return the scores of the last whole, complete runs, oldest first."""
    rows = connection.execute(
        "select s.composite from run r join rollup_run s on s.run_id = r.id and s.side = 'head' "
        f"where r.experiment = ? and r.complete = 1 and r.partial = 0 and {NO_TRIAL} "
        f"and {NO_OUTPUTS} order by r.created_at desc, r.rowid desc limit ?",
        (experiment, most),
    )
    return [score for (score,) in rows.fetchall()[::-1]]


MOST_FOUND = 10
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
    """What a text was found in, at most `MOST_FOUND` of each kind."""

    experiments: tuple[FoundExperiment, ...] = ()
    prompts: tuple[MeasuredPrompt, ...] = ()
    cases: tuple[FoundCase, ...] = ()
    runs: tuple[Run, ...] = ()

    @property
    def count(self) -> int:
        """Number of results."""
        return len(self.experiments) + len(self.prompts) + len(self.cases) + len(self.runs)


def search(connection: sqlite3.Connection, query: str) -> SearchResults:
    """Return what has a text in its name, objective, tag, id or commit; nothing for no text."""
    text = query.strip().casefold()
    if not text:
        return SearchResults()
    names = experiments(connection)
    return SearchResults(
        experiments=tuple(_matching_experiments(connection, names, text)[:MOST_FOUND]),
        prompts=tuple(
            prompt for prompt in measured_prompts(connection) if text in prompt.prompt.casefold()
        )[:MOST_FOUND],
        cases=tuple(_matching_cases(connection, names[:_MOST_EXPERIMENTS], query.strip())),
        runs=tuple(_matching_runs(connection, text)),
    )


def _matching_experiments(
    connection: sqlite3.Connection, names: list[str], text: str
) -> list[FoundExperiment]:
    experiments_with_objective = (
        FoundExperiment(name, objective_of(find_run(connection, last_of(connection, name))))
        for name in names
    )
    return [
        experiment
        for experiment in experiments_with_objective
        if any(text in part.casefold() for part in experiment)
    ]


def _matching_runs(connection: sqlite3.Connection, text: str) -> list[Run]:
    pattern = f"%{_escaped(text)}%"
    where = " or ".join(
        f"{column} like ? escape '\\'" for column in ("id", "base_ref", "labels", "commit_id")
    )
    values = (pattern, pattern, pattern, pattern[1:])
    return runs_where(connection, where, values, most=MOST_FOUND)


def _matching_cases(connection: sqlite3.Connection, names: list[str], text: str) -> list[FoundCase]:
    cases: list[FoundCase] = []
    for name in names:
        cases += find_cases(connection, name, text, most=MOST_FOUND - len(cases))
        if len(cases) == MOST_FOUND:
            break
    return cases


def find_cases(
    connection: sqlite3.Connection, experiment: str, text: str, *, most: int = MOST_FOUND
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
