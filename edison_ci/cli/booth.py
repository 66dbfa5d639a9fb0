"""What does a person who grades at a terminal have before them?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from edison_ci.cli.terminal import ODD, Ink
from edison_ci.documents.secrets import redacted
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    from edison_ci.cli.terminal import Terminal
    from edison_ci.records import Json
    from edison_ci.results.grading_sample import Candidate
    from edison_ci.review.booth import Booth


def show_cell(
    terminal: Terminal, booth: Booth, cell: Candidate, place: str, *, reveal: bool
) -> None:
    """Print a case and the answer to it; who wrote it only if somebody asked."""
    seen = booth.seen(cell)
    mark = (Ink("  simulated", ODD),) if booth.run.simulated else ()
    terminal.result("")
    terminal.result(Ink(f"=== {place}  {cell.case_id}", bold=True), f"  {cell.id[:12]}", *mark)
    if seen.case is None:
        terminal.result("the case changed since, or is no longer there")
    else:
        for name, value in seen.case.inputs.items():
            _text(terminal, f"{name}: {_plain(value)}")
        if seen.case.expected is not None:
            _text(terminal, f"expected: {_plain(seen.case.expected)}")
    terminal.result(Ink("--- answer", bold=True))
    if seen.output is None:
        terminal.result("its text is no longer stored")
    else:
        _text(terminal, seen.output.text if not seen.output.malformed else seen.output.raw)
    if reveal:
        score = "no score" if cell.composite is None else f"score {fixed(100 * cell.composite, 1)}"
        passed = {1: "pass", 0: "fail", None: "neither pass nor fail"}[cell.passed]
        side = "" if cell.side == "head" else f" ({cell.side})"
        terminal.result(Ink(f"--- {cell.model}{side}: {score}, {passed}", ODD))


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _text(terminal: Terminal, text: str) -> None:
    for line in redacted(text).split("\n"):
        terminal.result(line)
