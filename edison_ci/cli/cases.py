"""Cases on the terminal: as a table, as YAML, and as a change that is confirmed and written."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

import click

from edison_ci._dataclass import dataclass
from edison_ci.api import case_edits
from edison_ci.cli.terminal import BAD, GOOD, StyledText, Terminal
from edison_ci.config import case_facts
from edison_ci.documents import text_diff, yaml_edit
from edison_ci.numeric import counted
from edison_ci.records import plain_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.api.case_edits import EditedFile
    from edison_ci.config.load import Project
    from edison_ci.documents.marks import Json
    from edison_ci.records import Case

WIDE, NARROW = 60, 30
_BEFORE_INPUT = 4
"""The columns before those that a caller adds."""
_MOST_LINES = 60
"""Lines of changed cases that are shown."""
_MOST_NAMED = 20
"""Cases that an audit entry names."""
_PREPOSITIONS = {"added": "to", "removed": "from"}


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


@dataclass(frozen=True, slots=True)
class CaseChange:
    """Shows what changes, asks on a terminal, and writes it."""

    terminal: Terminal
    project: Project
    action: str
    done: str
    """What was done to the cases, as a participle."""
    told: dict[str, Json] = dataclasses.field(default_factory=dict)
    yes: bool = False
    default: bool = True
    """What Enter means."""
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What --json says besides."""

    def settle(self, edited: Sequence[EditedFile], cases: Sequence[str]) -> None:
        """Write the edited files, unless a person says no."""
        terminal, paths = self.terminal, [edit.path for edit in edited]
        if not terminal.json:
            self._show(edited)
        asks = is_terminal() and not (terminal.json or self.yes) and bool(edited)
        if asks and not click.confirm(
            f"Change {' and '.join(paths)}?", default=self.default, err=True
        ):
            terminal.note("nothing is written")
            return
        for edit in edited:
            listed: list[Json] = [*cases[:_MOST_NAMED]]
            about = {**self.told, "cases": listed, "count": len(cases)}
            case_edits.write_edited(self.project, edit, self.action, about)
        if terminal.json:
            diff = "".join(edit.diff for edit in edited)
            document = {"paths": paths, "cases": list(cases), "diff": diff}
            terminal.document(document | self.facts)
        elif not edited:
            terminal.note("nothing to change")
        else:
            named = cases[0] if len(cases) == 1 else counted(len(cases), "case")
            place = f"{_PREPOSITIONS.get(self.done, 'in')} {', '.join(paths)}"
            terminal.result("  ", StyledText(self.done, GOOD), f" {named} {place}")

    def _show(self, edited: Sequence[EditedFile]) -> None:
        """Show each case with the lines that change, as YAML: rows of a file are long."""
        colors = {"+": GOOD, "-": BAD}
        printed, left = 0, sum(len(file.changes) for file in edited)
        for old, new in (pair for file in edited for pair in file.changes):
            case = old or new
            assert case is not None, "one of them is there"
            if printed >= _MOST_LINES:
                break
            self.terminal.result(StyledText(str(case.id), bold=True))
            lines = [*text_diff.unified_diff(_lines(old), _lines(new), "", "")][2:]
            for line in lines:
                if line[:1] in colors:
                    self.terminal.result(StyledText(f"  {line}", colors[line[0]]))
            printed, left = printed + 1 + len(lines), left - 1
        if left:
            self.terminal.note(f"and {counted(left, 'further case')}")


def _lines(case: Case | None) -> list[str]:
    return [] if case is None else case_yaml(case).splitlines()


def case_yaml(case: Case) -> str:
    """Return a case as the lines of YAML that a person edits."""
    row: dict[str, Json] = {"id": str(case.id), "input": dict(case.inputs)}
    others: dict[str, Any] = {
        "expected": case.expected,
        "tags": list(case.tags),
        "difficulty": case.difficulty,
        "cluster": case.cluster,
        "metadata": dict(case.metadata),
    }
    row |= {name: value for name, value in others.items() if value not in (None, [], {})}
    return f"{yaml_edit.block_yaml(row)}\n"


def is_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()
