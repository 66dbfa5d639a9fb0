"""Downloads of a run or of the history of an experiment: HTML, CSV and JSON lines.

A download is made in a separate thread with its own connection, and sent in pieces: a run may
have more cells than fit in memory.
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.documents.secrets import hidden
from edison_ci.report.charts.drawing import fluid
from edison_ci.report.charts.trend import trend
from edison_ci.report.files import Sources
from edison_ci.report.history import history_lines, history_page, history_records, history_rows
from edison_ci.report.reporters import HtmlPage
from edison_ci.report.run_charts import trends_of
from edison_ci.report.spreadsheet import as_csv, rows_of
from edison_ci.results.cells import Cells
from edison_ci.results.explanation import known_cases, unchanged_cases
from edison_ci.results.report import Report, json_lines, report_of
from edison_ci.results.run_result import RunResult
from edison_ci.results.stored_runs import find_current_run, open_results
from edison_ci.results.trends import model_trends, points_of
from edison_ci.web.workspace import searchable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncGenerator, Callable, Generator, Iterator
    from pathlib import Path

    from edison_ci.config.load import Project
    from edison_ci.records import Case
    from edison_ci.results.cells import FailingCells

    Texts = Callable[[sqlite3.Connection], Iterator[str]]

FORMATS = {
    "html": "text/html; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson; charset=utf-8",
}
"""Formats with their content types."""
_PIECE = 65_536


class Export(NamedTuple):
    """A file to download."""

    name: str
    content_type: str
    texts: Texts


def file_name(kind: str, *words: str) -> str:
    """Return a name of a file that is safe in a header and on any disk."""
    safe = "-".join(re.sub(r"[^A-Za-z0-9._-]+", "-", word).strip("-.") for word in words)
    return f"{safe[:100] or 'edison'}.{kind}"


def run_export(run_id: str, experiment: str, kind: str, project: Project | None) -> Export:
    """Return the cells of a run, or its report; without texts if the project is private."""
    private = project is not None and project.file.settings.private

    def inputs(view: RunResult, failing: FailingCells) -> dict[str, Case]:
        if project is None or not searchable(project, view.run.experiment):
            return {}
        hashes = {cell.case: cell.case_hash for cell in failing.cells}
        experiment_of_run = project.experiments.get(view.run.experiment)
        return unchanged_cases(project, experiment_of_run, hashes)

    def known(cells: Cells, view: RunResult) -> dict[str, Case]:
        if project is None or not searchable(project, view.run.experiment):
            return {}
        return known_cases(project, cells, view)

    def texts(connection: sqlite3.Connection) -> Iterator[str]:
        run, cells = find_current_run(connection, run_id), Cells(connection, texts=not private)
        if kind == "html":
            sources = Sources(cells=cells, inputs=inputs)
            yield HtmlPage().page(report_of(connection, [run]), sources)
            return
        # Statistics over all answers, which only the report needs, are not loaded.
        report = Report((RunResult(connection, run),))
        if kind == "csv":
            yield from as_csv(rows_of(report, cells, partial(known, cells)))
        else:
            yield from json_lines(report, cells)

    return Export(file_name(kind, experiment, run_id), FORMATS[kind], texts)


def experiment_export(name: str, kind: str) -> Export:
    """Return the complete runs of an experiment, a line for each prompt and model."""

    def texts(connection: sqlite3.Connection) -> Iterator[str]:
        points = points_of(connection, name)
        records = history_records(points, model_trends(connection, points))
        if kind == "csv":
            yield from as_csv(history_rows(records))
        elif kind == "jsonl":
            yield from history_lines(records)
        else:
            charts = trends_of(connection, points) if len(points) > 1 else []
            drawn = [fluid(trend, chart) for chart in charts]
            yield history_page(name, list(records), drawn)

    return Export(file_name(kind, name, "runs"), FORMATS[kind], texts)


async def pieces_of(path: Path, texts: Texts) -> AsyncGenerator[bytes]:
    """Yield a download in pieces, with known secrets masked."""
    loop = asyncio.get_running_loop()
    # SQLite wants to be asked by the thread that opened it.
    with ThreadPoolExecutor(1, thread_name_prefix="export") as thread:
        pieces = _pieces(path, texts)
        try:
            while (piece := await loop.run_in_executor(thread, next, pieces, None)) is not None:
                yield piece
        finally:
            await loop.run_in_executor(thread, pieces.close)


def _pieces(path: Path, texts: Texts) -> Generator[bytes]:
    with open_results(path) as connection:
        waiting: list[bytes] = []
        size = 0
        for text in texts(connection):
            waiting.append(hidden(text).encode("utf-8", errors="backslashreplace"))
            size += len(waiting[-1])
            if size >= _PIECE:
                yield b"".join(waiting)
                waiting, size = [], 0
        if waiting:
            yield b"".join(waiting)
