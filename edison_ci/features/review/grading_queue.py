"""The grading queue: answers of a run for one person to grade, and the storage of grades."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from edison_ci.config.calibration import (
    HALF,
    MOST_OUTPUT_CHARS,
    Label,
    answer_hash,
    criterion_shares,
    fits,
)
from edison_ci.config.problems import first_message
from edison_ci.errors import UsageError
from edison_ci.results.human_grades import candidates, cases_of, gradable_answer, sample_of
from edison_ci.store.manual_grades import ManualGrade, last_grades

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.rubric import Criterion
    from edison_ci.features.review.gradebook import GradeBook, HumanGrade
    from edison_ci.records import Case
    from edison_ci.results.human_grades import Candidate, GradableAnswer
    from edison_ci.stats.corrected import RandomSample
    from edison_ci.store.cells import CellRow
    from edison_ci.store.manual_grades import Key
    from edison_ci.store.runs import Run


MOST_NOTE_CHARS = 10_000
"""Limit of a line of a labels file."""


class GradingQueue:
    """The answers of a run for one person to grade."""

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
        grades = [g for g in last_grades(reader, run.experiment) if g.key in here]
        self.mine: dict[Key, ManualGrade] = {g.key: g for g in grades if g.actor == book.actor.name}
        self._others = [g for g in grades if g.actor != book.actor.name]
        self._cases: dict[str, Case] = {}
        self._loaded: set[str] = set()
        if not self.cells:
            hint = "only stored answers that are not blocked can be graded"
            raise UsageError(f"run {run.id} has nothing to grade", hint=hint)

    @property
    def graded(self) -> set[Key]:
        """Answers with a grade by any person."""
        return {g.key for g in (*self.mine.values(), *self._others) if g.score is not None}

    @property
    def flagged(self) -> set[Key]:
        """Answers that a person has flagged."""
        return {g.key for g in (*self.mine.values(), *self._others) if g.flagged}

    def sample(self) -> RandomSample:
        """Return the graded cases that are a random sample of the run."""
        return sample_of(self.cells, self.graded, self.seed)

    def load(self, cells: Sequence[Candidate]) -> None:
        """Load the cases of several cells in one pass."""
        self._cases.update(cases_of(self.project, self.experiment, cells))
        self._loaded.update(cell.case_id for cell in cells)

    def answer(self, cell: Candidate) -> GradableAnswer:
        """Return the case and the answer of a cell, as the grader sees them."""
        if cell.case_id not in self._loaded:
            self.load([cell])
        return gradable_answer(self.reader, self.run, self.experiment, cell, self._cases)

    def find(self, row: CellRow) -> Candidate:
        """Return the gradable answer of a cell; raises UsageError if it cannot be graded."""
        key = (row.case_id, row.request_hash, row.answer_no)
        found = next((cell for cell in self.cells if cell.key == key), None)
        if found is None:
            hint = "only stored answers that are not blocked can be graded"
            raise UsageError(f"{row.case_id}@{row.model}#{row.repeat} is {row.status}", hint=hint)
        return found

    def enter(self, cell: Candidate, given: HumanGrade, *, once: bool = False) -> ManualGrade:
        """Store a grade; setting or removing a flag keeps the earlier grade.

        With `once`, a grade equal to the last one is not stored again: forms may be sent twice.
        """
        before = self.mine.get(cell.key)
        if given.grade is None and not given.flag and not (before and before.flagged):
            if once and before is not None:
                return before
            raise UsageError("you have not flagged it", hint="list flagged answers with --flagged")
        if len(given.note) > MOST_NOTE_CHARS:
            message = f"the note has {len(given.note):,} characters"
            raise UsageError(message, hint=f"write at most {MOST_NOTE_CHARS:,}")
        grade = self._grade(cell, given, before)
        if once and before is not None and _content(before) == _content(grade):
            return before
        label = self._label(cell, given, grade)
        known = None if before is None else {"score": before.score, "flagged": before.flagged}
        self.book.enter(grade, label, run_id=self.run.id, before=known)
        self.mine[cell.key] = grade
        self.added += label is not None
        return grade

    def _grade(self, cell: Candidate, given: HumanGrade, before: ManualGrade | None) -> ManualGrade:
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
        label = _make_label(cell, given, self.book.actor.name, output="")
        rubric = self.experiment.rubric
        pass_at = rubric.pass_at if rubric is not None else HALF
        shares = criterion_shares(label, rubric) if rubric is not None else {}
        return _with(found, given.scale, label.score, label.passed(pass_at), shares)

    def _label(self, cell: Candidate, given: HumanGrade, grade: ManualGrade) -> Label | None:
        """Return the line for the labels file; None for a flag only, or without such a file."""
        if self.book.labels is None or given.scale is None or given.grade is None:
            return None
        output = self.answer(cell).output
        if output is None:
            return None
        public = not self.project.file.settings.private and len(output.text) <= MOST_OUTPUT_CHARS
        known = {"output": output.text} if public else {"answer": answer_hash(output.text)}
        if cell.case_hash is not None:
            known["case_hash"] = cell.case_hash
        return _make_label(
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


def _content(grade: ManualGrade) -> ManualGrade:
    """Return a grade without its time and cell."""
    return dataclasses.replace(grade, graded_at="", cell_id="")


def _make_label(at: Candidate, given: HumanGrade, actor: str, /, **more: Any) -> Label:
    """Return a valid label; raises UsageError with the reason if it is invalid."""
    assert given.scale is not None  # a flag alone is not a label
    assert given.grade is not None
    if not fits(given.scale, given.grade):
        message = f"{given.grade:g} is not on the scale {given.scale}"
        hint = "thumbs: up or down; 1-5: whole numbers; 0-1: any number from 0 to 1"
        raise UsageError(message, hint=hint)
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
        wrong = first_message(error)
        hint = wrong.hint or "see the format of labels: edison admin schema labels"
        raise UsageError(f"invalid label: {wrong.message}", hint=hint) from None


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
    """Parse a score on the scale of the criterion."""
    scale = criterion.scale
    try:
        score = float(text)
    except ValueError:
        score = float("nan")
    if not scale.min <= score <= scale.max:
        hint = f"enter a number from {scale.min:g} to {scale.max:g}"
        raise UsageError(f"{text!r} is not on the scale of {criterion.name}", hint=hint)
    return score


def labels_of(experiment: Experiment) -> str | None:
    """Return the labels file of an experiment; None if the rubric names none."""
    rubric = experiment.rubric
    if rubric is None or rubric.calibration is None:
        return None
    return rubric.calibration.labels
