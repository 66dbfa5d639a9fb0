"""edison report: what a run found, for people and for other programs."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edison_ci._dataclass import dataclass
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.reading import project_at, results_of
from edison_ci.cli.reporting import run_as_seen, sources_of
from edison_ci.cli.terminal import Terminal
from edison_ci.errors import UsageError
from edison_ci.operate.actors import Role
from edison_ci.operate.site import Site
from edison_ci.plugins import later
from edison_ci.report.writing import (
    FORMATS,
    LONG,
    Sources,
    pieces,
    refuse_unwritable,
    rendered,
    write_whole,
)
from edison_ci.results.cells import Cells, Failing
from edison_ci.results.explanation import unchanged_cases
from edison_ci.results.report import report_of
from edison_ci.sanitize import clean

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.config.load import Project
    from edison_ci.results.report import Report
    from edison_ci.results.run_result import RunResult

_PAGES = ("html", "pdf")
_FILES = ("pdf", "bundle")
"""Formats that are no text, and need a file."""
_WITH_TEXTS = (*LONG, *_PAGES)
_ENDINGS = {
    ".xml": "junit",
    ".sarif": "sarif",
    ".json": "json",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".html": "html",
    ".htm": "html",
    ".pdf": "pdf",
    ".zip": "bundle",
}
# Loaded late: most reports have no charts, and are written by a job that waits for them.
_html_page = later("edison_ci.report.html.page:html_page")
_shown = later("edison_ci.report.html.page:Shown")
_find_browser = later("edison_ci.report.pdf:find_browser")
_printed = later("edison_ci.report.pdf:printed")
_write_bundle = later("edison_ci.operate.bundles:write_bundle")
_extract = later("edison_ci.store.extracts:extract")
_serving = later("edison_ci.web.serving:Serving")
_static_pages = later("edison_ci.web.static_pages:static_pages")
_refuse_folder = later("edison_ci.report.folders:refuse_folder")
_refuse_too_many = later("edison_ci.web.static_pages:refuse_too_many")
_write_folder = later("edison_ci.report.folders:write_folder")


@click.command(cls=EdisonCommand)
@click.argument("wanted", default="latest", metavar="[RUN]")
@click.option(
    "--format",
    "kind",
    type=click.Choice((*FORMATS, *_PAGES, "bundle")),
    help="md by default, or by the ending of --out.",
)
@click.option(
    "--out",
    metavar="FILE",
    help="Write to this file, whole or not at all; FOLDER/ for pages as a folder.",
)
@click.option(
    "--raw", is_flag=True, help="In CSV, leave texts that look like formulas as they are."
)
@click.pass_obj
def report(state: State, wanted: str, kind: str | None, out: str | None, raw: bool) -> None:
    """Write what a run found as a page, a table or a document.

    Everything is told from what is stored, and nothing is asked of any model. HTML is one file
    with charts that needs no network, or in FOLDER/ the pages of `edison serve`; PDF is the file,
    printed by a Chromium. CSV and JSONL have a line for each cell. These four have the texts of
    answers, unless the project is private. A bundle has the run itself, with checksums, for
    `import bundle` elsewhere. JUnit, SARIF, Markdown and JSON have ids and scores; only JUnit has
    reasons, which may quote a few words.

    RUN is an id, `latest` or the name of an experiment; a comparison on changed material is told
    with both its runs. Without --out the report goes to stdout. The exit code says whether the
    report was written, not how the run ended.

    Examples:
      edison report
      edison report latest --out report.html
      edison report latest --out public/
      edison report support-reply --format junit --out junit.xml
      edison report --format csv > cells.csv
      edison report latest --out run.zip
      edison report --format sarif > edison.sarif
    """
    terminal = Terminal(state)
    project = project_at(state)
    chosen = "json" if state.json and kind is None and out is None else kind or _kind_of(out)
    file = None if out is None else Path(out)
    writing = _Writing(terminal, project, chosen, file, raw, folder=(out or "").endswith("/"))
    writing.refuse()
    with results_of(project) as connection:
        found = report_of(connection, [run_as_seen(connection, project, wanted)])
        writing.write(connection, found)


@dataclass(frozen=True, slots=True)
class _Writing:
    """A report that is asked for."""

    terminal: Terminal
    project: Project
    kind: str
    out: Path | None
    raw: bool
    folder: bool = False

    def refuse(self) -> None:
        """Refuse what cannot be done, before anything is read."""
        if self.raw and self.kind != "csv":
            raise UsageError("--raw is for CSV", hint="say --format csv, or leave --raw out")
        if self.folder:
            self._refuse_folder()
        elif self.out is not None:
            refuse_unwritable(self.out)
        if self.kind in _WITH_TEXTS:
            site = Site(self.project.root, self.project.file)
            site.require(Role.VIEWER, f"report --format {self.kind}")
        if self.kind in _FILES and self.out is None:
            name = "report.pdf" if self.kind == "pdf" else "run.zip"
            raise UsageError(f"--format {self.kind} needs a file", hint=f"say --out {name}")
        if self.kind == "pdf":
            _find_browser()

    def _refuse_folder(self) -> None:
        if self.kind != "html" or self.out is None:
            raise UsageError("only HTML is a folder", hint="say --format html, or name a file")
        if self.project.file.settings.private:
            raise UsageError(
                "this project is private, and pages show texts",
                hint="write one file, which leaves them out: --out report.html",
            )
        _refuse_folder(self.out)

    def write(self, connection: sqlite3.Connection, found: Report) -> None:
        """Write the report where it was asked for."""
        sources = sources_of(connection, self.project, found)
        private = self.project.file.settings.private
        if private and self.kind in _WITH_TEXTS:
            self.terminal.note("this project is private: texts and reasons are left out")
        if self.kind == "bundle":
            site = Site(self.project.root, self.project.file)
            _write_bundle(site, [view.run for view in found.runs], self.out)
            self._tell(found)
            return
        if self.folder:
            _refuse_too_many(sum(view.run.cells_planned for view in found.runs))
            self._pages([view.run.id for view in found.runs])
            self._tell(found)
            return
        cells = Cells(connection, texts=not private)
        if self.kind in LONG:
            self._long(found, Sources(cells=cells, raw=self.raw))
            return
        text: str | bytes
        if self.kind in _PAGES:
            text = self._page(found, cells)
        else:
            text = rendered(found, self.kind, sources)
        if self.kind == "pdf":
            text = _printed(_find_browser(), text)
        if self.out is None:
            assert isinstance(text, str), "a PDF has its file"
            self.terminal.raw(text)
            return
        write_whole(self.out, text)
        self._tell(found)

    def _pages(self, run_ids: list[str]) -> None:
        """Write the pages of `edison serve` on a copy that has these runs alone."""
        project = self.project
        with tempfile.TemporaryDirectory(prefix="edison-pages-") as name:
            copy = Path(name) / "results.db"
            _extract(project.root / project.file.results, run_ids, copy)
            serving = _serving(copy, project.root, project.file.project, "127.0.0.1", 0)
            _write_folder(self.out, lambda write: asyncio.run(_static_pages(serving, write)))

    def _long(self, found: Report, sources: Sources) -> None:
        lines = pieces(found, self.kind, sources)
        if self.out is not None:
            write_whole(self.out, lines)
            self._tell(found)
            return
        shown = sys.stdout.isatty()
        for line in lines:
            self.terminal.raw(clean(line) if shown else line)

    def _page(self, found: Report, cells: Cells) -> str:
        runs = []
        for view in found.runs:
            failing = cells.failing(view)
            runs.append(_shown(view, failing, self._cases(view, failing) if cells.texts else {}))
        page: str = _html_page(found, runs, unfolded=self.kind == "pdf")
        return page

    def _cases(self, view: RunResult, failing: Failing) -> dict[str, Any]:
        """Return what was asked where an answer failed, if the case is still the same."""
        experiment = self.project.experiments.get(view.run.experiment)
        wanted = {cell.case: cell.case_hash for cell in failing.cells}
        return unchanged_cases(self.project, experiment, wanted)

    def _tell(self, found: Report) -> None:
        if self.terminal.json:
            runs = [view.run.id for view in found.runs]
            told = {"format": self.kind, "file": str(self.out), "verdict": found.verdict}
            self.terminal.document({**told, "runs": runs})
        self.terminal.note(f"wrote {self.out}")


def _kind_of(out: str | None) -> str:
    if out is None:
        return "md"
    return "html" if out.endswith("/") else _ENDINGS.get(Path(out).suffix, "md")
