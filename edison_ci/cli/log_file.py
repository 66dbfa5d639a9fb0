"""The log file of --log-file: JSON lines, rotated by size and day, shared by processes."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sys
import time
from typing import TYPE_CHECKING

from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOST_BYTES = 10_000_000
"""Size at which a file is set aside."""
KEPT = 5
"""Files that are kept beside the current one, unless days are given: FILE.1 is the newest."""
_DAY_S = 86_400


class LogFile(logging.Handler):
    """Appends records to a file, one line each.

    The file is opened for every record: several processes may write to it, and the one that sets it
    aside must not leave the others with a file that is gone. Lines are appended whole.
    """

    def __init__(self, path: Path, *, days: int | None = None) -> None:
        super().__init__()
        self._path, self._days, self._complained = path, days, False
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
        """Set the file aside where it is full, or of another day; remove what is too old."""
        try:
            about = self._path.stat()
        except FileNotFoundError:
            return
        today = int(time.time() // _DAY_S)
        full = about.st_size + more > MOST_BYTES
        another_day = self._days is not None and about.st_mtime // _DAY_S != today
        if not about.st_size or not (full or another_day) or not self._path.is_file():
            return
        numbers = range(1, KEPT) if self._days is None else range(1, self._oldest() + 1)
        for number in reversed(numbers):
            with contextlib.suppress(FileNotFoundError):
                self._aside(number).replace(self._aside(number + 1))
        self._path.replace(self._aside(1))
        self._remove_old(today)

    def _oldest(self) -> int:
        """Return the number of the oldest file that was set aside."""
        number = 0
        while self._aside(number + 1).exists():
            number += 1
        return number

    def _remove_old(self, today: int) -> None:
        if self._days is None:
            return
        for number in range(self._oldest(), 0, -1):
            if today - self._aside(number).stat().st_mtime // _DAY_S < self._days:
                break
            self._aside(number).unlink()

    def _aside(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
