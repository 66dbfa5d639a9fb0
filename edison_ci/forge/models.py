"""What is kept where a repository is hosted: comments, pull requests and reviews."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Protocol

from edison_ci._dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Account:
    """Who wrote something."""

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
    """What the author is to the repository, as the forge says: OWNER, MEMBER, COLLABORATOR, ..."""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file that a pull request changes."""

    path: str
    status: str
    """added, removed, modified, renamed, copied, changed or unchanged."""
    previous: str | None = None
    """The former name of a renamed file."""
    patch: str = ""
    """Its hunks, of which the forge may leave out those of large files."""


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
    """The commit that merged it; None before, and where the forge does not say."""
    merged_by: str | None = None


@dataclass(frozen=True, slots=True)
class Review:
    """What a person decided about a pull request."""

    id: int
    author: Account
    state: str
    """APPROVED, CHANGES_REQUESTED, COMMENTED, DISMISSED or PENDING."""
    body: str
    url: str
    commit: str | None = None
    submitted_at: str | None = None
    """None while the review is not submitted."""


@dataclass(frozen=True, slots=True)
class LineComment:
    """A comment on a line of a pull request's diff."""

    id: int
    author: Account
    path: str
    line: int | None
    """None when the line is no longer part of the diff."""
    body: str
    url: str


@dataclass(frozen=True, slots=True)
class SuggestedLines:
    """Lines of a file in a pull request, and what to put in their place."""

    path: str
    first_line: int
    last_line: int
    replacement: str
    """Without a newline at its end; empty takes the lines away."""
    note: str = ""


class Decision(StrEnum):
    """What a review says as a whole."""

    COMMENT = "COMMENT"
    APPROVE = "APPROVE"
    REQUEST_CHANGES = "REQUEST_CHANGES"


@dataclass(frozen=True, slots=True)
class Change:
    """Files to put on a branch of their own, and the pull request that offers them."""

    branch: str
    base: str
    """The branch it is meant for."""
    base_commit: str
    """What it was made on; the branch starts here."""
    files: Mapping[str, bytes]
    key: str
    """Stands in the commit as a trailer, by which the same change is found again."""
    title: str
    body: str = ""
    message: str = ""
    """What the commit says below its title."""
    draft: bool = False
    fresh: bool = False
    """Whether the branch has to be new: one that has another change is then left alone."""


class Deed(StrEnum):
    """What became of something that was put on a forge."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Proposed:
    """Where a change can be looked at."""

    branch: str
    commit: str
    deed: Deed
    pull_request: PullRequest | None = None
    compare_url: str | None = None
    """Where a person can open the pull request."""
    patch: bytes = field(default=b"", repr=False)
    """The commit as a patch, where there is no forge to show it."""
    why: str = ""
    """Why there is no open pull request."""


class Proposer(Protocol):
    """Somewhere a change can be put so that people can look at it."""

    async def propose(self, change: Change) -> Proposed:
        """Put a change on its branch and offer it; the same change is never offered twice."""
        ...


class Forge(Proposer, Protocol):
    """Where a repository is hosted. Each call raises ForgeError when it is refused."""

    def is_ours(self, comment: Comment) -> bool:
        """Whether we wrote a comment; decided by what was configured, without asking."""
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
        """Take a comment away; one that is gone already is no error."""
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
        """Return what a file says in a commit or branch; None if it is not there."""
        ...
