"""Weaknesses of a prompt, and training cases that show them.

Only training cases are looked at, and only they can be shown to a refiner: what it has not seen
proves later whether the change helps.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_output
from edison_ci.config.cases import is_holdout
from edison_ci.config.dataset_entry import Split
from edison_ci.plan.fingerprint import plain
from edison_ci.plan.selection import Part
from edison_ci.results.weak_answers import WeakAnswers
from edison_ci.rounding import reaches, snap
from edison_ci.safety.redaction import redacted_case, redaction
from edison_ci.store.answers import answer_at

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from edison_ci.config.load import Experiment
    from edison_ci.records import Case
    from edison_ci.refine.candidate import Subject
    from edison_ci.results.weak_answers import Remark, WeakAnswer

MOST_TARGETS = 2
_FORM = "form of the answer"


@dataclass(frozen=True, slots=True)
class Target:
    """A criterion, check or grader by which the prompt does badly."""

    name: str
    kind: Literal["criterion", "check", "grader", "form"]
    score: float
    """Mean over the training cases, 0-1."""
    says: str = ""
    """What it asks for, in the words of the project."""


@dataclass(frozen=True, slots=True)
class Example:
    """A training case that went wrong, with the answer and what was said of it."""

    cell: str
    case: Case
    answer: str
    score: float | None
    remarks: tuple[Remark, ...]


@dataclass(frozen=True, slots=True)
class Weakness:
    """What a refiner is told about a prompt."""

    targets: tuple[Target, ...]
    examples: tuple[Example, ...]
    cases: int
    """Training cases that were measured."""


def split_of(experiment: Experiment) -> Split:
    """Return which cases are held out; without `split` it is the default."""
    return experiment.file.split or Split()


def part_of(experiment: Experiment, name: Literal["train", "holdout"]) -> Part:
    """Return the training cases, or those that are held out."""
    return Part(name, split_of(experiment))


def aside_in(subject: Subject) -> frozenset[str]:
    """Return the cases in quarantine, which count for nothing."""
    aside = subject.project.quarantine.cases
    return frozenset(entry.case for entry in aside if entry.experiment == subject.experiment.id)


@dataclass(frozen=True, slots=True)
class View:
    """The part of a run that is looked at."""

    prompt: str | None = None
    """What the prompt is called in the run; None where it is the only one."""
    cases: frozenset[str] | None = None
    """None for all."""


EVERYTHING = View()


def weaknesses(
    connection: sqlite3.Connection, subject: Subject, run_id: str, view: View = EVERYTHING
) -> Weakness:
    """Return what a run on the training cases says against the prompt."""
    answers = WeakAnswers(connection, run_id, aside_in(subject), view.prompt, view.cases)
    reader = _Reader(answers, subject)
    targets = reader.targets()
    examples = reader.examples(targets) if targets else ()
    return Weakness(targets, examples, answers.count())


@dataclass(frozen=True, slots=True)
class _Reader:
    answers: WeakAnswers
    subject: Subject

    def targets(self) -> tuple[Target, ...]:
        """Return the two parts of the grade that are worst, the worst first."""
        known = {(kind, name): says for kind, name, says in _said(self.subject.experiment)}
        found = [Target(n, k, snap(s), known.get((k, n), "")) for n, k, s in self.answers.means()]  # type: ignore[arg-type]  # kinds that are asked for
        found += self._form()
        weak = [target for target in found if not reaches(target.score, 1)]
        return tuple(sorted(weak, key=lambda target: (target.score, target.name))[:MOST_TARGETS])

    def _form(self) -> list[Target]:
        """Return the form of answers as a target, where some could not be read."""
        share = self.answers.malformed_share()
        if not share:
            return []
        says = f"Answers must be of this form: {self.subject.prompt.expect}"
        return [Target(_FORM, "form", 1 - share, says)]

    def examples(self, targets: Sequence[Target]) -> tuple[Example, ...]:
        """Return the training cases that failed, those that the targets dislike most first.

        Where none failed, those that the targets dislike most.
        """
        rows = self.answers.worst([(target.kind, target.name) for target in targets])
        chosen: dict[str, WeakAnswer] = {}
        for row in [row for row in rows if row.failed] or rows:
            chosen.setdefault(row.case, row)
        picked = [*chosen.values()][: self.subject.limits.examples]
        known = self._training({row.case for row in picked})
        return tuple(self._example(row, known[row.case]) for row in picked if row.case in known)

    def _training(self, wanted: set[str]) -> dict[str, Case]:
        """Return cases by id; one that is held out is never among them."""
        split = split_of(self.subject.experiment)
        feed = self.subject.project.cases(self.subject.experiment)
        return {c.id: c for c in feed if c.id in wanted and not is_holdout(c, split)}

    def _example(self, row: WeakAnswer, case: Case) -> Example:
        stored = answer_at(self.answers.connection, row.address, row.take)
        text = "" if stored is None else stored.completion.text
        output = parse_output(text, self.subject.prompt.expect)
        shown = output.raw if output.malformed else output.text
        case = redacted_case(case, redaction(self.subject.project.file.settings))
        return Example(row.cell, case, shown, row.composite, self.answers.remarks(row.cell))


def _said(experiment: Experiment) -> Iterator[tuple[str, str, str]]:
    """Yield what each part of the grade asks for: kind, name and words."""
    if experiment.rubric is not None:
        for criterion in experiment.rubric.criteria:
            yield "criterion", criterion.name, criterion.description
    for name, check in experiment.file.named_checks().items():
        told = {key: value for key, value in plain(check).items() if value is not None}
        yield "check", name, f"The check {json.dumps(told, ensure_ascii=False)}"
    for use, grader in zip(experiment.file.judges.graders, experiment.graders, strict=True):
        yield "grader", use.known_as, grader.header.description or f"The grader {grader.id}"
