"""Rows of recurring duties: when each is due, and what came of it last."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import redacted
from edison_ci.store.database import open_reader, store_error

if TYPE_CHECKING:
    from pathlib import Path

Outcome = Literal["done", "waiting", "failed"]

_COLUMNS = "name, every_s, due_at, started_at, ended_at, outcome, detail, failures, done_at"


@dataclass(frozen=True, slots=True)
class DutyState:
    """A duty as it was left by the last process that had it."""

    name: str
    every_s: int
    due_at: str
    """ISO-8601 UTC, like the other times."""
    started_at: str
    ended_at: str | None
    """None while it is running, and if its process died."""
    outcome: Outcome | None
    detail: str
    failures: int
    """In a row."""
    done_at: str | None
    """None if it was never done."""


@dataclass(frozen=True, slots=True)
class DutyEnd:
    """What came of a duty, and when it is due again."""

    at: str
    due_at: str
    outcome: Outcome
    detail: str


def read_duties(connection: sqlite3.Connection) -> dict[str, DutyState]:
    """Return the stored duties by name."""
    rows = connection.execute(f"select {_COLUMNS} from duty order by name")
    return {row[0]: DutyState(*row) for row in rows}


def stored_duties(results: Path) -> dict[str, DutyState]:
    """Return the duties that a results file has, by name; raises StoreError."""
    try:
        with closing(open_reader(results)) as connection:
            return read_duties(connection)
    except sqlite3.Error as error:
        raise store_error(error, results) from None


def begin_duty(
    connection: sqlite3.Connection, name: str, *, every_s: int, at: str, retry_at: str
) -> None:
    """Write that a duty is running, and when to try again should its process die."""
    connection.execute(
        "insert into duty (name, every_s, due_at, started_at) values (:name, :every_s, :due, :at) "
        "on conflict (name) do update set every_s = :every_s, due_at = :due, started_at = :at, "
        "ended_at = null, outcome = null, detail = ''",
        {"name": name, "every_s": every_s, "due": retry_at, "at": at},
    )


def end_duty(connection: sqlite3.Connection, name: str, end: DutyEnd) -> None:
    """Write what came of a duty."""
    connection.execute(
        "update duty set ended_at = :at, due_at = :due, outcome = :outcome, detail = :detail, "
        "failures = iif(:outcome = 'failed', failures + 1, 0), "
        "done_at = iif(:outcome = 'done', :at, done_at) where name = :name",
        {
            "name": name,
            "at": end.at,
            "due": end.due_at,
            "outcome": end.outcome,
            "detail": redacted(end.detail),
        },
    )
