"""What refinement is announced with: its cases, and what it may cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from edison_ci.cli.progress import dollars
from edison_ci.cli.terminal import ODD, Ink, counted
from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from edison_ci.cli.asking import Asking
    from edison_ci.plan.estimate import Span
    from edison_ci.refine.candidate import Subject

which_prompt = click.option(
    "--prompt", metavar="PROMPT", help="Which prompt, where there are several."
)


class Outlook(NamedTuple):
    """What refining would work with, and what it may cost."""

    training: int
    held_out: int
    cost: Span | None
    simulated: bool
    more: str = ""
    """What else is asked for, in words."""


def announce(asking: Asking, subject: Subject, outlook: Outlook) -> None:
    """Say what is refined on which cases at what cost, and ask where that is much."""
    if not outlook.training:
        raise UsageError("every case is held out", hint="lower split.holdout of the experiment")
    cost = outlook.cost
    most = "" if cost is None or not cost.high else f", at most about {dollars(cost.high)}"
    cases = f"{counted(outlook.training, 'training case')} and {outlook.held_out:,} held out"
    asking.terminal.note(
        Ink(subject.experiment.id, bold=True),
        f": {subject.prompt.path}, {cases}{outlook.more}{most}",
        *simulated(outlook.simulated),
    )
    asking.confirm(cost)


def simulated(told: bool) -> tuple[Ink, ...]:
    """Return the mark of what a simulated model took part in."""
    return (Ink("  simulated", ODD),) if told else ()
