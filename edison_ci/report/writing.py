"""Reports written to files, whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import hidden
from edison_ci.errors import UsageError
from edison_ci.report.document import document_text
from edison_ci.report.json_lines import json_lines
from edison_ci.report.junit import junit
from edison_ci.report.markdown import markdown
from edison_ci.report.sarif import sarif
from edison_ci.report.spreadsheet import as_csv, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from edison_ci.report.changed_lines import Changed
    from edison_ci.results.cells import CaseResult, Cells
    from edison_ci.results.report import Report
    from edison_ci.results.run_result import RunResult

FORMATS = ("md", "json", "junit", "sarif", "csv", "jsonl")
LONG = ("csv", "jsonl")
"""Formats with a line for each cell, which are written piece by piece."""
_HINT = "write it somewhere else"


@dataclass(frozen=True, slots=True)
class Sources:
    """What a report needs besides the picture of its runs."""

    cases: Callable[[RunResult], Iterable[CaseResult]] = lambda _: ()
    """How each case of a run went."""
    changed: Changed = field(default_factory=dict)
    """The lines that a change touched."""
    folder: str = ""
    """Where the project is in the checkout; empty, or with a slash at its end."""
    reasons: bool = True
    """Whether reasons, which may quote an answer, may leave the results."""
    cells: Cells | None = None
    """What is known of every cell, for the formats that tell it."""
    raw: bool = False
    """Whether a spreadsheet gets texts as they are, formulas too."""


def rendered(report: Report, format: str, sources: Sources) -> str:
    """Return a report in one of the formats."""
    if format == "junit":
        return junit(report, sources.cases, reasons=sources.reasons)
    if format == "sarif":
        return sarif(report, sources.changed, folder=sources.folder)
    return document_text(report) if format == "json" else markdown(report)


def pieces(report: Report, format: str, sources: Sources) -> Iterator[str]:
    """Yield a report in one of the long formats, a line after the other."""
    assert sources.cells is not None, "a long report tells of cells"
    if format == "jsonl":
        return json_lines(report, sources.cells)
    return as_csv(rows_of(report, sources.cells), raw=sources.raw)


def refuse_unwritable(path: Path) -> None:
    """Refuse a place where no report could be written, before anything is paid for."""
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir():
        raise UsageError(f"no report can be written to {path}", hint="is there such a folder?")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{folder} cannot be written", hint=_HINT)


def write_whole(path: Path, content: str | bytes | Iterable[str]) -> None:
    """Write a file that takes the place of an older one when all of it is on the disk."""
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
    """Return what is written: of a text, without the secrets that are known."""
    if isinstance(part, bytes):
        return part
    return hidden(part).encode("utf-8", errors="backslashreplace")
