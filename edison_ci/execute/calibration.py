"""Calibration: agreement of the judges of an experiment with people.

Every labelled answer is judged by the judges of today, exactly as in a run. Earlier replies are
found by the request hash of the call; only missing ones are bought, and only if calls are allowed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_output
from edison_ci.config.calibration import answer_hash, criterion_shares
from edison_ci.config.case_facts import content_hash
from edison_ci.config.cases import STATIC
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.execute.standalone import NotAnswered, standalone_client
from edison_ci.judges.judge import run_concurrently
from edison_ci.judges.panel import grade_rubric
from edison_ci.numeric import mean, reaches
from edison_ci.providers.budget import BudgetExhausted
from edison_ci.providers.resilience import ClientClosed
from edison_ci.results.explanation import expected_form
from edison_ci.store.answers import answer_at, answers_to_case, newest_answer
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

    from edison_ci.config.calibration import Label, Labels
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.rubric import RubricFile
    from edison_ci.execute.run_options import RunContext
    from edison_ci.judges.judge import Ask
    from edison_ci.judges.panel import Panel
    from edison_ci.judges.pointwise import JudgeScores
    from edison_ci.records import Case, Completion, Request


class NotAsked(Exception):
    """There is no stored reply of a judge on this answer."""


@dataclass(frozen=True, slots=True)
class JudgeGrade:
    """Grade of an answer by one judge, or by all of them together."""

    score: float
    passed: bool
    criteria: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class GradedAnswer:
    """An answer that people and judges have graded."""

    case_id: str
    cluster: str | None
    answer: str
    human: float
    """Mean over people, 0-1."""
    human_pass: float
    """Share of people who would let it pass."""
    thumbs: bool
    """Whether all of them graded with thumbs only."""
    human_criteria: Mapping[str, float]
    panel: JudgeGrade
    judges: Mapping[str, JudgeGrade]
    """Grades by judge, of those that answered."""


@dataclass(slots=True)
class UnusedLabels:
    """Counts of labelled answers that cannot be used, by reason."""

    changed: int = 0
    """The case has changed, or is no longer there."""
    gone: int = 0
    """The answer's text is neither in the labels nor in the results."""
    not_asked: int = 0
    """There is no stored reply of a judge."""
    failed: int = 0
    """A judge could not grade it."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.changed + self.gone + self.not_asked + self.failed


@dataclass(frozen=True, slots=True)
class LabelCheck:
    """Labelled answers with the grades of the judges."""

    answers: tuple[GradedAnswer, ...]
    unused: UnusedLabels
    people: int
    labels: int
    """Labels that count, each person's last of an answer."""


class _Entry(NamedTuple):
    case: Case
    output: str
    labels: Sequence[Label]


_AT_ONCE = 16


def check_with_calls(calibration: Calibration, context: RunContext) -> LabelCheck:
    """Judge every labelled answer, calling judges where no reply is stored.

    Raises NotAnswered when a budget is used up.
    """

    async def check() -> LabelCheck:
        project, experiment = calibration.project, calibration.experiment
        opened = standalone_client(project, experiment, context, purpose="calibrate", newer_than="")
        async with opened as clients:

            async def ask(name: str, request: Request) -> Completion:
                try:
                    answer = await clients.of(project.models[name], "judge").answer(request)
                except ClientClosed as closed:
                    reason = closed.reason
                    raise CallError(ErrorKind.PROVIDER_ERROR, reason, charged=False) from None
                except BudgetExhausted as error:
                    message = f"{error.refused.cap.name} has no room for it"
                    raise NotAnswered(message, error.refused) from None
                return answer.completion

            return await calibration.check(ask, at_once=_AT_ONCE)

    return asyncio.run(check())


def ask_stored(reader: sqlite3.Connection) -> Ask:
    """Return a function that answers for the judges from stored replies; it raises NotAsked."""

    async def ask(_: str, request: Request) -> Completion:
        stored = newest_answer(reader, request.request_hash)
        if stored is None:
            raise NotAsked
        return stored.completion

    return ask


@dataclass(frozen=True, slots=True)
class Calibration:
    """Compares the judges of an experiment with its labels."""

    reader: sqlite3.Connection
    project: Project
    experiment: Experiment
    panel: Panel
    labels: Labels

    def run(self, ask: Ask) -> LabelCheck:
        """Return the labelled answers with the grades of the judges; passes on errors of `ask`."""
        return asyncio.run(self.check(ask))

    async def check(self, ask: Ask, *, at_once: int = 1) -> LabelCheck:
        """Return the labelled answers with the grades of the judges."""
        unused, answers = UnusedLabels(), list[GradedAnswer]()
        for batch in _batches(list(self._entries(unused)), at_once):
            judged = await run_concurrently([self._judge(entry, ask, unused) for entry in batch])
            answers += [answer for answer in judged if answer is not None]
        current = self.labels.current
        return LabelCheck(
            tuple(answers), unused, len({label.by for label in current}), len(current)
        )

    def _entries(self, unused: UnusedLabels) -> Iterator[_Entry]:
        by_answer: dict[tuple[str, str, str], list[Label]] = defaultdict(list)
        for label in self.labels.current:
            by_answer[label.experiment or self.experiment.id, *label.key].append(label)
        cases = {
            name: self._cases(name, {case for home, case, _ in by_answer if home == name})
            for name in {home for home, _, _ in by_answer}
        }
        for (home, case_id, answer), labels in sorted(by_answer.items()):
            case = cases[home].get(case_id)
            hashes = {label.case_hash for label in labels if label.case_hash is not None}
            if case is None or (hashes and content_hash(case) not in hashes):
                unused.changed += 1
                continue
            output = next((label.output for label in labels if label.output is not None), None)
            if output is None:
                output = self._stored(home, case_id, answer)
            if output is None:
                unused.gone += 1
                continue
            yield _Entry(case, output, labels)

    def _cases(self, home: str, case_ids: set[str]) -> dict[str, Case]:
        experiment = self.project.experiments.get(home)
        if experiment is None:
            return {}
        source = self.project.cases(experiment) if experiment.file.data else [STATIC]
        return {case.id: case for case in source if case.id in case_ids}

    def _stored(self, home: str, case_id: str, answer: str) -> str | None:
        """Return the stored text of an answer of which only the hash is known."""
        for run_id, side, version, request_hash, answer_no in answers_to_case(
            self.reader, home, case_id
        ):
            stored = answer_at(self.reader, request_hash, answer_no)
            if stored is None:
                continue
            run = find_run(self.reader, run_id)
            form = expected_form(run, self.project.experiments.get(home), side, version)
            text = parse_output(stored.completion.text, form).text
            if answer_hash(text) == answer:
                return text
        return None

    async def _judge(self, entry: _Entry, ask: Ask, unused: UnusedLabels) -> GradedAnswer | None:
        rubric = self.panel.rubric
        try:
            judge_scores = [
                await judge.judge_output(entry.case, entry.output, ask)
                for judge in self.panel.judges
            ]
        except NotAsked:
            unused.not_asked += 1
            return None
        panel = _combine(rubric, judge_scores, self.panel.combine)
        if panel is None:
            unused.failed += 1
            return None
        alone = {o.judge: _combine(rubric, [o], "mean") for o in judge_scores}
        return GradedAnswer(
            case_id=entry.case.id,
            cluster=entry.case.cluster,
            answer=answer_hash(entry.output),
            human=mean([label.score for label in entry.labels]),
            human_pass=mean([float(label.passed(rubric.pass_at)) for label in entry.labels]),
            thumbs=all(label.scale == "thumbs" for label in entry.labels),
            human_criteria=_by_criterion(entry.labels, rubric),
            panel=panel,
            judges={name: grade for name, grade in alone.items() if grade is not None},
        )


def _combine(
    rubric: RubricFile, judge_scores: Sequence[JudgeScores], combine: str
) -> JudgeGrade | None:
    """Return the grade that scores of judges make; None if there is no score."""
    result = grade_rubric(rubric, judge_scores, combine)  # type: ignore[arg-type]  # one of three words
    if result.composite is None:
        return None
    passed = result.passed
    if rubric.pass_at is None and all(c.min is None for c in rubric.criteria):
        passed = reaches(result.composite, 0.5)  # the rubric lets everything pass
    if passed is None:
        return None
    scores = {c.name: c.score for c in result.criteria if c.score is not None}
    return JudgeGrade(result.composite, passed, scores)


def _by_criterion(labels: Sequence[Label], rubric: RubricFile) -> dict[str, float]:
    shares: dict[str, list[float]] = defaultdict(list)
    for label in labels:
        for name, share in criterion_shares(label, rubric).items():
            shares[name].append(share)
    return {name: mean(values) for name, values in shares.items()}


def _batches(entries: Sequence[_Entry], size: int) -> Iterator[Sequence[_Entry]]:
    for start in range(0, len(entries), size):
        yield entries[start : start + size]
