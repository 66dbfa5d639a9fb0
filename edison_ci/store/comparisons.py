"""Comparisons of two answers, in each order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.store.totals import OnTotals

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from edison_ci.store.runs import Judgment
    from edison_ci.store.totals import Totals


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """Two answers of a run to one case, as a judge sees them."""

    a_cell: str
    """Head, or the model that is listed later."""
    b_cell: str
    """Base, or the model that is listed first."""
    run_id: str
    judge: str
    judge_hash: str
    ab_winner: str | None
    """`a`, `b` or `tie` when a was shown first; None without a usable reply."""
    ba_winner: str | None
    """The same when b was shown first."""
    ab_reason: str
    ba_reason: str
    chars_a: int
    chars_b: int
    asked: bool
    """False where nobody had to be asked: equal answers, or one that is malformed."""
    own: str | None = None
    """`a`, `b` or `both`: what the judge's own model wrote."""
    judgments: tuple[Judgment, ...] = ()
    """Every reply of the judge, those that could not be used included."""

    @property
    def id(self) -> str:
        """Name of the pair, for finding it again before it is written."""
        return f"{self.a_cell}:{self.b_cell}"

    @property
    def status(self) -> str:
        """`ok`, or `error` if an order is missing."""
        return "error" if self.ab_winner is None or self.ba_winner is None else "ok"


def store_comparisons(rows: Sequence[ComparisonRow]) -> OnTotals[None]:
    """Return the operation that stores comparisons, over earlier failures."""

    def operation(connection: sqlite3.Connection, _: Totals) -> None:
        connection.executemany(
            "insert or replace into comparison (a_cell, b_cell, run_id, judge, judge_hash, status, "
            "ab_winner, ba_winner, ab_reason, ba_reason, chars_a, chars_b, asked, own) "
            "values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    row.a_cell,
                    row.b_cell,
                    row.run_id,
                    row.judge,
                    row.judge_hash,
                    row.status,
                    row.ab_winner,
                    row.ba_winner,
                    row.ab_reason,
                    row.ba_reason,
                    row.chars_a,
                    row.chars_b,
                    row.asked,
                    row.own,
                )
                for row in rows
            ],
        )
        connection.executemany(
            "insert or ignore into judgment values (?, ?, ?, ?)",
            [(row.a_cell, j.model, j.address, j.take) for row in rows for j in row.judgments],
        )

    return OnTotals(operation)


def is_compared(connection: sqlite3.Connection, a_cell: str, b_cell: str) -> bool:
    """Whether two cells were compared in both orders."""
    row = connection.execute(
        "select 1 from comparison where a_cell = ? and b_cell = ? and status = 'ok'",
        (a_cell, b_cell),
    ).fetchone()
    return row is not None


def comparisons_of(connection: sqlite3.Connection, cell_id: str) -> list[ComparisonRow]:
    """Return every comparison that a cell takes part in."""
    rows = connection.execute(
        "select a_cell, b_cell, run_id, judge, judge_hash, ab_winner, ba_winner, ab_reason, "
        "ba_reason, chars_a, chars_b, asked, own from comparison "
        "where a_cell = ?1 or b_cell = ?1 order by a_cell, b_cell",
        (cell_id,),
    )
    return [ComparisonRow(*row) for row in rows]


def none_compared(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether answers were to be compared, and nobody compared a single pair."""
    row = connection.execute(
        "select count(*), coalesce(sum(x.status = 'ok'), 0) from cell c "
        "join comparison x on x.a_cell = c.id where c.run_id = ? and x.asked = 1",
        (run_id,),
    ).fetchone()
    return bool(row[0] and not row[1])


def any_comparison(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether any two answers of a run were compared."""
    row = connection.execute(
        "select 1 from cell c join comparison x on x.a_cell = c.id where c.run_id = ? limit 1",
        (run_id,),
    ).fetchone()
    return row is not None
