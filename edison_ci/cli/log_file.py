"""The log file of --log-file: JSON lines, rotated by size, shared by any number of processes."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sys
from typing import TYPE_CHECKING

from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOST_BYTES = 10_000_000
"""Size at which a file is set aside."""
KEPT = 5
"""Files that are kept beside the current one: FILE.1 is the newest."""


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
