"""What a plugin must look like, and how it says that it failed."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from edison_ci.documents.secrets import hidden

if TYPE_CHECKING:
    from collections.abc import Callable

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
