"""Weaknesses of a prompt, and training cases that show them.

Only training cases are used, and only they can be shown to a refiner: the held-out cases later show
whether the change helps.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_output
from edison_ci.config.holdout import holdout_of
from edison_ci.numeric import reaches, snap
from edison_ci.plan.fingerprint import plain
from edison_ci.plan.selection import SplitPart
from edison_ci.results.weaknesses import WeakAnswers, refined_cases
from edison_ci.safety.redaction import redact_case, redactor
from edison_ci.store.answers import answer_at
from edison_ci.store.database import open_reader

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from edison_ci.config.holdout import Holdout
    from edison_ci.config.load import Experiment
    from edison_ci.proposals.candidate import RefineTarget
    from edison_ci.records import Case
    from edison_ci.results.weaknesses import ComponentRemark, WeakAnswer

MOST_TARGETS = 2
_FORM = "form of the answer"


@dataclass(frozen=True, slots=True)
class WeakComponent:
    """A criterion, check or grader with a low score."""

    name: str
    kind: Literal["criterion", "check", "grader", "form"]
    score: float
    """Mean over the training cases, 0-1."""
    description: str = ""
    """What it requires, as the project describes it."""


@dataclass(frozen=True, slots=True)
class Example:
    """A failed training case, with its answer and the remarks of graders."""

    cell: str
    case: Case
    answer: str
    score: float | None
    remarks: tuple[ComponentRemark, ...]


@dataclass(frozen=True, slots=True)
class Weakness:
    """What a prompt is weak in, and examples that show it."""

    targets: tuple[WeakComponent, ...]
    examples: tuple[Example, ...]
    cases: int
    """Training cases that were measured."""


def with_holdout(target: RefineTarget) -> RefineTarget:
    """Return a target with its holdout, which is the same in all steps of a command."""
    return replace(target, holdout=holdout_for(target))


def holdout_for(target: RefineTarget) -> Holdout:
    """Return the cases that the refiner of a prompt never sees.

    A case that an earlier refinement of the experiment showed to a refiner stays a training case,
    and one that it held out stays held out, whatever the dataset and its split have become.
    """
    if target.holdout is not None:
        return target.holdout
    project, known = target.project, dict[str, bool]()
    results = project.root / project.file.results
    if results.exists():
        with closing(open_reader(results)) as reader:
            known = refined_cases(reader, target.experiment.id)
    return holdout_of(project, target.experiment, known=known)


def split_part(target: RefineTarget, name: Literal["train", "holdout", "all"]) -> SplitPart:
    """Return the training or the held-out part of the cases, or all of them."""
    return SplitPart(name, holdout_for(target))


def quarantined_cases(target: RefineTarget) -> frozenset[str]:
    """Return the ids of the cases in quarantine, which are not counted."""
    entries = target.project.quarantine
    return frozenset(entry.case for entry in entries if entry.experiment == target.experiment.id)


@dataclass(frozen=True, slots=True)
class WeaknessScope:
    """The part of a run in which weaknesses are searched."""

    prompt: str | None = None
    """Name of the prompt in the run; None where it is the only one."""
    cases: frozenset[str] | None = None
    """None for all."""


EVERYTHING = WeaknessScope()


def weaknesses(
    connection: sqlite3.Connection,
    target: RefineTarget,
    run_id: str,
    scope: WeaknessScope = EVERYTHING,
) -> Weakness:
    """Return the weaknesses that a run on the training cases shows."""
    answers = WeakAnswers(connection, run_id, quarantined_cases(target), scope.prompt, scope.cases)
    reader = _Reader(answers, target)
    targets = reader.targets()
    examples = reader.examples(targets) if targets else ()
    return Weakness(targets, examples, answers.count())


@dataclass(frozen=True, slots=True)
class _Reader:
    answers: WeakAnswers
    target: RefineTarget

    def targets(self) -> tuple[WeakComponent, ...]:
        """Return the components of the grade with the lowest means, the lowest first."""
        descriptions = {
            (kind, name): text for kind, name, text in _descriptions(self.target.experiment)
        }
        components = [
            # The query selects these kinds only.
            WeakComponent(name, kind, snap(mean), descriptions.get((kind, name), ""))  # type: ignore[arg-type]
            for name, kind, mean in self.answers.means()
        ]
        components += self._form()
        weak = [component for component in components if not reaches(component.score, 1)]
        return tuple(
            sorted(weak, key=lambda component: (component.score, component.name))[:MOST_TARGETS]
        )

    def _form(self) -> list[WeakComponent]:
        """Return the form of answers as a target, where some answers are malformed."""
        share = self.answers.malformed_share()
        if not share:
            return []
        text = f"Answers must be of this form: {self.target.prompt.expect}"
        return [WeakComponent(_FORM, "form", 1 - share, text)]

    def examples(self, targets: Sequence[WeakComponent]) -> tuple[Example, ...]:
        """Return failed training cases, lowest scores on the targets first.

        Where none failed, the cases with the lowest scores on the targets.
        """
        rows = self.answers.worst([(target.kind, target.name) for target in targets])
        chosen: dict[str, WeakAnswer] = {}
        for row in [row for row in rows if row.failed] or rows:
            chosen.setdefault(row.case, row)
        picked = [*chosen.values()][: self.target.limits.examples]
        cases = self._training({row.case for row in picked})
        return tuple(self._example(row, cases[row.case]) for row in picked if row.case in cases)

    def _training(self, ids: set[str]) -> dict[str, Case]:
        """Return the wanted cases by id, except held-out ones."""
        holdout = holdout_for(self.target)
        feed = self.target.project.cases(self.target.experiment)
        return {c.id: c for c in feed if c.id in ids and not holdout.has(c)}

    def _example(self, row: WeakAnswer, case: Case) -> Example:
        stored = answer_at(self.answers.connection, row.request_hash, row.answer_no)
        text = "" if stored is None else stored.completion.text
        output = parse_output(text, self.target.prompt.expect)
        answer = output.raw if output.malformed else output.text
        case = redact_case(case, redactor(self.target.project.file.settings))
        return Example(row.cell, case, answer, row.composite, self.answers.remarks(row.cell))


def _descriptions(experiment: Experiment) -> Iterator[tuple[str, str, str]]:
    """Yield kind, name and description of each component of the grade."""
    if experiment.rubric is not None:
        for criterion in experiment.rubric.criteria:
            yield "criterion", criterion.name, criterion.description
    for name, check in experiment.file.named_checks().items():
        options = {key: value for key, value in plain(check).items() if value is not None}
        yield "check", name, f"The check {json.dumps(options, ensure_ascii=False)}"
    for use, grader in zip(experiment.file.judges.graders, experiment.graders, strict=True):
        yield "grader", use.report_name, grader.header.description or f"The grader {grader.id}"
