"""What a page shows of a run that goes on."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edison_ci import utc
from edison_ci.results.live_progress import (
    ModelProgress,
    Phase,
    PhaseChange,
    newest_cells,
    phase_changes,
    phases_of,
    progress_of,
)
from edison_ci.store.runs import find_run
from edison_ci.web.page_context import Links
from edison_ci.web.pages.live import live_view

if TYPE_CHECKING:
    import sqlite3

    from tests.web.conftest import Stored

LINKS = Links(str, "results", several=False)


def test_figures_are_those_of_the_terminal(connection: sqlite3.Connection, stored: Stored) -> None:
    found = progress_of(connection, find_run(connection, stored.against))
    small = next(model for model in found.models if model.name == "small")
    assert small == ModelProgress("small", "cells", 96, 96, 0, False)
    assert {model.unit for model in found.models} == {"cells", "calls"}
    assert found.tokens_in > found.tokens_out > 0
    assert found.cost_microusd > 0


def test_phases_have_their_times() -> None:
    changes = [
        PhaseChange(1, "2026-11-15T12:00:00.000Z", "EXECUTING"),
        PhaseChange(5, "2026-11-15T12:00:30.000Z", "PAUSED"),
        PhaseChange(6, "2026-11-15T12:10:30.000Z", "EXECUTING"),
    ]
    now = dt.datetime(2026, 11, 15, 12, 11, tzinfo=dt.UTC)
    assert phases_of(changes, now) == [
        Phase("EXECUTING", 30.0, False),
        Phase("PAUSED", 600.0, False),
        Phase("EXECUTING", 30.0, True),
    ]


def test_changes_of_status_are_read_from_where_one_was(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    found = phase_changes(connection, stored.against)
    assert [each.status for each in found][:2] == ["EXECUTING", "JUDGING"]
    assert phase_changes(connection, stored.against, after=found[0].seq) == found[1:]


def test_the_newest_answers_are_those_written_last(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    paused = stored.one("select id from run where status = 'PAUSED'")
    run = find_run(connection, paused)
    found = newest_cells(connection, run, 3)
    rows = stored.rows("select id from cell where run_id = ? order by rowid desc limit 3", run.id)
    assert [each.about.id for each in found] == [cell for (cell,) in rows]
    assert all(each.text for each in found)


def test_time_left_is_said_only_if_it_is_known(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    run = find_run(connection, stored.against)
    new = replace(progress_of(connection, run), time=utc.timestamp(utc.now()))

    def left(**changes: Any) -> str:
        view = live_view(connection, run, replace(new, **changes), [], LINKS)
        return str(view["texts"]["left"])

    assert left() == "all cells are done: adding up"
    assert left(done=5) == "time left not known yet"
    assert left(done=5, left_s=300.0) == "about 5 min left"
    assert left(done=5, left_s=300.0, in_batch=4) == "time left unknown: 4 cells in a batch"
    old = left(done=5, left_s=300.0, time="2026-01-01T00:00:00.000Z")
    assert old.startswith("time left unknown: nothing new for ")


def test_limits_stand_beside_what_is_used(connection: sqlite3.Connection, stored: Stored) -> None:
    run = find_run(connection, stored.against)
    free = replace(progress_of(connection, run), budget_microusd=None)
    assert live_view(connection, run, free, [], LINKS)["texts"]["cost"].endswith(", no limit")
    limited = replace(
        free, cost_microusd=500_000, budget_microusd=2_000_000, booked_tokens=30, budget_tokens=40
    )
    view = live_view(connection, run, limited, [], LINKS)
    assert view["texts"]["cost"] == "$0.50 of $2.00"
    assert view["texts"]["tokens"] == "30 of 40"
    assert [(bar["name"], bar["text"]) for bar in view["bars"][-2:]] == [
        ("cost", "25% of the limit of $2.00"),
        ("tokens", "75% of the limit of 40"),
    ]
