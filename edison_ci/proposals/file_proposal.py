"""Proposals of files: another content of them, as a branch with a pull request."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.documents.secrets import hidden
from edison_ci.errors import UsageError
from edison_ci.git.command import remote_of
from edison_ci.git.forge import Change, ProposalAction
from edison_ci.proposals.branches import PlainGit
from edison_ci.proposals.context import needs_repository
from edison_ci.proposals.proposal import branch_names, branch_tip
from edison_ci.report.markdown import fenced

if TYPE_CHECKING:
    from edison_ci.git.forge import ProposalResult, Timing
    from edison_ci.proposals.context import ReviewContext

FEWEST_NOTE_CHARS, MOST_NOTE_CHARS = 10, 500
"""Length of the note of a change, which is the text of its pull request."""
_TITLE_CHARS = 72


class Proposed(NamedTuple):
    """A change that was put on a branch, and what to do next."""

    result: ProposalResult
    base: str
    """The branch that it would be merged into."""
    notes: tuple[str, ...]
    """What happened and the next step, as sentences; an address stands alone."""


def checked_note(note: str) -> str:
    """Return the note of a change; raises UsageError if it is too short or too long."""
    text = note.replace("\r\n", "\n").strip()
    if FEWEST_NOTE_CHARS <= len(text) <= MOST_NOTE_CHARS:
        return text
    raise UsageError(
        f"the note has {len(text):,} characters; {FEWEST_NOTE_CHARS} to {MOST_NOTE_CHARS} are "
        "needed",
        hint="say what the change is for: it becomes the text of the pull request",
    )


class ChangeText(NamedTuple):
    """Branch and texts of a change by a person."""

    branch: str
    """The start of its name; the start of the key follows."""
    subject: str
    """The start of the title; the note follows."""
    note: str
    person: str
    ending: str = ""
    """The last sentences of the pull request; by default that an editor made it on the pages."""


def propose_file(
    review: ReviewContext, path: str, *, before: bytes, after: bytes, about: ChangeText
) -> Proposed:
    """Propose another content of a file, which is `before` at the tip of the base."""
    needs_repository(review)
    place = review.in_repository(path)
    base, commit = base_with(review, path, before)
    key = hashlib.sha256(b"\0".join([place.encode(), before, after])).hexdigest()[:16]
    first = " ".join(about.note.split("\n")[0].split())
    title = f"{about.subject}: {first}"
    if len(title) > _TITLE_CHARS:
        title = f"{title[: _TITLE_CHARS - 3].rstrip()}..."
    by = about.ending or f"Edited on the pages by {about.person}."
    measured = "; the run of this pull request measures it" if not about.ending else ""
    change = Change(
        branch=f"{about.branch}-{key[:8]}",
        base=base,
        base_commit=commit,
        files={place: after},
        key=key,
        title=hidden(title),
        message=hidden(f"{about.note}\n\n{by}"),
        body=hidden(f"{fenced(about.note)}\n\n{by} It changes `{place}` only{measured}.\n"),
    )
    result = asyncio.run(propose_files(review, change))
    return Proposed(result, base, next_steps(review, base, result))


def next_steps(review: ReviewContext, base: str, result: ProposalResult) -> tuple[str, ...]:
    """Return the result of a proposal and what to do next; an address is on its own line."""
    branch, pull = f"`{result.branch}`", result.pull_request
    if pull is not None:
        again = result.action is ProposalAction.UNCHANGED
        state = (
            "" if pull.state == "open" else f", which is {'merged' if pull.merged else 'closed'}"
        )
        done = f"The change is already pull request #{pull.number}" if again else (
            f"Pull request #{pull.number} is open, from the branch {branch} to `{base}`"
        )  # fmt: skip
        return (f"{done}{state}.", pull.url)
    repository = review.repository
    assert repository is not None, "a change needs one"
    commit = result.commit[:8]
    if review.hosting.remote is None:
        remote = remote_of(repository.root)
        here = f"The change is on the branch {branch} of this repository, as commit `{commit}`."
        if remote is not None:
            push = f"`git push {remote} {result.branch}`"
            return (here, f"Nothing was sent. Push it and open a pull request: {push}")
        merge = f"`git switch {base} && git merge {result.branch}`"
        return (here, f"There is no remote. Once it is reviewed: {merge}")
    pushed = f"The change is on the branch {branch} of `{review.hosting.remote}`, as `{commit}`."
    link = review.hosting.compare_url(base, result.branch)
    if link is None:
        return (pushed, f"Open a pull request from it to `{base}` where the repository is hosted.")
    why = "There is no GitHub token, so no pull request was opened"
    if review.hosting.address is not None:
        why = "GitHub did not allow to open a pull request"
    return (pushed, f"{why}. Open it here:", link)


def proposal_base(review: ReviewContext) -> tuple[str, str]:
    """Return the branch that files are proposed to, and its commit; raises UsageError."""
    repository, remote = needs_repository(review), review.hosting.remote
    for name in branch_names(review):
        if commit := branch_tip(repository, remote, name):
            return name, commit
    raise UsageError("there is no branch to propose a change to", hint="commit the project first")


def base_with(review: ReviewContext, path: str, data: bytes) -> tuple[str, str]:
    """Return the branch, and its commit, whose version of a file is `data`; raises UsageError.

    A change of another version would also change what others have done to the file.
    """
    repository, remote = needs_repository(review), review.hosting.remote
    place, names = review.in_repository(path), branch_names(review)
    for name in names:
        commit = branch_tip(repository, remote, name)
        if commit and repository.read(commit, place) == data:
            return name, commit
    where = f"{remote}/{names[0]}" if remote and names else names[0] if names else "any branch"
    error = UsageError(
        f"{path} here is not the version of {where}, so it cannot be changed there",
        hint=f"commit and push it, or update this clone: git pull{f' {remote}' if remote else ''}",
    )
    head = repository.head()
    if remote and head and repository.read(head, place) == data:
        error.hint = (
            f"it is not pushed to {remote} yet, or this clone is behind: git push, git pull"
        )
    raise error


async def propose_files(
    review: ReviewContext, change: Change, *, timing: Timing | None = None
) -> ProposalResult:
    """Put files on a branch, and open a pull request if there is a forge."""
    plain = PlainGit(needs_repository(review), review.hosting.remote)
    async with review.github(timing) as github:
        if github is None:
            return await plain.propose(change)
        put = github.put_branch if review.hosting.by_api else plain.put
        return await github.propose(change, put=put)
