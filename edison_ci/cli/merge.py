"""edison runs merge: the shards of a run combined into one run with its verdict."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edison_ci.access import own_results, proposal_terms
from edison_ci.access import site as sites
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import coverage, lookup, reporting
from edison_ci.cli import run as cli_run
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import Terminal
from edison_ci.decide import verdict as decide_verdict
from edison_ci.errors import EdisonError, ExitCode, Location, Problem, StoreError, UsageError
from edison_ci.execute import progress, run_options, shard_merge
from edison_ci.numeric import counted
from edison_ci.records import RunStatus
from edison_ci.results import decisions, snapshot
from edison_ci.store import audit, database, import_check, liveness, runs
from edison_ci.store import merge as store_merge

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from edison_ci.config.load import Project
    from edison_ci.execute.shard_merge import ShardFileRun


_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=EdisonCommand)
@click.argument("shards", nargs=-1, required=True, type=_FILE, metavar="SHARD.db...")
@click.option("--into", type=_FILE, metavar="FILE", help="Results file to add the run to.")
@click.option("--junit", type=_FILE, metavar="FILE", help="Write a JUnit report.")
@click.option("--markdown", type=_FILE, metavar="FILE", help="Write a Markdown report.")
@click.option("--sarif", type=_FILE, metavar="FILE", help="Write a SARIF report.")
@click.pass_obj
def merge(state: CliState, /, shards: tuple[Path, ...], into: Path | None, **given: Any) -> None:
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
    wanted = reporting.requested_reports(given)
    try:
        project = _project(state, into)
        ended = _merge_shards(state, terminal, project, shards)
    except EdisonError as error:
        wanted.write_failure(terminal, error)
        if not state.json:
            raise
        problem = Problem(error.where or Location(""), error.code, error.message, error.hint)
        code = terminal.failure(problem, error.exit_code, verdict="error")
        raise click.exceptions.Exit(code) from None
    cli_run.finish(
        terminal,
        project,
        ended,
        cli_run.Surroundings(wanted, coverage.coverage_of_job(project, state.folder)),
    )


def _project(state: CliState, into: Path | None) -> Project:
    """Return the project; with `into`, that file holds its results."""
    project = lookup.open_project(state)
    return project if into is None else _with_results(project, into.absolute())


def _with_results(project: Project, results: Path) -> Project:
    return replace(project, file=project.file.model_copy(update={"results": str(results)}))


def _merge_shards(
    state: CliState, terminal: Terminal, project: Project, shards: Sequence[Path]
) -> list[run_options.RunOutcome]:
    """Return the outcome of each merged run, including those merged before."""
    site = sites.Site(project.root, project.file)
    own_results.set_aside_untrusted(project.root, site.results)
    own_results.claim_new_results(project)
    actor = site.require(sites.Role.EDITOR, "merge", site.file.results)
    with ExitStack() as stack:
        files = []
        for path in {path.absolute(): path for path in shards}.values():
            if path.absolute() == site.results.absolute():
                hint = "merge into another file: --into FILE"
                raise UsageError(f"{path} cannot be merged into itself", hint=hint)
            files.append(import_check.open_shard_file(path))
            stack.callback(files[-1].close)
        pieces = shard_merge.shard_sets(files)
        before = _merged_before(site.results, pieces)
        heads = _audit_heads(site.results, [piece for each in pieces for piece in each.all])
        for name, run_id in {p.first.run.experiment: p.run_id for p in pieces}.items():
            stack.enter_context(liveness.experiment_lock(site.locks, name, run_id))
        stage = stack.enter_context(store_merge.stage_beside(site.results))
        staged = _with_results(project, stage)
        ended = [before.get(p.run_id) or _merge_run(state, staged, p) for p in pieces]
        fresh = [p for p in pieces if p.run_id not in before]
        if fresh:
            told = {
                p.run_id: {piece.run.id: heads[piece.file.path] for piece in p.all} for p in fresh
            }
            entry = site.entry(actor, "merge", site.file.results, after=told)
            store_merge.publish(site.results, stage, told, entry)
    for each in pieces:
        done = "merged before" if each.run_id in before else "merged"
        terminal.note(f"{done}: {counted(len(each.all), 'shard')} of {each.first.run.experiment}")
    return ended


def _merge_run(
    state: CliState, staged: Project, pieces: shard_merge.ShardSet
) -> run_options.RunOutcome:
    """Merge the shards of one run in the staging file and evaluate its gates."""
    run = pieces.first.run
    against = snapshot.snapshot_of(run)["command line"].get("against")
    target = run_options.resumed_target(staged, staged.experiment(run.experiment), against)
    target = target.widened(staged, run_options.options_of(run).selection)
    context = run_sessions.run_context(target.project, offline=state.offline)
    joint = shard_merge.MergeSession(
        proposal_terms.apply_base_terms(target.project),
        target.experiment,
        context,
        against=target.against,
    )
    return joint.join(pieces, joint.check(pieces))


def _merged_before(
    results: Path, pieces: Sequence[shard_merge.ShardSet]
) -> dict[str, run_options.RunOutcome]:
    """Return the runs that were merged before; refuse results that a shard was run in."""
    if not results.exists():
        return {}
    with closing(database.open_reader(results)) as connection:
        known = runs.run_ids(connection)
        for each in pieces:
            own = [piece for piece in each.all if piece.run.id in known]
            if own and each.run_id not in known:
                raise UsageError(
                    f"{own[0]} was run in {results}, which already counts its calls",
                    hint="merge into another file: --into FILE",
                )
        return {
            p.run_id: _stored_outcome(connection, p.run_id) for p in pieces if p.run_id in known
        }


def _audit_heads(results: Path, pieces: Sequence[ShardFileRun]) -> dict[Path, str]:
    """Return number and hash of the newest row of the log of each shard.

    They are kept with the merge. Raises StoreError if a log is broken, or is not the one that was
    merged before: its end was cut off, or it was written anew.
    """
    known = _merged_heads(results)
    found = {}
    for piece in pieces:
        rows, _, head = known.get(piece.run.id, "").partition(":")
        number = int(rows or 0)
        chain = audit.verify_audit(piece.file.connection, {number})
        wrong = chain.problem
        if head and chain.hashes.get(number) != head:
            wrong = wrong or f"row {number}, with which it was merged before, is not there"
        if wrong:
            raise StoreError(
                f"the audit log of {piece} was changed: {wrong}",
                hint="take the file from the job that made it",
            )
        found[piece.file.path] = f"{chain.rows}:{chain.newest}" if chain.rows else ""
    return found


def _merged_heads(results: Path) -> dict[str, str]:
    """Return the heads of the logs of shards that were merged before, by their runs."""
    if not results.exists():
        return {}
    with closing(database.open_reader(results)) as connection:
        merges = [
            row.entry.after for row in audit.all_audit(connection) if row.entry.action == "merge"
        ]
    return {
        run_id: head
        for after in merges
        for shards in (after or {}).values()
        for run_id, head in shards.items()
    }


def _stored_outcome(connection: sqlite3.Connection, run_id: str) -> run_options.RunOutcome:
    """Return the outcome of a stored run."""
    run = runs.find_run(connection, run_id)
    code = decide_verdict.RunDecision.of(decisions.decisions_of(connection, run_id)).exit_code
    if run.status == RunStatus.FAILED:
        code = ExitCode.NOT_MEASURED
    return run_options.RunOutcome(
        run_id, run.status, code, progress.Progress(total=run.cells_planned)
    )
