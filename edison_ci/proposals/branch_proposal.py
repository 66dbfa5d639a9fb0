"""Proposals on GitHub: a change as one commit on a branch, and its pull request.

The commit has a trailer with the key of the change, so that no change is proposed twice. A branch
whose tip lacks the trailer is never changed: it has the work of another author. Where workflows are
not allowed to open pull requests, the result is the branch and a link to open one by hand.
"""

from __future__ import annotations

import dataclasses
import re
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.git.forge import ProposalAction, ProposalResult
from edison_ci.proposals.body_text import MAX_BODY_CHARS, truncate

if TYPE_CHECKING:
    from edison_ci.git.forge import Change, GitObjects, PullRequest, PutBranch, ReviewForge

TRAILER = "Edison-Suggestion"
MAX_TITLE_CHARS = 250

_KEY = re.compile(r"[0-9A-Za-z._-]{4,128}")
_TRAILER = re.compile(rf"(?m)^{TRAILER}: (\S+)$")
# Names that Git accepts, except those that look like an option.
_BRANCH = re.compile(
    r"(?![/.-])(?!.*(?:\.\.|//|@\{|/\.|\.lock(?:/|$)))[^\x00-\x20\x7f~^:?*\[\\]{1,200}(?<![/.])"
)
_NOT_ALLOWED = re.compile(r"not permitted to create or approve pull requests", re.IGNORECASE)
_EXISTS = re.compile(r"already exists", re.IGNORECASE)


async def propose_on_github(
    github: ReviewForge, change: Change, *, put: PutBranch | None = None
) -> ProposalResult:
    """Put a change on its branch and open a pull request, or update both.

    `put` creates the commit; by default it is created through the API, without a clone.
    """
    refuse_unfit(change)
    put = put or partial(put_branch, github.git)
    decided = await _decided_pull_request(github, change)
    if decided is not None:
        how = "merged" if decided.merged else "closed"
        why = f"pull request {decided.number} with this change was {how}"
        return ProposalResult(
            change.branch, decided.head_sha, ProposalAction.UNCHANGED, decided, why=why
        )
    commit, action = await put(change)
    compare_url = github.address.compare_url(change.base, change.branch)
    try:
        pull, opened = await _put_pull_request(github, change)
    except ForgeError as error:
        if not _may_not_open(error):
            raise
        return ProposalResult(change.branch, commit, action, None, compare_url, why=error.message)
    if opened is ProposalAction.CREATED or action is ProposalAction.UNCHANGED:
        action = opened
    return ProposalResult(change.branch, commit, action, pull, compare_url)


# --- the branch -----------------------------------------------------------------------------------


async def put_branch(git: GitObjects, change: Change) -> tuple[str, ProposalAction]:
    """Put a change on its branch through the API; raises ForgeError if the branch has others."""
    for _ in range(2):  # again if the branch appeared or moved between the read and the write
        tip = await git.tip(change.branch)
        if tip is not None:
            found = await git.commit(tip)
            if is_same_change(change, found.message):
                return tip, ProposalAction.UNCHANGED
            refuse_foreign(change, found.message)
        made = await _make_commit(git, change, tip or change.base_commit)
        try:
            if tip is None:
                await git.create_branch(change.branch, made)
                return made, ProposalAction.CREATED
            await git.advance_branch(change.branch, made)
            return made, ProposalAction.UPDATED
        except ForgeError as error:
            if error.fault not in {ForgeFault.INVALID, ForgeFault.CONFLICT, ForgeFault.UNAVAILABLE}:
                raise
            if await git.tip(change.branch) == made:
                return made, ProposalAction.CREATED if tip is None else ProposalAction.UPDATED
            failure = error
    raise failure


async def _make_commit(git: GitObjects, change: Change, parent: str) -> str:
    base = await git.commit(parent)
    blobs = {path: await git.create_blob(data) for path, data in change.files.items()}
    tree = await git.create_tree(base.tree, blobs)
    return await git.create_commit(commit_message(change), tree=tree, parent=parent)


async def _decided_pull_request(github: ReviewForge, change: Change) -> PullRequest | None:
    """Return the closed or merged pull request of this very change; None if there is none."""
    found = await github.find_pull_request(change.branch, state="all")
    if found is None or found.state == "open":
        return None
    try:
        last = await github.git.commit(found.head_sha)
    except ForgeError as error:
        if error.fault is ForgeFault.NOT_FOUND:
            return None
        raise
    return found if is_same_change(change, last.message) else None


# --- the pull request -----------------------------------------------------------------------------


async def _put_pull_request(
    github: ReviewForge, change: Change
) -> tuple[PullRequest, ProposalAction]:
    found = await github.find_pull_request(change.branch)
    if found is None:
        try:
            return await github.create_pull_request(_fitting(change)), ProposalAction.CREATED
        except ForgeError as error:
            made_anyway = error.fault is ForgeFault.UNAVAILABLE or _EXISTS.search(error.message)
            found = await github.find_pull_request(change.branch) if made_anyway else None
            if found is None:
                raise
    title, body = _title(change), _body(change)
    if (found.title, _plain(found.body)) == (title, _plain(body)):
        return found, ProposalAction.UNCHANGED
    return await github.update_pull_request(
        found.number, title=title, body=body
    ), ProposalAction.UPDATED


def _may_not_open(error: ForgeError) -> bool:
    return error.fault is ForgeFault.FORBIDDEN or bool(_NOT_ALLOWED.search(error.message))


def _fitting(change: Change) -> Change:
    return dataclasses.replace(change, title=_title(change), body=_body(change))


def _title(change: Change) -> str:
    title = " ".join(change.title.split())
    return title if len(title) <= MAX_TITLE_CHARS else f"{title[: MAX_TITLE_CHARS - 3]}..."


def _body(change: Change) -> str:
    return truncate(change.body, MAX_BODY_CHARS)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").rstrip()


# --- what may be proposed -------------------------------------------------------------------------


def commit_message(change: Change) -> str:
    """Return the message of the commit, which ends with the trailer."""
    paragraphs = [" ".join(change.title.split()), change.message.strip()]
    trailer = f"{TRAILER}: {change.key}"
    return "\n\n".join([*(part for part in paragraphs if part), trailer]) + "\n"


def is_same_change(change: Change, message: str) -> bool:
    """Whether a commit message has the key of this change."""
    return change.key in change_keys(message)


def change_keys(message: str) -> list[str]:
    """Return the keys in the trailers of a commit message."""
    return [str(key) for key in _TRAILER.findall(message)]


def refuse_foreign(change: Change, message: str) -> None:
    """Raise unless the tip of the branch is a proposal that the change may be added to."""
    if change.fresh and _TRAILER.search(message):
        raise ForgeError(
            f"the branch {change.branch!r} has another change meanwhile",
            fault=ForgeFault.CONFLICT,
            hint="run the command again: it uses the next free name",
        )
    if not _TRAILER.search(message):
        raise ForgeError(
            f"the branch {change.branch!r} has a commit of another author, so it is not changed",
            fault=ForgeFault.CONFLICT,
            hint="merge or delete the branch, or use another name",
        )


def refuse_unfit(change: Change) -> None:
    """Raise UsageError for a change that must not be sent to a forge."""
    for name in (change.branch, change.base):
        if not _BRANCH.fullmatch(name):
            raise UsageError(
                f"{name!r} is not a valid name of a branch",
                hint="see `git help check-ref-format`",
            )
    if change.branch == change.base:
        raise UsageError(
            f"the branch of a change cannot be its base {change.base!r}", hint="use another branch"
        )
    if not _KEY.fullmatch(change.key):
        raise UsageError(
            f"{change.key!r} is not a valid key of a change", hint="use the hash of the change"
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
            f"{path!r} decides which code runs, so a proposal may not change it",
            hint="change it in a pull request of your own",
        )
