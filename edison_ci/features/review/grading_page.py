"""The page for grading answers, and the agreement of human and automatic grades.

Answers come in the order of `edison grade`. Models and automatic grades are hidden until an answer
is graded; they are shown together with the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.access.site import Role
from edison_ci.config.calibration import SCALES
from edison_ci.errors import UsageError
from edison_ci.features.review.grading import RunGrades
from edison_ci.records import CellStatus
from edison_ci.results.human_grades import (
    Candidate,
    GradableAnswer,
    cases_of,
    gradable_answer,
)
from edison_ci.stats.calibration import JudgeCheck, PairedGrade, check_judge
from edison_ci.stats.corrected import FEWEST_LABELS
from edison_ci.web.page_context import MOST_CELLS, SHOWN_ID, Crumb, Page, PageContext, requested_run
from edison_ci.web.pages.answers import OwnGrade
from edison_ci.web.pages.run import crumbs_of, head_of
from edison_ci.web.workspace import project_of, searchable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edison_ci.access.site import Actor
    from edison_ci.config.rubric import RubricFile
    from edison_ci.store.cells import CellRow
    from edison_ci.store.manual_grades import ManualGrade
    from edison_ci.store.runs import Run


def may_grade(context: PageContext) -> bool:
    """Whether the visitor may grade."""
    return context.may(Role.REVIEWER)


def own_grade(
    context: PageContext, run: Run, cell: CellRow, grades: Iterable[ManualGrade]
) -> OwnGrade | None:
    """Return the visitor's grade of a cell; None if they or the cell do not permit grading."""
    gradable = cell.status in (CellStatus.OK, CellStatus.MALFORMED) and cell.answer_no is not None
    if not gradable or not may_grade(context) or context.actor is None:
        return None
    name = context.actor.name
    mine = next((g for g in grades if g.actor == name and g.origin is None), None)
    rubric = rubric_of(context, run.experiment)
    return OwnGrade(mine, rubric.criteria if rubric is not None else ())


def rubric_of(context: PageContext, experiment: str) -> RubricFile | None:
    """Return the current rubric of an experiment."""
    project = project_of(context)
    if project is None or experiment not in project.experiments:
        return None
    return project.experiments[experiment].rubric


SEED = 0
"""Seed of the order, as in `edison grade`."""
ONLY = ("new", "failed", "flagged", "all")
"""Filters of the queue: not graded yet, failed, flagged, or all."""
WEB_SCALES = ("1-5", *(scale for scale in SCALES if scale != "1-5"))


@dataclass(slots=True)
class Queue:
    """The answers of a run for one person to grade."""

    grades: RunGrades
    waiting: tuple[Candidate, ...]
    """The answers that match the filter."""

    @property
    def done(self) -> int:
        """Number of answers that this person has graded."""
        return sum(grade.score is not None for grade in self.grades.mine.values())

    def at(self, cell: str) -> Candidate | None:
        """Return the answer of a cell by its short id."""
        return next((answer for answer in self.grades.cells if answer.id[:SHOWN_ID] == cell), None)

    def after(self, cell: str) -> Candidate | None:
        """Return the next waiting answer after a cell; the first one if there is none."""
        places = {answer.id[:SHOWN_ID]: place for place, answer in enumerate(self.grades.cells)}
        start = places.get(cell, -1)
        behind = (answer for answer in self.waiting if places[answer.id[:SHOWN_ID]] > start)
        return next(behind, next(iter(self.waiting), None))


def grading(context: PageContext) -> Page:
    """Return the next answer to grade, without model and automatic grades."""
    run = requested_run(context, context.path["run"])
    scale, only = (
        context.args.choice("scale", WEB_SCALES),
        context.args.choice("only", ONLY),
    )
    can = may_grade(context)
    small = run.cells_planned <= MOST_CELLS
    about: dict[str, Any] = {**head_of(context, run, "grade"), "can": can, "small": small}
    if can and small and context.actor is not None:
        about |= _grading_values(context, run, context.actor, only)
        kept = {
            "scale": "" if scale == WEB_SCALES[0] else scale,
            "only": "" if only == "new" else only,
        }

        def again(**changes: Any) -> str:
            return context.links.to("run", run.id, "grade", **{**kept, **changes})

        about |= {"again": again, "scale": scale, "scales": WEB_SCALES, "only": only, "onlys": ONLY}
    return Page(
        "grading",
        f"Grading {run.experiment}, run {run.id}",
        {**about, "grader": context.actor},
        crumbs=crumbs_of(context, run, Crumb(f"run {run.id}", context.links.to("run", run.id))),
        area="home",
    )


def _grading_values(context: PageContext, run: Run, actor: Actor, only: str) -> dict[str, Any]:
    """Return the template values for a visitor who may grade."""
    queue = queue_of(context, run, actor, only)
    cell_id, done = context.args.text("cell"), context.args.text("done")
    cell = queue.at(cell_id) if cell_id else queue.after(context.args.text("after") or done)
    if cell_id and cell is None:
        hint = "only stored answers that are not blocked can be graded"
        raise UsageError(f"this run has no answer {cell_id!r} to grade", hint=hint)
    rubric = rubric_of(context, run.experiment)
    calibration = rubric.calibration if rubric is not None else None
    last = queue.at(done) if done else None
    mine = queue.grades.mine
    return {
        "queue": queue,
        "cell": cell,
        "answer": _gradable_answer(context, run, cell) if cell is not None else None,
        "mine": mine.get(cell.key) if cell is not None else None,
        "criteria": rubric.criteria if rubric is not None else (),
        "last": last,
        "last_mine": mine.get(last.key) if last is not None else None,
        "sample": queue.grades.sample(),
        "needed": FEWEST_LABELS,
        "labels": calibration.labels if calibration is not None else None,
        "agreement": agreement_of(queue)
        if context.args.flag("agreement") or cell is None
        else None,
    }


def queue_of(context: PageContext, run: Run, actor: Actor, only: str = "new") -> Queue:
    """Return the grading queue of a run for one person."""
    grades = RunGrades.of(context.connection, run, actor.name, SEED)
    flagged = grades.flagged
    done = {key for key, mine in grades.mine.items() if mine.score is not None or mine.flagged}

    def matches(cell: Candidate) -> bool:
        if only in ("flagged", "all"):
            return only == "all" or cell.key in flagged
        return cell.key not in done and (only == "new" or cell.passed == 0)

    return Queue(grades, tuple(cell for cell in grades.cells if matches(cell)))


def _gradable_answer(context: PageContext, run: Run, cell: Candidate) -> GradableAnswer:
    project = project_of(context)
    if project is None or run.experiment not in project.experiments:
        return GradableAnswer(None, None)
    experiment = project.experiments[run.experiment]
    is_searchable = searchable(project, run.experiment)
    cases = cases_of(project, experiment, [cell]) if is_searchable else {}
    return gradable_answer(context.connection, run, experiment, cell, cases)


def agreement_of(queue: Queue) -> JudgeCheck | None:
    """Return the agreement with the automatic grades; None without a common answer."""
    both = [
        PairedGrade(
            case=cell.case_id,
            human=mine.score,
            judge=cell.composite,
            human_pass=float(bool(mine.passed)),
            judge_pass=cell.passed == 1,
            thumbs=mine.scale == "thumbs",
        )
        for cell in queue.grades.cells
        if (mine := queue.grades.mine.get(cell.key)) is not None
        and mine.score is not None
        and cell.composite is not None
        and cell.passed is not None
    ]
    return check_judge(both) if both else None
