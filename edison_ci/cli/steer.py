"""edison runs steer: a run of another process changed while it goes on."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from edison_ci.access import site as sites
from edison_ci.api import run_control
from edison_ci.cli import lookup, sessions
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import BAD, ODD, StyledText, Terminal
from edison_ci.config import load
from edison_ci.errors import ExitCode, UsageError
from edison_ci.numeric import counted, dollars
from edison_ci.results import steering
from edison_ci.store import database, runs
from edison_ci.store.steering import Change, SteeringAction

if TYPE_CHECKING:
    from edison_ci.results.steering import SteeringState
    from edison_ci.store.runs import Run
    from edison_ci.store.steering import SteeringRequest


class _ModelCalls(click.ParamType[Change]):
    name = "MODEL=N"

    def convert(self, value: Any, param: Any, ctx: Any) -> Change:
        if isinstance(value, Change):
            return value
        model, sign, calls = str(value).rpartition("=")
        if not (sign and model and calls.isascii() and calls.isdigit() and len(calls) < 9):
            self.fail(f"{value!r} is not MODEL=N, such as small=20", param, ctx)
        return Change(SteeringAction.CONCURRENCY, model, int(calls))


@click.command(cls=EdisonCommand)
@click.argument("wanted", required=False, metavar="[RUN]")
@click.option(
    "--concurrency",
    type=_ModelCalls(),
    multiple=True,
    metavar="MODEL=N",
    help="Let a model make N calls at once; repeatable.",
)
@click.option(
    "--pause", multiple=True, metavar="MODEL", help="Send no more calls to a model; repeatable."
)
@click.option(
    "--resume", multiple=True, metavar="MODEL", help="Go on with a paused model; repeatable."
)
@click.option(
    "--requeue", type=click.Choice(["errors"]), help="Ask the cells in error again, in this run."
)
@click.option(
    "--budget",
    type=click.FloatRange(min=0, max=1_000_000),
    metavar="USD",
    help="Change the budget of the run, within the other limits.",
)
@click.pass_obj
def steer(state: CliState, /, wanted: str | None, **given: Any) -> None:
    """Change a run while it goes on, or show its state.

    Works for a run of any process on this machine. The run answers each request: done, or refused
    with a reason, and says so in its own terminal, on its page and in `edison runs watch`. A
    refused request changes nothing, and the exit code is 2. Each request is audited.

    A model is named as in models.yaml; its calls in flight are finished before it is paused.
    --requeue errors asks cells in error again, at once, with their model's calls at once. --budget
    applies to the whole run, what it has spent included; a value above a limit of the experiment,
    the day or the month is refused, and these limits are named.

    `edison resume` starts with no model paused, the concurrency of models.yaml, and this budget.

    Without options it shows calls at once, in flight and waiting of each model, and the budget.

    Examples:
      edison runs steer
      edison runs steer support-reply --concurrency small=20
      edison runs steer --pause small --json
      edison runs steer --resume small
      edison runs steer --requeue errors --budget 5
    """
    terminal = Terminal(state)
    site = sites.open_site(state.enter_project(load.find_root(state.folder)))
    changes = _changes(given)
    actor = site.require(sites.Role.EDITOR, "steer") if changes else None
    with closing(database.open_reader(site.results)) as reader:
        run = lookup.find_run_or_newest(terminal, reader, wanted)
        answered: list[SteeringRequest] = []
        if actor is not None:
            control = run_control.RunControl(site, actor)
            answered = control.answers(reader, run.id, control.steer(run, changes))
        run = run_control.current_run(site, runs.find_run(reader, run.id))
        found = steering.steering_state(reader, run)
    if terminal.json:
        answers = [each.as_json() for each in answered]
        told = {"run_id": run.id, "experiment": run.experiment, "status": run.status}
        terminal.document({**told, **found.as_json(), "answers": answers})
    elif answered:
        _show_answers(terminal, answered)
    else:
        _show_state(terminal, run, found)
    if any(not each.done for each in answered):
        raise click.exceptions.Exit(ExitCode.INVALID)


def _changes(given: dict[str, Any]) -> list[Change]:
    both = set(given["pause"]) & set(given["resume"])
    if both:
        raise UsageError(f"{', '.join(sorted(both))} cannot be paused and resumed at once")
    found: list[Change] = [*given["concurrency"]]
    found += [Change(SteeringAction.PAUSE, model) for model in dict.fromkeys(given["pause"])]
    found += [Change(SteeringAction.RESUME, model) for model in dict.fromkeys(given["resume"])]
    if given["requeue"]:
        found.append(Change(SteeringAction.REQUEUE))
    if given["budget"] is not None:
        found.append(Change(SteeringAction.BUDGET, microusd=sessions.microusd(given["budget"])))
    return found


def _show_answers(terminal: Terminal, answered: list[SteeringRequest]) -> None:
    for each in answered:
        mark = StyledText("done:", bold=True) if each.done else StyledText("refused:", BAD)
        terminal.result(mark, f" {each.said}")


def _show_state(terminal: Terminal, run: Run, found: SteeringState) -> None:
    progress = found.progress
    errors = progress.cells.get("error", 0)
    wrong = f", {counted(errors, 'error')}" if errors else ""
    terminal.result(f"{run.experiment} {run.id} is ", StyledText(run.status, ODD))
    terminal.result(f"{progress.done:,} of {counted(progress.total, 'cell')} done{wrong}")
    if found.models:
        head = ("model", "at once", "in flight", "done", "waiting", "errors", "")
        rows = [head, *(_row(each) for each in found.models)]
        terminal.table(rows, right=(1, 2, 3, 4, 5), drop=(3, 5), indent=2)
    used = dollars(progress.cost_microusd)
    if found.left_microusd is None:
        terminal.result(f"budget: {used} used, no limit")
    else:
        limit, left = dollars(progress.budget_microusd), dollars(found.left_microusd)
        terminal.result(f"budget: {used} of {limit} used, {left} left")
    for each in found.requests:
        answer = "waits" if each.taken_at is None else "done" if each.done else "refused"
        terminal.result(f"  {each.asked_at[11:19]}  {each.by}  {answer}: {each.said}")


def _row(each: Any) -> tuple[str, ...]:
    numbers = (each.in_flight, each.done, each.waiting, each.errors)
    at_once = "-" if each.concurrency is None else f"{each.concurrency:,}"
    return (each.name, at_once, *(f"{number:,}" for number in numbers), each.word)
