"""Approved suggestions, put into the repository where no forge merges them.

As one commit on the branch that is checked out. Only the prompt's file changes, and only if nobody
was at work on it: what else is edited or staged stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.documents.files import read
from edison_ci.documents.replace_file import replace_file
from edison_ci.errors import Location, UsageError
from edison_ci.forge.models import Change
from edison_ci.forge.plain import PlainGit
from edison_ci.git.command import run_git
from edison_ci.report.proposal import message_of, title_of
from edison_ci.review.refined import is_base, is_result, refined
from edison_ci.review.ways import current_branch

if TYPE_CHECKING:
    from edison_ci.git.repository import Repository
    from edison_ci.review.desk import Desk
    from edison_ci.store.suggestions import Suggestion


def apply_here(desk: Desk, suggestion: Suggestion) -> str | None:
    """Put a suggestion into the repository, and return its commit; None without a repository."""
    repository = desk.repository
    head = repository.head() if repository is not None else None
    if repository is None or head is None:
        after = refined(desk.project, suggestion, read(desk.project.tree, suggestion.path))
        replace_file(desk.project.root / suggestion.path, after)
        return None
    place = desk.in_repository(suggestion.path)
    branch = current_branch(repository)
    if branch is None:
        raise UsageError(
            "no branch is checked out, so the commit would be on none",
            hint="git switch to the branch that is to have it",
        )
    before = repository.read(head, place)
    if before is not None and is_result(desk.project, suggestion, before):
        # We were stopped after the commit: what is left of the old text goes, what is new stays.
        if is_base(desk.project, suggestion, read(desk.project.tree, suggestion.path)):
            _check_out(desk, suggestion, repository, place, before)
        return head
    _refuse_edited(desk, suggestion, repository, place, before)
    after = refined(desk.project, suggestion, before or b"")
    change = Change(
        branch=branch,
        base=branch,
        base_commit=head,
        files={place: after},
        key=suggestion.hash,
        title=title_of(suggestion),
        message=message_of(suggestion),
    )
    commit = PlainGit(repository).commit(change, head)
    # The old value makes it fail when somebody else moved the branch meanwhile.
    _git(repository, "update-ref", "-m", "edison: review approve", "HEAD", commit, head)
    _check_out(desk, suggestion, repository, place, after)
    return commit


def _check_out(
    desk: Desk, suggestion: Suggestion, repository: Repository, place: str, data: bytes
) -> None:
    """Let the file and its entry in the index be what the last commit says."""
    replace_file(desk.project.root / suggestion.path, data)
    blob = _git(repository, "rev-parse", f"HEAD:{place}")
    _git(repository, "update-index", "--cacheinfo", f"100644,{blob},{place}")


def _refuse_edited(
    desk: Desk, suggestion: Suggestion, repository: Repository, place: str, before: bytes | None
) -> None:
    """Raise if the file differs from the last commit, here or in the index."""
    path = desk.project.root / suggestion.path
    staged = run_git("rev-parse", "--verify", "--quiet", f":{place}", cwd=repository.root).line
    there = run_git("rev-parse", "--verify", "--quiet", f"HEAD:{place}", cwd=repository.root).line
    now = path.read_bytes() if path.is_file() and not path.is_symlink() else None
    if before is None or now != before or staged != there:
        raise UsageError(
            f"{suggestion.path} is not as it is in the last commit, and is left alone",
            hint="commit your change of it, or take it back, then approve again",
            where=Location(suggestion.path),
        )


def _git(repository: Repository, *args: str) -> str:
    said = run_git(*args, cwd=repository.root)
    if said.code:
        raise UsageError(
            f"git {args[0]} failed: {said.reason}",
            hint=f"see what `git status` says in {str(repository.root)!r}",
        )
    return said.line
