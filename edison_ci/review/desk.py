"""The context of a review: project, person, and what may be touched right now."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from edison_ci._dataclass import dataclass
from edison_ci.errors import BusyError, UsageError
from edison_ci.forge.address import Hosting, hosting_of
from edison_ci.forge.github import GitHub
from edison_ci.git.repository import Repository
from edison_ci.operate.site import Site
from edison_ci.store.audit import add_audit
from edison_ci.store.database import changing, open_reader
from edison_ci.store.owners import is_alive
from edison_ci.store.runs import owned_runs
from edison_ci.store.suggestions import find_suggestion, move_suggestion

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from edison_ci.config.load import Project
    from edison_ci.forge.api import Timing
    from edison_ci.operate.actors import Actor, Role
    from edison_ci.store.suggestions import Status, Suggestion

_T = TypeVar("_T")
_RESTS = ("COMPLETED", "CANCELLED", "FAILED", "PAUSED", "REVIEWING")
"""Statuses of a run that a decision does not disturb; REVIEWING waits for one."""


@dataclass(frozen=True, slots=True)
class Desk:
    """A project, and how its suggestions reach people."""

    project: Project
    site: Site
    repository: Repository | None
    hosting: Hosting
    offline: bool = False
    actor: Actor | None = None
    """Who decides, if that is known already; else whoever is at this machine."""

    @classmethod
    def of(cls, project: Project, *, offline: bool = False, actor: Actor | None = None) -> Desk:
        """Return the desk of a project on this machine."""
        repository = Repository.find(project.root)
        hosting = Hosting()
        if repository is not None:
            hosting = hosting_of(repository, os.environ, offline=offline)
        site = Site(project.root, project.file)
        return cls(project, site, repository, hosting, offline, actor)

    @property
    def private(self) -> bool:
        """Whether texts stay in the results."""
        return self.project.file.settings.private

    @property
    def drafts(self) -> Path:
        """The folder of patches, and of texts that somebody was editing."""
        return self.project.root / ".edison" / "suggestions"

    def in_repository(self, path: str) -> str:
        """Return where a file of the project is in its repository."""
        assert self.repository is not None, "the caller has asked"
        prefix = self.project.root.resolve().relative_to(self.repository.root).as_posix()
        return path if prefix == "." else f"{prefix}/{path}"

    @asynccontextmanager
    async def github(self, timing: Timing | None = None) -> AsyncIterator[GitHub | None]:
        """Speak to GitHub; None where there is none, or no token for it."""
        if self.hosting.address is None:
            yield None
            return
        async with GitHub(self.hosting.address, timing=timing) as github:
            yield github

    # --- who --------------------------------------------------------------------------------------

    def require(self, role: Role, action: str, suggestion: Suggestion) -> Actor:
        """Return who acts, if they may."""
        actor = self.actor or self.site.actor()
        return self.site.admit(actor, role, action, entity_of(suggestion))

    # --- what is stored ---------------------------------------------------------------------------

    def find(self, wanted: str) -> Suggestion:
        """Return a suggestion by its id."""
        return self.read(lambda connection: find_suggestion(connection, wanted))

    def read(self, question: Callable[[sqlite3.Connection], _T]) -> _T:
        """Return what is stored, by a question to the results."""
        connection = open_reader(self.site.results)
        try:
            return question(connection)
        finally:
            connection.close()

    def move(
        self, actor: Actor, action: str, one: Suggestion, to: Status, /, **changes: Any
    ) -> Suggestion:
        """Give a suggestion another status, in one transaction with its row of the audit."""
        with changing(self.site.results) as connection:
            moved = move_suggestion(connection, one, to, **changes)
            before, after = _told(one, changes), _told(moved, changes)
            entry = self.site.entry(actor, action, entity_of(one), before=before, after=after)
            add_audit(connection, entry)
        return moved

    def refuse_while_running(self, suggestion: Suggestion) -> None:
        """Raise while a run of the experiment is at work: it would mix two prompts."""
        rows = self.read(
            lambda connection: owned_runs(connection, suggestion.experiment, resting=_RESTS)
        )
        alive = [run for run, owner in rows if is_alive(self.site.locks, owner)]
        if alive:
            raise BusyError(
                f"{suggestion.experiment} is being run, as {alive[0]}: decide when it is done",
                hint=f"follow it: edison watch {alive[0]}; or stop it: edison pause {alive[0]}",
            )


def entity_of(suggestion: Suggestion) -> str:
    """Return how the audit names a suggestion."""
    return f"suggestion {suggestion.id}"


def _told(one: Suggestion, changes: Mapping[str, Any]) -> dict[str, Any]:
    return {"status": str(one.status), **{key: getattr(one, key) for key in sorted(changes)}}


def needs_repository(desk: Desk) -> Repository:
    """Return the repository, or say that there is none."""
    if desk.repository is None:
        raise UsageError(
            "this project is not in a Git repository, so there is no branch to put a change on",
            hint="make it one: git init; or take it here: edison review approve",
        )
    return desk.repository
