"""Checks by a function or program of the repository."""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import AfterValidator, Field

from edison_ci.checks.child import run_function, run_program
from edison_ci.checks.evaluation import CodeAtWorker, EvaluationError, Grade, quote, shorten
from edison_ci.checks.options import Check
from edison_ci.documents.files import inside
from edison_ci.documents.marks import Fault
from edison_ci.shape import items, short, wrong

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.checks.evaluation import ParsedAnswer
    from edison_ci.records import Json

_TARGET = re.compile(r"(?P<file>[^:]+\.py):(?P<function>[A-Za-z_][A-Za-z0-9_]*)")


def _target(value: str) -> str:
    match = _TARGET.fullmatch(value)
    if not match:
        raise wrong("python", f"{short(value)} is not a function", "write checks/tone.py:check")
    try:
        return f"{inside(match['file'])}:{match['function']}"
    except Fault as fault:
        raise wrong(fault.code, fault.message, fault.hint) from None


class CodeCheck(Check):
    """A check that runs code of the repository in a separate process."""

    graded: ClassVar[bool] = True

    @property
    def program(self) -> str:
        """The check and what it runs."""
        return f"{self.check} {self._command}"

    @property
    def needs_code(self) -> bool:
        """Always true: it runs code of the repository."""
        return True

    @property
    def blocking(self) -> bool:
        """Always true: the code runs in a separate process."""
        return True

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return the grade by the code; raises EvaluationError if code is not allowed.

        Raises CodeAtWorker if a worker is to be asked first.
        """
        if answered.root is None:
            raise EvaluationError("code of the repository is not allowed; add --allow-code")
        outcomes, request = answered.outcomes, _request(answered)
        if outcomes is not None and self.program not in outcomes:
            raise CodeAtWorker(self.program, request)
        outcome = None if outcomes is None else outcomes[self.program]
        if outcome is None:
            return self.run(answered.root, request)
        if outcome.score is None:
            raise EvaluationError(outcome.reason)
        return Grade(outcome.score, outcome.reason, outcome.passed)

    def run(self, root: Path, request: str) -> Grade:
        """Return the grade by the code in a folder; raises EvaluationError."""
        return _grade(self._run(root, request))

    @property
    def executable(self) -> str:
        """The program that is started: of the project with a slash, else of the search path."""
        return sys.executable

    @property
    def _command(self) -> str:
        raise NotImplementedError

    def _run(self, root: Path, request: str) -> Json:
        raise NotImplementedError


def _request(answered: ParsedAnswer) -> str:
    """Return what the code reads; the order of keys is that of the case."""
    case = answered.case
    request = {
        "output": answered.text,
        "expected": case.expected,
        "case": {
            "id": case.id,
            "inputs": dict(case.inputs),
            "expected": case.expected,
            "tags": list(case.tags),
            "difficulty": case.difficulty,
            "cluster": case.cluster,
            "metadata": dict(case.metadata),
            "kind": case.kind,
        },
    }
    return json.dumps(request)


def _grade(result: Json) -> Grade:
    """Return the grade of a result: a number, a boolean, or a map."""
    if not isinstance(result, dict):
        return Grade(_score(result))
    reason, passed = result.get("reason", ""), result.get("pass")
    if not (isinstance(reason, str) and isinstance(passed, bool | None)):
        raise EvaluationError("in the result, reason is not a string or pass is not a boolean")
    if "score" not in result and passed is None:
        raise EvaluationError(f"the result has neither score nor pass: {quote(str(result))}")
    score = _score(result["score"]) if "score" in result else float(bool(passed))
    return Grade(score, shorten(reason), passed)


def _score(result: Json) -> float:
    if not isinstance(result, int | float) or not math.isfinite(result) or not 0 <= result <= 1:
        raise EvaluationError(f"the result is {quote(str(result))}, not a score from 0 to 1")
    return float(result)


class Python(CodeCheck):
    """A Python function of the repository grades the answer (needs --allow-code)."""

    check: ClassVar[str] = "python"
    example: ClassVar[str] = "python: checks/tone.py:check"
    value: Annotated[str, Field(max_length=500), AfterValidator(_target)] = Field(
        description="file.py:function",
        json_schema_extra={"pattern": r"^(?![/~])[^:\\]+\.py:[A-Za-z_][A-Za-z0-9_]*$"},
    )

    @property
    def path(self) -> str:
        """The file with the function."""
        return self.value.rpartition(":")[0]

    @property
    def function(self) -> str:
        """The name of the function."""
        return self.value.rpartition(":")[2]

    @property
    def _command(self) -> str:
        return self.value

    def _run(self, root: Path, request: str) -> Json:
        return run_function(root, self.path, self.function, request)


class Command(CodeCheck):
    """A program grades the answer, JSON in and out (needs --allow-code)."""

    check: ClassVar[str] = "command"
    example: ClassVar[str] = "command: [python3, checks/grade.py]"
    value: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], items(1, 50)] = Field(
        description="The program and its arguments; no shell."
    )

    @property
    def executable(self) -> str:
        """The first word."""
        return self.value[0]

    @property
    def _command(self) -> str:
        return shlex.join(self.value)

    def _run(self, root: Path, request: str) -> Json:
        return run_program(root, self.value, request)
