"""Layout of a report where room is short: nothing is cut in the middle.

Forges refuse comments and summaries that are too long. A report is a list of sections, the most
important first; what does not fit is left out row by row from the end, and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.report.safe_markdown import row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_RESERVED = 200
"""Characters kept for saying what was left out."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose rows may be left out from the end."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def top(self) -> list[str]:
        """The lines above the first row."""
        return [row(self.head), row("---" for _ in self.head)]


@dataclass(frozen=True, slots=True)
class Section:
    """A piece of a report: a heading, paragraphs, and perhaps a table."""

    heading: str = ""
    paragraphs: tuple[str, ...] = ()
    table: Table | None = None
    fold: str = ""
    """What a reader clicks on to see the table; empty for a table that is always seen."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How much room there is, and where the rest is."""

    most: int | None = None
    size: Callable[[str], int] = len
    elsewhere: str = "the report"


def fitted(sections: Sequence[Section], limit: Limit | None = None) -> str:
    """Return the sections as Markdown, as much of them as fits."""
    limit = limit or Limit()
    if limit.most is None:
        return "".join(_written(section, _rows(section), limit) for section in sections)
    room, kept = limit.most - _RESERVED, 0
    for section in sections:
        need = limit.size(_written(section, [], limit))
        if need > room:
            break
        room -= need
        kept += 1
    text = ""
    for section in sections[:kept]:
        lines, room = _that_fit(_rows(section), room, limit.size)
        text += _written(section, lines, limit)
    if kept < len(sections):
        left = len(sections) - kept
        text += f"… {left:,} more sections, see {limit.elsewhere}\n"
    return text


def _rows(section: Section) -> list[str]:
    return [row(cells) for cells in section.table.rows] if section.table is not None else []


def _that_fit(lines: list[str], room: int, size: Callable[[str], int]) -> tuple[list[str], int]:
    kept: list[str] = []
    for text in lines:
        need = size(text) + 1
        if need > room:
            return kept, 0  # later sections matter less than what is left out here
        room -= need
        kept.append(text)
    return kept, room


def _written(section: Section, lines: Sequence[str], limit: Limit) -> str:
    blocks = [section.heading] if section.heading else []
    blocks += section.paragraphs
    table = section.table
    if table is not None and table.rows:
        if section.fold:
            blocks.append(f"<details><summary>{section.fold}</summary>")
        blocks.append("\n".join([*table.top, *lines]))
        left = len(table.rows) - len(lines)
        if left:
            blocks.append(f"… {left:,} more rows, see {limit.elsewhere}")
        if section.fold:
            blocks.append("</details>")
    return "".join(f"{block}\n\n" for block in blocks)
