"""Approvals by several people: `settings.approvals` of edison.yaml, as a gate of review.

Each person counts once, under any of their names: names are resolved through members. Who wrote
the text, or opened the pull request, does not count. For a pull request the reviews on GitHub of
its newest commit count; otherwise those that are stored with the suggestion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.access.site import Identity, Role, find_member
from edison_ci.errors import UsageError
from edison_ci.proposals.context import entity_of
from edison_ci.store.audit import add_audit
from edison_ci.store.database import open_for_change
from edison_ci.store.suggestions import add_approval, approvals_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edison_ci.access.site import Actor
    from edison_ci.config.project import Member, ProjectFile
    from edison_ci.git.forge import PullRequest, Review
    from edison_ci.proposals.context import ReviewContext
    from edison_ci.store.suggestions import Suggestion


class ApprovalCount(NamedTuple):
    """The approvals of a change so far."""

    needed: int
    by: tuple[str, ...]
    """Names of the people who count."""

    @property
    def enough(self) -> bool:
        """Whether no further approval is needed."""
        return len(self.by) >= self.needed

    @property
    def words(self) -> str:
        """The count as text, such as `1 of 2 approvals (ada)`."""
        names = f" ({', '.join(self.by)})" if self.by else ""
        return f"{len(self.by)} of {self.needed} approvals{names}"


def person(name: str, members: Sequence[Member]) -> Member | None:
    """Return the member that a stored name belongs to: a login or an e-mail address."""
    by_address = "@" in name
    identity = Identity("git", login="" if by_address else name, email=name if by_address else "")
    return find_member(identity, members)


def count_approvals(
    file: ProjectFile, names: Iterable[str], authors: Iterable[str | None]
) -> ApprovalCount:
    """Count people with the role of a reviewer or above who are not authors, each once."""
    members = file.members
    excluded = [person(name, members) for name in authors if name]
    counted: dict[str, None] = {}
    for name in names:
        member = person(name, members)
        if member is None or member in excluded:
            continue
        if Role[member.role.upper()] >= Role.REVIEWER:
            counted[str(member.github or member.email)] = None
    return ApprovalCount(file.settings.approvals, tuple(counted))


def review_approvers(pull: PullRequest, reviews: Iterable[Review]) -> list[str]:
    """Return the logins whose last verdict approves the newest commit of a pull request."""
    last: dict[str, Review] = {}
    for review in reviews:
        # A comment does not take back an approval; a request for changes and a dismissal do.
        if review.state in ("APPROVED", "CHANGES_REQUESTED", "DISMISSED"):
            last[review.author.login.casefold()] = review
    return [
        review.author.login
        for review in last.values()
        if review.state == "APPROVED"
        and review.commit == pull.head_sha
        and not review.author.is_bot
    ]


def stored_approvals(review: ReviewContext, suggestion: Suggestion) -> ApprovalCount:
    """Count the approvals that are stored with a suggestion."""
    names = review.read(lambda connection: approvals_of(connection, suggestion))
    return count_approvals(
        review.project.file, [approval.actor for approval in names], [suggestion.author]
    )


def is_author(review: ReviewContext, actor: Actor, suggestion: Suggestion) -> bool:
    """Whether a person wrote the text of a suggestion, under any of their names."""
    if suggestion.author is None:
        return False
    members = review.project.file.members
    member = find_member(actor.identity, members)
    return actor.name == suggestion.author or (
        member is not None and member is person(suggestion.author, members)
    )


def refuse_author(review: ReviewContext, actor: Actor, suggestion: Suggestion) -> None:
    """Raise UsageError if the approval of a person does not count: they wrote the text."""
    if review.project.file.settings.approvals > 1 and is_author(review, actor, suggestion):
        raise UsageError(
            f"{actor.name} edited suggestion {suggestion.id}, so their approval does not count",
            hint=f"{review.project.file.settings.approvals} other reviewers have to approve it",
        )


def store_approval(review: ReviewContext, actor: Actor, suggestion: Suggestion) -> ApprovalCount:
    """Store the approval of a person, once, with an audit entry; return the count."""
    with open_for_change(review.site.results) as connection:
        if add_approval(connection, suggestion, actor.name, review.site.now()):
            needed = review.project.file.settings.approvals
            entry = review.site.entry(
                actor, "review approval", entity_of(suggestion), after={"needed": needed}
            )
            add_audit(connection, entry)
    return stored_approvals(review, suggestion)
