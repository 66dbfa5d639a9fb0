"""Regrading: stored answers graded again, as a new run or as a second opinion beside the grades."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.api import evaluation
from edison_ci.api import sessions as run_sessions
from edison_ci.config import requirements
from edison_ci.documents.record_json import Document, fields_of
from edison_ci.errors import CallFailed, UsageError
from edison_ci.execute import run_options, second_opinion
from edison_ci.results import stored_runs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.execute.second_opinion import GradableTexts, SecondGrade, SecondOpinion
    from edison_ci.records import Request
    from edison_ci.store.runs import Run


@dataclass(frozen=True, slots=True)
class RegradeRequest:
    """The run to grade again, which part of it, and by whom."""

    run: str | None
    judges: tuple[str, ...]
    rubric: str | None
    cases: tuple[str, ...]
    failed: bool
    no_cache: bool
    budget: float | None
    """In dollars."""
    yes: bool
    allow_code: bool
    wait: bool

    @property
    def part(self) -> second_opinion.GradedPart:
        """The part that gets a second opinion; false for the whole run."""
        return second_opinion.GradedPart(self.judges, self.rubric, self.cases, self.failed)

    @property
    def budget_microusd(self) -> int | None:
        """The budget; None for none."""
        return None if self.budget is None else round(self.budget * 1e6)

    @property
    def options(self) -> evaluation.GradingRequest:
        """The options of the new run, where the whole run is graded."""
        return evaluation.GradingRequest(
            self.budget_microusd,
            allow_code=self.allow_code,
            wait=self.wait,
            reuse=not self.no_cache,
        )

    def refuse_mixed(self) -> None:
        """Raise UsageError for options that exclude each other."""
        if self.part and self.no_cache:
            raise UsageError(
                "--no-cache grades a whole run again",
                hint="leave out --judge, --rubric, --case, --failed",
            )


class Opinion(NamedTuple):
    """A second opinion on stored answers, beside the grades of their run."""

    run: Run
    variant: Experiment
    texts: GradableTexts
    opinion: SecondOpinion

    @property
    def judges(self) -> list[str]:
        """The models and plugins that judge."""
        return [*(model.name for model in self.variant.judges), *self.variant.judge_plugins]

    @property
    def rubric(self) -> str | None:
        """The name of the rubric."""
        return None if self.variant.rubric is None else self.variant.rubric.rubric

    @property
    def simulated(self) -> bool:
        """Whether the answers or a judge are simulated."""
        return self.run.simulated or any(model.simulated for model in self.variant.judges)

    def as_json(self) -> Document:
        """Return it as a command prints it."""
        opinion, usage = self.opinion, self.opinion.usage
        means = opinion.means()
        return {
            "advisory": True,
            "run_id": self.run.id,
            "experiment": self.run.experiment,
            **fields_of(self, "judges", "rubric", "simulated"),
            "answers": [_grade_json(second) for second in opinion.grades],
            "mean": None if means is None else {"before": means[0], "after": means[1]},
            "flipped": sum(second.flipped for second in opinion.grades),
            "left_out": fields_of(self.texts, "changed", "gone"),
            "exhausted": opinion.exhausted or None,
            "calls": None if usage is None else usage.bought,
            "cost_microusd": None if usage is None else usage.cost_microusd,
        }


def _grade_json(second: SecondGrade) -> Document:
    cell, grade = second.text.cell, second.grade
    return {
        "cell": cell.id[:12],
        **fields_of(cell, "prompt", "model", "repeat", case="case_id"),
        "before": fields_of(cell, "composite", "passed"),
        "after": {
            **fields_of(grade, "status", "composite", "passed"),
            "reason": second.why_not or grade.reason,
            "components": [
                fields_of(component, "name", "kind", "score", "passed", "status", "reason")
                for component in grade.components
            ],
        },
    }


class OpinionPlan(NamedTuple):
    """The stored answers that get a second opinion, and who gives it."""

    project: Project
    run: Run
    variant: Experiment
    texts: GradableTexts

    def calls(self) -> Iterator[tuple[Model, Request]]:
        """Yield the calls to judges, to estimate their cost."""
        return second_opinion.judge_requests(self.project, self.variant, self.texts.texts)

    def grade(self, *, offline: bool, budget_microusd: int | None) -> Opinion:
        """Let the judges grade; raises CallFailed if none of them graded an answer."""
        opinion = second_opinion.grade_again(
            self.project,
            self.variant,
            self.texts.texts,
            run_sessions.run_context(self.project, offline=offline),
            budget_microusd=budget_microusd,
        )
        if opinion.grades and len(opinion.failed) == len(opinion.grades):
            raise CallFailed(
                f"no judge graded an answer: {opinion.failed[0].why_not}",
                hint="see: edison models test",
            )
        return Opinion(self.run, self.variant, self.texts, opinion)


def plan_opinion(project: Project, run: Run, request: RegradeRequest) -> OpinionPlan:
    """Return what a second opinion on a run would grade; raises UsageError."""
    run_sessions.require_editor(project, "regrade")
    project = run_options.allow_code(project) if request.allow_code else project
    part = request.part
    variant = part.variant(project, project.experiment(run.experiment))
    requirements.refuse(requirements.missing(project, variant, calls=requirements.GRADING))
    with stored_runs.open_runs(project) as runs:
        texts = second_opinion.GradableTexts.of(runs.connection, project, run, part)
    return OpinionPlan(project, run, variant, texts)
