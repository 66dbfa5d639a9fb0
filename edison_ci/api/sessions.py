"""Sessions with real models: providers and keys, budgets, roles, and progress hooks."""

from __future__ import annotations

import asyncio
import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from edison_ci import feature
from edison_ci._dataclass import dataclass
from edison_ci.access import own_results
from edison_ci.access.job import key_environment, on_base_terms
from edison_ci.access.model_keys import KeyUses, audited_caller
from edison_ci.access.site import Role, Site
from edison_ci.errors import UsageError
from edison_ci.execute.budgets import job_cap
from edison_ci.execute.grading import CellGrader
from edison_ci.execute.run_options import RunContext
from edison_ci.execute.session import Session
from edison_ci.feature import off_hint
from edison_ci.safety.redaction import redactor
from edison_ci.sanitize import in_actions
from edison_ci.telemetry import export, spans

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.existing_answers import ImportedAnswers
    from edison_ci.execute.run_options import ConnectWorkers
    from edison_ci.execute.targets import RunTarget
    from edison_ci.providers.budget import Lease
    from edison_ci.providers.replay import ReplayProvider
    from edison_ci.providers.shared_cache import CacheAccess
    from edison_ci.store.audit import AuditEntry
    from edison_ci.store.ledger import SpendingCap
    from edison_ci.store.liveness import ProcessLock

T = TypeVar("T")
RESUMES = "every answer is stored, and edison resume continues from there"
REPEATS = "every answer is stored, and the same command continues from there"


def require_editor(project: Project, action: str) -> None:
    """Raise RoleError, and audit it, if the actor may not make calls."""
    if project.file.members:  # without a list everybody may, and Git need not be asked who it is
        Site(project.root, project.file).require(Role.EDITOR, action)


def run_context(project: Project, *, offline: bool = False) -> RunContext:
    """Return the context of a run: providers with keys from the environment, and graders."""
    terms = on_base_terms(project)
    if terms.proposed:
        own_results.claim_new_results(project)
    environ, site = key_environment(terms), Site(project.root, project.file)
    context = RunContext(
        audited_caller(project, site, offline=offline),
        _grading,
        advice=advice("every answer is stored"),
        cache=_shared_cache(terms, environ, offline=offline),
        job=job_cap(terms, os.environ),
        audit=partial(_audit_entry, site),
        key_used=KeyUses(site),
        lease=partial(_lease, terms, offline),
    )
    for changes_of_context in feature.hooks("run_context"):
        context = replace(context, **changes_of_context(site))
    return context


def _shared_cache(
    terms: Project, environ: Mapping[str, str], *, offline: bool
) -> CacheAccess | None:
    access = feature.hook("shared_cache") if terms.file.cache is not None else None
    if access is None:
        return None
    return cast("CacheAccess | None", access(terms, environ, offline=offline))


def _lease(
    terms: Project, offline: bool, reader: sqlite3.Connection, owner: ProcessLock
) -> Lease | None:
    shared = terms.file.shared_budget
    if shared is None:
        return None
    leased = feature.hook("money_lease")
    if leased is None:  # a budget that cannot be asked allows nothing
        raise UsageError("shared_budget of edison.yaml cannot be asked", hint=off_hint("site"))
    return cast("Lease", leased(terms, shared, reader, owner, offline=offline))


def _audit_entry(site: Site, action: str, experiment: str, after: Any) -> AuditEntry:
    return site.entry(site.actor(), action, experiment, after=after)


def advice(then: str) -> str:
    """Return the hint while a model does not answer; empty in GitHub Actions."""
    return "" if in_actions() else f"Ctrl-C stops it; {then}"


def _grading(project: Project, experiment: Experiment, clients: ClientPool) -> CellGrader:
    return CellGrader.of(on_base_terms(project), experiment, clients)


def run_outside_loop(work: Callable[[], T]) -> T:
    """Run work that starts an event loop, also if one is running, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


@contextlib.contextmanager
def no_hooks() -> Iterator[Mapping[str, Any]]:
    """Yield no hooks."""
    yield {}


@dataclass(frozen=True, slots=True)
class SessionFactory:
    """Creates sessions with progress hooks."""

    offline: bool = False
    hooks: Callable[[], AbstractContextManager[Mapping[str, Any]]] = field(default=no_hooks)
    """Yields the callbacks of `RunContext` for one session."""
    recording: ReplayProvider | None = None
    """A recording that replaces the models."""
    answers: ImportedAnswers | None = None
    """Imported answers that are graded."""
    connect: ConnectWorkers | None = None
    """Connects a run to the workers of a cluster; None if this process makes the calls."""

    @contextlib.contextmanager
    def session(self, target: RunTarget) -> Iterator[Session]:
        """Yield the session of one run."""
        context = run_context(target.project, offline=self.offline)
        if (recording := self.recording) is not None:
            context = replace(context, provider_for=lambda _: recording)
        context = replace(context, answers=self.answers, connect=self.connect)
        with self._exporting(target.project), self.hooks() as hooks:
            context = replace(context, **{"advice": advice(RESUMES), **hooks})
            project = on_base_terms(target.project)
            yield Session(project, target.experiment, context, against=target.against)

    @contextlib.contextmanager
    def context(self, project: Project, loop: SpendingCap | None = None) -> Iterator[RunContext]:
        """Yield the context of a refinement, optionally within the budget of a loop."""
        context = run_context(project, offline=self.offline)
        with self._exporting(project), self.hooks() as hooks:
            yield replace(context, **{"advice": advice(REPEATS), **hooks}, loop=loop)

    def _exporting(self, project: Project) -> AbstractContextManager[None]:
        if not spans.is_configured():
            return contextlib.nullcontext()
        settings = on_base_terms(project).file.settings
        return export.exporting(
            offline=self.offline, private=settings.private, redact=redactor(settings)
        )
