"""Calls that share a commit are booked as if each had a transaction of its own."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edison_ci.errors import StoreError
from edison_ci.records import Completion
from edison_ci.store.answers import Settlement
from edison_ci.store.cells import finish_cells
from edison_ci.store.database import open_database, open_reader
from edison_ci.store.integrity import check_database
from edison_ci.store.ledger import (
    Booking,
    BudgetRefusal,
    OnTotals,
    Reservation,
    SpendingCap,
    Totals,
    add_to_totals,
    booked,
    lose,
    reclaim,
    release,
    reserve,
    settle,
)
from edison_ci.store.writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

    from edison_ci.store.writer import Operation

pytestmark = pytest.mark.daily

LONG = 3600.0
DAYS = ("2026-10-16", "2026-10-17", "2026-11-14", "2026-11-15")
CAPS = (
    SpendingCap("run:r1", None, microusd=1_000, name="stop.budget_usd"),
    SpendingCap("project", 30, microusd=1_500, name="monthly_budget_usd"),
    SpendingCap("project", 2, tokens=600, name="daily_tokens"),
    SpendingCap("search:s", None, microusd=900, tokens=500, name="search"),
)
CALL = Booking(
    request_hash="a" * 64,
    run_id="r1",
    model="small",
    phase="generate",
    est_microusd=400,
    est_tokens=100,
    owner="me",
    now=f"{DAYS[-1]}T12:00:00Z",
    scopes=("run:r1", "experiment:e", "project"),
    caps=(CAPS[0],),
)
ANSWER = Settlement(
    Completion("hello", tokens_in=10, tokens_out=20, served_model="m"), 150, "billed", CALL.now
)


def begun(*operations: Operation[Any]) -> Callable[[Writer], list[Any]]:
    """Return what has a writer write operations in one transaction, and tells how each ended."""

    async def write(writer: Writer) -> list[Any]:
        *first, last = operations
        waiting = [writer.begin(operation, within_s=LONG) for operation in first]
        return await asyncio.gather(*waiting, writer.begin(last), return_exceptions=True)

    return lambda writer: asyncio.run(write(writer))


def ended(writer: Writer, operation: Operation[Any]) -> Any:
    """Return how an operation ends that has a transaction to itself."""
    done = writer.submit(operation)
    return done.exception() or done.result()


# --- any calls, in any batches --------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """Something that is done to the ledger."""

    kind: str
    booking: Booking = CALL
    which: int = 0
    """Of the calls booked so far, which one it is about."""
    cost: int = 0
    tokens: tuple[int, int] | None = None
    fails: bool = False
    """Whether it fails when it is done."""


BOOKINGS = st.builds(
    lambda request_hash, day, money, tokens, owner, scopes, caps, newer_than: replace(
        CALL,
        request_hash=request_hash * 64,
        now=f"{day}T12:00:00Z",
        est_microusd=money,
        est_tokens=tokens,
        owner=owner,
        scopes=("run:r1", "experiment:e", "project", *scopes),
        caps=caps,
        newer_than=newer_than,
    ),
    st.sampled_from("abcdef"),
    st.sampled_from(DAYS),
    st.integers(0, 500),
    st.integers(0, 200),
    st.sampled_from(("me", "dead")),
    st.sampled_from(((), ("search:s",))),
    st.lists(st.sampled_from(CAPS), max_size=4, unique=True).map(tuple),
    st.sampled_from((None, "", DAYS[2], "2027")),
)
KINDS = st.sampled_from(("settle", "settle", "release", "lose", "reclaim", "interim", "absorb"))
FAILS = st.integers(0, 9).map(lambda number: number == 0)
STEPS = st.one_of(
    st.builds(Step, st.just("reserve"), BOOKINGS, fails=FAILS),
    st.builds(
        Step,
        KINDS,
        which=st.integers(0, 5),
        cost=st.integers(0, 600),
        tokens=st.none() | st.tuples(st.integers(0, 150), st.integers(0, 150)),
        fails=FAILS,
    ),
)


class Ledger:
    """A results file, and the attempts that steps have booked in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bookings: list[Booking] = []
        self.attempts: dict[int, int] = {}

    def operation(self, step: Step) -> Operation[Any]:
        """Return what a step does; which attempt it is about is known once its turn comes."""
        if step.kind == "reserve":
            self.bookings.append(step.booking)
            return OnTotals(self._reserving(len(self.bookings) - 1, step))
        number = step.which % max(len(self.bookings), 1)
        if step.kind in ("settle", "release", "lose"):
            return OnTotals(self._closing(number, step))
        return self._alone(step)

    def _reserving(self, number: int, step: Step) -> Callable[[sqlite3.Connection, Totals], Any]:
        def act(connection: sqlite3.Connection, totals: Totals) -> Any:
            self.attempts.pop(number, None)
            outcome = reserve(step.booking).act(connection, totals)
            fail_perhaps(step)
            if isinstance(outcome, Reservation):
                self.attempts[number] = outcome.attempt
            return outcome

        return act

    def _closing(self, number: int, step: Step) -> Callable[[sqlite3.Connection, Totals], Any]:
        def act(connection: sqlite3.Connection, totals: Totals) -> Any:
            booking, attempt = self._meant(number)
            closing: OnTotals[Any] = release(booking, attempt, now=CALL.now, error="refused")
            if step.kind == "lose":
                closing = lose(attempt, now=CALL.now, error="reset")
            if step.kind == "settle":
                told, said = step.tokens or (None, None)
                completion = Completion("hello", tokens_in=told, tokens_out=said)
                closing = settle(
                    booking, attempt, Settlement(completion, step.cost, "billed", booking.now)
                )
            result = closing.act(connection, totals)
            fail_perhaps(step)
            return result

        return act

    def _alone(self, step: Step) -> Operation[Any]:
        def operation(connection: sqlite3.Connection) -> Any:
            result: Any = None
            if step.kind == "reclaim":
                result = reclaim(lambda owner: owner != "dead", now=CALL.now)(connection)
            elif step.kind == "absorb":
                day = DAYS[step.which % len(DAYS)]
                add_to_totals(connection, [("search:s", day, step.cost, step.which)])
            else:
                result = (everything(connection), booked(connection, CAPS[1], DAYS[-1]))
            fail_perhaps(step)
            return result

        return operation

    def _meant(self, number: int) -> tuple[Booking, int]:
        if number not in self.attempts:
            raise LookupError(f"{number} was not booked")
        return self.bookings[number], self.attempts[number]


def fail_perhaps(step: Step) -> None:
    if step.fails:
        raise ValueError(f"a {step.kind} that fails")


def everything(connection: sqlite3.Connection) -> dict[str, list[Any]]:
    tables = ("booked", "attempt", "answer", "answer_text")
    return {t: connection.execute(f"select * from {t} order by 1, 2").fetchall() for t in tables}


def told(outcomes: list[Any]) -> list[Any]:
    return [f"{type(o).__name__}: {o}" if isinstance(o, Exception) else o for o in outcomes]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "results.db"
    open_database(path).close()
    return path


@pytest.mark.nightly
@settings(max_examples=75)
@given(batches=st.lists(st.lists(STEPS, min_size=1, max_size=12), min_size=1, max_size=4))
def test_calls_of_one_commit_are_booked_like_calls_of_many(
    empty: Path, batches: list[list[Step]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shared, single = (Ledger(Path(folder) / name) for name in ("shared.db", "single.db"))
        for ledger in (shared, single):
            shutil.copy(empty, ledger.path)
        with Writer(shared.path) as writer, Writer(single.path) as patient:
            for batch in batches:
                before = writer.commits
                found = begun(*map(shared.operation, batch))(writer)
                assert writer.commits == before + 1
                alone = [ended(patient, single.operation(step)) for step in batch]
                assert told(found) == told(alone)
        with closing(open_reader(shared.path)) as one, closing(open_reader(single.path)) as other:
            assert everything(one) == everything(other)
            assert [found for found in check_database(one) if not found.ok] == []


# --- single rules ---------------------------------------------------------------------------------


@pytest.fixture
def writer(empty: Path, tmp_path: Path) -> Iterator[Writer]:
    path = tmp_path / "results.db"
    shutil.copy(empty, path)
    with Writer(path) as writer:
        yield writer


def named(letter: str, **changes: Any) -> Booking:
    return replace(CALL, request_hash=letter * 64, **changes)


def asked(writer: Writer, *operations: Operation[Any]) -> list[str]:
    """Return the statements of a transaction that operations share."""
    seen: list[str] = []

    def watch(connection: sqlite3.Connection) -> None:
        connection.set_trace_callback(seen.append)

    begun(watch, *operations, lambda connection: connection.set_trace_callback(None))(writer)
    return [" ".join(sql.split()[:3]) for sql in seen]


def test_totals_are_read_once_and_written_once_for_all_that_share_a_commit(writer: Writer) -> None:
    calls = [reserve(named(letter, est_microusd=1, newer_than="")) for letter in "abcdefgh"]
    reading, booking, writing = asked(writer, calls[0])[:3]
    found = asked(writer, *calls[1:5], finish_cells([]), *calls[5:])
    assert found == [reading, *[booking] * 7, *[writing] * len(CALL.scopes)]


def test_a_budget_counts_the_calls_of_its_own_transaction(writer: Writer) -> None:
    found = begun(*(reserve(named(letter)) for letter in "abc"))(writer)
    assert [type(outcome) for outcome in found] == [Reservation, Reservation, BudgetRefusal]
    assert found[2] == BudgetRefusal(CAPS[0], 800, ("me",))


def test_what_is_given_back_may_be_booked_again_in_the_same_transaction(writer: Writer) -> None:
    first, second = begun(*(reserve(named(letter)) for letter in "ab"))(writer)
    given_back = release(named("a"), first.attempt, now=CALL.now, error="refused")
    found = begun(reserve(named("c")), given_back, reserve(named("c")))(writer)
    assert [type(outcome) for outcome in found] == [BudgetRefusal, type(None), Reservation]
    assert second.attempt != found[2].attempt


def test_a_rolling_budget_forgets_old_calls_of_its_own_transaction(writer: Writer) -> None:
    monthly = SpendingCap("project", 30, microusd=500, name="monthly_budget_usd")
    days = (DAYS[0], DAYS[1], DAYS[-1])
    calls = [named("abc"[n], now=f"{day}T12:00:00Z", caps=()) for n, day in enumerate(days)]
    last = replace(named("d"), caps=(replace(monthly, microusd=1_199),))
    found = begun(*map(reserve, calls), reserve(last))(writer)
    assert found[3] == BudgetRefusal(last.caps[0], 800, ("me",))


def test_who_reads_the_table_itself_finds_it_as_it_is(writer: Writer) -> None:
    def look(connection: sqlite3.Connection) -> tuple[int, int]:
        return booked(connection, CAPS[0], DAYS[-1])

    found = begun(reserve(named("a")), look, reserve(named("b")), look)(writer)
    assert found[1] == (400, 100)
    assert found[3] == (800, 200)


def test_who_changes_the_table_itself_is_counted(writer: Writer) -> None:
    def absorb(connection: sqlite3.Connection) -> None:
        add_to_totals(connection, [("run:r1", DAYS[0], 500, 0)])

    found = begun(reserve(named("a")), absorb, reserve(named("b")))(writer)
    assert found[2] == BudgetRefusal(CAPS[0], 900, ("me",))


def test_money_of_a_call_that_fails_is_not_booked(writer: Writer, tmp_path: Path) -> None:
    (first,) = begun(reserve(named("a")))(writer)
    settled = settle(named("a"), first.attempt, ANSWER)
    found = begun(settled, settled, reserve(named("b")))(writer)
    assert isinstance(found[1], StoreError)
    with closing(open_reader(tmp_path / "results.db")) as reader:
        assert booked(reader, CAPS[0], DAYS[-1]) == (550, 130)


def test_a_total_too_large_for_the_file_fails_alone(writer: Writer, tmp_path: Path) -> None:
    (first,) = begun(reserve(named("a")))(writer)
    most = Completion("hello", tokens_in=2**63 - 1, tokens_out=2**63 - 1)
    huge = settle(named("a"), first.attempt, replace(ANSWER, completion=most))
    found = begun(huge, reserve(named("b")))(writer)
    assert [type(outcome) for outcome in found] == [OverflowError, Reservation]
    with closing(open_reader(tmp_path / "results.db")) as reader:
        assert booked(reader, CAPS[0], DAYS[-1]) == (800, 200)


def test_a_call_that_nets_to_nothing_leaves_its_day_in_the_table(
    writer: Writer, tmp_path: Path
) -> None:
    free = named("a", est_microusd=0, est_tokens=0, scopes=("project",))
    begun(reserve(free))(writer)
    with closing(open_reader(tmp_path / "results.db")) as reader:
        rows = reader.execute("select * from booked").fetchall()
    assert rows == [("project", DAYS[-1], 0, 0)]
