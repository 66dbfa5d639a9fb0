"""edison grade: what people think of answers."""

from __future__ import annotations

import dataclasses
import json
import os
import select
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, get_args

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import GOOD, ODD, Ink, Terminal, counted
from edison_ci.config.labels import ALLOWED, ScaleName, fits
from edison_ci.config.load import find_root, load_project
from edison_ci.documents.secrets import redacted
from edison_ci.errors import UsageError
from edison_ci.names import did_you_mean
from edison_ci.operate.gradebook import Given, GradeBook
from edison_ci.operate.site import Site
from edison_ci.review.booth import Booth, criterion_score, labels_of
from edison_ci.rounding import fixed
from edison_ci.stats.sampling import FEWEST_LABELS
from edison_ci.store.cells import find_cell
from edison_ci.store.database import open_reader
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from edison_ci.config.load import Experiment
    from edison_ci.records import Json
    from edison_ci.results.grading_sample import Candidate
    from edison_ci.stats.sampling import RandomSample


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


try:
    import termios
    import tty
except ImportError:  # Windows has no such terminals; click knows its keyboards
    termios = tty = None  # type: ignore[assignment]  # looked at before it is used

# The terminal hands over every key at once for as long as keys are wanted, not only while somebody
# waits for one: whoever types ahead would lose keys otherwise.
_ESCAPE = "\x1b"
_END = "\x04"


class Keys:
    """The keyboard, one key at a time while it is entered."""

    def __init__(self) -> None:
        self._usual: Any = None

    def __enter__(self) -> Keys:
        if termios is not None:
            self._usual = termios.tcgetattr(sys.stdin)
            self._one_by_one()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._as_usual()

    def key(self) -> str:
        """Return the next key; raises EOFError at the end, KeyboardInterrupt when interrupted."""
        if termios is None:
            return click.getchar()
        descriptor, data = sys.stdin.fileno(), b""
        while True:
            read = os.read(descriptor, 1)
            data += read
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError:
                if read and len(data) < 4:
                    continue  # the rest of a letter is still to come
                text = "?"
            if text in ("", _END):
                raise EOFError
            if text == _ESCAPE:
                self._rest(descriptor)
            return text

    def line(self, prompt: str) -> str:
        """Return a line that somebody typed; '' at the end of the input."""
        self._as_usual()
        try:
            return input(prompt).strip()
        except EOFError:
            return ""
        finally:
            self._one_by_one()

    def _rest(self, descriptor: int) -> None:
        """Swallow what an arrow or function key sends behind its escape."""
        while select.select([descriptor], [], [], 0)[0] and os.read(descriptor, 1):
            pass

    def _one_by_one(self) -> None:
        if termios is not None:
            tty.setcbreak(sys.stdin, termios.TCSADRAIN)

    def _as_usual(self) -> None:
        if self._usual is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._usual)


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


_LISTED = 10


@click.command(cls=EdisonCommand)
@click.argument("wanted", default="latest", metavar="[RUN]")
@click.option("--scale", type=click.Choice(get_args(ScaleName)), help="How to grade; thumbs.")
@click.option("--cell", metavar="CELL", help="Grade this one: 12 hex digits, or CASE@MODEL#DRAW.")
@click.option("--next", "following", is_flag=True, help="Grade the next one of the random order.")
@click.option("--grade", "value", metavar="VALUE", help="With --cell or --next: up, down, 4, 0.7.")
@click.option(
    "--criterion", "criteria", multiple=True, metavar="NAME=SCORE", help="A criterion; again."
)
@click.option("--note", metavar="TEXT", default="", help="Why.")
@click.option("--flag", is_flag=True, help="Flag it for a second look.")
@click.option("--unflag", is_flag=True, help="Take your flag back.")
@click.option("--list", "listing", is_flag=True, help="Show what is to be graded next.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after so many.")
@click.option("--model", metavar="NAME", help="Only answers of this model.")
@click.option("--failed", is_flag=True, help="Only answers that did not pass.")
@click.option("--flagged", is_flag=True, help="Only answers flagged for a second look.")
@click.option("--again", is_flag=True, help="Also what you have graded already.")
@click.option("--reveal", is_flag=True, help="Show models and automatic grades.")
@click.option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="Of the order.")
@click.pass_obj
def grade(state: State, /, wanted: str, **given: Any) -> None:
    """Grade answers by hand.

    On a terminal it walks through the answers of a run that you have not graded yet: cases in a
    random order, without models and automatic grades unless you ask for them. Every grade is kept
    at once, so you can stop at any time. A scale is thumbs (up, down), 1-5 or 0-1. With --cell or
    --next it grades one answer without asking. RUN is an id, `latest` or the name of an experiment.

    Your last grade of an answer counts, and over people the mean. Where the rubric has
    `calibration`, grades are also added to its file of labels: see `edison calibrate`.

    Examples:
      edison grade
      edison grade support-reply --scale 1-5 --limit 20
      edison grade latest --next --grade up --note "answers the question"
      edison grade latest --cell return-how@small#0 --grade 4 --criterion Empathy=3
      edison grade latest --cell return-how@small#0 --unflag
      edison grade latest --list --json
    """
    terminal = Terminal(state)
    project = load_project(state.entered(find_root(state.folder)))
    reader = open_reader(project.root / project.file.results)
    try:
        run = find_run(reader, wanted)
        experiment = project.experiment(run.experiment)
        book = GradeBook.of(Site(project.root, project.file), labels_of(experiment))
        booth = Booth(project, run, reader, book, seed=given["seed"])
        _serve(terminal, booth, given)
    finally:
        reader.close()


def _serve(terminal: Terminal, booth: Booth, given: dict[str, Any]) -> None:
    chosen = _chosen(booth, given)
    if given["listing"]:
        _list(terminal, booth, chosen, given)
        return
    if given["cell"] is not None or given["following"]:
        _grade_one(terminal, booth, chosen, given)
        return
    needless = [name for name in ("value", "criteria", "note", "flag", "unflag") if given[name]]
    if needless:
        said = "--grade, --criterion, --note, --flag and --unflag say something of one answer"
        raise UsageError(said, hint="add --cell CELL, or --next")
    if terminal.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "grading one by one needs a terminal",
            hint="grade one with --next --grade VALUE, or see --list --json",
        )
    if not chosen:
        terminal.result(_nothing_left(given))
        return
    scale: ScaleName = given["scale"] or "thumbs"
    walk = Walk(terminal, booth, scale, reveal=given["reveal"])
    interrupted = walk.go(chosen[: given["limit"]])
    _tell_sample(terminal, booth)
    if interrupted:
        raise click.exceptions.Exit(130)


def _nothing_left(given: dict[str, Any]) -> str:
    if given["failed"] or given["flagged"] or given["model"]:
        return "nothing of that kind is left to grade"
    return "you have graded every answer of this run; --again goes through them once more"


# --- which cells ----------------------------------------------------------------------------------


def _chosen(booth: Booth, given: dict[str, Any]) -> list[Candidate]:
    """Return the answers to go through, in their order."""
    models = {cell.model for cell in booth.cells}
    if given["model"] is not None and given["model"] not in models:
        hint = did_you_mean(given["model"], models, label="there are")
        raise UsageError(f"the run has no answers of {given['model']!r}", hint=hint)
    mine, flagged = booth.mine, booth.flagged
    wanted: list[Callable[[Candidate], bool]] = []
    if given["model"] is not None:
        wanted.append(lambda cell: cell.model == given["model"])
    if given["failed"]:
        wanted.append(lambda cell: cell.passed == 0)
    if given["flagged"]:
        wanted.append(lambda cell: cell.key in flagged)
    elif not given["again"]:
        wanted.append(lambda cell: cell.key not in mine)
    return [cell for cell in booth.cells if all(keeps(cell) for keeps in wanted)]


def _list(terminal: Terminal, booth: Booth, chosen: list[Candidate], given: dict[str, Any]) -> None:
    shown = chosen[: given["limit"] or _LISTED]
    if terminal.json:
        cells = [_told(booth, cell, reveal=given["reveal"]) for cell in shown]
        terminal.document({**_about(booth), "left": len(chosen), "cells": cells})
        return
    if not shown:
        terminal.result(_nothing_left(given))
    booth.load(shown)
    for number, cell in enumerate(shown, 1):
        show_cell(terminal, booth, cell, f"{number} of {len(chosen):,}", reveal=given["reveal"])
    _tell_sample(terminal, booth)


def _told(booth: Booth, cell: Candidate, *, reveal: bool) -> dict[str, Any]:
    seen = booth.seen(cell)
    about: dict[str, Any] = {
        "cell": cell.id[:12],
        "case": cell.case_id,
        "input": None if seen.case is None else dict(seen.case.inputs),
        "expected": None if seen.case is None else seen.case.expected,
        "output": None if seen.output is None else redacted(seen.output.text),
    }
    if reveal:
        automatic = {"composite": cell.composite, "passed": cell.passed and bool(cell.passed)}
        about |= {"prompt": cell.prompt, "model": cell.model, "side": cell.side, **automatic}
    return about


# --- one by flags ---------------------------------------------------------------------------------


def _grade_one(
    terminal: Terminal, booth: Booth, chosen: list[Candidate], given: dict[str, Any]
) -> None:
    cell = _one(booth, chosen, given)
    value = given["value"]
    if given["flag"] and given["unflag"]:
        raise UsageError("--flag and --unflag exclude each other", hint="leave one of them out")
    if value is None and not (given["flag"] or given["unflag"]):
        raise UsageError("no grade is given", hint="add --grade up, --grade 4, or --flag")
    criteria = _criteria(booth.experiment, given["criteria"])
    said = Given(note=given["note"], flag=given["flag"], criteria=criteria)
    if value is not None:
        said = dataclasses.replace(said, **_value(value, given["scale"]))
    entered = booth.enter(cell, said)
    sample = booth.sample()
    if terminal.json:
        told = {
            "cell": cell.id[:12],
            "case": cell.case_id,
            "by": booth.book.actor.name,
            "score": entered.score,
            "scale": entered.scale or None,
            "passed": entered.passed,
            "criteria": dict(entered.criteria),
            "note": entered.note,
            "flagged": entered.flagged,
        }
        terminal.document({**_about(booth), "graded": told})
        return
    score = "flagged for a second look" if entered.flagged else "no longer flagged"
    if entered.score is not None:
        score = f"{fixed(100 * entered.score)} out of 100{', flagged' if entered.flagged else ''}"
    mark = (Ink("  simulated", ODD),) if booth.run.simulated else ()
    terminal.result(f"{cell.case_id}  {cell.id[:12]}: {score}", *mark)
    terminal.note(_sampled(sample))


def _one(booth: Booth, chosen: list[Candidate], given: dict[str, Any]) -> Candidate:
    if given["cell"] is not None and given["following"]:
        raise UsageError("--cell and --next exclude each other", hint="leave one of them out")
    if given["cell"] is None:
        if not chosen:
            raise UsageError(_nothing_left(given), hint="choose one with --cell")
        return chosen[0]
    return booth.named(find_cell(booth.reader, booth.run.id, given["cell"]))


def _value(text: str, scale: ScaleName | None) -> dict[str, Any]:
    """Return a grade and its scale; without one it is told by how the grade is written."""
    thumbs = {"up": 1.0, "down": 0.0}
    if text in thumbs:
        if scale not in (None, "thumbs"):
            hint = f"write a number, or leave --scale {scale} out"
            raise UsageError(f"{text!r} is a thumb", hint=hint)
        return {"scale": "thumbs", "grade": thumbs[text]}
    try:
        number = float(text)
    except ValueError:
        hint = "write up, down, 1 to 5, or a number such as 0.7"
        raise UsageError(f"{text!r} is not a grade", hint=hint) from None
    if scale is None:
        # 1 is the worst of one scale and the best of the other: nobody should have to guess.
        if text == "1" or not (0 <= number <= 1 or number in (2, 3, 4, 5)):
            what = "could be the worst or the best" if text == "1" else "is on no scale"
            raise UsageError(f"{text} {what}", hint="add --scale 1-5 or --scale 0-1")
        scale = "0-1" if number <= 1 else "1-5"
    return {"scale": scale, "grade": number}


def _criteria(experiment: Experiment, given: tuple[str, ...]) -> dict[str, float]:
    """Return scores by criterion, each on the scale of the rubric."""
    found: dict[str, float] = {}
    known = experiment.rubric.criteria if experiment.rubric is not None else ()
    for entry in given:
        name, sign, text = entry.partition("=")
        criterion = next((c for c in known if name in (c.name, c.slug)), None)
        if not sign or criterion is None:
            names = [c.name for c in known]
            hint = did_you_mean(name, names, label="criteria") or "the experiment has no rubric"
            raise UsageError(f"{entry!r} is not CRITERION=SCORE", hint=hint)
        found[criterion.name] = criterion_score(criterion, text)
    return found


# --- how far it is --------------------------------------------------------------------------------


def _about(booth: Booth) -> dict[str, Any]:
    sample = booth.sample()
    return {
        "run_id": booth.run.id,
        "experiment": booth.experiment.id,
        "simulated": booth.run.simulated,
        "labels": booth.book.labels,
        "answers": {"all": len(booth.cells), "graded": len(booth.graded)},
        "sample": {
            "cases": sample.n,
            "of": sample.of,
            "picked": sample.picked,
            "left_out": sample.left_out,
            "needed": FEWEST_LABELS,
        },
    }


def _sampled(sample: RandomSample) -> str:
    said = f"A random sample so far: {sample.n:,} of {counted(sample.of, 'case')}"
    if sample.picked:
        were = "was" if sample.picked == 1 else "were"
        said += f"; {sample.picked:,} more {were} picked by hand"
    if sample.n < min(FEWEST_LABELS, sample.of):
        said += f"; {FEWEST_LABELS} are needed to correct a score"
    return f"{said}."


def _tell_sample(terminal: Terminal, booth: Booth) -> None:
    """Say how far the grades are a random sample, and what they are good for."""
    terminal.result(_sampled(booth.sample()))
    if booth.book.labels is None:
        hint = "add calibration: {labels: labels/NAME.jsonl} to the rubric"
        terminal.note(f"Grades are in the results only; {hint} to hold judges to them.")
    elif booth.added:
        lines = counted(booth.added, "line")
        terminal.note(f"{lines} added to {booth.book.labels}: commit it, then `edison calibrate`.")
