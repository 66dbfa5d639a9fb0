"""Grading by checks: the score of each, here or at a worker, with embeddings that they compare."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.checks import child, structure
from edison_ci.checks.evaluation import CodeAtWorker, EvaluationError, ParsedAnswer
from edison_ci.checks.time_limit import run_limited
from edison_ci.config import program_files
from edison_ci.contracts import CallError
from edison_ci.documents import files
from edison_ci.errors import UsageError
from edison_ci.execute.clients import judge_caller
from edison_ci.judges import judge
from edison_ci.numeric import reaches
from edison_ci.providers import openai_endpoints
from edison_ci.records import CellStatus
from edison_ci.safety.redaction import Redact, keep_text, redactor
from edison_ci.store.cells import UNSCORED, Component
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
    from edison_ci.providers.budget import StoredAnswer
    from edison_ci.records import Case, Json

logger = logging.getLogger(__name__)


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
        embeddings = await judge.run_concurrently([self._embed(*key) for key in keys])
        return dict(zip(keys, embeddings, strict=True))

    async def _embed(self, by: str, text: str) -> str | EvaluationError:
        try:
            request = openai_endpoints.embedding_request(self.models[by], text)
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
    """Of a check that sets none."""
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

    async def shown_only(self, case: Case, output: Output, answer: StoredAnswer) -> list[Component]:
        """Return what the checks that make no call say of a malformed answer; nothing counts it."""
        graders = dataclasses.replace(self, embedder=None)
        components = await graders.components(case, output, answer)
        return [
            dataclasses.replace(component, kind=UNSCORED, weight=0.0)
            for component in components
            if component.status is CellStatus.OK
        ]

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
        components = [
            await self._component_elsewhere(name, check, weight, answered)
            if self.executor is not None or (name not in self.quick and check.blocking)
            else _component(name, check, weight, answered)
            for name, check, weight in checks
        ]
        if self.redact is not keep_text:
            components = [
                dataclasses.replace(component, reason=self.redact(component.reason))
                for component in components
            ]
        return components

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
            except CodeAtWorker as code:
                assert self.executor is not None and answered.outcomes is not None
                outcome = await self.executor.check(code.program, code.request)
                answered.outcomes[code.program] = outcome

    def _declared(self, schema: Json) -> Iterator[tuple[str, Check, float]]:
        """Yield the check by the schema of the prompt, unless a check of the user is the same."""
        if not isinstance(schema, dict):
            return
        for _, check, _ in self.checks:
            if isinstance(check, structure.JsonSchema):
                own = check.value
                if (self.schemas.get(own) if isinstance(own, str) else own) == schema:
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
    digests = {check.program: program_files.check_digest(check, tree) for check in checks}
    return {program: digest for program, digest in digests.items() if digest}


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
    except Exception as error:  # a check may be a plugin's; the run must continue
        logger.debug("a check failed", exc_info=True, extra={"check": name})
        reason = f"{type(error).__name__}: {error}"
        return Component(name, "check", None, None, weight, CellStatus.ERROR, reason)
    good = reaches(grade.score, check.passes_at) if grade.passed is None else grade.passed
    return Component(name, "check", grade.score, good, weight, CellStatus.OK, grade.reason)
