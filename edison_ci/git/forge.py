"""Records of a forge: comments, pull requests, reviews and proposed changes, and its protocol."""

from __future__ import annotations

import asyncio
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from edison_ci import utc
from edison_ci._dataclass import dataclass

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from edison_ci.git.host import RepositoryAddress


MAX_WAIT_S = 300.0
"""Total seconds of waiting before giving up: minutes of a waiting job cost money."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account on a forge."""

    login: str
    is_bot: bool = False


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment in the conversation of a pull request."""

    id: int
    body: str
    author: Account
    url: str
    created_at: str = ""
    association: str = ""
    """The relation of the author to the repository: OWNER, MEMBER, COLLABORATOR, ..."""


@dataclass(frozen=True, slots=True)
class Issue:
    """An issue as it is now."""

    number: int
    url: str
    body: str
    author: Account
    association: str = ""
    """The relation of the author to the repository: OWNER, MEMBER, COLLABORATOR, ..."""

    @property
    def trusted(self) -> bool:
        """Whether a bot, or a person who may write to the repository, opened it."""
        return self.author.is_bot or self.association in ("OWNER", "MEMBER", "COLLABORATOR")


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file that a pull request changes."""

    path: str
    status: str
    """added, removed, modified, renamed, copied, changed or unchanged."""
    previous: str | None = None
    """The former name of a renamed file."""
    patch: str = ""
    """The hunks; a forge may leave out those of large files."""


@dataclass(frozen=True, slots=True)
class PullRequest:
    """A pull request as it is now."""

    number: int
    url: str
    state: Literal["open", "closed"]
    merged: bool
    draft: bool
    title: str
    body: str
    head_ref: str
    head_sha: str
    head_repository: str | None
    """`owner/name`; None when the fork is gone."""
    base_ref: str
    base_sha: str
    author: Account
    merge_commit: str | None = None
    """The commit that merged it; None before the merge, or if it is not known."""
    merged_by: str | None = None


@dataclass(frozen=True, slots=True)
class Review:
    """A review of a pull request."""

    id: int
    author: Account
    state: str
    """APPROVED, CHANGES_REQUESTED, COMMENTED, DISMISSED or PENDING."""
    body: str
    url: str
    commit: str | None = None
    submitted_at: str | None = None
    """None for a pending review."""


@dataclass(frozen=True, slots=True)
class LineComment:
    """A comment on a line of a pull request's diff."""

    id: int
    author: Account
    path: str
    line: int | None
    """None if the line is no longer part of the diff."""
    body: str
    url: str


@dataclass(frozen=True, slots=True)
class SuggestedLines:
    """Lines of a file in a pull request, and their replacement."""

    path: str
    first_line: int
    last_line: int
    replacement: str
    """Without a newline at its end; empty deletes the lines."""
    note: str = ""


class ReviewDecision(StrEnum):
    """The verdict of a review."""

    COMMENT = "COMMENT"
    APPROVE = "APPROVE"
    REQUEST_CHANGES = "REQUEST_CHANGES"


@dataclass(frozen=True, slots=True)
class Change:
    """Files to commit to a separate branch, and the text of its pull request."""

    branch: str
    base: str
    """The branch to merge into."""
    base_commit: str
    """The commit that the branch starts from."""
    files: Mapping[str, bytes]
    key: str
    """Written to a trailer of the commit, by which the same change is found again."""
    title: str
    body: str = ""
    message: str = ""
    """The commit message below its title."""
    draft: bool = False
    fresh: bool = False
    """Whether the branch must be new; one with another change is an error then."""


class ProposalAction(StrEnum):
    """The result of writing a branch or a pull request."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class ProposalResult:
    """A proposed change: its branch, commit and pull request."""

    branch: str
    commit: str
    action: ProposalAction
    pull_request: PullRequest | None = None
    compare_url: str | None = None
    """The page on which a person can open the pull request."""
    patch: bytes = field(default=b"", repr=False)
    """The commit as a patch, if there is no forge."""
    why: str = ""
    """The reason why there is no open pull request."""


PutBranch: TypeAlias = "Callable[[Change], Awaitable[tuple[str, ProposalAction]]]"
"""Puts a change on its branch; returns the commit, and whether the branch was created."""


class Proposer(Protocol):
    """Proposes changes to people."""

    async def propose(self, change: Change) -> ProposalResult:
        """Put a change on its branch and propose it; the same change is never proposed twice."""
        ...


class Forge(Proposer, Protocol):
    """The host of a repository. Each method raises ForgeError if a request fails."""

    def is_ours(self, comment: Comment) -> bool:
        """Whether the account of this tool, as configured, wrote a comment."""
        ...

    async def comments(self, number: int) -> Sequence[Comment]:
        """Return the comments of a pull request, oldest first."""
        ...

    async def create_comment(self, number: int, body: str) -> Comment:
        """Add a comment to a pull request."""
        ...

    async def update_comment(self, comment_id: int, body: str) -> Comment:
        """Replace the text of a comment."""
        ...

    async def delete_comment(self, comment_id: int) -> None:
        """Delete a comment; one that does not exist is no error."""
        ...

    async def pull_request(self, number: int) -> PullRequest:
        """Return a pull request as it is now."""
        ...

    async def find_pull_request(
        self, branch: str, *, owner: str = "", state: Literal["open", "all"] = "open"
    ) -> PullRequest | None:
        """Return the open pull request of a branch, else with `all` the newest closed one."""
        ...

    async def changed_files(self, number: int) -> Sequence[ChangedFile]:
        """Return the files that a pull request changes."""
        ...

    async def read_file(self, path: str, *, ref: str) -> bytes | None:
        """Return the content of a file in a commit or branch; None if it is missing."""
        ...


@dataclass(frozen=True, slots=True)
class Timing:
    """The clock, the sleep and the longest total wait."""

    clock: Callable[[], dt.datetime] = utc.now
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    max_wait_s: float = MAX_WAIT_S


@dataclass(frozen=True, slots=True)
class RemoteCommit:
    """A commit on the host."""

    sha: str
    tree: str
    message: str
    parents: tuple[str, ...] = ()


class GitObjects(Protocol):
    """The object store and the refs of a repository on its host."""

    async def create_blob(self, data: bytes) -> str:
        """Store the content of a file; the same content has the same id."""
        ...

    async def create_tree(self, base_tree: str, blobs: Mapping[str, str]) -> str:
        """Create a tree from another one with some regular files replaced."""
        ...

    async def create_commit(self, message: str, *, tree: str, parent: str) -> str:
        """Create a commit with one parent."""
        ...

    async def commit(self, sha: str) -> RemoteCommit:
        """Return a commit."""
        ...

    async def tip(self, branch: str) -> str | None:
        """Return the commit at the tip of a branch; None if there is no such branch."""
        ...

    async def tips(self, prefix: str) -> Mapping[str, str]:
        """Return the tips of the branches whose names have a prefix, by name."""
        ...

    async def create_branch(self, branch: str, sha: str) -> None:
        """Create a branch; its name must be free."""
        ...

    async def advance_branch(self, branch: str, sha: str) -> None:
        """Move a branch to a descendant of its tip; any other commit is refused."""
        ...


class PullRequestReviews(Protocol):
    """The reviews of a repository's pull requests."""

    async def of(self, number: int) -> Sequence[Review]:
        """Return the reviews of a pull request, oldest first."""
        ...

    async def line_comments(self, number: int) -> Sequence[LineComment]:
        """Return the comments on lines of a pull request."""
        ...

    async def create(
        self, number: int, *, decision: ReviewDecision, body: str = "", commit: str | None = None
    ) -> Review:
        """Add a review."""
        ...

    async def suggest(
        self, number: int, suggestions: Sequence[SuggestedLines], *, commit: str, body: str = ""
    ) -> Sequence[Review]:
        """Suggest replacements for lines in the diff of a pull request."""
        ...


class ReviewForge(Forge, Protocol):
    """A forge on which changes are proposed, reviewed and merged."""

    address: RepositoryAddress

    @property
    def git(self) -> GitObjects:
        """The objects of the repository."""
        ...

    @property
    def reviews(self) -> PullRequestReviews:
        """The reviews of its pull requests."""
        ...

    async def create_pull_request(self, change: Change) -> PullRequest:
        """Open a pull request."""
        ...

    async def update_pull_request(self, number: int, *, title: str, body: str) -> PullRequest:
        """Replace title and description."""
        ...

    async def close_pull_request(self, number: int) -> PullRequest:
        """Close a pull request."""
        ...

    async def merge_pull_request(self, number: int, *, head_sha: str) -> str:
        """Merge a pull request if its head is still this one, and return the new commit."""
        ...

    async def put_branch(self, change: Change) -> tuple[str, ProposalAction]:
        """Put a change on its branch, without a pull request."""
        ...

    async def propose(self, change: Change, *, put: PutBranch | None = None) -> ProposalResult:
        """Put a change on its branch and open a pull request, or update both."""
        ...
