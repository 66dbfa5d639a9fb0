"""Batches in the store: requests that were submitted together, and wait for their answers.

A batch is written, with the booking of each of its requests, before it is submitted. Its attempts
stay reserved until their results are collected, even if the process dies.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.store import ledger

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Sequence

    from edison_ci.store.ledger import T


@dataclass(frozen=True, slots=True)
class NewBatch:
    """A batch about to be submitted."""

    id: str
    run_id: str
    model: str
    now: str


@dataclass(frozen=True, slots=True)
class BatchCall:
    """A call that is to go into a batch."""

    booking: ledger.Booking
    usual_microusd: int
    """The most that it costs without a batch."""
    formed: bool
    left_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prepared:
    """The calls that are in a batch."""

    numbers: tuple[int, ...]
    """Which of the calls; the others are answered, or asked by someone else."""
    refused: ledger.BudgetRefusal | None = None
    """The budget that has no room for the rest."""


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch that was submitted, or is about to be."""

    id: str
    run_id: str
    model: str
    scopes: tuple[str, ...]
    state: str
    remote_id: str | None
    requests: int
    usual_microusd: int
    booked_microusd: int
    """The most that its open requests cost."""
    status: str
    created_at: str
    checked_at: str | None

    def as_json(self) -> dict[str, Any]:
        """Return it as it appears in `--json`."""
        hidden = ("run_id", "scopes", "state")
        return {name: value for name, value in asdict(self).items() if name not in hidden}


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call in a batch whose result was not collected yet."""

    booking: ledger.Booking
    attempt: int
    formed: bool
    left_out: tuple[str, ...]


def prepare(batch: NewBatch, calls: Sequence[BatchCall]) -> ledger.OnTotals[Prepared]:
    """Return the operation that books calls and notes their batch, before it is submitted.

    Calls after the first that a budget refuses are left out.
    """

    def operation(connection: sqlite3.Connection, totals: ledger.Totals) -> Prepared:
        owner, refused = f"{ledger.BATCH}{batch.id}", None
        booked: list[tuple[int, int]] = []
        for number, call in enumerate(calls):
            outcome = ledger.reserve(replace(call.booking, owner=owner)).act(connection, totals)
            if isinstance(outcome, ledger.BudgetRefusal):
                refused = outcome
                break
            if isinstance(outcome, ledger.Reservation):
                booked.append((number, outcome.attempt))
        if booked:
            usual = sum(calls[number].usual_microusd for number, _ in booked)
            scopes = json.dumps(calls[0].booking.scopes)
            head = (batch.id, batch.run_id, batch.model, scopes, len(booked), usual, batch.now)
            connection.execute(
                "insert into batch (id, run_id, model, scopes, state, requests, usual_microusd, "
                "created_at) values (?, ?, ?, ?, 'sending', ?, ?, ?)",
                head,
            )
            rows = [
                (batch.id, number, attempt, call.formed, " ".join(call.left_out))
                for number, attempt in booked
                for call in [calls[number]]
            ]
            connection.executemany("insert into batch_request values (?, ?, ?, ?, ?)", rows)
        return Prepared(tuple(number for number, _ in booked), refused)

    return ledger.OnTotals(operation)


def note_batch(
    batch_id: str, *, state: str, status: str, now: str, remote_id: str | None = None
) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that notes the state of a batch."""

    def operation(connection: sqlite3.Connection) -> None:
        connection.execute(
            "update batch set state = ?, status = ?, checked_at = ?, "
            "remote_id = coalesce(?, remote_id) where id = ?",
            (state, status, now, remote_id, batch_id),
        )

    return operation


def all_of(operations: Iterable[ledger.OnTotals[T]]) -> ledger.OnTotals[list[T]]:
    """Return the operation that does several in one transaction."""
    listed = list(operations)
    return ledger.OnTotals(
        lambda connection, totals: [operation.act(connection, totals) for operation in listed]
    )


def waits_in_batch(connection: sqlite3.Connection, scope: str) -> bool:
    """Whether a batch that is not collected has bookings in a scope."""
    sql = f"select 1 from batch b where {ledger.OPEN_BATCH} and instr(scopes, json_quote(?))"
    return connection.execute(sql, (scope,)).fetchone() is not None


def open_batches(
    connection: sqlite3.Connection, *, run_id: str | None = None, experiment: str | None = None
) -> list[StoredBatch]:
    """Return the batches of a run or an experiment that are not collected, oldest first."""
    rows = connection.execute(
        "select b.id, b.run_id, b.model, b.scopes, b.state, b.remote_id, b.requests, "
        "b.usual_microusd, (select coalesce(sum(t.est_microusd), 0) from attempt t "
        f"where t.owner = '{ledger.BATCH}' || b.id and t.run_id = b.run_id), b.status, "
        "b.created_at, b.checked_at from batch b join run r on r.id = b.run_id "
        f"where {ledger.OPEN_BATCH} and (b.run_id = ?1 or r.experiment = ?2) "
        "order by b.created_at, b.id",
        (run_id, experiment),
    )
    return [
        StoredBatch(name, run, model, tuple(json.loads(scopes)), *rest)
        for name, run, model, scopes, *rest in rows.fetchall()
    ]


def open_calls(connection: sqlite3.Connection, batch: StoredBatch) -> dict[str, OpenCall]:
    """Return the calls of a batch whose results are not collected, by their names there."""
    rows = connection.execute(
        "select q.number, q.attempt, q.formed, q.left_out, t.request_hash, t.phase, "
        "t.est_microusd, t.est_tokens, t.owner, t.sent_at from batch_request q "
        "join attempt t on t.id = q.attempt where q.batch_id = ? and t.state = 'reserved'",
        (batch.id,),
    )
    calls = {}
    for number, attempt, formed, left_out, request_hash, phase, *booked in rows:
        named = (request_hash, batch.run_id, batch.model, phase)
        most, tokens, owner, sent_at = booked
        booking = ledger.Booking(*named, most, tokens, owner, sent_at, batch.scopes)
        call = OpenCall(booking, attempt, bool(formed), tuple(left_out.split()))
        calls[f"{batch.id}-{number}"] = call
    return calls


def known_remotes(connection: sqlite3.Connection) -> frozenset[str]:
    """Return the names that providers gave to our batches."""
    rows = connection.execute("select remote_id from batch where remote_id is not null")
    return frozenset(name for (name,) in rows)
