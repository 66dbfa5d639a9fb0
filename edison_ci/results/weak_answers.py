"""Answers of a run that a refinement aims at: which parts of the grade are low, and where."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

_PARTS = "('criterion', 'check', 'grader')"
_CELLS = (
    "c.run_id = :run and c.side = 'head' and c.status in ('ok', 'malformed') "
    "and c.case_id not in (select value from json_each(:left_out)) "
    "and (:prompt is null or c.prompt = :prompt) "
    "and (:only is null or c.case_id in (select value from json_each(:only)))"
)
_LOOKED_AT = 1_000
"""Cells that are looked through, the worst first."""


class Remark(NamedTuple):
    """What one part of the grade says of an answer."""

    name: str
    score: float | None
    reason: str


class WeakAnswer(NamedTuple):
    """A cell that may serve as an example."""

    cell: str
    case: str
    address: str
    take: int
    composite: float | None
    failed: int
    aimed: float | None
    """Mean of the parts that are aimed at."""


class ShownAnswer(NamedTuple):
    """An answer that a refiner was shown, with the parts that it failed."""

    case: str
    model: str
    composite: float | None
    failed: tuple[tuple[str, str], ...]
    """Name and reason of each."""
    text: str | None


@dataclass(frozen=True, slots=True)
class WeakAnswers:
    """Reads the graded answers of a run, or of some of its cases with one prompt."""

    connection: sqlite3.Connection
    run_id: str
    left_out: frozenset[str] = frozenset()
    prompt: str | None = None
    """What the prompt is called in the run; None where it is the only one."""
    cases: frozenset[str] | None = None
    """None for all."""

    @property
    def _values(self) -> dict[str, str | None]:
        return {
            "run": self.run_id,
            "left_out": json.dumps(sorted(self.left_out)),
            "prompt": self.prompt,
            "only": None if self.cases is None else json.dumps(sorted(self.cases)),
        }

    def count(self) -> int:
        """Return how many cases have an answer that was graded."""
        query = f"select count(distinct c.case_id) from cell c where {_CELLS}"
        return int(self.connection.execute(query, self._values).fetchone()[0])

    def means(self) -> list[tuple[str, str, float]]:
        """Return name, kind and mean score of every criterion, check and grader."""
        rows = self.connection.execute(
            "select p.name, p.kind, avg(p.score) from cell c join part p on p.cell_id = c.id "
            f"where {_CELLS} and p.kind in {_PARTS} and p.status = 'ok' and p.score is not null "
            "group by 1, 2",
            self._values,
        )
        return rows.fetchall()

    def malformed_share(self) -> float:
        """Return the share of answers that could not be read."""
        row = self.connection.execute(
            f"select avg(c.status = 'malformed') from cell c where {_CELLS}", self._values
        ).fetchone()
        return float(row[0] or 0.0)

    def worst(self, parts: Sequence[tuple[str, str]]) -> list[WeakAnswer]:
        """Return answers, failed ones first, then by the mean of these parts (kind and name)."""
        pairs = ", ".join(f"(:kind{n}, :name{n})" for n in range(len(parts)))
        named = {f"kind{n}": kind for n, (kind, _) in enumerate(parts)}
        named |= {f"name{n}": name for n, (_, name) in enumerate(parts)}
        rows = self.connection.execute(
            "select c.id, c.case_id, c.address, c.take, c.composite, "
            "c.status = 'malformed' or c.passed is 0 as failed, (select round(avg(p.score), 9) "
            f"from part p where p.cell_id = c.id and (p.kind, p.name) in (values {pairs})) "
            f"as aimed from cell c where {_CELLS} order by failed desc, aimed, c.composite, "
            f"c.case_id, c.model, c.draw limit {_LOOKED_AT}",
            {**self._values, **named},
        )
        return [WeakAnswer(*row) for row in rows]

    def remarks(self, cell: str) -> tuple[Remark, ...]:
        """Return what is said against an answer, the lowest score first."""
        rows = self.connection.execute(
            f"select name, score, reason from part where cell_id = ? and kind in {_PARTS} "
            "and (passed is 0 or score < 1) order by score, name",
            (cell,),
        )
        return tuple(Remark(*row) for row in rows)


def shown_answer(connection: sqlite3.Connection, cell: str) -> ShownAnswer | None:
    """Return an answer that a refiner was shown; None if its cell is gone."""
    row = connection.execute(
        "select c.case_id, c.model, c.composite, t.text from cell c left join answer_text t "
        "on t.address = c.address and t.take = c.take where c.id = ?",
        (cell,),
    ).fetchone()
    if row is None:
        return None
    failed = connection.execute(
        "select name, reason from part where cell_id = ? and passed = 0 order by kind, name",
        (cell,),
    )
    case, model, composite, text = row
    return ShownAnswer(case, model, composite, tuple(failed.fetchall()), text)
