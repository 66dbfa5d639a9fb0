"""edison runs watch, pause, cancel and steer: runs of another process followed and controlled."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from edison_ci import ranges
from edison_ci.access import site as sites
from edison_ci.api import run_control
from edison_ci.api.run_control import SteerRequest
from edison_ci.cli import sessions, summary
from edison_ci.cli.options import (
    CliState,
    EdisonCommand,
    NumberRange,
    takes,
)
from edison_ci.cli.terminal import BAD, ODD, StyledText, Terminal
from edison_ci.config import load
from edison_ci.documents.record_json import as_document, fields_of
from edison_ci.errors import ExitCode
from edison_ci.numeric import counted, dollars
from edison_ci.records import RunStatus
from edison_ci.results import live_progress, stored_runs

if TYPE_CHECKING:
    from edison_ci.results.live_progress import ModelState, SteeringState
    from edison_ci.results.stored_runs import StoredRuns
    from edison_ci.store.runs import Event, Run
    from edison_ci.store.steering import SteeringRequest


def _site(state: CliState) -> sites.Site:
    return sites.open_site(state.enter_project(load.find_root(state.folder)))


def _named_run(terminal: Terminal, stored: StoredRuns, name: str | None) -> Run:
    """Return a run by id, `latest` or experiment; without a name the newest, and say which."""
    run = stored.find(name or "latest")
    if name is None:
        terminal.note(f"newest run: {run.id} of {run.experiment}")
    return run


@click.command(cls=EdisonCommand)
@click.argument("name", required=False, metavar="[RUN]")
@click.option(
    "--since", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Start after this event."
)
@click.pass_obj
def watch(state: CliState, name: str | None, since: int) -> None:
    """Follow a run of another process.

    Prints the events of the run until it ends. With --json each event is one line: seq, time,
    run_id, type, data.

    Examples:
      edison runs watch
      edison runs watch support-reply --json
    """
    terminal = Terminal(state)
    with stored_runs.live_runs(_site(state)) as stored:
        run = _named_run(terminal, stored, name)
        for event in run_control.follow(stored, run.id, after=since):
            if terminal.json:
                terminal.compact(as_document(event))
            else:
                _show_event(terminal, event)
        summary.show_run(terminal, stored.result(run.id))


def _show_event(terminal: Terminal, event: Event) -> None:
    data = event.data
    clock = event.time[11:19]
    if event.type == "run:progress":
        share = 100 * data["done"] // max(data["total"], 1)
        cost = f", {dollars(data['cost_microusd'])}" if data["cost_microusd"] else ""
        cells, workers = counted(data["total"], "cell"), data.get("workers", ())
        at = f", at {counted(len(workers), 'worker')}" if workers else ""
        terminal.result(f"{clock}  {share:3d}%  {data['done']:,} of {cells}{cost}{at}")
    elif event.type == "status:changed":
        color = summary.STATUS_COLORS.get(data["to"], ODD)
        terminal.result(f"{clock}  {data['from']} -> ", StyledText(data["to"], color))
    elif event.type == "aggregate:completed" and "interim" in data:
        interim = data["interim"]
        going = "continuing" if data["more"] else "done"
        terminal.result(
            f"{clock}  interim analysis {interim['number']} of {interim['of']}: "
            f"{data['verdict']}, {going}"
        )
    elif event.type == "run:steered":
        verb = "steered by" if data["done"] else "refused to"
        terminal.result(f"{clock}  ", StyledText(f"{verb} {data['by']}:", ODD), f" {data['said']}")
    elif event.type in ("error", "cost:alert"):
        terminal.result(f"{clock}  ", StyledText(event.type, ODD), f"  {json.dumps(data)}")


@click.command(cls=EdisonCommand)
@click.argument("name", required=False, metavar="[RUN]")
@click.pass_obj
def pause(state: CliState, name: str | None) -> None:
    """Pause a run; it can be resumed.

    Calls in flight are finished first. Continue with `edison resume`.

    Examples:
      edison runs pause
      edison runs pause support-reply
    """
    _stop(state, name, "pause", RunStatus.PAUSED, ask=False)


@click.command(cls=EdisonCommand)
@click.argument("name", required=False, metavar="[RUN]")
@sessions.yes
@click.pass_obj
def cancel(state: CliState, name: str | None, yes: bool) -> None:
    """Cancel a run for good.

    Its answers are kept for reuse, but the run cannot be resumed. On a terminal it first shows how
    far the run is and what it has spent, and asks; elsewhere, with --json and --yes, it does not.

    Examples:
      edison runs cancel
      edison runs cancel support-reply --yes
      edison runs cancel 20261115T051816-37753f
    """
    _stop(state, name, "cancel", RunStatus.CANCELLED, ask=not yes)


def _stop(state: CliState, name: str | None, asked: str, aim: str, *, ask: bool) -> None:
    terminal, site = Terminal(state), _site(state)
    control = run_control.RunControl(site, site.require(sites.Role.EDITOR, asked))
    with stored_runs.live_runs(site) as stored:
        run = _named_run(terminal, stored, name)
        if ask and run.status not in (RunStatus.COMPLETED, RunStatus.CANCELLED):
            _confirm(terminal, stored, stored.current(run.id))
        if control.stop(run, asked):
            control.wait_until_stopped(run.id)
        ended = stored.find(run.id)
    if terminal.json:
        terminal.document(fields_of(ended, "status", run_id="id"))
    else:
        terminal.result(f"{ended.experiment} {ended.id} is ", StyledText(ended.status, ODD))
    if ended.status == RunStatus.PAUSED and aim == RunStatus.PAUSED:
        terminal.note(f"Continue with: edison resume {ended.id}")


def _confirm(terminal: Terminal, stored: StoredRuns, run: Run) -> None:
    """Show how far a run is and what it has spent, and ask whether to cancel it."""
    if terminal.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    progress = live_progress.progress_of(stored.connection, run)
    spent = dollars(run_control.spent_microusd(stored, run))
    if progress.budget_microusd is not None:
        spent += f" of {dollars(progress.budget_microusd)}"
    cells = f"{progress.done:,} of {counted(progress.total, 'cell')} done"
    terminal.note(f"{run.experiment} {run.id} is ", StyledText(run.status, ODD))
    terminal.note(f"  {cells}, {spent} spent; its answers are kept, and it cannot be resumed")
    terminal.note(f"  to continue it later instead: edison runs pause {run.id}")
    click.confirm("Cancel it?", abort=True, err=True)


class _ModelCalls(click.ParamType[tuple[str, int]]):
    name = "MODEL=N"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, int]:
        model, sign, calls = str(value).rpartition("=")
        if not (sign and model and calls.isascii() and calls.isdigit() and len(calls) < 9):
            self.fail(f"{value!r} is not MODEL=N, such as small=20", param, ctx)
        return model, int(calls)


@click.command(cls=EdisonCommand)
@click.argument("run", required=False, metavar="[RUN]")
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
@click.option("--resume", multiple=True, metavar="MODEL", help="Resume a paused model; repeatable.")
@click.option(
    "--requeue", type=click.Choice(["errors"]), help="Ask the cells in error again, in this run."
)
@click.option(
    "--budget",
    type=NumberRange(*ranges.BUDGET_USD),
    metavar="USD",
    help="Change the budget of the run, within the other limits.",
)
@click.pass_obj
@takes(SteerRequest)
def steer(state: CliState, request: SteerRequest) -> None:
    """Change a running run, or show its state.

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
    terminal, site = Terminal(state), _site(state)
    changes = request.changes()
    actor = site.require(sites.Role.EDITOR, "steer") if changes else None
    answers: list[SteeringRequest] = []
    with stored_runs.live_runs(site) as stored:
        run = _named_run(terminal, stored, request.run)
        if actor is not None:
            answers = run_control.RunControl(site, actor).steer(run, changes)
        run = stored.current(run.id)
        steered = live_progress.steering_state(stored.connection, run)
    if terminal.json:
        about = fields_of(run, "experiment", "status", run_id="id")
        terminal.document({**about, **steered.as_json(), "answers": as_document(answers)})
    elif answers:
        for answer in answers:
            mark = StyledText("done:", bold=True) if answer.done else StyledText("refused:", BAD)
            terminal.result(mark, f" {answer.said}")
    else:
        _show_state(terminal, run, steered)
    if any(not answer.done for answer in answers):
        raise click.exceptions.Exit(ExitCode.INVALID)


def _show_state(terminal: Terminal, run: Run, steered: SteeringState) -> None:
    progress = steered.progress
    errors = progress.cells.get("error", 0)
    wrong = f", {counted(errors, 'error')}" if errors else ""
    terminal.result(f"{run.experiment} {run.id} is ", StyledText(run.status, ODD))
    terminal.result(f"{progress.done:,} of {counted(progress.total, 'cell')} done{wrong}")
    if steered.models:
        head = ("model", "at once", "in flight", "done", "waiting", "errors", "")
        rows = [head, *(_row(model) for model in steered.models)]
        terminal.table(rows, right=(1, 2, 3, 4, 5), drop=(3, 5), indent=2)
    used = dollars(progress.cost_microusd)
    if steered.left_microusd is None:
        terminal.result(f"budget: {used} used, no limit")
    else:
        limit, left = dollars(progress.budget_microusd), dollars(steered.left_microusd)
        terminal.result(f"budget: {used} of {limit} used, {left} left")
    for request in steered.requests:
        answer = "waits" if request.taken_at is None else "done" if request.done else "refused"
        terminal.result(f"  {request.asked_at[11:19]}  {request.by}  {answer}: {request.said}")


def _row(model: ModelState) -> tuple[str, ...]:
    numbers = (model.in_flight, model.done, model.waiting, model.errors)
    at_once = "-" if model.concurrency is None else f"{model.concurrency:,}"
    return (model.name, at_once, *(f"{number:,}" for number in numbers), model.word)
