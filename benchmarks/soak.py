"""A month of scheduled runs in minutes: schedulers killed at random, a webhook that mostly fails.

The clock is injected and jumps from hour to hour; everything else is real: the scheduler is a
process that is killed with SIGKILL, its runs are processes that store answers, and the duties
(alerts, notifications, retention, backup) are done by the injected clock too. At the end every hour
must be accounted for exactly once, every started run must be complete, memory must be flat and the
disk bounded. The runs themselves use the real clock. `make soak` writes the figures.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import http.server
import json
import mmap
import os
import random
import signal
import sqlite3
import struct
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from edison_ci.cli.app import run
from edison_ci.operate.duties import duties_of, run_due
from edison_ci.operate.scheduler import Scheduler
from edison_ci.operate.site import open_site

if TYPE_CHECKING:
    from collections.abc import Callable

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
FILES = {
    "edison.yaml": (
        "version: 1\nproject: soak\nsettings: {retention_days: 1}\n"
        "notifications: [{name: hook, on: [alert, schedule_missed, run_completed], "
        "webhook_env: SOAK_HOOK}]\n"
    ),
    "models.yaml": "echo: {provider: sim, model: echo}\n",
    "prompts/hello.md": "---\nid: hello\n---\n# user\nSay hello to {{ name }}.\n",
    "datasets/names.jsonl": "".join(
        json.dumps({"id": f"c{n}", "input": {"name": f"P{n}"}, "expected": f"P{n}"}) + "\n"
        for n in range(5)
    ),
    "experiments/hello.yaml": (
        "experiment: hello\nobjective: Greet people by their name in a friendly way.\n"
        "prompts: [prompts/hello.md]\nmodels: [echo]\ndataset: datasets/names.jsonl\n"
        'checks:\n  - contains: "{{ expected }}"\n'
        'schedule: [{name: hourly, cron: "0 * * * *"}]\n'
    ),
}
PATIENCE_S = 120.0
_AT_WORK = "select owner from run where status not in ('COMPLETED', 'PAUSED', 'FAILED')"
_CELLS = "select run_id, count(*) from cell group by run_id"


@dataclass
class SoakResult:
    """What a soak found."""

    hours: int
    started: int = 0
    done: int = 0
    missed: int = 0
    doubled: int = 0
    lost: int = 0
    """Hours that no row accounts for."""
    runs: int = 0
    incomplete: int = 0
    kills: int = 0
    kills_with_run: int = 0
    """Of these, while a run was at work; the run was killed too."""
    outages: int = 0
    asked: int = 0
    """Requests that the webhook got."""
    refused: int = 0
    """Of these, answered with an error."""
    undelivered: int = 0
    """Notifications that were neither sent nor given up, nor wait for their next attempt."""
    rss_first_kb: int = 0
    """The most memory of a scheduler in the first half of the time, and in the second."""
    rss_last_kb: int = 0
    megabytes: list[float] = field(default_factory=list)
    """Size of the results file at quarters of the time."""
    backups: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether every time is accounted for once, and memory is flat."""
        sound = not (self.lost or self.doubled or self.incomplete)
        return sound and not self.undelivered and self.rss_last_kb < 1.1 * self.rss_first_kb


class Clock:
    """A clock in memory that the processes share."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)
        self.set(START - dt.timedelta(minutes=1))

    def set(self, now: dt.datetime) -> None:
        """Set the time."""
        self._memory[:] = struct.pack("d", now.timestamp())

    def __call__(self) -> dt.datetime:
        """Return the time."""
        return dt.datetime.fromtimestamp(struct.unpack("d", self._memory[:])[0], dt.UTC)


class Forked:
    """A run in a fork of the scheduler, which has everything imported already."""

    def __init__(self, root: Path, words: list[str]) -> None:
        self._code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _become(root, words)

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        if self._code is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if found else None
        return self._code

    def stop(self, *, kill: bool = False) -> None:
        """Signal it."""
        os.kill(self.pid, signal.SIGKILL if kill else signal.SIGTERM)

    def error(self) -> str:
        """Return nothing: the rows have it."""
        return ""


def _silence() -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)


def _become(root: Path, words: list[str]) -> NoReturn:
    os.setsid()
    _silence()
    code = 70
    try:
        run(["--directory", str(root), "--quiet", *words])
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        os._exit(code)


def _schedule(root: Path, clock: Clock, log: Path) -> NoReturn:
    """Be a scheduler until killed; note the memory of this process at each look."""
    parent = os.getppid()
    os.setsid()
    _silence()
    scheduler = Scheduler(root, clock=clock, launch=Forked)
    page = os.sysconf("SC_PAGE_SIZE") // 1024
    with log.open("a", encoding="utf-8") as memory:
        while os.getppid() == parent:  # it does not outlive a soak that is stopped
            scheduler.look()
            site = replace(open_site(root), clock=clock)
            run_due(site, duties_of(site), clock())
            resident = int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * page
            memory.write(f"{resident}\n")
            memory.flush()
            time.sleep(0.05)
    os._exit(0)


class Hook(http.server.BaseHTTPRequestHandler):
    """A webhook that answers 500 two times of three."""

    asked = 0
    refused = 0

    def do_POST(self) -> None:
        """Count a request, and refuse most."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        type(self).asked += 1
        bad = type(self).asked % 3 != 0
        type(self).refused += bad
        self.send_response(500 if bad else 204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Soak:
    """One soak in a folder."""

    def __init__(self, root: Path, hours: int, seed: int) -> None:
        self.root, self.random = root, random.Random(seed)
        self.result, self.clock = SoakResult(hours), Clock()
        self.results, self.log = root / ".edison/results.db", root / "memory.log"
        self._process = 0
        for name, text in FILES.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def go(self, progress: Callable[[str], None]) -> SoakResult:
        """Let the hours pass; return what was found."""
        began, result = time.monotonic(), self.result
        self._start()
        self._wait("the first look", lambda: self._rows("select 1 from schedule_watch"))
        hour = 0
        while hour < result.hours:
            now = START + dt.timedelta(hours=hour, seconds=self.random.randint(0, 200))
            self.clock.set(now)
            dice = self.random.random()
            if dice < 0.03:  # an outage of some hours
                self._kill()
                result.outages += 1
                hour += self.random.randint(1, 4)
                self._start()
                continue
            if dice < 0.2:  # a crash at any point of the hour
                if self.random.random() < 0.5:
                    self._catch_a_run()
                else:
                    time.sleep(self.random.random() * 1.5)
                self._kill()
                self._start()
            self._wait(f"hour {hour}", partial(self._over, now))
            if hour % max(result.hours // 4, 1) == 0:
                result.megabytes.append(round(self.results.stat().st_size / 1e6, 2))
                progress(f"hour {hour} of {result.hours}, {result.kills} kills")
            hour += 1
        self._kill()
        result.kills -= 1
        result.seconds = round(time.monotonic() - began, 1)
        self._account()
        return result

    def _start(self) -> None:
        self._process = os.fork()
        if self._process == 0:
            _schedule(self.root, self.clock, self.log)

    def _catch_a_run(self) -> None:
        """Wait for a moment at which a run is at work, or until the hour is over."""
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and not self._rows(_AT_WORK):
            time.sleep(0.002)

    def _kill(self) -> None:
        """Kill the scheduler, and in half of the cases the run that it has started."""
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        self.result.kills += 1
        owners = self._rows(_AT_WORK) if self.results.exists() else []
        if owners and self.random.random() < 0.5:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(str(owners[0][0]).partition("-")[0]), signal.SIGKILL)
                self.result.kills_with_run += 1

    def _over(self, now: dt.datetime) -> bool:
        due = now.replace(minute=0, second=0).strftime("%Y-%m-%dT%H:%M")
        return bool(
            self._rows(
                "select 1 from schedule_fire where last_due_at >= ? and ended_at is not null "
                "and not exists (select 1 from schedule_fire where ended_at is null)",
                f"{due}:00.000Z",
            )
        )

    def _wait(self, what: str, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(sqlite3.Error):
                if condition():
                    return
            time.sleep(0.01)
        raise SystemExit(f"in vain waited for {what}: {self._rows('select * from schedule_fire')}")

    def _rows(self, query: str, *values: object) -> list[tuple[object, ...]]:
        place = f"file:{self.results}?mode=ro"  # never makes the file
        with contextlib.closing(sqlite3.connect(place, uri=True, timeout=30)) as connection:
            return connection.execute(query, values).fetchall()

    def _account(self) -> None:
        """Compare the hours that have passed with the rows that account for them."""
        result = self.result
        rows = self._rows("select due_at, last_due_at, state, run_id from schedule_fire")
        count: dict[str, int] = {}
        for due, last, _, _ in rows:
            at = dt.datetime.fromisoformat(str(due))
            while at <= dt.datetime.fromisoformat(str(last)):
                count[at.isoformat()] = count.get(at.isoformat(), 0) + 1
                at += dt.timedelta(hours=1)
        hours = [(START + dt.timedelta(hours=h)).isoformat() for h in range(result.hours)]
        result.lost = sum(hour not in count for hour in hours)
        runs = [row[3] for row in rows if row[3] is not None]
        stored = self._rows("select id, status from run")
        result.runs, result.started, result.done = (
            len(stored),
            len(runs),
            sum(row[2] == "done" for row in rows),
        )
        again = len(runs) - len(set(runs)) + len(stored) - len(set(runs))
        result.doubled = sum(n - 1 for n in count.values()) + again
        result.missed = len(hours) - result.done
        cells = {row[0]: row[1] for row in self._rows(_CELLS)}
        result.incomplete = sum(
            status != "COMPLETED" or cells.get(run_id) != 5 for run_id, status in stored
        )
        result.undelivered = len(
            self._rows(
                "select 1 from notification where state = 'waiting' and due_at < ?",
                (self.clock() - dt.timedelta(days=4)).isoformat(),
            )
        )
        result.asked, result.refused = Hook.asked, Hook.refused
        used = [int(line) for line in self.log.read_text("utf-8").splitlines()]
        half = len(used) // 2
        result.rss_first_kb, result.rss_last_kb = max(used[:half]), max(used[half:])
        result.backups = len([*(self.root / ".edison/backups").glob("*")])


def main() -> None:
    """Soak, print what was found as JSON, and fail if a time was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=720)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    os.environ["SOAK_HOOK"] = f"http://127.0.0.1:{server.server_address[1]}/hook"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), given.hours, given.seed)
        thread.start()
        result = soak.go(lambda said: print(said, file=sys.stderr, flush=True))
    print(json.dumps({**asdict(result), "ok": result.ok}, indent=2))
    raise SystemExit(0 if result.ok else 1)


if __name__ == "__main__":
    main()
