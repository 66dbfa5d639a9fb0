"""Figures of a run that goes on, at times that the tests choose."""

from __future__ import annotations

from collections import Counter

import pytest

from edison_ci.execute.clients import PhaseCalls
from edison_ci.execute.progress import Progress, ProgressMeter

pytestmark = pytest.mark.daily


def fresh(**planned: int) -> Progress:
    return Progress(total=sum(planned.values()), planned_by_client=Counter(planned))


def finish(progress: Progress, **cells: int) -> None:
    progress.done_by_client.update(cells)
    progress.cells.update(ok=sum(cells.values()))


def test_the_slowest_model_says_how_long_it_takes() -> None:
    progress = fresh(quick=100, slow=100)
    meter = ProgressMeter(progress, 0.0)
    finish(progress, quick=40, slow=10)
    quick, slow = meter.rows(10.0)
    assert (quick.rate, slow.rate) == (4.0, 1.0)
    assert meter.left_s(10.0) == 90.0
    assert meter.elapsed_s(10.0) == 10.0


def test_while_a_model_has_hardly_answered_all_of_them_say_how_long_it_takes() -> None:
    progress = fresh(quick=100, slow=100)
    meter = ProgressMeter(progress, 0.0)
    assert meter.left_s(0.5) is None
    finish(progress, quick=38, slow=2)
    assert meter.rows(10.0)[1].rate is None
    assert meter.left_s(10.0) == 40.0


def test_a_model_that_was_given_up_is_not_waited_for() -> None:
    progress = fresh(quick=100, slow=100)
    meter = ProgressMeter(progress, 0.0)
    finish(progress, quick=50, slow=5)
    progress.closed["slow"] = "wrong key"
    assert meter.left_s(10.0) == 10.0
    assert [row.stopped for row in meter.rows(10.0)] == [False, True]


def test_the_speed_is_that_of_the_last_minute() -> None:
    progress = fresh(small=1000)
    meter = ProgressMeter(progress, 0.0)
    finish(progress, small=500)
    for second in range(1, 100):
        meter.left_s(float(second))
    assert [row.rate for row in meter.rows(100.0)] == [0.0]
    assert meter.left_s(100.0) is None


def test_what_an_earlier_session_did_says_nothing_about_the_speed_of_this_one() -> None:
    progress = fresh(small=100)
    progress.calls["judge", "boss"] = PhaseCalls(per_cell=2.0)
    finish(progress, small=60)
    meter = ProgressMeter(progress, 0.0)
    finish(progress, small=10)
    progress.calls["judge", "boss"].answered = 19
    progress.calls["judge", "boss"].failed = 1
    small, boss = meter.rows(10.0)
    assert (small.done, small.planned, small.rate) == (70, 100, 1.0)
    assert (boss.name, boss.unit, boss.errors) == ("boss (judge)", "calls", 1)
    assert (boss.done, boss.planned) == (20, 80)


def test_a_run_that_may_stop_early_is_shown_as_a_part_of_the_most_it_may_come_to() -> None:
    progress = fresh(small=25)
    progress.most = 100
    meter = ProgressMeter(progress, 0.0)
    finish(progress, small=25)
    assert [(row.done, row.planned) for row in meter.rows(5.0)] == [(25, 100)]


def test_more_calls_than_planned_never_go_beyond_the_whole() -> None:
    progress = fresh(small=10)
    progress.calls["judge", "boss"] = PhaseCalls(per_cell=1.0, answered=12)
    assert [(row.done, row.planned) for row in ProgressMeter(progress, 0.0).rows(0.0)][1] == (
        12,
        12,
    )
