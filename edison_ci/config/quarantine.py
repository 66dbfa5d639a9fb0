"""The models of quarantine.yaml: flaky cases that are excluded from gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from edison_ci.config.project import Version
from edison_ci.shape import Date, Name, Shape, items, report, short, wrong

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

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.until < self.since:
            raise wrong(
                "date",
                f"until {self.until} is before since {self.since}",
                "until is the last day",
                at=("until",),
            )
        return self


class QuarantineFile(Shape):
    """quarantine.yaml: flaky cases excluded from gates, with reason and expiry."""

    version: Version = 1
    cases: Annotated[tuple[QuarantinedCase, ...], items(0, 1_000)] = Field(
        (), description="Cases in quarantine."
    )

    @model_validator(mode="after")
    def _each_case_once(self) -> Self:
        report(self._repeated())
        return self

    def _repeated(self) -> Iterator[Exception]:
        seen: dict[tuple[str, str], int] = {}
        for index, entry in enumerate(self.cases):
            first = seen.setdefault((entry.experiment, entry.case), index)
            if first != index:
                yield wrong(
                    "duplicate",
                    f"{short(entry.case)} of {entry.experiment} is listed twice, "
                    f"first in entry {first + 1}",
                    "remove one of them",
                    at=("cases", index, "case"),
                )
