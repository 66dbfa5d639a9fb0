"""Tries of the pages: chosen cases sent to chosen models, in a thread, with answers as they come.

The calls are those of `edison try`: booked before they are sent, stored with their price, counted
against every budget. A grid is kept in memory for its page and forgotten with the server; the
answers stay, and an answer of the last hour is used again.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.api.background import Job, find_job, start_job
from edison_ci.api.sessions import run_context
from edison_ci.config import requirements
from edison_ci.documents.secrets import redacted
from edison_ci.errors import EdisonError, UsageError
from edison_ci.execute.standalone import TrialAnswer, try_all
from edison_ci.records import CellStatus
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.tasks import Task
    from edison_ci.store.cells import Component

MOST_CASES, MOST_MODELS = 20, 8
"""Of one try; an experiment is for more."""
REUSE = dt.timedelta(hours=1)
"""As `edison try` uses a stored answer again."""


@dataclass(frozen=True, slots=True)
class TryCell:
    """An answer that was tried, with its grade, or why there is none."""

    number: int
    case: str
    model: str
    word: str
    """pass, fail, ok, or the status of an answer that is neither."""
    text: str = ""
    reason: str = ""
    composite: float | None = None
    passed: bool | None = None
    components: tuple[Component, ...] = ()
    tokens_in: int | None = None
    tokens_out: int | None = None
    cost_microusd: int = 0
    latency_ms: int = 0
    reused: bool = False
    """Whether a stored answer was used again, which costs nothing."""
    answer_no: int | None = None


class TryGrid(Job):
    """A grid of answers that is being filled."""

    def __init__(self, owner: str, about: str, tasks: Sequence[Task], draft: str = "") -> None:
        super().__init__(owner, about)
        self.draft = draft
        """The key of the text that is tried."""
        self.cases = [*dict.fromkeys(str(task.case.id) for task in tasks)]
        self.models = [*dict.fromkeys(task.configuration.name for task in tasks)]
        self.simulated = any(task.configuration.model.simulated for task in tasks)
        self._order: list[TryCell] = []
        self.tasks = tuple(tasks)

    @property
    def total(self) -> int:
        """Number of answers when it is filled."""
        return len(self.tasks)

    def finished(self, since: int = 0) -> list[TryCell]:
        """Return the answers in the order in which they came, without the first ones."""
        with self.guard:
            return self._order[since:]

    def at(self, case: str, model: str) -> TryCell | None:
        """Return the answer of a model to a case; None as long as there is none."""
        return next((c for c in self.finished() if (c.case, c.model) == (case, model)), None)

    def number(self, case: str, model: str) -> int:
        """Return the number of a cell."""
        names = ((str(task.case.id), task.configuration.name) for task in self.tasks)
        return next(i for i, name in enumerate(names) if name == (case, model))

    @property
    def cost_microusd(self) -> int:
        """What the answers cost so far, without grading."""
        return sum(cell.cost_microusd for cell in self.finished())

    def passes(self, model: str) -> tuple[int, int]:
        """Return how many answers of a model pass, and how many have a verdict."""
        verdicts = [c.passed for c in self.finished() if c.model == model and c.passed is not None]
        return sum(verdicts), len(verdicts)

    def add(self, number: int, result: TrialAnswer | Exception) -> None:
        """Add the answer of a task."""
        task = self.tasks[number]
        case, model = str(task.case.id), task.configuration.name
        if isinstance(result, TrialAnswer):
            cell = _answered(number, case, model, result)
        else:
            cell = TryCell(number, case, model, "error", reason=redacted(_why(result)))
        with self.guard:
            self._order.append(cell)


def _answered(number: int, case: str, model: str, tried: TrialAnswer) -> TryCell:
    completion, grade, output = tried.answer.completion, tried.grade, tried.output
    word = str(grade.status)
    if grade.status is CellStatus.OK and grade.passed is not None:
        word = "pass" if grade.passed else "fail"
    withheld = grade.status is CellStatus.BLOCKED
    failed = [
        component
        for component in grade.components
        if component.passed is False and component.reason
    ]
    reasons = [f"{component.name}: {component.reason}" for component in failed]
    return TryCell(
        number,
        case,
        model,
        word,
        text="" if withheld else redacted(output.raw if output.malformed else output.text),
        reason=redacted(grade.reason or "; ".join(reasons)),
        composite=grade.composite,
        passed=grade.passed,
        components=grade.components,
        tokens_in=completion.tokens_in,
        tokens_out=completion.tokens_out,
        cost_microusd=tried.answer.cost_microusd if tried.answer.bought else 0,
        latency_ms=completion.latency_ms,
        reused=not tried.answer.bought,
        answer_no=tried.answer.answer_no,
    )


def _why(error: Exception) -> str:
    if isinstance(error, MissingValueError | RenderError):
        return f"the case cannot be rendered: {error}"
    if isinstance(error, EdisonError):
        return f"{error.message}{f' ({error.hint})' if error.hint else ''}"
    return str(error)


def start_try(
    project: Project, experiment: Experiment, grid: TryGrid, *, offline: bool, reuse: bool = True
) -> TryGrid:
    """Start to fill a grid; raises ConfigError or BusyError before anything is sent."""
    tasks = grid.tasks
    if not tasks:
        raise UsageError("nothing is chosen to try", hint="choose a case and a model")
    models = {task.configuration.name: task.configuration.model for task in tasks}.values()
    requirements.refuse(
        [
            *requirements.missing(project, experiment, calls=requirements.GRADING),
            *requirements.missing_for_models(models),
        ]
    )
    context = run_context(project, offline=offline)
    age = REUSE if reuse else dt.timedelta()
    newer_than = utc.timestamp(utc.now() - age)

    def work() -> None:
        try_all(project, tasks, experiment, context, newer_than=newer_than, on_result=grid.add)

    start_job(grid, work)
    return grid


def find_try(key: str, owner: str) -> TryGrid | None:
    """Return a person's grid; None if it is forgotten, or another person's."""
    return find_job(TryGrid, key, owner)
