"""Proof of the checks of an experiment by its own data, without a model.

What the dataset calls right must pass, and what is certainly wrong must fail: the expected output
of a case passes every check that refers to it; an empty answer, and the expected output of another
case, do not pass all checks.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.checks.evaluation import EvaluationError, ParsedAnswer
from edison_ci.checks.limits import Cost, FinishReason, Latency, Tokens
from edison_ci.checks.time_limit import run_limited
from edison_ci.config.cases import CaseFeed
from edison_ci.errors import Location, Problem, Severity
from edison_ci.numeric import counted, reaches
from edison_ci.records import Completion
from edison_ci.templating.templates import MissingValueError, RenderError, as_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.checks.options import Check
    from edison_ci.config.load import Experiment, Project
    from edison_ci.records import Case, Json

_OF_THE_CALL = (Cost, FinishReason, Latency, Tokens)
"""Checks of how an answer came, which say nothing of its text."""
_EXPECTED = "expected"
MOST_LISTED = 1_000
"""Findings of an experiment that are listed."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What the data of an experiment show of its checks."""

    experiment: str
    checks: tuple[str, ...]
    """Checks that refer to the expected output."""
    not_tried: tuple[str, ...]
    """Checks that would run code or ask a model, or could not be run."""
    cases: int
    """Cases with an expected output."""
    findings: tuple[Problem, ...]


class _Row(NamedTuple):
    """A case, and where it is."""

    case: Case
    where: Location


class _Tried(NamedTuple):
    """Whether an answer passes a check, and why."""

    passed: bool
    reason: str


def prove_checks(project: Project, experiment: Experiment) -> Proof:
    """Try the checks of an experiment on what its cases expect."""
    return _Prover(project, experiment).run()


@dataclass(slots=True)
class _Prover:
    project: Project
    experiment: Experiment
    findings: list[Problem] = field(default_factory=list)
    untried: dict[str, None] = field(default_factory=dict)
    more: int = 0

    def run(self) -> Proof:
        named = self.experiment.file.named_checks()
        for name, check in named.items():
            if check.needs_code or _asks_a_model(check):
                self.untried[name] = None
        tried = {
            name: check
            for name, check in named.items()
            if name not in self.untried and not isinstance(check, _OF_THE_CALL)
        }
        referring = {name: check for name, check in tried.items() if _refers(check)}
        rows = list(self._rows()) if referring else []
        others = _others([row.case for row in rows])
        for row, other in zip(rows, others, strict=True):
            self._own(row, referring)
            self._empty(row, tried)
            self._other(row, other, tried, referring)
        if not referring:
            self._nothing()
        if self.more:
            message = f"{counted(self.more, 'more finding')} of {self.experiment.id}"
            self.findings.append(
                Problem(Location(self.experiment.path), "proof", message, "fix the first ones")
            )
        return Proof(
            self.experiment.id,
            tuple(referring),
            tuple(self.untried),
            len(rows),
            tuple(self.findings),
        )

    def _rows(self) -> Iterator[_Row]:
        file = self.experiment.file
        for entry in file.data:
            for case in CaseFeed(self.project.tree, (entry,), self.experiment.types()):
                if case.expected is not None:
                    yield _Row(case, Location(entry.path, case.line, 1))

    def _own(self, row: _Row, referring: dict[str, Check]) -> None:
        for name, check in referring.items():
            tries = [
                self._try(name, check, row.case, answer) for answer in _answers(check, row.case)
            ]
            results = [result for result in tries if result is not None]
            if results and not any(result.passed for result in results):
                message = (
                    f"the expected output of case {row.case.id!r} fails the check {name}: "
                    f"{results[0].reason}"
                )
                self._add(row, message, "fix the expected output, or the check")

    def _empty(self, row: _Row, tried: dict[str, Check]) -> None:
        tries = [self._try(name, check, row.case, "") for name, check in tried.items()]
        results = [result for result in tries if result is not None]
        if results and all(result.passed for result in results):
            message = f"an empty answer to case {row.case.id!r} passes {_all(results)}"
            self._add(row, message, "add a check that an empty answer fails, such as chars min 1")

    def _other(
        self, row: _Row, other: Case | None, tried: dict[str, Check], referring: dict[str, Check]
    ) -> None:
        if other is None:
            return
        results = []
        for name, check in tried.items():
            answers = _answers(check, other) if name in referring else [other.expected]
            tries = [self._try(name, check, row.case, answer) for answer in answers]
            completed = [result for result in tries if result is not None]
            if completed:
                results.append(_Tried(any(result.passed for result in completed), ""))
        if results and all(result.passed for result in results):
            message = (
                f"the expected output of case {other.id!r} passes {_all(results)} of case "
                f"{row.case.id!r} too"
            )
            self._add(row, message, "make a check stricter, so that it distinguishes the two")

    def _try(self, name: str, check: Check, case: Case, answer: Json) -> _Tried | None:
        """Return the result of a check; None if the case lacks a value, or it cannot be run."""
        text = as_text(answer)
        completion = Completion(text, tool_calls=_calls(answer))
        answered = ParsedAnswer(case, text, completion, schemas=self.experiment.schemas)
        try:
            grade = run_limited("the check", lambda: check.evaluate(answered))
        except (MissingValueError, RenderError):
            return None
        except EvaluationError:
            self.untried[name] = None
            return None
        good = reaches(grade.score, check.passes_at) if grade.passed is None else grade.passed
        return _Tried(good, grade.reason)

    def _add(self, row: _Row, message: str, hint: str) -> None:
        if len(self.findings) < MOST_LISTED:
            self.findings.append(Problem(row.where, "proof", message, hint))
        else:
            self.more += 1

    def _nothing(self) -> None:
        message = "no check refers to the expected output, so there is nothing to prove"
        hint = 'add one, such as contains: "{{ expected }}"'
        where = Location(self.experiment.path)
        self.findings.append(Problem(where, "proof", message, hint, Severity.WARNING))


def _refers(check: Check) -> bool:
    """Whether a check, or one inside it, uses the expected output of the case."""
    if any(_EXPECTED in template.uses for _, template in check.templates()):
        return True
    return any(map(_refers, check.inner_checks()))


def _asks_a_model(check: Check) -> bool:
    by = getattr(check, "by", None)
    return by is not None or any(map(_asks_a_model, check.inner_checks()))


def _answers(check: Check, case: Case) -> list[Json]:
    """Return what a case expects: all of it, or the part of it that a check names."""
    answers: list[Json] = [case.expected]
    answers += _parts(check, case)
    return answers


def _parts(check: Check, case: Case) -> Iterator[Json]:
    for _, template in check.templates():
        if _EXPECTED in template.uses and template.single != _EXPECTED:
            try:
                yield template.render(case.variables)
            except (MissingValueError, RenderError):
                continue
    for part in check.inner_checks():
        yield from _parts(part, case)


def _calls(answer: Json) -> Json:
    """Return an expected output that lists tool calls as calls that were made."""
    if not isinstance(answer, list):
        return None
    calls: list[Json] = [
        {"name": call, "arguments": {}} if isinstance(call, str) else call for call in answer
    ]
    return calls


def _others(cases: list[Case]) -> list[Case | None]:
    """Return for each case the next one that expects something else, from the start at the end."""
    keys = [" ".join(as_text(case.expected).casefold().split()) for case in cases]
    others: list[Case | None] = [None] * len(cases)
    following: dict[int, int] = {}
    # Twice around from the end: what follows the next case follows this one, if both are alike.
    for index in [*range(len(cases) - 1, -1, -1)] * 2:
        after = (index + 1) % len(cases)
        if keys[after] != keys[index]:
            following[index] = after
        elif after in following:
            following[index] = following[after]
        if index in following:
            others[index] = cases[following[index]]
    return others


def _all(results: list[Any]) -> str:
    return "every check" if len(results) > 1 else "the only check"
