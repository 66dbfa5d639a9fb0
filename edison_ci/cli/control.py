"""edison runs watch, pause and cancel: runs of another process followed and stopped."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from edison_ci.access import site as sites
from edison_ci.api import run_control
from edison_ci.cli import lookup, sessions, summary
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import ODD, StyledText, Terminal
from edison_ci.config import load
from edison_ci.errors import UsageError
from edison_ci.numeric import counted, dollars
from edison_ci.records import RunStatus
from edison_ci.results import live_progress, run_result
from edison_ci.store import database, ledger, runs

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

_POLL_S = 0.25
_PATIENCE_S = 30.0
"""Seconds that `pause` and `cancel` wait for the run to end."""


@click.command(cls=EdisonCommand)
@click.argument("wanted", required=False, metavar="[RUN]")
@click.option(
    "--since", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Start after this event."
)
@click.pass_obj
def watch(state: CliState, wanted: str | None, since: int) -> None:
    """Follow a run of another process.

    Prints the events of the run until it ends. With --json each event is one line: seq, time,
    run_id, type, data.

    Examples:
      edison runs watch
      edison runs watch support-reply --json
    """
    terminal = Terminal(state)
    project = sites.open_site(state.enter_project(load.find_root(state.folder)))
    reader = database.open_reader(project.results)
    try:
        run = lookup.find_run_or_newest(terminal, reader, wanted)
        for event in _follow(project, reader, run, since):
            if terminal.json:
                terminal.compact(_event(event))
            else:
                _show_event(terminal, event)
        summary.show_run(
            terminal,
            run_result.RunResult(
                reader, run_control.current_run(project, runs.find_run(reader, run.id))
            ),
        )
    finally:
        reader.close()


def _follow(
    project: sites.Site, reader: sqlite3.Connection, run: runs.Run, since: int
) -> Iterator[runs.Event]:
    """Yield the events of a run, and wait for more while its process is alive."""
    last = since
    while True:
        living = run_control.current_run(project, runs.find_run(reader, run.id)).moving
        for event in runs.events(reader, run.id, after=last):
            last = event.seq
            yield event
        if not living:
            return
        time.sleep(_POLL_S)


def _event(event: runs.Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "time": event.time,
        "run_id": event.run_id,
        "type": event.type,
        "data": event.data,
    }


def _show_event(terminal: Terminal, event: runs.Event) -> None:
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
@click.argument("wanted", required=False, metavar="[RUN]")
@click.pass_obj
def pause(state: CliState, wanted: str | None) -> None:
    """Pause a run; it can be resumed.

    Calls in flight are finished first. Continue with `edison resume`.

    Examples:
      edison runs pause
      edison runs pause support-reply
    """
    _stop(state, wanted, "pause", RunStatus.PAUSED, ask=False)


@click.command(cls=EdisonCommand)
@click.argument("wanted", required=False, metavar="[RUN]")
@sessions.yes
@click.pass_obj
def cancel(state: CliState, wanted: str | None, yes: bool) -> None:
    """Cancel a run for good.

    Its answers are kept for reuse, but the run cannot be resumed. On a terminal it first shows how
    far the run is and what it has spent, and asks; elsewhere, with --json and --yes, it does not.

    Examples:
      edison runs cancel
      edison runs cancel support-reply --yes
      edison runs cancel 20261115T051816-37753f
    """
    _stop(state, wanted, "cancel", RunStatus.CANCELLED, ask=not yes)


def _stop(state: CliState, wanted: str | None, asked: str, aim: str, *, ask: bool) -> None:
    terminal = Terminal(state)
    project = sites.open_site(state.enter_project(load.find_root(state.folder)))
    actor = project.require(sites.Role.EDITOR, asked)
    reader = database.open_reader(project.results)
    try:
        run = lookup.find_run_or_newest(terminal, reader, wanted)
        if ask and run.status not in (RunStatus.COMPLETED, RunStatus.CANCELLED):
            _confirm(terminal, reader, run_control.current_run(project, run))
        if run_control.RunControl(project, actor).stop(run, asked):
            _wait(reader, run.id)
        ended = runs.find_run(reader, run.id)
    finally:
        reader.close()
    if terminal.json:
        terminal.document({"run_id": ended.id, "status": ended.status})
    else:
        terminal.result(f"{ended.experiment} {ended.id} is ", StyledText(ended.status, ODD))
    if ended.status == RunStatus.PAUSED and aim == RunStatus.PAUSED:
        terminal.note(f"Continue with: edison resume {ended.id}")


def _confirm(terminal: Terminal, reader: sqlite3.Connection, run: runs.Run) -> None:
    """Show how far a run is and what it has spent, and ask whether to cancel it."""
    if terminal.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    progress = live_progress.progress_of(reader, run)
    spent = dollars(ledger.booked(reader, ledger.SpendingCap(f"run:{run.id}", None), "")[0])
    if progress.budget_microusd is not None:
        spent += f" of {dollars(progress.budget_microusd)}"
    cells = f"{progress.done:,} of {counted(progress.total, 'cell')} done"
    terminal.note(f"{run.experiment} {run.id} is ", StyledText(run.status, ODD))
    terminal.note(f"  {cells}, {spent} spent; its answers are kept, and it cannot be resumed")
    terminal.note(f"  to continue it later instead: edison runs pause {run.id}")
    click.confirm("Cancel it?", abort=True, err=True)


def _wait(reader: sqlite3.Connection, run_id: str) -> None:
    """Wait until the process of a run has stopped."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if not runs.find_run(reader, run_id).moving:
            return
        time.sleep(_POLL_S)
    raise UsageError(f"run {run_id} has not stopped yet", hint="check again: edison status")
