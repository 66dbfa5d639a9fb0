"""Decisions that people made elsewhere, brought back.

Merged is applied, closed is rejected, with the last comment of somebody who belongs to the
repository as the reason: what a stranger writes is not told to the next refinement. Without a forge
Git knows whether the default branch has the commit, or the text.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.errors import ForgeError, ForgeFault
from edison_ci.forge.branches import merged_changes
from edison_ci.operate.actors import Role
from edison_ci.review.deciding import MAX_REASON_CHARS, overtaken
from edison_ci.review.refined import is_result
from edison_ci.store.suggestions import MOVES, Status, Suggestion, list_suggestions

if TYPE_CHECKING:
    from edison_ci.forge.api import Timing
    from edison_ci.forge.github import GitHub
    from edison_ci.forge.models import Comment, PullRequest
    from edison_ci.operate.actors import Actor
    from edison_ci.review.desk import Desk

_WATCHED = (Status.PROPOSED, Status.APPROVED, Status.REJECTED, Status.SUPERSEDED, Status.TRIED)
_BELONGS = {"OWNER", "MEMBER", "COLLABORATOR"}


class Synced(NamedTuple):
    """What reading the pull requests has changed."""

    changed: list[Suggestion]
    looked: int
    problems: list[str]


class _News(NamedTuple):
    """What happened to a suggestion."""

    status: Status
    by: str | None
    reason: str | None = None
    commit: str | None = None


async def sync(desk: Desk, *, timing: Timing | None = None) -> Synced:
    """Take note of what people decided, and return what has changed."""
    actor = desk.site.require(Role.REVIEWER, "review sync")
    watched = desk.read(lambda connection: list_suggestions(connection, statuses=_WATCHED))
    changed, problems, looked, git = [], [], 0, _ByGit(desk)
    pulls: dict[int, PullRequest] = {}
    async with desk.github(timing) as github:
        for seen in watched:
            one = desk.find(seen.hash)  # what was applied just now may have overtaken it
            looked += 1
            try:
                number = one.pull_request
                if github is None or number is None:
                    news = git.news(one)
                else:
                    if number not in pulls:
                        pulls[number] = await github.pull_request(number)
                    news = await _news(desk, github, one, pulls[number])
            except ForgeError as error:
                if error.fault is not ForgeFault.NOT_FOUND:
                    raise
                problems.append(f"suggestion {one.id}: {error.message}")
                continue
            if news is not None and _is_news(one, news):
                changed.append(_noted(desk, actor, one, news))
    return Synced(changed, looked, problems)


async def _news(desk: Desk, github: GitHub, one: Suggestion, pull: PullRequest) -> _News | None:
    if one.branch is None:
        return await _of_lines(desk, github, pull, one)
    if one.status is Status.SUPERSEDED and not await _is_there(desk, github, pull, one):
        return None  # what is there by now is the suggestion that came after it
    if pull.merged:
        return _News(Status.APPLIED, pull.merged_by, commit=pull.merge_commit or pull.head_sha)
    if pull.state == "closed":
        if one.status is Status.SUPERSEDED:
            return None
        last = _last(await github.comments(pull.number))
        reason = last.body if last is not None else "closed without a comment"
        return _News(Status.REJECTED, last.author.login if last is not None else None, reason)
    # Open again after it was closed; what was decided here and not there stays as it is.
    return _News(Status.PROPOSED, None) if one.status is Status.REJECTED else None


async def _of_lines(desk: Desk, github: GitHub, pull: PullRequest, one: Suggestion) -> _News | None:
    """Look whether suggested lines were accepted in somebody's own pull request."""
    taken = await _is_there(desk, github, pull, one)
    if pull.merged:
        if taken:
            return _News(Status.APPLIED, pull.merged_by, commit=pull.merge_commit or pull.head_sha)
        reason = f"pull request {pull.number} was merged without it"
        return _News(Status.REJECTED, pull.merged_by, reason)
    if pull.state == "closed":
        return _News(Status.REJECTED, None, f"pull request {pull.number} was closed")
    return _News(Status.APPROVED, pull.author.login) if taken else None


async def _is_there(desk: Desk, github: GitHub, pull: PullRequest, one: Suggestion) -> bool:
    """Whether the head of a pull request has the very version that was suggested."""
    data = await github.read_file(desk.in_repository(one.path), ref=pull.head_sha)
    return is_result(desk.project, one, data)


class _ByGit:
    """What the default branch has, asked for once."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    @cached_property
    def _merged(self) -> dict[str, str]:
        repository = self._desk.repository
        if repository is None:
            return {}
        return merged_changes(repository, self._desk.hosting.remote)

    def news(self, one: Suggestion) -> _News | None:
        """Return whether the default branch has a suggestion, or what it would make."""
        repository = self._desk.repository
        if repository is None or one.status is Status.REJECTED:
            return None
        if one.hash in self._merged:
            return _News(Status.APPLIED, None, commit=self._merged[one.hash])
        default = repository.default_branch()
        commit = repository.resolve(default) if default else None
        data = repository.read(commit, self._desk.in_repository(one.path)) if commit else None
        if commit is not None and is_result(self._desk.project, one, data):
            return _News(Status.APPLIED, None, commit=commit)
        return None


def _is_news(one: Suggestion, news: _News) -> bool:
    """Whether it changes anything: what was decided here is undone by a merge, and by no less."""
    merged = news.status is Status.APPLIED and one.status is Status.TRIED
    return merged or news.status in MOVES[one.status]


def _last(comments: list[Comment]) -> Comment | None:
    """Return the last comment of a person who belongs to the repository."""
    said = [
        comment
        for comment in comments
        if comment.association in _BELONGS and not comment.author.is_bot and comment.body.strip()
    ]
    return said[-1] if said else None


def _noted(desk: Desk, actor: Actor, one: Suggestion, news: _News) -> Suggestion:
    changes: dict[str, str | None] = {"reason": _short(news.reason)}
    if news.status is not Status.PROPOSED:
        changes |= {"decided_by": news.by or one.decided_by, "decided_at": desk.site.now()}
    if news.commit is not None:
        changes["commit_id"] = news.commit
    if one.status is Status.TRIED and news.status is Status.APPLIED:
        one = desk.move(actor, "review sync", one, Status.PROPOSED)
    moved = desk.move(actor, "review sync", one, news.status, **changes)
    if moved.status is Status.APPLIED:
        overtaken(desk, actor, moved)
    return moved


def _short(reason: str | None) -> str | None:
    return None if reason is None else " ".join(reason.split())[:MAX_REASON_CHARS]
