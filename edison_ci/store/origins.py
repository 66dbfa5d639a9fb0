"""Where runs came from: who ran them and where, who brought them here, and which key signed them.

A run that was made here has no row. What a row says of who ran it, and where, is what its bundle
says; it is worth as much as the signature. Whether a key is trusted is asked when it matters, so
that a key that is removed from trust.yaml counts no more.

Attempts and human grades that came with a run name it in their column `origin`. The views
`own_attempt` and `counted_grade` leave out what does not count; whatever decides reads them, and
only what shows a run reads the tables.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection

MADE_HERE = "run_id not in (select run_id from run_origin)"
"""In a query on sums of runs: only what runs of this machine did and paid for."""


class RunOrigin(NamedTuple):
    """Where a run came from."""

    run_id: str
    ran_by: str
    """Who ran it, as the bundle says; empty if it does not."""
    ran_on: str
    """The machine, as the bundle says."""
    ran_as: str
    """How it was started there: cli, schedule, replay, ..."""
    way: str
    """import, push, pull or restore."""
    source: str
    """File or address that it came from."""
    brought_by: str
    brought_at: str
    signed_by: str | None
    """Public key of its valid signature; None without one."""
    trusted: bool = False
    """Whether that key was trusted when it came, or at the last run since."""

    def is_trusted(self, keys: Collection[str]) -> bool:
        """Whether it is signed with one of these keys."""
        return self.signed_by is not None and self.signed_by in keys


_COLUMNS = ", ".join(RunOrigin._fields)


def add_origin(connection: sqlite3.Connection, origin: RunOrigin) -> None:
    """Write where a run came from, in the current transaction."""
    places = ", ".join("?" * len(RunOrigin._fields))
    connection.execute(f"insert into run_origin ({_COLUMNS}) values ({places})", origin)


def refresh_trust(keys: Collection[str]) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that writes which runs are signed with one of these keys."""

    def operation(connection: sqlite3.Connection) -> None:
        trusted = "coalesce(signed_by in (select value from json_each(?1)), 0)"
        connection.execute(
            f"update run_origin set trusted = {trusted} where trusted <> {trusted}",
            (json.dumps([*keys]),),
        )

    return operation


def trust_for_reading(connection: sqlite3.Connection, keys: Collection[str]) -> None:
    """Let a reader count human grades by these keys, whatever the last run has written of them."""
    columns = _COLUMNS.replace("trusted", "coalesce(signed_by in (select value from key), 0)")
    sql = "select sql from main.sqlite_schema where type = 'view' and sql like '%counted_grade%'"
    counting = [str(row[0]) for row in connection.execute(sql)]
    connection.execute("pragma query_only = 0")  # the file itself is opened for reading only
    connection.execute("create temp table key (value text)")
    connection.executemany("insert into key values (?)", [[key] for key in keys])
    connection.execute(
        f"create temp view run_origin ({_COLUMNS}) as select {columns} from main.run_origin"
    )
    for view in counting:
        connection.execute(view.replace("CREATE VIEW", "create temp view", 1))
    connection.execute("pragma query_only = 1")


def origin_of(connection: sqlite3.Connection, run_id: str) -> RunOrigin | None:
    """Return where a run came from; None if it was made here."""
    row = connection.execute(
        f"select {_COLUMNS} from run_origin where run_id = ?", (run_id,)
    ).fetchone()
    return None if row is None else RunOrigin(*row)


def who_ran(connection: sqlite3.Connection, run_id: str) -> tuple[str, str]:
    """Return who ran a run, and on which machine; empty if it is not known."""
    origin = origin_of(connection, run_id)
    if origin is not None:
        return origin.ran_by, origin.ran_on
    row = connection.execute(
        "select actor, host from audit where run_id = ? order by seq limit 1", (run_id,)
    ).fetchone()
    return ("", "") if row is None else (row[0], row[1])
