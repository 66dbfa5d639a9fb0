"""The way from a request to its stored answer: reuse, retries, breaker, rates, money."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config.prices import Price
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.providers.budget import Budgeted, BudgetExhausted, RunBudget
from edison_ci.providers.client import (
    ClientLimits,
    Concurrency,
    MinuteWindow,
    ModelClient,
    TokenBucket,
    build_client,
)
from edison_ci.providers.resilience import Breaker, ClientClosed, Clock
from edison_ci.records import Completion, Message, Request
from edison_ci.store.database import open_reader
from edison_ci.store.ledger import SpendingCap, booked
from edison_ci.store.writer import Writer

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from edison_ci.records import Json

NOW = "2026-11-15T12:00:00Z"


@dataclass
class FakeTime:
    """A clock that moves only when somebody sleeps."""

    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)

    def clock(self) -> Clock:
        return Clock(lambda: self.now, self.sleep, random.Random(0))


PRICE = Price.model_validate({"in": 1.0, "out": 2.0, "cached_in": 0.5})


class Scripted:
    """A provider that plays a list of answers and errors, then repeats the last."""

    def __init__(self, *script: Completion | CallError) -> None:
        self.script, self.calls = list(script), 0

    async def complete(self, request: Request) -> Completion:
        self.calls += 1
        step = self.script[min(self.calls, len(self.script)) - 1]
        await asyncio.sleep(0)
        if isinstance(step, CallError):
            raise step
        return step


FINE = Completion("fine", tokens_in=10, tokens_out=5, served_model="m")


def request(text: str = "hello", repeat: int = 0) -> Request:
    return Request("p", "", "m", (Message("user", text),), {"max_tokens": 10}, repeat=repeat)


def error(kind: ErrorKind, **values: object) -> CallError:
    return CallError(kind, "no", **values)  # type: ignore[arg-type]  # passed on by name


@dataclass
class Bench:
    """A client over a real database."""

    path: Path
    writer: Writer
    time: FakeTime
    reader: sqlite3.Connection

    def client(
        self,
        provider: Scripted,
        *,
        caps: tuple[SpendingCap, ...] = (),
        newer_than: str | None = "",
        limits: ClientLimits | None = None,
        now: Callable[[], str] = lambda: NOW,
    ) -> ModelClient:
        budget = RunBudget(
            writer=self.writer,
            run_id="r",
            owner="me",
            scopes=("run:r",),
            caps=caps,
            now=now,
            is_alive=lambda owner: owner == "me",
            sleep=self.time.sleep,
        )
        budgeted = Budgeted(provider, budget, model="m", phase="generate", price=PRICE)
        clock = self.time.clock()
        return build_client(budgeted, limits or ClientLimits(), clock, self.reader, newer_than)

    def spent(self) -> int:
        return booked(self.reader, SpendingCap("run:r", None), NOW[:10])[0]

    def states(self) -> list[str]:
        return [row[0] for row in self.reader.execute("select state from attempt order by id")]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    path = tmp_path / "results.db"
    with Writer(path) as writer:
        reader = open_reader(path)
        yield Bench(path, writer, FakeTime(), reader)
        reader.close()


async def test_writing_to_a_cache_costs_more_than_plain_input(bench: Bench) -> None:
    wrote = Completion("fine", tokens_in=1000, tokens_out=5, served_model="m", written_in=800)
    plain = Completion("fine", tokens_in=1000, tokens_out=5, served_model="m")
    client = bench.client(Scripted(wrote, plain))
    dearer, cheaper = [(await client.answer(request(text))).cost_microusd for text in ("a", "b")]
    assert dearer - cheaper == 200 * PRICE.tokens_in


async def test_a_call_that_may_write_to_a_cache_is_booked_at_its_dearest(bench: Bench) -> None:
    most = []
    extras: tuple[Json, ...] = ({"top_k": 3}, {"cache_control": {"type": "ephemeral"}})
    for extra in extras:
        client = bench.client(Scripted(FINE))
        await client.answer(replace(request(), params={"max_tokens": 5, "extra": extra}))
        (booked_,) = bench.reader.execute(
            "select est_microusd from attempt order by id desc limit 1"
        ).fetchone()
        most.append(booked_)
    assert most[1] > most[0]


async def test_an_answer_is_stored_with_its_price(bench: Bench) -> None:
    paid = await bench.client(Scripted(FINE)).answer(request())
    assert (paid.completion, paid.bought, paid.cost_microusd) == (FINE, True, 20)
    assert bench.spent() == 20
    assert bench.states() == ["settled"]


async def test_a_stored_answer_is_not_bought_again(bench: Bench) -> None:
    provider = Scripted(FINE)
    await bench.client(provider).answer(request())
    paid = await bench.client(provider).answer(request())
    assert (provider.calls, paid.bought, paid.completion) == (1, False, FINE)


async def test_without_reuse_a_new_take_is_bought(bench: Bench) -> None:
    provider = Scripted(FINE)
    await bench.client(provider).answer(request())
    paid = await bench.client(provider, newer_than=None).answer(request())
    assert (provider.calls, paid.bought, paid.answer_no) == (2, True, 1)


async def test_another_repeat_is_another_call(bench: Bench) -> None:
    provider = Scripted(FINE)
    client = bench.client(provider)
    await client.answer(request(repeat=0))
    await client.answer(request(repeat=1))
    assert provider.calls == 2


async def test_identical_calls_in_flight_are_made_once(bench: Bench) -> None:
    provider = Scripted(FINE)
    client = bench.client(provider)
    paid = await asyncio.gather(*(client.answer(request()) for _ in range(5)))
    assert provider.calls == 1
    assert sorted(p.bought for p in paid) == [False] * 4 + [True]


@pytest.mark.parametrize(
    "kind",
    [ErrorKind.RATE_LIMIT, ErrorKind.PROVIDER_ERROR, ErrorKind.TIMEOUT, ErrorKind.NETWORK],
)
async def test_failures_on_the_way_are_tried_again(bench: Bench, kind: ErrorKind) -> None:
    client = bench.client(Scripted(error(kind, charged=False), FINE))
    assert (await client.answer(request())).completion == FINE
    assert bench.states() == ["released", "settled"]
    assert client.retries.retried == 1
    assert bench.spent() == 20


@pytest.mark.parametrize(
    "kind", [ErrorKind.BAD_REQUEST, ErrorKind.CONTEXT_LENGTH, ErrorKind.CONTENT_FILTER]
)
async def test_other_failures_are_final(bench: Bench, kind: ErrorKind) -> None:
    provider = Scripted(error(kind, charged=False))
    with pytest.raises(CallError):
        await bench.client(provider).answer(request())
    assert provider.calls == 1


async def test_three_attempts_are_made_and_no_more(bench: Bench) -> None:
    provider = Scripted(error(ErrorKind.PROVIDER_ERROR))
    with pytest.raises(CallError):
        await bench.client(provider).answer(request())
    assert provider.calls == 3
    assert bench.states() == ["unknown"] * 3


async def test_what_may_have_been_charged_stays_booked_at_its_worst(bench: Bench) -> None:
    with pytest.raises(CallError):
        await bench.client(
            Scripted(error(ErrorKind.TIMEOUT)), limits=ClientLimits(attempts=1)
        ).answer(request())
    assert bench.spent() == 5 + 8 + 2 * 10


async def test_the_provider_is_given_the_time_it_asks_for(bench: Bench) -> None:
    busy = error(ErrorKind.RATE_LIMIT, retry_after_s=7.0, charged=False)
    await bench.client(Scripted(busy, FINE)).answer(request())
    assert bench.time.now >= 7


@pytest.mark.parametrize(
    "kind", [ErrorKind.INVALID_KEY, ErrorKind.QUOTA, ErrorKind.MODEL_NOT_FOUND]
)
async def test_a_fault_that_all_calls_share_closes_the_lane(bench: Bench, kind: ErrorKind) -> None:
    provider = Scripted(error(kind, charged=False))
    client = bench.client(provider)
    with pytest.raises(CallError):
        await client.answer(request("a"))
    with pytest.raises(ClientClosed, match=kind):
        await client.answer(request("b"))
    assert provider.calls == 1


async def test_three_identical_bad_requests_close_the_lane(bench: Bench) -> None:
    client = bench.client(Scripted(error(ErrorKind.BAD_REQUEST, charged=False)))
    for text in "abc":
        with pytest.raises(CallError):
            await client.answer(request(text))
    with pytest.raises(ClientClosed):
        await client.answer(request("d"))


async def test_a_budget_that_is_used_up_stops_before_the_call(bench: Bench) -> None:
    provider = Scripted(FINE)
    cap = SpendingCap("run:r", None, microusd=45, name="--budget")
    client = bench.client(provider, caps=(cap,))
    await client.answer(request("a"))
    with pytest.raises(BudgetExhausted, match="--budget"):
        await client.answer(request("b"))
    assert provider.calls == 1
    assert bench.spent() == 20


async def test_calls_that_do_not_fit_wait_for_those_in_flight(bench: Bench) -> None:
    provider = Scripted(FINE)
    cap = SpendingCap("run:r", None, microusd=110, name="--budget")
    client = bench.client(provider, caps=(cap,))
    done = await asyncio.gather(*(client.answer(request(text)) for text in "abc"))
    assert len(done) == 3  # each settles at 20 although each reserves 34
    assert bench.spent() == 60


class Slow(Scripted):
    """A provider that answers when so many calls are on their way, after a while."""

    def __init__(self, calls: int) -> None:
        super().__init__(FINE)
        self.most, self.all_sent = calls, asyncio.Event()

    async def complete(self, request: Request) -> Completion:
        self.calls += 1
        if self.calls == self.most:
            self.all_sent.set()
        await self.all_sent.wait()
        await asyncio.sleep(0.05)
        return FINE


@pytest.mark.parametrize("calls", [4, 40])
async def test_a_busy_lane_writes_calls_together_and_a_quiet_one_at_once(
    bench: Bench, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    begin = bench.writer.begin

    def seen(operation: Any, *, within_s: float = 0.0) -> Any:
        waits.append(within_s)
        return begin(operation, within_s=within_s)

    monkeypatch.setattr(bench.writer, "begin", seen)
    client = bench.client(Slow(calls), limits=ClientLimits(concurrency=calls))
    done = await asyncio.gather(*(client.answer(request(str(i))) for i in range(calls)))
    assert len(done) == calls and bench.states() == ["settled"] * calls
    assert max(waits) <= 0.02
    assert (max(waits) > 0) == (calls == 40)


async def test_missing_usage_is_paid_at_the_estimate(bench: Bench) -> None:
    paid = await bench.client(Scripted(Completion("text"))).answer(request())
    assert paid.cost_microusd == 5 + 8 + 2 * 10


async def test_cached_tokens_are_cheaper(bench: Bench) -> None:
    answer = Completion("x", tokens_in=10, tokens_out=1, cached_in=6)
    paid = await bench.client(Scripted(answer)).answer(request())
    assert paid.cost_microusd == 4 + 3 + 2


async def test_a_dead_owners_call_is_made_again(bench: Bench) -> None:
    provider = Scripted(FINE)
    client = bench.client(provider)
    await bench.writer.write(
        lambda c: c.execute(
            "insert into attempt (request_hash, run_id, model, phase, state, est_microusd, "
            "est_tokens, "
            "owner, sent_at) values (?, 'old', 'm', 'generate', 'reserved', 9, 9, 'dead', 't')",
            (request().request_hash,),
        )
    )
    assert (await client.answer(request())).bought
    assert bench.states() == ["unknown", "settled"]


# --- the parts by themselves ----------------------------------------------------------------------


async def test_a_breaker_opens_probes_and_closes() -> None:
    time = FakeTime()
    breaker = Breaker(time.clock())
    breaker.record_success()
    for _ in range(5):
        await breaker.wait()
        breaker.record_failure(error(ErrorKind.PROVIDER_ERROR))
    assert time.now == 0
    await breaker.wait()
    assert time.now >= 60
    breaker.record_failure(error(ErrorKind.PROVIDER_ERROR))
    before = time.now
    await breaker.wait()
    assert time.now - before >= 120
    breaker.record_success()
    await breaker.wait()
    breaker.record_success()
    before = time.now
    await breaker.wait()
    assert time.now == before


FAILED = error(ErrorKind.PROVIDER_ERROR)


async def until_given_up(breaker: Breaker, time: FakeTime, failure: CallError = FAILED) -> float:
    """Let every call fail; return when the model was given up."""
    for _ in range(200):
        try:
            await breaker.wait()
        except ClientClosed:
            return time.now
        breaker.record_failure(failure)
    raise AssertionError("it was never given up")


async def test_a_model_that_never_answers_is_given_up_after_90_seconds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    time = FakeTime()
    breaker = Breaker(time.clock(), "m", timeout_s=60)
    assert await until_given_up(breaker, time) == 90
    assert breaker.closed_reason == "PROVIDER_ERROR: no (no answer for 90 s)"
    last = caplog.records[-1]
    assert (last.getMessage(), vars(last)["after"]) == ("no answer; the model is given up", "90 s")


@pytest.mark.parametrize(
    ("give_up_s", "answered", "expected"),
    [(5, False, 5), (300, False, 300), (3600, False, 3600), (90, True, 600), (900, True, 900)],
)
async def test_how_long_it_is_tried_is_configured_and_longer_once_it_has_answered(
    give_up_s: float, answered: bool, expected: float
) -> None:
    time = FakeTime()
    breaker = Breaker(time.clock(), give_up_s=give_up_s)
    if answered:
        breaker.record_success()
    time.now = 1000  # what was before the first failure does not count
    assert await until_given_up(breaker, time) == pytest.approx(1000 + expected)


async def test_no_call_is_given_up_before_it_had_a_whole_timeout() -> None:
    time = FakeTime()
    breaker = Breaker(time.clock(), timeout_s=200)
    breaker.calls["begun later"] = 30
    assert await until_given_up(breaker, time) == 230


async def test_nothing_is_given_up_while_a_probe_is_on_its_way() -> None:
    time = FakeTime()
    breaker = Breaker(time.clock())
    for _ in range(5):
        breaker.record_failure(FAILED)
    assert await breaker.wait()
    other = asyncio.create_task(breaker.wait())
    time.now = 120
    for _ in range(10):
        await asyncio.sleep(0)
    assert not other.done()
    breaker.record_success()
    assert await other


async def test_a_time_out_was_silent_for_as_long_as_it_took() -> None:
    time = FakeTime(now=60)
    breaker = Breaker(time.clock(), timeout_s=60)
    assert await until_given_up(breaker, time, error(ErrorKind.TIMEOUT)) == 90


async def test_time_that_the_provider_asks_for_does_not_count() -> None:
    time = FakeTime()
    breaker = Breaker(time.clock())
    for wish in (20.0, 20.0, 20.0, 20.0, 20.0):
        breaker.record_failure(error(ErrorKind.PROVIDER_ERROR, retry_after_s=wish))
        time.now += 20
    assert await until_given_up(breaker, time) == 100 + 90


async def test_wishes_of_calls_at_the_same_time_count_once() -> None:
    time = FakeTime()
    breaker = Breaker(time.clock())
    for _ in range(4):
        breaker.record_failure(error(ErrorKind.PROVIDER_ERROR, retry_after_s=30.0))
    time.now = 10
    breaker.record_failure(FAILED)
    assert await until_given_up(breaker, time) == 30 + 90


async def test_a_rate_limit_without_a_time_asks_until_another_reply() -> None:
    time = FakeTime()
    breaker = Breaker(time.clock())
    breaker.record_failure(FAILED)
    breaker.record_failure(error(ErrorKind.RATE_LIMIT))
    time.now = 200
    assert await until_given_up(breaker, time) == 200 + 90


async def test_a_model_that_is_loading_has_a_quarter_of_an_hour() -> None:
    time = FakeTime()
    breaker = Breaker(time.clock())
    loading = error(ErrorKind.PROVIDER_ERROR)
    loading.loading = True
    assert await until_given_up(breaker, time, loading) == 900


async def test_calls_that_wait_for_a_dead_model_end_with_it(bench: Bench) -> None:
    client = bench.client(Scripted(error(ErrorKind.PROVIDER_ERROR, charged=False)))
    ended = await asyncio.gather(
        *(client.answer(request(str(n))) for n in range(4)), return_exceptions=True
    )
    assert {type(e) for e in ended} <= {ClientClosed, CallError}
    assert any(isinstance(e, ClientClosed) for e in ended)
    assert client.breaker.calls == {}
    with pytest.raises(ClientClosed):
        await client.answer(request("one more"))
    assert bench.spent() == 0


async def test_a_lane_that_is_left_alone_says_which_model_it_is(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    breaker = bench.client(Scripted(FINE)).breaker
    for _ in range(5):
        breaker.record_failure(error(ErrorKind.NETWORK))
    (told,) = (r for r in caplog.records if r.getMessage() == "no answer; trying again later")
    assert vars(told)["model"] == "m"


async def test_what_can_be_done_is_said_once_a_lane(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    breaker = bench.client(Scripted(FINE)).breaker
    breaker.advice = "Ctrl-C stops it"
    for _ in range(5):
        breaker.record_failure(error(ErrorKind.NETWORK))
    await breaker.wait()
    assert breaker.waiting_reason is not None and breaker.waiting_reason.startswith("NETWORK")
    breaker.record_failure(error(ErrorKind.NETWORK))
    hints = [vars(record).get("hint") for record in caplog.records]
    assert hints == ["Ctrl-C stops it", None]


def test_a_pause_that_a_provider_asks_for_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    time = FakeTime()
    breaker = Breaker(time.clock(), "m")
    for wish in (2.0, 30.0, 30.0):
        breaker.record_failure(asked_to_wait(wish))
    time.now = 31
    breaker.record_failure(asked_to_wait(40.0))
    told = [(r.getMessage(), vars(r)["in"]) for r in caplog.records]
    later = "too many calls; trying again later"
    assert told == [(later, "30 s"), (later, "40 s")]
    assert breaker.waiting_reason is None


def asked_to_wait(seconds: float) -> CallError:
    return CallError(ErrorKind.RATE_LIMIT, "slow down", charged=False, retry_after_s=seconds)


async def test_a_bucket_lets_a_minutes_worth_through_then_waits() -> None:
    time = FakeTime()
    bucket = TokenBucket(60, time.clock())
    for _ in range(60):
        await bucket.take(1)
    assert time.now == 0
    await bucket.take(1)
    assert time.now == pytest.approx(1, abs=0.01)
    bucket.refund(5)
    before = time.now
    await bucket.take(5)
    assert time.now == before


async def test_no_60_seconds_have_more_requests_than_allowed() -> None:
    time = FakeTime()
    window = MinuteWindow(3, time.clock())
    arrived = []
    for number in range(9):
        await window.enter()
        time.now += 2 if number % 3 else 5  # it may arrive at the very end of its call
        arrived.append(time.now)
        window.leave()
    assert all(later - first >= 60 for first, later in zip(arrived, arrived[3:], strict=False))
    assert time.now < 3 * 75, "nor are they held back for longer"


async def test_a_clock_that_goes_back_does_not_fill_or_break_a_bucket() -> None:
    time = FakeTime(now=100)
    bucket = TokenBucket(60, time.clock())
    await bucket.take(60)
    time.now = 0
    await bucket.take(1)
    assert time.now <= 2


def fall(places: Concurrency, time: FakeTime, at: float) -> None:
    time.now = at
    places.decrease()


async def test_concurrency_falls_once_per_episode_and_climbs_back() -> None:
    time = FakeTime()
    places = Concurrency(10, time.clock())
    fall(places, time, 1)
    fall(places, time, 2)
    assert places.limit == pytest.approx(7)
    fall(places, time, 20)
    assert places.limit == pytest.approx(4.9)
    for _ in range(100):
        places.increase()
    assert places.limit == 10


async def test_no_more_calls_than_places_run_at_once() -> None:
    places = Concurrency(3, FakeTime().clock())
    running = peak = 0

    async def call() -> None:
        nonlocal running, peak
        await places.enter()
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0)
        running -= 1
        places.leave()

    await asyncio.gather(*(call() for _ in range(20)))
    assert peak == 3


class Held(Scripted):
    """A provider that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__(FINE)
        self.told = asyncio.Event()

    async def complete(self, request: Request) -> Completion:
        self.calls += 1
        await self.told.wait()
        return FINE


async def until(bench: Bench, booked: int) -> None:
    """Wait until so many calls are booked."""
    while bench.states().count("reserved") < booked:
        await bench.writer.write(lambda _: None)
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_busy_lane_books_ahead_but_sends_no_more_than_it_may(bench: Bench) -> None:
    provider, limits = Held(), ClientLimits(concurrency=5)
    client = bench.client(provider, limits=limits)
    answers = [asyncio.create_task(client.answer(request(repeat=n))) for n in range(9)]
    await until(bench, 6)
    assert (provider.calls, bench.states()) == (5, ["reserved"] * 6)
    provider.told.set()
    await asyncio.gather(*answers)
    assert bench.states() == ["settled"] * 9


async def test_what_was_booked_ahead_is_released_when_nothing_more_may_be_sent(
    bench: Bench,
) -> None:
    provider, limits = Held(), ClientLimits(concurrency=5)
    client = bench.client(provider, limits=limits)
    answers = [asyncio.create_task(client.answer(request(repeat=n))) for n in range(7)]
    await until(bench, 6)
    client.breaker.record_failure(error(ErrorKind.INVALID_KEY))
    provider.told.set()
    ended = await asyncio.gather(*answers, return_exceptions=True)
    assert sum(isinstance(e, ClientClosed) for e in ended) == 2
    assert await bench.writer.write(lambda _: provider.calls) == 5
    assert sorted(bench.states()) == ["released"] + ["settled"] * 5
    assert bench.spent() == 5 * 20


async def test_giving_up_a_call_that_was_booked_ahead_releases_it(bench: Bench) -> None:
    provider, limits = Held(), ClientLimits(concurrency=5)
    client = bench.client(provider, limits=limits)
    answers = [asyncio.create_task(client.answer(request(repeat=n))) for n in range(6)]
    await until(bench, 6)
    answers[-1].cancel()
    provider.told.set()
    ended = await asyncio.gather(*answers, return_exceptions=True)
    await bench.writer.write(lambda _: None)
    assert isinstance(ended[-1], asyncio.CancelledError)
    assert sorted(bench.states()) == ["released"] + ["settled"] * 5


@pytest.mark.parametrize(
    "later",
    ["2026-11-15T11:59:59Z", "2026-11-14T12:00:00Z", "2026-10-01T12:00:00Z", "1970-01-01T00:00:00Z",
     "2026-11-15T12:00:01Z", "2066-11-15T12:00:00Z"],
)  # fmt: skip
async def test_a_clock_that_jumps_in_a_run_buys_nothing_twice(bench: Bench, later: str) -> None:
    """Also in a run that wants new answers: those that it has bought itself count."""
    times = iter([NOW] * 2)
    provider = Scripted(FINE)
    client = bench.client(provider, newer_than=NOW, now=lambda: next(times, later))
    for _ in range(3):
        for text in ("a", "b", "c"):
            await client.answer(request(text))
    assert provider.calls == 3
    resumed = bench.client(provider, newer_than=NOW, now=lambda: later)
    assert not (await resumed.answer(request("c"))).bought
    assert provider.calls == 3
