"""Checks made of checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from edison_ci.checks.evaluation import Grade, brief
from edison_ci.checks.options import Check, CheckEntry
from edison_ci.shape import items
from edison_ci.templating.templates import MissingValueError

if TYPE_CHECKING:
    from edison_ci.checks.evaluation import Answered


class _Combined(Check):
    @property
    def passes_at(self) -> float:
        """The lowest passing score; a half if a part has scores between 0 and 1."""
        if self.threshold is not None:
            return self.threshold
        return 0.5 if any(part.passes_at < 1 for part in self.parts()) else 1.0


class _Group(_Combined):
    value: Annotated[tuple[CheckEntry, ...], items(1, 50)] = Field(description="The checks.")

    def parts(self) -> tuple[Check, ...]:
        """Return the checks inside."""
        return self.value

    def _grades(self, answered: Answered, *, until: float) -> list[Grade]:
        """Return the grades of the parts that are not skipped, up to one that settles it."""
        grades: list[Grade] = []
        skipped: MissingValueError | None = None
        for part in self.parts():
            try:
                grade = part.evaluate(answered)
            except MissingValueError as error:
                skipped = error
                continue
            grades.append(grade)
            if grade.score == until:
                break
        if skipped is not None and not grades:
            raise skipped
        return grades


class AnyOf(_Group):
    """The best of several checks counts."""

    check: ClassVar[str] = "any_of"
    example: ClassVar[str] = "any_of: [{contains: yes}, {contains: sure}]"

    def evaluate(self, answered: Answered) -> Grade:
        """Return the highest score of the parts."""
        grades = self._grades(answered, until=1.0)
        best = max(grades, key=_score)
        if best.score > 0:
            return best
        return Grade(0.0, brief("; ".join(grade.reason for grade in grades if grade.reason)))


class AllOf(_Group):
    """The worst of several checks counts."""

    check: ClassVar[str] = "all_of"
    example: ClassVar[str] = "all_of: [{is_json: {}}, {chars: {max: 500}}]"

    def evaluate(self, answered: Answered) -> Grade:
        """Return the lowest score of the parts."""
        return min(self._grades(answered, until=0.0), key=_score)


class Not(_Combined):
    """The opposite of a check: 1 - score."""

    check: ClassVar[str] = "not"
    example: ClassVar[str] = "not: {regex: '(?i)as an ai'}"
    value: CheckEntry = Field(description="The check.")

    @classmethod
    def expand(cls, argument: Any) -> dict[str, Any]:
        """Return the options: a map is the check itself unless it has a `value`."""
        return (
            argument if isinstance(argument, dict) and "value" in argument else {"value": argument}
        )

    def parts(self) -> tuple[Check, ...]:
        """Return the check inside."""
        return (self.value,)

    def evaluate(self, answered: Answered) -> Grade:
        """Return 1 - the score of the check inside."""
        part: Check = self.value
        grade = part.evaluate(answered)
        passed = None if grade.passed is None else not grade.passed
        return Grade(1.0 - grade.score, grade.reason or f"{part.check} holds", passed)


def _score(grade: Grade) -> float:
    return grade.score
