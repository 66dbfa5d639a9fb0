"""The ledger: reserve before a call, settle or release after it, within every budget.

A call is booked at its worst case before its bytes leave, in the same transaction that checks every
budget. Its answer is stored in the same transaction that settles the money, so "paid" and "have it"
are one fact. A call whose fate is unknown stays booked at its estimate.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import field, replace
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from edison_ci._dataclass import dataclass
from edison_ci.errors import StoreError
from edison_ci.records import canonical_json
from edison_ci.store.answers import (
    REUSABLE,
    CachedAnswer,
    Settlement,
    insert_answer,
    newest_answer,
    text_hash,
)

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable


T = TypeVar("T")

BATCH = "batch:"
"""Begins the owner of attempts that wait in a batch, which outlives every process."""
OPEN_BATCH = "b.state in ('sending', 'submitted')"
"""Batches that are not collected."""


def has_open_batches(connection: sqlite3.Connection, experiment: str) -> bool:
    """Whether an experiment has batches that are not collected."""
    sql = f"select 1 from batch b join run r on r.id = b.run_id where {OPEN_BATCH}"
    row = connection.execute(f"{sql} and r.experiment = ?", (experiment,)).fetchone()
    return row is not None


def read_total(connection: sqlite3.Connection, scope: str, first: str) -> tuple[int, int]:
    """Return the micro-dollars and tokens that the table has for a scope since a day."""
    row = connection.execute(
        "select coalesce(sum(microusd), 0), coalesce(sum(tokens), 0) from booked "
        "where scope = ? and (day >= ? or day = '')",
        (scope, first),
    ).fetchone()
    return int(row[0]), int(row[1])


def add_to_totals(
    connection: sqlite3.Connection, changes: Iterable[tuple[str, str, int, int]]
) -> None:
    """Add to the table: scope, day, micro-dollars and tokens."""
    connection.executemany(
        "insert into booked (scope, day, microusd, tokens) values (?, ?, ?, ?) "
        "on conflict (scope, day) do update set microusd = microusd + excluded.microusd, "
        "tokens = tokens + excluded.tokens",
        changes,
    )


class Totals:
    """The totals as a transaction sees them: what the table has, and what is still to be added.

    It lives no longer than the transaction, and is thrown away if that is rolled back.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._read: dict[tuple[str, str], tuple[int, int]] = {}
        self._added: dict[tuple[tuple[str, ...], str], tuple[int, int]] = {}

    def since(self, scope: str, first: str) -> tuple[int, int]:
        """Return the micro-dollars and tokens booked in a scope since a day."""
        total = self._read.get((scope, first))
        if total is None:
            total = self._read[scope, first] = read_total(self._connection, scope, first)
        microusd, tokens = total
        for (scopes, day), more in self._added.items():
            if scope in scopes and (day >= first or day == ""):
                microusd, tokens = microusd + more[0], tokens + more[1]
        return microusd, tokens

    def add(self, scopes: tuple[str, ...], day: str, microusd: int, tokens: int) -> None:
        """Add to what is booked in each of some scopes on a day."""
        before = self._added.get((scopes, day), (0, 0))
        self._added[scopes, day] = (before[0] + microusd, before[1] + tokens)

    def write(self) -> None:
        """Bring the table up to date, and forget what was read from it."""
        added, self._added, self._read = self._added, {}, {}
        if added:
            add_to_totals(
                self._connection,
                [(scope, day, *more) for (scopes, day), more in added.items() for scope in scopes],
            )


class OnTotals(Generic[T]):
    """An operation that knows `booked` only by the totals it is handed, or not at all."""

    __slots__ = ("act",)

    def __init__(self, act: Callable[[sqlite3.Connection, Totals], T]) -> None:
        self.act = act

    def __call__(self, connection: sqlite3.Connection) -> T:
        """Do it alone."""
        totals = Totals(connection)
        result = self.act(connection, totals)
        totals.write()
        return result


def together(
    operations: Iterable[Callable[[sqlite3.Connection], T]], connection: sqlite3.Connection
) -> list[T]:
    """Return what each operation of a transaction yields; they share their totals."""
    totals, results = Totals(connection), []
    for operation in operations:
        if isinstance(operation, OnTotals):
            results.append(operation.act(connection, totals))
        else:
            totals.write()
            results.append(operation(connection))
    totals.write()
    return results


@dataclass(frozen=True, slots=True)
class SpendingCap:
    """A limit on what a scope may book."""

    scope: str
    days: int | None
    """How many days up to today count; None for the life of the scope."""
    microusd: int | None = None
    tokens: int | None = None
    name: str = ""
    """What people call it, such as `stop.budget_usd`."""


@dataclass(frozen=True, slots=True)
class Booking:
    """A call about to be made."""

    request_hash: str
    run_id: str
    model: str
    phase: str
    est_microusd: int
    est_tokens: int
    owner: str
    now: str
    """ISO-8601 UTC; its date is the day the money is booked on."""
    scopes: tuple[str, ...]
    caps: tuple[SpendingCap, ...] = ()
    newer_than: str | None = None
    """A stored answer from this time on is taken instead; None takes none."""
    least_tokens: int | None = None
    """About the tokens of its prompt; None where only `est_tokens` is known."""

    @property
    def experiment(self) -> str | None:
        """The experiment whose budget it counts against, if it counts against one."""
        return _account(self.scopes, "experiment:")

    @property
    def loop(self) -> str | None:
        """The loop whose budget it counts against, if it is made in one."""
        return _account(self.scopes, "loop:")


@dataclass(frozen=True, slots=True)
class Reservation:
    """The call may be sent."""

    attempt: int


@dataclass(frozen=True, slots=True)
class BudgetRefusal:
    """A budget has no room for the call now."""

    cap: SpendingCap
    booked: int
    in_flight: tuple[str, ...] = ()
    """Processes whose calls are on their way, and may make room by costing less than booked."""
    reserves_microusd: int = field(default=0, compare=False)
    """What the call would reserve."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """Another attempt at the same call is on its way."""

    owner: str


Outcome = CachedAnswer | Reservation | BudgetRefusal | InFlight


def reserve(booking: Booking) -> OnTotals[Outcome]:
    """Return the operation that books a call, or returns why it must not be made."""

    def operation(connection: sqlite3.Connection, totals: Totals) -> Outcome:
        refused = _refusal(totals, booking, booking.est_tokens)
        if refused is not None and _is_last(connection, totals, booking, refused.cap):
            refused = None
        attempt = None if refused is not None else _book_what_is_new(connection, booking)
        if attempt is None:
            stored = _known(connection, booking)
            if stored is not None:
                return stored
            if refused is not None:
                owners = _in_flight(connection, totals, booking, refused.cap)
                return replace(refused, in_flight=owners)
            attempt = _book(connection, booking)
        _adjust(totals, booking, booking.est_microusd, booking.est_tokens)
        return Reservation(attempt)

    return OnTotals(operation)


def settle(booking: Booking, attempt: int, settlement: Settlement) -> OnTotals[int]:
    """Return the operation that stores an answer and settles its cost; it yields its number."""

    def operation(connection: sqlite3.Connection, totals: Totals) -> int:
        completion, request_hash = settlement.completion, booking.request_hash
        _close(
            connection,
            attempt,
            "state = 'settled', cost_microusd = ?, done_at = ?, http_status = ?",
            (settlement.charged_microusd, settlement.now, settlement.http_status),
        )
        answer_no = insert_answer(connection, request_hash, attempt, settlement)
        tokens = 0
        if completion.tokens_in is not None and completion.tokens_out is not None:
            tokens = completion.tokens_in + completion.tokens_out - booking.est_tokens
        _adjust(totals, booking, settlement.charged_microusd - booking.est_microusd, tokens)
        return answer_no

    return OnTotals(operation)


def replay(booking: Booking, settlement: Settlement) -> Callable[[sqlite3.Connection], int]:
    """Return the operation that stores an answer of a file once; it yields the answer's number.

    Nothing is booked: recordings and imported answers were paid for elsewhere.
    """

    def operation(connection: sqlite3.Connection) -> int:
        completion, request_hash = settlement.completion, booking.request_hash
        tools = canonical_json(completion.tool_calls) if completion.tool_calls else None
        stored = connection.execute(
            "select a.answer_no from answer a join answer_text t using (request_hash, answer_no) "
            "where a.request_hash = ? and a.cost_kind = ? and t.sha256 = ? "
            "and a.cost_microusd = ? and a.latency_ms = ? and a.tokens_in is ? "
            "and a.tokens_out is ?",
            (
                request_hash,
                settlement.cost_kind,
                text_hash(completion.text, tools),
                settlement.cost_microusd,
                completion.latency_ms,
                completion.tokens_in,
                completion.tokens_out,
            ),
        ).fetchone()
        if stored is not None:
            return int(stored[0])
        attempt = _book(connection, replace(booking, est_microusd=0, est_tokens=0, scopes=()))
        _close(connection, attempt, "state = 'settled', cost_microusd = 0", ())
        return insert_answer(connection, request_hash, attempt, settlement)

    return operation


def release(
    booking: Booking, attempt: int, *, now: str, error: str, http_status: int | None = None
) -> OnTotals[None]:
    """Return the operation for an attempt that is known not to have been charged."""

    def operation(connection: sqlite3.Connection, totals: Totals) -> None:
        _close(
            connection,
            attempt,
            "state = 'released', cost_microusd = 0, done_at = ?, error = ?, http_status = ?",
            (now, error, http_status),
        )
        _adjust(totals, booking, -booking.est_microusd, -booking.est_tokens)

    return OnTotals(operation)


def lose(attempt: int, *, now: str, error: str, http_status: int | None = None) -> OnTotals[None]:
    """Return the operation for an attempt that may have been charged; it stays booked."""

    def operation(connection: sqlite3.Connection, _: Totals) -> None:
        _close(
            connection,
            attempt,
            "state = 'unknown', done_at = ?, error = ?, http_status = ?",
            (now, error, http_status),
        )

    return OnTotals(operation)


def reclaim(is_alive: Callable[[str], bool], *, now: str) -> Callable[[sqlite3.Connection], int]:
    """Return the operation that marks the attempts of dead owners as unknown."""

    def operation(connection: sqlite3.Connection) -> int:
        owners = connection.execute(
            "select distinct owner from attempt where state = 'reserved' "
            f"and owner not like '{BATCH}%'"
        )
        dead = [owner for (owner,) in owners.fetchall() if not is_alive(owner)]
        count = 0
        for owner in dead:
            done = connection.execute(
                "update attempt set state = 'unknown', done_at = ?, error = 'the process died' "
                "where owner = ? and state = 'reserved'",
                (now, owner),
            )
            count += done.rowcount
        return count

    return operation


@dataclass(frozen=True, slots=True)
class PhaseCosts:
    """The calls of one model in one phase."""

    calls: int
    most_microusd: int
    """The most that one has cost."""
    reserves_microusd: int
    """The most that one has reserved."""


def phase_costs(
    connection: sqlite3.Connection, *, run_id: str | None = None, experiment: str | None = None
) -> dict[tuple[str, str], PhaseCosts]:
    """Return the calls of a run or an experiment, by phase and model."""
    rows = connection.execute(
        "select phase, model, sum(state = 'settled'), "
        "max(coalesce(cost_microusd, est_microusd)), max(est_microusd) from own_attempt "
        "where (run_id = ?1 or ?1 is null) and (experiment = ?2 or ?2 is null) "
        "and state <> 'released' and phase <> 'replay' group by phase, model",
        (run_id, experiment),
    )
    return {(phase, model): PhaseCosts(*costs) for phase, model, *costs in rows}


def calls_made(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether a run has called a model."""
    sql = "select exists (select 1 from attempt where run_id = ?)"
    return bool(connection.execute(sql, (run_id,)).fetchone()[0])


def booked(connection: sqlite3.Connection, cap: SpendingCap, today: str) -> tuple[int, int]:
    """Return the micro-dollars and tokens that count against a cap today."""
    return read_total(connection, cap.scope, _first_day(cap.days, today))


def _refusal(totals: Totals, booking: Booking, est_tokens: int) -> BudgetRefusal | None:
    """Return the first cap that has no room for a call."""
    for cap in booking.caps:
        spent, tokens = totals.since(cap.scope, _first_day(cap.days, booking.now[:10]))
        if cap.microusd is not None and spent + booking.est_microusd > cap.microusd:
            return BudgetRefusal(cap, spent, reserves_microusd=booking.est_microusd)
        if cap.tokens is not None and tokens + est_tokens > cap.tokens:
            return BudgetRefusal(cap, tokens, reserves_microusd=booking.est_microusd)
    return None


def _least(booking: Booking) -> int:
    return booking.est_tokens if booking.least_tokens is None else booking.least_tokens


def _is_last(
    connection: sqlite3.Connection, totals: Totals, booking: Booking, cap: SpendingCap
) -> bool:
    """Whether a call may be made alone, since a limit of tokens has room for its prompt.

    Answers are mostly much shorter than they may be, so that a small limit would allow no call at
    all. Money is always reserved at its maximum.
    """
    if cap.tokens is None or _refusal(totals, booking, _least(booking)) is not None:
        return False
    return not _open_reservations(connection, booking, cap)


def _open_reservations(
    connection: sqlite3.Connection, booking: Booking, cap: SpendingCap
) -> list[tuple[str, int, int]]:
    """Return the owners of open calls with what they reserve; for a run's own cap, its calls."""
    own = cap.scope == f"run:{booking.run_id}"
    return connection.execute(
        "select owner, sum(est_microusd), sum(est_tokens) from attempt "
        "where state = 'reserved' and (run_id = ? or not ?) group by owner",
        (booking.run_id, own),
    ).fetchall()


def _known(connection: sqlite3.Connection, booking: Booking) -> CachedAnswer | InFlight | None:
    """Return the answer of a call that is stored already, or who is about to get it."""
    if booking.newer_than is not None:
        stored = newest_answer(connection, booking.request_hash, since=booking.newer_than)
        if stored is not None:
            return stored
    other = connection.execute(
        "select owner from attempt where request_hash = ? and state = 'reserved'",
        (booking.request_hash,),
    ).fetchone()
    return None if other is None else InFlight(other[0])


def _in_flight(
    connection: sqlite3.Connection, totals: Totals, booking: Booking, cap: SpendingCap
) -> tuple[str, ...]:
    """Return whose calls may make room by costing less; none if even all of them cannot."""
    rows = _open_reservations(connection, booking, cap)
    spent, tokens = totals.since(cap.scope, _first_day(cap.days, booking.now[:10]))
    spent += booking.est_microusd - sum(microusd for _, microusd, _ in rows)
    tokens += _least(booking) - sum(count for _, _, count in rows)
    if cap.microusd is not None and spent > cap.microusd:
        return ()
    if cap.tokens is not None and tokens > cap.tokens:
        return ()
    return tuple(owner for owner, _, _ in rows)


_COLUMNS = (
    "attempt (request_hash, run_id, experiment, loop, model, phase, state, est_microusd, "
    "est_tokens, "
    "owner, sent_at)"
)
_VALUES = "?2, ?3, ?4, ?5, ?6, 'reserved', ?7, ?8, ?9, ?10"
_OPEN = "exists (select 1 from attempt where request_hash = ?1 and state = 'reserved')"
_ANSWERED = (
    f"exists (select 1 from answer where request_hash = ?1 and created_at >= ?11 and {REUSABLE})"
)


def _book(connection: sqlite3.Connection, booking: Booking) -> int:
    """Note an attempt as under way; its money is for the caller to add."""
    done = connection.execute(f"insert into {_COLUMNS} values (?1, {_VALUES})", _attempt(booking))
    return int(done.lastrowid or 0)


def _book_what_is_new(connection: sqlite3.Connection, booking: Booking) -> int | None:
    """Store an attempt, unless `_known` has to be asked about the call.

    Nearly always it has not, and then one statement looks and books. If it has, the row gets no
    request hash, and is ignored for that; `insert ... select ... where` would fill a table of
      its own.
    """
    condition, values = _OPEN, _attempt(booking)
    if booking.newer_than is not None:
        condition, values = f"{_OPEN} or {_ANSWERED}", (*values, booking.newer_than)
    done = connection.execute(
        f"insert or ignore into {_COLUMNS} values (iif({condition}, null, ?1), {_VALUES})", values
    )
    return int(done.lastrowid or 0) if done.rowcount == 1 else None


_attempt = attrgetter(
    *("request_hash", "run_id", "experiment", "loop", "model", "phase"),
    *("est_microusd", "est_tokens", "owner", "now"),
)


def _adjust(totals: Totals, booking: Booking, microusd: int, tokens: int) -> None:
    """Change the totals of every scope, on the day the call was booked."""
    totals.add(booking.scopes, booking.now[:10], microusd, tokens)


def _close(
    connection: sqlite3.Connection, attempt: int, assignments: str, values: tuple[Any, ...]
) -> None:
    done = connection.execute(
        f"update attempt set {assignments} where id = ? and state = 'reserved'", (*values, attempt)
    )
    if done.rowcount != 1:
        raise StoreError(
            f"attempt {attempt} was settled already", hint="run: edison admin db check"
        )


# The same few scopes and days are asked about for every call.


@lru_cache(maxsize=64)
def _account(scopes: tuple[str, ...], kind: str) -> str | None:
    return next((s.removeprefix(kind) for s in scopes if s.startswith(kind)), None)


@lru_cache(maxsize=64)
def _first_day(days: int | None, today: str) -> str:
    """Return the first of a number of days up to today; None for the life of a scope."""
    if days is None:
        return ""
    return (dt.date.fromisoformat(today) - dt.timedelta(days=days - 1)).isoformat()
