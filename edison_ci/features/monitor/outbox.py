"""The outbox: notifications that wait to be sent, and the result of each delivery.

A row is written in the transaction of the fact that it reports, so that neither is there without
the other. It stays `waiting` until a server has accepted it, even if the process dies. So a message
may be sent twice, never lost; its id is the same both times.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.records import canonical_json

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class StoredNotification:
    """A notification for one recipient."""

    id: str
    recipient: str
    address: str
    """Of mail, one address of the recipient; else empty."""
    occasion: str
    message: dict[str, Any]
    state: str
    """waiting, sent, digested (sent as part of a digest) or failed (given up)."""
    attempts: int
    error: str
    created_at: str
    due_at: str
    done_at: str | None = None


@dataclass(frozen=True, slots=True)
class RecipientCounts:
    """How many notifications of a recipient are in each state, and the last of them."""

    recipient: str
    waiting: int = 0
    sent: int = 0
    failed: int = 0
    last_sent_at: str | None = None
    last_error: str = ""
    """The newest error of what waits or was given up; empty without one."""
    next_at: str | None = None
    """When the next waiting one is tried."""


_COLUMNS = (
    "id, recipient, address, occasion, message, state, attempts, error, created_at, due_at, done_at"
)


def add_notification(
    connection: sqlite3.Connection, message: Mapping[str, Any], to: str, address: str = ""
) -> None:
    """Add a message for a recipient in the current transaction; it is due at once."""
    named = (message["id"], to, address, message["occasion"])
    connection.execute(
        "insert into notification (id, recipient, address, occasion, message, state, created_at, "
        "due_at) values (?1, ?2, ?3, ?4, ?5, 'waiting', ?6, ?6)",
        (*named, canonical_json(message), message["at"]),
    )


def due_notifications(
    connection: sqlite3.Connection, *, now: str, latest: str
) -> list[StoredNotification]:
    """Return what is due, oldest first.

    No delay reaches beyond `latest`: a row that does was written before the clock was set back.
    """
    rows = connection.execute(
        f"select {_COLUMNS} from notification where state = 'waiting' "
        "and (due_at <= ? or due_at > ?) order by created_at, rowid",
        (now, latest),
    )
    return [_row(row) for row in rows]


def sent_since(connection: sqlite3.Connection, recipient: str, address: str, since: str) -> int:
    """Return how many messages an address of a recipient was sent since a time."""
    return int(
        connection.execute(
            "select count(*) from notification where recipient = ? and address = ? "
            "and state = 'sent' and done_at > ?",
            (recipient, address, since),
        ).fetchone()[0]
    )


def note_sent(connection: sqlite3.Connection, notification_id: str, now: str) -> None:
    """Note that a message was accepted, with those that it is a digest of."""
    connection.execute(
        "update notification set state = 'sent', error = '', done_at = ? where id = ?",
        (now, notification_id),
    )


def note_failure(
    connection: sqlite3.Connection, notification: StoredNotification, error: str, *, due_at: str
) -> None:
    """Note that sending a message failed, and when it is tried again."""
    connection.execute(
        "update notification set attempts = attempts + 1, error = ?, due_at = ? where id = ?",
        (error, due_at, notification.id),
    )


def postpone(connection: sqlite3.Connection, notification: StoredNotification, due_at: str) -> None:
    """Let everything that waits for the address of a message wait until a time."""
    connection.execute(
        "update notification set due_at = ?1 where recipient = ?2 and address = ?3 "
        "and state = 'waiting' and due_at < ?1",
        (due_at, notification.recipient, notification.address),
    )


def give_up(
    connection: sqlite3.Connection, notification: StoredNotification, error: str, now: str
) -> None:
    """Note that a message is not tried again."""
    connection.execute(
        "update notification set state = 'failed', attempts = attempts + 1, error = ?, "
        "done_at = ? where id = ?",
        (error, now, notification.id),
    )


def put_in_digest(
    connection: sqlite3.Connection, digest: Mapping[str, Any], members: Sequence[StoredNotification]
) -> None:
    """Add a digest, and note that it contains these messages."""
    add_notification(connection, digest, members[0].recipient, members[0].address)
    connection.executemany(
        "update notification set state = 'digested', digest = ?, done_at = ? where id = ?",
        [(digest["id"], digest["at"], member.id) for member in members],
    )


def prune_notifications(connection: sqlite3.Connection, before: str) -> None:
    """Remove what was sent or given up before a time."""
    # Members go with their digest, so that none is left without it.
    ended = "state <> 'waiting' and done_at < ?1"
    connection.execute(
        f"delete from notification where digest in (select id from notification where {ended})",
        (before,),
    )
    connection.execute(f"delete from notification where {ended} and digest is null", (before,))


def count_notifications(connection: sqlite3.Connection) -> list[RecipientCounts]:
    """Return the counts of each recipient, by name; parts of a digest count as sent."""
    rows = connection.execute(
        "select recipient, sum(state = 'waiting'), sum(state in ('sent', 'digested')), "
        "sum(state = 'failed'), max(iif(state = 'sent', done_at, null)), "
        "coalesce((select error from notification e where e.recipient = n.recipient "
        "and e.error <> '' order by coalesce(e.done_at, e.due_at) desc, e.rowid desc limit 1), ''),"
        " min(iif(state = 'waiting', due_at, null)) "
        "from notification n group by recipient order by recipient"
    )
    return [RecipientCounts(*row) for row in rows]


def _row(row: tuple[Any, ...]) -> StoredNotification:
    name, recipient, address, occasion, message, *rest = row
    return StoredNotification(name, recipient, address, occasion, json.loads(message), *rest)
