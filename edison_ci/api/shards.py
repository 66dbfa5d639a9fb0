"""Shards of a run, made on several machines, merged into one run of a results file."""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.access import own_results, proposal_terms
from edison_ci.access.site import Role, Site
from edison_ci.api.sessions import run_context
from edison_ci.decide.verdict import RunDecision
from edison_ci.errors import ExitCode, StoreError, UsageError
from edison_ci.execute import shard_merge
from edison_ci.execute.progress import Progress
from edison_ci.execute.run_options import RunOutcome, options_of
from edison_ci.execute.targets import resumed_target
from edison_ci.records import RunStatus
from edison_ci.results.decisions import decisions_of
from edison_ci.results.snapshot import snapshot_of
from edison_ci.store import audit, integrity, runs
from edison_ci.store import merge as store_merge
from edison_ci.store.database import open_reader
from edison_ci.store.liveness import experiment_lock

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence
    from pathlib import Path

    from edison_ci.config.load import Project
    from edison_ci.execute.shard_merge import ShardFileRun


class MergedRun(NamedTuple):
    """A run that was merged from its shards."""

    outcome: RunOutcome
    experiment: str
    shards: int
    before: bool
    """Whether it was merged before, so that nothing changed."""


def with_results(project: Project, results: Path) -> Project:
    """Return the project with another results file."""
    return replace(project, file=project.file.model_copy(update={"results": str(results)}))


def merge_shards(
    project: Project, shards: Sequence[Path], *, offline: bool = False
) -> list[MergedRun]:
    """Merge the runs of these files into the results, and evaluate their gates.

    Raises UsageError if a file is missing, unfinished, or of other files of the project.
    """
    site = Site(project.root, project.file)
    own_results.set_aside_untrusted(project.root, site.results)
    own_results.claim_new_results(project)
    actor = site.require(Role.EDITOR, "merge", site.file.results)
    with ExitStack() as stack:
        files = []
        for path in {path.absolute(): path for path in shards}.values():
            if path.absolute() == site.results.absolute():
                hint = "merge into another file: --into FILE"
                raise UsageError(f"{path} cannot be merged into itself", hint=hint)
            files.append(integrity.open_shard_file(path))
            stack.callback(files[-1].close)
        sets = shard_merge.shard_sets(files)
        before = _merged_before(site.results, sets)
        heads = _audit_heads(site.results, [shard for pieces in sets for shard in pieces.all])
        for name, run_id in {p.first.run.experiment: p.run_id for p in sets}.items():
            stack.enter_context(experiment_lock(site.locks, name, run_id))
        stage = stack.enter_context(store_merge.stage_beside(site.results))
        staged = with_results(project, stage)
        ended = [before.get(p.run_id) or _merge_run(staged, p, offline=offline) for p in sets]
        if fresh := [pieces for pieces in sets if pieces.run_id not in before]:
            merged_heads = {
                pieces.run_id: {shard.run.id: heads[shard.file.path] for shard in pieces.all}
                for pieces in fresh
            }
            entry = site.entry(actor, "merge", site.file.results, after=merged_heads)
            store_merge.publish(site.results, stage, merged_heads, entry)
    return [
        MergedRun(
            outcome, pieces.first.run.experiment, len(pieces.all), before=pieces.run_id in before
        )
        for outcome, pieces in zip(ended, sets, strict=True)
    ]


def _merge_run(staged: Project, pieces: shard_merge.ShardSet, *, offline: bool) -> RunOutcome:
    """Merge the shards of one run in the staging file and evaluate its gates."""
    run = pieces.first.run
    against = snapshot_of(run)["command line"].get("against")
    target = resumed_target(staged, staged.experiment(run.experiment), against)
    target = target.widened(staged, options_of(run).selection)
    context = run_context(target.project, offline=offline)
    joint = shard_merge.MergeSession(
        proposal_terms.apply_base_terms(target.project),
        target.experiment,
        context,
        against=target.against,
    )
    return joint.join(pieces, joint.check(pieces))


def _merged_before(results: Path, sets: Sequence[shard_merge.ShardSet]) -> dict[str, RunOutcome]:
    """Return the runs that were merged before; refuse results that a shard was run in."""
    if not results.exists():
        return {}
    with closing(open_reader(results)) as connection:
        stored_ids = runs.run_ids(connection)
        for pieces in sets:
            own = [shard for shard in pieces.all if shard.run.id in stored_ids]
            if own and pieces.run_id not in stored_ids:
                raise UsageError(
                    f"{own[0]} was run in {results}, which already counts its calls",
                    hint="merge into another file: --into FILE",
                )
        return {
            pieces.run_id: _stored_outcome(connection, pieces.run_id)
            for pieces in sets
            if pieces.run_id in stored_ids
        }


def _audit_heads(results: Path, shards: Sequence[ShardFileRun]) -> dict[Path, str]:
    """Return number and hash of the newest row of the log of each shard.

    They are kept with the merge. Raises StoreError if a log is broken, or is not the one that was
    merged before: its end was cut off, or it was replaced.
    """
    merged_heads = _merged_heads(results)
    heads = {}
    for shard in shards:
        rows, _, head = merged_heads.get(shard.run.id, "").partition(":")
        number = int(rows or 0)
        chain = audit.verify_audit(shard.file.connection, {number})
        wrong = chain.problem
        if head and chain.hashes.get(number) != head:
            wrong = wrong or f"row {number}, with which it was merged before, is not there"
        if wrong:
            raise StoreError(
                f"the audit log of {shard} was changed: {wrong}",
                hint="take the file from the job that made it",
            )
        heads[shard.file.path] = f"{chain.rows}:{chain.newest}" if chain.rows else ""
    return heads


def _merged_heads(results: Path) -> dict[str, str]:
    """Return the heads of the logs of shards that were merged before, by their runs."""
    if not results.exists():
        return {}
    with closing(open_reader(results)) as connection:
        merges = [
            row.entry.after for row in audit.all_audit(connection) if row.entry.action == "merge"
        ]
    return {
        run_id: head
        for after in merges
        for shards in (after or {}).values()
        for run_id, head in shards.items()
    }


def _stored_outcome(connection: sqlite3.Connection, run_id: str) -> RunOutcome:
    """Return the outcome of a stored run."""
    run = runs.find_run(connection, run_id)
    code = RunDecision.of(decisions_of(connection, run_id)).exit_code
    if run.status == RunStatus.FAILED:
        code = ExitCode.NOT_MEASURED
    return RunOutcome(run_id, run.status, code, Progress(total=run.cells_planned))
