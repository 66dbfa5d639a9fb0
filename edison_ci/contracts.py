"""What must a plugin look like, and how does it say that it failed?"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Literal, Protocol

from edison_ci.documents.secrets import hidden

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.hosted import Change, ChangedFile, Comment, Proposed, PullRequest
    from edison_ci.records import Completion, Request


class ErrorKind(StrEnum):
    """Why a call failed, whoever the provider is."""

    RATE_LIMIT = "RATE_LIMIT"
    INVALID_KEY = "INVALID_KEY"
    QUOTA = "QUOTA"
    CONTEXT_LENGTH = "CONTEXT_LENGTH"
    CONTENT_FILTER = "CONTENT_FILTER"
    BAD_REQUEST = "BAD_REQUEST"
    MODEL_NOT_FOUND = "MODEL_NOT_FOUND"
    TIMEOUT = "TIMEOUT"
    PROVIDER_ERROR = "PROVIDER_ERROR"
    BAD_RESPONSE = "BAD_RESPONSE"
    NETWORK = "NETWORK"


RETRIED = frozenset(
    {ErrorKind.RATE_LIMIT, ErrorKind.PROVIDER_ERROR, ErrorKind.TIMEOUT, ErrorKind.NETWORK}
)
"""Failures of transport; an answer is never asked for again because of what it says."""
FATAL = frozenset({ErrorKind.INVALID_KEY, ErrorKind.QUOTA, ErrorKind.MODEL_NOT_FOUND})
"""Failures that every further call of the lane would share."""


class CallError(Exception):
    """A call that did not bring an answer."""

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        charged: bool = True,
    ) -> None:
        message = hidden(message)  # whoever refuses a key likes to repeat it
        super().__init__(f"{kind}: {message}")
        self.kind, self.message, self.status = kind, message, status
        self.retry_after_s = retry_after_s
        self.charged = charged
        """False only when it is known that the provider did not charge for it."""
        self.cut_off = False
        """Whether a reply began and was cut off in transit: such a reply is asked for again."""

    def rewrite(self, redact: Callable[[str], str]) -> None:
        """Change the message, which may repeat what was sent."""
        self.message = redact(self.message)
        self.args = (f"{self.kind}: {self.message}",)

    @property
    def retried(self) -> bool:
        """Whether the same call may be tried again."""
        return self.kind in RETRIED or self.cut_off


class Provider(Protocol):
    """Something that answers requests."""

    async def complete(self, request: Request) -> Completion:
        """Return the answer, or raise CallError."""
        ...


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
