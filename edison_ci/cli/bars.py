"""Progress bars of a run, drawn by rich: a line for each model and judge, and a summary line.

Imported only when bars are shown, because rich takes a tenth of a second to import.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.control import Control
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import ControlType, Segment, Segments
from rich.style import Style

from edison_ci.numeric import counted, duration, fixed
from edison_ci.sanitize import line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from edison_ci.execute.progress import Progress, ProgressMeter, ProgressRow

_A_SECOND = 5
"""Redraws per second."""
_NARROWEST_BAR, _WIDEST_BAR = 8, 40
_GAP = 2
_COLUMNS = ("count", "unit", "percent", "errors", "rate")
_DISPENSABLE = ("percent", "unit", "rate", "errors", "bar")
"""Columns to leave out on a narrow terminal, in this order."""
_SPARE_FACTS = ("percent", "tokens", "elapsed", "cells", "errors", "left", "cost")
"""Parts of the summary line to leave out, in this order."""
_ROOM_FOR_A_KEY = 2
"""A terminal writes `^C` after the last line, which must not wrap."""

_PLAIN, _FAINT, _BAD = Style(), Style(dim=True), Style(color="red")
_STYLES = {"errors": _BAD, "unit": _FAINT, "rate": _FAINT}
_ALIGNED_LEFT = ("unit",)


class Bars:
    """Redraws the figures of a run until stopped; other output appears above them."""

    def __init__(
        self, meter: ProgressMeter, facts: Callable[[Progress], dict[str, str]], *, color: bool
    ) -> None:
        self._meter, self._common_facts = meter, facts
        self._descriptor = sys.stderr.fileno()
        self._lengths: list[int] = []
        """Lengths of the lines on the screen."""
        # Log lines and notes must not be parsed as markup; the terminal wraps them.
        self._console = Console(
            file=sys.stderr,
            force_terminal=True,
            force_interactive=True,
            no_color=not color,
            soft_wrap=True,
            markup=False,
            emoji=False,
            highlight=False,
        )
        self._live = Live(
            console=self._console,
            refresh_per_second=_A_SECOND,
            transient=True,
            redirect_stdout=False,
            get_renderable=self._drawn,
        )

    def start(self) -> None:
        """Show the bars."""
        self._live.start(refresh=True)

    def stop(self) -> None:
        """Remove the bars."""
        self._live.stop()

    def _drawn(self) -> Segments:
        size = os.get_terminal_size(self._descriptor)
        # A terminal of unknown size reports 0.
        width, height = size.columns or 80, size.lines or 24
        self._console.size = (width, height)
        self._go_up(sum(max(length - 1, 0) // width for length in self._lengths))
        drawn: list[Segment] = []
        self._lengths = []
        for number, line_segments in enumerate(self._lines(width - 1, height)):
            cut = Segment.adjust_line_length(list(line_segments), width - 1, pad=False)
            self._lengths.append(Segment.get_line_length(cut))
            drawn += [Segment.line()] * bool(number) + cut
        return Segments(drawn)

    def _go_up(self, lines: int) -> None:
        """Erase the extra lines that wrapping made when the terminal became narrower."""
        up = (
            ControlType.CARRIAGE_RETURN,
            (ControlType.ERASE_IN_LINE, 2),
            (ControlType.CURSOR_UP, 1),
        )
        if lines:
            self._console.control(Control(*up * lines))

    def _lines(self, width: int, height: int) -> Iterator[Iterator[Segment]]:
        now = time.monotonic()
        rows = self._meter.rows(now)
        visible, hidden = _fitting(rows, max(height // 2, 1))
        yield from self._bar_lines(visible, width)
        if hidden:
            yield iter([Segment(f"  {_rest(hidden)}", _FAINT)])
        yield _summary(self._facts(now), width - _ROOM_FOR_A_KEY)

    def _bar_lines(self, rows: Sequence[ProgressRow], width: int) -> Iterator[Iterator[Segment]]:
        console = self._console
        texts = [_texts(row) for row in rows]
        names = [_encodable(row.name, console.encoding) for row in rows]
        longest = min(max(map(cell_len, names), default=0), max(width // 3, _NARROWEST_BAR))
        widths = {key: max(len(text[key]) for text in texts) for key in _COLUMNS} if texts else {}
        widths = {key: size for key, size in widths.items() if size} | {"bar": _NARROWEST_BAR}
        for key in _DISPENSABLE:
            if _GAP + longest + sum(_GAP + size for size in widths.values()) <= width:
                break
            widths.pop(key, None)
        if "bar" in widths:
            rest = width - _GAP - longest - sum(_GAP + size for size in widths.values())
            widths["bar"] = min(_NARROWEST_BAR + rest, _WIDEST_BAR)
        for row, name, text in zip(rows, names, texts, strict=True):
            yield self._bar_line(row, _cut(name, longest, console.encoding), text, widths)

    def _bar_line(
        self, row: ProgressRow, name: str, text: Mapping[str, str], widths: Mapping[str, int]
    ) -> Iterator[Segment]:
        yield Segment(f"  {name}")
        if "bar" in widths:
            yield Segment(" " * _GAP)
            yield from self._bar(row, widths["bar"])
        for key in _COLUMNS:
            if key in widths:
                size = widths[key]
                column = text[key].ljust(size) if key in _ALIGNED_LEFT else text[key].rjust(size)
                style = _BAD if key == "rate" and row.stopped else _STYLES.get(key, _PLAIN)
                yield Segment(" " * (1 if key == "unit" else _GAP) + column, style)

    def _bar(self, row: ProgressRow, width: int) -> list[Segment]:
        bar = ProgressBar(
            row.planned,
            row.done,
            width=width,
            complete_style="red" if row.stopped else "cyan",
            finished_style="green",
        )
        drawn = [part for part in self._console.render(bar) if not part.control]
        # Without color the remaining part is not drawn; padding keeps the columns in place.
        return Segment.adjust_line_length(drawn, width)

    def _facts(self, now: float) -> dict[str, str]:
        progress = self._meter.progress
        facts = {
            "percent": f"{100 * progress.done // progress.most_cells}%",
            **self._common_facts(progress),
        }
        if progress.budget_tokens is not None:
            facts["tokens"] = f"{progress.booked_tokens:,} of {progress.budget_tokens:,} tokens"
        facts["elapsed"] = duration(self._meter.elapsed_s(now))
        left = self._meter.left_s(now)
        if left is not None:
            facts["left"] = f"about {duration(left)} left"
        return facts


def _fitting(rows: Sequence[ProgressRow], room: int) -> tuple[list[ProgressRow], list[ProgressRow]]:
    """Return the rows that fit, unfinished ones first, and the others."""
    if len(rows) <= room:
        return list(rows), []
    going = sorted(rows, key=lambda row: row.done >= row.planned)  # the sort is stable
    kept = {row.name for row in going[: max(room - 1, 1)]}
    return [row for row in rows if row.name in kept], [row for row in rows if row.name not in kept]


def _rest(rows: Sequence[ProgressRow]) -> str:
    done, planned = sum(row.done for row in rows), sum(row.planned for row in rows)
    errors = sum(row.errors for row in rows)
    wrong = f", {counted(errors, 'error')}" if errors else ""
    return f"and {len(rows)} more: {done:,} of {planned:,} done{wrong}"


def _texts(row: ProgressRow) -> dict[str, str]:
    """Return the columns of a row after its name and bar."""
    return {
        "count": f"{row.done:,}/{row.planned:,}",
        "unit": row.unit,
        "percent": f"{100 * row.done // row.planned}%",
        "errors": counted(row.errors, "error") if row.errors else "",
        "rate": _state(row) or _rate(row.rate),
    }


def _state(row: ProgressRow) -> str:
    return "stopped" if row.stopped else "paused" if row.paused else ""


def _rate(a_second: float | None) -> str:
    if a_second is None:
        return ""
    if a_second >= 1:
        return f"{fixed(a_second, 0 if a_second >= 10 else 1, grouped=True)}/s"
    return f"{fixed(60 * a_second)}/min"


def _summary(facts: dict[str, str], width: int) -> Iterator[Segment]:
    for key in _SPARE_FACTS:
        if _GAP + sum(len(text) + 2 for text in facts.values()) - 2 <= width:
            break
        facts.pop(key, None)
    yield Segment(" " * _GAP)
    for number, (key, text) in enumerate(facts.items()):
        yield Segment(", " if number else "")
        yield Segment(text, _BAD if key == "errors" else _PLAIN)


def _encodable(name: str, encoding: str) -> str:
    """Return a name in the encoding of the terminal."""
    return line(name).encode(encoding, errors="backslashreplace").decode(encoding)


def _cut(name: str, width: int, encoding: str) -> str:
    """Return a name cut or padded to `width` columns."""
    if cell_len(name) <= width:
        return set_cell_size(name, width)
    return set_cell_size(name, width - 1) + ("…" if encoding.startswith("utf") else "~")
