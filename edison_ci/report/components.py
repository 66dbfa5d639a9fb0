"""Components of our pages.

Each function returns the markup of one component of the stylesheet, static/edison.css, with every
text in it escaped. Templates may call them: what they return is taken as markup.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.names import matcher
from edison_ci.report.markup import Child, Html, element, escape, joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from edison_ci.report.charts.drawing import DataTable, Drawing


# --- status: word and shape -----------------------------------------------------------------------


class Status(NamedTuple):
    """How a status looks: its shape, and the kind of its colours."""

    shape: str
    kind: str


STATUSES = {
    "pass": Status("check", "good"),
    "passed": Status("check", "good"),
    "fixed": Status("up", "good"),
    "completed": Status("check", "good"),
    "applied": Status("check", "good"),
    "approved": Status("check", "good"),
    "fail": Status("cross", "bad"),
    "failed": Status("cross", "bad"),
    "broken": Status("down", "bad"),
    "rejected": Status("cross", "bad"),
    "error": Status("warning", "bad"),
    "alert": Status("warning", "bad"),
    "inconclusive": Status("question", "odd"),
    "malformed": Status("warning", "odd"),
    "blocked": Status("bar", "odd"),
    "paused": Status("pause", "odd"),
    "waiting": Status("pause", "odd"),
    "refused": Status("bar", "odd"),
    "flag": Status("flag", "odd"),
    "simulated": Status("wave", "mark"),
    "replayed": Status("wave", "mark"),
    "imported": Status("down", "mark"),
    "part of the cases": Status("half", "mark"),
    "running": Status("half", "info"),
    "proposed": Status("half", "info"),
    "ungraded": Status("dot", "none"),
    "advisory": Status("dot", "none"),
    "skipped": Status("dash", "none"),
    "cancelled": Status("dash", "none"),
    "superseded": Status("dash", "none"),
    "pending": Status("dot", "none"),
}
"""Every word that has a look of its own; others look like `pending`."""
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
    "wave": "M1 8q1.75-5 3.5 0t3.5 0t3.5 0t3.5 0",
    "up": "M8 14V2.5M3 7.5L8 2.5L13 7.5",
    "down": "M8 2V13.5M3 8.5L8 13.5L13 8.5",
}


def icon(shape: str) -> Html:
    """Return a small shape in the colour of the text; the word beside it says what it means."""
    drawn = element(
        "path", d=_ICONS[shape], fill="none", stroke="currentColor", stroke_width="1.6",
        stroke_linecap="round", stroke_linejoin="round",
    )  # fmt: skip
    return element("svg", drawn, class_="icon", viewBox="0 0 16 16", aria_hidden="true")


def status_of(word: str) -> Status:
    """Return how a status looks."""
    return STATUSES.get(word.lower(), STATUSES["pending"])


def badge(word: str, *, large: bool = False) -> Html:
    """Return a status as a shape with its word."""
    shape, kind = status_of(word)
    class_ = f"badge badge-{kind}" + (" badge-large" if large else "")
    return element("span", icon(shape), word, class_=class_)


def outcome(word: str, shown: str) -> Html:
    """Return a number with the shape of its outcome; the word is there for those who hear it."""
    shape, kind = status_of(word)
    said = element("span", f" {word}", class_="visually-hidden")
    return element("span", icon(shape), shown, said, class_=f"outcome outcome-{kind}")


# --- numbers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Card:
    """One number that a page is about."""

    name: str
    value: str
    unit: str = ""
    note: Child = ""
    """Its interval, or what it is compared with."""
    plot: Drawing | None = None


def cards(shown: Iterable[Card]) -> Html:
    """Return numbers that a page is about, beside each other."""
    return element("dl", *(_card(card) for card in shown), class_="cards")


def _card(card: Card) -> Html:
    unit = element("small", f" {card.unit}") if card.unit else None
    plot = element("dd", card.plot.svg, class_="card-plot") if card.plot else None
    note = element("dd", card.note, class_="card-note") if card.note else None
    value = element("dd", card.value, unit, class_="card-value")
    return element("div", element("dt", card.name), value, note, plot, class_="card")


def data_table(table: DataTable, *, caption: str = "") -> Html:
    """Return a table of texts; the first cell of a row is its head."""
    numeric = [column.numeric for column in table.columns]
    head = (
        element("th", column.name, scope="col", class_="num" if column.numeric else None)
        for column in table.columns
    )
    body = (
        element("tr", *(_cell(i, cell, numeric[i]) for i, cell in enumerate(row)))
        for row in table.rows
    )
    told = element("caption", caption, class_="visually-hidden") if caption else None
    return element(
        "table", told, element("thead", element("tr", *head)), element("tbody", *body),
        class_="data",
    )  # fmt: skip


def _cell(position: int, words: str, numeric: bool) -> Html:
    if position == 0 and not numeric:
        return element("th", element("bdi", words), scope="row")
    return element("td", words, class_="num" if numeric else None)


def scrolled(content: Html, label: str) -> Html:
    """Return something wide in a place of its own that can be moved by keyboard too."""
    return element("div", content, class_="scroll", role="region", tabindex="0", aria_label=label)


def figure(drawing: Drawing, *, caption: bool = True) -> Html:
    """Return a chart with its title, what to know about it, and its data behind a fold."""
    title = element("figcaption", drawing.title) if caption else None
    note = element("p", drawing.note, class_="chart-note") if drawing.note else None
    data = None
    if drawing.table.rows:
        table = scrolled(data_table(drawing.table, caption=drawing.title), f"Data: {drawing.title}")
        data = element("details", element("summary", "Data"), table)
    return element("figure", title, drawing.svg, note, data, class_="chart")


# --- places on a page -----------------------------------------------------------------------------


def section(title: str, *content: Child, key: str | None = None) -> Html:
    """Return a part of a page under its heading; `key` is what a link names."""
    return element("section", element("h2", title), *content, class_="section", id=key)


def notice(kind: str, *content: Child) -> Html:
    """Return something that must be read first; kinds are good, bad, odd and none."""
    return element("div", *content, class_=f"notice notice-{kind}", role="note")


def empty_state(title: str, *content: Child) -> Html:
    """Return what stands where there is nothing yet, and what to do next."""
    return element("div", element("h3", title), element("p", *content), class_="empty")


def facts(pairs: Iterable[tuple[str, Child]]) -> Html:
    """Return names with what is known of them."""
    rows = (joined([element("dt", name), element("dd", value)]) for name, value in pairs)
    return element("dl", *rows, class_="facts")


# --- texts ----------------------------------------------------------------------------------------

_JOINERS = re.compile("[\u200c-\u200f]")


def text_box(text: str, *, label: str = "", prose: bool = False) -> Html:
    """Return what a model or a file says, always as text; what is hidden in it is shown.

    Joiners and marks of direction stay: Persian, Arabic and emoji need them, and the box ends
    whatever they do. What overrides directions is spelt out.
    """
    pieces = _JOINERS.split(text)
    shown: list[str] = [escape(pieces[0])]
    for found, piece in zip(_JOINERS.findall(text), pieces[1:], strict=True):
        shown += [found, escape(piece)]
    class_ = "text-box text-box-prose" if prose else "text-box"
    if not text.strip():
        return element("p", "(empty)", class_="quiet")
    return element(
        "pre", Html("".join(shown)), class_=class_, dir="auto", tabindex="0", role="region",
        aria_label=label or "text",
    )  # fmt: skip


def diff_view(before: str, after: str, *, around: int = 3) -> Html:
    """Return how a text changed, line by line; a sign says what a colour says."""
    rows = (_diff_row(*each) for each in _diff_lines(before, after, around))
    body = element("tbody", *rows)
    return element(
        "div", element("table", body), class_="diff", role="region", tabindex="0",
        aria_label="Differences",
    )  # fmt: skip


def _diff_row(kind: str, at: tuple[str, str], words: str) -> Html:
    if kind == "hunk":
        return element("tr", element("td", words, colspan=4), class_="hunk")
    sign = {"added": "+", "removed": "-"}.get(kind, " ")
    said = {"added": "added", "removed": "removed"}.get(kind)
    hidden = element("span", said, class_="visually-hidden") if said else None
    cells = [element("td", number, class_="at") for number in at]
    cells += [element("td", sign, hidden, class_="sign"), element("td", words, dir="auto")]
    return element("tr", *cells, class_=kind or None)


def _diff_lines(before: str, after: str, around: int) -> Iterator[tuple[str, tuple[str, str], str]]:
    a, b = before.splitlines(), after.splitlines()
    for group in matcher(a, b).get_grouped_opcodes(around):
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


# --- moving about ---------------------------------------------------------------------------------


class Link(NamedTuple):
    """A word that leads somewhere."""

    words: str
    address: str
    here: bool = False
    """Whether it is where the reader is."""
    amount: int | None = None


def tabs(links: Iterable[Link], label: str) -> Html:
    """Return the pages that belong together, with the one that is open marked."""
    items = (element("li", _link(link)) for link in links)
    return element("nav", element("ul", *items, class_="tabs"), aria_label=label)


def _link(link: Link) -> Html:
    count = (
        element("span", f" {link.amount:,}", class_="count") if link.amount is not None else None
    )
    here = "page" if link.here else None
    return element("a", link.words, count, href=link.address, aria_current=here)


def switch(links: Iterable[Link], label: str) -> Html:
    """Return ways to see one thing, of which one is taken."""
    return element("nav", *map(_link, links), class_="switch", aria_label=label)


def pager(shown: range, total: int, *, previous: str | None, following: str | None) -> Html:
    """Return where in a long list the reader is, and the ways back and on."""
    last = min(shown.stop, total)
    place = f"{shown.start + 1:,} to {last:,} of {total:,}" if total else "nothing found"
    ends = (("Previous", previous, "prev"), ("Next", following, "next"))
    buttons = (
        element("a", words, href=address, rel=rel, class_="button")
        if address is not None
        else element("span", words, class_="button", aria_disabled="true")
        for words, address, rel in ends
    )
    where = element("span", place, class_="where")
    return element("nav", where, *buttons, class_="pager", aria_label="Pages")


def crumbs(links: Sequence[Link]) -> Html:
    """Return the way from the first page to this one."""
    items = (element("li", _link(link) if not link.here else link.words) for link in links)
    return element("nav", element("ol", *items), class_="crumbs", aria_label="You are here")
