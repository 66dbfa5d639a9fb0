"""Report formats: the built-in reporters, and plugins of other packages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from edison_ci.errors import EdisonError, UsageError
from edison_ci.plugins import Registry
from edison_ci.records import Side
from edison_ci.report import junit as report_junit
from edison_ci.report import markdown_report, pdf, spreadsheet
from edison_ci.report import sarif as report_sarif
from edison_ci.results import report as result_report
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.report.files import Sources
    from edison_ci.results.report import Report

BUNDLE = "bundle"
"""The run itself as a file; it is written in pieces and is not a Reporter."""
REPORTERS = Registry(
    "edison_ci.reporters",
    {
        "md": "edison_ci.report.reporters:Markdown",
        "json": "edison_ci.report.reporters:Document",
        "junit": "edison_ci.report.reporters:JUnit",
        "sarif": "edison_ci.report.reporters:Sarif",
        "csv": "edison_ci.report.reporters:Csv",
        "jsonl": "edison_ci.report.reporters:JsonLines",
        "html": "edison_ci.report.reporters:HtmlPage",
        "pdf": "edison_ci.report.reporters:Pdf",
        BUNDLE: "edison_ci.api.bundles:write_bundle",
    },
)
_MORE_SUFFIXES = {".htm": "html", ".zip": BUNDLE}


class Reporter(ABC):
    """A report format; packages add their own in the entry-point group edison_ci.reporters.

    `edison report --format NAME` names the entry point.
    """

    suffix: ClassVar[str] = ""
    """File extension, such as `.md`, by which `--out` selects this format."""
    texts: ClassVar[bool] = True
    """Whether it may quote answers: it then needs the role viewer, and omits them if private."""
    binary: ClassVar[bool] = False
    """Whether it returns bytes, which need `--out FILE`."""

    def refuse(self) -> None:  # noqa: B027  # most formats need nothing
        """Raise UsageError if this machine cannot write it; called before results are read."""

    @abstractmethod
    def render(self, report: Report, sources: Sources) -> str | bytes | Iterator[str]:
        """Return the report as text or bytes; only built-in formats return an iterator of text."""


def reporter(name: str) -> Reporter:
    """Return a format by name; raises UsageError if there is none."""
    kind = None if name == BUNDLE else REPORTERS.load_class(name, Reporter)
    if kind is None:
        names = [known_name for known_name in REPORTERS.names() if known_name != BUNDLE]
        raise UsageError(f"there is no format {name!r}", hint=did_you_mean(name, names))
    return kind()


def rendered(report: Report, format: str, sources: Sources) -> str | bytes | Iterator[str]:
    """Render a report in a format; long ones as an iterator of text."""
    chosen = reporter(format)
    if format in REPORTERS.built_in:
        return chosen.render(report, sources)
    who = f"the reporter {format!r} of {REPORTERS.package(format)}"
    try:
        content = chosen.render(report, sources)
    except EdisonError:
        raise
    except Exception as error:  # code of another package, which may raise anything
        hint = "the results are stored; choose another --format"
        raise UsageError(f"{who} failed: {type(error).__name__}: {error}", hint=hint) from error
    if not isinstance(content, str | bytes):
        hint = "reinstall or uninstall the package it is from"
        raise UsageError(f"{who} returned {type(content).__name__}, not text or bytes", hint=hint)
    return content


def format_by_suffix(suffix: str) -> str:
    """Return the format of a file extension; Markdown if it is unknown."""
    built_in: dict[str, str] = {
        kind.suffix: name
        for name in REPORTERS.built_in
        if name != BUNDLE
        for kind in [REPORTERS.load(name)]
    } | _MORE_SUFFIXES
    if not suffix or suffix in built_in:
        return built_in.get(suffix, "md")
    others = (name for name in REPORTERS.names() if name not in REPORTERS.built_in)
    return next((name for name in others if reporter(name).suffix == suffix), "md")


class Markdown(Reporter):
    """Markdown with the facts of the comment: diffs of prompts, and cases before and after."""

    suffix = ".md"
    texts = False

    def render(self, report: Report, sources: Sources) -> str:
        """Return the text."""
        return markdown_report.markdown(report, sources.details())


class Document(Reporter):
    """One JSON document with ids and scores."""

    suffix = ".json"
    texts = False

    def render(self, report: Report, sources: Sources) -> str:
        """Return the text."""
        return result_report.document_text(report)


class JUnit(Reporter):
    """JUnit with ids, scores and reasons."""

    suffix = ".xml"
    texts = False

    def render(self, report: Report, sources: Sources) -> str:
        """Return the text."""
        return report_junit.junit(report, sources.cases, reasons=sources.reasons)


class Sarif(Reporter):
    """SARIF with the locations of findings."""

    suffix = ".sarif"
    texts = False

    def render(self, report: Report, sources: Sources) -> str:
        """Return the text."""
        return report_sarif.sarif(report, sources.changed, folder=sources.folder)


class Csv(Reporter):
    """A row for each cell."""

    suffix = ".csv"

    def render(self, report: Report, sources: Sources) -> Iterator[str]:
        """Return the text line by line."""
        rows = spreadsheet.rows_of(report, sources.required_cells, sources.known)
        return spreadsheet.as_csv(rows, raw=sources.raw)


class JsonLines(Reporter):
    """A JSON object for each cell."""

    suffix = ".jsonl"

    def render(self, report: Report, sources: Sources) -> Iterator[str]:
        """Return the text line by line."""
        return result_report.json_lines(report, sources.required_cells)


class HtmlPage(Reporter):
    """One HTML file with charts."""

    suffix = ".html"
    unfolded: ClassVar[bool] = False
    """Whether all folds are open, for printing."""

    def render(self, report: Report, sources: Sources) -> str | bytes:
        """Return the page."""
        return self.page(report, sources)

    def page(self, report: Report, sources: Sources) -> str:
        """Return the page as a text."""
        # Imports the charts and Jinja, which other formats do not need.
        from edison_ci.report.html import MOST_CHANGED_ANSWERS, PageRun, html_page

        runs = []
        for view in report.runs:
            cells = sources.required_cells
            failing = cells.failing(view)
            cases = sources.inputs(view, failing) if cells.texts else {}
            compared = cells.texts and view.ended and view.on == Side.HEAD
            changed = view.changed_cases(most=MOST_CHANGED_ANSWERS) if compared else ()
            runs.append(PageRun(view, failing, cases, changed))
        return html_page(report, runs, unfolded=self.unfolded)


class Pdf(HtmlPage):
    """The HTML file, printed by Chromium."""

    suffix = ".pdf"
    binary = True
    unfolded = True

    def refuse(self) -> None:
        """Raise UsageError without a browser."""
        pdf.find_browser()

    def render(self, report: Report, sources: Sources) -> bytes:
        """Return the file."""
        return pdf.print_pdf(pdf.find_browser(), self.page(report, sources))
