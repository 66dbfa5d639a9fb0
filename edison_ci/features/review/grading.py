"""Grading by people: the answers of a run to grade, and the storage of grades.

A grade is stored in one transaction with its audit row. Then, if the rubric names a labels file, it
is appended there in one write, as one line.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from edison_ci import ranges
from edison_ci._dataclass import dataclass
from edison_ci.access.site import Role
from edison_ci.config.calibration import (
    HALF,
    MOST_OUTPUT_CHARS,
    Label,
    answer_hash,
    criterion_shares,
    fits,
)
from edison_ci.config.problems import first_message
from edison_ci.documents.secrets import redacted
from edison_ci.errors import UsageError
from edison_ci.results.human_grades import candidates, cases_of, gradable_answer, sample_of
from edison_ci.spelling import did_you_mean
from edison_ci.store.cells import find_cell
from edison_ci.store.manual_grades import ManualGrade, last_grades, write_grade

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from edison_ci.access.site import Actor, Site
    from edison_ci.config.calibration import ScaleName
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.rubric import Criterion
    from edison_ci.records import Case
    from edison_ci.results.human_grades import Candidate, GradableAnswer
    from edison_ci.stats.corrected import RandomSample
    from edison_ci.store.manual_grades import Key
    from edison_ci.store.runs import Run

_UNGRADABLE = "only stored answers that are not blocked can be graded"


@dataclass(frozen=True, slots=True)
class HumanGrade:
    """The grade of an answer by a person."""

    scale: ScaleName | None = None
    """None, like `grade`, to set or remove a flag only."""
    grade: float | None = None
    note: str = ""
    flag: bool = False
    criteria: Mapping[str, float] = field(default_factory=dict)
    """On the scales of the rubric."""


@dataclass(frozen=True, slots=True)
class GradeBook:
    """Stores the grades of one person."""

    site: Site
    actor: Actor
    labels: str | None
    """Path of the labels file; None if the rubric names none."""

    @classmethod
    def of(cls, site: Site, labels: str | None) -> GradeBook:
        """Return the grade book of the actor; raises RoleError if they may not grade."""
        return cls(site, site.require(Role.REVIEWER, "grade"), labels)

    def enter(
        self, grade: ManualGrade, label: Label | None, *, run_id: str, before: Any = None
    ) -> None:
        """Store a grade; one that is only a flag has no label."""
        after = {"score": grade.score, "scale": grade.scale, "flagged": grade.flagged}
        entry = self.site.entry(
            self.actor, "grade", f"cell {grade.cell_id[:12]}", before=before, after=after
        )
        entry = dataclasses.replace(entry, run_id=run_id)
        write_grade(self.site.results, grade, entry)
        if label is not None and self.labels is not None:
            append_line(self.site.root, self.labels, label_line(label))


def label_line(label: Label) -> str:
    """Return a label as a line of its file, without strings that look like secrets."""
    row = label.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    if "output" in row and redacted(row["output"]) != row["output"]:
        row["answer"] = label.key[1]
        del row["output"]
    if "note" in row:
        row["note"] = redacted(row["note"])
    if float(row["grade"]).is_integer():
        row["grade"] = int(row["grade"])
    text = json.dumps(row, ensure_ascii=False)
    # Invisible characters are escaped; letters of all scripts stay readable.
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def append_line(root: Path, name: str, line: str) -> None:
    """Append a line to a file in the project, after a line break if one is missing."""
    path = root / name
    real = Path(os.path.realpath(path))
    if not real.is_relative_to(os.path.realpath(root)):
        raise UsageError(
            f"{name} is a link to outside of the project; the grade is stored in the results only",
            hint="replace the link by a file",
        )
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        with real.open("a+b") as stream:
            size = stream.seek(0, os.SEEK_END)
            if size:
                stream.seek(size - 1)
            broken = bool(size) and stream.read(1) != b"\n"
            data = line.encode("utf-8", "surrogatepass")
            stream.write((b"\n" if broken else b"") + data + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise UsageError(
            f"{name} cannot be written ({error.strerror}); the grade is stored in the results only",
            hint="check the permissions of the file",
        ) from None


@dataclass(slots=True)
class RunGrades:
    """The gradable answers of a run in random order, with grades of one person and of others."""

    cells: list[Candidate]
    mine: dict[Key, ManualGrade]
    """The last grades of one person."""
    others: list[ManualGrade]
    seed: int

    @classmethod
    def of(cls, reader: sqlite3.Connection, run: Run, person: str, seed: int) -> RunGrades:
        """Return the answers of a run with their grades."""
        cells = candidates(reader, run.id, seed)
        keys = {cell.key for cell in cells}
        grades = [grade for grade in last_grades(reader, run.experiment) if grade.key in keys]
        mine = {grade.key: grade for grade in grades if grade.actor == person}
        return cls(cells, mine, [grade for grade in grades if grade.actor != person], seed)

    @property
    def graded(self) -> set[Key]:
        """Answers with a grade by any person."""
        return {g.key for g in (*self.mine.values(), *self.others) if g.score is not None}

    @property
    def flagged(self) -> set[Key]:
        """Answers that a person has flagged."""
        return {g.key for g in (*self.mine.values(), *self.others) if g.flagged}

    def sample(self) -> RandomSample:
        """Return the graded cases that are a random sample of the run."""
        return sample_of(self.cells, self.graded, self.seed)


class GradingQueue:
    """The answers of a run for one person to grade."""

    def __init__(
        self, project: Project, run: Run, reader: sqlite3.Connection, book: GradeBook, *, seed: int
    ) -> None:
        self.project, self.run = project, run
        self.experiment = project.experiment(run.experiment)
        self.reader, self.book = reader, book
        self.grades = RunGrades.of(reader, run, book.actor.name, seed)
        self.added = 0
        """Lines added to the labels file."""
        self._cases: dict[str, Case] = {}
        self._loaded: set[str] = set()
        if not self.grades.cells:
            raise UsageError(f"run {run.id} has nothing to grade", hint=_UNGRADABLE)

    def load(self, cells: Sequence[Candidate]) -> None:
        """Load the cases of several cells in one pass."""
        self._cases.update(cases_of(self.project, self.experiment, cells))
        self._loaded.update(cell.case_id for cell in cells)

    def answer(self, cell: Candidate) -> GradableAnswer:
        """Return the case and the answer of a cell, as the grader sees them."""
        if cell.case_id not in self._loaded:
            self.load([cell])
        return gradable_answer(self.reader, self.run, self.experiment, cell, self._cases)

    def find(self, name: str) -> Candidate:
        """Return the answer of a cell by id or name; raises UsageError if it cannot be graded."""
        row = find_cell(self.reader, self.run.id, name)
        key = (row.case_id, row.request_hash, row.answer_no)
        cell = next((cell for cell in self.grades.cells if cell.key == key), None)
        if cell is None:
            name = f"{row.case_id}@{row.model}#{row.repeat}"
            raise UsageError(f"{name} is {row.status}", hint=_UNGRADABLE)
        return cell

    def enter(self, cell: Candidate, grading: HumanGrade, *, once: bool = False) -> ManualGrade:
        """Store a grade; setting or removing a flag keeps the earlier grade.

        With `once`, a grade equal to the last one is not stored again: forms may be sent twice.
        """
        before = self.grades.mine.get(cell.key)
        if grading.grade is None and not grading.flag and not (before and before.flagged):
            if once and before is not None:
                return before
            raise UsageError("you have not flagged it", hint="list flagged answers with --flagged")
        if len(grading.note) > ranges.GRADE_NOTE_CHARS:
            message = f"the note has {len(grading.note):,} characters"
            raise UsageError(message, hint=f"write at most {ranges.GRADE_NOTE_CHARS:,}")
        grade = self._grade(cell, grading, before)
        if once and before is not None and _content(before) == _content(grade):
            return before
        label = self._label(cell, grading, grade)
        earlier = None if before is None else {"score": before.score, "flagged": before.flagged}
        self.book.enter(grade, label, run_id=self.run.id, before=earlier)
        self.grades.mine[cell.key] = grade
        self.added += label is not None
        return grade

    def _grade(
        self, cell: Candidate, grading: HumanGrade, before: ManualGrade | None
    ) -> ManualGrade:
        note = grading.note.encode("utf-8", "backslashreplace").decode("utf-8")
        grade = ManualGrade(
            cell.id,
            self.run.experiment,
            *cell.key,
            actor=self.book.actor.name,
            graded_at=self.book.site.now(),
            note=note,
            flagged=grading.flag,
            seed=self.grades.seed,
        )
        if grading.scale is None or grading.grade is None:
            if before is None:
                return grade
            return dataclasses.replace(
                grade,
                note=note or before.note,
                scale=before.scale,
                score=before.score,
                passed=before.passed,
                criteria=before.criteria,
            )
        label = _make_label(cell, grading, self.book.actor.name, output="")
        rubric = self.experiment.rubric
        return dataclasses.replace(
            grade,
            scale=grading.scale,
            score=label.score,
            passed=label.passed(rubric.pass_at if rubric is not None else HALF),
            criteria=criterion_shares(label, rubric) if rubric is not None else {},
        )

    def _label(self, cell: Candidate, grading: HumanGrade, grade: ManualGrade) -> Label | None:
        """Return the line for the labels file; None for a flag only, or without such a file."""
        if self.book.labels is None or grading.scale is None or grading.grade is None:
            return None
        output = self.answer(cell).output
        if output is None:
            return None
        public = not self.project.file.settings.private and len(output.text) <= MOST_OUTPUT_CHARS
        content = {"output": output.text} if public else {"answer": answer_hash(output.text)}
        if cell.case_hash is not None:
            content["case_hash"] = cell.case_hash
        return _make_label(
            cell,
            grading,
            grade.actor,
            **content,
            note=grade.note,
            at=grade.graded_at,
            experiment=self.run.experiment,
            run=self.run.id,
            cell=cell.id[:12],
        )


def _content(grade: ManualGrade) -> ManualGrade:
    """Return a grade without its time and cell."""
    return dataclasses.replace(grade, graded_at="", cell_id="")


def _make_label(at: Candidate, grading: HumanGrade, actor: str, /, **more: Any) -> Label:
    """Return a valid label; raises UsageError with the reason if it is invalid."""
    assert grading.scale is not None  # a flag alone is not a label
    assert grading.grade is not None
    if not fits(grading.scale, grading.grade):
        message = f"{grading.grade:g} is not on the scale {grading.scale}"
        hint = "thumbs: up or down; 1-5: whole numbers; 0-1: any number from 0 to 1"
        raise UsageError(message, hint=hint)
    try:
        return Label(
            case=at.case_id,
            by=actor,
            scale=grading.scale,
            grade=grading.grade,
            criteria=dict(grading.criteria),
            **more,
        )
    except ValidationError as error:
        problem = first_message(error)
        hint = problem.hint or "see the format of labels: edison admin schema labels"
        raise UsageError(f"invalid label: {problem.message}", hint=hint) from None


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


def read_grade(text: str, scale: ScaleName | None) -> tuple[ScaleName, float]:
    """Return a scale and a grade on it; without --scale, the form of the grade decides."""
    thumbs = {"up": 1.0, "down": 0.0}
    if text in thumbs:
        if scale not in (None, "thumbs"):
            hint = f"write a number, or leave --scale {scale} out"
            raise UsageError(f"{text!r} is a grade on the scale thumbs", hint=hint)
        return "thumbs", thumbs[text]
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
    return scale, number


def criterion_scores(experiment: Experiment, entries: tuple[str, ...]) -> dict[str, float]:
    """Return scores by criterion, each on the scale of the rubric."""
    scores: dict[str, float] = {}
    criteria = experiment.rubric.criteria if experiment.rubric is not None else ()
    for entry in entries:
        name, sign, text = entry.partition("=")
        criterion = next((c for c in criteria if name in (c.name, c.slug)), None)
        if not sign or criterion is None:
            names = [c.name for c in criteria]
            hint = did_you_mean(name, names, label="criteria") or "the experiment has no rubric"
            raise UsageError(f"{entry!r} is not CRITERION=SCORE", hint=hint)
        scores[criterion.name] = criterion_score(criterion, text)
    return scores
