"""Push strategies: how a change gets onto a branch, with Git or through GitHub.

Both know where a suggestion is already, which branch has the version that it changes, and how to
make its commit. That branch is the default one, if it has the version; else the one that is checked
out, so that a change is offered to the work it was made for. With a remote it is what the remote
has: commits that somebody has not pushed yet are not pushed for them.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, NamedTuple, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.forge.branches import Whereabouts, find_in_git, find_on_github
from edison_ci.forge.events import read_event
from edison_ci.forge.plain import PlainGit
from edison_ci.git.command import run_git
from edison_ci.git.fetch import fetch
from edison_ci.review.desk import needs_repository
from edison_ci.review.refined import is_base, prompt_in, stale

if TYPE_CHECKING:
    from edison_ci.forge.events import Event
    from edison_ci.forge.github import GitHub
    from edison_ci.forge.models import Change, Deed
    from edison_ci.git.repository import Repository
    from edison_ci.review.desk import Desk
    from edison_ci.store.suggestions import Suggestion

_BACK = 5
"""Suggestions on one branch that are looked behind."""


class Base(NamedTuple):
    """A branch with the version that a suggestion changes."""

    branch: str
    commit: str
    data: bytes
    """The prompt's file there."""


class Way(Protocol):
    """How a change gets onto a branch."""

    async def find(self, suggestion: Suggestion) -> Whereabouts:
        """Return where the suggestion is already."""
        ...

    async def base(self, suggestion: Suggestion, made: str | None) -> Base:
        """Return what it is to be put on; `made` is its commit, if there is one already."""
        ...

    async def put(self, change: Change) -> tuple[str, Deed]:
        """Make the commit, where others can see it."""
        ...

    def patch_of(self, commit: str) -> bytes:
        """Return the commit as a patch; empty where nobody needs one."""
        ...


@dataclass(frozen=True, slots=True)
class ByGit:
    """With Git, here and at the remote."""

    desk: Desk

    @property
    def _plain(self) -> PlainGit:
        return PlainGit(needs_repository(self.desk), self.desk.hosting.remote)

    async def find(self, suggestion: Suggestion) -> Whereabouts:
        """Return where the suggestion is, here or at the remote."""
        plain = self._plain
        experiment, key = suggestion.experiment, suggestion.hash
        return await asyncio.to_thread(find_in_git, plain.repository, plain.remote, experiment, key)

    async def base(self, suggestion: Suggestion, made: str | None) -> Base:
        """Return the branch of the remote, or here without one, that has the version."""
        return await asyncio.to_thread(self._base, suggestion, made)

    async def put(self, change: Change) -> tuple[str, Deed]:
        """Make the commit from objects, and push it."""
        return await self._plain.put(change)

    def patch_of(self, commit: str) -> bytes:
        """Return the commit as a patch."""
        return self._plain.patch_of(commit)

    def _base(self, suggestion: Suggestion, made: str | None) -> Base:
        desk, repository, remote = self.desk, self._plain.repository, self._plain.remote
        place, names = desk.in_repository(suggestion.path), branch_names(desk)
        for _ in range(_BACK if made and names else 0):
            made = next(iter(repository.parents(made)), None) if made else None
            data = repository.read(made, place) if made else None
            if made and data is not None and is_base(desk.project, suggestion, data):
                return Base(names[0], made, data)
        prompt = None
        for name in names:
            commit = _tip(repository, remote, name)
            data = repository.read(commit, place) if commit else None
            if commit and data is not None and is_base(desk.project, suggestion, data):
                return Base(name, commit, data)
            prompt = prompt or prompt_in(desk.project, suggestion.path, data)
        where = f"{remote}/{names[0]}" if remote else names[0] if names else "no branch"
        error = stale(suggestion, prompt, where)
        head = repository.head()
        here = repository.read(head, place) if head else None
        if remote and is_base(desk.project, suggestion, here):
            error.hint = f"it is in commits that {remote} does not have: git push first"
        raise error


@dataclass(frozen=True, slots=True)
class ByGitHub:
    """Through GitHub, for a job whose checkout is shallow; GitHub signs the commit."""

    desk: Desk
    github: GitHub

    async def find(self, suggestion: Suggestion) -> Whereabouts:
        """Return where the suggestion is on GitHub."""
        return await find_on_github(self.github.git, suggestion.experiment, suggestion.hash)

    async def base(self, suggestion: Suggestion, made: str | None) -> Base:
        """Return the branch on GitHub that has the version."""
        event, place = event_at_hand(), self.desk.in_repository(suggestion.path)
        told = (event.default_branch, event.head_branch) if event is not None else ()
        names = [*dict.fromkeys([*filter(None, told), *branch_names(self.desk)])]
        for _ in range(_BACK if made and names else 0):
            parents = (await self.github.git.commit(made)).parents if made else ()
            made = parents[0] if parents else None
            data = await self.github.read_file(place, ref=made) if made else None
            if made and data is not None and is_base(self.desk.project, suggestion, data):
                return Base(names[0], made, data)
        prompt = None
        for name in names:
            commit = await self.github.git.tip(name)
            data = await self.github.read_file(place, ref=commit) if commit else None
            if commit and data is not None and is_base(self.desk.project, suggestion, data):
                return Base(name, commit, data)
            prompt = prompt or prompt_in(self.desk.project, suggestion.path, data)
        raise stale(suggestion, prompt, names[0] if names else "no branch")

    async def put(self, change: Change) -> tuple[str, Deed]:
        """Make the commit and the branch."""
        return await self.github.put_branch(change)

    def patch_of(self, _: str) -> bytes:
        """Return nothing: the commit can be seen on GitHub."""
        return b""


def event_at_hand() -> Event | None:
    """Return the event of this job, if this is a job."""
    return read_event(os.environ) if os.environ.get("GITHUB_EVENT_NAME") else None


def current_branch(repository: Repository) -> str | None:
    """Return the branch that is checked out."""
    said = run_git("symbolic-ref", "--quiet", "--short", "HEAD", cwd=repository.root)
    return said.line if said.code == 0 else None


def branch_names(desk: Desk) -> list[str]:
    """Return the default branch and the one that is checked out, unless it is one of ours."""
    repository, remote = needs_repository(desk), desk.hosting.remote
    default = repository.default_branch()
    short = default.removeprefix(f"{remote}/") if default and remote else default
    names = dict.fromkeys(name for name in (short, current_branch(repository)) if name)
    return [name for name in names if not name.startswith("edison/") or name == short]


def _tip(repository: Repository, remote: str | None, name: str) -> str | None:
    ref = f"refs/heads/{name}"
    if remote is not None:
        ref = f"refs/remotes/{remote}/{name}"
        fetch(repository.root, remote, "--quiet", wanted=f"+refs/heads/{name}:{ref}")
    try:
        return repository.resolve(ref)
    except UsageError:
        return None
