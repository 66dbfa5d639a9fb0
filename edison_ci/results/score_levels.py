"""Example answers for a criterion, check or grader: the worst, the best, and one for each level."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.results.case_grid import answer_beginning
from edison_ci.results.explanation import expected_form
from edison_ci.results.snapshot import snapshot_of

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.results.components import ComponentName
    from edison_ci.store.runs import Run


MOST_SEARCHED = 100
"""Number of weakest, or strongest, cases that are searched for the worst and best answers."""


class ComponentExample(NamedTuple):
    """An answer that is good or bad in a component."""

    id: str
    """Of its cell."""
    case: str
    model: str
    repeat: int
    score: float
    reason: str


def examples_of(
    connection: sqlite3.Connection,
    run_id: str,
    component: ComponentName,
    *,
    worst: bool,
    limit: int,
) -> list[ComponentExample]:
    """Return answers with the lowest or highest score in a component, of a run that has ended.

    Only the weakest, or strongest, cases are searched: a run may have a million cells.
    """
    order = "worst" if worst else "best"
    by = "lowest nulls last, composite, case_id" if worst else "composite desc, case_id desc"
    rows = connection.execute(
        "select c.id, c.case_id, c.model, c.repeat, p.score, p.reason "
        f"from (select case_id from rollup_case indexed by rollup_case_{order} "
        f"where run_id = ? and side = 'head' order by {by} limit ?) k "
        "cross join cell c on c.run_id = ? and c.case_id = k.case_id and c.side = 'head' "
        "cross join component p on p.cell_id = c.id and p.kind = ? and p.name = ? "
        f"where p.score is not null order by p.score {'' if worst else 'desc'}, c.case_id, c.model "
        "limit ?",
        (run_id, MOST_SEARCHED, run_id, component.kind, component.name, limit),
    )
    return [ComponentExample(*row) for row in rows]


_MOST_LEVELS = 11
"""Levels of a scale that are shown one by one; a finer scale is shown in fifths."""
_FIFTHS = 5


class ScoreLevel(NamedTuple):
    """A score of a scale, or a fifth of it."""

    label: str
    """As on the scale of the criterion, such as 3, or in points, such as 40 to 60."""
    meaning: str
    """The label of the score in the rubric; empty if it has none."""
    score: float
    """0 (worst) to 1 (best); the middle of a fifth."""


class LevelExample(NamedTuple):
    """The answer of a run that is nearest to a level."""

    level: ScoreLevel
    example: ComponentExample | None
    """None if no answer has that level."""
    text: str | None
    """Beginning of the answer; None without one, or if it is withheld."""


class LevelExamples(NamedTuple):
    """The levels of a component, the best one first."""

    description: str
    """What the rubric says about the criterion."""
    levels: tuple[LevelExample, ...]


def level_examples(
    connection: sqlite3.Connection, run: Run, component: ComponentName
) -> LevelExamples:
    """Return an answer for each score level of a component, of a run that has ended.

    Only the weakest and the strongest cases are searched: a run may have a million cells.
    """
    criterion = _criterion(run, component)
    levels = _levels(criterion)
    nearest: dict[int, tuple[float, str]] = {}
    first = {score: cell_id for cell_id, score in reversed(_scored(connection, run.id, component))}
    for score, cell_id in first.items():  # a component has few different scores
        distance, place = min((abs(score - level.score), at) for at, level in enumerate(levels))
        if place not in nearest or distance < nearest[place][0]:
            nearest[place] = (distance, cell_id)
    examples = [
        _example(connection, run, component, level, nearest[at][1])
        if at in nearest
        else LevelExample(level, None, None)
        for at, level in enumerate(levels)
    ]
    if criterion is None:  # a check that only passes or fails has no levels between
        examples = [example for example in examples if example.example is not None]
    return LevelExamples("" if criterion is None else criterion["description"], tuple(examples))


def _criterion(run: Run, component: ComponentName) -> dict[str, Any] | None:
    """Return a criterion as it was in the rubric when the run was planned."""
    if component.kind != "criterion":
        return None
    for place, value in snapshot_of(run).items():
        if place.startswith("base: ") or not isinstance(value, dict) or "rubric" not in value:
            continue
        for criterion in value.get("criteria") or ():
            if isinstance(criterion, dict) and criterion.get("name") == component.name:
                return criterion
    return None


def _levels(criterion: dict[str, Any] | None) -> list[ScoreLevel]:
    """Return the levels of a scale, the best one first."""
    scale = criterion["scale"] if criterion is not None else None
    if criterion is not None and scale is not None:
        low, high = scale["min"], scale["max"]
        if float(low).is_integer() and float(high).is_integer() and high - low < _MOST_LEVELS:
            raw = range(int(low), int(high) + 1)
            labels = {f"{float(key):g}": text for key, text in scale["labels"].items()}
            levels = [
                ScoreLevel(str(score), labels.get(str(score), ""), (score - low) / (high - low))
                for score in raw
            ]
            if criterion["lower_is_better"]:
                return [level._replace(score=1 - level.score) for level in levels]
            return levels[::-1]
    return [
        ScoreLevel(f"{20 * fifth} to {20 * fifth + 20}", "", (fifth + 0.5) / _FIFTHS)
        for fifth in reversed(range(_FIFTHS))
    ]


def _scored(
    connection: sqlite3.Connection, run_id: str, component: ComponentName
) -> list[tuple[str, float]]:
    """Return cells of the weakest and the strongest cases, with their scores."""
    cases = (
        "select case_id from (select case_id from rollup_case indexed by rollup_case_{0} "
        "where run_id = ?1 and side = 'head' order by {1} limit ?2)"
    )
    worst = cases.format("worst", "lowest nulls last, composite, case_id")
    best = cases.format("best", "composite desc, case_id desc")
    rows = connection.execute(
        f"select c.id, p.score from ({worst} union {best}) k "
        "cross join cell c on c.run_id = ?1 and c.case_id = k.case_id and c.side = 'head' "
        "cross join component p on p.cell_id = c.id and p.kind = ?3 and p.name = ?4 "
        "where p.score is not null order by c.case_id, c.model, c.repeat",
        (run_id, MOST_SEARCHED, component.kind, component.name),
    )
    return rows.fetchall()


def _example(
    connection: sqlite3.Connection,
    run: Run,
    component: ComponentName,
    level: ScoreLevel,
    cell_id: str,
) -> LevelExample:
    *about, version = connection.execute(
        "select c.id, c.case_id, c.model, c.repeat, p.score, p.reason, c.version from cell c "
        "join component p on p.cell_id = c.id and p.kind = ? and p.name = ? where c.id = ?",
        (*component, cell_id),
    ).fetchone()
    text = answer_beginning(connection, cell_id, expected_form(run, None, "head", version))
    return LevelExample(level, ComponentExample(*about), text)
