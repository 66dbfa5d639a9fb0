"""The header of a results file, by its first bytes.

POSIX takes every lock of a process off a file when the process closes that file anywhere, and
SQLite would not notice: another process would then take itself for the last one and remove the log
that we go on writing to. So a file that was looked into stays open, and is read again through the
same descriptor. As long as it is open its inode is not given to another file, either.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.errors import StoreError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

APPLICATION_ID = 0x45444953  # "EDIS"

_MAGIC = b"SQLite format 3\0"
_SIZE = 100
_MOST_OPEN = 32
"""Files kept open; the oldest is then closed. A process has one or two, a test run hundreds."""

_open: dict[tuple[int, int], int] = {}
_guard = threading.Lock()


class Header(NamedTuple):
    """The first bytes of a file, and its length."""

    raw: bytes
    size: int

    @property
    def application_id(self) -> int:
        """Whose file it is."""
        return int.from_bytes(self.raw[68:72], "big")

    @property
    def in_wal_mode(self) -> bool:
        """Whether the file writes a log."""
        return self.raw[18] != 1

    @property
    def least_size(self) -> int:
        """How long the file says it is, at least; 0 if it does not say."""
        pages, told = int.from_bytes(self.raw[28:32], "big"), self.raw[24:28] == self.raw[92:96]
        page_size = int.from_bytes(self.raw[16:18], "big")
        return pages * (65_536 if page_size == 1 else page_size) if told else 0


def refuse_what_is_not_ours(path: Path) -> None:
    """Refuse what is no results file of ours, or only a part of one, without touching it."""
    try:
        header = _read(path)
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error.strerror}", hint="who may read the file?"
        ) from None
    if not header.raw:
        raise UsageError(f"{path} is empty", hint="remove it, and it will be made anew")
    if len(header.raw) < _SIZE or not header.raw.startswith(_MAGIC):
        raise UsageError(f"{path} is not a database", hint="set results: to another file")
    if header.application_id != APPLICATION_ID:
        raise UsageError(
            f"{path} is another program's database", hint="set results: to another file"
        )
    if _has_content(path, "-wal"):
        _refuse_foreign_log(path, header)
    elif not _has_content(path, "-journal"):
        _refuse_truncated(path, header)


def _refuse_foreign_log(path: Path, header: Header) -> None:
    """Refuse a log beside a file that never wrote one: SQLite would mix the two.

    Copies made by `db backup` are not in WAL mode, and a file changes to it before its log exists.
    So this log was left behind by the file in whose place the copy was put.
    """
    if not header.in_wal_mode:
        log, others = f"{path.name}-wal", f"{path.name}-wal and {path.name}-shm"
        raise StoreError(
            f"{log} belongs to another file than the {path.name} beside it",
            hint=f"if you restored {path.name} from a backup, remove {others}",
        )


def _refuse_truncated(path: Path, header: Header) -> None:
    """Refuse a file that is shorter than it says; only a log could hold the rest."""
    if header.size < header.least_size:
        raise StoreError(
            f"{path} is cut off: {header.size:,} of {header.least_size:,} bytes are there",
            hint="restore a backup",
        )


def _has_content(path: Path, suffix: str) -> bool:
    try:
        return path.with_name(path.name + suffix).stat().st_size > 0
    except OSError:
        return False


def _read(path: Path) -> Header:
    with _guard:
        status = path.stat()
        descriptor = _open.get((status.st_dev, status.st_ino))
        if descriptor is None:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            status = os.fstat(descriptor)
            _open[status.st_dev, status.st_ino] = descriptor
            if len(_open) > _MOST_OPEN:
                os.close(_open.pop(next(iter(_open))))
        return Header(os.pread(descriptor, _SIZE, 0), os.fstat(descriptor).st_size)
