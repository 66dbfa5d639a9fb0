"""Decisions about a suggestion: approve, reject and comment.

A decision about a pull request is made on GitHub, as the owner of the token, and then stored. Only
what was seen is approved: a branch with newer commits is refused. If GitHub refuses, nothing is
stored. Without a pull request an approved suggestion becomes one commit on the current branch,
which changes the prompt's file only and is refused if that file has uncommitted edits.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from edison_ci import ranges
from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.documents import files as document_files
from edison_ci.errors import ForgeError, ForgeFault, Location, UsageError
from edison_ci.git import command
from edison_ci.git import forge as models
from edison_ci.proposals import approvals, branches, context, prompt_file
from edison_ci.proposals import proposal as review_proposal
from edison_ci.proposals import proposal_text as proposal
from edison_ci.proposals.context import supersede_others
from edison_ci.proposals.file_proposal import next_steps
from edison_ci.records import OPEN_STATUSES, SuggestionStatus
from edison_ci.report import markdown
from edison_ci.store import audit, database, suggestions

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from edison_ci.access.site import Actor
    from edison_ci.git.forge import PullRequest, ReviewForge, Timing
    from edison_ci.git.repository import Repository
    from edison_ci.proposals.context import ReviewContext


def apply_here(review: ReviewContext, suggestion: suggestions.Suggestion) -> str | None:
    """Commit a suggestion to the current branch; return the commit, None without a repository."""
    repository = review.repository
    head = repository.head() if repository is not None else None
    if repository is None or head is None:
        after = prompt_file.apply_suggestion(
            review.project, suggestion, document_files.read(review.project.tree, suggestion.path)
        )
        document_files.replace_file(review.project.root, suggestion.path, after)
        return None
    place = review.in_repository(suggestion.path)
    branch = repository.branch()
    if branch is None:
        raise UsageError(
            "no branch is checked out to commit to",
            hint="git switch to a branch first",
        )
    before = repository.read(head, place)
    if before is not None and prompt_file.is_result(review.project, suggestion, before):
        # Stopped after the commit: update the file, unless it was edited since.
        if prompt_file.is_base(
            review.project, suggestion, document_files.read(review.project.tree, suggestion.path)
        ):
            _check_out(review, suggestion, repository, place, before)
        return head
    _refuse_edited(review, suggestion, repository, place, before)
    after = prompt_file.apply_suggestion(review.project, suggestion, before or b"")
    change = models.Change(
        branch=branch,
        base=branch,
        base_commit=head,
        files={place: after},
        key=suggestion.hash,
        title=proposal.title_of(suggestion),
        message=proposal.message_of(suggestion),
    )
    commit = branches.PlainGit(repository).commit(change, head)
    # With the old value it fails if the branch has moved meanwhile.
    _git(repository, "update-ref", "-m", "edison: review approve", "HEAD", commit, head)
    _check_out(review, suggestion, repository, place, after)
    return commit


def _check_out(
    review: ReviewContext,
    suggestion: suggestions.Suggestion,
    repository: Repository,
    place: str,
    data: bytes,
) -> None:
    """Write the committed file to the working tree and the index."""
    document_files.replace_file(review.project.root, suggestion.path, data)
    blob = _git(repository, "rev-parse", f"HEAD:{place}")
    _git(repository, "update-index", "--cacheinfo", f"100644,{blob},{place}")


def _refuse_edited(
    review: ReviewContext,
    suggestion: suggestions.Suggestion,
    repository: Repository,
    place: str,
    before: bytes | None,
) -> None:
    """Raise UsageError if the file has staged or unstaged changes."""
    path = review.project.root / suggestion.path
    staged = command.run_git(
        "rev-parse", "--verify", "--quiet", f":{place}", cwd=repository.root
    ).line
    there = command.run_git(
        "rev-parse", "--verify", "--quiet", f"HEAD:{place}", cwd=repository.root
    ).line
    now = path.read_bytes() if path.is_file() and not path.is_symlink() else None
    if before is None or now != before or staged != there:
        raise UsageError(
            f"{suggestion.path} has uncommitted changes",
            hint="commit or discard them, then approve again",
            where=Location(suggestion.path),
        )


def _git(repository: Repository, *args: str) -> str:
    done = command.run_git(*args, cwd=repository.root)
    if done.code:
        raise UsageError(
            f"git {args[0]} failed: {done.reason}",
            hint=f"check `git status` in {str(repository.root)!r}",
        )
    return done.line


_NOT_ALLOWED = {ForgeFault.FORBIDDEN, ForgeFault.CONFLICT, ForgeFault.INVALID}
"""Refusals of the action itself, as opposed to failed requests."""


@dataclass(frozen=True, slots=True)
class DecisionResult:
    """Outcome of a decision."""

    suggestion: suggestions.Suggestion
    notes: tuple[str, ...] = ()
    """Further messages for the person."""
    superseded: tuple[str, ...] = ()
    """Ids of other suggestions that it superseded."""


async def approve(
    review: ReviewContext,
    suggestion: suggestions.Suggestion,
    *,
    merge: bool = False,
    timing: Timing | None = None,
) -> DecisionResult:
    """Approve a suggestion: on its pull request, or with a commit in the repository.

    If several people have to approve it, all but the last approval are only stored.
    """
    actor = review.require(sites.Role.REVIEWER, "review approve", suggestion)
    _refuse_undecidable(suggestion, merge=merge)
    review.refuse_while_running(suggestion)
    approvals.refuse_author(review, actor, suggestion)
    if suggestion.pull_request is None:
        if not merge and (waiting := _awaited(review, actor, suggestion)):
            return waiting
        return _approve_here(review, actor, suggestion, merge=merge)
    async with _github(review, suggestion, timing) as github:
        pull = await _pull_request(github, suggestion, suggestion.pull_request)
        if pull.merged or pull.state == "closed":
            how = "merged" if pull.merged else "closed"
            raise UsageError(
                f"pull request {pull.number} is already {how}",
                hint="run edison review sync",
            )
        if suggestion.branch is None:
            if waiting := _awaited(review, actor, suggestion):
                return waiting
            note = f"accept the suggested lines in pull request {pull.number}"
            return _record_approval(review, actor, suggestion, note)
        _refuse_changed(suggestion, pull)
        refused = await _approving_review(github, pull)
        if waiting := await _awaited_on_github(review, suggestion, github, pull, refused):
            return waiting
        done = _record_approval(review, actor, suggestion, *refused)
        return await _merge(review, actor, done, github, pull) if merge else done


async def approve_on_branch(
    review: ReviewContext, suggestion: suggestions.Suggestion, *, timing: Timing | None = None
) -> DecisionResult:
    """Approve a suggestion without a pull request: it is proposed, and applied by the merge."""
    actor = review.require(sites.Role.REVIEWER, "review approve", suggestion)
    _refuse_undecidable(suggestion, merge=False)
    review.refuse_while_running(suggestion)
    approvals.refuse_author(review, actor, suggestion)
    if waiting := _awaited(review, actor, suggestion):
        return waiting
    done = await review_proposal.propose_as(
        review, actor, suggestion, review_proposal.ProposeOptions(open_pr=True), timing=timing
    )
    proposed = done.suggestion
    if proposed.pull_request is not None:
        opened = f"Pull request #{proposed.pull_request} has the change"
        notes: tuple[str, ...] = (f"{opened}, for `{done.base}`.", proposed.pull_request_url or "")
    else:
        result = models.ProposalResult(proposed.branch or "", proposed.commit_id or "", done.action)
        notes = next_steps(review, done.base, result)
    return _record_approval(review, actor, proposed, *filter(None, notes))


def _awaited(
    review: ReviewContext, actor: Actor, suggestion: suggestions.Suggestion
) -> DecisionResult | None:
    """Store an approval; return the result if others have to approve as well."""
    if (
        review.project.file.settings.approvals == 1
        or suggestion.status is SuggestionStatus.APPROVED
    ):
        return None
    count = approvals.store_approval(review, actor, suggestion)
    if count.enough:
        return None
    return DecisionResult(suggestion, (f"{count.words}: another reviewer has to approve it",))


async def _awaited_on_github(
    review: ReviewContext,
    suggestion: suggestions.Suggestion,
    github: ReviewForge,
    pull: PullRequest,
    refused: tuple[str, ...],
) -> DecisionResult | None:
    """Count the reviews on GitHub; return the result if others have to approve as well."""
    file = review.project.file
    if file.settings.approvals == 1:
        return None
    names = approvals.review_approvers(pull, await github.reviews.of(pull.number))
    count = approvals.count_approvals(file, names, [pull.author.login, suggestion.author])
    if count.enough:
        return None
    note = f"{count.words} on pull request {pull.number}: another reviewer has to approve it"
    return DecisionResult(suggestion, (*refused, note))


def _refuse_undecidable(suggestion: suggestions.Suggestion, *, merge: bool) -> None:
    again = suggestion.status is SuggestionStatus.APPROVED and (
        merge or suggestion.pull_request is None
    )
    if suggestion.status is SuggestionStatus.PROPOSED or again:
        return
    if suggestion.status is not SuggestionStatus.TRIED:
        raise suggestions.decided_already(suggestion)
    raise UsageError(
        f"suggestion {suggestion.id} is {suggestion.status}",
        hint="it is not shown to help; to propose it anyway: "
        f"edison propose {suggestion.id} --force",
    )


async def _pull_request(
    github: ReviewForge, suggestion: suggestions.Suggestion, number: int
) -> PullRequest:
    """Return the pull request of a suggestion, after checking that it is the right one."""
    pull = await github.pull_request(number)
    if suggestion.branch is not None and pull.head_ref != suggestion.branch:
        raise UsageError(
            f"pull request {number} is for the branch {pull.head_ref!r}, not for this suggestion",
            hint=f"propose it again: edison propose {suggestion.id} --open-pr",
        )
    return pull


def _refuse_changed(suggestion: suggestions.Suggestion, pull: PullRequest) -> None:
    if suggestion.commit_id is not None and pull.head_sha != suggestion.commit_id:
        raise UsageError(
            f"pull request {pull.number} has newer commits than the suggestion",
            hint=f"review and decide there: {pull.url}",
        )


async def _approving_review(github: ReviewForge, pull: PullRequest) -> tuple[str, ...]:
    """Add an approving review; return a note if GitHub refuses it."""
    try:
        await github.reviews.create(
            pull.number, decision=models.ReviewDecision.APPROVE, commit=pull.head_sha
        )
    except ForgeError as error:
        if error.fault not in _NOT_ALLOWED:
            raise
        return (f"GitHub refused the approving review: {error.message}",)
    return ()


async def _merge(
    review: ReviewContext,
    actor: Actor,
    done: DecisionResult,
    github: ReviewForge,
    pull: PullRequest,
) -> DecisionResult:
    try:
        commit = await github.merge_pull_request(pull.number, head_sha=pull.head_sha)
    except ForgeError as error:
        if error.fault not in _NOT_ALLOWED:
            raise
        return DecisionResult(done.suggestion, (*done.notes, f"not merged: {error.message}"))
    return _record_applied(review, actor, "review merge", done.suggestion, commit, *done.notes)


def _approve_here(
    review: ReviewContext, actor: Actor, suggestion: suggestions.Suggestion, *, merge: bool
) -> DecisionResult:
    if merge:
        raise UsageError(
            f"suggestion {suggestion.id} has no pull request to merge",
            hint=f"open one with edison propose {suggestion.id} --open-pr, "
            "or approve it without --merge",
        )
    if review.hosting.by_api:
        raise UsageError(
            "a commit made in a workflow would be lost with its checkout",
            hint=f"open a pull request: edison propose {suggestion.id} --open-pr",
        )
    commit = apply_here(review, suggestion)
    note = (
        ()
        if commit is not None
        else ("the file was changed without a commit: there is no Git repository",)
    )
    return _record_applied(review, actor, "review approve", suggestion, commit, *note)


def _record_approval(
    review: ReviewContext, actor: Actor, suggestion: suggestions.Suggestion, *notes: str
) -> DecisionResult:
    changes = {"decided_by": actor.name, "decided_at": review.site.now()}
    return DecisionResult(
        review.move(actor, "review approve", suggestion, SuggestionStatus.APPROVED, **changes),
        notes,
    )


def _record_applied(
    review: ReviewContext,
    actor: Actor,
    action: str,
    suggestion: suggestions.Suggestion,
    commit: str | None,
    *notes: str,
) -> DecisionResult:
    changes = {"decided_by": actor.name, "decided_at": review.site.now(), "commit_id": commit}
    moved = review.move(actor, action, suggestion, SuggestionStatus.APPLIED, **changes)
    return DecisionResult(moved, notes, supersede_others(review, actor, moved))


async def reject(
    review: ReviewContext,
    suggestion: suggestions.Suggestion,
    reason: str,
    *,
    timing: Timing | None = None,
) -> DecisionResult:
    """Reject a suggestion and close its pull request."""
    actor = review.require(sites.Role.REVIEWER, "review reject", suggestion)
    text = " ".join(reason.split())[: ranges.REASON_CHARS]
    if not text:
        raise UsageError("the reason is empty", hint="the next refinement needs the reason")
    if suggestion.status not in OPEN_STATUSES:
        raise suggestions.decided_already(suggestion)
    review.refuse_while_running(suggestion)
    notes: tuple[str, ...] = ()
    if suggestion.pull_request is not None and suggestion.branch is None:
        # The pull request has another author and other changes, so it is not closed.
        notes = (f"pull request {suggestion.pull_request} stays open: it belongs to its author",)
    elif suggestion.pull_request is not None:
        async with _github(review, suggestion, timing) as github:
            pull = await _pull_request(github, suggestion, suggestion.pull_request)
            if pull.merged:
                raise UsageError(
                    f"pull request {pull.number} is already merged",
                    hint="run edison review sync",
                )
            if pull.state == "open":
                await github.create_comment(pull.number, f"Rejected:\n\n{markdown.fenced(text)}")
                await github.close_pull_request(pull.number)
    changes = {"decided_by": actor.name, "decided_at": review.site.now(), "reason": text}
    return DecisionResult(
        review.move(actor, "review reject", suggestion, SuggestionStatus.REJECTED, **changes),
        notes,
    )


async def comment(
    review: ReviewContext,
    suggestion: suggestions.Suggestion,
    text: str,
    *,
    timing: Timing | None = None,
) -> DecisionResult:
    """Store a comment on a suggestion and post it on its pull request."""
    actor = review.require(sites.Role.REVIEWER, "review comment", suggestion)
    text = text.strip()
    if not text:
        raise UsageError("the comment is empty", hint="write a comment")
    if len(text) > ranges.COMMENT_CHARS:
        message = f"the comment has {len(text):,} characters"
        raise UsageError(message, hint=f"write at most {ranges.COMMENT_CHARS:,}")
    notes: tuple[str, ...] = ()
    if suggestion.pull_request is not None:
        if review.hosting.address is None:
            where = f"pull request {suggestion.pull_request}"
            notes = (f"stored here, but not posted on {where}: there is no GitHub token",)
        else:
            async with _github(review, suggestion, timing) as github:
                await github.create_comment(suggestion.pull_request, text)
    with database.open_for_change(review.site.results) as connection:
        suggestions.add_comment(
            connection,
            suggestion,
            suggestions.SuggestionComment(actor.name, text, review.site.now()),
        )
        entry = review.site.entry(
            actor, "review comment", context.entity_of(suggestion), after=text[:200]
        )
        audit.add_audit(connection, entry)
    return DecisionResult(suggestion, notes)


@asynccontextmanager
async def _github(
    review: ReviewContext, suggestion: suggestions.Suggestion, timing: Timing | None
) -> AsyncIterator[ReviewForge]:
    """Open a GitHub client for a pull request; raises UsageError without a token."""
    async with review.github(timing) as github:
        if github is not None:
            yield github
            return
        why = "network access is disabled by --offline"
        if not review.offline:
            why = "there is no GitHub token"
        raise UsageError(
            f"suggestion {suggestion.id} is pull request {suggestion.pull_request}, but {why}",
            hint=f"export GITHUB_TOKEN, or decide at {suggestion.pull_request_url} "
            "and then run edison review sync",
        )
