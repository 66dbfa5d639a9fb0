"""Grades of people.

A grade belongs to an answer, so it counts in every run that points to that answer. Grades are only
ever added: a person's last one counts, and over people their mean (the view `human_grades`).
"""

from __future__ import annotations

import json
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.records import canonical_json
from edison_ci.store.audit import add_audit
from edison_ci.store.database import changing

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping
    from pathlib import Path

    from edison_ci.store.audit import AuditEntry
    from edison_ci.store.runs import CellRow, Run

Key = tuple[str, str, int]
"""Case, address and take: an answer to a case."""


@dataclass(frozen=True, slots=True)
class ManualGrade:
    """What one person said of one answer."""

    cell_id: str
    experiment: str
    case_id: str
    address: str
    take: int
    actor: str
    graded_at: str
    scale: str = ""
    """thumbs, 1-5 or 0-1; '' for a flag alone."""
    score: float | None = None
    """0-1; None for a flag alone."""
    passed: bool | None = None
    criteria: Mapping[str, float] = field(default_factory=dict)
    """Scores by criterion, 0-1."""
    note: str = ""
    flagged: bool = False
    seed: int = 0
    """Of the random order of cases that was gone through."""

    @property
    def key(self) -> Key:
        """The answer it is about."""
        return self.case_id, self.address, self.take


_COLUMNS = (
    "cell_id, experiment, case_id, address, take, actor, graded_at, scale, score, passed, "
    "criteria, note, flagged, seed"
)
_LAST = (
    "id in (select max(id) from manual_grade where experiment = ? "
    "group by case_id, address, take, actor)"
)


def add_grade(connection: sqlite3.Connection, grade: ManualGrade) -> int:
    """Add a grade in the transaction at hand; return its number."""
    cursor = connection.execute(
        f"insert into manual_grade ({_COLUMNS}) values "
        "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) returning id",
        (
            grade.cell_id,
            grade.experiment,
            grade.case_id,
            grade.address,
            grade.take,
            grade.actor,
            grade.graded_at,
            grade.scale,
            grade.score,
            grade.passed,
            canonical_json(dict(grade.criteria)),
            _storable(grade.note),
            grade.flagged,
            grade.seed,
        ),
    )
    return int(cursor.fetchone()[0])


def write_grade(path: Path, grade: ManualGrade, entry: AuditEntry) -> None:
    """Add a grade to a results file, in one transaction with its row of the audit."""
    with changing(path) as connection:
        add_grade(connection, grade)
        add_audit(connection, entry)


def last_grades(
    connection: sqlite3.Connection, experiment: str, *, actor: str | None = None
) -> list[ManualGrade]:
    """Return the last grade of each person about each answer of an experiment."""
    rows = connection.execute(
        f"select {_COLUMNS} from manual_grade where experiment = ? and {_LAST} "
        "and (? is null or actor = ?) order by id",
        (experiment, experiment, actor, actor),
    )
    return [_grade(*row) for row in rows]


def grades_of(connection: sqlite3.Connection, experiment: str, cell: CellRow) -> list[ManualGrade]:
    """Return the last grade of each person about the answer of a cell."""
    rows = connection.execute(
        f"select {_COLUMNS} from manual_grade where id in (select max(id) from manual_grade "
        "where experiment = ? and case_id = ? and address = ? and take = ? group by actor) "
        "order by id",
        (experiment, cell.case_id, cell.address, cell.take),
    )
    return [_grade(*row) for row in rows]


def held_to_people(connection: sqlite3.Connection, run: Run) -> bool:
    """Whether somebody graded an answer of the experiment, or its judges were held to labels."""
    row = connection.execute(
        "select exists (select 1 from manual_grade where experiment = ?) "
        "or exists (select 1 from licence where run_id = ? and n > 0)",
        (run.experiment, run.id),
    ).fetchone()
    return bool(row[0])


class Flagged(NamedTuple):
    """A cell whose answer somebody wants a second look at."""

    side: str
    case_id: str
    cell_id: str


def flagged_cells(connection: sqlite3.Connection, run_id: str) -> list[Flagged]:
    """Return the cells of a run whose answers somebody flagged, and nobody took that back."""
    rows = connection.execute(
        "select distinct c.side, c.case_id, c.id from run r "
        "cross join manual_grade g on g.experiment = r.experiment and g.flagged = 1 "
        "cross join cell c on c.run_id = r.id and c.case_id = g.case_id "
        "and c.address = g.address and c.take = g.take where r.id = ? and not exists "
        "(select 1 from manual_grade n where n.experiment = g.experiment and n.take = g.take "
        "and n.case_id = g.case_id and n.address = g.address and n.actor = g.actor "
        "and n.id > g.id)",
        (run_id,),
    )
    return [Flagged(*row) for row in rows]


def _grade(*values: Any) -> ManualGrade:
    named = dict(zip(_COLUMNS.split(", "), values, strict=True))
    named["passed"] = None if named["passed"] is None else bool(named["passed"])
    named["criteria"], named["flagged"] = json.loads(named["criteria"]), bool(named["flagged"])
    return ManualGrade(**named)


def _storable(text: str) -> str:
    """Return a text that SQLite takes: a terminal may send bytes that are no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
