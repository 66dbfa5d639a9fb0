"""What the visitor has said of an answer, and may say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.operate.actors import Role
from edison_ci.web.workspace import project_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edison_ci.config.rubric import Criterion, RubricFile
    from edison_ci.store.grades import ManualGrade
    from edison_ci.store.runs import CellRow, Run
    from edison_ci.web.page_context import Look


@dataclass(frozen=True, slots=True)
class Own:
    """What somebody may say of an answer."""

    mine: ManualGrade | None
    """Their last word on it."""
    criteria: Sequence[Criterion]


def may_grade(look: Look) -> bool:
    """Whether whoever looks may grade, on these pages."""
    return look.actions is not None and look.actor is not None and look.actor.may(Role.REVIEWER)


def own_of(look: Look, run: Run, cell: CellRow, said: Iterable[ManualGrade]) -> Own | None:
    """Return what may be said of a cell; None if nothing, or by somebody else only."""
    gradable = cell.status in ("ok", "malformed") and cell.take is not None
    if not gradable or not may_grade(look) or look.actor is None:
        return None
    name = look.actor.name
    mine = next((one for one in said if one.actor == name), None)
    rubric = rubric_of(look, run.experiment)
    return Own(mine, rubric.criteria if rubric is not None else ())


def rubric_of(look: Look, experiment: str) -> RubricFile | None:
    """Return the rubric of an experiment as the files of the project have it."""
    project = project_of(look)
    if project is None or experiment not in project.experiments:
        return None
    return project.experiments[experiment].rubric
