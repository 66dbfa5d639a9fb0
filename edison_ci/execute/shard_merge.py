"""Shards that were run on several machines, merged into one run.

They must be all the shards of one plan, each of them finished, and the files here must be those
that they were run on: then the gates are decided on all cells together, as if one machine had run
them.
Everything is put together in a file of its own, and goes into the results in one transaction.
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
from edison_ci.execute.progress_events import Bulletin
from edison_ci.execute.run_options import Ended, RunOptions, allowing_code, options_of
from edison_ci.execute.runner import Progress, id_of_cell
from edison_ci.execute.session import Held, Session, changes
from edison_ci.execute.work import Work
from edison_ci.plan.selection import Shard, parse_shard, shard_of
from edison_ci.results.snapshot import kept_snapshot
from edison_ci.store.absorbing import absorb
from edison_ci.store.database import open_database, open_reader, transaction
from edison_ci.store.owners import Owner
from edison_ci.store.runs import (
    CellState,
    case_ids,
    cell_state,
    cell_states,
    cell_statuses,
    count_cells,
    start_run,
)
from edison_ci.store.writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

    from edison_ci.plan.plan import Plan
    from edison_ci.store.foreign import ShardFile
    from edison_ci.store.runs import NewRun, Run

_LISTED = 5


@dataclass(frozen=True, slots=True)
class Piece:
    """A shard, and the file that has it."""

    file: ShardFile
    run: Run
    shard: Shard

    def __str__(self) -> str:
        return f"shard {self.shard} ({self.file.name})"


@dataclass(frozen=True, slots=True)
class Pieces:
    """The shards of one run, by their number; each of them finished."""

    by_index: Mapping[int, Piece]

    @property
    def first(self) -> Piece:
        """One of them, to ask what all have in common."""
        return next(iter(self.by_index.values()))

    @property
    def all(self) -> tuple[Piece, ...]:
        """The shards in their order."""
        return tuple(self.by_index[index] for index in sorted(self.by_index))

    @property
    def run_id(self) -> str:
        """The run that they become: the same whenever the same shards are put together."""
        named = "\n".join(sorted(piece.run.id for piece in self.all))
        start = min(piece.run.id for piece in self.all).partition("-")[0]
        return f"{start}-{hashlib.sha256(named.encode()).hexdigest()[:6]}"

    @property
    def options(self) -> RunOptions:
        """What the command line asked of the shards, without which shard it was."""
        options = options_of(self.first.run)
        whole = replace(options.selection, shard=None)
        doubts = dict.fromkeys(doubt for p in self.all for doubt in options_of(p.run).doubts)
        return replace(
            options, trigger=self.first.run.trigger, selection=whole, doubts=tuple(doubts)
        )


def pieces_of(files: Iterable[ShardFile]) -> list[Pieces]:
    """Return the runs whose shards files have; refuses shards that do not belong together."""
    found: dict[tuple[str, str], dict[int, Piece]] = {}
    for file in files:
        for run in file.runs:
            piece = Piece(file, run, parse_shard(str(run.shard)))
            against = kept_snapshot(run)["command line"].get("against") or {}
            group = found.setdefault((run.experiment, against.get("material", "head")), {})
            _add(group, piece)
    # A comparison on the base's material comes first, as it was run.
    return [Pieces(found[key]) for key in sorted(found)]


def _add(group: dict[int, Piece], piece: Piece) -> None:
    """Put a shard to those that it belongs to."""
    _refuse_unfinished(piece)
    _refuse_foreign_cases(piece)
    for other in group.values():
        _refuse_apart(other, piece)
    same = group.get(piece.shard.index)
    if same is None:
        group[piece.shard.index] = piece
    elif same.run.id != piece.run.id or _content(same) != _content(piece):
        raise UsageError(
            f"shard {piece.shard} is there twice: {same.file.name} and {piece.file.name}",
            hint="leave one of them out",
        )


def _refuse_unfinished(piece: Piece) -> None:
    """Refuse a shard that stopped; one that has too many errors is finished all the same."""
    run = piece.run
    done = count_cells(piece.file.connection, run.id)
    if run.status not in ("COMPLETED", "FAILED") or done < run.cells_planned:
        raise IncompleteRun(
            f"{piece} of {run.experiment} is {run.status} with {done:,} of {run.cells_planned:,} "
            "cells: there is no verdict on a part",
            hint=f"go on with it where it was run: edison resume {run.id}",
        )


def _refuse_foreign_cases(piece: Piece) -> None:
    cases = case_ids(piece.file.connection, piece.run.id)
    foreign = [case for case in cases if shard_of(case, piece.shard.count) != piece.shard.index]
    if foreign:
        raise UsageError(
            f"{piece} has cases of another shard: {', '.join(foreign[:_LISTED])}",
            hint="run the shard again: its file is not what a run writes",
        )


def _refuse_apart(one: Piece, other: Piece) -> None:
    """Refuse two shards that are not of one run."""
    if one.shard.count != other.shard.count:
        raise UsageError(f"{one} and {other} are not of one run", hint="split it once, then merge")
    places = changes(kept_snapshot(one.run), kept_snapshot(other.run))
    differing = ", ".join(place for place in places if place != "command line")
    if one.run.plan_hash != other.run.plan_hash:
        raise UsageError(
            f"{other} is of another plan than {one}: {differing or 'cases'} changed",
            hint="run all shards of the same commit",
        )
    if one.run.base_commit != other.run.base_commit:
        raise UsageError(
            f"{one} is compared with {one.run.base_commit}, {other} with {other.run.base_commit}",
            hint="run all shards --against the same commit",
        )


def _content(piece: Piece) -> dict[str, CellState]:
    return cell_states(piece.file.connection, piece.run.id)


class Joint(Session):
    """A run that is put together from shards, and then ends like any other."""

    def check(self, pieces: Pieces) -> Plan:
        """Return the plan of the whole run; refuses what is missing, and files that changed."""
        options = pieces.options
        project = allowing_code(self._project) if options.allow_code else self._project
        plan = self._planned(project, options)
        first = pieces.first.run
        if plan.hash != first.plan_hash:
            now = json.loads(self.snapshot(options))
            places = [p for p in changes(kept_snapshot(first), now) if p != "command line"]
            raise UsageError(
                f"the shards of {first.experiment} were run on other files than those here: "
                f"{', '.join(places[:_LISTED]) or 'cases'} changed",
                hint="merge in a checkout of the commit that the shards were run on",
            )
        count = pieces.first.shard.count
        work = Work(project, self._sides, options.selection)
        needed = {shard_of(case.id, count) for case in work.cases()}
        missing = sorted(needed - pieces.by_index.keys())
        if missing:
            named = ", ".join(f"{index}/{count}" for index in missing)
            raise IncompleteRun(
                f"{len(missing)} of {len(needed)} shards of {first.experiment} are missing: "
                f"{named}",
                hint="run them, then merge all: there is no verdict on a part",
            )
        return plan

    def join(self, pieces: Pieces, plan: Plan) -> Ended:
        """Put the shards together in the results file, and conclude the run."""
        with ExitStack() as stack:
            owner = Owner(self._folder / "locks")
            stack.callback(owner.close)
            run_id, options = pieces.run_id, pieces.options
            new = self._whole(self._new(run_id, plan, options, owner.id), pieces)
            with closing(open_database(self._path)) as target:
                _fill(target, new, pieces.all)
            writer = stack.enter_context(Writer(self._path))
            reader = open_reader(self._path)
            stack.callback(reader.close)
            held = Held(run_id, writer, reader, owner, self._project, plan, options, "", None, None)
            work = self._complete(held)
            return asyncio.run(self._end(held, work))

    def _whole(self, new: NewRun, pieces: Pieces) -> NewRun:
        """Return the new run as of when its first shard began, with what it is made of."""
        snapshot = json.loads(new.snapshot)
        snapshot["command line"]["shards"] = {str(p.shard): p.run.id for p in pieces.all}
        return replace(
            new,
            snapshot=json.dumps(snapshot, sort_keys=True),
            simulated=any(piece.run.simulated for piece in pieces.all),
            now=min(piece.run.created_at for piece in pieces.all),
        )

    def _complete(self, held: Held) -> Work:
        """Return the cells of the run, having seen that each is there, and no other."""
        work = Work(held.project, self._sides, held.options.selection)
        seen = 0
        missing: list[str] = []
        for task in work.tasks():
            found = cell_state(held.reader, id_of_cell(held.run_id, task))
            seen += 1
            if found is None and len(missing) < _LISTED:
                missing.append(f"{task.case.id}@{task.configuration.name}#{task.draw}")
        if missing:
            raise IncompleteRun(
                f"cells of {self._experiment.id} are missing: {', '.join(missing)}",
                hint="run the shards again",
            )
        there = sum(cell_statuses(held.reader, held.run_id).values())
        if there > seen:
            raise UsageError(
                f"the shards of {self._experiment.id} have {there - seen:,} cells that are not in "
                "the plan",
                hint="run the shards again",
            )
        return work

    async def _end(self, held: Held, work: Work) -> Ended:
        cells = Counter(cell_statuses(held.reader, held.run_id))
        progress = Progress(total=cells.total(), cells=cells)
        await self._begin(held)
        purse, stop = self._lanes(held).purse, self._experiment.file.stop
        bulletin = Bulletin(self._tools, purse, held.reader, alert_at=stop.alert_at)
        ask = self._gates.ask(held, work, now=self._now)
        return await self._conclude(held, bulletin, progress, lambda: ask(None))


def _fill(target: sqlite3.Connection, new: NewRun, pieces: Sequence[Piece]) -> None:
    with transaction(target):
        start_run(new)(target)
        for piece in pieces:
            source = piece.file.connection
            absorb(target, source, piece.run.id, into=new.id, shard=str(piece.shard))
