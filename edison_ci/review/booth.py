"""The grading queue: what a person who grades has before them, and what becomes of it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from edison_ci.config.labels import (
    HALF,
    MOST_OUTPUT_CHARS,
    Label,
    answer_hash,
    criterion_shares,
    fits,
)
from edison_ci.config.problems import said_of
from edison_ci.errors import UsageError
from edison_ci.results.grading_sample import candidates, cases_of, sample_of, seen
from edison_ci.store.grades import ManualGrade, last_grades

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.rubric import Criterion
    from edison_ci.operate.gradebook import Given, GradeBook
    from edison_ci.records import Case
    from edison_ci.results.grading_sample import Candidate, Seen
    from edison_ci.stats.sampling import RandomSample
    from edison_ci.store.grades import Key
    from edison_ci.store.runs import CellRow, Run


MOST_NOTE_CHARS = 10_000
"""What a line of a labels file takes."""


class Booth:
    """The answers of a run before one person."""

    def __init__(
        self, project: Project, run: Run, reader: sqlite3.Connection, book: GradeBook, *, seed: int
    ) -> None:
        self.project, self.run = project, run
        self.experiment = project.experiment(run.experiment)
        self.reader, self.book, self.seed = reader, book, seed
        self.cells = candidates(reader, run.id, seed)
        self.added = 0
        """Lines added to the labels file."""
        here = {cell.key for cell in self.cells}
        said = [g for g in last_grades(reader, run.experiment) if g.key in here]
        self.mine: dict[Key, ManualGrade] = {g.key: g for g in said if g.actor == book.actor.name}
        self._others = [g for g in said if g.actor != book.actor.name]
        self._cases: dict[str, Case] = {}
        self._loaded: set[str] = set()
        if not self.cells:
            hint = "only answers that are there and not blocked can be graded"
            raise UsageError(f"run {run.id} has nothing to grade", hint=hint)

    @property
    def graded(self) -> set[Key]:
        """The answers that anybody has graded."""
        return {g.key for g in (*self.mine.values(), *self._others) if g.score is not None}

    @property
    def flagged(self) -> set[Key]:
        """The answers that somebody wants a second look at."""
        return {g.key for g in (*self.mine.values(), *self._others) if g.flagged}

    def sample(self) -> RandomSample:
        """Return the graded cases that can stand for all of the run."""
        return sample_of(self.cells, self.graded, self.seed)

    def load(self, cells: Sequence[Candidate]) -> None:
        """Read the cases of some cells, all at once."""
        self._cases.update(cases_of(self.project, self.experiment, cells))
        self._loaded.update(cell.case_id for cell in cells)

    def seen(self, cell: Candidate) -> Seen:
        """Return what is to be seen of a cell."""
        if cell.case_id not in self._loaded:
            self.load([cell])
        return seen(self.reader, self.run, self.experiment, cell, self._cases)

    def named(self, row: CellRow) -> Candidate:
        """Return the answer of a cell, as it stands among those that can be graded."""
        key = (row.case_id, row.address, row.take)
        found = next((cell for cell in self.cells if cell.key == key), None)
        if found is None:
            hint = "only answers that are there and not blocked can be graded"
            raise UsageError(f"{row.case_id}@{row.model}#{row.draw} is {row.status}", hint=hint)
        return found

    def enter(self, cell: Candidate, given: Given, *, once: bool = False) -> ManualGrade:
        """Write down what is said of an answer; a flag, set or taken back, keeps the grade.

        With `once` nothing is written that was said just so before: a form may be sent twice.
        """
        before = self.mine.get(cell.key)
        if given.grade is None and not given.flag and not (before and before.flagged):
            if once and before is not None:
                return before
            raise UsageError("you have not flagged it", hint="see what is flagged: --flagged")
        if len(given.note) > MOST_NOTE_CHARS:
            said = f"the note has {len(given.note):,} characters"
            raise UsageError(said, hint=f"write at most {MOST_NOTE_CHARS:,}")
        grade = self._grade(cell, given, before)
        if once and before is not None and _says(before) == _says(grade):
            return before
        label = self._label(cell, given, grade)
        known = None if before is None else {"score": before.score, "flagged": before.flagged}
        self.book.enter(grade, label, run_id=self.run.id, before=known)
        self.mine[cell.key] = grade
        self.added += label is not None
        return grade

    def _grade(self, cell: Candidate, given: Given, before: ManualGrade | None) -> ManualGrade:
        note = given.note.encode("utf-8", "backslashreplace").decode("utf-8")
        found = ManualGrade(
            cell.id,
            self.run.experiment,
            *cell.key,
            actor=self.book.actor.name,
            graded_at=self.book.site.now(),
            note=note,
            flagged=given.flag,
            seed=self.seed,
        )
        if given.scale is None or given.grade is None:
            if before is None:
                return found
            kept = dataclasses.replace(found, note=found.note or before.note)
            return _with(kept, before.scale, before.score, before.passed, before.criteria)
        label = _checked(cell, given, self.book.actor.name, output="")
        rubric = self.experiment.rubric
        pass_at = rubric.pass_at if rubric is not None else HALF
        shares = criterion_shares(label, rubric) if rubric is not None else {}
        return _with(found, given.scale, label.score, label.passed(pass_at), shares)

    def _label(self, cell: Candidate, given: Given, grade: ManualGrade) -> Label | None:
        """Return the line for the labels file; None for a flag alone, or without such a file."""
        if self.book.labels is None or given.scale is None or given.grade is None:
            return None
        output = self.seen(cell).output
        if output is None:
            return None
        told = not self.project.file.settings.private and len(output.text) <= MOST_OUTPUT_CHARS
        known = {"output": output.text} if told else {"answer": answer_hash(output.text)}
        if cell.case_hash is not None:
            known["case_hash"] = cell.case_hash
        return _checked(
            cell,
            given,
            grade.actor,
            **known,
            note=grade.note,
            at=grade.graded_at,
            experiment=self.run.experiment,
            run=self.run.id,
            cell=cell.id[:12],
        )


def _says(grade: ManualGrade) -> ManualGrade:
    """Return a grade without when and where it was given."""
    return dataclasses.replace(grade, graded_at="", cell_id="")


def _checked(at: Candidate, given: Given, actor: str, /, **more: Any) -> Label:
    """Return a label as a labels file takes it; says what is wrong with one that it does not."""
    assert given.scale is not None  # a flag alone is no label
    assert given.grade is not None
    if not fits(given.scale, given.grade):
        said = f"{given.grade:g} is not on the scale {given.scale}"
        raise UsageError(said, hint="thumbs are up or down, 1-5 whole, 0-1 in between")
    try:
        return Label(
            case=at.case_id,
            by=actor,
            scale=given.scale,
            grade=given.grade,
            criteria=dict(given.criteria),
            **more,
        )
    except ValidationError as error:
        wrong = said_of(error)
        hint = wrong.hint or "edison schema labels says what a label may be"
        raise UsageError(f"a label cannot hold this: {wrong.message}", hint=hint) from None


def _with(
    grade: ManualGrade,
    scale: str,
    score: float | None,
    passed: bool | None,
    criteria: Mapping[str, float],
) -> ManualGrade:
    return ManualGrade(
        grade.cell_id,
        grade.experiment,
        *grade.key,
        actor=grade.actor,
        graded_at=grade.graded_at,
        scale=scale,
        score=score,
        passed=passed,
        criteria=criteria,
        note=grade.note,
        flagged=grade.flagged,
        seed=grade.seed,
    )


def criterion_score(criterion: Criterion, text: str) -> float:
    """Return a score that somebody wrote, on the scale of the criterion."""
    scale = criterion.scale
    try:
        score = float(text)
    except ValueError:
        score = float("nan")
    if not scale.min <= score <= scale.max:
        hint = f"write a number from {scale.min:g} to {scale.max:g}"
        raise UsageError(f"{text!r} is not on the scale of {criterion.name}", hint=hint)
    return score


def labels_of(experiment: Experiment) -> str | None:
    """Return the file of labels that grades are added to; None if the rubric names none."""
    rubric = experiment.rubric
    if rubric is None or rubric.calibration is None:
        return None
    return rubric.calibration.labels
