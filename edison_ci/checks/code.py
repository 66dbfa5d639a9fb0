"""What does a function or program of the repository say about the answer?"""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from edison_ci.checks.options import Check
from edison_ci.documents.files import inside
from edison_ci.documents.marks import Fault
from edison_ci.shape import items, short, wrong

_TARGET = re.compile(r"(?P<file>[^:]+\.py):(?P<function>[A-Za-z_][A-Za-z0-9_]*)")


def _target(value: str) -> str:
    found = _TARGET.fullmatch(value)
    if not found:
        raise wrong("python", f"{short(value)} is not a function", "write checks/tone.py:check")
    try:
        return f"{inside(found['file'])}:{found['function']}"
    except Fault as fault:
        raise wrong(fault.code, fault.message, fault.hint) from None


class Python(Check):
    """A Python function of the repository grades the answer (needs --allow-code)."""

    check: ClassVar[str] = "python"
    graded: ClassVar[bool] = True
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
    def needs_code(self) -> bool:
        """Always: the function is code of the repository."""
        return True


class Command(Check):
    """A program grades the answer, JSON in and out (needs --allow-code)."""

    check: ClassVar[str] = "command"
    graded: ClassVar[bool] = True
    example: ClassVar[str] = "command: [node, checks/grade.js]"
    value: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], items(1, 50)] = Field(
        description="The program and its arguments; no shell."
    )

    @property
    def needs_code(self) -> bool:
        """Always: the program may be code of the repository."""
        return True
