"""Runs that leave the results as a file of their own, and come into others.

What leaves is a whole results file with these runs alone. What comes in does so in one transaction.
Answers that come in are never used again: whoever wrote the file may have written anything.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from edison_ci.errors import StoreError
from edison_ci.store.absorbing import take_over
from edison_ci.store.audit import add_audit
from edison_ci.store.checking import check_database
from edison_ci.store.database import (
    changing,
    copy_to,
    open_database,
    open_reader,
    transaction,
    translated,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from edison_ci.store.audit import AuditEntry


# It is put together in a copy beside them, looked at as `db check` would, and then taken over in
# one transaction. A process that is killed leaves the copy behind and the results as they were.
_DAY_S = 86_400
_SUFFIXES = ("", "-wal", "-shm", "-journal")


@contextmanager
def stage_beside(results: Path) -> Iterator[Path]:
    """Yield the path of a copy of the results, or of a file that is to be made like them."""
    for left in results.parent.glob(f".{results.name}.*.stage"):  # by a process that was killed
        if time.time() - left.stat().st_mtime > _DAY_S:
            _remove(left)
    stage = results.with_name(f".{results.name}.{uuid.uuid4().hex[:12]}.stage")
    try:
        if results.exists():
            with closing(open_reader(results)) as connection:
                connection.execute("pragma query_only = 0")  # or no copy is made
                copy_to(connection, stage)
        yield stage
    except sqlite3.Error as error:
        raise translated(error, results) from None
    finally:
        _remove(stage)


def publish(results: Path, stage: Path, run_ids: Iterable[str], entry: AuditEntry) -> None:
    """Take finished runs from the stage into the results, in one transaction."""
    with closing(open_reader(stage)) as source:
        wrong = [f"{one.what}: {text}" for one in check_database(source) for text in one.problems]
        if wrong:
            raise StoreError(
                f"the results would not be sound: {wrong[0]}",
                hint="look at every shard, and at `edison db check`; nothing was changed",
            )
        with changing(results) as target:
            for run_id in run_ids:
                take_over(target, source, run_id)
            add_audit(target, entry)


def _remove(stage: Path) -> None:
    for suffix in _SUFFIXES:
        with suppress(OSError):
            stage.with_name(stage.name + suffix).unlink(missing_ok=True)


_SAME = "experiment, plan_hash, verdict, cells_planned, created_at, finished_at, commit_id"


def extract(results: Path, run_ids: Iterable[str], target: Path) -> None:
    """Write a results file with these runs, and all that they rest on."""
    making = target.with_name(f"{target.name}.making")
    try:
        with closing(open_reader(results)) as source, closing(open_database(making)) as made:
            with transaction(made):
                for run_id in run_ids:
                    take_over(made, source, run_id)
            copy_to(made, target)
    except sqlite3.Error as error:
        raise translated(error, results) from None


def known_runs(
    results: Path, source: sqlite3.Connection, run_ids: Iterable[str]
) -> dict[str, bool]:
    """Return the runs that the results have already, and whether they are the same."""
    if not results.exists():
        return {}
    found: dict[str, bool] = {}
    with closing(open_reader(results)) as here:
        for run_id in run_ids:
            sql = f"select {_SAME} from run where id = ?"
            ours = here.execute(sql, (run_id,)).fetchone()
            if ours is not None:
                found[run_id] = ours == source.execute(sql, (run_id,)).fetchone()
    return found


def accept(
    results: Path,
    source: sqlite3.Connection,
    run_ids: Iterable[str],
    entry: AuditEntry,
    add_up: Callable[[sqlite3.Connection, str], None],
) -> None:
    """Bring runs of another file into the results, in one transaction.

    They are added up anew: the sums in the file may say anything.
    """
    with changing(results) as target:
        for run_id in run_ids:
            take_over(target, source, run_id, foreign=True)
            add_up(target, run_id)
        add_audit(target, entry)
