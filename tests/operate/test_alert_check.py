"""A check finds the conditions, opens and closes alerts, and writes all of it at once."""

from __future__ import annotations

import datetime as dt
import shutil
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from docs.sample import build
from edison_ci.operate.alert_check import check_alerts
from edison_ci.operate.site import Site, open_site
from edison_ci.results.alerts import alert_overview
from edison_ci.store.database import open_for_reading
from edison_ci.store.liveness import ProcessLock
from tests.operate.test_alerts import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.store.alerts import Alert
    from tests.conftest import Folder

HOUR = dt.timedelta(hours=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def site(mini: Folder, clock: Clock) -> Site:
    (mini.path / ".edison").mkdir()
    build(mini.path / ".edison/results.db")
    return replace(open_site(mini.path), clock=clock)


def alerts(site: Site) -> list[Alert]:
    with open_for_reading(site.results) as connection:
        return [entry.alert for entry in alert_overview(connection, site.now()).open]


# --- disk and database ----------------------------------------------------------------------------


def filled(monkeypatch: pytest.MonkeyPatch, used: int) -> None:
    usage = shutil._ntuple_diskusage(1000, used, 1000 - used)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)


def test_a_disk_that_fills_warns_rises_and_closes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(monkeypatch, 900)
    assert check_alerts(site).opened == ()
    filled(monkeypatch, 910)
    assert check_alerts(site).opened == (1,)
    assert check_alerts(site).opened == ()
    filled(monkeypatch, 960)
    assert check_alerts(site).raised == (1,)
    (alert,) = alerts(site)
    assert (alert.condition, alert.level, alert.experiment) == ("disk", "alert", "")
    assert "96% full" in alert.sentence
    filled(monkeypatch, 500)
    assert check_alerts(site).closed == (1,)


def test_damaged_pages_are_an_alert(site: Site) -> None:
    with sqlite3.connect(site.results) as connection:
        connection.execute("pragma journal_mode = delete")
        page, size = connection.execute(
            "select rootpage, (select page_size from pragma_page_size) from sqlite_schema "
            "where name = 'rollup_slice'"
        ).fetchone()
    connection.close()
    with site.results.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\x0d" + b"\xff" * 60)
    check_alerts(site)
    (alert,) = alerts(site)
    assert (alert.condition, alert.level) == ("database", "alert")
    assert "damaged" in alert.sentence


# --- stuck runs -----------------------------------------------------------------------------------


@pytest.fixture
def owner(site: Site) -> Iterator[ProcessLock]:
    lock = ProcessLock(site.locks)
    yield lock
    lock.close()


def started(site: Site, owner: str, *, run_id: str = "going", status: str = "EXECUTING") -> None:
    """Store a run that a process works on, as of now."""
    with sqlite3.connect(site.results) as connection:
        columns = [row[1] for row in connection.execute("pragma table_info(run)")]
        given = {"id": run_id, "status": status, "owner": owner, "created_at": site.now(),
                 "complete": 0, "finished_at": None, "experiment": "hello",
                 "trigger": "schedule"}  # fmt: skip
        values = ", ".join("?" if name in given else name for name in columns)
        places = [given[name] for name in columns if name in given]
        connection.execute(f"insert into run select {values} from run limit 1", places)
    connection.close()


def test_a_run_whose_process_is_gone_is_stuck_until_it_ends(site: Site, clock: Clock) -> None:
    started(site, "1-gone")
    assert check_alerts(site).opened == ()
    clock.move(HOUR / 5)
    check_alerts(site)
    (alert,) = alerts(site)
    assert (alert.condition, alert.experiment, alert.run_id, alert.level) == (
        "stuck_run", "hello", "going", "warn",
    )  # fmt: skip
    assert "The process of run going is gone" in alert.sentence
    assert "edison resume going" in alert.sentence
    clock.move(6 * HOUR)
    assert check_alerts(site).raised == (1,)
    with sqlite3.connect(site.results) as connection:
        connection.execute("update run set status = 'CANCELLED' where id = 'going'")
    connection.close()
    assert check_alerts(site).closed == (1,)


def test_a_run_of_a_living_process_is_stuck_after_an_hour_without_an_event(
    site: Site, clock: Clock, owner: ProcessLock
) -> None:
    started(site, owner.id)
    clock.move(HOUR / 2)
    assert check_alerts(site).opened == ()
    with sqlite3.connect(site.results) as connection:
        row = (site.now(), "going", "run:progress", "{}")
        connection.execute("insert into event (time, run_id, type, data) values (?, ?, ?, ?)", row)
    connection.close()
    clock.move(HOUR * 0.9)
    assert check_alerts(site).opened == ()
    clock.move(HOUR / 5)
    check_alerts(site)
    assert "has made no progress for 66 min" in alerts(site)[0].sentence


@pytest.mark.parametrize("status", ["PAUSED", "REVIEWING", "FAILED"])
def test_a_run_that_waits_for_a_person_is_not_stuck(site: Site, clock: Clock, status: str) -> None:
    started(site, "1-gone", status=status)
    clock.move(9 * HOUR)
    assert check_alerts(site).opened == ()


def test_a_newer_complete_run_replaces_a_stuck_one(site: Site, clock: Clock) -> None:
    started(site, "1-gone")
    clock.move(HOUR)
    assert check_alerts(site).opened == (1,)
    started(site, "2-done", run_id="newer", status="COMPLETED")
    with sqlite3.connect(site.results) as connection:
        connection.execute("update run set complete = 1 where id = 'newer'")
    connection.close()
    assert check_alerts(site).closed == (1,)
