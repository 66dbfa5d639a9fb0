"""edison grade: answers graded by hand, on a terminal or by options."""

from __future__ import annotations

import dataclasses
import os
import select
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, get_args

import click

from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand, takes
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
from edison_ci.documents import record_json, secrets
from edison_ci.errors import UsageError
from edison_ci.features.review import grading
from edison_ci.numeric import counted, fixed
from edison_ci.records import Side, plain_text
from edison_ci.results import stored_runs
from edison_ci.spelling import did_you_mean
from edison_ci.stats import corrected

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from edison_ci.results.human_grades import Candidate
    from edison_ci.stats.corrected import RandomSample


def show_cell(
    terminal: Terminal,
    queue: grading.GradingQueue,
    cell: Candidate,
    place: str,
    *,
    reveal: bool,
) -> None:
    """Print a case with its answer; with `reveal`, also the model and its automatic grade."""
    answer = queue.answer(cell)
    mark = simulated_label(queue.run.simulation)
    terminal.result("")
    terminal.result(
        StyledText(f"=== {place}  {cell.case_id}", bold=True), f"  {cell.id[:12]}", *mark
    )
    if answer.case is None:
        terminal.result("the case changed since or no longer exists")
    else:
        for name, value in answer.case.inputs.items():
            _text(terminal, f"{name}: {plain_text(value)}")
        if answer.case.expected is not None:
            _text(terminal, f"expected: {plain_text(answer.case.expected)}")
    terminal.result(StyledText("--- answer", bold=True))
    if answer.output is None:
        terminal.result("its text is no longer stored")
    else:
        _text(terminal, answer.output.text if not answer.output.malformed else answer.output.raw)
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
        queue: grading.GradingQueue,
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
        outcomes: dict[str, str] = {}
        interrupted = False
        self._terminal.result(f"{counted(len(cells), 'answer')} to grade. {self._prompt()}")
        try:
            with self._keys:
                self._walk(cells, outcomes)
        except _Quit:
            pass
        except KeyboardInterrupt:  # it may come at any time, not only while a key is read
            interrupted = True
        counts = Counter(outcomes.values())
        summary = [f"{counts['graded']:,} graded"]
        summary += [f"{counts[word]:,} {word}" for word in ("flagged", "skipped") if counts[word]]
        self._terminal.result("")
        self._terminal.result(StyledText(", ".join(summary), GOOD), ", all saved.")
        return interrupted

    def _walk(self, cells: Sequence[Candidate], outcomes: dict[str, str]) -> None:
        """Go forward and back; record the outcome of each cell."""
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
                outcomes[cell.id] = done
                place += 1

    def _one(self, cell: Candidate, *, first: bool) -> str:
        """Read keys until there is a decision about the cell."""
        self._note, self._criteria = "", {}
        before = self._queue.grades.mine.get(cell.key)
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
                self._queue.enter(cell, grading.HumanGrade(note=self._note, flag=True))
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
        human_grade = grading.HumanGrade(self._scale, number, self._note, False, self._criteria)
        self._queue.enter(cell, human_grade)
        return "graded"

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
            if not text:
                continue
            try:
                self._criteria[criterion.name] = grading.criterion_score(criterion, text)
            except UsageError:
                self._say(f"{text!r} is not on the scale; left out")


_LISTED = 10


@dataclass(frozen=True, slots=True)
class GradeRequest:
    """The answers to grade, and a grade by options."""

    run: str | None
    scale: ScaleName | None
    cell: str | None
    following: bool
    value: str | None
    criteria: tuple[str, ...]
    note: str
    flag: bool
    unflag: bool
    listing: bool
    limit: int | None
    model: str | None
    failed: bool
    flagged: bool
    again: bool
    reveal: bool
    seed: int


@click.command(cls=EdisonCommand)
@click.argument("run", required=False, metavar="[RUN]")
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
@takes(GradeRequest)
def grade(state: CliState, request: GradeRequest) -> None:
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
        run = lookup.find_run_or_newest(terminal, runs, request.run)
        experiment = project.experiment(run.experiment)
        site = sites.Site(project.root, project.file)
        book = grading.GradeBook.of(site, grading.labels_of(experiment))
        queue = grading.GradingQueue(project, run, runs.connection, book, seed=request.seed)
        _grade_run(terminal, queue, request)


def _grade_run(terminal: Terminal, queue: grading.GradingQueue, request: GradeRequest) -> None:
    chosen = _selected(queue, request)
    if request.listing:
        _list(terminal, queue, chosen, request)
        return
    if request.cell is not None or request.following:
        _grade_one(terminal, queue, chosen, request)
        return
    if request.value or request.criteria or request.note or request.flag or request.unflag:
        options = "--grade, --criterion, --note, --flag and --unflag"
        raise UsageError(f"{options} apply to one answer", hint="add --cell CELL, or --next")
    if terminal.json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "interactive grading needs a terminal",
            hint="grade one with --next --grade VALUE, or see --list --json",
        )
    if not chosen:
        terminal.result(_nothing_left(request))
        return
    scale: ScaleName = request.scale or "thumbs"
    walk = GradingSession(terminal, queue, scale, reveal=request.reveal)
    interrupted = walk.run(chosen[: request.limit])
    _show_sample(terminal, queue)
    if interrupted:
        raise click.exceptions.Exit(130)


def _nothing_left(request: GradeRequest) -> str:
    if request.failed or request.flagged or request.model:
        return "no matching answer is left to grade"
    return "you have graded every answer of this run; use --again to grade them once more"


def _selected(queue: grading.GradingQueue, request: GradeRequest) -> list[Candidate]:
    """Return the answers to grade, in order."""
    cells, mine, flagged = queue.grades.cells, queue.grades.mine, queue.grades.flagged
    models = {cell.model for cell in cells}
    if request.model is not None and request.model not in models:
        hint = did_you_mean(request.model, models, label="there are")
        raise UsageError(f"the run has no answers of {request.model!r}", hint=hint)

    def matches(cell: Candidate) -> bool:
        if request.model not in (None, cell.model) or (request.failed and cell.passed != 0):
            return False
        if request.flagged:
            return cell.key in flagged
        return request.again or cell.key not in mine

    return [cell for cell in cells if matches(cell)]


def _list(
    terminal: Terminal,
    queue: grading.GradingQueue,
    chosen: list[Candidate],
    request: GradeRequest,
) -> None:
    listed = chosen[: request.limit or _LISTED]
    if terminal.json:
        cells = [_cell_json(queue, cell, reveal=request.reveal) for cell in listed]
        terminal.document({**_about(queue), "left": len(chosen), "cells": cells})
        return
    if not listed:
        terminal.result(_nothing_left(request))
    queue.load(listed)
    for number, cell in enumerate(listed, 1):
        show_cell(terminal, queue, cell, f"{number} of {len(chosen):,}", reveal=request.reveal)
    _show_sample(terminal, queue)


def _cell_json(queue: grading.GradingQueue, cell: Candidate, *, reveal: bool) -> dict[str, Any]:
    answer = queue.answer(cell)
    about: dict[str, Any] = {
        "cell": cell.id[:12],
        "case": cell.case_id,
        "input": None if answer.case is None else dict(answer.case.inputs),
        "expected": None if answer.case is None else answer.case.expected,
        "output": None if answer.output is None else secrets.redacted(answer.output.text),
    }
    if reveal:
        automatic = {"composite": cell.composite, "passed": cell.passed and bool(cell.passed)}
        about |= {"prompt": cell.prompt, "model": cell.model, "side": cell.side, **automatic}
    return about


def _grade_one(
    terminal: Terminal,
    queue: grading.GradingQueue,
    chosen: list[Candidate],
    request: GradeRequest,
) -> None:
    cell = _one(queue, chosen, request)
    value = request.value
    if request.flag and request.unflag:
        raise UsageError("--flag and --unflag cannot be combined", hint="leave one of them out")
    if value is None and not (request.flag or request.unflag):
        raise UsageError("a grade is missing", hint="add --grade up, --grade 4, or --flag")
    criteria = grading.criterion_scores(queue.experiment, request.criteria)
    human_grade = grading.HumanGrade(note=request.note, flag=request.flag, criteria=criteria)
    if value is not None:
        scale, number = grading.read_grade(value, request.scale)
        human_grade = dataclasses.replace(human_grade, scale=scale, grade=number)
    entered = queue.enter(cell, human_grade)
    sample = queue.grades.sample()
    if terminal.json:
        graded = {
            "cell": cell.id[:12],
            "case": cell.case_id,
            "by": queue.book.actor.name,
            "scale": entered.scale or None,
            **record_json.fields_of(entered, "score", "passed", "criteria", "note", "flagged"),
        }
        terminal.document({**_about(queue), "graded": graded})
        return
    score = "flagged for a second look" if entered.flagged else "no longer flagged"
    if entered.score is not None:
        score = f"{fixed(100 * entered.score)} out of 100{', flagged' if entered.flagged else ''}"
    mark = simulated_label(queue.run.simulation)
    terminal.result(f"{cell.case_id}  {cell.id[:12]}: {score}", *mark)
    terminal.note(_sample_sentence(sample))


def _one(queue: grading.GradingQueue, chosen: list[Candidate], request: GradeRequest) -> Candidate:
    if request.cell is not None and request.following:
        raise UsageError("--cell and --next cannot be combined", hint="leave one of them out")
    if request.cell is None:
        if not chosen:
            raise UsageError(_nothing_left(request), hint="choose one with --cell")
        return chosen[0]
    return queue.find(request.cell)


def _about(queue: grading.GradingQueue) -> dict[str, Any]:
    sample = queue.grades.sample()
    return {
        "run_id": queue.run.id,
        "experiment": queue.experiment.id,
        "simulated": queue.run.simulated,
        "labels": queue.book.labels,
        "answers": {"all": len(queue.grades.cells), "graded": len(queue.grades.graded)},
        "sample": {
            **record_json.fields_of(sample, "of", "picked", "left_out", cases="n"),
            "needed": corrected.FEWEST_LABELS,
        },
    }


def _sample_sentence(sample: RandomSample) -> str:
    sentence = f"A random sample so far: {sample.n:,} of {counted(sample.of, 'case')}"
    if sample.picked:
        were = "was" if sample.picked == 1 else "were"
        sentence += f"; {sample.picked:,} more {were} picked by hand"
    if sample.n < min(corrected.FEWEST_LABELS, sample.of):
        sentence += f"; {corrected.FEWEST_LABELS} are needed to correct a score"
    return f"{sentence}."


def _show_sample(terminal: Terminal, queue: grading.GradingQueue) -> None:
    """Print how much of the run is graded as a random sample, and what to do next."""
    terminal.result(_sample_sentence(queue.grades.sample()))
    if queue.book.labels is None:
        hint = "add calibration: {labels: labels/NAME.jsonl} to the rubric"
        terminal.note(f"Grades are in the results only; {hint} to compare judges with them.")
    elif queue.added:
        lines = counted(queue.added, "line")
        terminal.note(f"{lines} added to {queue.book.labels}: commit it, then `edison calibrate`.")
