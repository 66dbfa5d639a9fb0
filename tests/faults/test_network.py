"""Faults 26 to 31 and 33 to 41: services that are away, slow, busy, wrong or somebody else."""

from __future__ import annotations

import datetime as dt
import threading
import time
from email.utils import format_datetime, parsedate_to_datetime
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.contracts import ErrorKind
from tests.faults.stage import Stage, copied
from tests.loopback.script import Rule, rule
from tests.loopback.server import LoopbackServer
from tests.timing import poll

if TYPE_CHECKING:
    from tests.conftest import Result
    from tests.faults.conftest import MakeStage

pytestmark = pytest.mark.daily

ONE = "P001"
"""A case that faults befall."""


def ran(stage: Stage, *argv: str, code: int, **plan: Any) -> Result:
    done = stage.edison(*(argv or ("run",)), **plan)
    assert done.code == code, done.all
    assert "Traceback" not in done.all
    assert "bug in edison" not in done.all
    stage.check_file()
    return done


def kinds(stage: Stage) -> dict[str, int]:
    """Return how many cells ended in each kind of error."""
    return dict(
        stage.rows("select error, count(*) from cell where status = 'error' group by error")
    )


def completes_later(stage: Stage, expected: list[tuple[Any, ...]], **plan: Any) -> None:
    """Once the fault is over, `resume` ends as if nothing had been."""
    stage.script()
    ran(stage, "resume", code=0, **plan)
    assert stage.results() == expected


# --- 26: nobody there -----------------------------------------------------------------------------


@pytest.mark.nightly
def test_fault_26_a_service_that_was_never_reached_ends_the_run_at_once(
    make_stage: MakeStage, port: int
) -> None:
    stage = make_stage(cases=20, concurrency=10, judged=False)
    stage.models(url=f"http://127.0.0.1:{port}/v1")
    done = ran(stage, code=3)
    stopped = next(line for line in done.out.splitlines() if "small stopped: NETWORK" in line)
    assert stopped.endswith(
        f"cannot connect to http://127.0.0.1:{port}: connection refused (no call was answered yet)"
    )
    check = "    the host was not reached: check that it runs, base_url, proxy and network"
    assert check in done.err.splitlines()
    lines = done.err.splitlines()
    next_step = next(line for line in lines if line.startswith("Next: "))
    assert next_step.startswith("Next: small: the host was not reached")
    assert "; test it with: edison models test small; then: edison resume " in next_step
    assert stage.booked() == 0
    assert set(stage.states()) == {"released"}
    assert stage.rows("select status, verdict from run") == [("FAILED", "error")]
    # Five failures and what was on its way; one probe; the other cells are not tried.
    ((sent,),) = stage.rows("select count(*) from attempt")
    assert 6 <= sent <= 25

    with LoopbackServer(ledger=stage.server.ledger, port=port) as back:
        back.script = stage.server.script
        ran(stage, "resume", code=0)
        assert back.chats == 20
    assert stage.rows("select distinct status from cell") == [("ok",)]


DOWN = {"error": {"message": "The server had an error", "type": "server_error"}}


@pytest.mark.parametrize("status", [500, 503])
def test_fault_26_a_service_that_is_down_is_given_up_and_books_nothing(
    make_stage: MakeStage, status: int
) -> None:
    faster = 200.0
    stage = make_stage(cases=4, concurrency=10, judged=False, timeout_s=60.0)
    expected = stage.undisturbed()
    stage.script(rule(status=status, body=DOWN, model="small-1"))
    done = ran(stage, code=3, faster=faster)
    (stopped,) = [line for line in done.out.splitlines() if "small stopped: PROVIDER" in line]
    seconds = float(stopped.rpartition("(no answer for ")[2].removesuffix(" s)"))
    assert 90 <= seconds < 200, "the clock is 200 times as fast as the machine"
    assert "no answer; the model is given up" in done.err
    advice = "  Ctrl-C stops it; every answer is stored, and edison resume continues from there"
    assert done.err.splitlines().count(advice) == 1
    assert stage.booked() == 0
    assert set(stage.states()) == {"released"}
    assert stage.rows("select status, verdict from run order by rowid desc limit 1") == [
        ("FAILED", "error")
    ]
    # Each call had its attempts or a whole timeout: five failures, and three probes at most.
    assert 5 <= stage.count("attempt") <= 12
    completes_later(stage, expected)


def test_fault_26_other_models_continue_when_one_is_given_up(make_stage: MakeStage) -> None:
    stage = two_models(make_stage, cases=4, timeout_s=60.0)
    expected = stage.undisturbed()
    stage.script(rule(status=500, body=DOWN, model="small-1"))
    done = ran(stage, code=3, faster=400.0)
    assert "small stopped: PROVIDER_ERROR" in done.out
    assert "big stopped" not in done.out
    assert stage.count("cell where model = 'big' and status = 'ok'") == 4
    completes_later(stage, expected)


def test_fault_26_a_gateway_without_a_reply_stays_booked(make_stage: MakeStage) -> None:
    stage = make_stage(cases=2, judged=False, attempts=1, timeout_s=60.0)
    stage.script(rule(status=502, body=DOWN, model="small-1"))
    ran(stage, code=3, faster=400.0)
    assert set(stage.states()) == {"unknown"}
    assert stage.booked() > 0


@pytest.mark.nightly
def test_fault_26_a_service_that_is_down_opens_the_breaker(make_stage: MakeStage) -> None:
    faster = 400.0
    stage = make_stage(cases=20, concurrency=10, judged=False)
    stage.models(limits=", give_up_s: 600")
    expected = stage.undisturbed()
    stage.script(rule(status=503, model="small-1"))
    done = ran(stage, code=3, faster=faster)
    assert "small stopped: PROVIDER_ERROR" in done.out
    # Five failures and what was on its way; then single probes, each after twice the pause.
    sent = [
        dt.datetime.fromisoformat(time).timestamp()
        for (time,) in stage.rows("select sent_at from attempt order by id")
    ]
    # What was on its way when the fifth failed may still be sent.
    before, (first, second, third) = sent[4], sent[-3:]
    gaps = [b - a for a, b in zip((before, first, second), (first, second, third), strict=True)]
    for gap, pause in zip(gaps, (60, 120, 240), strict=True):
        assert gap >= 0.9 * pause / faster - 0.005
    assert 5 <= len(sent) - 3 <= 20
    completes_later(stage, expected, faster=faster)


def test_fault_26_an_unknown_host_is_told_by_its_name(make_stage: MakeStage) -> None:
    stage = make_stage(cases=2, judged=False, attempts=1)
    stage.models(url="http://nobody.invalid/v1")
    done = ran(stage, code=3, faster=1000.0)
    assert kinds(stage) == {"NETWORK": 2}
    assert "NETWORK" in done.out
    assert (stage.booked(), set(stage.states())) == (0, {"released"})


@pytest.mark.nightly
def test_fault_26_a_service_that_comes_back_closes_the_breaker(make_stage: MakeStage) -> None:
    stage = make_stage(cases=8, attempts=10)
    expected = stage.undisturbed()
    # Five to seven calls fail before the breaker opens, then two probes at most: three fit in.
    stage.script(rule(status=503, model="small-1", times=7))
    ran(stage, code=0, faster=200.0)
    stage.check_settled(lost=0)
    assert stage.results() == expected
    run = stage.run_json("status", "latest")
    assert run["calls"]["retried"] == 7


# --- 27 to 31: bad wires --------------------------------------------------------------------------


@pytest.mark.parametrize("deed", ["close", "reset"])
def test_fault_27_a_connection_that_breaks_is_unknown_and_tried_again(
    stage: Stage, deed: str
) -> None:
    expected = stage.undisturbed()
    stage.script(rule(do=deed, model="small-1", times=2))
    ran(stage, code=0, faster=20.0)
    assert stage.states() == {"settled": 12, "unknown": 2}
    stage.check_settled(lost=2)
    assert stage.results() == expected


GARBLED = ["truncate", "short", "bad_chunk", "html", "empty", "invalid_json"]


@pytest.mark.parametrize("deed", GARBLED)
def test_fault_28_a_reply_cut_off_is_booked_and_tried_again(stage: Stage, deed: str) -> None:
    expected = stage.undisturbed()
    stage.script(rule(do=deed, times=2))
    ran(stage, code=0, faster=20.0)
    assert stage.states() == {"settled": 12, "unknown": 2}
    stage.check_settled(lost=2)
    assert stage.results() == expected


@pytest.mark.parametrize("deed", GARBLED)
def test_fault_28_a_reply_always_cut_off_is_an_error_cell(stage: Stage, deed: str) -> None:
    expected = stage.undisturbed()
    stage.script(rule(do=deed, model="small-1", contains=ONE))
    ran(stage, code=0, faster=20.0)
    assert kinds(stage) == {"BAD_RESPONSE": 1}
    assert stage.states() == {"settled": 10, "unknown": 2}, "asked for once more, and no oftener"
    assert [cell for cell in stage.results() if cell[3] != "c1"] == [
        cell for cell in expected if cell[3] != "c1"
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("deed", ["dribble", "hang"])
def test_fault_29_30_a_reply_that_does_not_come_ends_in_a_time_out(
    make_stage: MakeStage, deed: str
) -> None:
    # Long enough for every other call, even on a machine that is busy with something else.
    stage = make_stage(timeout_s=4.0)
    expected = stage.undisturbed()
    stage.script(rule(do=deed, model="small-1", contains=ONE, times=1, interval_s=0.2))
    begun = time.monotonic()
    ran(stage, code=0)
    assert time.monotonic() - begun >= 4.0
    assert stage.states() == {"settled": 12, "unknown": 1}
    ((error,),) = stage.rows("select error from attempt where error is not null")
    assert error.startswith("TIMEOUT")
    stage.check_settled(lost=1)
    assert stage.results() == expected
    poll("no connection is left behind", lambda: stage.server.in_flight == 0)


@pytest.mark.nightly
def test_fault_31_an_endless_reply_is_cut_at_the_cap(stage: Stage) -> None:
    expected = stage.undisturbed()
    calm = stage.start("run", "--limit", "1")
    assert calm.wait().code == 0
    stage.script(rule(do="endless", model="small-1", contains=ONE))
    running = stage.start("run")
    done = running.wait()
    assert done.code == 0, done.all
    assert stage.rows("select error, reason from cell where status = 'error'") == [
        ("BAD_RESPONSE", "the reply is larger than 20 MB")
    ]
    assert running.peak_mb < calm.peak_mb + 80
    stage.check_file()
    poll("no connection is left behind", lambda: stage.server.in_flight == 0)
    assert len(stage.results()) == len(expected)


# --- 33 to 36: busy, empty account, wrong key -----------------------------------------------------


def in_seconds(seconds: float) -> str:
    return format_datetime(dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds), usegmt=True)


ASKS_FOR_9_S = {
    "seconds": lambda: {"retry-after": "9"},
    "date": lambda: {"retry-after": in_seconds(25)},
    "milliseconds": lambda: {"retry-after-ms": "9000"},
    "reset": lambda: {"x-ratelimit-reset-requests": "9s", "x-ratelimit-remaining-requests": "0"},
}
ASKS_NOTHING = {
    "past": lambda: {"retry-after": in_seconds(-3600)},
    "negative": lambda: {"retry-after": "-5"},
    "garbage": lambda: {"retry-after": "soon"},
}


def busy(headers: dict[str, str], **others: Any) -> Rule:
    return rule(status=429, headers=headers, model="small-1", times=1, **others)


@pytest.mark.nightly
@pytest.mark.parametrize("form", ASKS_FOR_9_S)
def test_fault_33_the_whole_lane_waits_as_long_as_it_is_asked_to(
    make_stage: MakeStage, form: str
) -> None:
    stage = make_stage(judged=False, cases=12)
    expected = stage.undisturbed()
    refuse, answer = threading.Event(), threading.Event()
    busy_one = busy({}, until=refuse)
    stage.script(busy_one, rule(until=answer))
    running = stage.start("run", faster=9.0)
    poll("both connections are in use", lambda: stage.server.in_flight == 2)
    busy_one.headers.update(ASKS_FOR_9_S[form]())
    asked_at, asked_s = time.monotonic(), 9.0
    if form == "date":
        asked_s = parsedate_to_datetime(busy_one.headers["retry-after"]).timestamp() - time.time()
    refuse.set()
    poll("the refusal was heard", lambda: stage.states().get("released"))
    answer.set()
    done = running.wait()
    assert done.code == 0, done.all
    # Only what was on its way when the refusal came arrives before.
    later = [seen.at - asked_at for seen in stage.server.requests[2:]]
    assert min(later) >= 0.95 * asked_s / 9
    assert stage.states() == {"released": 1, "settled": 12}
    stage.check_settled(lost=0)
    assert stage.results() == expected


@pytest.mark.parametrize("form", ASKS_NOTHING)
def test_fault_33_a_senseless_wish_is_no_wish(make_stage: MakeStage, form: str) -> None:
    stage = make_stage(judged=False)
    expected = stage.undisturbed()
    stage.script(busy(ASKS_NOTHING[form]()))
    ran(stage, code=0)
    assert stage.results() == expected


@pytest.mark.nightly
@pytest.mark.parametrize("form", ["3600", "date"])
def test_fault_33_a_long_wish_ends_the_lane_at_once(make_stage: MakeStage, form: str) -> None:
    stage = make_stage(judged=False, cases=12)
    expected = stage.undisturbed()
    header = in_seconds(3600) if form == "date" else form
    stage.script(rule(status=429, headers={"retry-after": header}, model="small-1"))
    running = stage.start("run")
    done = running.wait()
    assert done.code == 3, done.all
    assert "retry after 3" in done.out, "the time is told"
    assert set(kinds(stage)) == {"RATE_LIMIT"}
    assert len(stage.server.requests) <= 2
    assert stage.booked() == 0
    completes_later(stage, expected)


@pytest.mark.nightly
def test_fault_34_a_storm_of_refusals_loses_no_cell(make_stage: MakeStage) -> None:
    stage = make_stage(cases=30, concurrency=8, judged=False)
    expected = stage.undisturbed()
    stage.script(rule(status=429, for_s=2.0), rule(latency_s=0.01))
    stage.server._first_at = None  # the storm begins with the next request
    ran(stage, code=0, faster=10.0)
    stage.check_settled(lost=0)
    assert stage.results() == expected
    storm = [seen.at for seen in stage.server.requests if seen.at < stage.server.requests[0].at + 2]
    assert len(storm) < 30 * 8, "the client backs off"


EMPTY = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}


def two_models(make_stage: MakeStage, **shape: Any) -> Stage:
    stage = make_stage(judged=False, **shape)
    stage.folder.write(
        "models.yaml", stage.folder.read("models.yaml") + "big: {use: small, model: big-1}\n"
    )
    stage.folder.edit("experiments/hello.yaml", "models: [small]", "models: [small, big]")
    return stage


@pytest.mark.nightly
def test_fault_35_an_empty_account_stops_one_lane_and_no_other(make_stage: MakeStage) -> None:
    stage = two_models(make_stage, cases=10)
    expected = stage.undisturbed()
    stage.script(rule(status=429, body=EMPTY, model="small-1"))
    done = ran(stage, code=3)
    assert "small stopped: QUOTA" in done.out
    asked = [seen.json["model"] for seen in stage.server.requests]
    assert asked.count("small-1") <= 2, "it is not asked again"
    assert stage.count("cell where model = 'big' and status = 'ok'") == 10
    completes_later(stage, expected)


@pytest.mark.nightly
def test_fault_36_a_key_that_is_refused_stops_at_once(stage: Stage) -> None:
    expected = stage.undisturbed()
    stage.script(
        rule(model="small-1", times=2, latency_s=0.05),
        rule(status=401, model="small-1", latency_s=0.2, body={"error": {"message": "key"}}),
    )
    done = ran(stage, code=3)
    assert "small stopped: INVALID_KEY" in done.out
    refused = stage.count("attempt where http_status = 401")
    assert 1 <= refused <= stage.shape.concurrency
    assert stage.count("answer where served_model = 'small-1'") == 2
    completes_later(stage, expected)


# --- 37 to 41: wrong answers ----------------------------------------------------------------------


@pytest.mark.nightly
def test_fault_37_a_case_that_always_fails_is_one_error_and_no_wrong_answer(
    make_stage: MakeStage,
) -> None:
    stage = make_stage(cases=10)
    expected = stage.undisturbed()
    stage.script(rule(status=500, model="small-1", contains=ONE))
    run_before = ran(stage, code=0, faster=20.0)
    assert "1 error (10.0%) (1 PROVIDER_ERROR)" in run_before.out
    run = stage.run_json("status", "latest")
    assert run["cells"]["error"] == 1
    assert run["composite"]["n"] == 9, "an error is no answer, and not a wrong one either"
    assert stage.count("attempt where http_status = 500") == 3
    assert stage.rows("select composite, passed from cell where status = 'error'") == [(None, None)]
    others = [cell for cell in expected if cell[3] != "c1"]
    assert [cell for cell in stage.results() if cell[3] != "c1"] == others


@pytest.mark.nightly
def test_fault_37_more_errors_than_allowed_are_no_measurement(make_stage: MakeStage) -> None:
    stage = make_stage(cases=10, extra="max_errors: 5%\n")
    expected = stage.undisturbed()
    stage.script(*(rule(status=500, model="small-1", contains=case) for case in (ONE, "P002")))
    ran(stage, code=3, faster=20.0)
    assert stage.rows("select status, verdict from run") == [("FAILED", "error")]
    completes_later(stage, expected)


@pytest.mark.parametrize(
    ("deed", "retried"),
    [
        ("html", True),
        ("empty", True),
        ("error_in_200", False),
        ("invalid_json", True),
        ("wrong_schema", False),
        ("garbage", True),
    ],
)
def test_fault_38_a_reply_that_is_none_is_an_error_of_its_class(
    stage: Stage, deed: str, retried: bool
) -> None:
    stage.script(rule(do=deed, model="small-1", contains=ONE))
    ran(stage, code=0, faster=20.0)
    assert kinds(stage) == {str(ErrorKind.BAD_RESPONSE): 1}
    assert stage.states() == {"settled": 10, "unknown": 2 if retried else 1}


IMPOSSIBLE = {
    "missing": None,
    "negative": {"prompt_tokens": -5, "completion_tokens": -7},
    "texts": {"prompt_tokens": "12", "completion_tokens": "many"},
    "half": {"prompt_tokens": 12},
    "endless": {"prompt_tokens": 10**30, "completion_tokens": 10**30},
    "not a map": [1, 2],
    "none for a text": {"prompt_tokens": 12, "completion_tokens": 0},
}


@pytest.mark.parametrize("usage", IMPOSSIBLE)
def test_fault_39_a_usage_that_cannot_be_is_booked_at_the_estimate(
    make_stage: MakeStage, usage: str
) -> None:
    stage = make_stage(judged=False)
    stage.script(rule(usage=IMPOSSIBLE[usage]))
    ran(stage, code=0)
    assert stage.rows("select distinct cost_kind from answer") == [("estimated",)]
    assert stage.count("attempt where cost_microusd <> est_microusd or est_microusd <= 0") == 0
    assert stage.booked() == stage.one("select sum(est_microusd) from attempt")
    stage.check_settled(lost=0)


def test_fault_39_a_huge_usage_is_believed_and_stops_at_the_budget(make_stage: MakeStage) -> None:
    stage = make_stage(judged=False, cases=10, concurrency=1)
    huge = {"prompt_tokens": 50_000_000, "completion_tokens": 1}
    stage.script(rule(number=3, usage=huge))
    ran(stage, "run", "--budget", "1", code=4)
    assert stage.count("answer") == 3
    assert stage.booked() > 50_000_000
    assert stage.rows("select status, stopped_by from run") == [("PAUSED", "budget: --budget")]


@pytest.mark.nightly
def test_fault_40_another_model_than_asked_for_is_recorded_and_told(stage: Stage) -> None:
    stage.script(rule(model="small-1", contains=ONE, served_model="tiny-0"))
    done = ran(stage, code=0)
    assert stage.count("answer where served_model = 'tiny-0'") == 1
    assert "small" in done.err
    assert "tiny-0" in done.err
    dated = copied(stage, stage.folder.path.parent / "dated")
    dated.script(rule(model="small-1", served_model="small-1-2026-01-31"))
    done = dated.edison("run")
    assert done.code == 0
    assert "2026-01-31" not in done.err, "a dated name is the same model"


def test_fault_41_a_redirect_is_not_followed_and_takes_no_key_along(
    stage: Stage, make_stage: MakeStage
) -> None:
    key = "sk-canary-0123456789abcdefghij"
    with LoopbackServer() as other:
        stage.models(more=", key_env: CANARY_KEY")
        stage.folder.write(
            ".edison/trust.yaml",
            f'version: 1\nkeys: [{{env: CANARY_KEY, hosts: ["{stage.server.url}"]}}]\n',
        )
        stage.script(
            rule(do="redirect", model="small-1", location=f"{other.openai_url}/chat/completions")
        )
        done = stage.edison("run", env={"CANARY_KEY": key})
        assert done.code == 3, done.all
        assert other.requests == []
    assert kinds(stage) == {"BAD_RESPONSE": 6}
    assert stage.booked() == 0
    assert stage.server.requests[0].headers["authorization"] == f"Bearer {key}"
    for kept in (stage.folder.path / ".edison").rglob("*"):
        assert kept.is_dir() or key.encode() not in kept.read_bytes()
    assert key not in done.all
