"""The page on which people grade answers, and what they and the judges agree on.

The order is that of `edison grade`, and as there models and automatic grades are hidden until one
has graded: what they say of the answer before is shown with the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.config.labels import SCALES
from edison_ci.errors import UsageError
from edison_ci.results.grading_sample import Candidate, Seen, candidates, cases_of, sample_of, seen
from edison_ci.stats.judge_check import Graded, JudgeCheck, check_judge
from edison_ci.stats.sampling import FEWEST_LABELS
from edison_ci.store.grades import ManualGrade, last_grades
from edison_ci.web.own_grade import may_grade, rubric_of
from edison_ci.web.page_context import MOST_CELLS, Crumb, Look, Page, run_named
from edison_ci.web.pages.cell import SHOWN_ID
from edison_ci.web.pages.run import crumbs_of, head_of
from edison_ci.web.workspace import project_of, searchable

if TYPE_CHECKING:
    from edison_ci.operate.actors import Actor
    from edison_ci.store.grades import Key
    from edison_ci.store.runs import Run

SEED = 0
"""Of the order, as `edison grade` has it."""
ONLY = ("new", "failed", "flagged", "all")
"""Which answers are gone through: those one has not graded, did not pass, are flagged, or all."""
WEB_SCALES = ("1-5", *(scale for scale in SCALES if scale != "1-5"))


@dataclass(frozen=True, slots=True)
class Queue:
    """The answers of a run before one person."""

    cells: tuple[Candidate, ...]
    """Every one that can be graded, in the random order."""
    waiting: tuple[Candidate, ...]
    """Those that are to be gone through."""
    mine: dict[Key, ManualGrade]
    flagged: frozenset[Key]
    anybody: frozenset[Key]
    """Answers that somebody has graded."""

    @property
    def done(self) -> int:
        """How many answers this person has graded."""
        return sum(one.score is not None for one in self.mine.values())

    def at(self, cell: str) -> Candidate | None:
        """Return the answer of a cell by its id as people see it."""
        return next((one for one in self.cells if one.id[:SHOWN_ID] == cell), None)

    def after(self, cell: str) -> Candidate | None:
        """Return the first that waits behind a cell; the first of all if there is none behind."""
        places = {one.id[:SHOWN_ID]: place for place, one in enumerate(self.cells)}
        start = places.get(cell, -1)
        behind = (one for one in self.waiting if places[one.id[:SHOWN_ID]] > start)
        return next(behind, next(iter(self.waiting), None))


def grading(look: Look) -> Page:
    """Return the next answer to grade, with nothing that could lead whoever grades it."""
    run = run_named(look, look.path["run"])
    scale, only = look.args.choice("scale", WEB_SCALES), look.args.choice("only", ONLY)
    can = may_grade(look)
    small = run.cells_planned <= MOST_CELLS
    about: dict[str, Any] = {**head_of(look, run, "grade"), "can": can, "small": small}
    if can and small and look.actor is not None:
        about |= _before(look, run, look.actor, only)
        kept = {
            "scale": "" if scale == WEB_SCALES[0] else scale,
            "only": "" if only == "new" else only,
        }

        def again(**changes: Any) -> str:
            return look.links.to("run", run.id, "grade", **{**kept, **changes})

        about |= {"again": again, "scale": scale, "scales": WEB_SCALES, "only": only, "onlys": ONLY}
    return Page(
        "grading",
        f"Grading {run.experiment}, run {run.id}",
        {**about, "grader": look.actor},
        crumbs=crumbs_of(look, run, Crumb(f"run {run.id}", look.links.to("run", run.id))),
        area="home",
    )


def _before(look: Look, run: Run, actor: Actor, only: str) -> dict[str, Any]:
    """Return what somebody who grades has before them."""
    queue = queue_of(look, run, actor, only)
    asked, done = look.args.text("cell"), look.args.text("done")
    cell = queue.at(asked) if asked else queue.after(look.args.text("after") or done)
    if asked and cell is None:
        hint = "only answers that are there and not blocked can be graded"
        raise UsageError(f"there is no answer {asked!r} to grade in this run", hint=hint)
    rubric = rubric_of(look, run.experiment)
    calibration = rubric.calibration if rubric is not None else None
    last = queue.at(done) if done else None
    sample = sample_of(queue.cells, queue.anybody, SEED)
    return {
        "queue": queue,
        "cell": cell,
        "seen": _seen(look, run, cell) if cell is not None else None,
        "mine": queue.mine.get(cell.key) if cell is not None else None,
        "criteria": rubric.criteria if rubric is not None else (),
        "last": last,
        "last_mine": queue.mine.get(last.key) if last is not None else None,
        "sample": sample,
        "needed": FEWEST_LABELS,
        "labels": calibration.labels if calibration is not None else None,
        "agreement": agreement_of(queue) if look.args.flag("agreement") or cell is None else None,
    }


def queue_of(look: Look, run: Run, actor: Actor, only: str = "new") -> Queue:
    """Return the answers of a run, in the order in which one is to go through them."""
    cells = tuple(candidates(look.connection, run.id, SEED))
    here = {cell.key for cell in cells}
    said = [one for one in last_grades(look.connection, run.experiment) if one.key in here]
    mine = {one.key: one for one in said if one.actor == actor.name}
    flagged = frozenset(one.key for one in said if one.flagged)
    graded = {key for key, one in mine.items() if one.score is not None or one.flagged}

    def wanted(cell: Candidate) -> bool:
        if only in ("flagged", "all"):
            return only == "all" or cell.key in flagged
        return cell.key not in graded and (only == "new" or cell.passed == 0)

    return Queue(
        cells=cells,
        waiting=tuple(cell for cell in cells if wanted(cell)),
        mine=mine,
        flagged=flagged,
        anybody=frozenset(one.key for one in said if one.score is not None),
    )


def _seen(look: Look, run: Run, cell: Candidate) -> Seen:
    project = project_of(look)
    if project is None or run.experiment not in project.experiments:
        return Seen(None, None)
    experiment = project.experiments[run.experiment]
    known = searchable(project, run.experiment)
    cases = cases_of(project, experiment, [cell]) if known else {}
    return seen(look.connection, run, experiment, cell, cases)


def agreement_of(queue: Queue) -> JudgeCheck | None:
    """Return how far somebody agrees with the automatic grades; None without both of one answer."""
    both = [
        Graded(
            case=cell.case_id,
            human=mine.score,
            judge=cell.composite,
            human_pass=float(bool(mine.passed)),
            judge_pass=cell.passed == 1,
            thumbs=mine.scale == "thumbs",
        )
        for cell in queue.cells
        if (mine := queue.mine.get(cell.key)) is not None
        and mine.score is not None
        and cell.composite is not None
        and cell.passed is not None
    ]
    return check_judge(both) if both else None
