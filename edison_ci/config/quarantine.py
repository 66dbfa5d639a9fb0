"""What may stand in quarantine.yaml?"""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from edison_ci.config.project import Version
from edison_ci.shape import Name, Shape, items, wrong


def _date(value: str) -> str:
    try:
        dt.date.fromisoformat(value)
    except ValueError:
        raise wrong("date", f"{value!r} is not a date", "write YYYY-MM-DD") from None
    return value


Date = Annotated[
    str,
    Field(min_length=10, max_length=10),
    AfterValidator(_date),
    Field(json_schema_extra={"pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}),
]


class QuarantinedCase(Shape):
    """A flaky case that runs and is shown, but never gates."""

    experiment: Name = Field(description="Experiment.")
    case: str = Field(min_length=1, max_length=200, description="Id of the case.")
    reason: str = Field(min_length=1, max_length=1_000, description="Why it is set aside.")
    since: Date = Field(description="First day.")
    until: Date = Field(description="Last day; after it, validation fails.")
    owner: str = Field(min_length=1, max_length=100, description="Who looks after it.")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.until < self.since:
            raise wrong("date", f"until {self.until} is before since {self.since}", at=("until",))
        return self


class QuarantineFile(Shape):
    """quarantine.yaml: flaky cases set aside, with reason and expiry."""

    version: Version = 1
    cases: Annotated[tuple[QuarantinedCase, ...], items(0, 10_000)] = Field(
        (), description="Cases set aside."
    )
