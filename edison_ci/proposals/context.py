"""The context of a review: project, actor, repository, forge and stored suggestions."""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from edison_ci import feature
from edison_ci._dataclass import dataclass
from edison_ci.access.site import Site
from edison_ci.errors import BusyError, UsageError
from edison_ci.git.host import RepositoryHost, find_host
from edison_ci.git.repository import Repository
from edison_ci.records import OPEN_STATUSES, RunStatus, SuggestionStatus
from edison_ci.store.audit import add_audit
from edison_ci.store.database import open_for_change, open_reader
from edison_ci.store.liveness import is_alive
from edison_ci.store.runs import owned_runs
from edison_ci.store.suggestions import (
    comments_of,
    find_suggestion,
    list_suggestions,
    move_suggestion,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from pathlib import Path

    from edison_ci.access.site import Actor, Role
    from edison_ci.config.load import Project
    from edison_ci.git.forge import ReviewForge, Timing
    from edison_ci.store.suggestions import Suggestion, SuggestionComment

_T = TypeVar("_T")
_RESTS = (
    RunStatus.COMPLETED,
    RunStatus.CANCELLED,
    RunStatus.FAILED,
    RunStatus.PAUSED,
    RunStatus.REVIEWING,
)
"""Statuses of a run during which a decision is safe; REVIEWING waits for one."""


@dataclass(frozen=True, slots=True)
class ReviewContext:
    """A project with its repository, forge and acting person."""

    project: Project
    site: Site
    repository: Repository | None
    hosting: RepositoryHost
    offline: bool = False
    actor: Actor | None = None
    """The acting person; the user of this machine if None."""

    @classmethod
    def of(
        cls, project: Project, *, offline: bool = False, actor: Actor | None = None
    ) -> ReviewContext:
        """Return the context of a project on this machine."""
        repository = Repository.find(project.root)
        hosting = RepositoryHost()
        if repository is not None:
            hosting = find_host(repository, os.environ, offline=offline)
        site = Site(project.root, project.file)
        return cls(project, site, repository, hosting, offline, actor)

    @property
    def private(self) -> bool:
        """Whether texts must not leave the results."""
        return self.project.file.settings.private

    @property
    def drafts(self) -> Path:
        """The folder of patches and unfinished edits."""
        return self.project.root / ".edison" / "suggestions"

    def in_repository(self, path: str) -> str:
        """Return the path of a project file in its repository."""
        assert self.repository is not None, "the caller has checked"
        return self.repository.prefix_of(self.project.root) + path

    @asynccontextmanager
    async def github(self, timing: Timing | None = None) -> AsyncIterator[ReviewForge | None]:
        """Open a GitHub client; None without a GitHub repository, a token, or the feature."""
        opened = feature.forge("github")
        if self.hosting.address is None or opened is None:
            yield None
            return
        async with opened(self.hosting.address, timing=timing) as github:
            yield github

    def require(self, role: Role, action: str, suggestion: Suggestion) -> Actor:
        """Return the acting person; raises RoleError below the role."""
        actor = self.actor or self.site.actor()
        return self.site.admit(actor, role, action, entity_of(suggestion))

    def find(self, suggestion_id: str) -> Suggestion:
        """Return a suggestion by id."""
        return self.read(lambda connection: find_suggestion(connection, suggestion_id))

    def suggestions(
        self,
        *,
        experiment: str | None = None,
        prompt: str | None = None,
        statuses: Sequence[SuggestionStatus] = (),
    ) -> list[Suggestion]:
        """Return the stored suggestions of an experiment, a prompt or some statuses."""
        return self.read(
            lambda connection: list_suggestions(
                connection, experiment=experiment, prompt=prompt, statuses=statuses
            )
        )

    def comments(self, suggestion: Suggestion) -> list[SuggestionComment]:
        """Return the comments on a suggestion, oldest first."""
        return self.read(lambda connection: comments_of(connection, suggestion))

    def read(self, query: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run a query on the results."""
        connection = open_reader(self.site.results)
        try:
            return query(connection)
        finally:
            connection.close()

    def move(
        self, actor: Actor, action: str, one: Suggestion, to: SuggestionStatus, /, **changes: Any
    ) -> Suggestion:
        """Change the status of a suggestion, with its audit entry in the same transaction."""
        with open_for_change(self.site.results) as connection:
            moved = move_suggestion(connection, one, to, **changes)
            before, after = _audit_state(one, changes), _audit_state(moved, changes)
            entry = self.site.entry(actor, action, entity_of(one), before=before, after=after)
            add_audit(connection, entry)
        return moved

    def refuse_while_running(self, suggestion: Suggestion) -> None:
        """Raise BusyError while a run of the experiment is active: it would mix two prompts."""
        rows = self.read(
            lambda connection: owned_runs(connection, suggestion.experiment, resting=_RESTS)
        )
        alive = [run for run, owner in rows if is_alive(self.site.locks, owner)]
        if alive:
            raise BusyError(
                f"run {alive[0]} of {suggestion.experiment} is active: decide when it has ended",
                hint=f"follow it: edison runs watch {alive[0]}, or stop it: "
                f"edison runs pause {alive[0]}",
            )


def entity_of(suggestion: Suggestion) -> str:
    """Return the name of a suggestion in the audit."""
    return f"suggestion {suggestion.id}"


def _audit_state(suggestion: Suggestion, changes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "status": str(suggestion.status),
        **{key: getattr(suggestion, key) for key in sorted(changes)},
    }


def needs_repository(review: ReviewContext) -> Repository:
    """Return the repository; raises UsageError without one."""
    if review.repository is None:
        raise UsageError(
            "this project is not in a Git repository, so there is no branch for a change",
            hint="run git init and commit the project first",
        )
    return review.repository


def supersede_others(review: ReviewContext, actor: Actor, applied: Suggestion) -> tuple[str, ...]:
    """Mark open suggestions for the same prompt version as superseded; return their ids."""
    with open_for_change(review.site.results) as connection:
        others = [
            suggestion
            for suggestion in list_suggestions(
                connection, prompt=applied.prompt, statuses=sorted(OPEN_STATUSES)
            )
            if suggestion.base_hash == applied.base_hash and suggestion.path == applied.path
        ]
        for suggestion in others:
            reason = f"suggestion {applied.id} was applied"
            move_suggestion(connection, suggestion, SuggestionStatus.SUPERSEDED, reason=reason)
            entry = review.site.entry(
                actor, "review supersede", entity_of(suggestion), after=reason
            )
            add_audit(connection, entry)
    return tuple(suggestion.id for suggestion in others)
