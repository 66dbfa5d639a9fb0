"""Folders of pages, written whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    Write = Callable[[str, bytes], object]
    """Writes a file of a folder, by its name."""

MARK = ".edison-report"
"""A file that says that we made the folder, and may replace it."""


def refuse_folder(folder: Path) -> None:
    """Refuse a folder that somebody else filled, or that cannot be made."""
    if folder.is_dir():
        if any(folder.iterdir()) and not (folder / MARK).is_file():
            raise UsageError(
                f"{folder} has files that are not of a report", hint="name a new folder"
            )
        return
    if folder.exists() or not folder.absolute().parent.is_dir():
        raise UsageError(f"no folder can be made at {folder}", hint="is there such a place?")


def write_folder(folder: Path, fill: Callable[[Write], None]) -> None:
    """Let a folder be filled that takes the place of an older one of ours when it is done."""
    try:
        beside = folder.absolute().parent
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=beside))
        try:
            made.chmod(0o755)
            (made / MARK).write_bytes(b"")
            fill(lambda name, content: (made / name).write_bytes(content))
            if folder.is_dir():
                older = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=beside))
                folder.replace(older / "older")
                made.replace(folder)
                shutil.rmtree(older, ignore_errors=True)
            else:
                made.replace(folder)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise
    except OSError as error:
        raise UsageError(
            f"the folder {folder} cannot be written: {error.strerror}", hint="write it elsewhere"
        ) from None
