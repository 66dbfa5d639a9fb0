"""Requests to start a run, kept so that a repeated one starts no second run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.store.audit import add_audit

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from edison_ci.store.audit import AuditEntry


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A request to start a run of an experiment."""

    key: str
    """Chosen by the sender; the same request has the same key."""
    run_id: str
    experiment: str
    plan_hash: str
    by: str
    asked_at: str
    workflow_url: str | None = None
    """The page of the workflow that GitHub was asked to start; None for a run here."""
    accepted_at: str | None = None
    """When GitHub confirmed that; None while it is not known."""


_COLUMNS = "key, run_id, experiment, plan_hash, by, asked_at, workflow_url, accepted_at"


def find_start(connection: sqlite3.Connection, key: str) -> StartRequest | None:
    """Return the request of a key; None if there is none."""
    row = connection.execute(
        f"select {_COLUMNS} from start_request where key = ?", (key,)
    ).fetchone()
    return None if row is None else StartRequest(*row)


def claim_start(
    request: StartRequest, entry: AuditEntry
) -> Callable[[sqlite3.Connection], StartRequest]:
    """Return the operation that keeps a request, with a row of the audit, unless its key is known.

    It yields the request that has the key.
    """

    def operation(connection: sqlite3.Connection) -> StartRequest:
        known = find_start(connection, request.key)
        if known is not None:
            return known
        connection.execute(
            f"insert into start_request ({_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                request.key,
                request.run_id,
                request.experiment,
                request.plan_hash,
                request.by,
                request.asked_at,
                request.workflow_url,
                request.accepted_at,
            ),
        )
        add_audit(connection, entry)
        return request

    return operation


def newest_dispatches(
    connection: sqlite3.Connection, experiment: str, most: int
) -> list[StartRequest]:
    """Return the newest requests that GitHub was asked to run, the newest first."""
    rows = connection.execute(
        f"select {_COLUMNS} from start_request where experiment = ? and workflow_url is not null "
        "order by asked_at desc, run_id desc limit ?",
        (experiment, most),
    )
    return [StartRequest(*row) for row in rows]


def accept_start(key: str, now: str) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that keeps that GitHub confirmed a request."""

    def operation(connection: sqlite3.Connection) -> None:
        connection.execute("update start_request set accepted_at = ? where key = ?", (now, key))

    return operation


def forget_start(key: str) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that forgets a request whose run could not be started."""

    def operation(connection: sqlite3.Connection) -> None:
        connection.execute("delete from start_request where key = ?", (key,))

    return operation
