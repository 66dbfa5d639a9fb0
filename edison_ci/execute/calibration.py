"""Agreement of the judges of an experiment with people.

Every labelled answer is put before the judges of today, exactly as a run would do it. What they
said of it before is found by the address of the call; only what they were never asked has to be
bought, and only if somebody allows it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_output
from edison_ci.config.cases import STATIC
from edison_ci.config.facets import content_hash
from edison_ci.config.labels import answer_hash, criterion_shares
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.execute.standalone import NotAnswered, desk
from edison_ci.judges.asking import side_by_side
from edison_ci.judges.ensemble import grade
from edison_ci.providers.budgeting import BudgetExhausted
from edison_ci.providers.resilience import LaneClosed
from edison_ci.results.explanation import expected_form
from edison_ci.rounding import mean, reaches
from edison_ci.store.answers import answer_at, answers_to_case, newest_answer
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

    from edison_ci.config.labels import Label, Labels
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.rubric import RubricFile
    from edison_ci.execute.run_options import Tools
    from edison_ci.judges.judging import Ask, Panel
    from edison_ci.judges.pointwise import Opinion
    from edison_ci.records import Case, Completion, Request


class NotAsked(Exception):
    """A judge was never asked about this answer."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a judge, or all of them together, said of an answer."""

    score: float
    passed: bool
    criteria: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Judged:
    """An answer that people and judges have graded."""

    case_id: str
    answer: str
    human: float
    """Mean over people, 0-1."""
    human_pass: float
    """Share of people who would let it pass."""
    thumbs: bool
    """Whether all said no more than up or down."""
    human_criteria: Mapping[str, float]
    panel: Said
    judges: Mapping[str, Said]
    """What each judge said, of those that answered."""


@dataclass(slots=True)
class Left:
    """Labelled answers that cannot be used, by why."""

    changed: int = 0
    """The case changed since, or is no longer there."""
    gone: int = 0
    """The answer's text is neither in the labels nor in the results."""
    not_asked: int = 0
    """A judge has not seen it."""
    failed: int = 0
    """A judge could not grade it."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.changed + self.gone + self.not_asked + self.failed


@dataclass(frozen=True, slots=True)
class Checked:
    """Labelled answers with what the judges said of them."""

    answers: tuple[Judged, ...]
    left: Left
    people: int
    labels: int
    """Labels that count, each person's last of an answer."""


class _Entry(NamedTuple):
    case: Case
    output: str
    labels: Sequence[Label]


_AT_ONCE = 16


def asked_now(calibrating: Calibrating, tools: Tools) -> Checked:
    """Put every labelled answer before the judges, asking for what they never said.

    Raises NotAnswered when a budget has no room for it.
    """

    async def check() -> Checked:
        project, experiment = calibrating.project, calibrating.experiment
        opened = desk(project, experiment, tools, purpose="calibrate", newer_than="")
        async with opened as lanes:

            async def ask(name: str, request: Request) -> Completion:
                try:
                    paid = await lanes.of(project.models[name], "judge").answer(request)
                except LaneClosed as closed:
                    reason = closed.reason
                    raise CallError(ErrorKind.PROVIDER_ERROR, reason, charged=False) from None
                except BudgetExhausted as error:
                    raise NotAnswered(f"{error.refused.cap.name} has no room for it") from None
                return paid.completion

            return await calibrating.check(ask, at_once=_AT_ONCE)

    return asyncio.run(check())


def stored_only(reader: sqlite3.Connection) -> Ask:
    """Return how judges are asked without asking them: by what they said before."""

    async def ask(_: str, request: Request) -> Completion:
        found = newest_answer(reader, request.address)
        if found is None:
            raise NotAsked
        return found.completion

    return ask


@dataclass(frozen=True, slots=True)
class Calibrating:
    """Puts labelled answers before the judges of an experiment."""

    reader: sqlite3.Connection
    project: Project
    experiment: Experiment
    panel: Panel
    labels: Labels

    def run(self, ask: Ask) -> Checked:
        """Return the labelled answers with what judges say; raises what `ask` raises of its own."""
        return asyncio.run(self.check(ask))

    async def check(self, ask: Ask, *, at_once: int = 1) -> Checked:
        """Return the labelled answers with what judges say of them."""
        left, found = Left(), list[Judged]()
        for some in _batches(list(self._entries(left)), at_once):
            said = await side_by_side([self._judged(entry, ask, left) for entry in some])
            found += [judged for judged in said if judged is not None]
        counting = self.labels.counting
        return Checked(tuple(found), left, len({label.by for label in counting}), len(counting))

    def _entries(self, left: Left) -> Iterator[_Entry]:
        by_answer: dict[tuple[str, str, str], list[Label]] = defaultdict(list)
        for label in self.labels.counting:
            by_answer[label.experiment or self.experiment.id, *label.key].append(label)
        cases = {
            name: self._cases(name, {case for home, case, _ in by_answer if home == name})
            for name in {home for home, _, _ in by_answer}
        }
        for (home, case_id, answer), labels in sorted(by_answer.items()):
            case = cases[home].get(case_id)
            hashes = {label.case_hash for label in labels if label.case_hash is not None}
            if case is None or (hashes and content_hash(case) not in hashes):
                left.changed += 1
                continue
            output = next((label.output for label in labels if label.output is not None), None)
            if output is None:
                output = self._stored(home, case_id, answer)
            if output is None:
                left.gone += 1
                continue
            yield _Entry(case, output, labels)

    def _cases(self, home: str, wanted: set[str]) -> dict[str, Case]:
        experiment = self.project.experiments.get(home)
        if experiment is None:
            return {}
        source = self.project.cases(experiment) if experiment.file.data else [STATIC]
        return {case.id: case for case in source if case.id in wanted}

    def _stored(self, home: str, case_id: str, answer: str) -> str | None:
        """Return the text of an answer that only its hash is known of."""
        for run_id, side, version, address, take in answers_to_case(self.reader, home, case_id):
            stored = answer_at(self.reader, address, take)
            if stored is None:
                continue
            run = find_run(self.reader, run_id)
            form = expected_form(run, self.project.experiments.get(home), side, version)
            text = parse_output(stored.completion.text, form).text
            if answer_hash(text) == answer:
                return text
        return None

    async def _judged(self, entry: _Entry, ask: Ask, left: Left) -> Judged | None:
        rubric = self.panel.rubric
        try:
            opinions = [
                await judge.judge_output(entry.case, entry.output, ask)
                for judge in self.panel.judges
            ]
        except NotAsked:
            left.not_asked += 1
            return None
        panel = _said(rubric, opinions, self.panel.combine)
        if panel is None:
            left.failed += 1
            return None
        alone = {o.judge: _said(rubric, [o], "mean") for o in opinions}
        return Judged(
            case_id=entry.case.id,
            answer=answer_hash(entry.output),
            human=mean([label.score for label in entry.labels]),
            human_pass=mean([float(label.passed(rubric.pass_at)) for label in entry.labels]),
            thumbs=all(label.scale == "thumbs" for label in entry.labels),
            human_criteria=_by_criterion(entry.labels, rubric),
            panel=panel,
            judges={name: said for name, said in alone.items() if said is not None},
        )


def _said(rubric: RubricFile, opinions: Sequence[Opinion], combine: str) -> Said | None:
    """Return what opinions come to; None if there is no score."""
    result = grade(rubric, opinions, combine)  # type: ignore[arg-type]  # one of three words
    if result.composite is None:
        return None
    passed = result.passed
    if rubric.pass_at is None and all(c.min is None for c in rubric.criteria):
        passed = reaches(result.composite, 0.5)  # the rubric lets everything pass
    if passed is None:
        return None
    scores = {c.name: c.score for c in result.criteria if c.score is not None}
    return Said(result.composite, passed, scores)


def _by_criterion(labels: Sequence[Label], rubric: RubricFile) -> dict[str, float]:
    shares: dict[str, list[float]] = defaultdict(list)
    for label in labels:
        for name, share in criterion_shares(label, rubric).items():
            shares[name].append(share)
    return {name: mean(values) for name, values in shares.items()}


def _batches(entries: Sequence[_Entry], size: int) -> Iterator[Sequence[_Entry]]:
    for start in range(0, len(entries), size):
        yield entries[start : start + size]
