"""Cases as a table on the terminal, long texts cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.config import case_facts
from edison_ci.records import plain_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.cli.terminal import Terminal
    from edison_ci.records import Case

WIDE, NARROW = 60, 30
_BEFORE_INPUT = 4
"""The columns before those that a caller adds."""


def show_cases(
    terminal: Terminal, cases: Sequence[Case], more: Sequence[Sequence[str]] = ()
) -> None:
    """Print cases; `more` has further columns, each with its title, before the inputs."""
    rows: list[tuple[str, ...]] = [("case", "kind", "tags", "difficulty", "input", "expected")]
    rows += map(_row, cases)
    if more:
        added = zip(*more, strict=True)
        rows = [
            (*row[:_BEFORE_INPUT], *new, *row[_BEFORE_INPUT:])
            for row, new in zip(rows, added, strict=True)
        ]
    terminal.table(rows)


def _row(case: Case) -> tuple[str, ...]:
    level = case.difficulty
    inputs = ", ".join(f"{name}: {plain_text(value)}" for name, value in case.inputs.items())
    return (
        case.id,
        case.kind,
        cut(", ".join(case.tags) or "-", NARROW),
        "-" if level is None else f"{level} {case_facts.level_of(level)}",
        cut(inputs, WIDE),
        "-" if case.expected is None else cut(plain_text(case.expected), NARROW),
    )


def cut(text: str, most: int) -> str:
    """Return the beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 3]}..."
