"""What does a judge look at, and what does it see?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.frozen import dataclass
from edison_ci.providers.sim.knowledge import KnownCase, Task, case_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.records import Json


class Seen(NamedTuple):
    """One thing seen in a text: how much of it, from 0 to 1, and in words."""

    value: float
    remark: str


@dataclass(frozen=True, slots=True)
class Exhibit:
    """An answer and the case it answers."""

    task: Task
    inputs: Mapping[str, Json]
    output: str

    @property
    def case(self) -> KnownCase | None:
        """The known case with these inputs."""
        return case_of(self.task, self.inputs)

    def text(self, name: str) -> str:
        """Return an input as text; empty if there is none."""
        value = self.inputs.get(name, "")
        return value if isinstance(value, str) else ""


def clamped(value: float) -> float:
    """Return the value, but not below 0 and not above 1."""
    return min(1.0, max(0.0, value))
