"""The document model of reports: texts with marks, tables, code and sections, without a look.

A builder words a fact once; `markdown` and `components` render it, each for its medium. A plain
text is our own wording. What comes from files and models is a `Name`, or stands between backticks
in a `Sentence`, so that every renderer escapes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from edison_ci import numeric
from edison_ci._dataclass import dataclass
from edison_ci.numeric import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from markupsafe import Markup


class Name(NamedTuple):
    """The name of a case, prompt, model or file, or an amount; it may contain any text."""

    text: str


class Sentence(NamedTuple):
    """A sentence that may quote names between backticks."""

    text: str


class Status(NamedTuple):
    """A verdict, or what changed, in a word that a medium marks with an icon or a color."""

    word: str


class Estimate(NamedTuple):
    """A number with its interval: `text` where both share a cell, else `value` and `span`."""

    value: str
    span: str
    text: str


Inline: TypeAlias = "str | Name | Sentence | Status | Estimate | Markup | tuple[Inline, ...]"
"""A text with marks; Markup is a small drawing, which only pages have."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; numbers are aligned right."""

    name: str
    numeric: bool = False
    split: tuple[str, str] | None = None
    """Names of the two columns that an estimate takes where there is room."""
    detail: bool = False
    """Whether it is left out where room is short."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table; its rows may be left out from the end."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Inline, ...], ...]

    @classmethod
    def of(cls, names: Iterable[str], rows: Iterable[tuple[Inline, ...]]) -> Table:
        """Return a table with plain columns."""
        return cls(tuple(map(Column, names)), tuple(rows))

    def without(self, names: Collection[str]) -> Table:
        """Return the table without some columns."""
        kept = [place for place, column in enumerate(self.columns) if column.name not in names]
        return Table(
            tuple(self.columns[place] for place in kept),
            tuple(tuple(row[place] for place in kept) for row in self.rows),
        )

    @property
    def numeric(self) -> list[int]:
        """The places of its numeric columns."""
        return [place for place, column in enumerate(self.columns) if column.numeric]

    @property
    def brief(self) -> Table:
        """The table without details."""
        return self.without([column.name for column in self.columns if column.detail])


@dataclass(frozen=True, slots=True)
class Code:
    """A preformatted text, such as a diff."""

    text: str
    language: str = ""
    most: int = 20_000
    """Most characters that are shown."""


class Bullets(NamedTuple):
    """A list of texts."""

    items: tuple[Inline, ...]


def plain(text: Inline) -> str:
    """Return a text without its marks."""
    if isinstance(text, Estimate):
        return text.text
    if isinstance(text, Name | Sentence | Status):
        return text[0]
    return text if isinstance(text, str) else "".join(map(plain, text))


def plain_rows(table: Table) -> list[tuple[str, ...]]:
    """Return the header and the rows of a table as plain texts, for a terminal."""
    names = tuple(column.name for column in table.columns)
    return [names, *(tuple(map(plain, row)) for row in table.rows)]


class Notice(NamedTuple):
    """What a reader must know before the numbers."""

    label: str
    text: Inline


Block: TypeAlias = "Inline | Code | Bullets | Notice"


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a document: heading, paragraphs and an optional table."""

    title: Inline = ""
    blocks: tuple[Block, ...] = ()
    table: Table | None = None
    fold: str = ""
    """Title of the fold around blocks and table; empty for no fold."""
    level: int = 3
    """Level of the heading, from 1."""


def score_of(estimate: numeric.Estimate | None) -> Estimate:
    """Return a score with its interval."""
    if estimate is None:
        return _UNKNOWN
    span = _span(estimate, numeric.score_span)
    return Estimate(numeric.score(estimate.estimate), span, numeric.points(estimate))


def rate_of(estimate: numeric.Estimate | None) -> Estimate:
    """Return a pass rate with its interval."""
    if estimate is None:
        return _UNKNOWN
    span = _span(estimate, numeric.percent_span)
    return Estimate(numeric.percent(estimate.estimate), span, numeric.rate(estimate))


def change_of(estimate: float | None, low: float | None, high: float | None) -> Estimate:
    """Return a change with its interval."""
    value = NOTHING if estimate is None else numeric.signed_score(estimate)
    span = NOTHING if low is None or high is None else numeric.signed_span(low, high)
    return Estimate(value, span, numeric.change(estimate, low, high))


def latency_of(p50_ms: float | None, p95_ms: float | None) -> Estimate:
    """Return a median latency with its 95th percentile."""
    median, late = numeric.milliseconds(p50_ms), numeric.milliseconds(p95_ms)
    return Estimate(median, late, numeric.milliseconds(p50_ms, p95_ms))


_UNKNOWN = Estimate(NOTHING, "", NOTHING)


def _span(estimate: numeric.Estimate, write: Callable[[float, float], str]) -> str:
    if estimate.low is None or estimate.high is None:
        return numeric.NO_SPAN
    return write(estimate.low, estimate.high)
