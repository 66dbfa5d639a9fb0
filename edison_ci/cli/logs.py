"""The log of a command: lines on stderr, and JSON lines in a file that processes share.

The file of --log-file is rotated by size, and may be written by any number of processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Any, TextIO

from edison_ci.errors import UsageError
from edison_ci.sanitize import json_text, line
from edison_ci.telemetry import spans

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edison_ci.cli.options import CliState

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


MOST_BYTES = 10_000_000
"""Size at which a file is set aside."""
KEPT = 5
"""Files that are kept beside the current one: FILE.1 is the newest."""


def configure_logging(state: CliState) -> None:
    """Send the log of the package to stderr, at the level that the options ask for.

    A log file has JSON lines from level info on, or from a lower one that is asked for.
    """
    level = _level(state)
    handlers: list[logging.Handler] = [_Stderr(sys.stderr)]
    handlers[0].setFormatter(_JsonLines() if state.log_json else _Lines())
    handlers[0].setLevel(level)
    if state.log_file is not None:
        file = LogFile(state.folder / state.log_file)
        file.setFormatter(_JsonLines())
        handlers.append(file)
        level = min(level, logging.INFO)
    logger = logging.getLogger("edison_ci")
    logger.handlers[:] = handlers
    logger.propagate = False
    logger.setLevel(level)


def _level(state: CliState) -> int:
    if state.debug:
        return logging.DEBUG
    if state.quiet:
        return logging.ERROR
    return (logging.WARNING, logging.INFO, logging.DEBUG)[min(state.verbose, 2)]


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to the current sys.stderr, which progress bars replace while they are shown."""

    def emit(self, record: logging.LogRecord) -> None:
        self.setStream(sys.stderr)
        super().emit(record)


class _Lines(logging.Formatter):
    """`warning: could not fetch (remote=origin)` on one line without secrets, a hint below it."""

    def format(self, record: logging.LogRecord) -> str:
        extra = _extra(record)
        hint = extra.pop("hint", "")
        data = ", ".join(f"{key}={value}" for key, value in extra.items())
        message = f"{record.getMessage()} ({data})" if data else record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        below = f"\n  {line(hint)}" if hint else ""
        return f"{record.levelname.lower()}: {line(message)}{below}"


class _JsonLines(logging.Formatter):
    """One JSON object per line, without secrets, with the ids of the run and the cell."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **spans.current_ids(),
            **_extra(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json_text(entry, indent=None, ascii_only=True)


class LogFile(logging.Handler):
    """Appends records to a file, one line each.

    The file is opened for every record: several processes may write to it, and the one that sets it
    aside must not leave the others with a file that is gone. Lines are appended whole.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path, self._complained = path, False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._append(b"")
        except OSError as error:
            raise UsageError(
                f"cannot write the log file {path}: {error.strerror}",
                hint="name another file with --log-file",
            ) from None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; one that cannot be written stops nothing."""
        try:
            self._append(f"{self.format(record)}\n".encode("utf-8", "backslashreplace"))
        except OSError as error:
            if not self._complained and sys.stderr is not None:
                self._complained = True
                sys.stderr.write(f"warning: cannot write {self._path}: {error.strerror}\n")

    def _append(self, line: bytes) -> None:
        with self._locked():
            self._rotate(len(line))
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, line)
            finally:
                os.close(descriptor)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from writing while files change their names."""
        beside = self._path.with_name(f".{self._path.name}.lock")
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _rotate(self, more: int) -> None:
        try:
            size = self._path.stat().st_size
        except FileNotFoundError:
            return
        if not size or size + more <= MOST_BYTES or not self._path.is_file():
            return
        for number in range(KEPT - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                self._aside(number).replace(self._aside(number + 1))
        self._path.replace(self._aside(1))

    def _aside(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
