"""Requests to change a run while it executes, or to start one, with their answers.

A request is a row that the process of the run reads and answers. It is answered once: done, or
refused with a reason. A request that a dead run left behind is withdrawn, never carried out later.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.numeric import dollars
from edison_ci.store import audit, runs
from edison_ci.store.audit import add_audit

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from edison_ci.store.audit import AuditEntry

EVENT = "run:steered"


class SteeringAction(StrEnum):
    """What can be changed in an executing run."""

    CONCURRENCY = "concurrency"
    PAUSE = "pause"
    RESUME = "resume"
    REQUEUE = "requeue"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of an executing run."""

    action: SteeringAction
    model: str | None = None
    """Of concurrency, pause and resume."""
    calls: int | None = None
    """Calls at once, of concurrency."""
    microusd: int | None = None
    """The new budget."""

    def as_json(self) -> dict[str, Any]:
        """Return it as it is stored."""
        values = {name: value for name, value in asdict(self).items() if value is not None}
        return {**values, "action": str(self.action)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Change:
        """Return a stored change; raises UsageError for one of another version."""
        try:
            return cls(**{**value, "action": SteeringAction(value["action"])})
        except (KeyError, TypeError, ValueError):
            raise UsageError("the request comes from another version of edison") from None

    @property
    def words(self) -> str:
        """The request in words, such as `pause small`."""
        match self.action:
            case SteeringAction.CONCURRENCY:
                return f"concurrency {self.model}={self.calls}"
            case SteeringAction.REQUEUE:
                return "requeue errors"
            case SteeringAction.BUDGET:
                return f"budget {dollars(self.microusd or 0)}"
        return f"{self.action} {self.model}"


@dataclass(frozen=True, slots=True)
class SteeringRequest:
    """A request with its answer."""

    id: int
    run_id: str
    what: dict[str, Any]
    by: str
    asked_at: str
    taken_at: str | None
    """When it was answered; None while it waits."""
    done: bool | None
    """False if it was refused."""
    said: str
    """What changed, or why it was refused."""

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {name: value for name, value in asdict(self).items() if name != "run_id"}


_COLUMNS = "id, run_id, what, by, asked_at, taken_at, done, said"


def request_changes(
    run_id: str, changes: Sequence[Change], entry: AuditEntry
) -> Callable[[sqlite3.Connection], list[int]]:
    """Return the operation that stores requests with a row of the audit; it yields their ids."""

    def operation(connection: sqlite3.Connection) -> list[int]:
        audit.add_audit(connection, entry)
        rows = [(run_id, json.dumps(c.as_json()), entry.actor, entry.time) for c in changes]
        return [
            int(connection.execute(_INSERT, row).lastrowid or 0)  # rowids begin with 1
            for row in rows
        ]

    return operation


_INSERT = "insert into steering (run_id, what, by, asked_at) values (?, ?, ?, ?)"


def open_requests(connection: sqlite3.Connection, run_id: str) -> list[SteeringRequest]:
    """Return the requests that wait for an answer, oldest first."""
    rows = connection.execute(
        f"select {_COLUMNS} from steering where run_id = ? and taken_at is null order by id",
        (run_id,),
    )
    return [_request(row) for row in rows]


def steering_of(connection: sqlite3.Connection, run_id: str) -> list[SteeringRequest]:
    """Return all requests of a run, oldest first."""
    rows = connection.execute(
        f"select {_COLUMNS} from steering where run_id = ? order by id", (run_id,)
    )
    return [_request(row) for row in rows]


def answer_request(
    request: SteeringRequest, now: str, *, done: bool, said: str
) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that answers a request, unless it is answered, with an event."""

    def operation(connection: sqlite3.Connection) -> None:
        answered = connection.execute(
            "update steering set taken_at = ?, done = ?, said = ? "
            "where id = ? and taken_at is null",
            (now, done, said, request.id),
        )
        if answered.rowcount:
            data = {"what": request.what, "by": request.by, "done": done, "said": said}
            runs.add_event(connection, request.run_id, EVENT, data, now)

    return operation


def withdraw_requests(run_id: str, now: str, said: str) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that refuses every request of a run that waits for an answer."""

    def operation(connection: sqlite3.Connection) -> None:
        for request in open_requests(connection, run_id):
            answer_request(request, now, done=False, said=said)(connection)

    return operation


def steered_budget(connection: sqlite3.Connection, run_id: str) -> int | None:
    """Return the budget that a run was last given while it was running, in micro-dollars."""
    row = connection.execute(
        "select json_extract(what, '$.microusd') from steering where run_id = ? and done = 1 "
        "and json_extract(what, '$.action') = ? order by id desc limit 1",
        (run_id, str(SteeringAction.BUDGET)),
    ).fetchone()
    return None if row is None else int(row[0])


def _request(row: Sequence[Any]) -> SteeringRequest:
    number, run_id, what, by, asked_at, taken_at, done, said = row
    flag = None if done is None else bool(done)
    return SteeringRequest(number, run_id, json.loads(what), by, asked_at, taken_at, flag, said)


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


_START_COLUMNS = "key, run_id, experiment, plan_hash, by, asked_at, workflow_url, accepted_at"


def find_start(connection: sqlite3.Connection, key: str) -> StartRequest | None:
    """Return the request of a key; None if there is none."""
    row = connection.execute(
        f"select {_START_COLUMNS} from start_request where key = ?", (key,)
    ).fetchone()
    return None if row is None else StartRequest(*row)


def claim_start(
    request: StartRequest, entry: AuditEntry
) -> Callable[[sqlite3.Connection], StartRequest]:
    """Return the operation that keeps a request, with a row of the audit, unless its key is known.

    It yields the request that has the key.
    """

    def operation(connection: sqlite3.Connection) -> StartRequest:
        earlier = find_start(connection, request.key)
        if earlier is not None:
            return earlier
        connection.execute(
            f"insert into start_request ({_START_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, ?)",
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
        f"select {_START_COLUMNS} from start_request where experiment = ? "
        "and workflow_url is not null order by asked_at desc, run_id desc limit ?",
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
