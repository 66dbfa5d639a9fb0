"""Checks made of checks."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import Field

from edison_ci.checks.options import Check, CheckEntry
from edison_ci.shape import items


class _Group(Check):
    value: Annotated[tuple[CheckEntry, ...], items(1, 50)] = Field(description="The checks.")

    def parts(self) -> tuple[Check, ...]:
        """Return the checks inside."""
        return self.value


class AnyOf(_Group):
    """The best of several checks counts."""

    check: ClassVar[str] = "any_of"
    example: ClassVar[str] = "any_of: [{contains: yes}, {contains: sure}]"


class AllOf(_Group):
    """The worst of several checks counts."""

    check: ClassVar[str] = "all_of"
    example: ClassVar[str] = "all_of: [{is_json: {}}, {chars: {max: 500}}]"


class Not(Check):
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
