"""Plans agreed to before anything is sent: can it be done, and may it cost that much."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from edison_ci._dataclass import dataclass
from edison_ci.cli.progress import dollars
from edison_ci.cli.terminal import ODD, Ink, Terminal, counted
from edison_ci.errors import ConfigError, Location, Problem, UsageError

if TYPE_CHECKING:
    from edison_ci.plan.estimate import Span
    from edison_ci.plan.plan import Plan

_ASK_ABOVE_MICROUSD = 1_000_000


@dataclass(frozen=True, slots=True)
class Asking:
    """Looks at a plan before anything is sent."""

    terminal: Terminal
    yes: bool = True
    strict: bool = False
    replay: bool = False
    """Whether answers come from a recording, which needs neither keys nor prices."""

    def refuse(self, plan: Plan) -> None:
        """Refuse what a run would stumble over."""
        unready = [] if self.replay else plan.unready
        problems = [_problem("models.yaml", blocker) for blocker in unready]
        problems += [_problem(f"experiments/{plan.experiment}", b) for b in plan.refusals]
        if problems:
            raise ConfigError(problems)

    def __call__(self, plan: Plan) -> None:
        """Refuse what a run would stumble over; ask before it costs more than a little."""
        terminal = self.terminal
        terminal.warnings(plan.warnings)
        self.refuse(plan)
        if self.strict and plan.skipped:
            said = f"{counted(plan.skipped, 'cell')} would be skipped, and --strict forbids it"
            raise UsageError(said, hint="complete the cases, or use the filter default")
        mark = (Ink("  simulated", ODD),) if plan.simulated else ()
        terminal.note(
            Ink(plan.experiment, bold=True),
            f": {counted(plan.cases, 'case')}, {counted(plan.cells, 'cell')}{_range(plan)}",
            *mark,
        )
        self.confirm(plan.cost_microusd)

    def confirm(self, cost: Span | None) -> None:
        """Ask before something costs more than a little."""
        if cost is None or cost.high <= _ASK_ABOVE_MICROUSD or self.yes:
            return
        spent = f"{dollars(cost.low)} to {dollars(cost.high)}"
        if sys.stdin.isatty() and sys.stderr.isatty() and not self.terminal.json:
            click.confirm(f"It may cost {spent}. Go on?", abort=True, err=True)
        else:
            self.terminal.note(f"it may cost {spent}")


def _range(plan: Plan) -> str:
    """Say how many calls a run makes that stops when it is clear."""
    if plan.looks is None:
        return ""
    why = "more_draws" if plan.looks == "draws" else "adaptive_sampling"
    return f"; {plan.fewest_calls:,} to {plan.calls:,} calls ({why})"


def _problem(file: str, blocker: str) -> Problem:
    what, _, hint = blocker.partition(": ")
    return Problem(Location(file), "blocked", what, hint)
