"""Commits on the branch of a loop that applies suggestions itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from edison_ci.git.command import run_git
from edison_ci.git.forge import Change
from edison_ci.proposals.branches import PlainGit, is_same_change
from edison_ci.proposals.context import needs_repository
from edison_ci.proposals.prompt_file import apply_suggestion
from edison_ci.proposals.proposal_text import message_of, title_of

if TYPE_CHECKING:
    from edison_ci.features.refine.loop_rows import Loop
    from edison_ci.git.repository import Repository
    from edison_ci.proposals.context import ReviewContext
    from edison_ci.store.suggestions import Suggestion


def commit_to_branch(
    review: ReviewContext, loop: Loop, suggestion: Suggestion, text: bytes
) -> tuple[str, bytes]:
    """Commit a change of a text, unless the branch has it; return the commit and the new text."""
    repository = needs_repository(review)
    after = apply_suggestion(review.project, suggestion, text)
    assert loop.branch is not None, "a loop that commits has a branch"
    assert loop.base_commit is not None, "and a commit at which the branch starts"
    change = Change(
        branch=loop.branch,
        base=repository.branch() or "HEAD",
        base_commit=loop.base_commit,
        files={review.in_repository(suggestion.path): after},
        key=suggestion.hash,
        title=title_of(suggestion),
        message=message_of(suggestion),
    )
    commit = _committed_as(repository, change)
    if commit is None:
        commit, _ = asyncio.run(PlainGit(repository).put(change))
    return commit, after


def _committed_as(repository: Repository, change: Change) -> str | None:
    """Return the commit of a change on its branch, where it may no longer be the last one."""
    branch = f"{change.base_commit}..refs/heads/{change.branch}"
    done = run_git("log", "--format=%H%n%B%x00", "--end-of-options", branch, cwd=repository.root)
    for entry in done.out.decode("utf-8", "replace").split("\0") if done.code == 0 else ():
        commit, _, message = entry.strip().partition("\n")
        if commit and is_same_change(change, message):
            return commit
    return None
