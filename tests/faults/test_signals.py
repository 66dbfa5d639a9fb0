"""Faults 11 to 13: asked to stop, asked twice, given no time, and put to sleep."""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.loopback.script import rule
from tests.timing import PATIENCE_S, poll

if TYPE_CHECKING:
    from tests.faults.conftest import MakeStage
    from tests.faults.stage import Stage

pytestmark = pytest.mark.daily


def in_flight(stage: Stage, calls: int) -> None:
    poll(f"{calls} calls in flight", lambda: stage.server.in_flight >= calls)


def resumed(stage: Stage, expected: list[tuple[Any, ...]], *, lost: int) -> None:
    stage.script()
    done = stage.edison("resume")
    assert done.code == 0, done.all
    stage.check_settled(lost=lost)
    assert stage.results() == expected


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_fault_11_one_signal_finishes_what_is_in_flight(
    stage: Stage, number: signal.Signals
) -> None:
    expected = stage.undisturbed()
    go = threading.Event()
    stage.script(rule(model="small-1", until=go))
    running = stage.start("run", grace_s=PATIENCE_S)
    in_flight(stage, 2)
    running.send(number)
    running.until_it_says("stopping")
    go.set()
    done = running.wait()
    assert done.code == 130, done.all
    assert stage.rows("select status, stopped_by from run") == [("PAUSED", number.name)]
    assert "edison resume" in done.err
    assert set(stage.states()) == {"settled"}
    assert 0 < stage.count("cell") < 6
    resumed(stage, expected, lost=0)


def test_fault_11_a_second_signal_ends_it_at_once(stage: Stage) -> None:
    expected = stage.undisturbed()
    stage.script(rule(do="hang", model="small-1"))
    running = stage.start("run", grace_s=2 * PATIENCE_S)
    in_flight(stage, 2)
    running.send(signal.SIGINT)
    running.until_it_says("stopping")  # two signals in one moment are one
    running.send(signal.SIGINT)
    done = running.wait()
    assert done.code == 130, done.all
    assert stage.states() == {"unknown": 2}
    stage.check_file()
    resumed(stage, expected, lost=2)


@pytest.mark.nightly
def test_fault_11_a_second_signal_while_the_store_is_held_by_others(stage: Stage) -> None:
    """Whoever waits for the disk is cancelled; the writer must survive that."""
    expected = stage.undisturbed()
    go = threading.Event()
    stage.script(rule(model="small-1", until=go))
    says = ("settle:queued", "signalled")
    running = stage.start("run", grace_s=2 * PATIENCE_S, busy_s=PATIENCE_S, says=says)
    in_flight(stage, 2)
    other = sqlite3.connect(stage.database, isolation_level=None, timeout=PATIENCE_S)
    other.execute("begin immediate")
    try:
        go.set()
        running.until_it_says("settle:queued", 2)  # the answers are there and wait to be written
        for times in (1, 2):
            running.send(signal.SIGINT)
            running.until_it_says("signalled", times)
        assert not running.has_ended
    finally:
        other.execute("rollback")
        other.close()
    done = running.wait()
    assert done.code == 130, done.all
    # An answer in hand is stored, whoever gives up; what was booked and not sent is released.
    assert set(stage.states()) - {"released"} == {"settled"}
    resumed(stage, expected, lost=0)


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_fault_12_calls_longer_than_the_grace_are_given_up(
    make_stage: MakeStage, number: signal.Signals
) -> None:
    stage = make_stage(timeout_s=2 * PATIENCE_S)
    expected = stage.undisturbed()
    stage.script(rule(do="hang", model="small-1"))
    running = stage.start("run", grace_s=1.0)
    in_flight(stage, 2)
    begun = time.monotonic()
    running.send(number)
    done = running.wait()
    assert done.code == 130, done.all
    assert time.monotonic() - begun >= 0.9
    assert stage.rows("select status, stopped_by from run") == [("PAUSED", number.name)]
    assert stage.states() == {"unknown": 2}
    resumed(stage, expected, lost=2)


@pytest.mark.nightly
def test_fault_13_put_to_sleep_longer_than_the_time_out(make_stage: MakeStage) -> None:
    stage = make_stage(timeout_s=5.0)
    expected = stage.undisturbed()
    go = threading.Event()
    stage.script(rule(model="small-1", until=go))
    running = stage.start("run")
    in_flight(stage, 2)
    running.send(signal.SIGSTOP)
    go.set()
    time.sleep(5.5)  # no clock but the system's goes on while a process is stopped
    running.send(signal.SIGCONT)
    done = running.wait()
    assert done.code == 0, done.all
    # At most the calls that were in flight timed out, each once.
    assert stage.states().get("unknown", 0) <= 2
    stage.check_settled(lost=2)
    assert stage.results() == expected


def test_fault_13_put_to_sleep_shorter_than_the_time_out(stage: Stage) -> None:
    expected = stage.undisturbed()
    go = threading.Event()
    stage.script(rule(model="small-1", until=go))
    running = stage.start("run")
    in_flight(stage, 2)
    running.send(signal.SIGSTOP)
    go.set()
    poll("the replies are sent", lambda: stage.server.in_flight == 0)
    running.send(signal.SIGCONT)
    done = running.wait()
    assert done.code == 0, done.all
    assert set(stage.states()) == {"settled"}
    stage.check_settled(lost=0)
    assert stage.results() == expected
