"""How does what people said of a run look on a terminal?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.cli.terminal import ODD, Ink, aligned

if TYPE_CHECKING:
    from collections.abc import Callable

    from edison_ci.cli.terminal import Terminal
    from edison_ci.results.human_grades import People
    from edison_ci.stats.intervals import Interval

    Said = Callable[[Interval | None], str]


def show_people(terminal: Terminal, people: People | None, points: Said, rate: Said) -> None:
    """Print what people said, beside the automatic grades, and what follows from it."""
    if people is None:
        return
    if people.answers or people.flagged:
        who = "1 person" if people.people == 1 else f"{people.people:,} people"
        flagged = f"; {people.flagged:,} flagged for a second look" if people.flagged else ""
        graded = f"{people.answers:,} of {people.of:,} answers graded"
        by = f" by {who}" if people.people else ""
        terminal.result(f"  {graded}{by}{flagged}")
    rows = [
        (f"{score.prompt} with {score.model}", points(score.composite), rate(score.pass_rate))
        for score in people.scores
        if score.graded
    ]
    if rows:
        head = ("  with people's grades in place of automatic ones", "score", "passed")
        for row in aligned([head, *(("    " + name, *rest) for name, *rest in rows)]):
            terminal.result(row)
    for score in people.scores:
        about = f"{score.prompt} with {score.model}: " if len(people.scores) > 1 else ""
        for found in score.corrections:
            text = f"  {about}{found.sentence}"
            terminal.result(text if found.applies else Ink(text, ODD))
    for found in people.change:
        terminal.result(Ink(f"  {found.sentence}", ODD if found.of == "side" else None))
