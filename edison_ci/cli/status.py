"""edison status, watch, pause and cancel: what runs are doing, and how to stop one."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from edison_ci import formatting
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.progress import dollars
from edison_ci.cli.summary import STATUS_COLORS, document, show_facets, show_run, spent
from edison_ci.cli.terminal import ODD, Ink, Terminal, counted
from edison_ci.config.load import find_root
from edison_ci.errors import ExitCode, UsageError
from edison_ci.formatting import points
from edison_ci.operate.actors import Role
from edison_ci.operate.site import Site, site_at
from edison_ci.results.run_document import as_json
from edison_ci.results.run_result import RunResult
from edison_ci.results.snapshot import material_of
from edison_ci.store.database import open_reader
from edison_ci.store.events import Event, events
from edison_ci.store.ledger import reclaim
from edison_ci.store.owners import is_alive, want
from edison_ci.store.runs import TRIAL, Run, find_run, move_run, recent_runs
from edison_ci.store.writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

_POLL_S = 0.25
_PATIENCE_S = 30.0
"""How long `pause` and `cancel` wait for the run to end."""


@click.command(cls=EdisonCommand)
@click.argument("wanted", required=False, metavar="[RUN]")
@click.option("--facets", is_flag=True, help="With RUN: by tag, length, difficulty and kind.")
@click.pass_obj
def status(state: State, wanted: str | None, facets: bool) -> None:
    """Show the last runs, or one in full.

    Without RUN the last 20 are listed. RUN is an id, `latest` or the name of an experiment. A run
    whose process died is shown as PAUSED: it can be resumed. A trial is a run that `edison refine`
    made of a suggestion.

    Examples:
      edison status
      edison status latest
      edison status latest --facets
      edison status support-reply --json
    """
    terminal = Terminal(state)
    if facets and wanted is None:
        raise UsageError("--facets is about one run", hint="edison status latest --facets")
    project = site_at(state.entered(find_root(state.folder)))
    reader = _reader(project)
    try:
        if wanted is not None:
            result = RunResult(reader, _seen(project, find_run(reader, wanted)))
            _show_one(terminal, result, facets=facets)
            return
        results = [RunResult(reader, _seen(project, run)) for run in recent_runs(reader)]
        if terminal.json:
            terminal.document({"runs": [{**as_json(one), "gates": []} for one in results]})
        else:
            _table(terminal, results)
    finally:
        reader.close()


def _show_one(terminal: Terminal, result: RunResult, *, facets: bool) -> None:
    if terminal.json:
        terminal.document(document([result], ExitCode.DONE))
        return
    show_run(terminal, result, facets=not facets)  # the table of all of them follows
    if facets:
        show_facets(terminal, result)


def _table(terminal: Terminal, summaries: list[RunResult]) -> None:
    if not summaries:
        terminal.note("no run yet: edison run")
        return
    rows = [("run", "experiment", "trigger", "status", "verdict", "score", "cells", "cost")]
    rows += [
        (
            s.run.id,
            s.run.experiment + _marks(s.run),
            s.run.trigger,
            s.run.status,
            s.run.verdict or "-",
            points(s.overall.composite),
            f"{sum(s.cells.values()) - s.cells['total']:,}/{s.cells['total']:,}",
            spent(s),
        )
        for s in summaries
    ]
    terminal.table(rows, right=(6, 7))
    trials = [s.run for s in summaries if s.run.trigger == TRIAL and s.run.status == "PAUSED"]
    for name in dict.fromkeys(run.experiment for run in trials):
        terminal.note(
            f"a trial of {name} was cut off: it tried a suggestion, and nobody resumes it. "
            f"edison refine {name} tries anew, and pays for no answer twice"
        )


def _marks(run: Run) -> str:
    """Return what keeps a run from being evidence."""
    part = "part" if run.shard is None else f"shard {run.shard}"
    told = (("simulated", run.simulated), (part, run.partial), ("trial", run.trigger == TRIAL))
    marks = [word for word, on in told if on]
    if material_of(run) == "base":
        marks.append(f"material of {run.base_ref}")
    return f" ({', '.join(marks)})" if marks else ""


@click.command(cls=EdisonCommand)
@click.argument("wanted", default="latest", metavar="[RUN]")
@click.option("--since", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Last seen.")
@click.pass_obj
def watch(state: State, wanted: str, since: int) -> None:
    """Follow a run that goes on elsewhere.

    Another process does it; this one shows what happens until it ends. With --json each event is
    one line: seq, time, run_id, type, data.

    Examples:
      edison watch
      edison watch support-reply --json
    """
    terminal = Terminal(state)
    project = site_at(state.entered(find_root(state.folder)))
    reader = _reader(project)
    try:
        run = find_run(reader, wanted)
        for event in _follow(project, reader, run, since):
            if terminal.json:
                terminal.compact(_event(event))
            else:
                _tell(terminal, event)
        show_run(terminal, RunResult(reader, _seen(project, find_run(reader, run.id))))
    finally:
        reader.close()


def _follow(project: Site, reader: sqlite3.Connection, run: Run, since: int) -> Iterator[Event]:
    """Yield the events of a run, waiting for more while its process lives."""
    last = since
    while True:
        living = _seen(project, find_run(reader, run.id)).moving
        for event in events(reader, run.id, after=last):
            last = event.seq
            yield event
        if not living:
            return
        time.sleep(_POLL_S)


def _event(event: Event) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "time": event.time,
        "run_id": event.run_id,
        "type": event.type,
        "data": event.data,
    }


def _tell(terminal: Terminal, event: Event) -> None:
    data = event.data
    clock = event.time[11:19]
    if event.type == "run:progress":
        share = 100 * data["done"] // max(data["total"], 1)
        cost = f", {dollars(data['cost_microusd'])}" if data["cost_microusd"] else ""
        cells = counted(data["total"], "cell")
        terminal.result(f"{clock}  {share:3d}%  {data['done']:,} of {cells}{cost}")
    elif event.type == "status:changed":
        color = STATUS_COLORS.get(data["to"], ODD)
        terminal.result(f"{clock}  {data['from']} -> ", Ink(data["to"], color))
    elif event.type == "aggregate:completed" and "look" in data:
        look = data["look"]
        going = "going on" if data["more"] else "that is all"
        terminal.result(
            f"{clock}  look {look['number']} of {look['of']}: {data['verdict']}, {going}"
        )
    elif event.type in ("error", "cost:alert"):
        terminal.result(f"{clock}  ", Ink(event.type, ODD), f"  {json.dumps(data)}")


@click.command(cls=EdisonCommand)
@click.argument("wanted", default="latest", metavar="[RUN]")
@click.pass_obj
def pause(state: State, wanted: str) -> None:
    """Stop a run so that it can go on later.

    Calls in flight are finished first; `edison resume` goes on with it.

    Examples:
      edison pause
      edison pause support-reply
    """
    _stop(state, wanted, "pause", "PAUSED")


@click.command(cls=EdisonCommand)
@click.argument("wanted", default="latest", metavar="[RUN]")
@click.pass_obj
def cancel(state: State, wanted: str) -> None:
    """Stop a run for good.

    Its answers are kept and will be reused, but it cannot be resumed.

    Examples:
      edison cancel
      edison cancel 20261115T051816-37753f
    """
    _stop(state, wanted, "cancel", "CANCELLED")


def _stop(state: State, wanted: str, asked: str, aim: str) -> None:
    terminal = Terminal(state)
    project = site_at(state.entered(find_root(state.folder)))
    project.require(Role.EDITOR, asked)
    path = project.results
    reader = _reader(project)
    try:
        run = find_run(reader, wanted)
        if run.status in ("COMPLETED", "CANCELLED", aim) or (
            aim == "PAUSED" and run.status == "FAILED"
        ):
            raise UsageError(f"run {run.id} is {run.status} already", hint="see: edison status")
        if run.moving and run.owner and is_alive(_locks(project), run.owner):
            with Writer(path) as writer:
                writer.submit(want(run.id, asked)).result()
            _wait(reader, run.id)
        else:
            _settle(path, project, run, aim, asked)
        ended = find_run(reader, run.id)
    finally:
        reader.close()
    if terminal.json:
        terminal.document({"run_id": ended.id, "status": ended.status})
    else:
        terminal.result(f"{ended.experiment} {ended.id} is ", Ink(ended.status, ODD))
    if ended.status == "PAUSED" and aim == "PAUSED":
        terminal.note(f"Go on with: edison resume {ended.id}")


def _wait(reader: sqlite3.Connection, run_id: str) -> None:
    """Wait until the process at work on a run has stopped."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if not find_run(reader, run_id).moving:
            return
        time.sleep(_POLL_S)
    raise UsageError(
        f"run {run_id} was asked to stop and has not yet", hint="look again: edison status"
    )


def _settle(path: Path, project: Site, run: Run, aim: str, asked: str) -> None:
    """Stop a run that no process is at work on."""
    locks, now = _locks(project), formatting.stamp(formatting.now())
    with Writer(path) as writer:
        writer.submit(reclaim(lambda owner: is_alive(locks, owner), now=now)).result()
        if run.status == "FAILED":  # nobody works on it, and CANCELLED is only reached on the way
            writer.submit(move_run(run.id, "EXECUTING", now)).result()
        if aim == "PAUSED" and run.status == "PENDING":
            writer.submit(move_run(run.id, "EXECUTING", now)).result()
        writer.submit(move_run(run.id, aim, now, stopped_by=asked)).result()


def _reader(project: Site) -> sqlite3.Connection:
    return open_reader(project.results)


def _locks(project: Site) -> Path:
    return project.locks


def _seen(project: Site, run: Run) -> Run:
    """Return a run as it is: one whose process died is paused, whatever it wrote last."""
    return run.as_seen(alive=bool(run.owner) and is_alive(_locks(project), run.owner or ""))
