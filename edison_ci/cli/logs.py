"""Where does the log go, and how does a line of it look?"""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

from edison_ci.harmless import json_text, line

if TYPE_CHECKING:
    from edison_ci.cli.options import State

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(state: State) -> None:
    """Send the package's log to stderr, as much of it as was asked for."""
    handler = _Stderr(sys.stderr)
    handler.setFormatter(_JsonLines() if state.log_json else _Lines())
    logger = logging.getLogger("edison_ci")
    logger.handlers[:] = [handler]
    logger.propagate = False
    logger.setLevel(_level(state))


def _level(state: State) -> int:
    if state.debug:
        return logging.DEBUG
    if state.quiet:
        return logging.ERROR
    return (logging.WARNING, logging.INFO, logging.DEBUG)[min(state.verbose, 2)]


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to stderr as it is now: bars take its place while they are shown."""

    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        super().emit(record)


class _Lines(logging.Formatter):
    """`warning: could not fetch (remote=origin)`, on one line and without secrets.

    A hint stands below it.
    """

    def format(self, record: logging.LogRecord) -> str:
        extra = _extra(record)
        hint = extra.pop("hint", "")
        data = ", ".join(f"{key}={value}" for key, value in extra.items())
        said = f"{record.getMessage()} ({data})" if data else record.getMessage()
        if record.exc_info:
            said += "\n" + self.formatException(record.exc_info)
        below = f"\n  {line(hint)}" if hint else ""
        return f"{record.levelname.lower()}: {line(said)}{below}"


class _JsonLines(logging.Formatter):
    """One JSON object a line, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        return json_text(told, indent=None, ascii_only=True)
