"""The scheduler: each time of a schedule is started once, resumed after a crash, or recorded."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.access.site import open_site
from edison_ci.api.run_process import RunLaunch
from edison_ci.errors import StoreError
from edison_ci.features.monitor import scheduler as scheduler_module
from edison_ci.features.monitor.schedule_claims import MOST_MISSED
from edison_ci.features.monitor.schedule_rows import FireState, open_fires
from edison_ci.features.monitor.scheduler import (
    Scheduler,
    network_file_system,
    start_process,
)
from edison_ci.features.monitor.schedules import (
    enable_schedule,
    read_schedules,
    schedule_overview,
    scheduler_status,
)
from edison_ci.features.upkeep.retention import gc
from edison_ci.store.database import open_for_change
from tests import forked, holding
from tests.opened import opened
from tests.timing import poll, within

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

FILE = "experiments/hello.yaml"
NINE = dt.datetime(2026, 11, 17, 9, tzinfo=dt.UTC)
HOURLY = 'schedule: [{name: hourly, cron: "0 * * * *"}]\n'


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NINE - dt.timedelta(minutes=10)

    def __call__(self) -> dt.datetime:
        return self.now

    def at(self, when: str, *, day: int = 17) -> None:
        hour, minute = map(int, when.split(":"))
        self.now = NINE.replace(day=day, hour=hour, minute=minute)


class Ended:
    """A process that has ended."""

    def __init__(self, code: int, error: str = "") -> None:
        self._code, self._error = code, error

    def poll(self) -> int | None:
        return self._code

    def stop(self, *, kill: bool = False) -> None:
        raise AssertionError("it has ended")

    def error(self) -> str:
        return self._error


class Bench:
    """Schedulers of a project, whose runs are commands in this process."""

    def __init__(self, folder: Folder, edison: Edison) -> None:
        self.folder, self._edison, self.clock = folder, edison, Clock()
        self.started: list[RunLaunch] = []
        self.said: list[str] = []

    def launch(self, root: Path, launch: RunLaunch) -> Ended:
        self.started.append(launch)
        done = self._edison(self.folder, "--quiet", "--json", *launch.words)
        message = ""
        if done.code and '"error"' in done.out:
            message = json.loads(done.out).get("error", {}).get("message", "")
        return Ended(done.code, message)

    def scheduler(self, launch: Any = None) -> Scheduler:
        return Scheduler(
            self.folder.path,
            clock=self.clock,
            launch=launch or self.launch,
            tell=self.said.append,
            rest=lambda _: None,
        )

    def fires(self) -> list[tuple[str, str, int]]:
        """Return time, state and number of each row."""
        rows = self.rows("select due_at, state, fires from schedule_fire order by due_at")
        return [(row[0][11:16], row[1], row[2]) for row in rows]

    def rows(self, query: str) -> list[Any]:
        with opened(self.folder.path / ".edison/results.db") as connection:
            return connection.execute(query).fetchall()

    @property
    def runs(self) -> int:
        return int(self.rows("select count(*) from run")[0][0])

    def alerts(self, *, only_open: bool = True) -> list[tuple[str, str]]:
        where = "where closed_at is null" if only_open else ""
        return self.rows(f"select condition, sentence from alert {where} order by id")


@pytest.fixture
def bench(mini: Folder, edison: Edison) -> Bench:
    mini.write(FILE, mini.read(FILE) + HOURLY)
    return Bench(mini, edison)


@pytest.fixture
def watching(bench: Bench) -> Iterator[Scheduler]:
    """A scheduler that has seen the schedule, ten minutes before it is due."""
    scheduler = bench.scheduler()
    scheduler.look()
    yield scheduler
    with contextlib.suppress(OSError):  # a test may have stopped it already
        scheduler.close()


def settle(scheduler: Scheduler) -> None:
    """Look until nothing is at work."""
    scheduler.look()
    while scheduler.busy:
        scheduler.look()


# --- when it is due -------------------------------------------------------------------------------


def test_a_schedule_that_is_due_has_one_run_with_new_answers(
    bench: Bench, watching: Scheduler
) -> None:
    assert bench.started == []
    bench.clock.at("09:00")
    settle(watching)
    settle(watching)
    assert bench.fires() == [("09:00", "done", 1)]
    assert [launch.words[:2] for launch in bench.started] == [["run", "hello"]]
    assert bench.rows("select trigger, status from run") == [("schedule", "COMPLETED")]
    bench.clock.at("10:00")
    settle(watching)
    assert [state for _, state, _ in bench.fires()] == ["done", "done"]
    assert bench.rows("select max(answer_no) from answer")[0][0] == 1, "answers were reused"
    assert bench.said[:2] == ["hello/hourly: started", "hello/hourly: done"]


def test_two_schedulers_of_a_machine_start_one_run(bench: Bench, watching: Scheduler) -> None:
    other = bench.scheduler()
    other.look()
    bench.clock.at("09:00")
    for _ in range(3):
        settle(watching)
        settle(other)
    other.close()
    assert bench.fires() == [("09:00", "done", 1)]
    assert bench.runs == 1


def test_a_schedule_that_is_seen_first_is_watched_from_then_on(bench: Bench) -> None:
    bench.clock.at("09:02")
    scheduler = bench.scheduler()
    settle(scheduler)
    scheduler.close()
    assert bench.fires() == []


@pytest.mark.parametrize(("now", "state"), [("09:05", "done"), ("09:06", "missed")])
def test_what_is_late_by_five_minutes_is_started_and_later_is_missed(
    bench: Bench, watching: Scheduler, now: str, state: str
) -> None:
    bench.clock.at(now)
    settle(watching)
    assert bench.fires() == [("09:00", state, 1)]
    assert bench.runs == (state == "done")
    assert [condition for condition, _ in bench.alerts()] == (
        [] if state == "done" else ["schedule_missed"]
    )


def test_times_missed_in_a_row_are_one_row_and_one_alert(bench: Bench, watching: Scheduler) -> None:
    watching.close()
    bench.clock.at("14:02", day=20)
    again = bench.scheduler()
    settle(again)
    assert bench.fires() == [("09:00", "missed", 77), ("14:00", "done", 1)]
    (alert,) = bench.alerts(only_open=False)
    assert alert == (
        "schedule_missed",
        "77 runs by hourly from 2026-11-17 09:00 UTC to 2026-11-20 13:00 UTC were missed: "
        "no scheduler was running then, or the clock was changed.",
    )
    assert bench.alerts() == [], "a complete run closes it"
    again.close()


@pytest.mark.nightly
def test_a_clock_that_was_ahead_starts_nothing_twice_and_loses_nothing(
    bench: Bench, watching: Scheduler
) -> None:
    bench.clock.at("12:00")  # three hours ahead
    settle(watching)
    assert bench.fires() == [("09:00", "missed", 3), ("12:00", "done", 1)]
    bench.clock.at("09:59")
    settle(watching)
    assert bench.fires() == [("09:00", "missed", 1), ("12:00", "done", 1)]
    for hour in ("10:00", "11:00", "12:00", "13:00"):
        bench.clock.at(hour)
        settle(watching)
    assert bench.fires() == [
        ("09:00", "missed", 1),
        *((hour, "done", 1) for hour in ("10:00", "11:00", "12:00", "13:00")),
    ]
    assert bench.runs == 4


@pytest.mark.parametrize("days", [400, 14_600, 2_900_000])
def test_a_clock_that_jumps_by_years_starts_nothing_and_is_seen_in_time(
    bench: Bench, watching: Scheduler, days: int
) -> None:
    bench.folder.edit(FILE, "0 * * * *", "* * * * *")
    bench.clock.at("08:59")
    settle(watching)
    bench.clock.now += dt.timedelta(days=days, seconds=-30)
    with within(5):
        watching.look()
    ahead = len(bench.started)
    assert ahead <= 1, "one that is due now"
    rows = bench.rows("select state, fires from schedule_fire where state = 'missed'")
    assert (MOST_MISSED, "missed") in [(fires, state) for state, fires in rows]
    bench.clock.at("08:59")
    with within(5):
        settle(watching)
    assert bench.rows("select count(*) from schedule_fire where state = 'missed'") == [(0,)]
    bench.clock.at("09:00")
    settle(watching)
    assert ("2026-11-17T09:00:00.000Z", "done") in bench.rows(
        "select due_at, state from schedule_fire"
    )


def test_a_clock_that_goes_back_a_little_starts_nothing_twice(
    bench: Bench, watching: Scheduler
) -> None:
    bench.clock.at("09:00")
    settle(watching)
    for minute in ("08:58", "08:59", "09:00", "09:01"):
        bench.clock.at(minute)
        settle(watching)
    assert bench.fires() == [("09:00", "done", 1)]


# --- files ----------------------------------------------------------------------------------------


def test_edits_are_seen_without_a_restart(bench: Bench, watching: Scheduler) -> None:
    site = open_site(bench.folder.path)
    (hourly,) = read_schedules(site).schedules
    enable_schedule(site, hourly, to=False)
    bench.clock.at("09:00")
    settle(watching)
    (hourly,) = read_schedules(site).schedules
    enable_schedule(site, hourly, to=True)
    settle(watching)
    assert bench.fires() == [], "it was disabled when it was due"
    bench.folder.edit(FILE, "0 * * * *", "30 * * * *")
    settle(watching)
    bench.clock.at("09:30")
    settle(watching)
    assert bench.fires() == [("09:30", "done", 1)]


def test_a_broken_file_stops_no_other_schedule_and_is_alerted(
    bench: Bench, watching: Scheduler
) -> None:
    other = bench.folder.read(FILE).replace("experiment: hello", "experiment: other")
    bench.folder.write("experiments/other.yaml", other)
    watching.look()
    good = bench.folder.read(FILE)
    bench.folder.write(FILE, good.replace("models: [small]", "models: 1"))
    bench.clock.at("09:00")
    settle(watching)
    assert bench.rows("select experiment, state from schedule_fire") == [("other", "done")]
    (alert,) = bench.alerts()
    assert alert[0] == "schedule_missed"
    assert alert[1].startswith("experiments/hello.yaml is not valid, so its schedules start")
    bench.folder.write(FILE, good)
    bench.clock.at("09:30")
    settle(watching)
    assert ("hello", "missed") in bench.rows("select experiment, state from schedule_fire")
    bench.clock.at("10:00")
    settle(watching)
    assert bench.alerts() == []


def test_a_broken_edison_yaml_stops_nothing(bench: Bench, watching: Scheduler) -> None:
    bench.folder.write("edison.yaml", "version: 1\nproject: mini\nnonsense: 1\n")
    scheduler = watching
    scheduler.look()
    bench.folder.write("edison.yaml", "version: 1\nproject: mini\n")
    bench.clock.at("09:00")
    settle(scheduler)
    assert bench.fires() == [("09:00", "done", 1)]


def test_a_run_that_cannot_start_is_recorded_with_its_reason(
    bench: Bench, watching: Scheduler
) -> None:
    bench.folder.write("prompts/hello.md", "---\nid: other\n---\n# user\nHello {{ name }}\n")
    bench.clock.at("09:00")
    settle(watching)
    assert bench.fires() == [("09:00", "failed", 1)]
    (alert,) = bench.alerts()
    assert alert[1].startswith("The run of 2026-11-17 09:00 UTC by hourly could not start: ")
    last = schedule_overview(open_site(bench.folder.path)).schedules[0]
    assert last.outcome.startswith("failed: ")


def test_a_results_file_that_cannot_be_written_is_waited_for(
    bench: Bench, watching: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.clock.at("09:00")

    def full(path: Path) -> Any:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(scheduler_module, "open_for_change", full)
        assert watching.look() == 30
    bench.clock.at("09:04")
    settle(watching)
    assert bench.fires() == [("09:00", "done", 1)]


# --- other runs -----------------------------------------------------------------------------------


class Going:
    """A process that goes on until it is stopped."""

    def __init__(self) -> None:
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def stop(self, *, kill: bool = False) -> None:
        self.code = -9 if kill else 130

    def error(self) -> str:
        return ""


def test_a_time_waits_while_the_experiment_is_busy_until_the_next_is_due(bench: Bench) -> None:
    bench.folder.write(
        FILE, bench.folder.read(FILE).replace("cron:", "cron: '*/5 * * * *'}, {name: b, cron:")
    )
    going: list[Going] = []

    def launch(root: Path, launch: RunLaunch) -> Going:
        going.append(Going())
        return going[-1]

    scheduler = bench.scheduler(launch)
    scheduler.look()
    bench.clock.at("08:55")
    scheduler.look()
    bench.clock.at("09:00")
    scheduler.look()
    scheduler.look()
    assert len(going) == 1, "the others wait"
    assert bench.fires() == [
        ("08:55", "started", 1),
        ("09:00", "waiting", 1),
        ("09:00", "waiting", 1),
    ]
    bench.clock.at("09:05")
    scheduler.look()
    states = sorted(bench.rows("select due_at, schedule, state from schedule_fire"))
    assert [(d[11:16], s, x) for d, s, x in states] == [
        ("08:55", "hourly", "started"),
        ("09:00", "b", "waiting"),
        ("09:00", "hourly", "missed"),
        ("09:05", "hourly", "waiting"),
    ]
    scheduler.drain()
    scheduler.close()


def test_a_run_of_a_person_is_not_disturbed(bench: Bench, watching: Scheduler) -> None:
    process = holding.start(bench.folder, "run", "hello", calls=1)
    try:
        poll("the run", lambda: bench.rows("select 1 from run where status = 'EXECUTING'"))
        bench.clock.at("09:00")
        watching.look()
        assert bench.fires() == [("09:00", "waiting", 1)]
    finally:
        holding.let_go(bench.folder)
        process.communicate()
    settle(watching)
    assert bench.fires() == [("09:00", "done", 1)]
    assert bench.rows("select trigger from run order by created_at") == [("cli",), ("schedule",)]


# --- budgets --------------------------------------------------------------------------------------


def priced(bench: Bench, daily: str, max_tokens: int = 40) -> None:
    price, most = "price: {in: 100, out: 200}", f"params: {{max_tokens: {max_tokens}}}"
    models = f"small: {{provider: sim, model: small, {price}, {most}}}\n"
    bench.folder.write("models.yaml", f"{models}judge: {{provider: sim, model: judge}}\n")
    stop = f"stop: {{daily_budget_usd: {daily}, budget_usd: 5}}\n"
    bench.folder.write(FILE, bench.folder.read(FILE) + stop)


def test_a_run_that_does_not_fit_the_day_is_skipped_recorded_and_alerted(
    bench: Bench, watching: Scheduler
) -> None:
    priced(bench, "0.01")
    bench.clock.at("09:00")
    settle(watching)
    assert bench.fires() == [("09:00", "skipped", 1)]
    assert bench.runs == 0
    (alert,) = bench.alerts()
    assert alert[0] == "fire_skipped"
    assert "stop.daily_budget_usd has $0.01" in alert[1]


def test_a_run_paused_by_the_day_goes_on_after_midnight(bench: Bench, watching: Scheduler) -> None:
    priced(bench, "1", max_tokens=4096)
    today = dt.datetime.now(dt.UTC).date()  # the run books by the real clock
    with open_for_change(bench.folder.path / ".edison/results.db") as connection:
        spent = ("experiment:hello", today.isoformat(), 500_000)
        connection.execute("insert into booked (scope, day, microusd) values (?, ?, ?)", spent)
    bench.clock.at("22:55")
    watching.look()
    bench.clock.at("23:00")
    settle(watching)
    (fire,) = bench.rows("select state, resume_at, reason from schedule_fire where run_id <> ''")
    assert fire[:2] == ("paused", "2026-11-18T00:00:00.000Z")
    assert "stop.daily_budget_usd" in fire[2]
    assert bench.rows("select status from run") == [("PAUSED",)]
    (alert,) = [said for condition, said in bench.alerts() if condition == "fire_skipped"]
    assert "continues after 00:00 UTC" in alert
    bench.clock.at("23:59")
    settle(watching)
    assert len(bench.started) == 1
    bench.clock.at("00:00", day=18)
    with open_for_change(bench.folder.path / ".edison/results.db") as connection:
        yesterday = (today - dt.timedelta(days=1)).isoformat()
        connection.execute("update booked set day = ?", (yesterday,))
    settle(watching)
    paused = bench.rows("select run_id from schedule_fire where due_at like '%T23:00%'")
    assert bench.started[1].words[:2] == ["resume", paused[0][0]]
    state = bench.rows("select state, reason from schedule_fire where due_at like '%T23:00%'")
    assert state == [("done", "")]
    assert bench.rows("select status from run")[0] == ("COMPLETED",)


def test_a_run_whose_files_changed_while_it_was_paused_is_given_up(
    bench: Bench, watching: Scheduler
) -> None:
    priced(bench, "1", max_tokens=4096)
    bench.folder.edit(FILE, "daily_budget_usd: 1", "daily_budget_usd: 0.5")
    bench.clock.at("09:00")
    settle(watching)
    bench.folder.edit(FILE, "daily_budget_usd: 0.5", "daily_budget_usd: 9")
    bench.clock.at("00:00", day=18)
    settle(watching)
    (row,) = bench.rows("select state, reason from schedule_fire where due_at like '%-17T09:00%'")
    assert row[0] == "failed"
    assert "could not be resumed: the plan of" in row[1]


def test_each_run_has_the_budget_of_its_schedule(bench: Bench, watching: Scheduler) -> None:
    priced(bench, "9")
    bench.folder.edit(FILE, '"0 * * * *"}', '"0 * * * *", budget_usd: 0.01}')
    watching.look()
    bench.clock.at("09:00")
    settle(watching)
    assert "--budget" in bench.started[0].words
    (fire,) = bench.rows("select state, reason from schedule_fire")
    assert fire[0] == "failed"
    assert "its run was paused by budget: --budget: edison resume " in fire[1]


# --- crashes --------------------------------------------------------------------------------------


def test_a_time_that_was_taken_before_a_crash_is_started_once(bench: Bench) -> None:
    def dies(root: Path, launch: RunLaunch) -> Ended:
        raise KeyboardInterrupt  # as SIGKILL between the row and the process

    first = bench.scheduler(dies)
    first.look()
    bench.clock.at("09:00")
    with pytest.raises(KeyboardInterrupt):
        first.look()
    assert bench.fires() == [("09:00", "started", 1)]
    other = bench.scheduler()
    settle(other)
    assert bench.started == [], "its scheduler is alive"
    first.lock.close()
    settle(other)
    other.close()
    assert bench.fires() == [("09:00", "done", 1)]
    assert bench.runs == 1


def test_a_time_that_was_taken_before_a_long_outage_is_missed(bench: Bench) -> None:
    first = bench.scheduler(lambda root, launch: Going())
    first.look()
    bench.clock.at("09:00")
    first.look()
    first.lock.close()
    bench.clock.at("09:20")
    other = bench.scheduler()
    settle(other)
    other.close()
    assert bench.fires() == [("09:00", "missed", 1)]
    assert bench.runs == 0


def test_no_second_run_of_a_time_can_be_started(bench: Bench, watching: Scheduler) -> None:
    bench.clock.at("09:00")
    settle(watching)
    again = bench.launch(bench.folder.path, bench.started[0])
    assert again.poll() == 2
    assert "was started already" in again.error()
    assert bench.runs == 1


def test_a_process_that_keeps_dying_is_given_up(bench: Bench) -> None:
    scheduler = bench.scheduler(lambda root, launch: Ended(-9))
    scheduler.look()
    bench.clock.at("09:00")
    for _ in range(30):
        scheduler.look()
    scheduler.close()
    assert bench.fires() == [("09:00", "failed", 1)]
    assert bench.rows("select attempts from schedule_fire") == [(8,)]


SCHEDULER = """
import datetime as dt, sys, time
from pathlib import Path
from edison_ci.features.monitor.scheduler import Scheduler
from tests import holding
from tests.conftest import Folder

root = Path(sys.argv[1])
ticks = [dt.datetime.fromisoformat(text) for text in sys.argv[2:]]

class Child:
    def __init__(self, process): self.process = process
    def poll(self): return self.process.poll()
    def stop(self, *, kill=False): self.process.kill() if kill else self.process.terminate()
    def error(self): return ""

def launch(root, launch):
    return Child(holding.start(Folder(root), *launch.words, calls=1))

scheduler = Scheduler(root, clock=lambda: ticks[0], launch=launch)
scheduler.look()
ticks.pop(0)
print("watching", flush=True)
while True:
    scheduler.look()
    time.sleep(0.05)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("also_the_run", [True, False])
def test_a_killed_scheduler_leaves_a_run_that_ends_once(bench: Bench, also_the_run: bool) -> None:
    before = (NINE - dt.timedelta(minutes=1)).isoformat()
    bench.clock.at("09:00")
    root = Path(__file__).parents[3]
    process = forked.Popen(
        [sys.executable, "-c", SCHEDULER, str(bench.folder.path), before, NINE.isoformat()],
        cwd=root,
    )
    try:
        owner = poll(
            "the run",
            lambda: (
                bench.folder.path.joinpath(".edison/results.db").exists()
                and bench.rows("select owner from run where status = 'EXECUTING'")
            ),
        )[0][0]
    finally:
        process.kill()
        process.wait()
    if also_the_run:
        os.kill(int(owner.partition("-")[0]), signal.SIGKILL)
    scheduler = bench.scheduler()
    bench.clock.at("11:30")  # an unfinished run is resumed, however late
    if not also_the_run:
        scheduler.look()
        assert bench.started == [], "the run is alive without its scheduler"
        holding.let_go(bench.folder)
    # A killed process is gone a moment later, and one that has just started counts as alive.
    poll("the end", lambda: scheduler.look() and bench.fires()[0][1] == "done")
    scheduler.close()
    rows = bench.rows("select state, attempts from schedule_fire where due_at like '%T09:00%'")
    assert rows == [("done", 2 if also_the_run else 1)]
    assert bench.rows("select status from run where trigger = 'schedule'")[0] == ("COMPLETED",)
    ids = "select count(*), count(distinct case_id) from cell where run_id in "
    first = "(select run_id from schedule_fire where due_at like '%T09:00%')"
    assert bench.rows(ids + first) == [(2, 2)]


def test_a_real_scheduler_pauses_its_run_on_sigterm_and_resumes_it_at_its_next_start(
    bench: Bench,
) -> None:
    children: list[subprocess.Popen[str]] = []

    class Held:
        def __init__(self, process: subprocess.Popen[str]) -> None:
            self._process = process

        def poll(self) -> int | None:
            return self._process.poll()

        def stop(self, *, kill: bool = False) -> None:
            self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            holding.let_go(bench.folder)

        def error(self) -> str:
            self._process.communicate()
            return ""

    def launch(root: Path, launch: RunLaunch) -> Held:
        children.append(holding.start(bench.folder, *launch.words, calls=1))
        return Held(children[-1])

    scheduler = bench.scheduler(launch)
    scheduler.rest = time.sleep
    scheduler.look()
    bench.clock.at("09:00")
    poll("the run", lambda: scheduler.look() and bench.rows("select 1 from run"))
    poll("work", lambda: bench.rows("select 1 from run where status = 'EXECUTING'"))
    poll("an answer", lambda: bench.rows("select 1 from answer"))
    scheduler.run(lambda _: True)  # as after SIGTERM
    scheduler.close()
    assert children[0].returncode == 130
    assert bench.rows("select status, stopped_by from run") == [("PAUSED", "SIGTERM")]
    assert not scheduler_status(open_site(bench.folder.path)).running
    again = bench.scheduler()
    bench.clock.at("12:30")
    settle(again)
    again.close()
    assert bench.rows("select state from schedule_fire where due_at like '%T09:00%'") == [("done",)]
    assert bench.rows("select count(*) from run where status = 'COMPLETED'")[0][0] >= 1


@pytest.mark.nightly
def test_the_process_of_a_run_is_the_program_itself(bench: Bench, watching: Scheduler) -> None:
    bench.clock.at("09:00")
    scheduler = bench.scheduler(start_process)
    poll("the end", lambda: scheduler.look() and bench.fires() == [("09:00", "done", 1)])
    scheduler.close()
    child = start_process(bench.folder.path, RunLaunch("nothing"))
    assert poll("its end", lambda: child.poll()) == 2
    assert "there is no experiment 'nothing'" in child.error()


# --- state ----------------------------------------------------------------------------------------


def test_the_state_of_the_scheduler_is_told(bench: Bench) -> None:
    site = open_site(bench.folder.path)
    assert scheduler_status(site).sentence.startswith("none runs here")
    scheduler = bench.scheduler()
    bench.clock.now = site.clock()
    scheduler.look()
    told = scheduler_status(site)
    assert told.running
    assert told.sentence.startswith("running since ")
    bench.clock.now -= dt.timedelta(minutes=10)
    scheduler.look()
    assert scheduler_status(site).sentence.startswith("hangs: no heartbeat since ")
    scheduler.lock.close()
    killed = scheduler_status(site)
    assert (killed.running, killed.missing) == (False, True)
    assert killed.sentence.startswith("killed, last seen ")
    bench.clock.now += dt.timedelta(seconds=1)
    again = bench.scheduler()
    again.look()
    again.close()
    assert scheduler_status(site).sentence.startswith("stopped, last seen ")


def test_housekeeping_is_not_kept_from_its_work_and_removes_old_times(
    bench: Bench, watching: Scheduler
) -> None:
    bench.clock.at("09:00")
    settle(watching)
    site = open_site(bench.folder.path)
    with open_for_change(site.results) as connection:
        connection.execute("update schedule_fire set ended_at = '2020-01-01T00:00:00.000Z'")
        assert open_fires(connection) == []
    gc(site)
    assert bench.fires() == []
    assert FireState.DONE.over


MOUNTS = """\
22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
30 22 0:40 / /srv/shared rw,relatime shared:2 - nfs4 server:/export rw,vers=4.2
31 30 8:2 / /srv/shared/local rw - xfs /dev/sdb rw
32 22 0:41 / /mnt/my\\040share rw - cifs //server/share rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/ada/project", None),
        ("/srv/shared/project", "nfs4"),
        ("/srv/shared", "nfs4"),
        ("/srv/sharedother", None),
        ("/srv/shared/local/project", None),
        ("/mnt/my share/project", "cifs"),
    ],
)
def test_a_network_file_system_is_recognised(path: str, kind: str | None) -> None:
    assert network_file_system(Path(path), MOUNTS) == kind


def test_without_a_list_of_mounts_nothing_is_refused() -> None:
    assert network_file_system(Path("/srv"), "") is None
