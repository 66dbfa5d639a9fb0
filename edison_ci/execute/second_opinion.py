"""Second opinions: stored answers of a run, graded by other judges or by another rubric.

They are advisory: no cell, grade, gate or verdict of a run changes. The replies of the judges are
stored like those of any call, so asking again costs nothing.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_output
from edison_ci.config.experiment import RubricUse
from edison_ci.errors import UsageError
from edison_ci.execute.standalone import standalone_client
from edison_ci.judges.panel import load_panel
from edison_ci.judges.pointwise import Pointwise
from edison_ci.numeric import mean
from edison_ci.providers.budget import BudgetExhausted, StoredAnswer
from edison_ci.records import CellStatus
from edison_ci.results.explanation import unchanged_cases
from edison_ci.spelling import did_you_mean
from edison_ci.store.answers import answer_at
from edison_ci.store.cells import answered_cells, case_ids
from edison_ci.store.ledger import SpendingCap

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from edison_ci.checks.output import Output
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.execute.grading import CellGrade
    from edison_ci.execute.run_options import RunContext
    from edison_ci.execute.runner import Grading
    from edison_ci.providers.client import BudgetUsage
    from edison_ci.records import Case, Request
    from edison_ci.store.cells import CellRow
    from edison_ci.store.runs import Run

MOST_JUDGES = 5


@dataclass(frozen=True, slots=True)
class GradedPart:
    """The part of a run that is graded again, and by whom."""

    judges: tuple[str, ...] = ()
    """Models of models.yaml; those of the experiment if it is empty."""
    rubric: str | None = None
    """Path or name; that of the experiment if it is None."""
    cases: tuple[str, ...] = ()
    failed: bool = False
    """Only answers that did not pass."""

    def __bool__(self) -> bool:
        return self != GradedPart()

    def variant(self, project: Project, experiment: Experiment) -> Experiment:
        """Return the experiment with these judges and this rubric; raises UsageError."""
        file, rubric = experiment.file, experiment.rubric
        if self.rubric is not None:
            path = self._rubric_path(project)
            rubric = project.rubrics[path]
            file = file.model_copy(update={"rubric": RubricUse(path=path)})
        if rubric is None:
            hint = f"name one: {', '.join(project.rubrics)}" if project.rubrics else "write one"
            raise UsageError(f"{experiment.id} has no rubric", hint=f"--rubric; {hint}")
        if not self.judges:
            return dataclasses.replace(experiment, file=file, rubric=rubric)
        if len(self.judges) > MOST_JUDGES:
            message = f"{len(self.judges)} judges; at most {MOST_JUDGES}"
            raise UsageError(message, hint="leave some out")
        judges = tuple(self._judge(project, name) for name in dict.fromkeys(self.judges))
        return dataclasses.replace(
            experiment, file=file, rubric=rubric, judges=judges, judge_plugins=()
        )

    def _rubric_path(self, project: Project) -> str:
        for path, rubric in project.rubrics.items():
            if self.rubric in (path, rubric.rubric):
                return path
        names = [rubric.rubric for rubric in project.rubrics.values()]
        hint = did_you_mean(str(self.rubric), names, label="rubrics") or "write one in rubrics/"
        raise UsageError(f"there is no rubric {self.rubric!r}", hint=hint)

    def _judge(self, project: Project, name: str) -> Model:
        if name not in project.models:
            hint = did_you_mean(name, project.models, label="models")
            raise UsageError(f"there is no model {name!r}", hint=hint)
        return project.models[name]


@dataclass(frozen=True, slots=True)
class StoredText:
    """A stored answer that can be graded again."""

    cell: CellRow
    """As the run graded it."""
    case: Case
    output: Output
    answer: StoredAnswer


@dataclass(slots=True)
class GradableTexts:
    """The stored answers of a part, and how many cannot be graded again."""

    texts: list[StoredText]
    changed: int = 0
    """Their prompt or case is no longer what it was."""
    gone: int = 0
    """Their text is no longer stored."""

    @classmethod
    def of(
        cls, reader: sqlite3.Connection, project: Project, run: Run, part: GradedPart
    ) -> GradableTexts:
        """Return the answers of the head; raises UsageError if there are none."""
        experiment = project.experiment(run.experiment)
        run_cases = case_ids(reader, run.id)
        for case in part.cases:
            if case not in run_cases:
                raise UsageError(
                    f"run {run.id} has no case {case!r}",
                    hint=did_you_mean(case, run_cases, label="cases"),
                )
        cells = answered_cells(reader, run.id, cases=part.cases, failed=part.failed)
        if not cells:
            raise UsageError(f"no answer of run {run.id} is chosen", hint="see: edison status")
        cases = unchanged_cases(project, experiment, {c.case_id: c.case_hash for c in cells})
        prompts = {str(prompt.id): prompt for prompt in experiment.prompts}
        gradable = cls([])
        for cell in cells:
            prompt = prompts.get(cell.prompt)
            if prompt is None or prompt.version != cell.version or cell.case_id not in cases:
                gradable.changed += 1
                continue
            stored = answer_at(reader, cell.request_hash, cell.answer_no)
            if stored is None:
                gradable.gone += 1
                continue
            output = parse_output(stored.completion.text, prompt.expect, prompt.output)
            answer = StoredAnswer(stored.completion, stored.answer_no, False, stored.cost_microusd)
            gradable.texts.append(StoredText(cell, cases[cell.case_id], output, answer))
        if not gradable.texts:
            raise UsageError(
                f"no answer of run {run.id} can be graded again: its prompts or cases have "
                "changed, or its texts are no longer stored",
                hint="start a new run: edison run",
            )
        return gradable


@dataclass(frozen=True, slots=True)
class SecondGrade:
    """An answer with its new grade."""

    text: StoredText
    grade: CellGrade

    @property
    def flipped(self) -> bool:
        """Whether one of the two grades lets it pass and the other does not."""
        before, after = self.text.cell.passed, self.grade.passed
        return before is not None and after is not None and before != after

    @property
    def why_not(self) -> str:
        """Why it has no grade; empty if it has one."""
        grade = self.grade
        if grade.status is CellStatus.ERROR:
            return grade.reason
        if grade.status is not CellStatus.OK or grade.composite is not None:
            return ""
        wrong = (
            component.reason
            for component in grade.components
            if component.status is CellStatus.ERROR
        )
        return next(wrong, "no score")


@dataclass(slots=True)
class SecondOpinion:
    """What other judges say of stored answers."""

    grades: list[SecondGrade]
    exhausted: str = ""
    """The budget that was used up."""
    usage: BudgetUsage | None = None

    @property
    def graded(self) -> list[SecondGrade]:
        """Those with a score on both sides."""
        return [
            second
            for second in self.grades
            if second.grade.composite is not None and second.text.cell.composite is not None
        ]

    @property
    def failed(self) -> list[SecondGrade]:
        """Those that the judges could not grade."""
        return [second for second in self.grades if second.why_not]

    def means(self) -> tuple[float, float] | None:
        """Return the mean score before and now, over the same answers."""
        graded = self.graded
        if not graded:
            return None
        before = mean([second.text.cell.composite or 0.0 for second in graded])
        return before, mean([second.grade.composite or 0.0 for second in graded])


def judge_requests(
    project: Project, variant: Experiment, texts: Sequence[StoredText]
) -> Iterator[tuple[Model, Request]]:
    """Yield the calls to judges of a rubric, to estimate their cost."""
    panel = load_panel(project, variant)
    for judge in panel.judges if panel is not None else ():
        if isinstance(judge, Pointwise):
            for text in texts:
                yield judge.judge.model, judge.request(text.case, text.output.text)


def grade_again(
    project: Project,
    variant: Experiment,
    texts: Sequence[StoredText],
    context: RunContext,
    *,
    budget_microusd: int | None = None,
) -> SecondOpinion:
    """Let the judges of a variant grade stored answers; nothing of their run changes."""
    opinion = SecondOpinion([])

    async def grade() -> None:
        opened = standalone_client(project, variant, context, purpose="opinion", newer_than="")
        async with opened as clients:
            opinion.usage = clients.usage
            budget = clients.budget
            if budget_microusd is not None:
                scope = f"run:{budget.run_id}"
                cap = SpendingCap(scope, None, microusd=budget_microusd, name="--budget")
                budget.caps = (*budget.caps, cap)
            grading = context.grading(project, variant, clients)
            rest = iter(texts)
            workers = max((m.limits.concurrency for m in variant.judges), default=1)
            async with asyncio.TaskGroup() as group:
                for _ in range(min(workers, len(texts))):
                    group.create_task(_work(rest, grading, opinion))

    asyncio.run(grade())
    order = {id(text): number for number, text in enumerate(texts)}
    opinion.grades.sort(key=lambda second: order[id(second.text)])
    return opinion


async def _work(rest: Iterator[StoredText], grading: Grading, opinion: SecondOpinion) -> None:
    for text in rest:
        if opinion.exhausted:
            return
        try:
            grade = await grading.grade(text.case, text.output, text.answer)
        except BudgetExhausted as error:
            opinion.exhausted = error.refused.cap.name
            return
        opinion.grades.append(SecondGrade(text, grade))
