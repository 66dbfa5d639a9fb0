"""Combinators: any_of, all_of and not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from edison_ci.checks.evaluation import Grade, shorten
from edison_ci.checks.options import Check, CheckEntry
from edison_ci.numeric import reaches, weighted_mean
from edison_ci.shape import items
from edison_ci.templating.templates import MissingValueError

if TYPE_CHECKING:
    from edison_ci.checks.evaluation import ParsedAnswer


class _Combined(Check):
    @property
    def passes_at(self) -> float:
        """The lowest passing score; 0.5 if an inner check has scores between 0 and 1."""
        if self.threshold is not None:
            return self.threshold
        return 0.5 if any(part.passes_at < 1 for part in self.inner_checks()) else 1.0


class _Group(_Combined):
    value: Annotated[tuple[CheckEntry, ...], items(1, 50)] = Field(description="The checks.")

    def inner_checks(self) -> tuple[Check, ...]:
        """Return the inner checks."""
        return self.value

    def _grades(self, answered: ParsedAnswer, *, until: float) -> list[Grade]:
        """Return the grades of the inner checks, without skipped ones, up to a score of `until`."""
        grades: list[Grade] = []
        skipped: MissingValueError | None = None
        for part in self.inner_checks():
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

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return the highest score of the inner checks."""
        grades = self._grades(answered, until=1.0)
        best = max(grades, key=_score)
        if best.score > 0:
            return best
        return Grade(0.0, shorten("; ".join(grade.reason for grade in grades if grade.reason)))


class AllOf(_Group):
    """The worst of several checks counts."""

    check: ClassVar[str] = "all_of"
    example: ClassVar[str] = "all_of: [{is_json: {}}, {chars: {max: 500}}]"

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return the lowest score of the inner checks."""
        return min(self._grades(answered, until=0.0), key=_score)


class MeanOf(_Group):
    """The mean of several checks counts, by their weights."""

    check: ClassVar[str] = "mean_of"
    example: ClassVar[str] = (
        "mean_of: {value: [{contains: yes}, {chars: {max: 9, weight: 2}}], threshold: 0.5}"
    )

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return the weighted mean; without a threshold every inner check must pass."""
        graded: list[tuple[Check, Grade]] = []
        skipped: MissingValueError | None = None
        for part in self.inner_checks():
            try:
                graded.append((part, part.evaluate(answered)))
            except MissingValueError as error:
                skipped = error
        if skipped is not None and not graded:
            raise skipped
        weighted = [(1.0 if p.weight is None else p.weight, grade.score) for p, grade in graded]
        score = weighted_mean(weighted) or 0.0
        failed = [grade for part, grade in graded if part.weight != 0 and not _passes(part, grade)]
        reason = shorten("; ".join(grade.reason for grade in failed if grade.reason))
        return Grade(score, reason, None if self.threshold is not None else not failed)


def _passes(part: Check, grade: Grade) -> bool:
    return reaches(grade.score, part.passes_at) if grade.passed is None else grade.passed


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

    def inner_checks(self) -> tuple[Check, ...]:
        """Return the inner check."""
        return (self.value,)

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Return 1 - the score of the inner check."""
        part: Check = self.value
        grade = part.evaluate(answered)
        passed = None if grade.passed is None else not grade.passed
        return Grade(1.0 - grade.score, grade.reason or f"{part.check} holds", passed)


def _score(grade: Grade) -> float:
    return grade.score
