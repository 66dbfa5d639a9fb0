"""Backups of the results file: made, restored, and the old ones removed.

A copy is one whole file (`VACUUM INTO`) of what was committed when it was begun; runs continue
meanwhile. It appears under its name only when it is complete and on the disk.

A backup is restored into the file that is there, page by page in one transaction, so that pages
that are being served continue with the restored results, and a process that is killed changes
nothing.
"""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import time
import uuid
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.documents.files import make_folder
from edison_ci.errors import EdisonError, StoreError, UsageError
from edison_ci.store.audit import add_audit
from edison_ci.store.database import (
    copy_to,
    open_database,
    open_reader,
    store_error,
    stored_version,
    sync_to_disk,
)
from edison_ci.store.integrity import check_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edison_ci.store.audit import AuditEntry

_DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Backup:
    """A copy that was made, and the older ones that had to go."""

    path: Path
    size_bytes: int
    sha256: str
    removed: tuple[str, ...] = ()


def back_up(results: Path, folder: Path, *, stamp: str, keep: int) -> Backup:
    """Copy the results into a folder, and keep the `keep` newest copies there."""
    stored_version(results)  # raises for another file
    target = folder / f"{results.stem}-{stamp}.db"
    try:
        _prepare(folder)
        _copy(results, target)
        removed = _prune(target, results.stem, keep)
        with target.open("rb") as stream:
            sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
        return Backup(target, target.stat().st_size, sha256, removed)
    except OSError as error:
        raise StoreError(
            f"cannot write {target}: {error.strerror}",
            hint="check the free space and the permissions of the folder",
        ) from None


def copy_whole(results: Path, target: Path) -> None:
    """Copy the results to a file, whole or not at all; raises StoreError."""
    stored_version(results)  # raises for another file
    try:
        _copy(results, target)
    except OSError as error:
        raise StoreError(
            f"cannot write {target}: {error.strerror}",
            hint="check the free space and the permissions of the folder",
        ) from None


def _prepare(folder: Path) -> None:
    make_folder(folder)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("# Copies of the results stay on this machine.\n*\n", encoding="utf-8")
    for left in folder.glob(".*.part"):  # by a process that was killed
        if time.time() - left.stat().st_mtime > _DAY_S:
            left.unlink(missing_ok=True)


def _copy(results: Path, target: Path) -> None:
    address = f"{results.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=30)) as source:
            copy_to(source, target)
        with closing(sqlite3.connect(f"{target.absolute().as_uri()}?mode=ro", uri=True)) as copy:
            result = copy.execute("pragma quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        raise store_error(error, results) from None
    if result != "ok":
        target.unlink(missing_ok=True)
        raise StoreError(f"the copy is damaged: {result}", hint="check the disk")


def _prune(made: Path, stem: str, keep: int) -> tuple[str, ...]:
    # What is dated later than the newest one was made when the clock was ahead.
    copies = sorted(backups_in(made.parent, stem), key=lambda path: path.name > made.name)
    for path in copies[keep:]:
        path.unlink(missing_ok=True)
    return tuple(sorted(path.name for path in copies[keep:]))


_SUFFIXES = ("", "-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class BackupContent:
    """What a results file has, to distinguish it from another one."""

    runs: int
    newest_run_at: str | None


def backups_in(folder: Path, stem: str) -> list[Path]:
    """Return the backups of a results file, newest first."""
    return sorted(folder.glob(f"{stem}-*Z.db"), key=lambda path: path.name, reverse=True)


def content_of(path: Path) -> BackupContent:
    """Return what a results file has; raises StoreError or UsageError if it cannot be read."""
    try:
        with closing(open_reader(path)) as connection:
            row = connection.execute("select count(*), max(created_at) from run").fetchone()
    except sqlite3.Error as error:
        raise store_error(error, path) from None
    return BackupContent(*row)


@contextmanager
def checked_copy(source: Path, beside: Path) -> Iterator[Path]:
    """Yield a copy of a backup in the folder of the results; refuses one that is not sound."""
    if not source.is_file():
        raise UsageError(f"there is no file {source}", hint="see: ls .edison/backups")
    copy = beside.with_name(f".{beside.name}.{uuid.uuid4().hex[:12]}.restore")
    for left in beside.parent.glob(f".{beside.name}.*.restore"):  # by a process that was killed
        _remove(left)
    try:
        copy_whole(source, copy)
        with closing(open_reader(copy)) as connection:
            wrong = [f"{c.what}: {text}" for c in check_database(connection) for text in c.problems]
        if wrong:
            raise StoreError(
                f"{source.name} is damaged: {wrong[0]}",
                hint="restore another backup; nothing was changed",
            )
        yield copy
    finally:
        _remove(copy)


def keep_aside(results: Path, aside: Path) -> bool:
    """Copy the results before they are replaced; return whether they could be read as results."""
    _prepare(aside.parent)
    try:
        copy_whole(results, aside)
    except EdisonError:  # damaged: that may be why a backup is restored
        try:
            for suffix in _SUFFIXES:
                with suppress(FileNotFoundError):
                    target = aside.with_name(aside.name + suffix)
                    shutil.copyfile(results.with_name(results.name + suffix), target)
                    sync_to_disk(target)
        except OSError as error:
            raise StoreError(
                f"cannot keep the present file as {aside}: {error.strerror}",
                hint="nothing was changed; check the free space",
            ) from None
        return False
    return True


def replace_content(results: Path, copy: Path, entry: AuditEntry) -> None:
    """Make the results those of a copy, with a row in the audit that says so."""
    try:
        with closing(open_database(copy)) as source:
            source.execute("begin immediate")
            add_audit(source, entry)
            source.execute("commit")
            with closing(_writable(results)) as target:
                target.execute("begin immediate")  # waits for writers, or raises
                target.execute("rollback")
                source.backup(target)
                target.execute("pragma wal_checkpoint(truncate)")
    except sqlite3.Error as error:
        raise store_error(error, results) from None


def _writable(results: Path) -> sqlite3.Connection:
    try:
        return open_database(results)
    except EdisonError:  # it cannot be opened, and a copy of it was kept
        _remove(results)
        return open_database(results)


def _remove(path: Path) -> None:
    for suffix in _SUFFIXES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
