"""Is this file a whole results file of ours, and which shards does it have?

It comes from another machine, so it is read as what a stranger wrote.
"""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

from edison_ci.errors import UsageError
from edison_ci.frozen import dataclass
from edison_ci.store.database import translated
from edison_ci.store.foreign import open_foreign
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edison_ci.store.runs import Run

_HINT = "merge takes the results of `edison run --shard I/N`, or copies of them"


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A results file with runs of shards, open for reading."""

    path: Path
    connection: sqlite3.Connection
    runs: tuple[Run, ...]
    """The newest of each experiment, and of each material that it was measured on."""

    @property
    def name(self) -> str:
        """What people call it."""
        return str(self.path)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()


def open_shard_file(path: Path) -> ShardFile:
    """Open a file that another machine wrote; refuses what is damaged, foreign or no shard."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}", hint=_HINT)
    connection = open_foreign(path, hint=_HINT)
    try:
        runs = tuple(_newest(connection))
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise translated(error, path) from None
        raise
    if not runs:
        connection.close()
        raise UsageError(f"{path} has no run of a shard", hint=_HINT)
    return ShardFile(path, connection, runs)


def _newest(connection: sqlite3.Connection) -> Iterator[Run]:
    rows = connection.execute(
        "select id from run where shard is not null order by created_at desc, rowid desc"
    )
    seen: set[tuple[str, str]] = set()
    for (run_id,) in rows.fetchall():
        run = find_run(connection, run_id)
        key = (run.experiment, _material(run))
        if key not in seen:
            seen.add(key)
            yield run


def _material(run: Run) -> str:
    try:
        return str(json.loads(run.snapshot)["command line"]["against"]["material"])
    except (ValueError, KeyError, TypeError):
        return "head"
