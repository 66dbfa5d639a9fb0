"""Grading of an answer: checks, screens, judges and graders.

A malformed answer scores 0 and is not judged; checks that make no call are shown for it. A blocked
one is not judged or shown. For the others composite and pass follow one rule: the composite is the
weighted mean of the components, a skipped check leaves both, a component in error makes both
missing, and a repeat passes when every component reaches its threshold. A grader that fails is a
value, never a crash.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.checks.evaluation import EvaluationError, cut_off_note
from edison_ci.checks.output import parse_output
from edison_ci.checks.time_limit import run_limited
from edison_ci.config.screens import TextScreens
from edison_ci.execute.check_grading import CheckGrader
from edison_ci.execute.clients import judge_caller, record_judgments
from edison_ci.judges import panel
from edison_ci.numeric import weighted_mean
from edison_ci.records import CellStatus, canonical_json
from edison_ci.safety import screen as safety_screen
from edison_ci.store.cells import CELL_STATUSES, COUNTED, FORM, Component
from edison_ci.store.judgments import JudgeScoreRow, Judgment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edison_ci.checks.output import Output
    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.clients import ClientPool
    from edison_ci.judges.judge import Ask
    from edison_ci.judges.moderation import Moderator
    from edison_ci.judges.panel import ExperimentJudges, JudgeComponent
    from edison_ci.judges.pointwise import JudgeScores
    from edison_ci.providers.budget import StoredAnswer
    from edison_ci.records import Case
    from edison_ci.safety.screen import ScreenResult


@dataclass(frozen=True, slots=True)
class CellGrade:
    """Grade of an answer."""

    status: CellStatus
    composite: float | None
    passed: bool | None
    components: tuple[Component, ...] = ()
    reason: str = ""
    judgments: tuple[Judgment, ...] = ()
    judge_scores: tuple[JudgeScoreRow, ...] = ()
    """Scores of each judge of the rubric, before they are combined."""


def _safety_components(screened: ScreenResult, prefix: str = "") -> list[Component]:
    """Return a component for each kind that a screen found; its reason begins with the action."""
    return [
        Component(
            f"{prefix}{kind}",
            "safety",
            0.0,
            None,
            0.0,
            CellStatus.OK,
            f"{screened.action(kind)}: {screened.found(kind)}",
        )
        for kind in sorted(screened.kinds)
    ]


def _blocking(screened: ScreenResult) -> list[str]:
    return [kind for kind in sorted(screened.kinds) if screened.action(kind) == "block"]


def redacts(screens: TextScreens) -> bool:
    """Whether screens redact what they find."""
    return bool(screens.pii.redacted_kinds()) or screens.secrets == "redact"


@dataclass(frozen=True, slots=True)
class InputScreen:
    """Screens the inputs of cases before they are sent."""

    screens: TextScreens
    active: bool

    @classmethod
    def of(cls, experiment: Experiment) -> InputScreen:
        """Return the screen of an experiment's inputs."""
        screens = experiment.file.safety.inputs
        active = bool(screens.active())
        if active:
            safety_screen.prepare_screens(screens)
        return cls(screens, active)

    def findings(self, case: Case) -> list[Component]:
        """Return what is found in the inputs of a case."""
        return _safety_components(self._screen(case), "input_") if self.active else []

    def blocked(self, case: Case) -> CellGrade | None:
        """Return the grade of a case whose inputs may not be sent; None if they may."""
        if not self.active:
            return None
        try:
            screened = self._screen(case)
        except EvaluationError as error:
            return CellGrade(CellStatus.BLOCKED, None, False, reason=f"blocked: {error}")
        if screened.status != "block":
            return None
        reason = f"blocked: {', '.join(_blocking(screened))} in the input"
        components = tuple(_safety_components(screened, "input_"))
        return CellGrade(CellStatus.BLOCKED, None, False, components, reason)

    def _screen(self, case: Case) -> ScreenResult:
        text = "\n".join(
            value if isinstance(value, str) else canonical_json(value)
            for value in case.inputs.values()
        )
        return run_limited(
            "screening the input",
            lambda: safety_screen.screen(text, self.screens, redacted=redacts(self.screens)),
        )


@dataclass(frozen=True, slots=True)
class CellGrader:
    """Grades answers with everything an experiment has: screens, checks, judges, graders."""

    experiment: Experiment
    checks: CheckGrader
    judging: ExperimentJudges | None
    moderators: tuple[Moderator, ...]
    ask: Ask
    inputs: InputScreen
    screened: bool
    """Whether anything is looked for in the texts of answers."""
    redacted: bool
    """Whether an answer may have been redacted: experiments share answers to equal requests."""

    @classmethod
    def of(cls, project: Project, experiment: Experiment, clients: ClientPool) -> CellGrader:
        """Return the grader of an experiment; its judges are called through `clients`."""
        ask, file = judge_caller(project, clients), experiment.file
        judging = None
        if experiment.rubric is not None or file.judges.graders:
            judging = panel.ExperimentJudges.of(project, experiment, ask)
        if judging is not None:
            judging.set_up()
        screened = bool(TextScreens.active(file.safety))
        if screened:
            safety_screen.prepare_screens(file.safety)
        by_model = file.safety.moderation is not None or file.safety.toxicity is not None
        return cls(
            experiment,
            CheckGrader.of(project, experiment, clients),
            judging,
            panel.moderators(project, experiment) if by_model else (),
            ask,
            InputScreen.of(experiment),
            screened,
            project.file.settings.redact_pii_before_storage
            or any(redacts(experiment.file.safety) for experiment in project.experiments.values()),
        )

    async def grade(self, case: Case, output: Output, answer: StoredAnswer) -> CellGrade:
        """Return status, composite, pass and components of an answer."""
        judgments = record_judgments()
        if output.failed:
            return CellGrade(CellStatus.ERROR, None, None, reason=output.failed)
        try:
            components, blocked = await self._screen(output)
            components = [*self.inputs.findings(case), *components]
        except EvaluationError as error:
            return CellGrade(CellStatus.ERROR, None, None, reason=str(error))
        if blocked:
            reason = f"blocked: {', '.join(blocked)}"
            return CellGrade(
                CellStatus.BLOCKED, None, False, tuple(components), reason, tuple(judgments)
            )
        if output.malformed:
            reason = cut_off_note(output.malformed, answer.completion)
            components += await self.checks.shown_only(case, output, answer)
            return CellGrade(
                CellStatus.MALFORMED, 0.0, False, tuple(components), reason, tuple(judgments)
            )
        components += _mentioned_forms(output)
        components += await self.checks.components(case, output, answer)
        judge_scores: tuple[JudgeScoreRow, ...] = ()
        if self.judging is not None:
            judged = await self.judging.judge(case, output.text)
            components += map(_stored_component, (*judged.components, *judged.criteria))
            components += (
                Component(flag, "flag", 0.0, None, 0.0, CellStatus.OK, "a judge")
                for flag in judged.flags
            )
            judge_scores = tuple(
                _judge_score_row(judge_score, criterion.name)
                for judge_score in judged.judge_scores
                for criterion in judged.criteria
            )
        return CellGrade(
            CellStatus.OK,
            composite_of(components),
            passes(components),
            tuple(map(self._as_stored, components)),
            "",
            tuple(judgments),
            judge_scores,
        )

    def _as_stored(self, component: Component) -> Component:
        """Return the component; a rubric without a threshold does not pass, it is only scored."""
        rubric = self.experiment.rubric
        if component.kind != "rubric" or rubric is None or rubric.can_fail:
            return component
        return dataclasses.replace(component, passed=None)

    async def _screen(self, output: Output) -> tuple[list[Component], list[str]]:
        """Return the findings of the screens, and the kinds for which the answer is blocked."""
        components: list[Component] = []
        if self.screened:
            safety = self.experiment.file.safety
            screened = run_limited(
                "screening the answer",
                lambda: safety_screen.screen(output.raw, safety, redacted=self.redacted),
            )
            components = _safety_components(screened)
            if screened.status == "block":  # not even judges see a blocked answer
                return components, _blocking(screened)
        blocked: list[str] = []
        for moderator in self.moderators:
            result = await moderator.screen(output.raw, self.ask)
            status = CellStatus.OK if result.failure is None else CellStatus.ERROR
            if result.failure is not None or result.action != "off":
                score = None if result.failure is not None else 0.0
                reason = result.reason if result.failure else f"{result.action}: {result.reason}"
                components.append(
                    Component(result.kind, "safety", score, None, 0.0, status, reason)
                )
            if result.action == "block":
                blocked.append(result.kind)
        return components, blocked


def _mentioned_forms(output: Output) -> list[Component]:
    """Return whether an answer has each form that its prompt only mentions; nothing counts it."""
    components = []
    for form in output.mentioned.replace("none", "").split("+"):
        if form:
            fault = parse_output(output.raw, form).malformed
            score = 0.0 if fault else 1.0
            reason = fault or "it parses, though it need not"
            components.append(Component(form, FORM, score, None, 0.0, CellStatus.OK, reason))
    return components


def _stored_component(part: JudgeComponent) -> Component:
    status = CELL_STATUSES[part.status]
    return Component(
        part.name, part.kind, part.score, part.passed, part.weight, status, part.reason
    )


def _judge_score_row(judge_score: JudgeScores, criterion: str) -> JudgeScoreRow:
    """Return the score of one judge on one criterion, or why it is missing."""
    scored = judge_score.verdict.scores.get(criterion) if judge_score.verdict is not None else None
    if scored is not None:
        return JudgeScoreRow(
            judge_score.judge, criterion, scored.raw, scored.share, None, scored.reason
        )
    why = judge_score.missing(criterion)
    kind, reason = ("judge_error", "") if why is None else (str(why.kind), why.reason)
    return JudgeScoreRow(judge_score.judge, criterion, None, None, kind, reason)


def composite_of(components: Iterable[Component]) -> float | None:
    """Return the weighted mean of the components; None when one is in error or none has weight."""
    weighted: list[tuple[float, float]] = []
    for component in components:
        if component.kind not in COUNTED:
            continue
        if component.status is CellStatus.ERROR:
            return None
        if component.status is CellStatus.OK and component.score is not None:
            weighted.append((component.weight, component.score))
    return weighted_mean(weighted)


def passes(components: Iterable[Component]) -> bool | None:
    """Whether every component reaches its threshold; None with an error.

    Skipped ones do not count: an answer that nothing has graded neither passes nor fails.
    """
    verdict: bool | None = None
    for component in components:
        if component.kind not in COUNTED or component.status is CellStatus.SKIPPED:
            continue
        if component.status is CellStatus.ERROR or component.passed is None:
            return None
        verdict = component.passed if verdict is None else verdict and component.passed
    return verdict
