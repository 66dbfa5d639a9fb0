"""How does a run talk to the person at the terminal: before it spends, and while it goes on?"""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from typing import TYPE_CHECKING

import click

from edison_ci.cli.progress import Display, dollars
from edison_ci.cli.terminal import ODD, Ink, Terminal, counted
from edison_ci.cli.tools import tools_for
from edison_ci.cli.trusting import on_terms_of_base
from edison_ci.errors import ConfigError, Location, Problem, UsageError
from edison_ci.execute.session import Session
from edison_ci.frozen import dataclass
from edison_ci.plan.plan import EmptyShard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.cli.against import Match
    from edison_ci.cli.options import State
    from edison_ci.execute.orders import Ended, RunOptions
    from edison_ci.plan.plan import Plan
    from edison_ci.providers.replay import ReplayProvider

_ASK_ABOVE_MICROUSD = 1_000_000


@dataclass(frozen=True, slots=True)
class Asking:
    """Looks at a plan before anything is sent."""

    terminal: Terminal
    yes: bool = True
    strict: bool = False
    replay: bool = False
    """Whether answers come from a recording, which needs neither keys nor prices."""

    def __call__(self, plan: Plan) -> None:
        """Refuse what a run would stumble over; ask before it costs more than a little."""
        terminal = self.terminal
        terminal.warnings(plan.warnings)
        unready = [] if self.replay else plan.unready
        problems = [_problem("models.yaml", blocker) for blocker in unready]
        problems += [_problem(f"experiments/{plan.experiment}", b) for b in plan.refusals]
        if problems:
            raise ConfigError(problems)
        if self.strict and plan.skipped:
            said = f"{counted(plan.skipped, 'cell')} would be skipped, and --strict forbids it"
            raise UsageError(said, hint="complete the cases, or use the filter default")
        mark = (Ink("  simulated", ODD),) if plan.simulated else ()
        terminal.note(
            Ink(plan.experiment, bold=True),
            f": {counted(plan.cases, 'case')}, {counted(plan.cells, 'cell')}{_range(plan)}",
            *mark,
        )
        cost = plan.cost_microusd
        if cost is None or cost.high <= _ASK_ABOVE_MICROUSD or self.yes:
            return
        spent = f"{dollars(cost.low)} to {dollars(cost.high)}"
        if sys.stdin.isatty() and sys.stderr.isatty() and not terminal.json:
            click.confirm(f"It may cost {spent}. Go on?", abort=True, err=True)
        else:
            terminal.note(f"it may cost {spent}")


def _range(plan: Plan) -> str:
    """Say how many calls a run makes that stops when it is clear."""
    if plan.looks is None:
        return ""
    why = "more_draws" if plan.looks == "draws" else "adaptive_sampling"
    return f"; {plan.fewest_calls:,} to {plan.calls:,} calls ({why})"


def _problem(file: str, blocker: str) -> Problem:
    what, _, hint = blocker.partition(": ")
    return Problem(Location(file), "blocked", what, hint)


@dataclass(frozen=True, slots=True)
class Table:
    """Makes sessions that talk to the person at the terminal."""

    state: State
    asking: Asking
    recording: ReplayProvider | None = None

    def runs(self, match: Match, options: RunOptions) -> Iterator[Ended]:
        """Run what is to be run, and yield how it ended; nothing if its shard has no case."""
        with self.session(match) as session:
            try:
                yield session.run(options)
            except EmptyShard as empty:
                self.asking.terminal.note(f"skipped: {empty.message}")

    @contextlib.contextmanager
    def session(self, match: Match) -> Iterator[Session]:
        """Yield the session of one run, and take its progress off the screen in the end."""
        state, recording = self.state, self.recording
        plain = state.json or state.no_color
        display = Display(self.asking.terminal, quiet=state.quiet, plain=plain)
        tools = tools_for(state, match.project)
        if recording is not None:
            tools = dataclasses.replace(tools, provider_for=lambda _: recording)
        tools = dataclasses.replace(
            tools,
            on_plan=self.asking,
            on_progress=display.progress,
            on_alert=display.alert,
            on_look=display.look,
            on_wait=display.waiting,
            on_stop=display.stopping,
        )
        try:
            project = on_terms_of_base(match.project)
            yield Session(project, match.experiment, tools, against=match.against)
        finally:
            display.clear()
