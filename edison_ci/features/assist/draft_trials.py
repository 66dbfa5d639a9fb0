"""Trials of drafts: answers to new cases, and scores by proposed judges, without a run."""

from __future__ import annotations

import datetime as dt
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.contracts import CallError
from edison_ci.errors import CallFailed
from edison_ci.execute.standalone import NotAnswered, TrialAnswer, try_all, try_once
from edison_ci.execute.tasks import Task, request_for
from edison_ci.numeric import weighted_mean
from edison_ci.plan import selection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.execute.run_options import RunContext
    from edison_ci.records import Case, Request
    from edison_ci.store.judgments import JudgeScoreRow


@dataclass(slots=True)
class CaseAttempts:
    """Results of answering and grading cases, by their ids."""

    failing: dict[str, str] = field(default_factory=dict)
    """The first reason why an answer fails."""
    unknown: set[str] = field(default_factory=set)
    """Cases without a grade."""
    problems: list[str] = field(default_factory=list)
    cost_microusd: int = 0


def tasks_of(experiment: Experiment, cases: Sequence[Case]) -> list[Task]:
    """Return the tasks that answer each case with every model of an experiment."""
    prompt = experiment.prompts[0]
    configurations = experiment.configurations(prompt)
    return [Task(prompt, config, case, 0) for case in cases for config in configurations]


def calls_of(tasks: Sequence[Task]) -> Iterator[tuple[Model, Request]]:
    """Yield the requests of tasks, for an estimate of their cost."""
    return ((task.configuration.model, request_for(task)) for task in tasks)


def try_cases(
    project: Project,
    experiment: Experiment,
    tasks: Sequence[Task],
    context: RunContext,
    budget_microusd: int | None,
) -> CaseAttempts:
    """Answer and grade cases; answers stored before do not count."""
    attempts = CaseAttempts()

    def keep(number: int, answer: TrialAnswer | Exception) -> None:
        task = tasks[number]
        name = str(task.case.id)
        if isinstance(answer, Exception):
            attempts.unknown.add(name)
            attempts.problems.append(str(answer))
        elif answer.grade.passed is None:
            attempts.unknown.add(name)
        elif not answer.grade.passed:
            reason = f"{task.configuration.name}: {_why(answer)}"
            attempts.failing.setdefault(name, reason)

    attempts.cost_microusd = try_all(
        project,
        tasks,
        experiment,
        context,
        newer_than=utc.timestamp(context.now()),
        on_result=keep,
        budget_microusd=budget_microusd,
    )
    return attempts


def _why(answer: TrialAnswer) -> str:
    """Return the first reason why an answer fails."""
    failed = [part for part in answer.grade.components if part.passed is False]
    if failed:
        return f"{failed[0].name}: {' '.join(failed[0].reason.split())[:200]}"
    return " ".join(answer.grade.reason.split())[:200] or "the score is too low"


class JudgeTrial(NamedTuple):
    """What one judge scores for an answer."""

    name: str
    score: float | None
    """The weighted score, from 0 to 1; None if a criterion has none."""
    criteria: tuple[JudgeScoreRow, ...]


class PanelTrial(NamedTuple):
    """What the judges score for one answer."""

    case: str
    model: str
    answer: str
    reason: str
    """Why the answer was not judged; empty if it was."""
    judges: tuple[JudgeTrial, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the trial as it is printed with --json."""
        rows = [
            {
                "judge": judge.name,
                "score": judge.score,
                "criteria": [
                    {
                        "name": row.criterion,
                        "score": row.score,
                        "missing": row.missing,
                        "reason": row.reason,
                    }
                    for row in judge.criteria
                ],
            }
            for judge in self.judges
        ]
        return {**self._asdict(), "judges": rows}


def try_panel(
    project: Project, experiment: Experiment, case_id: str, context: RunContext
) -> PanelTrial:
    """Score the stored answer to a case, or a new one; raises CallFailed."""
    prompt, case = experiment.prompts[0], selection.find_case(project, experiment, case_id)
    configuration = selection.find_configuration(experiment, prompt, None)
    assert configuration is not None, "an experiment has at least one model"
    assert experiment.rubric is not None, "judges score a rubric"
    reuse = dt.timedelta(days=project.file.settings.reuse_days)
    newer_than = utc.timestamp(context.now() - reuse)
    task = Task(prompt, configuration, case, 0)
    try:
        tried = try_once(project, task, experiment, context, newer_than=newer_than)
    except (CallError, NotAnswered) as error:
        raise CallFailed(str(error), hint="see: edison models test") from None
    weights = {criterion.name: criterion.weight for criterion in experiment.rubric.criteria}
    rows = tried.grade.judge_scores
    judges = tuple(
        JudgeTrial(name, _weighted(mine, weights), mine)
        for name in dict.fromkeys(row.judge for row in rows)
        for mine in [tuple(row for row in rows if row.judge == name)]
    )
    text = tried.answer.completion.text
    reason = "" if judges else tried.grade.reason or "no judge answered"
    return PanelTrial(case.id, configuration.name, text, reason, judges)


def _weighted(rows: Sequence[JudgeScoreRow], weights: Mapping[str, float]) -> float | None:
    scored = [(weights[row.criterion], row.score) for row in rows if row.score is not None]
    return weighted_mean(scored) if len(scored) == len(weights) else None
