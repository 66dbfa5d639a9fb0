"""The answers to one case of a run, what kind of case it is, and the cases before and after it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from edison_ci.store.runs import CellRow

_COLUMNS = "id, case_id, side, prompt, version, model, draw, status, composite, passed"


class CaseAnswer(NamedTuple):
    """An answer to a case, without its text."""

    id: str
    """Of its cell."""
    case: str
    side: str
    prompt: str
    version: str
    model: str
    draw: int
    status: str
    composite: float | None
    passed: int | None

    @property
    def word(self) -> str:
        """How it went."""
        if self.status != "ok" or self.passed is None:
            return "ungraded" if self.status == "ok" else self.status
        return "pass" if self.passed else "fail"


class CaseKind(NamedTuple):
    """What kind of case a case was in a run."""

    tags: tuple[str, ...]
    difficulty: int | None
    kind: str
    words: int


class Neighbours(NamedTuple):
    """What comes before and after something; None at either end."""

    before: str | None
    after: str | None


def answers_to(connection: sqlite3.Connection, run_id: str, case: str) -> list[CaseAnswer]:
    """Return every answer to a case in a run, head before base."""
    rows = connection.execute(
        f"select {_COLUMNS} from cell "
        "where run_id = ? and case_id = ? order by side desc, prompt, model, draw",
        (run_id, case),
    )
    return [CaseAnswer(*row) for row in rows]


def answers_by_id(connection: sqlite3.Connection, ids: Iterable[str]) -> list[CaseAnswer]:
    """Return answers by the beginnings of the ids of their cells; unknown ones are left out."""
    found = []
    for each in ids:
        row = connection.execute(
            f"select {_COLUMNS} from cell where id >= ? and id < ? limit 1", (each, f"{each}g")
        ).fetchone()
        if row is not None:
            found.append(CaseAnswer(*row))
    return found


def case_kind(connection: sqlite3.Connection, run_id: str, case: str) -> CaseKind | None:
    """Return what kind of case a case of a run was; None if that was not stored."""
    row = connection.execute(
        "select tags, difficulty, kind, words from run_case where run_id = ? and case_id = ?",
        (run_id, case),
    ).fetchone()
    if row is None:
        return None
    tags, *rest = row
    return CaseKind(tuple(json.loads(tags)), *rest)


def neighbouring_cases(connection: sqlite3.Connection, run_id: str, case: str) -> Neighbours:
    """Return the cases of a run before and after a case, by name."""
    found = []
    for sign, order in (("<", "desc"), (">", "asc")):
        row = connection.execute(
            f"select case_id from run_case where run_id = ? and case_id {sign} ? "
            f"order by case_id {order} limit 1",
            (run_id, case),
        ).fetchone()
        found.append(None if row is None else str(row[0]))
    return Neighbours(*found)


def neighbouring_cells(connection: sqlite3.Connection, cell: CellRow) -> Neighbours:
    """Return the ids of the same prompt and model's cells of the cases before and after."""
    found = []
    for case in neighbouring_cases(connection, cell.run_id, cell.case_id):
        row = None
        if case is not None:
            row = connection.execute(
                "select id from cell where run_id = ? and case_id = ? and model = ? and side = ? "
                "and prompt = ? order by draw limit 1",
                (cell.run_id, case, cell.model, cell.side, cell.prompt),
            ).fetchone()
        found.append(None if row is None else str(row[0]))
    return Neighbours(*found)
