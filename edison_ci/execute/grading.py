"""Grading of an answer: checks, screens, judges and graders.

A malformed answer scores 0 and is not judged; a blocked one is not judged or shown. For the
others composite and pass follow one rule: the composite is the weighted mean of the components, a
skipped check leaves both, a component in error makes both missing, and a repeat passes when every
component reaches its threshold. A grader that fails is a value, never a crash.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from contextvars import ContextVar
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.checks import child, structure
from edison_ci.checks.evaluation import (
    CodeAtWorker,
    EvaluationError,
    ParsedAnswer,
    cut_off_note,
)
from edison_ci.checks.time_limit import run_limited
from edison_ci.config import program_files
from edison_ci.config.screens import TextScreens
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.documents import files
from edison_ci.errors import UsageError
from edison_ci.judges import judge, panel
from edison_ci.numeric import reaches, weighted_mean
from edison_ci.providers import openai_embeddings
from edison_ci.providers.resilience import ClientClosed
from edison_ci.records import CellStatus, canonical_json
from edison_ci.safety import screen as safety_screen
from edison_ci.safety.redaction import Redact, keep_text, redactor
from edison_ci.store.cells import CELL_STATUSES, COUNTED, Component
from edison_ci.store.judgments import JudgeScoreRow, Judgment
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from edison_ci.checks.options import Check
    from edison_ci.checks.output import Output
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.contracts import Executor
    from edison_ci.execute.clients import ClientPool
    from edison_ci.judges.judge import Ask
    from edison_ci.judges.moderation import Moderator
    from edison_ci.judges.panel import ExperimentJudges, JudgeComponent
    from edison_ci.judges.pointwise import JudgeScores
    from edison_ci.providers.budget import StoredAnswer
    from edison_ci.records import Case, Completion, Json, Request
    from edison_ci.safety.screen import ScreenResult

logger = logging.getLogger(__name__)


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


@dataclass(frozen=True, slots=True)
class Embedder:
    """Fetches the embeddings that checks compare."""

    models: Mapping[str, Model]
    ask: Ask

    async def embed(
        self, texts: Iterable[tuple[str, str]]
    ) -> dict[tuple[str, str], str | EvaluationError]:
        """Return the stored embedding by model and text, or why there is none."""
        keys = list(dict.fromkeys(texts))
        found = await judge.run_concurrently([self._embed(*key) for key in keys])
        return dict(zip(keys, found, strict=True))

    async def _embed(self, by: str, text: str) -> str | EvaluationError:
        try:
            request = openai_embeddings.embedding_request(self.models[by], text)
            return (await self.ask(by, request)).text
        except CallError as error:
            return EvaluationError(f"no embedding of {by}: {error}")


@dataclass(frozen=True, slots=True)
class CheckGrader:
    """Grades answers with checks."""

    checks: tuple[tuple[str, Check, float], ...]
    """Name, check and weight."""
    schemas: Mapping[str, Json]
    root: Path | None
    """Where code checks find their files; None when no code may run."""
    weight: float = 1.0
    """Of a check that has none of its own."""
    redact: Redact = keep_text
    """What is done to the reason of a check, which may quote the case."""
    embedder: Embedder | None = None
    """For checks that compare embeddings of a model; None if there is none."""
    executor: Executor[Model] | None = None
    """Runs the code of checks at workers; None if it runs here."""
    quick: frozenset[str] = frozenset()
    """Names of checks that are known not to block."""
    places: asyncio.Semaphore = dataclasses.field(
        default_factory=lambda: asyncio.Semaphore(os.cpu_count() or 1)
    )
    """For checks that block; more at once would reach their limit of time because of each other."""

    @classmethod
    def of(cls, project: Project, experiment: Experiment, clients: ClientPool) -> CheckGrader:
        """Return the grader of an experiment's checks."""
        file = experiment.file
        beside = file.rubric is not None or file.judges.graders
        default = 0.0 if beside else 1.0
        checks = tuple(
            (name, check, default if check.weight is None else check.weight)
            for name, check in file.named_checks().items()
        )
        root = code_folder(project)
        if root is not None and any(check.needs_code for _, check, _ in checks):
            refuse_without_sandbox()
        redact = redactor(project.file.settings, file.safety)
        ask = judge_caller(project, clients, phase="embed")
        embedder = Embedder(project.models, ask) if experiment.embedders() else None
        quick = frozenset(name for name, check, _ in checks if not check.blocking)
        schemas, executor = experiment.schemas, clients.executor
        return cls(checks, schemas, root, default, redact, embedder, executor, quick)

    async def components(self, case: Case, output: Output, answer: StoredAnswer) -> list[Component]:
        """Return the score of each check; blocking checks run in a thread."""
        answered = ParsedAnswer(
            case,
            output.text,
            answer.completion,
            cost_microusd=answer.cost_microusd,
            schemas=self.schemas,
            root=self.root,
            outcomes=None if self.executor is None else {},
        )
        checks = self.checks
        if output.schema is not None:
            checks = (*checks, *self._declared(output.schema))
        if self.embedder is not None:
            texts = [text for _, check, _ in checks for text in check.texts_to_embed(answered)]
            answered.embeddings.update(await self.embedder.embed(texts))
        found = [
            await self._component_elsewhere(name, check, weight, answered)
            if self.executor is not None or (name not in self.quick and check.blocking)
            else _component(name, check, weight, answered)
            for name, check, weight in checks
        ]
        if self.redact is not keep_text:
            found = [
                dataclasses.replace(component, reason=self.redact(component.reason))
                for component in found
            ]
        return found

    async def _component_elsewhere(
        self, name: str, check: Check, weight: float, answered: ParsedAnswer
    ) -> Component:
        """Return the score of a check, again when a worker has run the code that it needs."""
        while True:
            try:
                if check.blocking:
                    async with self.places:
                        return await asyncio.to_thread(_component, name, check, weight, answered)
                return _component(name, check, weight, answered)
            except CodeAtWorker as wanted:
                assert self.executor is not None and answered.outcomes is not None
                outcome = await self.executor.check(wanted.program, wanted.request)
                answered.outcomes[wanted.program] = outcome

    def _declared(self, schema: Json) -> Iterator[tuple[str, Check, float]]:
        """Yield the check by the schema of the prompt, unless a check of the user is the same."""
        if not isinstance(schema, dict):
            return
        for _, check, _ in self.checks:
            if isinstance(check, structure.JsonSchema):
                given = check.value
                if (self.schemas.get(given) if isinstance(given, str) else given) == schema:
                    return
        yield "output schema", structure.JsonSchema.model_construct(value=schema), self.weight


def code_folder(project: Project) -> Path | None:
    """Return the folder of the checks' code; None if they may not run any."""
    if not project.file.settings.allow_code:
        return None
    return project.code_root if project.proposed else project.root


def check_programs(project: Project, experiment: Experiment) -> dict[str, str]:
    """Return what the code checks are called with and the hashes of their files.

    It has only those that workers can recognise, and none if no code may run.
    """
    root = code_folder(project)
    if root is None:
        return {}
    tree = files.WorkingTree(root)
    checks = [check for check in experiment.all_checks() if check.program]
    found = {check.program: program_files.check_digest(check, tree) for check in checks}
    return {program: digest for program, digest in found.items() if digest}


def refuse_without_sandbox() -> None:
    """Refuse code that would run without a sandbox, before any call is paid for."""
    if fault := child.sandbox_fault():
        raise UsageError(
            f"{fault}, so checks of type python and command do not run",
            hint="allow unprivileged user namespaces; or, if you trust the code with your keys and "
            "files, add --allow-code-without-sandbox",
        )


def _component(name: str, check: Check, weight: float, answered: ParsedAnswer) -> Component:
    try:
        grade = run_limited("the check", lambda: check.evaluate(answered))
    except MissingValueError as error:
        return Component(name, "check", None, None, weight, CellStatus.SKIPPED, str(error))
    except (RenderError, EvaluationError) as error:
        return Component(name, "check", None, None, weight, CellStatus.ERROR, str(error))
    except Exception as error:  # a check may be a plugin's; the run must go on
        logger.debug("a check failed", exc_info=True, extra={"check": name})
        reason = f"{type(error).__name__}: {error}"
        return Component(name, "check", None, None, weight, CellStatus.ERROR, reason)
    good = reaches(grade.score, check.passes_at) if grade.passed is None else grade.passed
    return Component(name, "check", grade.score, good, weight, CellStatus.OK, grade.reason)


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
        found = tuple(_safety_components(screened, "input_"))
        return CellGrade(CellStatus.BLOCKED, None, False, found, reason)

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
            or any(redacts(each.file.safety) for each in project.experiments.values()),
        )

    async def grade(self, case: Case, output: Output, answer: StoredAnswer) -> CellGrade:
        """Return status, composite, pass and components of an answer."""
        judgments = record_judgments()
        if output.failed:
            return CellGrade(CellStatus.ERROR, None, None, reason=output.failed)
        try:
            found, blocked = await self._screen(output)
            found = [*self.inputs.findings(case), *found]
        except EvaluationError as error:
            return CellGrade(CellStatus.ERROR, None, None, reason=str(error))
        if blocked:
            reason = f"blocked: {', '.join(blocked)}"
            return CellGrade(
                CellStatus.BLOCKED, None, False, tuple(found), reason, tuple(judgments)
            )
        if output.malformed:
            reason = cut_off_note(output.malformed, answer.completion)
            return CellGrade(
                CellStatus.MALFORMED, 0.0, False, tuple(found), reason, tuple(judgments)
            )
        found += await self.checks.components(case, output, answer)
        judge_scores: tuple[JudgeScoreRow, ...] = ()
        if self.judging is not None:
            judged = await self.judging.judge(case, output.text)
            found += map(_stored_component, (*judged.components, *judged.criteria))
            found += (
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
            composite_of(found),
            passes(found),
            tuple(map(self._as_stored, found)),
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
        found: list[Component] = []
        if self.screened:
            safety = self.experiment.file.safety
            screened = run_limited(
                "screening the answer",
                lambda: safety_screen.screen(output.raw, safety, redacted=self.redacted),
            )
            found = _safety_components(screened)
            if screened.status == "block":  # not even judges see a blocked answer
                return found, _blocking(screened)
        blocked: list[str] = []
        for moderator in self.moderators:
            result = await moderator.screen(output.raw, self.ask)
            status = CellStatus.OK if result.failure is None else CellStatus.ERROR
            if result.failure is not None or result.action != "off":
                score = None if result.failure is not None else 0.0
                reason = result.reason if result.failure else f"{result.action}: {result.reason}"
                found.append(Component(result.kind, "safety", score, None, 0.0, status, reason))
            if result.action == "block":
                blocked.append(result.kind)
        return found, blocked


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


_judgments: ContextVar[list[Judgment]] = ContextVar("_judgments")
"""Replies of judges on the current cell; every worker has its own list."""


def record_judgments() -> list[Judgment]:
    """Return the list to which every reply of a judge is added from now on, in this task."""
    judgments: list[Judgment] = []
    _judgments.set(judgments)
    return judgments


def judge_caller(project: Project, clients: ClientPool, *, phase: str = "judge") -> Ask:
    """Return the function that calls judges, through the same clients as all other calls.

    What it returns is stored with the cell that is graded.
    """

    async def ask(name: str, request: Request) -> Completion:
        calls = clients.calls_of(phase, name)
        try:
            answer = await clients.of(project.models[name], phase).answer(request)
        except ClientClosed as closed:
            # The answer is stored and may be judged later; only its judgment is missing.
            error = CallError(ErrorKind.PROVIDER_ERROR, closed.reason, charged=False)
            calls.fail(error)
            calls.final = True
            raise error from None
        except CallError as error:
            calls.fail(error)
            raise
        calls.answered += 1
        _judgments.get().append(Judgment(name, request.request_hash, answer.answer_no))
        return answer.completion

    return ask


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
