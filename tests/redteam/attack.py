"""Attacks: a promise, and the variants that try to break it.

A variant says what the base is, what the head changes, what started the job and what may come of
it. `tests/redteam/bench.py` carries it out, `tests/redteam/watch.py` says whether it got through.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from tests.loopback.script import Rule
    from tests.redteam.bench import Done, Scene

    Change = Callable[[Scene], None]

PULL_REQUEST = "pull_request"


@dataclass(frozen=True)
class Variant:
    """One attempt."""

    name: str
    change: Change
    """Writes the files of the head."""
    base: Change | None = None
    """Writes files of the base, beyond those that every base has."""
    left: Change | None = None
    """Leaves files in the checkout that an earlier step, or a cache, has put there."""
    started: Callable[[Scene], tuple[str, dict[str, Any], str]] | None = None
    """Name, payload and ref of the event; a pull request unless said."""
    command: tuple[str, ...] = ("github", "run")
    environ: dict[str, str] = field(default_factory=dict)
    """Variables of the step, beyond those of every job; `{folder}` and `{thief}` are filled in."""
    script: tuple[Rule, ...] = ()
    """What the model answers, before the usual answers."""
    may_pass: bool = False
    """Whether a pass, or nothing to do, is fine: the head is not worse, or is not decided upon."""
    budget_microusd: int | None = None
    """The most that the model's own ledger may show."""
    limit_s: float = 180.0
    """Far above what a job takes on a busy machine: what does not end has no end."""
    proxied: bool = False
    """Whether calls that leave this machine are led to the thief, so that they are seen."""
    then: Callable[[Scene, Done], Iterator[str]] | None = None
    """Looks for what else shows that it got through."""
    must: str = ""
    """The verdict that has to come out: a control, which proves that the bench works."""


@dataclass(frozen=True)
class Attack:
    """A class of variants that try to break one promise."""

    name: str
    promise: str
    fixed: Callable[[], Iterator[Variant]]
    generated: Callable[[Random], Variant] | None = None
    share: float = 1.0
    """How many variants are generated, as a share of the number that was asked for."""

    def variants(self, random: Random, count: int) -> Iterator[Variant]:
        """Yield the variants that are always tried, and `count` that are made up."""
        yield from self.fixed()
        if self.generated is not None:
            for number in range(round(count * self.share)):
                made = self.generated(random)
                yield type(made)(**{**vars(made), "name": f"generated {number}: {made.name}"})
