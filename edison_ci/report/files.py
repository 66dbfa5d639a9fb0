"""Report files and folders, written completely or not at all, and the sources of reports."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import hidden
from edison_ci.errors import UsageError
from edison_ci.report.change_details import ChangeDetails

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from edison_ci.records import Case
    from edison_ci.report.annotations import Changed
    from edison_ci.results.cells import CaseResult, Cells, FailingCells
    from edison_ci.results.run_result import RunResult

    Write = Callable[[str, bytes], object]
    """Writes a file of a folder, by its name."""


MARK = ".edison-report"
"""Marks a folder as written by edison, so that it may be replaced."""


def refuse_folder(folder: Path) -> None:
    """Raise UsageError for a folder with other files, or one that cannot be created."""
    if folder.is_dir():
        if any(folder.iterdir()) and not (folder / MARK).is_file():
            raise UsageError(
                f"{folder} contains files that are not a report", hint="choose a new folder"
            )
        return
    if folder.exists() or not folder.absolute().parent.is_dir():
        raise UsageError(
            f"the folder {folder} cannot be created", hint="its parent folder must exist"
        )


def write_folder(folder: Path, fill: Callable[[Write], None]) -> None:
    """Fill a new folder and replace an older report folder when it is complete."""
    try:
        beside = folder.absolute().parent
        new = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=beside))
        try:
            new.chmod(0o755)
            (new / MARK).write_bytes(b"")
            fill(lambda name, content: (new / name).write_bytes(content))
            if folder.is_dir():
                older = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=beside))
                folder.replace(older / "older")
                new.replace(folder)
                shutil.rmtree(older, ignore_errors=True)
            else:
                new.replace(folder)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
    except OSError as error:
        raise UsageError(
            f"the folder {folder} cannot be written: {error.strerror}", hint="choose another folder"
        ) from None


_HINT = "choose another place"


@dataclass(frozen=True, slots=True)
class Sources:
    """Data for a report besides the results of its runs."""

    cases: Callable[[RunResult], Iterable[CaseResult]] = lambda _: ()
    """Returns the results of each case of a run."""
    changed: Changed = field(default_factory=dict)
    """Changed lines of the pull request."""
    folder: str = ""
    """Path of the project in the checkout; empty, or with a trailing slash."""
    reasons: bool = True
    """Whether reasons, which may quote an answer, may be in the report."""
    cells: Cells | None = None
    """The cells, for formats that need them."""
    inputs: Callable[[RunResult, FailingCells], Mapping[str, Case]] = lambda _view, _failing: {}
    """Returns the known cases of failing answers, by id."""
    known: Callable[[RunResult], Mapping[str, Case]] = lambda _: {}
    """Returns the cases of a run that are still what they were, by id."""
    details: Callable[[], ChangeDetails] = ChangeDetails
    """Returns the diffs of prompts, and the cases that changed most, for Markdown."""
    raw: bool = False
    """Whether CSV keeps formulas."""

    @property
    def required_cells(self) -> Cells:
        """The cells, for a format that requires them."""
        assert self.cells is not None, "this format needs cells"
        return self.cells


def refuse_unwritable(path: Path) -> None:
    """Raise UsageError if no report can be written there; called before any call is paid."""
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir():
        raise UsageError(f"the report {path} cannot be written", hint="its folder must exist")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{folder} cannot be written", hint=_HINT)


def write_whole(path: Path, content: str | bytes | Iterable[str]) -> None:
    """Write a file atomically: it replaces an older one when it is completely on disk."""
    parts = (content,) if isinstance(content, str | bytes) else content
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.absolute().parent)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                for part in parts:
                    stream.write(_bytes(part))
                stream.flush()
                os.fchmod(stream.fileno(), 0o644)
                os.fsync(stream.fileno())
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(
            f"the report {path} cannot be written: {error.strerror}", hint=_HINT
        ) from None


def _bytes(part: str | bytes) -> bytes:
    """Encode a part, with known secrets masked in text."""
    if isinstance(part, bytes):
        return part
    return hidden(part).encode("utf-8", errors="backslashreplace")
