"""Results files that another machine wrote, checked before they are read.

Such a file is not trusted: nothing in it is run, its tables must be exactly those of this version,
every page must be sound, and its values must be possible.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.errors import StoreError, UsageError
from edison_ci.store.database import (
    BUSY_TIMEOUT_S,
    migrations,
    refuse_what_is_not_ours,
    store_error,
    version_of,
)
from edison_ci.store.integrity import check_database
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edison_ci.store.runs import Run


# It comes from another machine, so it is read as what a stranger wrote.
_HINT = "merge takes the results of `edison run --shard I/N`, or copies of them"


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A results file with runs of shards, open for reading."""

    path: Path
    connection: sqlite3.Connection
    runs: tuple[Run, ...]
    """The newest of each experiment, and of each eval suite that it was measured on."""

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
            raise store_error(error, path) from None
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
        key = (run.experiment, _eval_suite(run))
        if key not in seen:
            seen.add(key)
            yield run


def _eval_suite(run: Run) -> str:
    try:
        return str(json.loads(run.snapshot)["command line"]["against"]["eval_suite"])
    except (ValueError, KeyError, TypeError):
        return "head"


_TABLES = (
    "select type, name, tbl_name, sql from sqlite_schema where name not like 'sqlite_%' "
    "order by type, name"
)
_TIME = "'20[0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:*'"
_RUN = "'20[0-9][0-9][01][0-9][0-3][0-9]T[0-9][0-9][0-9][0-9][0-9][0-9]-[0-9a-f]*'"
_UNFINISHED = "a run has not ended"
_IMPOSSIBLE = (
    ("a run id is not valid", f"select 1 from run where id not glob {_RUN} or length(id) > 40"),
    (
        _UNFINISHED,
        "select 1 from run where status not in ('COMPLETED', 'FAILED', 'CANCELLED', 'PAUSED') "
        "or wanted is not null",
    ),
    ("a time is not valid", f"select 1 from run where created_at not glob {_TIME}"),
    ("a time is not valid", f"select 1 from attempt where sent_at not glob {_TIME}"),
    (
        "an amount is negative",
        "select 1 from attempt where est_microusd < 0 or cost_microusd < 0 or est_tokens < 0",
    ),
    (
        "an amount is negative",
        "select 1 from answer where cost_microusd < 0 or tokens_in < 0 or tokens_out < 0 "
        "or latency_ms < 0 or answer_no < 0",
    ),
    ("a score is not between 0 and 1", "select 1 from cell where composite not between 0 and 1"),
    ("a score is not between 0 and 1", "select 1 from component where score not between 0 and 1"),
    (
        "a score is not between 0 and 1",
        "select 1 from fallback_answer where composite not between 0 and 1",
    ),
    (
        "a JSON value is not valid",
        "select 1 from run where not (json_valid(snapshot) and json_valid(labels))",
    ),
    ("a JSON value is not valid", "select 1 from run_case where not json_valid(tags)"),
    (
        "a JSON value is not valid",
        "select 1 from decision where not (json_valid(gate) and json_valid(detail))",
    ),
    ("a JSON value is not valid", "select 1 from event where not json_valid(data)"),
    ("a JSON value is not valid", "select 1 from steering where not json_valid(what)"),
    ("a JSON value is not valid", "select 1 from rollup_component where not json_valid(bins)"),
    ("a JSON value is not valid", "select 1 from manual_grade where not json_valid(criteria)"),
)
"""What no valid results file has, and SQL that finds it."""


def open_foreign(path: Path, *, hint: str) -> sqlite3.Connection:
    """Open a file that another machine wrote, for reading; refuses what is damaged or foreign."""
    try:
        refuse_what_is_not_ours(path)
    except UsageError as error:
        raise UsageError(error.message, hint=hint) from None
    connection = _opened(path)
    try:
        _refuse_another_version(connection, path, hint)
        _refuse_damage(connection, path)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise store_error(error, path) from None
        raise
    return connection


def _opened(path: Path) -> sqlite3.Connection:
    """Open a file for reading, in a folder too that cannot be written."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    alone = not path.with_name(f"{path.name}-wal").exists()
    for uri in (address, f"{address}&immutable=1") if alone else (address,):
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S)
        try:
            for setting in ("query_only = 1", "trusted_schema = 0", "cell_size_check = 1"):
                connection.execute(f"pragma {setting}")
            connection.execute("select count(*) from sqlite_schema").fetchone()
        except sqlite3.Error as error:
            connection.close()
            reason = error
        else:
            return connection
    raise store_error(reason, path) from None


def _refuse_another_version(connection: sqlite3.Connection, path: Path, hint: str) -> None:
    version, ours = version_of(connection), len(migrations())
    if version != ours:
        than = "a newer" if version > ours else "an older"
        raise UsageError(
            f"{path} was made by {than} edison",
            hint="use the same version of edison here and there",
        )
    with closing(sqlite3.connect(":memory:")) as fresh:
        for script in migrations():
            fresh.executescript(script)
        expected = fresh.execute(_TABLES).fetchall()
    if connection.execute(_TABLES).fetchall() != expected:
        raise UsageError(f"the tables of {path} are not those of this edison", hint=hint)


def _refuse_damage(connection: sqlite3.Connection, path: Path) -> None:
    said = connection.execute("pragma quick_check(1)").fetchone()[0]
    if said != "ok":
        raise StoreError(f"{path} is damaged: {said}", hint="copy it again, or make it again")


def problems_in(connection: sqlite3.Connection, *, unfinished: bool = False) -> Iterator[str]:
    """Yield what is wrong with the rows of a file that another machine wrote.

    With `unfinished`, runs may not have ended.
    """
    for said, sql in _IMPOSSIBLE:
        if unfinished and said == _UNFINISHED:
            continue
        if connection.execute(f"{sql} limit 1").fetchone() is not None:
            yield said
    for one in check_database(connection):
        yield from (f"{one.what}: {text}" for text in one.problems)
