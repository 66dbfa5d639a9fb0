"""Merging of shards that were run on several machines into one run.

They must be all the shards of one plan, each of them finished, and the files here must be those
that they were run with: then the gates are decided on all cells together, as if one machine had run
them. The run is assembled in a separate file, and goes into the results in one transaction.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.errors import IncompleteRun, UsageError
from edison_ci.execute.budgets import RunCaps
from edison_ci.execute.clients import OpenResults
from edison_ci.execute.execution import begin, clients_of
from edison_ci.execute.planned_files import changed_places
from edison_ci.execute.progress import Progress, ProgressReporter
from edison_ci.execute.run_end import conclude
from edison_ci.execute.run_options import RunOptions, RunOutcome, allow_code, options_of
from edison_ci.execute.session import OpenRun, Session
from edison_ci.execute.tasks import RunWork, cell_name, id_of_cell
from edison_ci.plan.selection import Shard, parse_shard, shard_of
from edison_ci.records import RunStatus, Side
from edison_ci.results.snapshot import snapshot_of
from edison_ci.store.cells import (
    CellState,
    case_ids,
    cell_state,
    cell_states,
    cell_statuses,
    count_cells,
)
from edison_ci.store.database import open_database, open_reader, transaction
from edison_ci.store.liveness import ProcessLock
from edison_ci.store.merge import merge_shard
from edison_ci.store.runs import start_run
from edison_ci.store.writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from edison_ci.plan.plan import Plan
    from edison_ci.store.integrity import ShardFile
    from edison_ci.store.runs import NewRun, Run

_LISTED = 5


@dataclass(frozen=True, slots=True)
class ShardFileRun:
    """A shard, and the file that has it."""

    file: ShardFile
    run: Run
    shard: Shard

    def __str__(self) -> str:
        return f"shard {self.shard} ({self.file.name})"


@dataclass(frozen=True, slots=True)
class ShardSet:
    """The shards of one run, by their number; each of them finished."""

    by_index: Mapping[int, ShardFileRun]

    @property
    def first(self) -> ShardFileRun:
        """One of them, for what all have in common."""
        return next(iter(self.by_index.values()))

    @property
    def all(self) -> tuple[ShardFileRun, ...]:
        """The shards in their order."""
        return tuple(self.by_index[index] for index in sorted(self.by_index))

    @property
    def run_id(self) -> str:
        """Id of the merged run: the same whenever the same shards are merged."""
        named = "\n".join(sorted(piece.run.id for piece in self.all))
        start = min(piece.run.id for piece in self.all).partition("-")[0]
        return f"{start}-{hashlib.sha256(named.encode()).hexdigest()[:6]}"

    @property
    def options(self) -> RunOptions:
        """The options of the shards, without the shard itself."""
        options = options_of(self.first.run)
        whole = replace(options.selection, shard=None)
        doubts = dict.fromkeys(doubt for p in self.all for doubt in options_of(p.run).doubts)
        return replace(
            options, trigger=self.first.run.trigger, selection=whole, doubts=tuple(doubts)
        )


def shard_sets(files: Iterable[ShardFile]) -> list[ShardSet]:
    """Return the runs whose shards are in files; raises if shards do not belong together."""
    groups: dict[tuple[str, str], dict[int, ShardFileRun]] = {}
    for file in files:
        for run in file.runs:
            piece = ShardFileRun(file, run, parse_shard(str(run.shard)))
            against = snapshot_of(run)["command line"].get("against") or {}
            group = groups.setdefault((run.experiment, against.get("eval_suite", Side.HEAD)), {})
            _add(group, piece)
    # A comparison on the base's eval suite comes first, as it was run.
    return [ShardSet(groups[key]) for key in sorted(groups)]


def _add(group: dict[int, ShardFileRun], piece: ShardFileRun) -> None:
    """Add a shard to the others of its run."""
    _refuse_unfinished(piece)
    _refuse_foreign_cases(piece)
    for other in group.values():
        _refuse_apart(other, piece)
    same = group.get(piece.shard.index)
    if same is None:
        group[piece.shard.index] = piece
    elif same.run.id != piece.run.id or _content(same) != _content(piece):
        raise UsageError(
            f"shard {piece.shard} is given twice: {same.file.name} and {piece.file.name}",
            hint="leave one of them out",
        )


def _refuse_unfinished(piece: ShardFileRun) -> None:
    """Refuse a shard that stopped early; one that failed for too many errors is finished."""
    run = piece.run
    done = count_cells(piece.file.connection, run.id)
    if run.status not in (RunStatus.COMPLETED, RunStatus.FAILED) or done < run.cells_planned:
        raise IncompleteRun(
            f"{piece} of {run.experiment} is {run.status} with {done:,} of {run.cells_planned:,} "
            "cells: the gates need all cells",
            hint=f"resume it where it was run: edison resume {run.id}",
        )


def _refuse_foreign_cases(piece: ShardFileRun) -> None:
    cases = case_ids(piece.file.connection, piece.run.id)
    foreign = [case for case in cases if shard_of(case, piece.shard.count) != piece.shard.index]
    if foreign:
        raise UsageError(
            f"{piece} has cases of another shard: {', '.join(foreign[:_LISTED])}",
            hint="run the shard again: its file was changed",
        )


def _refuse_apart(first: ShardFileRun, other: ShardFileRun) -> None:
    """Refuse two shards that are not of one run."""
    if first.shard.count != other.shard.count:
        raise UsageError(
            f"{first} and {other} are not of one run", hint="split it once, then merge"
        )
    places = changed_places(snapshot_of(first.run), snapshot_of(other.run))
    differing = ", ".join(place for place in places if place != "command line")
    if first.run.plan_hash != other.run.plan_hash:
        raise UsageError(
            f"{other} has another plan than {first}: {differing or 'cases'} changed",
            hint="run all shards of the same commit",
        )
    if first.run.base_commit != other.run.base_commit:
        raise UsageError(
            f"{first} is compared with {first.run.base_commit}, "
            f"{other} with {other.run.base_commit}",
            hint="run all shards --against the same commit",
        )


def _content(piece: ShardFileRun) -> dict[str, CellState]:
    return cell_states(piece.file.connection, piece.run.id)


class MergeSession(Session):
    """A run that is assembled from shards, and then ends like any other."""

    def check(self, pieces: ShardSet) -> Plan:
        """Return the plan of the whole run; raises if shards are missing or files changed."""
        options = pieces.options
        project = allow_code(self._project) if options.allow_code else self._project
        plan = self._plan(project, options)
        first = pieces.first.run
        if plan.hash != first.plan_hash:
            now = json.loads(self.snapshot(options))
            places = [p for p in changed_places(snapshot_of(first), now) if p != "command line"]
            raise UsageError(
                f"the shards of {first.experiment} were run on other files than those here: "
                f"{', '.join(places[:_LISTED]) or 'cases'} changed",
                hint="merge in a checkout of the commit that the shards were run on",
            )
        count = pieces.first.shard.count
        work = RunWork(project, self._sides, options.selection)
        needed = {shard_of(case.id, count) for case in work.cases()}
        missing = sorted(needed - pieces.by_index.keys())
        if missing:
            named = ", ".join(f"{index}/{count}" for index in missing)
            raise IncompleteRun(
                f"{len(missing)} of {len(needed)} shards of {first.experiment} are missing: "
                f"{named}",
                hint="run them, then merge all: the gates need all cells",
            )
        return plan

    def join(self, pieces: ShardSet, plan: Plan) -> RunOutcome:
        """Assemble the shards in the results file, and conclude the run."""
        with ExitStack() as stack:
            owner = ProcessLock(self._folder / "locks")
            stack.callback(owner.close)
            run_id, options = pieces.run_id, pieces.options
            new = self._whole(self._new(run_id, plan, options, owner.id, self._now()), pieces)
            with closing(open_database(self._path)) as target:
                _fill(target, new, pieces.all)
            writer = stack.enter_context(Writer(self._path))
            reader = open_reader(self._path)
            stack.callback(reader.close)
            work = RunWork(self._project, self._sides, options.selection, plan.clusters)
            run = OpenRun(
                run_id,
                self._experiment,
                self._context,
                self._gates,
                work,
                plan,
                options,
                new.now,
                "",
                OpenResults(writer, reader, owner),
            )
            _refuse_incomplete(run)
            return asyncio.run(_end(run))

    def _whole(self, new: NewRun, pieces: ShardSet) -> NewRun:
        """Return the new run with the start time of its first shard, and the ids of all shards."""
        snapshot = json.loads(new.snapshot)
        snapshot["command line"]["shards"] = {str(p.shard): p.run.id for p in pieces.all}
        return replace(
            new,
            snapshot=json.dumps(snapshot, sort_keys=True),
            simulated=any(piece.run.simulated for piece in pieces.all),
            models=pieces.all[0].run.models,
            now=min(piece.run.created_at for piece in pieces.all),
        )


def _refuse_incomplete(run: OpenRun) -> None:
    """Raise an error if a cell of a run is missing, or one too many."""
    planned = 0
    missing: list[str] = []
    for task in run.work.tasks():
        planned += 1
        if cell_state(run.reader, id_of_cell(run.id, task)) is None and len(missing) < _LISTED:
            missing.append(cell_name(task))
    if missing:
        raise IncompleteRun(
            f"cells of {run.experiment.id} are missing: {', '.join(missing)}",
            hint="run the shards again",
        )
    stored = sum(cell_statuses(run.reader, run.id).values())
    if stored > planned:
        raise UsageError(
            f"the shards of {run.experiment.id} have {stored - planned:,} cells that are not in "
            "the plan",
            hint="run the shards again",
        )


async def _end(run: OpenRun) -> RunOutcome:
    cells = Counter(cell_statuses(run.reader, run.id))
    progress = Progress(total=cells.total(), cells=cells)
    await begin(run)
    reporter = ProgressReporter(run, clients_of(run, RunCaps.of(run)))
    ask = run.gates.ask(run, run.work)
    return await conclude(run, reporter, progress, lambda: ask(None))


def _fill(target: sqlite3.Connection, new: NewRun, pieces: Sequence[ShardFileRun]) -> None:
    with transaction(target):
        start_run(new)(target)
        for piece in pieces:
            source = piece.file.connection
            merge_shard(target, source, piece.run.id, into=new.id, shard=str(piece.shard))
