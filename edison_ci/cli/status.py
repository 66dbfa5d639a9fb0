"""edison status: the state of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edison_ci.access import site as sites
from edison_ci.api import run_control
from edison_ci.cli import summary
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import Terminal
from edison_ci.config import load
from edison_ci.errors import ExitCode, UsageError
from edison_ci.numeric import counted, points
from edison_ci.records import RunStatus
from edison_ci.results import live_progress, report, run_result, snapshot
from edison_ci.store import database
from edison_ci.store import runs as store_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.contracts import WorkerState


@click.command(cls=EdisonCommand)
@click.argument("wanted", required=False, metavar="[RUN]")
@click.option(
    "--slices", is_flag=True, help="With RUN: show results by tag, length, difficulty and kind."
)
@click.option("--failed", is_flag=True, help="With RUN: list all failing cases.")
@click.option("--trials", is_flag=True, help="List trials of suggestions too.")
@click.pass_obj
def status(state: CliState, /, wanted: str | None, **given: bool) -> None:
    """List recent runs, or show one in detail.

    Without RUN it lists the last 20 runs. RUN is an id, `latest` or the name of an experiment. A
    run whose process died is shown as PAUSED and can be resumed. A trial is a run in which `edison
    refine` tested a suggestion; `--trials` lists these too.

    Examples:
      edison status
      edison status latest
      edison status latest --slices
      edison status latest --failed
      edison status support-reply --json
    """
    terminal = Terminal(state)
    for option in ("slices", "failed"):
        if given[option] and wanted is None:
            raise UsageError(f"--{option} needs a RUN", hint=f"edison status latest --{option}")
    project = sites.open_site(state.enter_project(load.find_root(state.folder)))
    reader = database.open_reader(project.results)
    try:
        if wanted is not None:
            result = run_result.RunResult(
                reader, run_control.current_run(project, store_runs.find_run(reader, wanted))
            )
            _show_one(terminal, result, slices=given["slices"], failed=given["failed"])
            if result.run.moving and not terminal.json:
                _show_workers(terminal, live_progress.progress_of(reader, result.run).workers)
            return
        runs = store_runs.recent_runs(reader, trials=given["trials"])
        results = [
            run_result.RunResult(reader, run_control.current_run(project, run)) for run in runs
        ]
        if terminal.json:
            terminal.document({"runs": [{**report.as_json(one), "gates": []} for one in results]})
        else:
            _table(terminal, results)
    finally:
        reader.close()


def _show_one(
    terminal: Terminal, result: run_result.RunResult, *, slices: bool, failed: bool
) -> None:
    if terminal.json:
        terminal.document(summary.document([result], ExitCode.DONE))
        return
    summary.show_run(terminal, result, slices=not slices, failed=failed)  # the full table follows
    if slices:
        summary.show_slices(terminal, result)


def _show_workers(terminal: Terminal, workers: Sequence[WorkerState]) -> None:
    """Print the workers that make the calls of a run that goes on."""
    for each in workers:
        checked = f", {counted(each.checked, 'check')} run" if each.checked else ""
        leaving = ", leaving" if each.leaving else ""
        calls = f"{counted(each.calls, 'call')} in flight, {each.answered:,} answered"
        terminal.result(f"  worker {each.name}: {calls}{checked}{leaving}")
        if each.unable:
            terminal.result(f"  worker {each.name} does not run {each.unable}")


def _table(terminal: Terminal, summaries: list[run_result.RunResult]) -> None:
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
            summary.cost_text(s),
        )
        for s in summaries
    ]
    terminal.table(rows, right=(6, 7), drop=(2, 6, 7))
    trials = [
        s.run
        for s in summaries
        if s.run.trigger == store_runs.TRIAL and s.run.status == RunStatus.PAUSED
    ]
    for name in dict.fromkeys(run.experiment for run in trials):
        terminal.note(
            f"a trial of {name} was interrupted; trials are not resumed. "
            f"edison refine {name} tests again and reuses its answers"
        )


def _marks(run: store_runs.Run) -> str:
    """Return why a run does not count as evidence."""
    part = "part" if run.shard is None else f"shard {run.shard}"
    told = (
        (run.simulation, run.simulated),
        (part, run.partial),
        ("trial", run.trigger == store_runs.TRIAL),
    )
    marks = [word for word, on in told if on]
    if snapshot.eval_suite_of(run) == "base":
        marks.append(f"eval suite of {run.base_ref}")
    return f" ({', '.join(marks)})" if marks else ""
