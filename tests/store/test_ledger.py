"""Money is booked before it is spent and settled with its answer, whatever happens between."""

from __future__ import annotations

import datetime as dt
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from edison_ci.errors import StoreError
from edison_ci.records import Completion
from edison_ci.store.answers import CachedAnswer, Settlement, newest_answer
from edison_ci.store.database import open_database
from edison_ci.store.ledger import (
    Booking,
    BudgetRefusal,
    InFlight,
    Reservation,
    SpendingCap,
    booked,
    lose,
    reclaim,
    release,
    reserve,
    settle,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOW = "2026-11-15T12:00:00Z"
BUDGET = SpendingCap("run:r1", None, microusd=1_000, name="stop.budget_usd")
CALL = Booking(
    request_hash="a" * 64,
    run_id="r1",
    model="small",
    phase="generate",
    est_microusd=400,
    est_tokens=100,
    owner="me",
    now=NOW,
    scopes=("run:r1", "project"),
    caps=(BUDGET,),
)
ANSWER = Settlement(
    Completion("hello", tokens_in=10, tokens_out=20, served_model="m"), 150, "billed", NOW
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_database(tmp_path / "results.db")
    yield connection
    connection.close()


def reserved(db: sqlite3.Connection, booking: Booking = CALL) -> int:
    outcome = reserve(booking)(db)
    assert isinstance(outcome, Reservation)
    return outcome.attempt


def spent(db: sqlite3.Connection, scope: str = "run:r1") -> tuple[int, int]:
    return booked(db, SpendingCap(scope, None), "2026-11-15")


def test_a_call_is_booked_at_its_worst_case_in_every_scope(db: sqlite3.Connection) -> None:
    reserved(db)
    assert spent(db) == (400, 100)
    assert spent(db, "project") == (400, 100)


def test_settling_books_what_it_really_cost_and_stores_the_answer(db: sqlite3.Connection) -> None:
    attempt = reserved(db)
    assert settle(CALL, attempt, ANSWER)(db) == 0
    assert spent(db) == (150, 30)
    stored = newest_answer(db, CALL.request_hash)
    assert stored is not None and stored.completion.text == "hello"
    assert stored.cost_microusd == 150


def test_missing_usage_keeps_the_estimated_tokens(db: sqlite3.Connection) -> None:
    attempt = reserved(db)
    settle(CALL, attempt, replace(ANSWER, completion=Completion("x"), cost_microusd=400))(db)
    assert spent(db) == (400, 100)


def test_an_attempt_that_was_not_charged_is_given_back(db: sqlite3.Connection) -> None:
    attempt = reserved(db)
    release(CALL, attempt, now=NOW, error="connection refused")(db)
    assert spent(db) == (0, 0)


def test_an_attempt_of_unknown_fate_stays_booked(db: sqlite3.Connection) -> None:
    attempt = reserved(db)
    lose(attempt, now=NOW, error="connection reset")(db)
    assert spent(db) == (400, 100)


def test_no_attempt_is_settled_twice(db: sqlite3.Connection) -> None:
    attempt = reserved(db)
    settle(CALL, attempt, ANSWER)(db)
    with pytest.raises(StoreError, match="settled already"):
        settle(CALL, attempt, ANSWER)(db)
    with pytest.raises(StoreError, match="settled already"):
        release(CALL, attempt, now=NOW, error="late")(db)


def test_a_call_that_does_not_fit_the_budget_is_refused(db: sqlite3.Connection) -> None:
    for letter in "bc":
        reserved(db, replace(CALL, request_hash=letter * 64))
    outcome = reserve(replace(CALL, request_hash="d" * 64))(db)
    assert outcome == BudgetRefusal(BUDGET, 800, ("me",))
    assert spent(db) == (800, 200)


def test_calls_on_their_way_are_waited_for_only_if_they_can_make_room(
    db: sqlite3.Connection,
) -> None:
    lose(reserved(db), now=NOW, error="connection reset")(db)
    reserved(db, replace(CALL, request_hash="b" * 64, owner="other"))
    third = replace(CALL, request_hash="c" * 64)
    fits = reserve(replace(third, est_microusd=600))(db)
    assert fits == BudgetRefusal(BUDGET, 800, ("other",))
    assert reserve(replace(third, est_microusd=601))(db) == BudgetRefusal(BUDGET, 800, ())
    limit = SpendingCap("run:r1", None, tokens=299, name="stop.max_total_tokens")
    for tokens, waits_for in ((199, ("other",)), (200, ())):
        asked = reserve(replace(third, caps=(limit,), est_tokens=tokens))(db)
        assert asked == BudgetRefusal(limit, 200, waits_for)


def test_a_token_limit_refuses_too(db: sqlite3.Connection) -> None:
    limit = SpendingCap("run:r1", None, tokens=150, name="stop.max_total_tokens")
    reserved(db, replace(CALL, caps=(limit,)))
    outcome = reserve(replace(CALL, request_hash="b" * 64, caps=(limit,)))(db)
    assert outcome == BudgetRefusal(limit, 100, ("me",))


def test_the_last_call_within_a_token_limit_needs_room_for_its_prompt_only(
    db: sqlite3.Connection,
) -> None:
    limit = SpendingCap("run:r1", None, tokens=150, name="stop.max_total_tokens")
    long = replace(CALL, caps=(limit,), est_tokens=4_096, least_tokens=30)
    first = reserved(db, long)
    second = replace(long, request_hash="b" * 64)
    assert reserve(second)(db) == BudgetRefusal(limit, 4_096, ("me",)), "not beside another one"
    settle(long, first, replace(ANSWER, completion=Completion("x", tokens_in=30, tokens_out=89)))(
        db
    )
    assert isinstance(reserve(replace(second, least_tokens=31))(db), Reservation)
    third = replace(long, request_hash="c" * 64)
    assert reserve(replace(third, caps=(BUDGET, limit), est_microusd=10**9))(db) == BudgetRefusal(
        BUDGET, 550, ()
    ), "money is reserved at its maximum"


def test_a_rolling_budget_forgets_what_is_older_than_its_days(db: sqlite3.Connection) -> None:
    monthly = SpendingCap("project", 30, microusd=500, name="monthly_budget_usd")
    old = replace(CALL, now="2026-10-16T23:59:59Z", caps=(monthly,))
    edge = replace(CALL, request_hash="b" * 64, now="2026-10-17T00:00:00Z", caps=())
    reserved(db, old)
    assert booked(db, monthly, "2026-11-15") == (0, 0)
    reserved(db, edge)
    assert booked(db, monthly, "2026-11-15") == (400, 100)
    assert isinstance(
        reserve(replace(CALL, request_hash="c" * 64, caps=(monthly,)))(db), BudgetRefusal
    )


def test_a_stored_answer_is_taken_if_it_is_new_enough(db: sqlite3.Connection) -> None:
    settle(CALL, reserved(db), ANSWER)(db)
    for since in ("2026-11-01", NOW):
        assert isinstance(reserve(replace(CALL, newer_than=since))(db), CachedAnswer)
    assert isinstance(reserve(replace(CALL, newer_than="2026-11-16"))(db), Reservation)


def test_a_second_answer_is_a_new_take_and_the_first_stays(db: sqlite3.Connection) -> None:
    settle(CALL, reserved(db), ANSWER)(db)
    again = replace(ANSWER, completion=Completion("hello again"))
    assert settle(CALL, reserved(db), again)(db) == 1
    texts = db.execute("select text from answer_text order by answer_no").fetchall()
    assert texts == [("hello",), ("hello again",)]


def test_an_answer_from_a_recording_is_not_reused(db: sqlite3.Connection) -> None:
    settle(CALL, reserved(db), replace(ANSWER, cost_kind="replayed"))(db)
    assert isinstance(reserve(replace(CALL, newer_than=""))(db), Reservation)


def test_an_answer_without_its_text_is_bought_again(db: sqlite3.Connection) -> None:
    settle(CALL, reserved(db), ANSWER)(db)
    db.execute("delete from answer_text")
    attempt = reserved(db, replace(CALL, newer_than=""))
    assert settle(CALL, attempt, ANSWER)(db) == 1


def test_a_take_follows_the_last_one_even_where_the_first_are_missing(
    db: sqlite3.Connection,
) -> None:
    attempts = [reserved(db, replace(CALL, request_hash=letter * 64, caps=())) for letter in "abc"]
    db.execute(
        "insert into answer values (?, 4, ?, 'stop', 1, 1, 0, 1, 1, 'billed', 'm', '', ?)",
        (CALL.request_hash, attempts[2], NOW),
    )
    assert settle(CALL, attempts[0], ANSWER)(db) == 5


def test_answers_cannot_be_changed(db: sqlite3.Connection) -> None:
    settle(CALL, reserved(db), ANSWER)(db)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.execute("update answer set cost_microusd = 0")


def test_a_tampered_text_is_not_reused(db: sqlite3.Connection) -> None:
    settle(CALL, reserved(db), ANSWER)(db)
    db.execute("update answer_text set text = 'forged'")
    assert newest_answer(db, CALL.request_hash) is None


def test_the_same_call_is_not_made_twice_at_once(db: sqlite3.Connection) -> None:
    reserved(db)
    assert reserve(replace(CALL, owner="another"))(db) == InFlight("me")


def test_attempts_of_the_dead_become_unknown_and_the_call_is_free_again(
    db: sqlite3.Connection,
) -> None:
    reserved(db)
    reserved(db, replace(CALL, request_hash="b" * 64, owner="alive"))
    assert reclaim(lambda owner: owner == "alive", now=NOW)(db) == 1
    states = db.execute("select owner, state from attempt order by id").fetchall()
    assert states == [("me", "unknown"), ("alive", "reserved")]
    assert isinstance(reserve(replace(CALL, caps=()))(db), Reservation)


JUMPS = {
    "a day ahead and back": (0, 1, 0, 1, 0),
    "a day back and again": (0, -1, 0, -1, 0),
    "back and forth": (0, 1, 0, 1, 2, 1, 0, 2),
    "a month ahead": (0, 31, 0, 31, 1),
    "a month back": (0, -31, 0, 1),
    "years ahead": (0, 14_600, 0, 1, 2),
    "years back": (0, -14_600, 0, -14_600, 0),
    "to 1970": (0, -20_772, -20_771, 0),
    "to the last year there is": (0, 2_912_000, 0, 1),
    "an hour around midnight": (0, 0.4, 0.6, 0.4, 0.6, 0.4),
    "ever earlier": (0, -1, -2, -3, -40, -400),
    "ever later": (0, 1, 2, 3, 40, 400),
}


@pytest.mark.parametrize("days", [1, 30])
@pytest.mark.parametrize("attack", JUMPS)
def test_a_clock_that_jumps_buys_nothing_beyond_a_budget(
    db: sqlite3.Connection, attack: str, days: int
) -> None:
    """What was booked on a later day counts until that has passed: going back frees no money."""
    cap = SpendingCap("project", days, microusd=1_000, name="settings.daily_budget_usd")
    start, calls, seen = dt.datetime(2026, 11, 15, 12), 0, set[str]()  # noqa: DTZ001 - as stored
    for jump in JUMPS[attack]:
        now = f"{(start + dt.timedelta(days=jump)).isoformat()}Z"
        before, latest = calls, max(seen, default="")
        while True:
            call = replace(CALL, request_hash=f"{calls:064}", now=now, caps=(cap,))
            outcome = reserve(call)(db)
            if isinstance(outcome, BudgetRefusal):
                break
            calls += 1
            assert booked(db, cap, now[:10])[0] <= 1_000, "no call is beyond what is left"
        if now[:10] <= latest:
            assert calls == before, "what is spent stays spent"
        seen.add(now[:10])
    assert spent(db, "project")[0] == 400 * calls <= 1_000 * len(seen)
