"""The report of a loop, as Markdown and as one HTML file."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.report import layout
from edison_ci.report.charts.drawing import Column, DataTable
from edison_ci.report.components import data_table, notice, scrolled, section, text_box
from edison_ci.report.html.page import whole_page
from edison_ci.report.markup import element
from edison_ci.report.safe_markdown import fenced, prose

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.report.markup import Html

SIMULATED = "Answers and grades come from a simulator and say nothing about real models."


class Table(NamedTuple):
    """Rows of words and numbers."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class Piece(NamedTuple):
    """A part of the report; its words may come from files and models."""

    title: str
    paragraphs: tuple[str, ...] = ()
    table: Table | None = None
    text: str = ""
    """Shown as it is, in a block of its own."""


def markdown_report(title: str, pieces: Sequence[Piece], *, simulated: bool) -> str:
    """Return the report as Markdown, in which nothing that models wrote is obeyed."""
    opening = (f"**Simulated.** {SIMULATED}",) if simulated else ()
    sections = [layout.Section(f"# {prose(title)}", opening)]
    for piece in pieces:
        told = [prose(text) for text in piece.paragraphs]
        if piece.title == "Next steps":
            told = ["\n".join(f"- {prose(step)}" for step in piece.paragraphs)]
        if piece.text:
            told.append(fenced(piece.text, most=20_000))
        table = piece.table
        shown = None
        if table is not None:
            rows = tuple(tuple(prose(cell) for cell in row) for row in table.rows)
            shown = layout.Table(table.head, rows)
        heading = f"## {piece.title}" if piece.title else ""
        sections.append(layout.Section(heading, tuple(filter(None, told)), shown))
    return layout.fitted(sections).rstrip() + "\n"


def html_report(title: str, pieces: Sequence[Piece], *, simulated: bool) -> str:
    """Return the report as one file that needs no network."""
    content: list[Html | None] = [element("h1", title)]
    if simulated:
        content.append(notice("odd", element("strong", "Simulated. "), SIMULATED))
    content += [
        section(piece.title, *_shown(piece)) if piece.title else element("div", *_shown(piece))
        for piece in pieces
    ]
    return whole_page(title, content)


def _shown(piece: Piece) -> Iterator[Html]:
    if piece.title == "Next steps":
        yield element("ul", *(element("li", *_words(step)) for step in piece.paragraphs))
    else:
        for text in piece.paragraphs:
            yield element("p", text)
    if piece.table is not None and piece.table.rows:
        columns = tuple(Column(name) for name in piece.table.head)
        table = data_table(DataTable(columns, piece.table.rows), caption=piece.title)
        yield element("div", scrolled(table, piece.title), class_="data-wrap")
    if piece.text:
        yield text_box(piece.text, label=piece.title)


def _words(text: str) -> Iterator[Html | str]:
    """Yield a sentence with what stands between backticks as code."""
    for index, part in enumerate(text.split("`")):
        yield element("code", part) if index % 2 else part
