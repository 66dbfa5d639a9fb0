"""Sync: decisions made on GitHub or in Git, recorded for their suggestions.

A merged pull request is applied; a closed one is rejected, with the last comment of a member of the
repository as the reason (comments of others never reach a refiner). Without GitHub, Git shows
whether the default branch has the commit or the text.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from edison_ci import ranges
from edison_ci.access.site import Role
from edison_ci.errors import ForgeError, ForgeFault
from edison_ci.proposals.approvals import count_approvals, review_approvers
from edison_ci.proposals.branches import merged_changes
from edison_ci.proposals.context import supersede_others
from edison_ci.proposals.prompt_file import is_result
from edison_ci.records import SuggestionStatus
from edison_ci.store.suggestions import MOVES, Suggestion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.access.site import Actor
    from edison_ci.git.forge import Comment, PullRequest, ReviewForge, Timing
    from edison_ci.proposals.context import ReviewContext

_WATCHED = (
    SuggestionStatus.PROPOSED,
    SuggestionStatus.APPROVED,
    SuggestionStatus.REJECTED,
    SuggestionStatus.SUPERSEDED,
    SuggestionStatus.TRIED,
)
_BELONGS = {"OWNER", "MEMBER", "COLLABORATOR"}


class SyncResult(NamedTuple):
    """Suggestions that a sync changed, and its problems."""

    changed: list[Suggestion]
    checked: int
    problems: list[str]


class _ForgeChange(NamedTuple):
    """A change of a suggestion that a forge or Git shows."""

    status: SuggestionStatus
    by: str | None
    reason: str | None = None
    commit: str | None = None


async def sync(review: ReviewContext, *, timing: Timing | None = None) -> SyncResult:
    """Record decisions made elsewhere, and return what has changed."""
    actor = review.site.require(Role.REVIEWER, "review sync")
    watched = review.suggestions(statuses=_WATCHED)
    changed, problems, git = [], [], _ByGit(review)
    pulls: dict[int, PullRequest] = {}
    async with review.github(timing) as github:
        for stored in watched:
            suggestion = review.find(stored.hash)  # an applied one may have superseded it
            try:
                number = suggestion.pull_request
                if github is None or number is None:
                    news = git.news(suggestion)
                else:
                    if number not in pulls:
                        pulls[number] = await github.pull_request(number)
                    news = await _forge_change(review, github, suggestion, pulls[number])
            except ForgeError as error:
                if error.fault is not ForgeFault.NOT_FOUND:
                    raise
                problems.append(f"suggestion {suggestion.id}: {error.message}")
                continue
            if news is not None and _is_news(suggestion, news):
                changed.append(_record(review, actor, suggestion, news))
                if github is not None and number is not None:
                    problems += await _too_few(review, github, changed[-1], pulls[number])
    return SyncResult(changed, len(watched), problems)


async def _too_few(
    review: ReviewContext, github: ReviewForge, suggestion: Suggestion, pull: PullRequest
) -> list[str]:
    """Return a problem if a pull request was merged with too few approvals."""
    file = review.project.file
    if file.settings.approvals == 1 or suggestion.status is not SuggestionStatus.APPLIED:
        return []
    names = review_approvers(pull, await github.reviews.of(pull.number))
    count = count_approvals(file, names, [pull.author.login, suggestion.author])
    if count.enough:
        return []
    return [f"suggestion {suggestion.id}: pull request {pull.number} was merged with {count.words}"]


async def _forge_change(
    review: ReviewContext, github: ReviewForge, suggestion: Suggestion, pull: PullRequest
) -> _ForgeChange | None:
    if suggestion.branch is None:
        return await _suggested_lines_change(review, github, pull, suggestion)
    if suggestion.status is SuggestionStatus.SUPERSEDED and not await _is_at_head(
        review, github, pull, suggestion
    ):
        return None  # the branch now has a later suggestion
    if pull.merged:
        return _ForgeChange(
            SuggestionStatus.APPLIED, pull.merged_by, commit=pull.merge_commit or pull.head_sha
        )
    if pull.state == "closed":
        if suggestion.status is SuggestionStatus.SUPERSEDED:
            return None
        last = _last(await github.comments(pull.number))
        reason = last.body if last is not None else "closed without a comment"
        return _ForgeChange(
            SuggestionStatus.REJECTED, last.author.login if last is not None else None, reason
        )
    # Reopened after it was closed; decisions made only here stay.
    return (
        _ForgeChange(SuggestionStatus.PROPOSED, None)
        if suggestion.status is SuggestionStatus.REJECTED
        else None
    )


async def _suggested_lines_change(
    review: ReviewContext, github: ReviewForge, pull: PullRequest, suggestion: Suggestion
) -> _ForgeChange | None:
    """Return whether suggested lines were accepted in the pull request of another author."""
    taken = await _is_at_head(review, github, pull, suggestion)
    if pull.merged:
        if taken:
            return _ForgeChange(
                SuggestionStatus.APPLIED, pull.merged_by, commit=pull.merge_commit or pull.head_sha
            )
        reason = f"pull request {pull.number} was merged without it"
        return _ForgeChange(SuggestionStatus.REJECTED, pull.merged_by, reason)
    if pull.state == "closed":
        return _ForgeChange(
            SuggestionStatus.REJECTED, None, f"pull request {pull.number} was closed"
        )
    return _ForgeChange(SuggestionStatus.APPROVED, pull.author.login) if taken else None


async def _is_at_head(
    review: ReviewContext, github: ReviewForge, pull: PullRequest, suggestion: Suggestion
) -> bool:
    """Whether the head of a pull request has exactly the suggested version."""
    data = await github.read_file(review.in_repository(suggestion.path), ref=pull.head_sha)
    return is_result(review.project, suggestion, data)


class _ByGit:
    """Changes on the default branch, read once."""

    def __init__(self, review: ReviewContext) -> None:
        self._review = review

    @cached_property
    def _merged(self) -> dict[str, str]:
        repository = self._review.repository
        if repository is None:
            return {}
        return merged_changes(repository, self._review.hosting.remote)

    def news(self, suggestion: Suggestion) -> _ForgeChange | None:
        """Return a change if the default branch has the suggestion's commit or text."""
        repository = self._review.repository
        if repository is None or suggestion.status is SuggestionStatus.REJECTED:
            return None
        if suggestion.hash in self._merged:
            return _ForgeChange(
                SuggestionStatus.APPLIED, None, commit=self._merged[suggestion.hash]
            )
        default = repository.default_branch()
        commit = repository.resolve(default) if default else None
        data = (
            repository.read(commit, self._review.in_repository(suggestion.path)) if commit else None
        )
        if commit is not None and is_result(self._review.project, suggestion, data):
            return _ForgeChange(SuggestionStatus.APPLIED, None, commit=commit)
        return None


def _is_news(suggestion: Suggestion, news: _ForgeChange) -> bool:
    """Whether it is a valid status change; only a merge overrides a decision made here."""
    merged = news.status is SuggestionStatus.APPLIED and suggestion.status is SuggestionStatus.TRIED
    return merged or news.status in MOVES[suggestion.status]


def _last(comments: Sequence[Comment]) -> Comment | None:
    """Return the last comment by a member of the repository."""
    valid = [
        comment
        for comment in comments
        if comment.association in _BELONGS and not comment.author.is_bot and comment.body.strip()
    ]
    return valid[-1] if valid else None


def _record(
    review: ReviewContext, actor: Actor, suggestion: Suggestion, news: _ForgeChange
) -> Suggestion:
    changes: dict[str, str | None] = {"reason": _short(news.reason)}
    if news.status is not SuggestionStatus.PROPOSED:
        changes |= {"decided_by": news.by or suggestion.decided_by, "decided_at": review.site.now()}
    if news.commit is not None:
        changes["commit_id"] = news.commit
    if suggestion.status is SuggestionStatus.TRIED and news.status is SuggestionStatus.APPLIED:
        suggestion = review.move(actor, "review sync", suggestion, SuggestionStatus.PROPOSED)
    moved = review.move(actor, "review sync", suggestion, news.status, **changes)
    if moved.status is SuggestionStatus.APPLIED:
        supersede_others(review, actor, moved)
    return moved


def _short(reason: str | None) -> str | None:
    return None if reason is None else " ".join(reason.split())[: ranges.REASON_CHARS]
