"""edison report: a report on runs as HTML, Markdown, CSV, PDF and other formats."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.api import reports
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import Terminal
from edison_ci.errors import UsageError
from edison_ci.report import files, reporters
from edison_ci.results import report as result_report
from edison_ci.results import stored_runs
from edison_ci.sanitize import clean

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.config.load import Project
    from edison_ci.results.report import Report


class _Format(click.ParamType[str]):
    """The name of a format, built in or of a plugin; plugins are searched for on use."""

    name = "format"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return all names, for the help."""
        return f"[{'|'.join(self.names())}]"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return a known name; fail with all of them otherwise."""
        if value not in reporters.REPORTERS.built_in and value not in self.names():
            self.fail(f"{value!r} is not one of {', '.join(map(repr, self.names()))}.", param, ctx)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the names that begin so."""
        return [CompletionItem(name) for name in self.names() if name.startswith(incomplete)]

    @staticmethod
    def names() -> list[str]:
        """Return the built-in names in their order, then those of plugins."""
        return list(dict.fromkeys([*reporters.REPORTERS.built_in, *reporters.REPORTERS.names()]))


@click.command(cls=EdisonCommand)
@click.argument("name", required=False, metavar="[RUN]")
@click.option(
    "--format",
    "kind",
    type=_Format(),
    help="Format; default: md, or by the suffix of --out.",
)
@click.option(
    "--out",
    metavar="FILE",
    help="File to write atomically, or FOLDER/ for pages.",
)
@click.option("--raw", is_flag=True, help="In CSV, do not escape texts that look like formulas.")
@click.pass_obj
def report(state: CliState, name: str | None, kind: str | None, out: str | None, raw: bool) -> None:
    """Write a report on a run: HTML, Markdown, CSV, PDF and others.

    Reports are made from stored results; no model is called. HTML is one file with charts that
    needs no network, or in FOLDER/ the pages of `edison serve`; PDF is that file, printed by
    Chromium. CSV and JSONL have a line for each cell. These four include the texts of answers,
    unless the project is private. A bundle contains the run itself, with checksums, for `edison
    import bundle`. JUnit, SARIF, Markdown and JSON have ids and scores; only JUnit has reasons,
    which may quote a few words.

    RUN is an id, `latest` or the name of an experiment; a comparison on a changed eval suite is
    reported with both its runs. Without --out the report goes to stdout. The exit code says whether
    the report was written, not how the run ended.

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
    project = lookup.open_project(state)
    chosen = "json" if state.json and kind is None and out is None else kind or _kind_of(out)
    file = None if out is None else Path(out)
    writing = _Writing(terminal, project, chosen, file, raw, folder=(out or "").endswith("/"))
    writing.refuse()
    with stored_runs.open_runs(project) as runs:
        run = lookup.find_run_or_newest(terminal, runs, name)
        run_report = result_report.report_of(runs.connection, [runs.current(run.id)])
        writing.write(runs.connection, run_report)


@dataclass(frozen=True, slots=True)
class _Writing:
    """A requested report."""

    terminal: Terminal
    project: Project
    kind: str
    out: Path | None
    raw: bool
    folder: bool = False

    def refuse(self) -> None:
        """Refuse impossible options before anything is read."""
        if self.raw and self.kind != "csv":
            raise UsageError("--raw needs --format csv", hint="use --format csv, or remove --raw")
        if self.folder:
            self._refuse_folder()
        elif self.out is not None:
            files.refuse_unwritable(self.out)
        if self.kind == reporters.BUNDLE:
            self._refuse_stdout("run.zip")
            return
        chosen = reporters.reporter(self.kind)
        if chosen.texts:
            site = sites.Site(self.project.root, self.project.file)
            site.require(sites.Role.VIEWER, f"report --format {self.kind}")
        if chosen.binary:
            self._refuse_stdout(f"report{chosen.suffix}")
        chosen.refuse()

    def _refuse_stdout(self, name: str) -> None:
        if self.out is None:
            raise UsageError(f"--format {self.kind} needs a file", hint=f"use --out {name}")

    def _refuse_folder(self) -> None:
        if self.kind != "html" or self.out is None:
            raise UsageError(
                "only HTML can be written to a folder", hint="use --format html, or name a file"
            )
        if self.project.file.settings.private:
            raise UsageError(
                "this project is private, and pages show texts",
                hint="write one file, which leaves them out: --out report.html",
            )
        files.refuse_folder(self.out)

    def write(self, connection: sqlite3.Connection, report: Report) -> None:
        """Write the report to its file, or to stdout."""
        site = sites.Site(self.project.root, self.project.file)
        if self.kind == reporters.BUNDLE or self.folder or reporters.reporter(self.kind).texts:
            runs = ", ".join(view.run.id for view in report.runs)
            site.note_export(f"run {runs} as {self.kind}", str(self.out or "stdout"))
        if self.kind == reporters.BUNDLE:
            reporters.REPORTERS.load(reporters.BUNDLE)(
                site, [view.run for view in report.runs], self.out
            )
            self._tell(report)
            return
        private, texts = self.project.file.settings.private, reporters.reporter(self.kind).texts
        if private and texts:
            self.terminal.note("this project is private: texts and reasons are left out")
        if self.folder and self.out is not None:
            self._pages(report, self.out)
            self._tell(report)
            return
        viewer = site.actor().may(sites.Role.VIEWER)
        sources = reports.sources_of(connection, self.project, report, quotes=viewer)
        sources = replace(sources, raw=self.raw)
        content = reporters.rendered(report, self.kind, sources)
        if self.out is not None:
            files.write_whole(self.out, content)
            self._tell(report)
            return
        if isinstance(content, bytes):
            self._refuse_stdout(f"report{reporters.reporter(self.kind).suffix}")
            return
        on_terminal = texts and sys.stdout.isatty()
        for line in [content] if isinstance(content, str) else content:
            self.terminal.raw(clean(line) if on_terminal else line)

    def _pages(self, report: Report, out: Path) -> None:
        """Write the pages of `edison serve` on a copy that has the runs of a report alone."""
        # Imports Datasette, which no other format needs.
        from edison_ci.web.serving import Serving
        from edison_ci.web.static_pages import require_few_cells, write_static_pages

        require_few_cells(sum(view.run.cells_planned for view in report.runs))
        project, run_ids = self.project, [view.run.id for view in report.runs]
        with stored_runs.runs_apart(project, run_ids) as copy:
            serving = Serving(copy, project.root, project.file.project, "127.0.0.1", 0)
            files.write_folder(out, lambda write: asyncio.run(write_static_pages(serving, write)))

    def _tell(self, report: Report) -> None:
        if self.terminal.json:
            runs = [view.run.id for view in report.runs]
            about = {"format": self.kind, "file": str(self.out), "verdict": report.verdict}
            self.terminal.document({**about, "runs": runs})
        self.terminal.note(f"wrote {self.out}")


def _kind_of(out: str | None) -> str:
    if out is None:
        return "md"
    return "html" if out.endswith("/") else reporters.format_by_suffix(Path(out).suffix)
