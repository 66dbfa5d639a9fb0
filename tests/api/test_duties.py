"""Duties are done once per period, whoever does them, and one that fails is on its own."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from docs.sample import build
from edison_ci import utc
from edison_ci.access.site import Site, open_site
from edison_ci.api.duties import DAY_S, Duty, duties_of, duty_statuses, run_due
from edison_ci.errors import BusyError, StoreError
from edison_ci.store.audit import read_audit
from edison_ci.store.database import open_reader
from edison_ci.store.duties import DutyState, stored_duties
from edison_ci.store.liveness import ProcessLock
from tests import forked
from tests.opened import opened
from tests.timing import PATIENCE_S, poll

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Folder

pytestmark = pytest.mark.daily

NOON = dt.datetime(2027, 6, 1, 12, tzinfo=dt.UTC)


def after(seconds: float) -> dt.datetime:
    return NOON + dt.timedelta(seconds=seconds)


@pytest.fixture
def site(mini: Folder) -> Site:
    """A project with results that nothing needs any more, at noon."""
    (mini.path / ".edison").mkdir(exist_ok=True)
    build(mini.path / ".edison/results.db")
    with opened(mini.path / ".edison/results.db") as connection:
        connection.execute(
            "update run set complete = 0, created_at = '2020' || substr(created_at, 5)"
        )
        connection.execute("drop trigger answer_is_kept")
        connection.execute("update answer set created_at = '2020-01-01T00:00:00Z'")
    return at(mini)


def at(folder: Folder) -> Site:
    found = open_site(folder.path)
    return Site(found.root, found.file, lambda: NOON)


def state(site: Site, name: str) -> DutyState:
    return stored_duties(site.results)[name]


def has_ended(site: Site, name: str) -> bool:
    found = stored_duties(site.results).get(name)
    return found is not None and found.ended_at is not None


def raising(error: Exception) -> Callable[[Site], str]:
    def act(site: Site) -> str:
        raise error

    return act


def test_a_duty_is_done_once_per_period(site: Site) -> None:
    done: list[Site] = []

    def act(site: Site) -> str:
        done.append(site)
        return "swept"

    duties = (Duty("sweep", 3600, act),)
    assert run_due(site, duties, NOON) == {"sweep": "done"}
    assert run_due(site, duties, after(3599)) == {}
    assert run_due(site, duties, after(3600)) == {"sweep": "done"}
    assert done == [site, site]
    found = state(site, "sweep")
    assert (found.started_at, found.due_at) == (
        utc.timestamp(after(3600)),
        utc.timestamp(after(7200)),
    )
    assert (found.outcome, found.detail, found.failures) == ("done", "swept", 0)


def test_a_failing_duty_stops_no_other_and_is_tried_again_soon(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Duty("broken", DAY_S, raising(StoreError("the disk is full")))
    odd = Duty("odd", DAY_S, raising(ValueError("sk-abcdefghijklmnopqrstuvwxyz123456 leaked")))
    fine = Duty("fine", DAY_S, lambda site: "well")
    duties = (broken, odd, fine)
    assert run_due(site, duties, NOON) == {"broken": "failed", "odd": "failed", "fine": "done"}
    assert state(site, "broken").detail == "the disk is full"
    assert state(site, "odd").detail == "a bug in edison: ValueError: sk-a... leaked"
    assert [record.getMessage() for record in caplog.records] == ["broken failed", "odd failed"]
    assert run_due(site, duties, after(299)) == {}
    assert run_due(site, duties, after(300)) == {"broken": "failed", "odd": "failed"}
    assert (state(site, "broken").failures, state(site, "broken").done_at) == (2, None)
    mended = Duty("broken", DAY_S, lambda site: "well")
    assert run_due(site, (mended,), after(600)) == {"broken": "done"}
    assert state(site, "broken").failures == 0


def test_a_busy_duty_waits_and_is_no_failure(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    assert run_due(site, (Duty("sweep", DAY_S, raising(BusyError("a run"))),), NOON) == {
        "sweep": "waiting"
    }
    assert (state(site, "sweep").failures, caplog.records) == (0, [])
    assert run_due(site, (Duty("sweep", DAY_S, lambda site: ""),), after(300)) == {"sweep": "done"}


@pytest.mark.parametrize("wrong", [dt.timedelta(days=400), dt.timedelta(days=-400)])
def test_a_clock_that_was_wrong_does_not_stop_a_duty(site: Site, wrong: dt.timedelta) -> None:
    duties = (Duty("sweep", DAY_S, lambda site: ""),)
    run_due(site, duties, NOON + wrong)
    assert run_due(site, duties, NOON) == {"sweep": "done"}
    assert run_due(site, duties, after(60)) == {}


def test_no_two_processes_do_the_same(site: Site) -> None:
    done: list[int] = []

    def act(number: int) -> Callable[[Site], str]:
        def add(site: Site) -> str:
            done.append(number)
            return ""

        return add

    with ThreadPoolExecutor(8) as pool:  # locks and connections are per call, as in processes
        found = [
            pool.submit(run_due, site, (Duty("sweep", DAY_S, act(n)),), NOON) for n in range(24)
        ]
    assert len(done) == 1
    assert sum(bool(each.result()) for each in found) == 1


KILLED = """
import datetime as dt, sys, time
from pathlib import Path
from edison_ci.api.duties import Duty, run_due
from edison_ci.access.site import open_site

def act(site):
    print("at work", flush=True)
    time.sleep(3600)

site = open_site(Path(sys.argv[1]))
run_due(site, (Duty("sweep", 86_400, act),), dt.datetime.fromisoformat(sys.argv[2]))
"""


def test_a_killed_process_leaves_the_duty_to_another(site: Site) -> None:
    process = forked.Popen(
        [sys.executable, "-c", KILLED, str(site.root), NOON.isoformat()],
        stdout=subprocess.PIPE,
        text=True,
    )
    duties = (Duty("sweep", DAY_S, lambda site: "swept"),)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "at work\n"
        assert run_due(site, duties, after(300)) == {}, "the other is at work on it"
        os.kill(process.pid, signal.SIGKILL)
        process.wait(PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert state(site, "sweep").ended_at is None
    assert run_due(site, duties, after(299)) == {}, "or it could kill one process after the other"
    assert run_due(site, duties, after(300)) == {"sweep": "done"}


# --- retention ------------------------------------------------------------------------------------


def texts(site: Site) -> int:
    with opened(site.results) as connection:
        return int(connection.execute("select count(*) from answer_text").fetchone()[0])


def test_old_texts_go_by_themselves(site: Site) -> None:
    before = texts(site)
    assert run_due(site, duties_of(site), NOON)["retention"] == "done"
    assert texts(site) < before
    with closing(open_reader(site.results)) as connection:
        (row,) = [row.entry for row in read_audit(connection) if row.entry.action == "gc"]
    assert (row.actor, row.known_by) == ("edison", "settings")
    assert state(site, "retention").detail == f"{before - texts(site)} texts deleted"
    assert run_due(site, duties_of(site), after(DAY_S))["retention"] == "done"
    assert state(site, "retention").detail == "nothing was old enough"


def test_retention_waits_for_a_run_to_end(site: Site) -> None:
    before = texts(site)
    living = ProcessLock(site.locks)
    try:
        assert run_due(site, duties_of(site), NOON)["retention"] == "waiting"
        assert texts(site) == before
        (status,) = (s for s in duty_statuses(site) if s.duty.name == "retention")
        assert status.in_words.startswith(
            "retention every day (last 2027-06-01 12:00 UTC, waiting: an experiment is running"
        )
    finally:
        living.close()
    assert run_due(site, duties_of(site), after(300))["retention"] == "done"
    assert texts(site) < before


# --- backups --------------------------------------------------------------------------------------


def names(site: Site) -> list[str]:
    return sorted(path.name for path in site.backups.glob("*.db"))


def on(site: Site, now: dt.datetime) -> Site:
    return Site(site.root, site.file, lambda: now)


@pytest.mark.nightly
def test_a_backup_is_made_each_day_and_thirty_are_kept(site: Site) -> None:
    duties = [duty for duty in duties_of(site) if duty.name == "backup"]
    for day in range(32):
        now = after(day * DAY_S)
        assert run_due(on(site, now), duties, now) == {"backup": "done"}
        assert run_due(on(site, now), duties, now) == {}
    kept = names(site)
    assert len(kept) == 30
    assert (kept[0], kept[-1]) == ("results-20270603T120000Z.db", "results-20270702T120000Z.db")
    assert state(site, "backup").detail.endswith("bytes, 1 older one removed")


def test_a_backup_leaves_the_disk_room_for_runs(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(free=site.results.stat().st_size + 100_000_000)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    assert run_due(site, duties_of(site), NOON)["backup"] == "failed"
    assert state(site, "backup").detail.startswith("no room for a backup of ")
    assert names(site) == []


def test_a_project_can_go_without_backups(mini: Folder, site: Site) -> None:
    mini.write("edison.yaml", "version: 1\nproject: mini\nsettings: {backups: 0}\n")
    assert "backup" not in {duty.name for duty in duties_of(at(mini))}


@pytest.mark.nightly
def test_serving_does_the_duties_and_says_so(mini: Folder, site: Site) -> None:
    before = texts(site)
    for said in ("not yet", "last 20"):
        process = forked.Popen(
            [sys.executable, "-P", "-m", "edison_ci", "serve", "--port", "0"],
            cwd=mini.path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline().endswith("  mini, until Ctrl-C\n")
            assert process.stderr.readline() == "runs by itself:\n"
            told = [process.stderr.readline() for _ in duties_of(site)]
            assert max(map(len, told)) <= 80
            assert any(line.startswith(f"  retention every day ({said}") for line in told)
            poll("retention", lambda: has_ended(site, "retention"))
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 0
        finally:
            process.kill()
            process.communicate()
    assert texts(site) < before


def test_what_is_kept_forever_is_no_duty(mini: Folder, site: Site) -> None:
    mini.write("edison.yaml", "version: 1\nproject: mini\nsettings: {retention_days: 0}\n")
    assert "retention" not in {duty.name for duty in duties_of(at(mini))}


def test_without_results_there_is_nothing_to_do(mini: Folder) -> None:
    site = at(mini)
    assert run_due(site, duties_of(site), NOON) == {}
    assert not site.results.exists()
