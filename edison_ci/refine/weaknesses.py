"""In what is a prompt weak, and which training cases show it?

Only training cases are looked at, and only they can be shown to a refiner: what it has not seen
proves later whether the change helps.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Literal, NamedTuple

from edison_ci.checks.output import parse_output
from edison_ci.config.cases import is_holdout
from edison_ci.config.dataset_entry import Split
from edison_ci.frozen import dataclass
from edison_ci.plan.fingerprint import plain
from edison_ci.plan.selection import Part
from edison_ci.rounding import reaches, snap
from edison_ci.safety.redaction import redacted_case, redaction
from edison_ci.store.answers import answer_at

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from edison_ci.config.load import Experiment
    from edison_ci.records import Case
    from edison_ci.refine.candidate import Subject

MOST_TARGETS = 2
_FORM = "form of the answer"
_PARTS = "('criterion', 'check', 'grader')"
_CELLS = (
    "c.run_id = :run and c.side = 'head' and c.status in ('ok', 'malformed') "
    "and c.case_id not in (select value from json_each(:aside)) "
    "and (:prompt is null or c.prompt = :prompt) "
    "and (:only is null or c.case_id in (select value from json_each(:only)))"
)
_LOOKED_AT = 1_000
"""Cells that are looked through for examples, the worst first."""


@dataclass(frozen=True, slots=True)
class Target:
    """A criterion, check or grader by which the prompt does badly."""

    name: str
    kind: Literal["criterion", "check", "grader", "form"]
    score: float
    """Mean over the training cases, 0-1."""
    says: str = ""
    """What it asks for, in the words of the project."""


class Remark(NamedTuple):
    """What one part of the grade says of an answer."""

    name: str
    score: float | None
    reason: str


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
    reader = _Reader(connection, subject, run_id, view)
    targets = reader.targets()
    examples = reader.examples(targets) if targets else ()
    return Weakness(targets, examples, reader.cases())


class _Row(NamedTuple):
    """A cell that may serve as an example."""

    cell: str
    case: str
    address: str
    take: int
    composite: float | None
    failed: int
    aimed: float | None
    """Mean of the targets."""


@dataclass(frozen=True, slots=True)
class _Reader:
    connection: sqlite3.Connection
    subject: Subject
    run_id: str
    view: View

    @property
    def _values(self) -> dict[str, str | None]:
        cases = self.view.cases
        return {
            "run": self.run_id,
            "aside": json.dumps(sorted(aside_in(self.subject))),
            "prompt": self.view.prompt,
            "only": None if cases is None else json.dumps(sorted(cases)),
        }

    def cases(self) -> int:
        """Return how many cases have an answer that was graded."""
        query = f"select count(distinct c.case_id) from cell c where {_CELLS}"
        return int(self.connection.execute(query, self._values).fetchone()[0])

    def targets(self) -> tuple[Target, ...]:
        """Return the two parts of the grade that are worst, the worst first."""
        rows = self.connection.execute(
            "select p.name, p.kind, avg(p.score) from cell c join part p on p.cell_id = c.id "
            f"where {_CELLS} and p.kind in {_PARTS} and p.status = 'ok' "
            "group by 1, 2",
            self._values,
        ).fetchall()
        known = {(kind, name): says for kind, name, says in _said(self.subject.experiment)}
        found = [Target(n, k, snap(s), known.get((k, n), "")) for n, k, s in rows if s is not None]
        found += self._form()
        weak = [target for target in found if not reaches(target.score, 1)]
        return tuple(sorted(weak, key=lambda target: (target.score, target.name))[:MOST_TARGETS])

    def _form(self) -> list[Target]:
        """Return the form of answers as a target, where some could not be read."""
        share = self.connection.execute(
            f"select avg(c.status = 'malformed') from cell c where {_CELLS}", self._values
        ).fetchone()[0]
        if not share:
            return []
        says = f"Answers must be of this form: {self.subject.prompt.expect}"
        return [Target(_FORM, "form", 1 - share, says)]

    def examples(self, targets: Sequence[Target]) -> tuple[Example, ...]:
        """Return the training cases that failed, those that the targets dislike most first.

        Where none failed, those that the targets dislike most.
        """
        rows = self._worst(targets)
        chosen: dict[str, _Row] = {}
        for row in [row for row in rows if row.failed] or rows:
            chosen.setdefault(row.case, row)
        picked = [*chosen.values()][: self.subject.limits.examples]
        known = self._training({row.case for row in picked})
        return tuple(self._example(row, known[row.case]) for row in picked if row.case in known)

    def _worst(self, targets: Sequence[Target]) -> list[_Row]:
        pairs = ", ".join(f"(:kind{n}, :name{n})" for n in range(len(targets)))
        named = {f"name{n}": target.name for n, target in enumerate(targets)}
        named |= {f"kind{n}": str(target.kind) for n, target in enumerate(targets)}
        rows = self.connection.execute(
            "select c.id, c.case_id, c.address, c.take, c.composite, "
            "c.status = 'malformed' or c.passed is 0 as failed, (select round(avg(p.score), 9) "
            f"from part p where p.cell_id = c.id and (p.kind, p.name) in (values {pairs})) "
            f"as aimed from cell c where {_CELLS} order by failed desc, aimed, c.composite, "
            f"c.case_id, c.model, c.draw limit {_LOOKED_AT}",
            {**self._values, **named},
        )
        return [_Row(*row) for row in rows]

    def _training(self, wanted: set[str]) -> dict[str, Case]:
        """Return cases by id; one that is held out is never among them."""
        split = split_of(self.subject.experiment)
        feed = self.subject.project.cases(self.subject.experiment)
        return {c.id: c for c in feed if c.id in wanted and not is_holdout(c, split)}

    def _example(self, row: _Row, case: Case) -> Example:
        stored = answer_at(self.connection, row.address, row.take)
        text = "" if stored is None else stored.completion.text
        output = parse_output(text, self.subject.prompt.expect)
        shown = output.raw if output.malformed else output.text
        case = redacted_case(case, redaction(self.subject.project.file.settings))
        return Example(row.cell, case, shown, row.composite, tuple(self._remarks(row.cell)))

    def _remarks(self, cell: str) -> Iterator[Remark]:
        rows = self.connection.execute(
            f"select name, score, reason from part where cell_id = ? and kind in {_PARTS} "
            "and (passed is 0 or score < 1) order by score, name",
            (cell,),
        )
        for row in rows:
            yield Remark(*row)


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
