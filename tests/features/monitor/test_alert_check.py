"""A check finds the conditions, opens and closes alerts, and writes all of it at once."""

from __future__ import annotations

import datetime as dt
import shutil
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from docs.sample import build
from edison_ci.access.site import Site, open_site
from edison_ci.config.load import load_project
from edison_ci.features.monitor.alert_check import check_alerts, check_experiments
from edison_ci.features.monitor.alert_rows import Condition, Finding, Level, alert_overview
from edison_ci.features.monitor.alerts import raise_alert
from edison_ci.store.database import open_for_change, open_for_reading
from edison_ci.store.liveness import ProcessLock
from tests.features.monitor.run_history import DAY, History
from tests.features.monitor.test_alerts import Clock
from tests.results.test_watching import failing, filled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.features.monitor.alert_rows import Alert
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

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


def disk_with(monkeypatch: pytest.MonkeyPatch, used: int) -> None:
    usage = shutil._ntuple_diskusage(1000, used, 1000 - used)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)


def test_a_disk_that_fills_warns_rises_and_closes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_with(monkeypatch, 900)
    assert check_alerts(site).opened == ()
    disk_with(monkeypatch, 910)
    assert check_alerts(site).opened == (1,)
    assert check_alerts(site).opened == ()
    disk_with(monkeypatch, 960)
    assert check_alerts(site).raised == (1,)
    (alert,) = alerts(site)
    assert (alert.condition, alert.level, alert.experiment) == ("disk", "alert", "")
    assert "96% full" in alert.sentence
    disk_with(monkeypatch, 500)
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


# --- experiments ----------------------------------------------------------------------------------


@pytest.fixture
def watched(mini: Folder, clock: Clock) -> tuple[Site, History]:
    """A project whose experiment has run every night; the clock follows the runs."""
    (mini.path / ".edison").mkdir()
    history = History(mini.path / ".edison/results.db", at=clock.now - 40 * DAY)
    filled(history, [0.8] * 10)
    return replace(open_site(mini.path), clock=clock), history


def conditions(site: Site) -> dict[str, str]:
    return {alert.condition: alert.level for alert in alerts(site)}


def test_an_alert_is_open_until_a_complete_run_does_not_show_it(
    watched: tuple[Site, History], clock: Clock
) -> None:
    site, history = watched
    clock.now = history.at
    assert check_alerts(site).opened == ()
    filled(history, [0.6] * 2)
    clock.now = history.at
    assert check_alerts(site).opened == (1,)
    assert conditions(site) == {"drop": "alert"}
    clock.move(DAY / 2)
    with open_for_reading(site.results) as reader:
        again = check_experiments(site, load_project(site.root), reader, ["hello"])
    assert check_alerts(site) == again
    filled(history, [0.8] * 3)
    clock.now = history.at
    assert check_alerts(site).closed == (1,)
    with open_for_reading(site.results) as connection:
        (past,) = alert_overview(connection, site.now()).past
    assert past.alert.closed_why == "a complete run does not show it"


def test_a_run_that_ends_during_a_check_closes_what_the_check_still_found(
    watched: tuple[Site, History], clock: Clock
) -> None:
    site, history = watched
    failing(history, 0.3)
    clock.now = history.at

    def slow() -> dt.datetime:
        before = clock.now
        clock.move(2 * DAY)
        return before

    check_alerts(replace(site, clock=slow))
    assert conditions(site) == {"error_rate": "alert"}
    failing(history, 0.0)  # a day after the check began, and before it wrote what it found
    assert history.at < clock.now
    assert check_alerts(site).closed == (1,)


def test_a_run_that_failed_does_not_close_an_alert(
    watched: tuple[Site, History], clock: Clock
) -> None:
    site, history = watched
    failing(history, 0.3)
    clock.now = history.at
    check_alerts(site)
    assert conditions(site) == {"error_rate": "alert"}
    failing(history, 0.0, status="FAILED")
    clock.now = history.at
    assert check_alerts(site).closed == ()
    failing(history, 0.0)
    clock.now = history.at
    assert check_alerts(site).closed == (1,)


def test_a_fall_keeps_its_name_while_it_is_open(
    watched: tuple[Site, History], clock: Clock
) -> None:
    site, history = watched
    with open_for_change(site.results) as connection:
        slow = Finding(Condition.SLOW_FALL, Level.WARN, "Falling.", "hello")
        raise_alert(connection, site, slow)
    filled(history, [0.6] * 2)
    clock.now = history.at
    assert check_alerts(site).raised == (1,)
    assert conditions(site) == {"slow_fall": "alert"}


def test_what_the_scheduler_found_is_closed_by_the_next_complete_run(
    watched: tuple[Site, History], clock: Clock
) -> None:
    site, history = watched
    clock.now = history.at + DAY / 24
    with open_for_change(site.results) as connection:
        missed = Finding(Condition.SCHEDULE_MISSED, Level.ALERT, "Missed.", "hello")
        raise_alert(connection, site, missed)
    assert check_alerts(site).closed == ()
    filled(history, [0.8])
    clock.now = history.at
    assert check_alerts(site).closed == (1,)


def test_alerts_of_an_experiment_that_is_gone_are_closed(
    mini: Folder, watched: tuple[Site, History], clock: Clock
) -> None:
    site, history = watched
    filled(history, [0.6] * 2)
    clock.now = history.at
    assert check_alerts(site).opened == (1,)
    (mini.path / "experiments/hello.yaml").unlink()
    assert check_alerts(site).closed == (1,)


def test_only_the_experiments_that_ran_are_checked_after_a_run(
    watched: tuple[Site, History], clock: Clock
) -> None:
    site, history = watched
    other = Finding(Condition.DROP, Level.WARN, "x", "other")
    machine = Finding(Condition.DISK, Level.WARN, "x")
    with open_for_change(site.results) as connection:
        for finding in (other, machine):
            raise_alert(connection, site, finding)
    filled(history, [0.6] * 2)
    with open_for_reading(site.results) as reader:
        done = check_experiments(site, load_project(site.root), reader, ["hello"])
    assert (done.opened, done.closed) == ((3,), ())


def spent(site: Site, scope: str, microusd: int) -> None:
    with sqlite3.connect(site.results) as connection:
        row = (scope, site.now()[:10], microusd)
        connection.execute(
            "insert or replace into booked (scope, day, microusd) values (?, ?, ?)", row
        )
    connection.close()


def test_budgets_of_the_run_the_day_and_the_month_are_alerts(
    mini: Folder, watched: tuple[Site, History], clock: Clock
) -> None:
    _, history = watched
    clock.now = history.at
    mini.write(
        "experiments/hello.yaml",
        mini.read("experiments/hello.yaml")
        + "stop: {budget_usd: 1, daily_budget_usd: 2, alert_at: 0.7}\n",
    )
    mini.write("edison.yaml", mini.read("edison.yaml") + "settings: {monthly_budget_usd: 10}\n")
    site = replace(open_site(mini.path), clock=clock)
    spent(site, "run:run-010", 600_000)
    assert check_alerts(site).opened == ()
    spent(site, "run:run-010", 800_000)
    check_alerts(site)
    (alert,) = alerts(site)
    assert (alert.condition, alert.level, alert.experiment) == ("budget", "warn", "hello")
    assert alert.sentence == "80% of stop.budget_usd is used."
    spent(site, "experiment:hello", 2_000_000)
    assert check_alerts(site).raised == (1,)
    assert "100% of stop.daily_budget_usd is used" in alerts(site)[0].sentence
    spent(site, "project", 9_000_000)
    assert check_alerts(site).opened == (2,)
    month = next(alert for alert in alerts(site) if not alert.experiment)
    assert (month.sentence, month.level) == ("90% of settings.monthly_budget_usd is used.", "warn")
    clock.move(DAY)
    filled(history, [0.8])
    assert check_alerts(site).closed == (1,)


def test_a_run_that_a_budget_stopped_is_an_alert(
    watched: tuple[Site, History], clock: Clock
) -> None:
    site, history = watched
    clock.now = history.at
    with sqlite3.connect(site.results) as connection:
        connection.execute(
            "update run set status = 'PAUSED', stopped_by = 'budget', complete = 0 "
            "where id = 'run-010'"
        )
    connection.close()
    check_alerts(site)
    (alert,) = alerts(site)
    assert (alert.condition, alert.level) == ("budget", "alert")
    assert alert.sentence == "Run run-010 was stopped by a budget."


def test_a_frequent_check_looks_only_at_what_ran_lately(
    watched: tuple[Site, History], clock: Clock
) -> None:
    site, history = watched
    filled(history, [0.6] * 2)
    clock.now = history.at + 2 * HOUR
    assert check_alerts(site, thorough=False).opened == ()
    assert check_alerts(site).opened == (1,)
    assert check_alerts(site, thorough=False).closed == ()
    filled(history, [0.8] * 3)
    clock.now = history.at + 2 * HOUR
    assert check_alerts(site, thorough=False).closed == ()
    clock.now = history.at + HOUR / 2
    assert check_alerts(site, thorough=False).closed == (1,)


def test_a_frequent_check_neither_reads_nor_closes_what_is_damaged(site: Site) -> None:
    with open_for_change(site.results) as connection:
        raise_alert(connection, site, Finding(Condition.DATABASE, Level.ALERT, "Damaged."))
    assert check_alerts(site, thorough=False).closed == ()
    assert check_alerts(site).closed == (1,)
