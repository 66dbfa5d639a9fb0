"""What all charts have in common: the frame, texts that fit, marks, and the table behind."""

from __future__ import annotations

import math
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.report.markup import Child, Html, element, number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edison_ci.report.charts.scales import Scale

TEXT = 12
"""Height of a chart's texts, as the stylesheet sets it."""
_EMPTY = 88
_CUT = "\u2026"
_NARROW = frozenset("iljtfrI.,:;|!'()[] ")
_WIDE = frozenset("mwMW@%")

SHAPES = ("circle", "square", "triangle", "diamond", "down", "cross")
"""Marks of the first, second, ... series: they differ without any colour."""
_DASHES = (None, "7 3", "2 3", "9 3 2 3", "4 2", "1 2")


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a column, and whether its cells are numbers, which stand to the right."""

    name: str
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class DataTable:
    """The numbers behind a chart, as texts."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart that is drawn: the picture, and the same in words and numbers."""

    title: str
    svg: Html
    table: DataTable
    note: str = ""
    """What a reader must know to read it right; stands below the picture."""


class Size(NamedTuple):
    """How large a picture is, in units of the screen at full size."""

    width: float
    height: float


class Box(NamedTuple):
    """A part of a picture."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        """How wide it is."""
        return self.right - self.left

    @property
    def height(self) -> float:
        """How high it is."""
        return self.bottom - self.top


def framed(size: Size, title: str, told: str, *children: Child) -> Html:
    """Return a whole picture, with what a screen reader says instead of it."""
    width, height = math.ceil(size.width), math.ceil(size.height)
    return element(
        "svg",
        element("title", title),
        element("desc", told),
        *children,
        xmlns="http://www.w3.org/2000/svg",
        class_="plot",
        role="img",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
    )


def empty(width: float, title: str, said: str) -> Html:
    """Return a picture without data, which says so."""
    frame = element(
        "rect", x=0.5, y=0.5, width=width - 1, height=_EMPTY - 1, rx=6, class_="c-frame",
        fill="none", stroke="currentColor", stroke_dasharray="4 4",
    )  # fmt: skip
    words = text((width / 2, _EMPTY / 2 + 4), said, "middle", class_="c-text c-quiet")
    return framed(Size(width, _EMPTY), title, said, frame, words)


# --- texts ----------------------------------------------------------------------------------------


def width_of(words: str, size: float = TEXT) -> float:
    """Return about how wide a text is; a little more rather than less."""
    return sum(_advance(letter) for letter in words) * size


def _advance(letter: str) -> float:
    if unicodedata.combining(letter):
        return 0.0
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.05
    if letter in _NARROW:
        return 0.34
    if letter in _WIDE:
        return 0.92
    return 0.7 if letter.isupper() else 0.58


def shortened(words: str, room: float, size: float = TEXT) -> str:
    """Return a text that fits; what had to go is told by an ellipsis."""
    one_line = " ".join(words.split())
    if width_of(one_line, size) <= room:
        return one_line
    left = room - width_of(_CUT, size)
    kept = ""
    for letter in one_line:
        left -= _advance(letter) * size
        if left < 0:
            break
        kept += letter
    return kept.rstrip() + _CUT


def text(
    at: Sequence[float],
    words: str,
    anchor: str = "start",
    *,
    class_: str = "c-text",
    room: float = math.inf,
) -> Html:
    """Return a text; one that is cut to its room says all of it when pointed at."""
    shown = shortened(words, room)
    rtl = _right_to_left(shown)
    if rtl:  # an anchor is where a text starts, and this one starts on its right
        anchor = {"start": "end", "end": "start"}.get(anchor, anchor)
    whole = element("title", words) if shown != " ".join(words.split()) else None
    return element(
        "text",
        whole,
        shown,
        x=at[0],
        y=at[1],
        class_=class_,
        text_anchor=None if anchor == "start" else anchor,
        direction="rtl" if rtl else None,
        font_size=TEXT,
        fill="currentColor",
    )


def _right_to_left(words: str) -> bool:
    for letter in words:
        kind = unicodedata.bidirectional(letter)
        if kind in ("L", "R", "AL"):
            return kind != "L"
    return False


# --- lines and marks ------------------------------------------------------------------------------


def line(
    start: Sequence[float], end: Sequence[float], class_: str, dash: str | None = None
) -> Html:
    """Return a straight line."""
    return element(
        "line", x1=start[0], y1=start[1], x2=end[0], y2=end[1], class_=class_,
        stroke="currentColor", stroke_dasharray=dash,
    )  # fmt: skip


def path_of(points: Iterable[Sequence[float]]) -> str:
    """Return points as the description of a path."""
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def polyline(
    points: Sequence[Sequence[float]], class_: str, dash: str | None = None
) -> Html | None:
    """Return a line through points; None through fewer than two."""
    if len(points) < 2:
        return None
    return element(
        "path", d=path_of(points), class_=class_, fill="none", stroke="currentColor",
        stroke_dasharray=dash,
    )  # fmt: skip


def dash_of(position: int) -> str | None:
    """Return the dashes of the first, second, ... series."""
    return _DASHES[position % len(_DASHES)]


def series_class(position: int) -> str:
    """Return the class that colours the first, second, ... series."""
    return f"c-s{position % len(SHAPES) + 1}"


def mark(
    shape: str, at: Sequence[float], *, class_: str, r: float = 4, hollow: bool = False
) -> Html:
    """Return a mark; shapes tell series and verdicts apart without colour."""
    x, y = at
    fill = {"fill": "none"} if hollow or shape == "cross" else {"fill": "currentColor"}
    class_ = f"c-mark {class_}" + (" c-hollow" if hollow or shape == "cross" else "")
    if shape == "circle":
        return element("circle", cx=x, cy=y, r=r, class_=class_, stroke="currentColor", **fill)
    corners = {
        "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        "triangle": ((0, -1.15), (1.1, 0.85), (-1.1, 0.85)),
        "down": ((0, 1.15), (1.1, -0.85), (-1.1, -0.85)),
        "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
    }
    if shape == "cross":
        d = "".join(
            path_of(((x - r * s, y - r), (x + r * s, y + r))) for s in (1, -1)
        )  # fmt: skip
    else:
        d = path_of((x + r * dx, y + r * dy) for dx, dy in corners[shape]) + "Z"
    return element("path", d=d, class_=class_, stroke="currentColor", **fill)


def hatch(box: Box, step: float, *, falling: bool = False) -> str:
    """Return the strokes that fill a box slantwise, as the description of a path."""
    parts = []
    offset = step / 2
    while offset < box.width + box.height:
        start = (min(offset, box.width), max(0.0, offset - box.width))
        end = (max(0.0, offset - box.height), min(offset, box.height))
        ends = [(box.left + dx, (box.top + dy)) for dx, dy in (start, end)]
        if falling:
            ends = [(box.left + box.right - x, y) for x, y in ends]
        parts.append(path_of(ends))
        offset += step
    return "".join(parts)


def whisker(start: Sequence[float], end: Sequence[float], class_: str, cap: float = 3) -> Html:
    """Return an interval: a line with a small cap at both ends."""
    across = (cap, 0.0) if start[0] == end[0] else (0.0, cap)
    caps = "".join(
        path_of(((x - across[0], y - across[1]), (x + across[0], y + across[1])))
        for x, y in (start, end)
    )
    d = path_of((start, end)) + caps
    return element("path", d=d, class_=f"c-interval {class_}", fill="none", stroke="currentColor")


# --- axes and legends -----------------------------------------------------------------------------


def left_axis(scale: Scale, box: Box, label: str) -> list[Html]:
    """Return lines across the box at round values, with the values to its left."""
    drawn = [text((box.left, box.top - 10), label, class_="c-text c-quiet", room=box.width)]
    for value, words in scale.ticks:
        y = scale.at(value)
        drawn.append(line((box.left, y), (box.right, y), "c-grid"))
        drawn.append(text((box.left - 6, y + 4), words, "end", class_="c-text c-number"))
    return drawn


def bottom_axis(scale: Scale, box: Box, label: str) -> list[Html]:
    """Return lines down the box at round values, with the values below it."""
    drawn = []
    for value, words in scale.ticks:
        x = scale.at(value)
        drawn.append(line((x, box.top), (x, box.bottom), "c-grid"))
        drawn.append(text((x, box.bottom + 16), words, "middle", class_="c-text c-number"))
    middle = (box.left + box.right) / 2
    drawn.append(text((middle, box.bottom + 34), label, "middle", class_="c-text c-quiet"))
    return drawn


def legend(names: Sequence[str], left: float, top: float, width: float) -> tuple[list[Html], float]:
    """Return the marks of series with their names, and how high that is."""
    drawn: list[Html] = []
    x, y = left, top
    for position, name in enumerate(names):
        shown = shortened(name, min(220, width - 30))
        needed = width_of(shown) + 34
        if x > left and x + needed > left + width:
            x, y = left, y + 18
        class_ = series_class(position)
        drawn.append(line((x, y), (x + 18, y), f"c-line {class_}", dash_of(position)))
        drawn.append(mark(SHAPES[position % len(SHAPES)], (x + 9, y), class_=class_))
        drawn.append(text((x + 24, y + 4), name, room=min(220, width - 30)))
        x += needed
    return drawn, y - top + 20
