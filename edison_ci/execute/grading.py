"""Grading of an answer: checks, screens, judges and graders.

A malformed answer is worth nothing and is not judged; a blocked one is not judged or shown. For the
others composite and pass follow one rule: the composite is the weighted mean of the parts, a
skipped check leaves both, a part in error makes both missing, and a draw passes when every part
reaches its threshold. A grader that fails is a value, never a crash.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from contextvars import ContextVar
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.checks.child import sandbox_fault
from edison_ci.checks.evaluation import Answered, EvaluationError
from edison_ci.checks.time_limit import limited
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.errors import UsageError
from edison_ci.judges.judging import Judging, moderating
from edison_ci.providers.resilience import LaneClosed
from edison_ci.rounding import reaches, weighted_mean
from edison_ci.safety.redaction import Redact, redaction, unchanged
from edison_ci.safety.screen import screen
from edison_ci.store.opinions import OpinionRow
from edison_ci.store.runs import COUNTED, Judgment, Part
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from edison_ci.checks.options import Check
    from edison_ci.checks.output import Output
    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.clients import Lanes
    from edison_ci.judges.judging import Ask
    from edison_ci.judges.moderation import Moderator
    from edison_ci.judges.pointwise import Opinion
    from edison_ci.providers.budgeting import Paid
    from edison_ci.records import Case, Completion, Json, Request

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CellGrade:
    """What an answer is worth."""

    status: str
    composite: float | None
    passed: bool | None
    parts: tuple[Part, ...] = ()
    reason: str = ""
    judgments: tuple[Judgment, ...] = ()
    opinions: tuple[OpinionRow, ...] = ()
    """What each judge of the rubric said, before they became one."""


@dataclass(frozen=True, slots=True)
class CheckGrader:
    """Grades answers with checks."""

    checks: tuple[tuple[str, Check, float], ...]
    """Name, check and weight."""
    schemas: Mapping[str, Json]
    root: Path | None
    """Where code checks find their files; None when no code may run."""
    redact: Redact = unchanged
    """What is done to the reason of a check, which may quote the case."""

    @classmethod
    def of(cls, project: Project, experiment: Experiment) -> CheckGrader:
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
            _refuse_without_sandbox()
        redact = redaction(project.file.settings)
        return cls(checks, experiment.schemas, root, redact)

    async def parts(self, case: Case, output: Output, paid: Paid) -> list[Part]:
        """Return what each check says; one that may wait does so in a thread."""
        answered = Answered(
            case,
            output.text,
            paid.completion,
            cost_microusd=paid.cost_microusd,
            schemas=self.schemas,
            root=self.root,
        )
        found = []
        for name, check, weight in self.checks:
            if check.blocking:
                found.append(await asyncio.to_thread(_part, name, check, weight, answered))
            else:
                found.append(_part(name, check, weight, answered))
        if self.redact is not unchanged:
            found = [dataclasses.replace(part, reason=self.redact(part.reason)) for part in found]
        return found


def code_folder(project: Project) -> Path | None:
    """Return where checks find their code; None if they may not run any."""
    if not project.file.settings.allow_code:
        return None
    return project.code_root if project.proposed else project.root


def _refuse_without_sandbox() -> None:
    """Refuse code, before anything is paid for, where it could do whatever it likes."""
    if said := sandbox_fault():
        raise UsageError(
            f"{said}, so checks of type python and command do not run",
            hint="allow unprivileged user namespaces; or, if you trust the code with your keys and "
            "files, add --allow-code-without-sandbox",
        )


def _part(name: str, check: Check, weight: float, answered: Answered) -> Part:
    try:
        grade = limited("the check", lambda: check.evaluate(answered))
    except MissingValueError as error:
        return Part(name, "check", None, None, weight, "skipped", str(error))
    except (RenderError, EvaluationError) as error:
        return Part(name, "check", None, None, weight, "error", str(error))
    except Exception as error:  # a check, perhaps somebody else's; the run must go on
        logger.debug("a check failed", exc_info=True, extra={"check": name})
        reason = f"{type(error).__name__}: {error}"
        return Part(name, "check", None, None, weight, "error", reason)
    good = reaches(grade.score, check.passes_at) if grade.passed is None else grade.passed
    return Part(name, "check", grade.score, good, weight, "ok", grade.reason)


@dataclass(frozen=True, slots=True)
class CellGrader:
    """Grades answers with everything an experiment has: screens, checks, judges, graders."""

    experiment: Experiment
    checks: CheckGrader
    judging: Judging | None
    moderators: tuple[Moderator, ...]
    ask: Ask

    @classmethod
    def of(cls, project: Project, experiment: Experiment, lanes: Lanes) -> CellGrader:
        """Return the grader of an experiment; its judges are asked through lanes."""
        ask = asking(project, lanes)
        return cls(
            experiment,
            CheckGrader.of(project, experiment),
            Judging.of(project, experiment, ask),
            moderating(project, experiment),
            ask,
        )

    async def grade(self, case: Case, output: Output, paid: Paid) -> CellGrade:
        """Return status, composite, pass and parts of an answer."""
        heard = hearing()
        if output.failed:
            return CellGrade("error", None, None, reason=output.failed)
        try:
            found, blocked = await self._screened(output)
        except EvaluationError as error:
            return CellGrade("error", None, None, reason=str(error))
        if blocked:
            reason = f"blocked: {', '.join(blocked)}"
            return CellGrade("blocked", None, False, tuple(found), reason, tuple(heard))
        if output.malformed:
            return CellGrade("malformed", 0.0, False, tuple(found), output.malformed, tuple(heard))
        found += await self.checks.parts(case, output, paid)
        opinions: tuple[OpinionRow, ...] = ()
        if self.judging is not None:
            judged = await self.judging.judge(case, output.text)
            found += (Part(*dataclasses.astuple(p)) for p in (*judged.parts, *judged.criteria))
            found += (Part(flag, "flag", 0.0, None, 0.0, "ok", "a judge") for flag in judged.flags)
            opinions = tuple(
                _opinion(opinion, criterion.name)
                for opinion in judged.opinions
                for criterion in judged.criteria
            )
        parts = tuple(found)
        return CellGrade("ok", composite(found), passed(found), parts, "", tuple(heard), opinions)

    async def _screened(self, output: Output) -> tuple[list[Part], list[str]]:
        """Return what the screens found, and the kinds for which the answer is blocked."""
        safety = self.experiment.file.safety
        redacted = self.checks.redact is not unchanged
        screened = limited(
            "screening the answer", lambda: screen(output.raw, safety, redacted=redacted)
        )
        found = [
            Part(kind, "safety", 0.0, None, 0.0, "ok", getattr(safety, kind))
            for kind in sorted(screened.kinds)
        ]
        if screened.status == "block":  # what is blocked is not shown to anybody, judges included
            return found, [k for k in sorted(screened.kinds) if getattr(safety, k) == "block"]
        blocked: list[str] = []
        for moderator in self.moderators:
            said = await moderator.screen(output.raw, self.ask)
            status = "ok" if said.failure is None else "error"
            if said.failure is not None or said.action != "off":
                score = None if said.failure is not None else 0.0
                found.append(Part(said.kind, "safety", score, None, 0.0, status, said.reason))
            if said.action == "block":
                blocked.append(said.kind)
        return found, blocked


def _opinion(opinion: Opinion, criterion: str) -> OpinionRow:
    """Return what one judge said on one criterion, or why nothing."""
    scored = opinion.verdict.scores.get(criterion) if opinion.verdict is not None else None
    if scored is not None:
        return OpinionRow(opinion.judge, criterion, scored.raw, scored.share, None, scored.reason)
    why = opinion.missing(criterion)
    kind, reason = ("judge_error", "") if why is None else (str(why.kind), why.reason)
    return OpinionRow(opinion.judge, criterion, None, None, kind, reason)


_heard: ContextVar[list[Judgment]] = ContextVar("_heard")
"""What the judges of the cell at hand have said; every worker has its own."""


def hearing() -> list[Judgment]:
    """Return the list to which every reply of a judge is added from now on, in this task."""
    heard: list[Judgment] = []
    _heard.set(heard)
    return heard


def asking(project: Project, lanes: Lanes, *, phase: str = "judge") -> Ask:
    """Return how judges are asked: through the same layer as everybody else."""

    async def ask(name: str, request: Request) -> Completion:
        calls = lanes.calls_of(phase, name)
        try:
            paid = await lanes.of(project.models[name], phase).answer(request)
        except LaneClosed as closed:
            calls.failed += 1
            # The answer is kept and may be judged later; only its judgment is missing.
            raise CallError(ErrorKind.PROVIDER_ERROR, closed.reason, charged=False) from None
        except CallError:
            calls.failed += 1
            raise
        calls.answered += 1
        _heard.get().append(Judgment(name, request.address, paid.take))
        return paid.completion

    return ask


def composite(parts: Iterable[Part]) -> float | None:
    """Return the weighted mean of the parts; None when one is in error or none has weight."""
    weighted: list[tuple[float, float]] = []
    for part in parts:
        if part.kind not in COUNTED:
            continue
        if part.status == "error":
            return None
        if part.status == "ok" and part.score is not None:
            weighted.append((part.weight, part.score))
    return weighted_mean(weighted)


def passed(parts: Iterable[Part]) -> bool | None:
    """Return whether every part reaches its threshold; None without one, or with one in error."""
    verdict: bool | None = None
    for part in parts:
        if part.kind not in COUNTED:
            continue
        verdict = verdict is not False
        if part.status == "skipped":
            continue
        if part.status == "error" or part.passed is None:
            return None
        verdict = verdict and part.passed
    return verdict
