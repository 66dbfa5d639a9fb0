"""Shared parts of commands that call models: cost options, confirmation, and progress."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edison_ci import extras, feature, ranges
from edison_ci._dataclass import dataclass
from edison_ci.api import sessions as run_sessions
from edison_ci.checks import child
from edison_ci.cli import progress
from edison_ci.cli.options import NumberRange
from edison_ci.cli.terminal import ODD, StyledText, Terminal, simulated_label
from edison_ci.config import tokens
from edison_ci.errors import ConfigError, Location, Problem, UsageError
from edison_ci.git import repository as git
from edison_ci.numeric import counted, dollar_range, dollars
from edison_ci.plan import plan as planning
from edison_ci.plan.estimate import TYPICAL_OUTPUT
from edison_ci.records import Side

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from edison_ci.cli.options import CliState
    from edison_ci.config.load import Project
    from edison_ci.config.models import Model
    from edison_ci.execute.progress import Progress
    from edison_ci.execute.run_options import BaseReference
    from edison_ci.execute.targets import RunTarget
    from edison_ci.plan.estimate import CostRange
    from edison_ci.plan.plan import Plan
    from edison_ci.records import Request

    Command = TypeVar("Command", bound=Callable[..., Any])


_ASK_ABOVE_MICROUSD = 1_000_000


@dataclass(frozen=True, slots=True)
class PlanConfirmation:
    """Checks a plan before the first call, and asks for confirmation if it is expensive."""

    terminal: Terminal
    yes: bool = True
    strict: bool = False
    replay: bool = False
    """Whether answers come from a recording, which needs neither keys nor prices."""
    plan_hash: str | None = None
    """Of the only plan that may be run; None for any."""
    keys_elsewhere: bool = False
    """Whether workers on other machines make the calls, with their own keys."""
    confirmed: set[str] = field(default_factory=set)
    """The hashes of the plans that were confirmed before the first of several runs."""

    def refuse(self, plan: Plan) -> None:
        """Raise ConfigError if the run could not complete, such as for a missing key."""
        unready = [] if self.replay else plan.unready
        if self.keys_elsewhere:
            unready = [blocker for blocker in unready if blocker not in plan.unset]
        problems = [
            _problem("models.yaml", blocker, _how_to_set(blocker) if blocker in plan.unset else "")
            for blocker in unready
        ]
        problems += [_problem(f"experiments/{plan.experiment}", b) for b in plan.refusals]
        if problems:
            raise ConfigError(problems)

    def check(self, plan: Plan) -> None:
        """Refuse a plan of several before the first of them; ask before it costs too much."""
        self._refuse(plan)
        self.confirm(plan.cost_microusd, plan.experiment)
        self.confirmed.add(plan.hash)

    def _refuse(self, plan: Plan) -> None:
        self.refuse(plan)
        if self.plan_hash not in (None, plan.hash):
            raise UsageError(
                f"the plan of {plan.experiment} is not the one that was shown: files differ",
                hint="look at the plan here: edison plan",
            )
        if self.strict and plan.skipped:
            raise UsageError(
                f"{counted(plan.skipped, 'cell')} would be skipped, which --strict does not allow",
                hint="complete the cases, or use the filter default in the prompt",
            )

    def __call__(self, plan: Plan) -> None:
        """Refuse a plan that cannot complete; ask before it costs more than a dollar."""
        terminal = self.terminal
        terminal.warnings(plan.warnings)
        self._refuse(plan)
        mark = simulated_label(plan.simulation)
        terminal.note(
            StyledText(plan.experiment, bold=True),
            f": {counted(plan.cases, 'case')}, {counted(plan.cells, 'cell')}{_range(plan)}",
            *mark,
        )
        if (saving := plan.saving) is not None:
            terminal.note(f"  batches save {dollar_range(saving.low, saving.high)}")
        if plan.hash not in self.confirmed:
            self.confirm(plan.cost_microusd)

    def confirm(self, cost: CostRange | None, what: str = "This") -> None:
        """Ask for confirmation if it may cost more than a dollar; elsewhere only print the cost."""
        if cost is None or cost.high <= _ASK_ABOVE_MICROUSD or self.yes:
            return
        amount = f"{dollars(cost.low)} to {dollars(cost.high)}"
        if sys.stdin.isatty() and sys.stderr.isatty() and not self.terminal.json:
            click.confirm(f"{what} may cost {amount}. Continue?", abort=True, err=True)
        else:
            self.terminal.note(f"{what.lower() if what == 'This' else what} may cost {amount}")


def confirm_calls(
    terminal: Terminal,
    project: Project,
    calls: Iterable[tuple[Model, Request]],
    *,
    yes: bool,
    output_tokens: float = TYPICAL_OUTPUT.high,
) -> None:
    """Print how many calls to judges are made and their highest cost; ask above a dollar."""
    count, most = 0, 0.0
    models: dict[str, bool] = {}
    for model, request in calls:
        count += 1
        models[model.name] = model.simulated
        price = project.prices.price_of(model)
        if price is not None:
            tokens_in = sum(tokens.estimate_tokens(part.content) for part in request.messages)
            most += tokens_in * price.tokens_in + output_tokens * price.tokens_out
    if not count:
        return
    cost = f", about {dollars(math.ceil(most))} at most" if most else ""
    mark = simulated_label(all(models.values()))
    terminal.note(f"{counted(count, 'call')} to {', '.join(models)}{cost}", *mark)
    asks = sys.stdin.isatty() and sys.stderr.isatty() and not terminal.json
    if most > _ASK_ABOVE_MICROUSD and not yes and asks:
        click.confirm("Continue?", abort=True, err=True)


def _range(plan: Plan) -> str:
    """Return the range of calls of a run that may stop early."""
    if plan.interims is None:
        return ""
    why = "more_repeats" if plan.interims == "repeats" else "adaptive_sampling"
    return f"; {plan.fewest_calls:,} to {plan.calls:,} calls ({why})"


def _problem(file: str, blocker: str, how: str = "") -> Problem:
    what, _, hint = blocker.partition(": ")
    return Problem(Location(file), "blocked", what, hint or how)


def _how_to_set(blocker: str) -> str:
    """Return what to do about a variable that is not set: the blocker begins with its name."""
    name = blocker.partition(" ")[0]
    if "the address of" in blocker:
        return f"export {name}=URL"
    return f"export {name}=..., or seal the key: edison secrets seal {name}"


_LISTED = 5


def session_factory(state: CliState, confirmation: PlanConfirmation) -> run_sessions.SessionFactory:
    """Return a factory of sessions that ask and show progress on the terminal."""
    return run_sessions.SessionFactory(
        state.offline, partial(_observe_session, state, confirmation, confirmation)
    )


def refining_factory(
    state: CliState, confirmation: PlanConfirmation, *, brief: bool = False
) -> run_sessions.SessionFactory:
    """Return a factory of sessions for a refinement, which was confirmed as a whole before.

    With `brief`, no progress is logged: there are too many sessions.
    """
    observe = partial(_observe_session, state, confirmation, confirmation.refuse, brief=brief)
    return run_sessions.SessionFactory(state.offline, observe)


@contextlib.contextmanager
def _observe_session(
    state: CliState,
    confirmation: PlanConfirmation,
    on_plan: Callable[[Plan], None],
    *,
    brief: bool = False,
) -> Iterator[Mapping[str, Any]]:
    """Yield the callbacks that show the progress of one session; clear it at the end."""
    display = progress.Display(confirmation.terminal, quiet=state.quiet, brief=brief)

    def start(made: Progress) -> None:
        state.started = True
        display.start(made)

    try:
        yield {
            "on_plan": on_plan,
            "on_check": confirmation.check,
            "on_start": start,
            "on_progress": display.progress,
            "on_alert": display.alert,
            "on_interim": display.interim,
            "on_wait": display.waiting,
            "on_batch": display.batch,
            "on_cache": display.batch,
            "on_stop": display.stopping,
            "on_steer": display.steered,
            "on_worker": display.worker,
        }
    finally:
        display.clear()


def show_targets(terminal: Terminal, targets: Sequence[RunTarget]) -> None:
    """Print what the runs of an experiment compare, with doubts, and what does not count."""
    head = targets[-1]
    if head.against is not None:
        _show_base(terminal, head.experiment.id, head.against, targets)
    for sentence in planning.outside_sentences(head.experiment):
        terminal.note(sentence)


def _show_base(
    terminal: Terminal, experiment: str, against: BaseReference, targets: Sequence[RunTarget]
) -> None:
    names = git.commit_names(against.ref, against.commit)
    terminal.note(f"{experiment}: compared with {' at '.join(names)}")
    if against.variant is None:
        why = "does not have this experiment"
        if against.invalid:
            why = f"has this experiment, but it is not valid there: {against.invalid}"
        terminal.note(f"  {names[0]} {why}; nothing to compare with")
    for doubt in against.doubts:
        terminal.note(StyledText("in doubt: ", ODD), doubt.sentence)
    for replacement in against.replaced:
        terminal.note(f"  {replacement}, and compared with it")
    for form in against.held:
        terminal.note(f"  {form}")
    sides = [target.against.eval_suite for target in targets if target.against is not None]
    if Side.BASE in sides:
        files = ", ".join(against.changed[:_LISTED])
        more = ", ..." if len(against.changed) > _LISTED else ""
        terminal.note(StyledText("the eval suite changed: ", ODD), f"{files}{more}")
        terminal.note(
            f"  both are measured on the eval suite of {names[0]} too; the worse verdict counts"
        )


budget = click.option(
    "--budget",
    type=NumberRange(*ranges.BUDGET_USD),
    metavar="USD",
    help="Spending limit in dollars.",
)
yes = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
_allow_code = click.option(
    "--allow-code", is_flag=True, help="Allow checks to run code of the repository."
)


def _without_sandbox(context: click.Context, option: click.Parameter, chosen: bool) -> None:
    if chosen:
        os.environ[child.WITHOUT_SANDBOX] = "1"


_allow_without_sandbox = click.option(
    "--allow-code-without-sandbox",
    is_flag=True,
    expose_value=False,
    callback=_without_sandbox,
    help="Allow that code even without a sandbox for network, keys and files.",
)


def allow_code(command: Command) -> Command:
    """Add the options that allow code of the repository to run."""
    return _allow_code(_allow_without_sandbox(command))


def cost_options(command: Command) -> Command:
    """Add the options of commands that spend money and grade answers."""
    return budget(allow_code(yes(command)))


_on = click.option(
    "--on",
    metavar="WORKERS",
    help="Make the calls at workers: local:4, or tls://HOST:PORT of a scheduler.",
)
tls_folder_option = click.option(
    "--tls",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="EDISON_TLS",
    metavar="DIR",
    help="Folder of the certificates; default: ~/.config/edison/cluster.",
)


def on_workers(command: Command) -> Command:
    """Add the options of commands whose calls workers can make."""
    return _on(tls_folder_option(command))


def keys_elsewhere(on: str | None) -> bool:
    """Whether the workers are not started here, and have their own keys."""
    return on is not None and not on.startswith("local:")


def refuse_on(on: str | None, others: Mapping[str, bool]) -> None:
    """Raise UsageError for an option that makes no calls that workers could make."""
    for option, chosen in others.items():
        if on is not None and chosen:
            raise UsageError(f"--on and {option} exclude each other", hint="leave one of them out")


@contextlib.contextmanager
def on_workers_of(
    state: CliState,
    project: Project,
    factory: run_sessions.SessionFactory,
    on: str | None,
    tls: Path | None,
) -> Iterator[run_sessions.SessionFactory]:
    """Yield the factory with workers that make the calls; those of `local:N` end with the block."""
    if on is None:
        yield factory
        return
    require_dask("--on")
    workers_at = feature.executor(on)
    with workers_at(on, tls, project.root, offline=state.offline) as connect:
        yield replace(factory, connect=connect)


def require_dask(what: str) -> None:
    """Raise UsageError if Dask is not installed."""
    if fault := extras.DISTRIBUTED.fault():
        raise UsageError(
            f"{what} needs the library distributed, which {fault}",
            hint=extras.install_command("dask"),
        )


def microusd(usd: float | None) -> int | None:
    """Return a budget in micro-dollars; None for none."""
    return None if usd is None else round(usd * 1_000_000)
