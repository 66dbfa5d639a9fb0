"""Opinions of each judge on an answer, before they became one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class OpinionRow:
    """One judge on one criterion."""

    judge: str
    criterion: str
    raw: float | None
    """On the criterion's scale; None if the reply cannot be used."""
    score: float | None
    """From 0 (worst) to 1 (best)."""
    missing: str | None = None
    """Why there is no score."""
    reason: str = ""


def write_opinions(
    connection: sqlite3.Connection, opinions: Iterable[tuple[str, OpinionRow]]
) -> None:
    """Store what judges said of cells, over what they said before."""
    connection.executemany(
        "insert or replace into opinion values (?, ?, ?, ?, ?, ?, ?)",
        [
            (cell, said.judge, said.criterion, said.raw, said.score, said.missing, said.reason)
            for cell, said in opinions
        ],
    )


def opinions_of(connection: sqlite3.Connection, cell_id: str) -> tuple[OpinionRow, ...]:
    """Return what each judge said of a cell."""
    rows = connection.execute(
        "select judge, criterion, raw, score, missing, reason from opinion where cell_id = ? "
        "order by judge, criterion",
        (cell_id,),
    )
    return tuple(OpinionRow(*row) for row in rows)


def several_judges(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether more than one judge spoke of an answer of a run."""
    # Every judge speaks of every answer that is judged, so one of them tells.
    row = connection.execute(
        "select min(o.judge) <> max(o.judge) from opinion o where o.cell_id = (select c.id "
        "from cell c join opinion p on p.cell_id = c.id where c.run_id = ? limit 1)",
        (run_id,),
    ).fetchone()
    return bool(row[0])
