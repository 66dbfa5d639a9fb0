"""Faults 1 to 7: a process killed at a named point leaves nothing that resuming does not mend.

After each kill the file is whole and has booked at least what the server charged; `resume` ends as
a run that nobody disturbed, and settles every call once.
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.loopback.script import rule
from tests.timing import poll

if TYPE_CHECKING:
    from tests.faults.conftest import MakeStage
    from tests.faults.stage import Stage

pytestmark = pytest.mark.daily

LONG = os.environ.get("FAULTS") == "long"
CONNECTIONS = 4
"""Two models, two calls at once each: so many answers may be paid for and lost."""


def killed(stage: Stage, **plan: Any) -> None:
    """Run until the point where the process dies, and look at what it leaves."""
    done = stage.edison("run", **plan)
    assert done.code == -signal.SIGKILL, f"it did not die at {plan}: {done.all}"
    stage.check_file()


def resumed(stage: Stage, expected: list[tuple[Any, ...]], *, lost: int = CONNECTIONS) -> None:
    """Go on, and end as if nothing had been."""
    if not stage.count("run where status = 'COMPLETED'"):
        done = stage.edison("resume" if stage.count("run") else "run")
        assert done.code == 0, done.all
    stage.check_settled(lost=lost)
    assert stage.results() == expected
    assert stage.one("select complete from run order by rowid desc limit 1") == 1


# --- by name --------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("point", ["reserve:queued", "reserve:done"])
def test_fault_01_killed_before_the_first_call_is_booked(stage: Stage, point: str) -> None:
    expected = stage.undisturbed()
    killed(stage, point=point)
    assert (stage.states(), stage.server.ledger_rows()) == ({}, [])
    resumed(stage, expected, lost=0)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("model", "nth"), [("small", 4), ("judge", 1), *([("small", 1), ("judge", 5)] if LONG else [])]
)
def test_fault_02_killed_after_booking_before_sending(stage: Stage, model: str, nth: int) -> None:
    expected = stage.undisturbed()
    killed(stage, point="sending", model=model, nth=nth)
    open_ones = stage.states()["reserved"]
    assert 1 <= open_ones <= CONNECTIONS
    resumed(stage, expected)
    assert stage.states()["unknown"] == open_ones
    run = stage.run_json("status", "latest")
    assert run["calls"]["unknown"] == open_ones


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["small-1", "judge-1"])
def test_fault_03_killed_after_sending_before_the_reply(stage: Stage, model: str) -> None:
    expected = stage.undisturbed()
    stage.script(rule(do="hang", model=model))
    running = stage.start("run")

    def charged() -> bool:
        return len([row for row in stage.server.ledger_rows() if row["model"] == model]) >= 2

    poll("both connections hang", charged)
    running.send(signal.SIGKILL)
    assert running.wait().code == -signal.SIGKILL
    stage.check_file()
    assert 2 <= stage.states()["reserved"] <= CONNECTIONS
    stage.script()
    resumed(stage, expected)
    assert 2 <= len(stage.server.ledger_rows()) - stage.count("answer") <= CONNECTIONS


@pytest.mark.nightly
@pytest.mark.parametrize(("model", "nth"), [("small", 1), ("small", 6), ("judge", 3)])
def test_fault_04_killed_with_the_reply_in_hand(stage: Stage, model: str, nth: int) -> None:
    expected = stage.undisturbed()
    killed(stage, point="answered", model=model, nth=nth)
    resumed(stage, expected)
    assert 1 <= len(stage.server.ledger_rows()) - stage.count("answer") <= CONNECTIONS


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("point", "nth"),
    [("settle:statement", n) for n in (range(1, 7) if LONG else (1, 6))]
    + [("settle:done", 3), *(("totals:statement", n) for n in (range(1, 5) if LONG else (1, 4)))],
)
def test_fault_05_killed_inside_the_settling_transaction(
    stage: Stage, point: str, nth: int
) -> None:
    expected = stage.undisturbed()
    killed(stage, point=point, nth=nth)
    settled = stage.states().get("settled", 0)
    assert stage.count("answer") == stage.count("answer_text") == settled
    resumed(stage, expected)


@pytest.mark.nightly
def test_fault_06_killed_with_the_answer_stored_before_scoring(stage: Stage) -> None:
    expected = stage.undisturbed()
    killed(stage, point="grading", nth=3)
    kept = stage.count("answer where served_model = 'small-1'")
    assert kept >= 3
    stage.check_file()
    # Not the server's ledger: what a dead process sent last may come into it late.
    last = stage.one("select max(id) from attempt")
    resumed(stage, expected)
    bought = stage.count(f"attempt where id > {last} and model = 'small'")
    assert bought == len(expected) - kept, "a stored answer was bought again"


@pytest.mark.nightly
def test_fault_07_killed_with_every_grade_in_hand(make_stage: MakeStage) -> None:
    stage = make_stage(concurrency=6)
    expected = stage.undisturbed()
    killed(stage, point="graded", nth=6)
    assert stage.count("answer") == 12
    calls = stage.server.chats
    resumed(stage, expected, lost=0)
    assert stage.server.chats == calls, "scoring again costs nothing"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("point", "nth"),
    [("finish_cells:queued", 1), ("finish_cells:done", 1)]
    + [("finish_cells:statement", n) for n in ((1, 2, 3) if LONG else (2,))],
)
def test_fault_07_killed_while_scores_are_written(stage: Stage, point: str, nth: int) -> None:
    expected = stage.undisturbed()
    killed(stage, point=point, nth=nth)
    assert stage.count("cell") == 0, "cells and their parts are written together or not at all"
    resumed(stage, expected)


@pytest.mark.nightly
@pytest.mark.parametrize("point", ["move_run:done", *(["move_run:queued"] if LONG else [])])
@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_fault_07_killed_while_the_run_begins_or_concludes(
    stage: Stage, point: str, nth: int
) -> None:
    expected = stage.undisturbed()
    killed(stage, point=point, nth=nth)
    calls = stage.server.chats
    resumed(stage, expected, lost=0)
    if nth > 1:
        assert stage.server.chats == calls


# --- by number ------------------------------------------------------------------------------------


@pytest.mark.nightly
@pytest.mark.parametrize("point", ["commit:after", *(["commit:before"] if LONG else [])])
def test_fault_05_killed_at_every_commit_in_turn(make_stage: MakeStage, point: str) -> None:
    """The n-th commit is the last, for every n until a run gets through."""
    cases = 3 if LONG else 2
    number = 0
    while True:
        number += 1
        # With a server of its own: what a dead process sent last may come into the ledger late.
        stage = make_stage(cases=cases)
        expected = stage.undisturbed()
        done = stage.edison("run", point=point, nth=number)
        if done.code == 0:
            break
        assert done.code == -signal.SIGKILL, done.all
        stage.check_file()
        resumed(stage, expected)
    assert number > cases


@pytest.mark.nightly
def test_fault_02_a_process_that_dies_again_and_again_gets_there(stage: Stage) -> None:
    expected = stage.undisturbed()
    # Two places and one call booked ahead: before a fifth answer comes, the first is on the disk.
    killed(stage, point="answered", nth=5)
    deaths = 1
    while True:
        done = stage.edison("resume", point="answered", nth=5)
        if done.code == 0:
            break
        assert done.code == -signal.SIGKILL, done.all
        deaths += 1
        stage.check_file()
        assert deaths < 20, "it does not get on"
    assert deaths > 1
    stage.check_settled(lost=CONNECTIONS * deaths)
    assert stage.results() == expected
