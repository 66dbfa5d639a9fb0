"""edison status: the state of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.cli import summary
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import Terminal
from edison_ci.config import load
from edison_ci.errors import ExitCode, UsageError
from edison_ci.numeric import counted, points
from edison_ci.records import RunStatus
from edison_ci.results import live_progress, report, snapshot, stored_runs
from edison_ci.results.run_sentences import cost_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.contracts import WorkerState
    from edison_ci.results.run_result import RunResult
    from edison_ci.store.runs import Run


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """The run to show, with more details; without one, which runs to list."""

    run: str | None
    slices: bool
    failed: bool
    trials: bool


@click.command(cls=EdisonCommand)
@click.argument("run", required=False, metavar="[RUN]")
@click.option(
    "--slices", is_flag=True, help="With RUN: show results by tag, length, difficulty and kind."
)
@click.option("--failed", is_flag=True, help="With RUN: list all failing cases.")
@click.option("--trials", is_flag=True, help="List trials of suggestions too.")
@click.pass_obj
@takes(StatusRequest)
def status(state: CliState, request: StatusRequest) -> None:
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
    terminal, name = Terminal(state), request.run
    for option, chosen in (("slices", request.slices), ("failed", request.failed)):
        if chosen and name is None:
            raise UsageError(f"--{option} needs a RUN", hint=f"edison status latest --{option}")
    site = sites.open_site(state.enter_project(load.find_root(state.folder)))
    with stored_runs.live_runs(site) as stored:
        if name is not None:
            result = stored.result(name)
            _show_one(terminal, result, slices=request.slices, failed=request.failed)
            if result.run.moving and not terminal.json:
                _show_workers(
                    terminal, live_progress.progress_of(stored.connection, result.run).workers
                )
            return
        results = stored.recent(trials=request.trials)
        if terminal.json:
            runs = [{**report.as_json(result), "gates": []} for result in results]
            terminal.document({"runs": runs})
        else:
            _table(terminal, results)


def _show_one(terminal: Terminal, result: RunResult, *, slices: bool, failed: bool) -> None:
    if terminal.json:
        terminal.document(summary.document([result], ExitCode.DONE))
        return
    summary.show_run(terminal, result, slices=not slices, failed=failed)  # the full table follows
    if slices:
        summary.show_slices(terminal, result)


def _show_workers(terminal: Terminal, workers: Sequence[WorkerState]) -> None:
    """Print the workers that make the calls of a running run."""
    for worker in workers:
        checked = f", {counted(worker.checked, 'check')} run" if worker.checked else ""
        leaving = ", leaving" if worker.leaving else ""
        calls = f"{counted(worker.calls, 'call')} in flight, {worker.answered:,} answered"
        terminal.result(f"  worker {worker.name}: {calls}{checked}{leaving}")
        if worker.unable:
            terminal.result(f"  worker {worker.name} does not run {worker.unable}")


def _table(terminal: Terminal, summaries: list[RunResult]) -> None:
    if not summaries:
        terminal.note("no run yet: edison run")
        return
    rows: list[tuple[str, ...]] = [
        ("run", "experiment", "trigger", "status", "verdict", "score", "cells", "cost", "prompt",
         "commit"),
    ]  # fmt: skip
    rows += [
        (
            s.run.id,
            s.run.experiment + _marks(s.run),
            s.run.trigger,
            s.run.status,
            s.run.verdict or "-",
            points(s.overall.composite),
            f"{sum(s.cells.values()) - s.cells['total']:,}/{s.cells['total']:,}",
            cost_text([s]),
            snapshot.prompt_labels(s.run),
            snapshot.source_of(s.run).words,
        )
        for s in summaries
    ]
    if not any(row[-1] for row in rows[1:]):  # without a repository
        rows = [row[:-1] for row in rows]
    terminal.table(rows, right=(6, 7), drop=(2, 6, 7, 8, 9)[: len(rows[0]) - 5])
    trials = [s.run for s in summaries if s.run.is_trial and s.run.status == RunStatus.PAUSED]
    for name in dict.fromkeys(run.experiment for run in trials):
        terminal.note(
            f"a trial of {name} was interrupted; trials are not resumed; "
            f"to test again with its answers: edison refine {name}"
        )


def _marks(run: Run) -> str:
    """Return why a run does not count as evidence."""
    part = "part" if run.shard is None else f"shard {run.shard}"
    labels = ((run.simulation, run.simulated), (part, run.partial), ("trial", run.is_trial))
    marks = [word for word, applies in labels if applies]
    if snapshot.eval_suite_of(run) == "base":
        marks.append(f"eval suite of {run.base_ref}")
    return f" ({', '.join(marks)})" if marks else ""
