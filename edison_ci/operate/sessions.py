"""Sessions with real models: providers and keys, budgets, roles, and whoever listens to them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from edison_ci._dataclass import dataclass
from edison_ci.execute.budgets import job_cap
from edison_ci.execute.grading import CellGrader
from edison_ci.execute.run_options import Tools
from edison_ci.execute.session import Session
from edison_ci.operate.actors import Role
from edison_ci.operate.own_results import claim
from edison_ci.operate.proposal_terms import on_terms_of_base
from edison_ci.operate.site import Site
from edison_ci.providers.adapters import provider_for
from edison_ci.sanitize import in_actions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.clients import Lanes
    from edison_ci.execute.run_targets import RunTarget
    from edison_ci.providers.replay import ReplayProvider
    from edison_ci.store.ledger import Cap

T = TypeVar("T")
RESUMES = "every answer is kept, and edison resume goes on from there"
REPEATS = "every answer is kept, and the same command goes on from there"


def require_editor(project: Project, action: str) -> None:
    """Refuse whoever may not make calls; the refusal is audited."""
    Site(project.root, project.file).require(Role.EDITOR, action)


def tools_for(project: Project, *, offline: bool = False) -> Tools:
    """Return the real providers, with keys from the environment, and the experiment's graders."""
    terms = on_terms_of_base(project)
    claim(project)
    provider = partial(
        provider_for, environ=os.environ, offline=offline, tree=project.tree, trust=terms.trust
    )
    job = job_cap(terms, os.environ)
    return Tools(provider, _grading, advice=advice("every answer is kept"), job=job)


def advice(then: str) -> str:
    """Return what can be done while a model does not answer; nobody sits before an action."""
    return "" if in_actions() else f"Ctrl-C stops it; {then}"


def _grading(project: Project, experiment: Experiment, lanes: Lanes) -> CellGrader:
    return CellGrader.of(on_terms_of_base(project), experiment, lanes)


def beside_loops(work: Callable[[], T]) -> T:
    """Do work that runs an event loop, also where one runs already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


@contextlib.contextmanager
def nobody() -> Iterator[Mapping[str, Any]]:
    """Listen to nothing."""
    yield {}


@dataclass(frozen=True, slots=True)
class SessionFactory:
    """Makes sessions, each with somebody who listens to it."""

    offline: bool = False
    listening: Callable[[], AbstractContextManager[Mapping[str, Any]]] = field(default=nobody)
    """Yields the callbacks of `Tools` for one session."""
    recording: ReplayProvider | None = None
    """Where answers come from instead of models."""

    @contextlib.contextmanager
    def session(self, target: RunTarget) -> Iterator[Session]:
        """Yield the session of one run."""
        tools = tools_for(target.project, offline=self.offline)
        if (recording := self.recording) is not None:
            tools = replace(tools, provider_for=lambda _: recording)
        with self.listening() as hooks:
            tools = replace(tools, **{"advice": advice(RESUMES), **hooks})
            project = on_terms_of_base(target.project)
            yield Session(project, target.experiment, tools, against=target.against)

    @contextlib.contextmanager
    def tools(self, project: Project, loop: Cap | None = None) -> Iterator[Tools]:
        """Yield what a session of refining works with, perhaps within the budget of a loop."""
        tools = tools_for(project, offline=self.offline)
        with self.listening() as hooks:
            yield replace(tools, **{"advice": advice(REPEATS), **hooks}, loop=loop)
