"""The trace of a request: an id that an error on a page or over HTTP shares with the log.

A proxy or a client that sends `traceparent` (W3C Trace Context) chooses the id, so that an error is
found in its traces too.
"""

from __future__ import annotations

import datetime as dt
import re
import secrets
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.web.identity import header

if TYPE_CHECKING:
    from collections.abc import Mapping

_PARENT = re.compile(r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_TRACE: ContextVar[str] = ContextVar("trace", default="")


class ErrorMark(NamedTuple):
    """By what an error is found in the log."""

    time: str
    """In UTC."""
    trace_id: str
    """32 hex digits."""


def begin_trace(scope: Mapping[str, Any]) -> str:
    """Return the trace id of a request, which its errors have from now on."""
    parent = _PARENT.fullmatch(header(scope, b"traceparent").strip())
    trace_id = parent[1] if parent else secrets.token_hex(16)
    _TRACE.set(trace_id)
    return trace_id


def error_mark() -> ErrorMark:
    """Return the mark of an error of this request; its own id where no server began a trace."""
    now = dt.datetime.now(dt.UTC)
    return ErrorMark(f"{now:%Y-%m-%dT%H:%M:%SZ}", _TRACE.get() or secrets.token_hex(16))
