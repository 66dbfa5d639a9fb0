"""edison runs merge: the shards of a run combined into one run with its verdict."""

from __future__ import annotations

from pathlib import Path

import click

from edison_ci._dataclass import dataclass
from edison_ci.api import change_coverage
from edison_ci.api import reports as api_reports
from edison_ci.api import shards as api_shards
from edison_ci.cli import lookup
from edison_ci.cli import run as cli_run
from edison_ci.cli.options import CliState, EdisonCommand, takes
from edison_ci.cli.terminal import Terminal
from edison_ci.errors import EdisonError, Location, Problem
from edison_ci.numeric import counted

_FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True)
class MergeCommand:
    """What `edison runs merge` was asked for."""

    shards: tuple[Path, ...]
    into: Path | None
    junit: Path | None
    markdown: Path | None
    sarif: Path | None


@click.command(cls=EdisonCommand)
@click.argument("shards", nargs=-1, required=True, type=_FILE, metavar="SHARD.db...")
@click.option("--into", type=_FILE, metavar="FILE", help="Results file to add the run to.")
@click.option("--junit", type=_FILE, metavar="FILE", help="Write a JUnit report.")
@click.option("--markdown", type=_FILE, metavar="FILE", help="Write a Markdown report.")
@click.option("--sarif", type=_FILE, metavar="FILE", help="Write a SARIF report.")
@click.pass_obj
@takes(MergeCommand)
def merge(state: CliState, request: MergeCommand) -> None:
    """Merge the shards of a run and evaluate its gates.

    Each SHARD.db is a results file of `edison run --shard I/N`, or a copy of one. The result is one
    run with every answer, grade and cost of its shards, and with the verdict that an unsharded run
    would have had. All shards must be complete and match the current files; if one is missing,
    there is no verdict and the exit code is 3. Merging the same shards again changes nothing.

    Examples:
      edison runs merge shards/*.db
      edison runs merge one.db two.db --into merged.db --json
      edison runs merge shards/*.db --junit junit.xml --markdown report.md
    """
    terminal = Terminal(state)
    reports = api_reports.ReportFiles.requested(
        {"junit": request.junit, "md": request.markdown, "sarif": request.sarif}
    )
    try:
        project = lookup.open_project(state)
        if request.into is not None:
            project = api_shards.with_results(project, request.into.absolute())
        merged = api_shards.merge_shards(project, request.shards, offline=state.offline)
    except EdisonError as error:
        cli_run.show_written(terminal, reports.write_failure(error))
        if not state.json:
            raise
        problem = Problem(error.where or Location(""), error.code, error.message, error.hint)
        code = terminal.failure(problem, error.exit_code, verdict="error")
        raise click.exceptions.Exit(code) from None
    for run in merged:
        done = "merged before" if run.before else "merged"
        terminal.note(f"{done}: {counted(run.shards, 'shard')} of {run.experiment}")
    coverage = change_coverage.coverage_of_job(project, state.folder)
    ended = [run.outcome for run in merged]
    cli_run.finish(terminal, project, ended, cli_run.RunNotes(reports, coverage))
