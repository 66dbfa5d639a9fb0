"""What are the two answers of a pair worth by the criteria that both were scored on?

A judge may leave a criterion out. If it is a hard one, and missing on one side only, that side
would look better than it is; so both sides are weighed by what both have (STATS 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from edison_ci.rounding import weighted_mean
from edison_ci.stats.composite import Weighted, paired_composite
from edison_ci.store.runs import COUNTED

if TYPE_CHECKING:
    import sqlite3

Composites: TypeAlias = dict[tuple[str, int], tuple[float | None, float | None]]


_CELLS = "c.run_id = :run and c.prompt = :prompt and c.model = :model and c.status = 'ok'"


class _Part(NamedTuple):
    kind: str
    name: str
    score: float | None
    weight: float


def same_criteria(
    connection: sqlite3.Connection, run_id: str, prompt: str, model: str
) -> Composites:
    """Return composites of base and head for the case and draw of each pair that needs it."""
    values = {"run": run_id, "prompt": prompt, "model": model}
    judged = connection.execute(
        "select exists (select 1 from (select id from cell c "
        f"where {_CELLS} limit 20) c join part p on p.cell_id = c.id and p.kind = 'criterion')",
        values,
    ).fetchone()[0]
    if not judged:
        return {}
    incomplete = connection.execute(
        "select distinct c.case_id, c.draw from cell c join part p on p.cell_id = c.id "
        f"and p.kind = 'criterion' and p.score is null where {_CELLS} and c.composite is not null",
        values,
    ).fetchall()
    found: Composites = {}
    for case, draw in incomplete:
        sides = [
            _parts(connection, {**values, "case": case, "draw": draw, "side": side})
            for side in ("base", "head")
        ]
        if all(sides):
            found[case, draw] = _composites(*sides)
    return found


def _parts(connection: sqlite3.Connection, values: dict[str, object]) -> list[_Part]:
    """Return the parts of a cell; none if it has no composite anyway."""
    rows = connection.execute(
        "select p.kind, p.name, p.score, p.weight from cell c join part p on p.cell_id = c.id "
        f"where {_CELLS} and c.case_id = :case and c.draw = :draw and c.side = :side "
        "and c.composite is not null",
        values,
    )
    return [_Part(*row) for row in rows]


def _composites(base: list[_Part], head: list[_Part]) -> tuple[float | None, float | None]:
    scores = [{p.name: p.score for p in side if p.kind == "criterion"} for side in (base, head)]
    criteria = [Weighted(p.name, p.weight) for p in head if p.kind == "criterion"]
    rubrics = paired_composite(scores[0], scores[1], criteria)
    return _composite(base, rubrics.base.value), _composite(head, rubrics.head.value)


def _composite(parts: list[_Part], rubric: float | None) -> float | None:
    """Return the weighted mean of what counts, with the rubric's score replaced."""
    weighted: list[tuple[float, float]] = []
    for part in parts:
        value = rubric if part.kind == "rubric" else part.score
        if part.kind not in COUNTED:
            continue
        if value is None:
            if part.kind == "rubric":
                return None
            continue
        weighted.append((part.weight, value))
    return weighted_mean(weighted)
