"""Backups of the results file, and the removal of old ones.

A copy is one whole file (`VACUUM INTO`) of what was committed when it was begun; runs go on
meanwhile. It appears under its name only when it is complete and on the disk.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.errors import StoreError
from edison_ci.store.database import copy_to, store_error, stored_version

if TYPE_CHECKING:
    from pathlib import Path

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
        removed = _prune(folder, results.stem, keep)
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
    folder.mkdir(parents=True, exist_ok=True)
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
            found = copy.execute("pragma quick_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        raise store_error(error, results) from None
    if found != "ok":
        target.unlink(missing_ok=True)
        raise StoreError(f"the copy is damaged: {found}", hint="check the disk")


def _prune(folder: Path, stem: str, keep: int) -> tuple[str, ...]:
    copies = sorted(folder.glob(f"{stem}-*Z.db"), key=lambda path: path.name, reverse=True)
    for path in copies[keep:]:
        path.unlink(missing_ok=True)
    return tuple(sorted(path.name for path in copies[keep:]))
