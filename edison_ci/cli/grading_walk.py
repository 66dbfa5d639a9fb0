"""How does somebody go through answers at a terminal, one key each?"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from edison_ci.cli.booth import show_cell
from edison_ci.cli.keys import Keys
from edison_ci.cli.terminal import GOOD, ODD, Ink, counted
from edison_ci.config.labels import ALLOWED, fits
from edison_ci.operate.gradebook import Given
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.cli.terminal import Terminal
    from edison_ci.config.labels import ScaleName
    from edison_ci.results.grading_sample import Candidate
    from edison_ci.review.booth import Booth

_AT_ONCE = 200
"""Cases that are read together: a dataset may be large, and it is read from its beginning."""
_GRADES: dict[ScaleName, dict[str, float]] = {
    "thumbs": {"u": 1.0, "+": 1.0, "d": 0.0, "-": 0.0},
    "1-5": {str(number): float(number) for number in range(1, 6)},
    "0-1": {},
}
_ASKED = {"thumbs": "u up, d down", "1-5": "1 worst ... 5 best", "0-1": "g grade from 0 to 1"}
_KEYS = "n note, c criteria, f flag, s skip, b back, q quit, ? help"
_HELP = (
    "n  write a note that goes with the grade",
    "c  score each criterion of the rubric, then give the grade",
    "f  flag it for a second look, and go on",
    "s  skip it; it comes back next time",
    "b  back to the one before",
    "r  show or hide models and automatic grades",
    "q  quit; every grade is kept",
)


class _Quit(Exception):
    """Somebody has had enough."""


class Walk:
    """Goes through cells, asking for a key at each."""

    def __init__(self, terminal: Terminal, booth: Booth, scale: ScaleName, *, reveal: bool) -> None:
        self._terminal, self._booth = terminal, booth
        self._scale, self._reveal = scale, reveal
        self._note, self._criteria = "", dict[str, float]()
        self._keys = Keys()

    def go(self, cells: Sequence[Candidate]) -> bool:
        """Walk through cells; return whether somebody interrupted it."""
        said: dict[str, str] = {}
        interrupted = False
        self._terminal.result(f"{counted(len(cells), 'answer')} to grade. {self._asked()}")
        try:
            with self._keys:
                self._walk(cells, said)
        except _Quit:
            pass
        except KeyboardInterrupt:  # it may come at any moment, not only while a key is awaited
            interrupted = True
        counts = Counter(said.values())
        told = [f"{counts['graded']:,} graded"]
        told += [f"{counts[word]:,} {word}" for word in ("flagged", "skipped") if counts[word]]
        self._terminal.result("")
        self._terminal.result(Ink(", ".join(told), GOOD), ", all kept.")
        return interrupted

    def _walk(self, cells: Sequence[Candidate], said: dict[str, str]) -> None:
        """Go forth and back; `said` gets what became of each cell."""
        place = 0
        while place < len(cells):
            cell = cells[place]
            if place % _AT_ONCE == 0:
                self._booth.load(cells[place : place + _AT_ONCE])
            at = f"{place + 1} of {len(cells):,}"
            show_cell(self._terminal, self._booth, cell, at, reveal=self._reveal)
            done = self._one(cell, first=place == 0)
            if done == "back":
                place -= 1
            else:
                said[cell.id] = done
                place += 1

    def _one(self, cell: Candidate, *, first: bool) -> str:
        """Ask until it is clear what to do with a cell."""
        self._note, self._criteria = "", {}
        before = self._booth.mine.get(cell.key)
        if before is not None and before.score is not None:
            self._terminal.result(f"you gave it {fixed(100 * before.score)} out of 100")
        while True:
            key = self._key()
            grades = _GRADES[self._scale]
            if key in grades:
                return self._enter(cell, grades[key])
            if key == "g" and self._scale == "0-1":
                number = self._number()
                if number is not None:
                    return self._enter(cell, number)
            elif key == "f":
                self._booth.enter(cell, Given(note=self._note, flag=True))
                return "flagged"
            elif key == "s":
                return "skipped"
            elif key == "b" and not first:
                return "back"
            elif key == "b":
                self._say("this is the first one")
            else:
                self._other(cell, key)

    def _other(self, cell: Candidate, key: str) -> None:
        """Do what a key asks for that leaves us at the same cell."""
        if key == "q":
            raise _Quit
        if key == "n":
            self._note = self._line("note: ")
        elif key == "c":
            self._score_criteria()
        elif key == "r":
            self._reveal = not self._reveal
            show_cell(self._terminal, self._booth, cell, "again", reveal=self._reveal)
        elif key == "?":
            self._terminal.result(self._asked())
            for line in _HELP:
                self._terminal.result(f"  {line}")
        elif key.strip():
            self._say(f"{key!r} means nothing here: {_ASKED[self._scale]}; ? for help")

    def _enter(self, cell: Candidate, number: float) -> str:
        given = Given(self._scale, number, self._note, False, self._criteria)
        self._booth.enter(cell, given)
        return "graded"

    # --- asking -----------------------------------------------------------------------------------

    def _asked(self) -> str:
        return f"{_ASKED[self._scale]}; {_KEYS}"

    def _say(self, text: str) -> None:
        self._terminal.result(Ink(text, ODD))

    def _key(self) -> str:
        """Return the next key; the end of the input is a quit."""
        click.echo("> ", nl=False)
        try:
            key = self._keys.key()
        except EOFError:
            raise _Quit from None
        click.echo(key if key.isprintable() else "")
        return key.lower()

    def _line(self, prompt: str) -> str:
        return self._keys.line(prompt)

    def _number(self) -> float | None:
        text = self._line("grade from 0 to 1: ")
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if fits("0-1", number):
            return number
        self._say(f"{text!r} is not {ALLOWED['0-1']}")
        return None

    def _score_criteria(self) -> None:
        rubric = self._booth.experiment.rubric
        if rubric is None:
            self._say("the experiment has no rubric")
            return
        for criterion in rubric.criteria:
            scale = criterion.scale
            text = self._line(f"{criterion.name} ({scale.min:g} to {scale.max:g}, empty: none): ")
            try:
                score = float(text) if text else None
            except ValueError:
                score = float("nan")
            if score is None:
                continue
            if scale.min <= score <= scale.max:
                self._criteria[criterion.name] = score
            else:
                self._say(f"{text!r} is not on the scale; left out")
