"""Decisions about a suggestion: approve, reject and discuss.

A decision about a pull request is made where the pull request is, as the person whose token it is,
and then written down here. What is approved is what was seen: a branch that somebody has changed
since is not approved by its old name. Whatever GitHub refuses leaves nothing half decided.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.errors import ForgeError, ForgeFault, UsageError
from edison_ci.forge.models import Decision
from edison_ci.operate.actors import Role
from edison_ci.report.safe_markdown import fenced
from edison_ci.review.applying import apply_here
from edison_ci.review.desk import entity_of
from edison_ci.store.audit import add_audit
from edison_ci.store.database import changing
from edison_ci.store.suggestions import (
    OPEN,
    Status,
    Suggestion,
    SuggestionComment,
    add_comment,
    decided_already,
    list_suggestions,
    move_suggestion,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from edison_ci.forge.api import Timing
    from edison_ci.forge.github import GitHub
    from edison_ci.forge.models import PullRequest
    from edison_ci.operate.actors import Actor
    from edison_ci.review.desk import Desk

MAX_REASON_CHARS = 2_000
MAX_COMMENT_CHARS = 60_000
_NOT_ALLOWED = {ForgeFault.FORBIDDEN, ForgeFault.CONFLICT, ForgeFault.INVALID}
"""Refusals that say what GitHub thinks of the wish, rather than that it could not be asked."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What became of a suggestion."""

    suggestion: Suggestion
    notes: tuple[str, ...] = ()
    """What else somebody should know."""
    superseded: tuple[str, ...] = ()
    """Other suggestions that this one has overtaken."""


# --- approving ------------------------------------------------------------------------------------


async def approve(
    desk: Desk, one: Suggestion, *, merge: bool = False, timing: Timing | None = None
) -> Decided:
    """Approve a suggestion: on its pull request, or without one by putting it in the repository."""
    actor = desk.require(Role.REVIEWER, "review approve", one)
    _refuse_undecidable(one, merge=merge)
    desk.refuse_while_running(one)
    if one.pull_request is None:
        return _approve_here(desk, actor, one, merge=merge)
    async with _github(desk, one, timing) as github:
        pull = await _pull_request(github, one, one.pull_request)
        if pull.merged or pull.state == "closed":
            how = "merged" if pull.merged else "closed"
            raise UsageError(
                f"pull request {pull.number} is {how} already",
                hint="take note of it: edison review sync",
            )
        if one.branch is None:
            note = f"the lines are suggested in pull request {pull.number}: accept them there"
            return _approved(desk, actor, one, note)
        _refuse_changed(one, pull)
        refused = await _approving_review(github, pull)
        done = _approved(desk, actor, one, *refused)
        return await _merged(desk, actor, done, github, pull) if merge else done


def _refuse_undecidable(one: Suggestion, *, merge: bool) -> None:
    again = one.status is Status.APPROVED and (merge or one.pull_request is None)
    if one.status is Status.PROPOSED or again:
        return
    if one.status is not Status.TRIED:
        raise decided_already(one)
    raise UsageError(
        f"suggestion {one.id} is {one.status}",
        hint=f"it was not shown to help; insist with: edison propose {one.id} --force",
    )


async def _pull_request(github: GitHub, one: Suggestion, number: int) -> PullRequest:
    """Return the pull request of a suggestion, and no other: the results may be wrong about it."""
    pull = await github.pull_request(number)
    if one.branch is not None and pull.head_ref != one.branch:
        raise UsageError(
            f"pull request {number} is for the branch {pull.head_ref!r}, not for this suggestion",
            hint=f"propose it anew: edison propose {one.id} --open-pr",
        )
    return pull


def _refuse_changed(one: Suggestion, pull: PullRequest) -> None:
    if one.commit_id is not None and pull.head_sha != one.commit_id:
        raise UsageError(
            f"pull request {pull.number} is no longer what was suggested: somebody added to it",
            hint=f"look at it and decide there: {pull.url}",
        )


async def _approving_review(github: GitHub, pull: PullRequest) -> tuple[str, ...]:
    """Add the review; return why there is none, if GitHub will not have it."""
    try:
        await github.reviews.create(pull.number, decision=Decision.APPROVE, commit=pull.head_sha)
    except ForgeError as error:
        if error.fault not in _NOT_ALLOWED:
            raise
        return (f"there is no approving review on the pull request: {error.message}",)
    return ()


async def _merged(
    desk: Desk, actor: Actor, done: Decided, github: GitHub, pull: PullRequest
) -> Decided:
    try:
        commit = await github.merge_pull_request(pull.number, head_sha=pull.head_sha)
    except ForgeError as error:
        if error.fault not in _NOT_ALLOWED:
            raise
        return Decided(done.suggestion, (*done.notes, f"it is not merged: {error.message}"))
    return _applied(desk, actor, "review merge", done.suggestion, commit, *done.notes)


def _approve_here(desk: Desk, actor: Actor, one: Suggestion, *, merge: bool) -> Decided:
    if merge:
        raise UsageError(
            f"suggestion {one.id} has no pull request to merge",
            hint=f"open one: edison propose {one.id} --open-pr; or approve it without --merge",
        )
    if desk.hosting.by_api:
        raise UsageError(
            "a commit that is made in a workflow is gone with its checkout",
            hint=f"open a pull request: edison propose {one.id} --open-pr",
        )
    commit = apply_here(desk, one)
    note = () if commit is not None else ("there is no Git repository: the file was changed",)
    return _applied(desk, actor, "review approve", one, commit, *note)


def _approved(desk: Desk, actor: Actor, one: Suggestion, *notes: str) -> Decided:
    changes = {"decided_by": actor.name, "decided_at": desk.site.now()}
    return Decided(desk.move(actor, "review approve", one, Status.APPROVED, **changes), notes)


def _applied(
    desk: Desk, actor: Actor, action: str, one: Suggestion, commit: str | None, *notes: str
) -> Decided:
    changes = {"decided_by": actor.name, "decided_at": desk.site.now(), "commit_id": commit}
    moved = desk.move(actor, action, one, Status.APPLIED, **changes)
    return Decided(moved, notes, overtaken(desk, actor, moved))


def overtaken(desk: Desk, actor: Actor, applied: Suggestion) -> tuple[str, ...]:
    """Mark what was suggested for the same version of the prompt as superseded."""
    with changing(desk.site.results) as connection:
        others = [
            one
            for one in list_suggestions(connection, prompt=applied.prompt, statuses=sorted(OPEN))
            if one.base_hash == applied.base_hash and one.path == applied.path
        ]
        for one in others:
            reason = f"suggestion {applied.id} was applied"
            move_suggestion(connection, one, Status.SUPERSEDED, reason=reason)
            entry = desk.site.entry(actor, "review supersede", entity_of(one), after=reason)
            add_audit(connection, entry)
    return tuple(one.id for one in others)


# --- rejecting and discussing ---------------------------------------------------------------------


async def reject(
    desk: Desk, one: Suggestion, reason: str, *, timing: Timing | None = None
) -> Decided:
    """Reject a suggestion, and close the pull request that was opened for it."""
    actor = desk.require(Role.REVIEWER, "review reject", one)
    said = " ".join(reason.split())[:MAX_REASON_CHARS]
    if not said:
        raise UsageError("the reason is empty", hint="say why: the next refinement is told")
    if one.status not in OPEN:
        raise decided_already(one)
    desk.refuse_while_running(one)
    notes: tuple[str, ...] = ()
    if one.pull_request is not None and one.branch is None:
        # The pull request is somebody's own: what they do with the rest of it is theirs.
        notes = (f"pull request {one.pull_request} is its author's and stays open",)
    elif one.pull_request is not None:
        async with _github(desk, one, timing) as github:
            pull = await _pull_request(github, one, one.pull_request)
            if pull.merged:
                raise UsageError(
                    f"pull request {pull.number} is merged already",
                    hint="take note of it: edison review sync",
                )
            if pull.state == "open":
                await github.create_comment(pull.number, f"Rejected:\n\n{fenced(said)}")
                await github.close_pull_request(pull.number)
    changes = {"decided_by": actor.name, "decided_at": desk.site.now(), "reason": said}
    return Decided(desk.move(actor, "review reject", one, Status.REJECTED, **changes), notes)


async def discuss(
    desk: Desk, one: Suggestion, text: str, *, timing: Timing | None = None
) -> Decided:
    """Keep a comment on a suggestion, and show it on its pull request."""
    actor = desk.require(Role.REVIEWER, "review comment", one)
    said = text.strip()
    if not said:
        raise UsageError("the comment is empty", hint="say something")
    notes: tuple[str, ...] = ()
    if one.pull_request is not None:
        if desk.hosting.address is None:
            there = f"pull request {one.pull_request}"
            notes = (f"it is kept here, and not shown on {there}: there is no token",)
        else:
            async with _github(desk, one, timing) as github:
                await github.create_comment(one.pull_request, said[:MAX_COMMENT_CHARS])
    with changing(desk.site.results) as connection:
        add_comment(connection, one, SuggestionComment(actor.name, said, desk.site.now()))
        entry = desk.site.entry(actor, "review comment", entity_of(one), after=said[:200])
        add_audit(connection, entry)
    return Decided(one, notes)


@asynccontextmanager
async def _github(desk: Desk, one: Suggestion, timing: Timing | None) -> AsyncIterator[GitHub]:
    """Speak to GitHub about a pull request, or say what is missing."""
    async with desk.github(timing) as github:
        if github is not None:
            yield github
            return
        why = "--offline forbids to reach it" if desk.offline else "there is no token for GitHub"
        raise UsageError(
            f"suggestion {one.id} is pull request {one.pull_request}, and {why}",
            hint=f"export GITHUB_TOKEN; or decide at {one.pull_request_url} "
            "and then: edison review sync",
        )
