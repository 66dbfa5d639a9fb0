"""The models of quarantine.yaml: flaky cases that are excluded from gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from edison_ci.config.project import Version
from edison_ci.shape import Date, Name, Shape, items, repeats, short, wrong

if TYPE_CHECKING:
    from collections.abc import Iterator


class QuarantinedCase(Shape):
    """A flaky case that runs and is shown, but never gates."""

    experiment: Name = Field(description="Experiment.")
    case: str = Field(min_length=1, max_length=200, description="Id of the case.")
    reason: str = Field(min_length=1, max_length=1_000, description="Reason for the quarantine.")
    since: Date = Field(description="First day.")
    until: Date = Field(description="Last day; after it, validation fails.")
    owner: str = Field(min_length=1, max_length=100, description="Person responsible.")

    def broken_rules(self) -> Iterator[Exception]:
        """Yield the error of dates in the wrong order."""
        if self.until < self.since:
            message = f"until {self.until} is before since {self.since}"
            yield wrong("date", message, "until is the last day", at=("until",))


class QuarantineFile(Shape):
    """quarantine.yaml: flaky cases excluded from gates, with reason and expiry."""

    version: Version = 1
    cases: Annotated[tuple[QuarantinedCase, ...], items(0, 1_000)] = Field(
        (), description="Cases in quarantine."
    )

    def broken_rules(self) -> Iterator[Exception]:
        """Yield cases that are listed twice."""
        for index, first in repeats((entry.experiment, entry.case) for entry in self.cases):
            entry = self.cases[index]
            message = f"{short(entry.case)} of {entry.experiment} is listed twice"
            message, at = f"{message}, first in entry {first + 1}", ("cases", index, "case")
            yield wrong("duplicate", message, "remove one of them", at=at)
