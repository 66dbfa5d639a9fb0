"""Changes as a branch with one commit and a pull request, once and not twice.

The commit carries a trailer with the change's key, by which it is found again. A branch whose tip
is not ours is left alone: somebody else's commit is never overwritten. Where nobody may open pull
requests from a workflow, the branch is there and a link says where a person can open one.
"""

from __future__ import annotations

import dataclasses
import re
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.forge.capping import MAX_BODY_CHARS, capped
from edison_ci.forge.models import Deed, Proposed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from edison_ci.forge.address import Address
    from edison_ci.forge.git_data import GitData
    from edison_ci.forge.models import Change, PullRequest

TRAILER = "Edison-Suggestion"
MAX_TITLE_CHARS = 250

_KEY = re.compile(r"[0-9A-Za-z._-]{4,128}")
_TRAILER = re.compile(rf"(?m)^{TRAILER}: (\S+)$")
# What Git itself takes, except names that look like an option.
_BRANCH = re.compile(
    r"(?![/.-])(?!.*(?:\.\.|//|@\{|/\.|\.lock(?:/|$)))[^\x00-\x20\x7f~^:?*\[\\]{1,200}(?<![/.])"
)
_NOT_ALLOWED = re.compile(r"not permitted to create or approve pull requests", re.IGNORECASE)
_EXISTS = re.compile(r"already exists", re.IGNORECASE)


class PullRequests(Protocol):
    """What opening a pull request needs of GitHub."""

    address: Address
    git: GitData

    async def find_pull_request(
        self, branch: str, *, owner: str = "", state: Literal["open", "all"] = "open"
    ) -> PullRequest | None:
        """Return the open pull request of a branch, else with `all` the newest closed one."""
        ...

    async def create_pull_request(self, change: Change) -> PullRequest:
        """Open a pull request."""
        ...

    async def update_pull_request(self, number: int, *, title: str, body: str) -> PullRequest:
        """Replace title and description."""
        ...


Put: TypeAlias = "Callable[[Change], Awaitable[tuple[str, Deed]]]"
"""Puts a change on its branch; returns the commit, and whether the branch was made or moved."""


async def propose_on_github(
    github: PullRequests, change: Change, *, put: Put | None = None
) -> Proposed:
    """Put a change on its branch and open a pull request, or update both.

    `put` makes the commit; without it that is done on GitHub, where no clone is needed.
    """
    refuse_unfit(change)
    put = put or partial(put_branch, github.git)
    decided = await _decided(github, change)
    if decided is not None:
        how = "merged" if decided.merged else "closed"
        why = f"pull request {decided.number} with this change was {how}"
        return Proposed(change.branch, decided.head_sha, Deed.UNCHANGED, decided, why=why)
    commit, deed = await put(change)
    compare_url = github.address.compare_url(change.base, change.branch)
    try:
        pull, opened = await _put_pull_request(github, change)
    except ForgeError as error:
        if not _may_not_open(error):
            raise
        return Proposed(change.branch, commit, deed, None, compare_url, why=error.message)
    if opened is Deed.CREATED or deed is Deed.UNCHANGED:
        deed = opened
    return Proposed(change.branch, commit, deed, pull, compare_url)


# --- the branch -----------------------------------------------------------------------------------


async def put_branch(git: GitData, change: Change) -> tuple[str, Deed]:
    """Put a change on its branch on GitHub; a branch with something else on it is left alone."""
    for _ in range(2):  # once more when the branch appeared or moved between looking and writing
        tip = await git.tip(change.branch)
        if tip is not None:
            found = await git.commit(tip)
            if is_there(change, found.message):
                return tip, Deed.UNCHANGED
            refuse_foreign(change, found.message)
        made = await _make_commit(git, change, tip or change.base_commit)
        try:
            if tip is None:
                await git.create_branch(change.branch, made)
                return made, Deed.CREATED
            await git.advance_branch(change.branch, made)
            return made, Deed.UPDATED
        except ForgeError as error:
            if error.fault not in {ForgeFault.INVALID, ForgeFault.CONFLICT, ForgeFault.UNAVAILABLE}:
                raise
            if await git.tip(change.branch) == made:
                return made, Deed.CREATED if tip is None else Deed.UPDATED
            failure = error
    raise failure


async def _make_commit(git: GitData, change: Change, parent: str) -> str:
    base = await git.commit(parent)
    blobs = {path: await git.create_blob(data) for path, data in change.files.items()}
    tree = await git.create_tree(base.tree, blobs)
    return await git.create_commit(message_of(change), tree=tree, parent=parent)


async def _decided(github: PullRequests, change: Change) -> PullRequest | None:
    """Return the pull request in which people decided about this very change already."""
    found = await github.find_pull_request(change.branch, state="all")
    if found is None or found.state == "open":
        return None
    try:
        last = await github.git.commit(found.head_sha)
    except ForgeError as error:
        if error.fault is ForgeFault.NOT_FOUND:
            return None
        raise
    return found if is_there(change, last.message) else None


# --- the pull request -----------------------------------------------------------------------------


async def _put_pull_request(github: PullRequests, change: Change) -> tuple[PullRequest, Deed]:
    found = await github.find_pull_request(change.branch)
    if found is None:
        try:
            return await github.create_pull_request(_fitting(change)), Deed.CREATED
        except ForgeError as error:
            made_anyway = error.fault is ForgeFault.UNAVAILABLE or _EXISTS.search(error.message)
            found = await github.find_pull_request(change.branch) if made_anyway else None
            if found is None:
                raise
    title, body = _title(change), _body(change)
    if (found.title, _plain(found.body)) == (title, _plain(body)):
        return found, Deed.UNCHANGED
    return await github.update_pull_request(found.number, title=title, body=body), Deed.UPDATED


def _may_not_open(error: ForgeError) -> bool:
    return error.fault is ForgeFault.FORBIDDEN or bool(_NOT_ALLOWED.search(error.message))


def _fitting(change: Change) -> Change:
    return dataclasses.replace(change, title=_title(change), body=_body(change))


def _title(change: Change) -> str:
    title = " ".join(change.title.split())
    return title if len(title) <= MAX_TITLE_CHARS else f"{title[: MAX_TITLE_CHARS - 3]}..."


def _body(change: Change) -> str:
    return capped(change.body, MAX_BODY_CHARS)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").rstrip()


# --- what may be proposed -------------------------------------------------------------------------


def message_of(change: Change) -> str:
    """Return the message of the commit, which ends in the trailer."""
    paragraphs = [" ".join(change.title.split()), change.message.strip()]
    trailer = f"{TRAILER}: {change.key}"
    return "\n\n".join([*(part for part in paragraphs if part), trailer]) + "\n"


def is_there(change: Change, message: str) -> bool:
    """Whether a commit is this very change."""
    return change.key in keys_in(message)


def keys_in(message: str) -> list[str]:
    """Return the keys of the changes that a commit says it is."""
    return [str(key) for key in _TRAILER.findall(message)]


def refuse_foreign(change: Change, message: str) -> None:
    """Raise unless the tip of the branch is a commit of ours that the change may go on."""
    if change.fresh and _TRAILER.search(message):
        raise ForgeError(
            f"the branch {change.branch!r} has another change by now",
            fault=ForgeFault.CONFLICT,
            hint="run the command again: it finds the next free name",
        )
    if not _TRAILER.search(message):
        raise ForgeError(
            f"the branch {change.branch!r} has a commit that is not ours, and is left alone",
            fault=ForgeFault.CONFLICT,
            hint="merge or delete the branch, or use another name",
        )


def refuse_unfit(change: Change) -> None:
    """Raise for a change that no forge should be asked to take."""
    for name in (change.branch, change.base):
        if not _BRANCH.fullmatch(name):
            raise UsageError(
                f"{name!r} is not a name for a branch here",
                hint="see git help check-ref-format",
            )
    if change.branch == change.base:
        raise UsageError(
            f"a change is never put on {change.base!r} itself", hint="use another branch"
        )
    if not _KEY.fullmatch(change.key):
        raise UsageError(
            f"{change.key!r} cannot stand in a trailer", hint="use the hash of the change"
        )
    if not change.files:
        raise UsageError("the change has no files", hint="there is nothing to propose")
    for path in change.files:
        _refuse_path(path)


def _refuse_path(path: str) -> None:
    parts = PurePosixPath(path).parts
    folders = {part.casefold() for part in parts}
    odd = path.startswith("/") or "\\" in path or any(ord(letter) < 32 for letter in path)
    if not parts or odd or ".." in parts or str(PurePosixPath(path)) != path:
        raise UsageError(f"{path!r} is not a path in a repository", hint="name a file inside it")
    if folders & {".git", ".github"}:
        raise UsageError(
            f"{path!r} decides what runs, so it is never changed by a proposal",
            hint="change it in a pull request of your own",
        )
