"""Which answers of a run are set against each other?

With a base, head against base: the same prompt, model, case and draw. Otherwise every model against
the first that is listed, or all against all, with the same prompt, case and draw.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.execute.runner import Task
from edison_ci.execute.work import BASE, HEAD
from edison_ci.frozen import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.config.models import Configuration
    from edison_ci.execute.work import Work


class Pair(NamedTuple):
    """Two cells: what is asked about, and what it is held against."""

    a: Task
    """Head, or the model that is listed later."""
    b: Task
    """Base, or the model that is listed first."""


def couples(
    listed: Sequence[Configuration], *, all_pairs: bool
) -> list[tuple[Configuration, Configuration]]:
    """Return which models are set against each other, the one that is listed first as second."""
    found = [(later, earlier) for earlier, later in combinations(listed, 2)]
    return [(a, b) for a, b in found if all_pairs or b is listed[0]]


@dataclass(frozen=True, slots=True)
class Rivals:
    """Knows the other side of every cell."""

    against_base: bool
    couples: dict[str, list[tuple[Configuration, Configuration]]]
    """By prompt; empty with a base."""

    @classmethod
    def of(cls, work: Work) -> Rivals:
        """Return the rivals in the cells of a run."""
        if BASE in work.sides:
            return cls(True, {})
        experiment = work.selection.narrow(work.sides[HEAD])
        pairwise = experiment.file.judges.pairwise
        all_pairs = pairwise is not None and pairwise.all_pairs
        return cls(
            False,
            {
                prompt.id: couples(experiment.configurations(prompt), all_pairs=all_pairs)
                for prompt in experiment.prompts
            },
        )

    def pairs(self, task: Task) -> Iterator[Pair]:
        """Yield every pair that a cell belongs to."""
        if self.against_base:
            if task.twin is not None:
                prompt, configuration = task.twin
                side = BASE if task.side == HEAD else HEAD
                other = Task(prompt, configuration, task.case, task.draw, side)
                yield Pair(task, other) if task.side == HEAD else Pair(other, task)
            return
        for a, b in self.couples.get(task.prompt.id, ()):
            if task.configuration.name in (a.name, b.name):
                yield Pair(replace(task, configuration=a), replace(task, configuration=b))
