"""Human grades of answers.

A grade belongs to an answer, so it counts in every run that points to that answer. Grades are only
ever added: a person's last one counts, and over people their mean (the view `human_grades`). Grades
that came with a run from elsewhere count only with a trusted signature (the view `counted_grade`).
"""

from __future__ import annotations

import json
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.records import canonical_json
from edison_ci.store import audit
from edison_ci.store.database import marks, open_for_change

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from edison_ci.store.audit import AuditEntry
    from edison_ci.store.cells import CellRow
    from edison_ci.store.runs import Run

Key = tuple[str, str, int]
"""Case, request hash and number: an answer to a case."""


@dataclass(frozen=True, slots=True)
class ManualGrade:
    """Grade of one person for one answer."""

    cell_id: str
    experiment: str
    case_id: str
    request_hash: str
    answer_no: int
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
    """Of the random order in which cases were graded."""
    origin: str | None = None
    """The run that it came with from elsewhere; None if it was graded here."""

    @property
    def key(self) -> Key:
        """The answer it is about."""
        return self.case_id, self.request_hash, self.answer_no


_COLUMNS = (
    "cell_id, experiment, case_id, request_hash, answer_no, actor, graded_at, scale, score, "
    "passed, criteria, note, flagged, seed, origin"
)
_LAST = (
    "id in (select max(id) from counted_grade where experiment = ? "
    "group by case_id, request_hash, answer_no, actor)"
)


def add_grade(connection: sqlite3.Connection, grade: ManualGrade) -> int:
    """Add a grade in the current transaction; return its number."""
    values = {name: getattr(grade, name) for name in _COLUMNS.split(", ")}
    values |= {"criteria": canonical_json(dict(grade.criteria)), "note": _storable(grade.note)}
    cursor = connection.execute(
        f"insert into manual_grade ({_COLUMNS}) values ({marks(values)}) returning id",
        (*values.values(),),
    )
    return int(cursor.fetchone()[0])


def write_grade(path: Path, grade: ManualGrade, entry: AuditEntry) -> None:
    """Add a grade to a results file, in one transaction with its row of the audit."""
    with open_for_change(path) as connection:
        add_grade(connection, grade)
        audit.add_audit(connection, entry)


def last_grades(
    connection: sqlite3.Connection, experiment: str, *, actor: str | None = None
) -> list[ManualGrade]:
    """Return the last grade of each person about each answer of an experiment."""
    rows = connection.execute(
        f"select {_COLUMNS} from counted_grade where experiment = ? and {_LAST} "
        "and (? is null or actor = ?) order by id",
        (experiment, experiment, actor, actor),
    )
    return [_grade(*row) for row in rows]


def grades_of(connection: sqlite3.Connection, experiment: str, cell: CellRow) -> list[ManualGrade]:
    """Return the last grade of each person about the answer of a cell, those from elsewhere too."""
    rows = connection.execute(
        f"select {_COLUMNS} from manual_grade where id in (select max(id) from manual_grade "
        "where experiment = ? and case_id = ? and request_hash = ? and answer_no = ? group by "
        "actor, origin) "
        "order by id",
        (experiment, cell.case_id, cell.request_hash, cell.answer_no),
    )
    return [_grade(*row) for row in rows]


def own_grades(
    connection: sqlite3.Connection, actor: str, cells: Collection[str]
) -> dict[str, ManualGrade]:
    """Return a person's last grades of the answers of some cells, by cell."""
    columns = ", ".join(f"g.{name.strip()}" for name in _COLUMNS.split(","))
    rows = connection.execute(
        f"select c.id, {columns} from cell c join run r on r.id = c.run_id join counted_grade g "
        "on g.experiment = r.experiment and g.case_id = c.case_id and g.actor = ? "
        "and g.request_hash = c.request_hash and g.answer_no = c.answer_no "
        "where c.id in (select value from json_each(?)) order by g.id",
        (actor, json.dumps([*cells])),
    )
    return {cell: _grade(*row) for cell, *row in rows}


def has_human_grades(connection: sqlite3.Connection, run: Run) -> bool:
    """Whether there is a human grade in the experiment, or its judges were compared with labels."""
    row = connection.execute(
        "select exists (select 1 from counted_grade where experiment = ?) "
        "or exists (select 1 from judge_approval where run_id = ? and n > 0)",
        (run.experiment, run.id),
    ).fetchone()
    return bool(row[0])


class FlaggedCell(NamedTuple):
    """A cell whose answer a person flagged for review."""

    side: str
    case_id: str
    cell_id: str


def flagged_cells(connection: sqlite3.Connection, run_id: str) -> list[FlaggedCell]:
    """Return the cells of a run with a flag that was not withdrawn."""
    rows = connection.execute(
        "select distinct c.side, c.case_id, c.id from run r "
        "cross join counted_grade g on g.experiment = r.experiment and g.flagged = 1 "
        "cross join cell c on c.run_id = r.id and c.case_id = g.case_id "
        "and c.request_hash = g.request_hash and c.answer_no = g.answer_no where r.id = ? and "
        "not exists "
        "(select 1 from counted_grade n where n.experiment = g.experiment and n.answer_no = "
        "g.answer_no "
        "and n.case_id = g.case_id and n.request_hash = g.request_hash and n.actor = g.actor "
        "and n.id > g.id)",
        (run_id,),
    )
    return [FlaggedCell(*row) for row in rows]


def _grade(*values: Any) -> ManualGrade:
    named = dict(zip(_COLUMNS.split(", "), values, strict=True))
    named["passed"] = None if named["passed"] is None else bool(named["passed"])
    named["criteria"], named["flagged"] = json.loads(named["criteria"]), bool(named["flagged"])
    return ManualGrade(**named)


def _storable(text: str) -> str:
    """Return a text that SQLite accepts: a terminal may send bytes that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
