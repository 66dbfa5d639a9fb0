"""edison merge: put the shards of a run together, and decide."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.coverage import coverage_of_job
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.reporting import asked
from edison_ci.cli.run import finish
from edison_ci.cli.terminal import Terminal, counted
from edison_ci.config.load import Project, find_root, load_project
from edison_ci.decide.verdict import RunDecision
from edison_ci.errors import EdisonError, ExitCode, Location, Problem, UsageError
from edison_ci.execute.run_options import Ended
from edison_ci.execute.run_targets import target_again
from edison_ci.execute.runner import Progress
from edison_ci.execute.shard_merge import Joint, Pieces, pieces_of
from edison_ci.operate.actors import Role
from edison_ci.operate.own_results import claim, set_aside_unknown
from edison_ci.operate.proposal_terms import on_terms_of_base
from edison_ci.operate.sessions import tools_for
from edison_ci.operate.site import Site
from edison_ci.results.decisions import decisions_of
from edison_ci.results.snapshot import kept_snapshot
from edison_ci.store.database import open_reader
from edison_ci.store.extracts import publish, stage_beside
from edison_ci.store.foreign import open_shard_file
from edison_ci.store.owners import only_one
from edison_ci.store.runs import find_run, run_ids

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=EdisonCommand)
@click.argument("shards", nargs=-1, required=True, type=_FILE, metavar="SHARD.db...")
@click.option("--into", type=_FILE, metavar="FILE", help="Results to add the run to.")
@click.option("--junit", type=_FILE, metavar="FILE", help="Write the results as JUnit.")
@click.option("--markdown", type=_FILE, metavar="FILE", help="Write the results as Markdown.")
@click.option("--sarif", type=_FILE, metavar="FILE", help="Write findings as SARIF.")
@click.pass_obj
def merge(state: State, /, shards: tuple[Path, ...], into: Path | None, **given: Any) -> None:
    """Put the shards of a run together, and decide.

    Each SHARD.db holds the results of `edison run --shard I/N` on some machine, or is a copy of
    them. What comes out is one run, with every answer, grade and cost of its shards, and with the
    verdict that a run of all cases would have had. All shards must be there, finished, and of the
    plan that the files here have: with a shard missing there is no verdict, and the exit code is 3.
    Merging the same shards again changes nothing.

    Examples:
      edison merge shards/*.db
      edison merge one.db two.db --into merged.db --json
      edison merge shards/*.db --junit junit.xml --markdown report.md
    """
    terminal = Terminal(state)
    wanted = asked(given)
    try:
        project = _project(state, into)
        ended = _merged(state, terminal, project, shards)
    except EdisonError as error:
        wanted.write_failure(terminal, error)
        if not state.json:
            raise
        problem = Problem(error.where or Location(""), error.code, error.message, error.hint)
        code = terminal.failure(problem, error.exit_code, verdict="error")
        raise click.exceptions.Exit(code) from None
    finish(terminal, project, ended, wanted, coverage_of_job(project, state.folder))


def _project(state: State, into: Path | None) -> Project:
    """Return the project, with its results where the merged run goes."""
    project = load_project(state.entered(find_root(state.folder)))
    return project if into is None else _keeping_in(project, into.absolute())


def _keeping_in(project: Project, results: Path) -> Project:
    return replace(project, file=project.file.model_copy(update={"results": str(results)}))


def _merged(
    state: State, terminal: Terminal, project: Project, shards: Sequence[Path]
) -> list[Ended]:
    """Return how each merged run ended, those that were merged before included."""
    site = Site(project.root, project.file)
    set_aside_unknown(project.root, site.results)
    claim(project)
    actor = site.require(Role.EDITOR, "merge", site.file.results)
    with ExitStack() as stack:
        files = []
        for path in {path.absolute(): path for path in shards}.values():
            if path.absolute() == site.results.absolute():
                hint = "merge into another file: --into FILE"
                raise UsageError(f"{path} cannot be merged into itself", hint=hint)
            files.append(open_shard_file(path))
            stack.callback(files[-1].close)
        pieces = pieces_of(files)
        before = _known_before(site.results, pieces)
        for name, run_id in {p.first.run.experiment: p.run_id for p in pieces}.items():
            stack.enter_context(only_one(site.locks, name, run_id))
        stage = stack.enter_context(stage_beside(site.results))
        staged = _keeping_in(project, stage)
        ended = [before.get(p.run_id) or _joined(state, staged, p) for p in pieces]
        fresh = [p for p in pieces if p.run_id not in before]
        if fresh:
            told = {p.run_id: [piece.run.id for piece in p.all] for p in fresh}
            entry = site.entry(actor, "merge", site.file.results, after=told)
            publish(site.results, stage, told, entry)
    for each in pieces:
        done = "merged before" if each.run_id in before else "merged"
        terminal.note(f"{done}: {counted(len(each.all), 'shard')} of {each.first.run.experiment}")
    return ended


def _joined(state: State, staged: Project, pieces: Pieces) -> Ended:
    """Put shards together on the stage, and decide."""
    run = pieces.first.run
    against = kept_snapshot(run)["command line"].get("against")
    target = target_again(staged, staged.experiment(run.experiment), against)
    tools = tools_for(target.project, offline=state.offline)
    joint = Joint(
        on_terms_of_base(target.project), target.experiment, tools, against=target.against
    )
    return joint.join(pieces, joint.check(pieces))


def _known_before(results: Path, pieces: Sequence[Pieces]) -> dict[str, Ended]:
    """Return the runs that are there already; refuses results in which a shard was run itself."""
    if not results.exists():
        return {}
    with closing(open_reader(results)) as connection:
        known = run_ids(connection)
        for each in pieces:
            own = [piece for piece in each.all if piece.run.id in known]
            if own and each.run_id not in known:
                raise UsageError(
                    f"{own[0]} was run in {results}, where its calls are booked already",
                    hint="merge into another file: --into FILE",
                )
        return {p.run_id: _ended(connection, p.run_id) for p in pieces if p.run_id in known}


def _ended(connection: sqlite3.Connection, run_id: str) -> Ended:
    """Return how a run ended that was merged before."""
    run = find_run(connection, run_id)
    code = RunDecision.of(decisions_of(connection, run_id)).exit_code
    if run.status == "FAILED":
        code = ExitCode.NOT_MEASURED
    return Ended(run_id, run.status, code, Progress(total=run.cells_planned))
