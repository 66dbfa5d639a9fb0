"""Cells: one case with one prompt and model, as stored, and the ways to find one by name."""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.numeric import counted
from edison_ci.records import CellStatus, Side
from edison_ci.spelling import did_you_mean
from edison_ci.store.database import marks
from edison_ci.store.judgments import write_judge_scores
from edison_ci.store.ledger import OnTotals

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Sequence

    from edison_ci.store.judgments import JudgeScoreRow, Judgment
    from edison_ci.store.ledger import Totals

COUNTED = frozenset({"check", "rubric", "grader"})
"""Kinds of components that make composite and pass; others are shown only."""
UNSCORED, FORM = "unscored", "form"
"""Kinds of components that say something of an answer, and never fail it: a check of a malformed
answer, and whether it has a form that its prompt mentions."""
CELL_STATUSES = {status.value: status for status in CellStatus}
"""Statuses by the text that is stored: a dict is ten times as fast as `CellStatus(text)`, and cells
are many."""
SIDES = {side.value: side for side in Side}
_FALLBACK = "model, simulated, request_hash, answer_no, status, composite, passed, reason"
_MOST_NAMES = 10_000
_LISTED = 10


@dataclass(frozen=True, slots=True)
class Component:
    """Score of one check, criterion or grader in a cell's grade."""

    name: str
    kind: str
    score: float | None
    passed: bool | None
    weight: float
    status: CellStatus
    """OK, SKIPPED or ERROR."""
    reason: str = ""


class CaseFacts(NamedTuple):
    """Properties of a case by which results are sliced."""

    tags: str
    """A list, as JSON."""
    difficulty: int | None
    kind: str
    words: int


@dataclass(frozen=True, slots=True)
class FallbackAnswer:
    """The answer of a fallback model in place of a cell's own, and its grade, which counts not."""

    model: str
    simulated: bool
    request_hash: str
    answer_no: int
    status: CellStatus
    composite: float | None = None
    passed: bool | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CellRow:
    """A cell that is finished, one way or another."""

    id: str
    """24 hex digits, of which people see and write the first 12."""
    run_id: str
    side: Side
    prompt: str
    version: str
    model: str
    case_id: str
    repeat: int
    request_hash: str
    answer_no: int | None
    status: CellStatus
    composite: float | None = None
    passed: bool | None = None
    error: str | None = None
    reason: str | None = None
    case_hash: str | None = None
    cluster: str | None = None
    facts: CaseFacts | None = None
    components: tuple[Component, ...] = ()
    judgments: tuple[Judgment, ...] = ()
    judge_scores: tuple[JudgeScoreRow, ...] = ()
    fallback: FallbackAnswer | None = None
    """To be stored beside a cell in error; not read back with it: see `fallback_of`."""


def cell_id(run_id: str, *cell: str | int) -> str:
    """Return the id of a cell in a run, given its side, prompt, model, case and repeat."""
    parts = (run_id, *map(str, cell))
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]


_CELL = (
    "id, run_id, side, prompt, version, model, case_id, repeat, request_hash, answer_no, status, "
    "composite, passed, error, reason, case_hash, cluster"
)
_cell_fields = attrgetter(*_CELL.split(", "))


def _cell_values(cell: CellRow) -> list[str | int | float | None]:
    values = [*_cell_fields(cell)]
    values[2], values[10] = str(cell.side), str(cell.status)  # an enum takes ten times as long
    return values


def finish_cells(cells: Sequence[CellRow]) -> OnTotals[None]:
    """Return the operation that stores finished cells and components over earlier failures."""

    def operation(connection: sqlite3.Connection, _: Totals) -> None:
        if not cells:
            return
        # The same graders grade a cell again, so every component of an earlier try is replaced.
        # To replace takes SQLite half as long again, even where there is nothing to replace.
        components = [
            (cell.id, c.name, c.kind, c.score, c.passed, c.weight, str(c.status), c.reason)
            for cell in cells
            for c in cell.components
        ]
        again = _any_stored(connection, cells) or _any_twice(row[:3] for row in components)
        insert = "insert or replace" if again else "insert"
        connection.executemany(
            f"{insert} into cell ({_CELL}) values ({marks(_CELL.split(','))})",
            map(_cell_values, cells),
        )
        connection.executemany(
            f"{insert} into component values (?, ?, ?, ?, ?, ?, ?, ?)", components
        )
        if judgments := [
            (cell.id, j.model, j.request_hash, j.answer_no)
            for cell in cells
            for j in cell.judgments
        ]:
            connection.executemany("insert or ignore into judgment values (?, ?, ?, ?)", judgments)
        _write_fallbacks(connection, cells)
        # A case has a cell for each prompt, model and repeat.
        cases = {
            (cell.run_id, cell.case_id): cell.facts for cell in cells if cell.facts is not None
        }
        connection.executemany(
            "insert or ignore into run_case values (?, ?, ?, ?, ?, ?)",
            [(*case, *facts) for case, facts in cases.items()],
        )
        write_judge_scores(
            connection, ((cell.id, row) for cell in cells for row in cell.judge_scores)
        )

    return OnTotals(operation)


def _any_stored(connection: sqlite3.Connection, cells: Sequence[CellRow]) -> bool:
    """Whether one of the cells is stored, or here more than once."""
    ids = [cell.id for cell in cells]
    stored = connection.execute(
        "select 1 from cell where id in (select value from json_each(?)) limit 1",
        (json.dumps(ids),),
    ).fetchone()
    return stored is not None or _any_twice(ids)


def _any_twice(keys: Iterable[object]) -> bool:
    keys = list(keys)
    return len(set(keys)) < len(keys)


def _write_fallbacks(connection: sqlite3.Connection, cells: Sequence[CellRow]) -> None:
    """Store the answers of fallback models; a cell that is asked again loses its earlier one."""
    if connection.execute("select 1 from fallback_answer limit 1").fetchone() is not None:
        connection.executemany(
            "delete from fallback_answer where cell_id = ?", [(cell.id,) for cell in cells]
        )
    if fallbacks := [(cell.id, cell.fallback) for cell in cells if cell.fallback is not None]:
        columns = f"cell_id, {_FALLBACK}"
        connection.executemany(
            f"insert into fallback_answer ({columns}) values (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [(cell, *astuple(fallback)) for cell, fallback in fallbacks],
        )


def find_cell(connection: sqlite3.Connection, run_id: str, name: str) -> CellRow:
    """Return a cell of a run by id, as CASE@MODEL#REPEAT (repeat 0 when left out) or as CASE.

    The head's, if it has one. Raises UsageError if several prompts or models have such a cell.
    """
    # Without the plus, SQLite would go through every cell of the run to find one by its id.
    where, values = "+run_id = ? and id >= ? and id < ?", _prefix_bounds(name)
    if "@" in name:
        case_id, _, rest = name.rpartition("@")
        model, _, repeat = rest.partition("#")
        where = "run_id = ? and case_id = ? and model = ? and repeat = ?"
        values = (case_id, model, repeat or "0")
    rows = _cells_where(connection, where, (run_id, *values))
    if not rows and "@" not in name:
        where = "run_id = ? and case_id = ? and repeat = 0"
        rows = _cells_where(connection, where, (run_id, name))
    if not rows:
        raise _no_cell(connection, run_id, name)
    row = rows[0]
    same_side = [other for other in rows if other[2] == row[2]]
    models = list(dict.fromkeys(other[5] for other in same_side))
    if len(models) > 1:
        raise UsageError(
            f"{counted(len(models), 'model')} answered {name}; which one?",
            hint=f"name it: {', '.join(f'{name}@{model}' for model in models[:_LISTED])}",
        )
    if len(same_side) > 1:
        raise _ambiguous_cell(name, [(other[3], other[0]) for other in same_side])
    return _with_components(connection, [row])[row[0]]


def cells_by_id(connection: sqlite3.Connection, ids: Collection[str]) -> dict[str, CellRow]:
    """Return cells with their components, by id."""
    where = "id in (select value from json_each(?))"
    return _with_components(connection, _cells_where(connection, where, (json.dumps([*ids]),)))


def _with_components(
    connection: sqlite3.Connection, rows: Sequence[Sequence[Any]]
) -> dict[str, CellRow]:
    components: dict[str, list[Component]] = {row[0]: [] for row in rows}
    component_rows = connection.execute(
        "select cell_id, name, kind, score, passed, weight, status, reason from component "
        "where cell_id in (select value from json_each(?))",
        (json.dumps([*components]),),
    )
    for cell, *values in component_rows:
        components[cell].append(_component(values))
    return {row[0]: _cell(row, tuple(components[row[0]])) for row in rows}


def _cell(row: Sequence[Any], components: tuple[Component, ...] = ()) -> CellRow:
    values = [*row]
    values[2], values[10], values[12] = SIDES[row[2]], CELL_STATUSES[row[10]], _flag(row[12])
    return replace(CellRow(*values), components=components)


def _cells_where(
    connection: sqlite3.Connection, where: str, values: Sequence[str]
) -> list[tuple[Any, ...]]:
    return connection.execute(
        f"select {_CELL} from cell where {where} order by side = 'head' desc, prompt",
        values,
    ).fetchall()


def fallback_of(connection: sqlite3.Connection, cell_id: str) -> FallbackAnswer | None:
    """Return the answer of a fallback model in place of a cell's own; None if there is none."""
    row = connection.execute(
        f"select {_FALLBACK} from fallback_answer where cell_id = ?", (cell_id,)
    ).fetchone()
    if row is None:
        return None
    values = [*row]
    values[1], values[4], values[6] = bool(row[1]), CELL_STATUSES[row[4]], _flag(row[6])
    return FallbackAnswer(*values)


def answered_cells(
    connection: sqlite3.Connection, run_id: str, *, cases: Sequence[str] = (), failed: bool = False
) -> list[CellRow]:
    """Return the cells of a run's head that have an answer, without components, worst first.

    With `failed`, only those that did not pass.
    """
    where = "run_id = ? and side = 'head' and answer_no is not null"
    where += " and passed = 0" if failed else ""
    where += f" and case_id in ({marks(cases)})" if cases else ""
    cells = map(_cell, _cells_where(connection, where, (run_id, *cases)))
    return sorted(cells, key=lambda cell: (cell.composite is not None, cell.composite or 0.0))


def run_of_cell(connection: sqlite3.Connection, cell_id: str) -> str | None:
    """Return the run that a cell belongs to, by the beginning of its id."""
    row = connection.execute(
        "select run_id from cell where id >= ? and id < ? limit 1", _prefix_bounds(cell_id)
    ).fetchone()
    return None if row is None else str(row[0])


def _prefix_bounds(prefix: str) -> tuple[str, ...]:
    """Return the bounds of ids that start with a prefix; `g` sorts after every hex digit."""
    return (prefix, f"{prefix}g")


def _component(row: Sequence[Any]) -> Component:
    name, kind, score, passed, weight, status, reason = row
    return Component(name, kind, score, _flag(passed), weight, CELL_STATUSES[status], reason)


def _flag(value: int | None) -> bool | None:
    return None if value is None else bool(value)


def _no_cell(connection: sqlite3.Connection, run_id: str, name: str) -> UsageError:
    """Return the error that a run has no such cell, naming the part of the name that is wrong."""
    message = f"run {run_id} has no cell {name!r}"
    case, sign, rest = name.rpartition("@")
    if not sign:
        near = did_you_mean(name, _names(connection, run_id, "case_id"), label="cases")
        asked = f"write a case, or CASE@MODEL#REPEAT{_example(connection, run_id)}"
        return UsageError(message, hint=near or asked)
    model, _, _ = rest.partition("#")
    cases = _names(connection, run_id, "case_id")
    if case not in cases:
        hint = did_you_mean(case, cases, label="cases") or f"the first are: {_first(cases)}"
        return UsageError(f"run {run_id} has no case {case!r}", hint=hint)
    models = _names(connection, run_id, "model")
    if model not in models:
        hint = did_you_mean(model, models, label="models")
        return UsageError(f"run {run_id} has no model {model!r}", hint=hint)
    repeats = connection.execute(
        "select distinct repeat from cell where run_id = ? and case_id = ? and model = ? order "
        "by 1",
        (run_id, case, model),
    )
    listed = ", ".join(f"#{repeat}" for (repeat,) in repeats)
    return UsageError(message, hint=f"repeats: {listed}" if listed else "it was not asked")


def _ambiguous_cell(name: str, candidates: Sequence[tuple[str, str]]) -> UsageError:
    """Return the error that several prompts have such a cell; `found` are prompts and ids."""
    listed = ", ".join(f"{cell[:12]} ({prompt})" for prompt, cell in candidates[:_LISTED])
    more = ", ..." if len(candidates) > _LISTED else ""
    return UsageError(
        f"{name} is a cell of {len(candidates)} prompts; which one?",
        hint=f"name it: {listed}{more}",
    )


def _example(connection: sqlite3.Connection, run_id: str) -> str:
    """Return the name of a cell as an example: one that failed, if there is one."""
    row = connection.execute(
        "select case_id || '@' || model from cell where run_id = ? and side = 'head' "
        "order by coalesce(passed, 1), coalesce(composite, 1), case_id limit 1",
        (run_id,),
    ).fetchone()
    return "" if row is None else f", such as {row[0]}"


def _names(connection: sqlite3.Connection, run_id: str, column: str) -> list[str]:
    rows = connection.execute(
        f"select distinct {column} from cell where run_id = ? limit {_MOST_NAMES}", (run_id,)
    )
    return [name for (name,) in rows]


def _first(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)[:3]) or "none"


def cell_statuses(
    connection: sqlite3.Connection, run_id: str, *, side: str | None = None
) -> dict[str, int]:
    """Return how many cells of a run, or of one side of it, have each status."""
    where, values = ("", (run_id,)) if side is None else (" and side = ?", (run_id, side))
    rows = connection.execute(
        f"select status, count(*) from cell where run_id = ?{where} group by status", values
    )
    return dict(rows.fetchall())


_DONE = (
    "status <> 'error' and not exists "
    "(select 1 from component where cell_id = cell.id and component.status = 'error')"
)


def done_cells(
    connection: sqlite3.Connection, run_id: str
) -> list[tuple[CellStatus, Side, str, int]]:
    """Return status, side, model and number of cells that need not be asked or graded again."""
    rows = connection.execute(
        f"select status, side, model, count(*) from cell where run_id = ? and {_DONE} "
        "group by status, side, model",
        (run_id,),
    )
    return [(CELL_STATUSES[status], SIDES[side], *rest) for status, side, *rest in rows]


def is_done(connection: sqlite3.Connection, cell_id: str) -> bool:
    """Whether a cell is finished, with nothing in it that could not be graded."""
    row = connection.execute(f"select 1 from cell where id = ? and {_DONE}", (cell_id,)).fetchone()
    return row is not None


def count_cells(connection: sqlite3.Connection, run_id: str) -> int:
    """Return how many cells of a run are stored."""
    row = connection.execute("select count(*) from cell where run_id = ?", (run_id,)).fetchone()
    return int(row[0])


def case_ids(connection: sqlite3.Connection, run_id: str) -> list[str]:
    """Return the cases that a run has cells of."""
    rows = connection.execute("select distinct case_id from cell where run_id = ?", (run_id,))
    return [case for (case,) in rows]


def clusters_of(connection: sqlite3.Connection, *run_ids: str) -> dict[str, str]:
    """Return the cluster of each case that belongs to one.

    Of several runs the first that has a case decides, whether the case has a cluster there or not:
    it is the base, and its prompt says which inputs are the same.
    """
    clusters: dict[str, str] = {}
    for run_id in reversed(run_ids):
        rows = connection.execute(
            "select distinct case_id, cluster from cell where run_id = ?"
            + (" and cluster is not null" if run_id is run_ids[-1] else ""),
            (run_id,),
        )
        for case, cluster in rows:
            clusters.pop(case, None)
            if cluster is not None:
                clusters[case] = cluster
    return clusters


class CellState(NamedTuple):
    """Status and grade of a cell, and the answer that it rests on."""

    request_hash: str
    answer_no: int | None
    status: CellStatus
    error: str | None
    reason: str | None
    composite: float | None
    passed: int | None


_STATE = "request_hash, answer_no, status, error, reason, composite, passed"


def cell_state(connection: sqlite3.Connection, cell_id: str) -> CellState | None:
    """Return the state of a cell; None if it is not there."""
    row = connection.execute(f"select {_STATE} from cell where id = ?", (cell_id,)).fetchone()
    return None if row is None else _state(row)


def cell_states(connection: sqlite3.Connection, run_id: str) -> dict[str, CellState]:
    """Return the state of every cell of a run, by id."""
    rows = connection.execute(
        f"select {_STATE}, id from cell where run_id = ? order by id", (run_id,)
    )
    return {row[-1]: _state(row[:-1]) for row in rows}


def _state(row: tuple[Any, ...]) -> CellState:
    request_hash, answer_no, status, *rest = row
    return CellState(request_hash, answer_no, CELL_STATUSES[status], *rest)


def count_repeats(connection: sqlite3.Connection, run_id: str) -> int:
    """Return how many repeats of each case a run has."""
    row = connection.execute(
        "select coalesce(max(repeat) + 1, 1) from cell where run_id = ?", (run_id,)
    ).fetchone()
    return int(row[0])


def component_names(connection: sqlite3.Connection, run_id: str) -> list[tuple[str, str]]:
    """Return kind and name of every criterion, check and grader of a run."""
    return connection.execute(
        "select distinct p.kind, p.name from cell c join component p on p.cell_id = c.id "
        "where c.run_id = ? and p.kind in ('criterion', 'check', 'grader') order by 1 desc, 2",
        (run_id,),
    ).fetchall()
