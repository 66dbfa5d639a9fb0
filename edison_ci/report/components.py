"""Components of pages and HTML reports, one function for each component of static/edison.css.

Every text is escaped. Templates call the functions and insert the returned markup.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from edison_ci._dataclass import dataclass
from edison_ci.documents.text_diff import matcher
from edison_ci.report.charts.drawing import fluid
from edison_ci.report.document import Bullets, Code, Estimate, Name, Notice, Sentence, Status
from edison_ci.report.markup import Child, code_spans, element, escape, join
from edison_ci.results.run_sentences import gate_name, one_prompt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from edison_ci.report.charts.drawing import Drawing
    from edison_ci.report.document import Block, Column, Inline, Table
    from edison_ci.results.decisions import GateRow


class Look(NamedTuple):
    """Icon and color class of a status."""

    shape: str
    kind: str


STATUSES = {
    "pass": Look("check", "good"),
    "passed": Look("check", "good"),
    "fixed": Look("up", "good"),
    "completed": Look("check", "good"),
    "applied": Look("check", "good"),
    "approved": Look("check", "good"),
    "fail": Look("cross", "bad"),
    "failed": Look("cross", "bad"),
    "newly failing": Look("down", "bad"),
    "scoring lower": Look("down", "bad"),
    "scoring higher": Look("up", "good"),
    "rejected": Look("cross", "bad"),
    "error": Look("warning", "bad"),
    "alert": Look("warning", "bad"),
    "inconclusive": Look("question", "odd"),
    "malformed": Look("warning", "odd"),
    "blocked": Look("bar", "odd"),
    "paused": Look("pause", "odd"),
    "waiting": Look("pause", "odd"),
    "refused": Look("bar", "odd"),
    "flag": Look("flag", "odd"),
    "unverified": Look("question", "odd"),
    "simulated": Look("wave", "mark"),
    "replayed": Look("wave", "mark"),
    "imported": Look("down", "mark"),
    "imported answers": Look("down", "mark"),
    "part of the cases": Look("half", "mark"),
    "running": Look("half", "info"),
    "proposed": Look("half", "info"),
    "ungraded": Look("dot", "none"),
    "advisory": Look("dot", "none"),
    "skipped": Look("dash", "none"),
    "not gated": Look("dash", "none"),
    "cancelled": Look("dash", "none"),
    "superseded": Look("dash", "none"),
    "pending": Look("dot", "none"),
}
"""Statuses with their own icon; others are shown like `pending`."""
_ICONS = {
    "check": "M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13ZM4.8 8.3l2.2 2.2l4.2-4.6",
    "cross": "M2 2h12v12H2ZM5.3 5.3l5.4 5.4M10.7 5.3l-5.4 5.4",
    "question": "M8 1L15 8L8 15L1 8ZM8 5.2V8.6M8 10.4V11.4",
    "warning": "M8 1.8L15 14H1ZM8 6.2V9.8M8 11.2V12.4",
    "dash": "M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13ZM4.8 8h6.4",
    "bar": "M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13ZM3.4 3.4l9.2 9.2",
    "pause": "M5 3v10M11 3v10",
    "half": "M8 1.5a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13ZM8 1.5V8H14.5",
    "dot": "M8 5a3 3 0 1 0 0 6a3 3 0 1 0 0-6Z",
    "flag": "M3 15V2H13L10.5 5.5L13 9H3",
    "thumb-up": "M5 14H2.5V7.5H5ZM5 7.5L8 1.5q2 .3 1.6 2.1L9 6.3H13q1.5.2 1.3 1.5L13 14H5",
    "thumb-down": "M5 2H2.5V8.5H5ZM5 8.5L8 14.5q2-.3 1.6-2.1L9 9.7H13q1.5-.2 1.3-1.5L13 2H5",
    "wave": "M1 8q1.75-5 3.5 0t3.5 0t3.5 0t3.5 0",
    "up": "M8 14V2.5M3 7.5L8 2.5L13 7.5",
    "down": "M8 2V13.5M3 8.5L8 13.5L13 8.5",
}


@cache
def icon(shape: str) -> Markup:
    """Return a small decorative icon in the color of the text."""
    path = element(
        "path", d=_ICONS[shape], fill="none", stroke="currentColor", stroke_width="1.6",
        stroke_linecap="round", stroke_linejoin="round",
    )  # fmt: skip
    return element("svg", path, class_="icon", viewBox="0 0 16 16", aria_hidden="true")


def status_of(word: str) -> Look:
    """Return icon and color class of a status."""
    name = "simulated" if word.lower().startswith("simulated ") else word.lower()
    return STATUSES.get(name, STATUSES["pending"])


@lru_cache(maxsize=1_000)
def badge(word: str, *, large: bool = False) -> Markup:
    """Return a status as an icon with its word."""
    shape, kind = status_of(word)
    class_ = f"badge badge-{kind}" + (" badge-large" if large else "")
    return element("span", icon(shape), word, class_=class_)


@lru_cache(maxsize=5_000)
def outcome(word: str, value: str) -> Markup:
    """Return a number with the icon of its outcome; screen readers read the word as well."""
    shape, kind = status_of(word)
    hidden = element("span", f" {word}", class_="visually-hidden")
    return element("span", icon(shape), value, hidden, class_=f"outcome outcome-{kind}")


@dataclass(frozen=True, slots=True)
class Card:
    """One key figure of a page."""

    name: str
    value: str
    unit: str = ""
    note: Child = ""
    """Its interval, or what it is compared with."""
    plot: Drawing | None = None


def cards(figures: Iterable[Card]) -> Markup:
    """Return key figures side by side."""
    return element("dl", *map(_card, figures), class_="cards")


def card(name: str, value: object, note: str = "", unit: str = "") -> Markup:
    """Return one key figure, for a template that lists them in `<dl class="cards">`."""
    return _card(Card(name, str(value), unit, note))


def _card(figure: Card) -> Markup:
    unit = element("small", f" {figure.unit}") if figure.unit else None
    plot = element("dd", figure.plot.svg, class_="card-plot") if figure.plot else None
    note = element("dd", figure.note, class_="card-note") if figure.note else None
    value = element("dd", figure.value, unit, class_="card-value")
    return element("div", element("dt", figure.name), value, note, plot, class_="card")


def data_table(table: Table, *, caption: str = "") -> Markup:
    """Return a table; the first cell of a row is its header."""
    columns = table.columns
    heads = (head for column in columns for head in _heads(column))
    rows = (
        element("tr", *(cell for i, text in enumerate(row) for cell in _cells(i, text, columns[i])))
        for row in table.rows
    )
    title = element("caption", caption, class_="visually-hidden") if caption else None
    return element(
        "table", title, element("thead", element("tr", *heads)), element("tbody", *rows),
        class_="data",
    )  # fmt: skip


def _heads(column: Column) -> Iterator[Markup]:
    names = column.split or (column.name,)
    for name, class_ in zip(names, _classes(column), strict=False):
        yield element("th", name, scope="col", class_=class_)


def _classes(column: Column) -> tuple[str | None, str]:
    """Return the classes of the cells of a column: of its values, and of their intervals."""
    second = "num" if column.split and not column.split[1].endswith("CI") else "ci"
    return ("num" if column.numeric else None), second


def _cells(position: int, text: Inline, column: Column) -> Iterator[Markup]:
    first, second = _classes(column)
    if isinstance(text, Estimate) and column.split:
        yield element("td", text.value, class_=first)
        yield element("td", text.span, class_=second)
    elif column.numeric:
        yield element("td", text.text if isinstance(text, Name) else inline(text), class_=first)
    elif position == 0:
        content = element("bdi", text) if isinstance(text, str) else inline(text)
        yield element("th", content, scope="row")
    else:
        kinds = {Name: "name", tuple: "nowrap"}
        yield element("td", inline(text), class_=kinds.get(type(text)))


def inline(text: Inline) -> Markup:
    """Return a text with its marks."""
    if isinstance(text, Markup):
        return text
    if isinstance(text, Name):
        return element("bdi", text.text)
    if isinstance(text, Sentence):
        return code_spans(text.text)
    if isinstance(text, Status):
        return badge(text.word)
    if isinstance(text, Estimate):
        return escape(text.text)
    return escape(text) if isinstance(text, str) else join(map(inline, text))


def block(content: Block, *, label: str = "") -> Markup:
    """Return a paragraph, list or preformatted text."""
    if isinstance(content, Code):
        return text_box(content.text, label=label)
    if isinstance(content, Bullets):
        return element("ul", *(element("li", inline(item)) for item in content.items))
    if isinstance(content, Notice):
        label = element("strong", f"{content.label}.")
        return notice("odd", label, " ", inline(content.text))
    return element("p", inline(content))


def scrolled(content: Markup, label: str) -> Markup:
    """Return wide content in a scrollable region that works with the keyboard."""
    return element("div", content, class_="scroll", role="region", tabindex="0", aria_label=label)


def figure(drawing: Drawing, *, caption: bool = True) -> Markup:
    """Return a chart with its title, note and a folded data table."""
    title = element("figcaption", drawing.title) if caption else None
    note = element("p", drawing.note, class_="chart-note") if drawing.note else None
    data = None
    if drawing.table.rows:
        table = scrolled(data_table(drawing.table, caption=drawing.title), f"Data: {drawing.title}")
        data = element("details", element("summary", "Data"), table)
    return element("figure", title, drawing.svg, note, data, class_="chart")


@lru_cache(maxsize=256)
def fluid_figure(draw: Callable[[Any], Drawing], chart: Any) -> Markup:
    """Return a chart that fills its panel, with its title and data.

    A chart is drawn in three widths, which takes longer than the rest of a page. Its record has all
    that it shows, so it is the key of the cache.
    """
    return figure(fluid(draw, chart))


def gate_list(gates: Iterable[GateRow], sentence: Callable[[str], Markup] = escape) -> Markup:
    """Return the decisions of gates, with their sentences."""
    gates = tuple(gates)
    short = one_prompt(gates)
    return element("ul", *(_gate(row, short, sentence) for row in gates), class_="gates")


def _gate(row: GateRow, short: bool, sentence: Callable[[str], Markup]) -> Markup:
    name = element("span", element("bdi", gate_name(row, short=short)), class_="what")
    why = element("span", sentence(row.sentence), class_="why")
    return element("li", element("div", badge(row.word.lower())), element("div", name, " ", why))


def section(title: str, *content: Child, key: str | None = None) -> Markup:
    """Return a section with its heading; `key` is its id."""
    return element("section", element("h2", title), *content, class_="section", id=key)


def notice(kind: str, *content: Child) -> Markup:
    """Return a notice; kinds are good, bad, odd and none."""
    return element("div", *content, class_=f"notice notice-{kind}", role="note")


def empty_state(title: str, *content: Child) -> Markup:
    """Return the placeholder of an empty list, with the next step."""
    return element("div", element("h3", title), element("p", *content), class_="empty")


def facts(pairs: Iterable[tuple[str, Child]]) -> Markup:
    """Return a list of names and values."""
    rows = (join([element("dt", name), element("dd", value)]) for name, value in pairs)
    return element("dl", *rows, class_="facts")


_JOINERS = re.compile("[\u200c-\u200f]")
_AROUND = 3
"""Unchanged lines around those of a diff."""


_MOST_OPEN_CHARS, _MOST_OPEN_LINES = 5_000, 60
"""Up to which a text is shown whole."""


def text_box(text: str, *, label: str = "", prose: bool = False) -> Markup:
    """Return untrusted text in a box, with invisible characters spelled out.

    A long text is folded, with its length as a sign that there is more. Joiners and direction
    marks stay, because Persian, Arabic and emoji need them and their effect ends with the box.
    Direction overrides are spelled out.
    """
    pieces = _JOINERS.split(text)
    parts: list[str] = [escape(pieces[0])]
    for joiner, piece in zip(_JOINERS.findall(text), pieces[1:], strict=True):
        parts += [joiner, escape(piece)]
    class_ = "text-box text-box-prose" if prose else "text-box"
    if not text.strip():
        return element("p", "(empty)", class_="quiet")
    box = element(
        "pre", Markup("".join(parts)), class_=class_, dir="auto", tabindex="0", role="region",
        aria_label=label or "text",
    )  # fmt: skip
    if len(text) <= _MOST_OPEN_CHARS and text.count("\n") < _MOST_OPEN_LINES:
        return box
    more = element("summary", f"Show all {len(text):,} characters, or fold them")
    # The box follows what folds it, so that a style sheet can do it; it is drawn above it.
    return element("div", element("details", more), box, class_="fold")


def diff_view(before: str, after: str) -> Markup:
    """Return a line diff of two texts; signs repeat what the colors show."""
    rows = (_diff_row(*row) for row in _diff_lines(before, after))
    body = element("tbody", *rows)
    return element(
        "div", element("table", body), class_="diff", role="region", tabindex="0",
        aria_label="Differences",
    )  # fmt: skip


def _diff_row(kind: str, at: tuple[str, str], text: str) -> Markup:
    if kind == "hunk":
        return element("tr", element("td", text, colspan=4), class_="hunk")
    sign = {"added": "+", "removed": "-"}.get(kind, " ")
    hidden = element("span", kind, class_="visually-hidden") if kind else None
    cells = [element("td", number, class_="at") for number in at]
    cells += [element("td", sign, hidden, class_="sign"), element("td", text, dir="auto")]
    return element("tr", *cells, class_=kind or None)


def _diff_lines(before: str, after: str) -> Iterator[tuple[str, tuple[str, str], str]]:
    a, b = before.splitlines(), after.splitlines()
    for group in matcher(a, b).get_grouped_opcodes(_AROUND):
        yield "hunk", ("", ""), f"lines {group[0][1] + 1} to {group[-1][2]}"
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                for i in range(a2 - a1):
                    yield "", (str(a1 + i + 1), str(b1 + i + 1)), a[a1 + i]
                continue
            for i in range(a1, a2):
                yield "removed", (str(i + 1), ""), a[i]
            for i in range(b1, b2):
                yield "added", ("", str(i + 1)), b[i]


def pager(
    rows: range, total: int, *, previous: str | None, following: str | None, label: str = "Pages"
) -> Markup:
    """Return the position in a long list, with links to the previous and next page."""
    last = min(rows.stop, total)
    place = f"{rows.start + 1:,} to {last:,} of {total:,}" if total else "nothing found"
    ends = (("Previous", previous, "prev"), ("Next", following, "next"))
    buttons = (
        element("a", text, href=address, rel=rel, class_="button")
        if address is not None
        else element("span", text, class_="button", aria_disabled="true")
        for text, address, rel in ends
    )
    where = element("span", place, class_="where")
    return element("nav", where, *buttons, class_="pager", aria_label=label)
