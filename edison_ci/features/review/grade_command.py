"""edison grade: answers graded by hand, on a terminal or by options."""

from __future__ import annotations

import dataclasses
import os
import select
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, get_args

import click

from edison_ci.access import site as sites
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import (
    GOOD,
    ODD,
    StyledText,
    Terminal,
    read_keys,
    read_line,
    simulated_label,
)
from edison_ci.config.calibration import ALLOWED, ScaleName, fits
from edison_ci.documents import secrets
from edison_ci.errors import UsageError
from edison_ci.features.review import gradebook, grading_queue
from edison_ci.numeric import counted, fixed
from edison_ci.records import Side, plain_text
from edison_ci.results import stored_runs
from edison_ci.spelling import did_you_mean
from edison_ci.stats import corrected
from edison_ci.store import cells as store_cells

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from edison_ci.config.load import Experiment
    from edison_ci.results.human_grades import Candidate
    from edison_ci.stats.corrected import RandomSample


def show_cell(
    terminal: Terminal,
    queue: grading_queue.GradingQueue,
    cell: Candidate,
    place: str,
    *,
    reveal: bool,
) -> None:
    """Print a case with its answer; with `reveal`, also the model and its automatic grade."""
    seen = queue.answer(cell)
    mark = simulated_label(queue.run.simulation)
    terminal.result("")
    terminal.result(
        StyledText(f"=== {place}  {cell.case_id}", bold=True), f"  {cell.id[:12]}", *mark
    )
    if seen.case is None:
        terminal.result("the case changed since or no longer exists")
    else:
        for name, value in seen.case.inputs.items():
            _text(terminal, f"{name}: {plain_text(value)}")
        if seen.case.expected is not None:
            _text(terminal, f"expected: {plain_text(seen.case.expected)}")
    terminal.result(StyledText("--- answer", bold=True))
    if seen.output is None:
        terminal.result("its text is no longer stored")
    else:
        _text(terminal, seen.output.text if not seen.output.malformed else seen.output.raw)
    if reveal:
        score = "no score" if cell.composite is None else f"score {fixed(100 * cell.composite, 1)}"
        passed = {1: "pass", 0: "fail", None: "neither pass nor fail"}[cell.passed]
        side = "" if cell.side == Side.HEAD else f" ({cell.side})"
        terminal.result(StyledText(f"--- {cell.model}{side}: {score}, {passed}", ODD))


def _text(terminal: Terminal, text: str) -> None:
    for line in secrets.redacted(text).split("\n"):
        terminal.result(line)


try:
    import termios
    import tty
except ImportError:  # Windows has no termios; click reads its keyboard
    termios = tty = None  # type: ignore[assignment]  # checked before use

# The terminal stays in single-key mode between keys: keys typed ahead would be lost otherwise.
_ESCAPE = "\x1b"
_END = "\x04"


class Keys:
    """The keyboard as a context manager that reads single keys."""

    def __init__(self) -> None:
        self._usual: Any = None

    def __enter__(self) -> Keys:
        if termios is not None:
            self._usual = termios.tcgetattr(sys.stdin)
            self._single_key_mode()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._line_mode()

    def key(self) -> str:
        """Return the next key; raises EOFError at the end, KeyboardInterrupt when interrupted."""
        if termios is None:
            return click.getchar()
        data = b""
        while True:
            read = read_keys(1)
            data += read
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError:
                if read and len(data) < 4:
                    continue  # a multi-byte character is incomplete
                text = "?"
            if text in ("", _END):
                raise EOFError
            if text == _ESCAPE:
                self._rest(sys.stdin.fileno())
            return text

    def line(self, prompt: str) -> str:
        """Return a typed line; '' at the end of the input."""
        self._line_mode()
        try:
            return read_line(prompt).strip()
        except EOFError:
            return ""
        finally:
            self._single_key_mode()

    def _rest(self, descriptor: int) -> None:
        """Discard the rest of the escape sequence of an arrow or function key."""
        while select.select([descriptor], [], [], 0)[0] and os.read(descriptor, 1):
            pass

    def _single_key_mode(self) -> None:
        if termios is not None:
            tty.setcbreak(sys.stdin, termios.TCSADRAIN)

    def _line_mode(self) -> None:
        if self._usual is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._usual)


_AT_ONCE = 200
"""Number of cases to read at once: a dataset is always read from its beginning."""
_GRADES: dict[ScaleName, dict[str, float]] = {
    "thumbs": {"u": 1.0, "+": 1.0, "d": 0.0, "-": 0.0},
    "1-5": {str(number): float(number) for number in range(1, 6)},
    "0-1": {},
}
_SCALE_KEYS = {"thumbs": "u up, d down", "1-5": "1 worst ... 5 best", "0-1": "g grade from 0 to 1"}
_KEYS = "n note, c criteria, f flag, s skip, b back, q quit, ? help"
_HELP = (
    "n  write a note that goes with the grade",
    "c  score each criterion of the rubric, then give the grade",
    "f  flag it for a second look, and continue",
    "s  skip it; it comes back next time",
    "b  back to the one before",
    "r  show or hide models and automatic grades",
    "q  quit; every grade is saved",
)


class _Quit(Exception):
    """The user quits."""


class GradingSession:
    """An interactive session that asks for a key at each cell."""

    def __init__(
        self,
        terminal: Terminal,
        queue: grading_queue.GradingQueue,
        scale: ScaleName,
        *,
        reveal: bool,
    ) -> None:
        self._terminal, self._queue = terminal, queue
        self._scale, self._reveal = scale, reveal
        self._note, self._criteria = "", dict[str, float]()
        self._keys = Keys()

    def run(self, cells: Sequence[Candidate]) -> bool:
        """Grade cells one after the other; return whether it was interrupted."""
        said: dict[str, str] = {}
        interrupted = False
        self._terminal.result(f"{counted(len(cells), 'answer')} to grade. {self._prompt()}")
        try:
            with self._keys:
                self._walk(cells, said)
        except _Quit:
            pass
        except KeyboardInterrupt:  # it may come at any time, not only while a key is read
            interrupted = True
        counts = Counter(said.values())
        told = [f"{counts['graded']:,} graded"]
        told += [f"{counts[word]:,} {word}" for word in ("flagged", "skipped") if counts[word]]
        self._terminal.result("")
        self._terminal.result(StyledText(", ".join(told), GOOD), ", all saved.")
        return interrupted

    def _walk(self, cells: Sequence[Candidate], said: dict[str, str]) -> None:
        """Go forward and back; record the outcome of each cell in `said`."""
        place = 0
        while place < len(cells):
            cell = cells[place]
            if place % _AT_ONCE == 0:
                self._queue.load(cells[place : place + _AT_ONCE])
            at = f"{place + 1} of {len(cells):,}"
            show_cell(self._terminal, self._queue, cell, at, reveal=self._reveal)
            done = self._one(cell, first=place == 0)
            if done == "back":
                place -= 1
            else:
                said[cell.id] = done
                place += 1

    def _one(self, cell: Candidate, *, first: bool) -> str:
        """Read keys until there is a decision about the cell."""
        self._note, self._criteria = "", {}
        before = self._queue.mine.get(cell.key)
        if before is not None and before.score is not None:
            self._terminal.result(f"your grade was {fixed(100 * before.score)} out of 100")
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
                self._queue.enter(cell, gradebook.HumanGrade(note=self._note, flag=True))
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
        """Handle a key that does not leave the cell."""
        if key == "q":
            raise _Quit
        if key == "n":
            self._note = self._line("note: ")
        elif key == "c":
            self._score_criteria()
        elif key == "r":
            self._reveal = not self._reveal
            show_cell(self._terminal, self._queue, cell, "again", reveal=self._reveal)
        elif key == "?":
            self._terminal.result(self._prompt())
            for line in _HELP:
                self._terminal.result(f"  {line}")
        elif key.strip():
            self._say(f"{key!r} is not a command: {_SCALE_KEYS[self._scale]}; ? for help")

    def _enter(self, cell: Candidate, number: float) -> str:
        given = gradebook.HumanGrade(self._scale, number, self._note, False, self._criteria)
        self._queue.enter(cell, given)
        return "graded"

    # --- input ------------------------------------------------------------------------------------

    def _prompt(self) -> str:
        return f"{_SCALE_KEYS[self._scale]}; {_KEYS}"

    def _say(self, text: str) -> None:
        self._terminal.result(StyledText(text, ODD))

    def _key(self) -> str:
        """Return the next key; the end of the input quits."""
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
        rubric = self._queue.experiment.rubric
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
@click.argument("wanted", required=False, metavar="[RUN]")
@click.option("--scale", type=click.Choice(get_args(ScaleName)), help="Scale; default thumbs.")
@click.option(
    "--cell", metavar="CELL", help="Grade this cell: 12 hex digits, or CASE@MODEL#REPEAT."
)
@click.option("--next", "following", is_flag=True, help="Grade the next cell in random order.")
@click.option(
    "--grade", "value", metavar="VALUE", help="The grade, with --cell or --next: up, down, 4, 0.7."
)
@click.option(
    "--criterion",
    "criteria",
    multiple=True,
    metavar="NAME=SCORE",
    help="Score of a criterion; repeatable.",
)
@click.option("--note", metavar="TEXT", default="", help="Why.")
@click.option("--flag", is_flag=True, help="Flag the cell for a second look.")
@click.option("--unflag", is_flag=True, help="Remove your flag.")
@click.option("--list", "listing", is_flag=True, help="List the cells to grade next.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N answers.")
@click.option("--model", metavar="NAME", help="Grade only answers of this model.")
@click.option("--failed", is_flag=True, help="Grade only answers that did not pass.")
@click.option("--flagged", is_flag=True, help="Grade only answers flagged for a second look.")
@click.option("--again", is_flag=True, help="Include answers that you have graded already.")
@click.option("--reveal", is_flag=True, help="Show models and automatic grades.")
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, metavar="N", help="Random seed of the order."
)
@click.pass_obj
def grade(state: CliState, /, wanted: str | None, **given: Any) -> None:
    """Grade answers by hand.

    On a terminal it shows the answers of a run that you have not graded yet, one by one: cases in
    random order, without models and automatic grades by default. Every grade is saved at once, so
    you can stop at any time. Scales are thumbs (up, down), 1-5 and 0-1. With --cell or --next it
    grades one answer without a dialog. RUN is an id, `latest` or the name of an experiment.

    Your last grade of an answer counts; grades of several people are averaged. If the rubric has
    `calibration`, grades are also added to its labels file: see `edison calibrate`.

    Examples:
      edison grade
      edison grade support-reply --scale 1-5 --limit 20
      edison grade latest --next --grade up --note "answers the question"
      edison grade latest --cell return-how@small#0 --grade 4 --criterion Empathy=3
      edison grade latest --cell return-how@small#0 --unflag
      edison grade latest --list --json
    """
    terminal = Terminal(state)
    project = lookup.refuse_texts_in_log(lookup.open_project(state))
    with stored_runs.live_runs(project) as runs:
        run = lookup.find_run_or_newest(terminal, runs, wanted)
        experiment = project.experiment(run.experiment)
        book = gradebook.GradeBook.of(
            sites.Site(project.root, project.file), grading_queue.labels_of(experiment)
        )
        queue = grading_queue.GradingQueue(project, run, runs.connection, book, seed=given["seed"])
        _grade_run(terminal, queue, given)


def _grade_run(
    terminal: Terminal, queue: grading_queue.GradingQueue, given: dict[str, Any]
) -> None:
    chosen = _selected(queue, given)
    if given["listing"]:
        _list(terminal, queue, chosen, given)
        return
    if given["cell"] is not None or given["following"]:
        _grade_one(terminal, queue, chosen, given)
        return
    needless = [name for name in ("value", "criteria", "note", "flag", "unflag") if given[name]]
    if needless:
        said = "--grade, --criterion, --note, --flag and --unflag apply to one answer"
        raise UsageError(said, hint="add --cell CELL, or --next")
    if terminal.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "interactive grading needs a terminal",
            hint="grade one with --next --grade VALUE, or see --list --json",
        )
    if not chosen:
        terminal.result(_nothing_left(given))
        return
    scale: ScaleName = given["scale"] or "thumbs"
    walk = GradingSession(terminal, queue, scale, reveal=given["reveal"])
    interrupted = walk.run(chosen[: given["limit"]])
    _show_sample(terminal, queue)
    if interrupted:
        raise click.exceptions.Exit(130)


def _nothing_left(given: dict[str, Any]) -> str:
    if given["failed"] or given["flagged"] or given["model"]:
        return "no matching answer is left to grade"
    return "you have graded every answer of this run; use --again to grade them once more"


# --- which cells ----------------------------------------------------------------------------------


def _selected(queue: grading_queue.GradingQueue, given: dict[str, Any]) -> list[Candidate]:
    """Return the answers to grade, in order."""
    models = {cell.model for cell in queue.cells}
    if given["model"] is not None and given["model"] not in models:
        hint = did_you_mean(given["model"], models, label="there are")
        raise UsageError(f"the run has no answers of {given['model']!r}", hint=hint)
    mine, flagged = queue.mine, queue.flagged
    wanted: list[Callable[[Candidate], bool]] = []
    if given["model"] is not None:
        wanted.append(lambda cell: cell.model == given["model"])
    if given["failed"]:
        wanted.append(lambda cell: cell.passed == 0)
    if given["flagged"]:
        wanted.append(lambda cell: cell.key in flagged)
    elif not given["again"]:
        wanted.append(lambda cell: cell.key not in mine)
    return [cell for cell in queue.cells if all(keeps(cell) for keeps in wanted)]


def _list(
    terminal: Terminal,
    queue: grading_queue.GradingQueue,
    chosen: list[Candidate],
    given: dict[str, Any],
) -> None:
    shown = chosen[: given["limit"] or _LISTED]
    if terminal.json:
        cells = [_cell_json(queue, cell, reveal=given["reveal"]) for cell in shown]
        terminal.document({**_about(queue), "left": len(chosen), "cells": cells})
        return
    if not shown:
        terminal.result(_nothing_left(given))
    queue.load(shown)
    for number, cell in enumerate(shown, 1):
        show_cell(terminal, queue, cell, f"{number} of {len(chosen):,}", reveal=given["reveal"])
    _show_sample(terminal, queue)


def _cell_json(
    queue: grading_queue.GradingQueue, cell: Candidate, *, reveal: bool
) -> dict[str, Any]:
    seen = queue.answer(cell)
    about: dict[str, Any] = {
        "cell": cell.id[:12],
        "case": cell.case_id,
        "input": None if seen.case is None else dict(seen.case.inputs),
        "expected": None if seen.case is None else seen.case.expected,
        "output": None if seen.output is None else secrets.redacted(seen.output.text),
    }
    if reveal:
        automatic = {"composite": cell.composite, "passed": cell.passed and bool(cell.passed)}
        about |= {"prompt": cell.prompt, "model": cell.model, "side": cell.side, **automatic}
    return about


# --- one by options -------------------------------------------------------------------------------


def _grade_one(
    terminal: Terminal,
    queue: grading_queue.GradingQueue,
    chosen: list[Candidate],
    given: dict[str, Any],
) -> None:
    cell = _one(queue, chosen, given)
    value = given["value"]
    if given["flag"] and given["unflag"]:
        raise UsageError("--flag and --unflag cannot be combined", hint="leave one of them out")
    if value is None and not (given["flag"] or given["unflag"]):
        raise UsageError("a grade is missing", hint="add --grade up, --grade 4, or --flag")
    criteria = _criteria(queue.experiment, given["criteria"])
    said = gradebook.HumanGrade(note=given["note"], flag=given["flag"], criteria=criteria)
    if value is not None:
        said = dataclasses.replace(said, **_value(value, given["scale"]))
    entered = queue.enter(cell, said)
    sample = queue.sample()
    if terminal.json:
        told = {
            "cell": cell.id[:12],
            "case": cell.case_id,
            "by": queue.book.actor.name,
            "score": entered.score,
            "scale": entered.scale or None,
            "passed": entered.passed,
            "criteria": dict(entered.criteria),
            "note": entered.note,
            "flagged": entered.flagged,
        }
        terminal.document({**_about(queue), "graded": told})
        return
    score = "flagged for a second look" if entered.flagged else "no longer flagged"
    if entered.score is not None:
        score = f"{fixed(100 * entered.score)} out of 100{', flagged' if entered.flagged else ''}"
    mark = simulated_label(queue.run.simulation)
    terminal.result(f"{cell.case_id}  {cell.id[:12]}: {score}", *mark)
    terminal.note(_sample_sentence(sample))


def _one(
    queue: grading_queue.GradingQueue, chosen: list[Candidate], given: dict[str, Any]
) -> Candidate:
    if given["cell"] is not None and given["following"]:
        raise UsageError("--cell and --next cannot be combined", hint="leave one of them out")
    if given["cell"] is None:
        if not chosen:
            raise UsageError(_nothing_left(given), hint="choose one with --cell")
        return chosen[0]
    return queue.find(store_cells.find_cell(queue.reader, queue.run.id, given["cell"]))


def _value(text: str, scale: ScaleName | None) -> dict[str, Any]:
    """Return a grade and its scale; without --scale, the form of the grade decides."""
    thumbs = {"up": 1.0, "down": 0.0}
    if text in thumbs:
        if scale not in (None, "thumbs"):
            hint = f"write a number, or leave --scale {scale} out"
            raise UsageError(f"{text!r} is a grade on the scale thumbs", hint=hint)
        return {"scale": "thumbs", "grade": thumbs[text]}
    try:
        number = float(text)
    except ValueError:
        hint = "write up, down, 1 to 5, or a number such as 0.7"
        raise UsageError(f"{text!r} is not a grade", hint=hint) from None
    if scale is None:
        # 1 is the lowest grade on one scale and the highest on the other.
        if text == "1" or not (0 <= number <= 1 or number in (2, 3, 4, 5)):
            what = (
                "may be the lowest or the highest grade" if text == "1" else "is not on any scale"
            )
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
        found[criterion.name] = grading_queue.criterion_score(criterion, text)
    return found


# --- progress -------------------------------------------------------------------------------------


def _about(queue: grading_queue.GradingQueue) -> dict[str, Any]:
    sample = queue.sample()
    return {
        "run_id": queue.run.id,
        "experiment": queue.experiment.id,
        "simulated": queue.run.simulated,
        "labels": queue.book.labels,
        "answers": {"all": len(queue.cells), "graded": len(queue.graded)},
        "sample": {
            "cases": sample.n,
            "of": sample.of,
            "picked": sample.picked,
            "left_out": sample.left_out,
            "needed": corrected.FEWEST_LABELS,
        },
    }


def _sample_sentence(sample: RandomSample) -> str:
    said = f"A random sample so far: {sample.n:,} of {counted(sample.of, 'case')}"
    if sample.picked:
        were = "was" if sample.picked == 1 else "were"
        said += f"; {sample.picked:,} more {were} picked by hand"
    if sample.n < min(corrected.FEWEST_LABELS, sample.of):
        said += f"; {corrected.FEWEST_LABELS} are needed to correct a score"
    return f"{said}."


def _show_sample(terminal: Terminal, queue: grading_queue.GradingQueue) -> None:
    """Print how much of the run is graded as a random sample, and what to do next."""
    terminal.result(_sample_sentence(queue.sample()))
    if queue.book.labels is None:
        hint = "add calibration: {labels: labels/NAME.jsonl} to the rubric"
        terminal.note(f"Grades are in the results only; {hint} to compare judges with them.")
    elif queue.added:
        lines = counted(queue.added, "line")
        terminal.note(f"{lines} added to {queue.book.labels}: commit it, then `edison calibrate`.")
