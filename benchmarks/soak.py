"""A month of hourly runs in minutes, while everything around them fails.

    python -m benchmarks.soak [--hours 744] [--seed 1] [--write docs/benchmarks/soak.md]

The clock leaps from hour to hour, for all processes (`benchmarks.soak_world`); everything else is
real: the scheduler and the runs it starts are processes that are killed with SIGKILL at random, the
model and the webhook are servers on this machine that fail for spells, and the duties of the
project (alerts, notifications, retention, backups) are done by the scheduler. Processes are forks
of one that has everything imported, so that a fire does not pay for the start of Python.

Every hour must be accounted for exactly once, every run that was started must be complete or have
failed for a cause that was planted, every alert must have a cause and each cause its alert, every
notification must arrive, memory must be flat and the disk bounded. Otherwise the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import io
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from benchmarks.soak_account import (
    HOUR,
    START,
    Account,
    Alert,
    Fire,
    RunRow,
    Seen,
    Spell,
    Told,
    as_json,
    hour_of,
    markdown,
)
from benchmarks.soak_world import (
    SHARED,
    Endpoint,
    HookHandler,
    ModelHandler,
    Way,
    fork_to,
    now,
    set_clock,
)
from edison_ci import utc
from edison_ci.access.site import open_site
from edison_ci.api.duties import duties_of, run_due
from edison_ci.cli.app import run
from edison_ci.features.monitor.scheduler import Scheduler
from edison_ci.stats.drift import REFERENCE_RUNS

if TYPE_CHECKING:
    from collections.abc import Callable

    from edison_ci.api.run_process import RunLaunch

RETENTION_DAYS = 5
CASES = 20
WRONG, FALLEN = 0.1, 0.4
"""Share of wrong answers, and in the spell in which the model is worse."""
PATIENCE_S = 600.0
MIN_BUDGET, BUDGET = "0.01", "50"

FILES = {
    "edison.yaml": (
        f"version: 1\nproject: soak\nsettings: {{retention_days: {RETENTION_DAYS}, backups: 30}}\n"
        "notifications: [{name: hook, on: [alert, schedule_missed, run_completed], "
        "webhook_env: SOAK_HOOK}]\n"
    ),
    "models.yaml": (
        "greeter:\n  provider: openai_compatible\n  base_url: http://127.0.0.1:PORT/v1\n"
        "  model: greeter\n  params: {max_tokens: 200}\n  price: {in: 10, out: 100}\n"
        f"  limits: {{concurrency: {CASES}, timeout_s: 2, attempts: 2}}\n"
    ),
    "prompts/hello.md": "---\nid: hello\n---\n# user\nSay hello to {{ name }}.\n",
    "datasets/names.jsonl": "".join(
        json.dumps({"id": f"c{n}", "input": {"name": f"P{n}"}, "expected": f"P{n}"}) + "\n"
        for n in range(CASES)
    ),
    "experiments/hello.yaml": (
        "experiment: hello\nobjective: Greet people by their name in a friendly way.\n"
        "prompts: [prompts/hello.md]\nmodels: [greeter]\ndataset: datasets/names.jsonl\n"
        f"stop: {{daily_budget_usd: {BUDGET}}}\n"
        'checks:\n  - contains: "{{ expected }}"\n'
        'schedule: [{name: hourly, cron: "0 * * * *"}]\n'
    ),
}


_MONTH = 744
_SPELLS = {
    "model 503": (96, 8),
    "webhook 500": (144, 24),
    "model hangs": (192, 6),
    "webhook hangs": (222, 6),
    "model refuses": (240, 12),
    "webhook floods": (270, 12),
    "clock wrong": (300, 6),
    "webhook redirects": (330, 12),
    "budget too small": (370, 12),
    "model worse": (440, 48),
    "scheduler left alone": (500, 144),
    "machine off": (660, 20),
}
"""What is planted in a month: the first hour, and how many."""


_SHORT = {"model 503": 2, "model refuses": 2, "clock wrong": 3, "budget too small": 2}
_SHORT |= {"model worse": 6, "machine off": 2, "scheduler left alone": 0}


def spells_of(hours: int) -> list[Spell]:
    """Return what is planted; if there is less than a month, one thing after the other."""
    if hours >= _MONTH:
        return [Spell(what, *when) for what, when in _SPELLS.items()]
    found, at = [], 3
    for what in _SPELLS:
        found.append(Spell(what, at, _SHORT.get(what, 1)))
        at = found[-1].end + 1
    return found


# --- processes ------------------------------------------------------------------------------------


class Forked:
    """A run in a fork of the scheduler, which has everything imported already."""

    def __init__(self, root: Path, launch: RunLaunch) -> None:
        self._code: int | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `error`
        self.pid = os.fork()
        if self.pid == 0:
            _become(root, launch.words, self._output.fileno())

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
        """Return the message of the JSON document that a failed command prints."""
        with self._output as output:
            output.seek(0)
            text = output.read().decode("utf-8", errors="replace")
        with contextlib.suppress(ValueError, TypeError, KeyError):
            return str(json.loads(text)["error"]["message"])
        return ""


def _become(root: Path, words: list[str], output: int) -> NoReturn:
    code = 70
    try:
        os.setsid()
        os.dup2(output, 1)
        run(["--directory", str(root), "--quiet", "--json", *words])
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        os._exit(code)


def _schedule(root: Path, log: Path) -> NoReturn:
    """Be a scheduler until killed; note the memory of this process at each look."""
    scheduler = Scheduler(root, launch=Forked)
    page = os.sysconf("SC_PAGE_SIZE") // 1024
    with log.open("a", encoding="utf-8") as memory:
        while True:
            at = now()
            scheduler.look()
            site = open_site(root)
            run_due(site, duties_of(site), site.clock())
            resident = int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * page
            memory.write(f"{at.timestamp()} {os.getpid()} {resident}\n")
            memory.flush()
            SHARED["looked"] = at.timestamp()
            time.sleep(0.2)


def _write(root: Path, files: dict[str, str]) -> None:
    """Write what changed, each file at once: a scheduler reads them meanwhile."""
    for name, text in files.items():
        path = root / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_name(f"{path.name}.new")
            new.write_text(text, encoding="utf-8")
            new.replace(path)


# --- the soak -------------------------------------------------------------------------------------

_AT_WORK = "select owner from run where status not in ('COMPLETED', 'PAUSED', 'FAILED')"
_FIRES = "select due_at, last_due_at, fires, state, run_id, ended_at, reason from schedule_fire"


class Soak:
    """One soak in a folder."""

    def __init__(self, root: Path, hours: int, seed: int) -> None:
        self.root, self.hours, self.random = root, hours, random.Random(seed)
        self.spells = spells_of(hours)
        self.seen = Seen(hours, CASES, self.spells, RETENTION_DAYS)
        self.results, self.memory = root / ".edison/results.db", root / "memory.log"
        self.hook_log = root / "hook.log"
        self.hook_log.touch()
        self.model = Endpoint(ModelHandler)
        self.hook = Endpoint(type("Hook", (HookHandler,), {"log": self.hook_log}))
        models = FILES["models.yaml"].replace("PORT", str(self.model.port))
        _write(root, {**FILES, "models.yaml": models})
        assert open_site(root).clock is now, "something was imported before the clock was set"
        os.environ["SOAK_HOOK"] = f"http://127.0.0.1:{self.hook.port}/hook"
        self._scheduler = 0

    def go(self, progress: Callable[[str], None]) -> Seen:
        """Let the hours pass; return what was seen."""
        began = time.monotonic()
        set_clock(START - 2 * dt.timedelta(minutes=1))
        self.model.start()
        self.hook.start()
        self._warm_up()
        self._start()
        try:
            self._wait("the first look", lambda: self._rows("select 1 from schedule_watch"))
            hour = 0
            while hour < self.hours:
                self._set_spells(hour)
                before = hour
                hour += self._pass(hour)
                if hour // 24 > before // 24:
                    self._measure_disk(hour // 24)
                    took = time.monotonic() - began
                    kills = sum(self.seen.kills.values())
                    progress(f"hour {hour} of {self.hours}, {kills} kills, {took:.0f} s")
            self._deliver_rest()
        finally:
            self._kill_scheduler()
            self.model.stop()
            self.hook.stop()
        self.seen.seconds = time.monotonic() - began
        self._look_back()
        return self.seen

    def _warm_up(self) -> None:
        """Import what runs and duties need, by doing each once in a project that is dropped."""
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(self.root, folder, dirs_exist_ok=True)
            words = ["--directory", folder, "--quiet", "run", "hello", "--yes", "--no-cache"]
            for _ in range(REFERENCE_RUNS + 2):  # then alerts look for falls
                with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
                    run(words)
            site = open_site(Path(folder))
            run_due(site, duties_of(site), site.clock())
        self.hook_log.write_text("", encoding="utf-8")

    def on(self, what: str, hour: int) -> bool:
        """Whether something is wrong in an hour."""
        return any(spell.what == what and spell.covers(hour) for spell in self.spells)

    def _set_spells(self, hour: int) -> None:
        model, hook = Way.WELL, Way.WELL
        for spell in self.spells:
            if spell.covers(hour):
                how = spell.what.rpartition(" ")[2]
                way = {
                    **{"503": Way.ERROR, "500": Way.ERROR, "hangs": Way.HANG},
                    **{"refuses": Way.REFUSE, "floods": Way.FLOOD, "redirects": Way.REDIRECT},
                }.get(how, Way.WELL)
                if spell.what.startswith("model"):
                    model = way
                elif spell.what.startswith("webhook"):
                    hook = way
        SHARED["model"], SHARED["hook"] = model, hook
        SHARED["wrong"] = FALLEN if self.on("model worse", hour) else WRONG
        if model is Way.REFUSE:
            self.model.stop()
        else:
            self.model.start()
        few = self.on("budget too small", hour)
        text = FILES["experiments/hello.yaml"]
        _write(
            self.root,
            {"experiments/hello.yaml": text.replace(BUDGET, MIN_BUDGET) if few else text},
        )

    def _pass(self, hour: int) -> int:
        """Let an hour pass, or several if no scheduler is there; return how many."""
        machine_off = next((s for s in self.spells if s.what == "machine off"), None)
        if machine_off is not None and machine_off.first == hour:
            return self._outage(hour, machine_off.hours)
        calm = not any(spell.covers(hour) for spell in self.spells)
        at = START + hour * HOUR + dt.timedelta(seconds=self.random.randint(1, 200))
        dice = self.random.random()
        if calm and dice < 0.02:
            room = min(
                (s.first - hour for s in self.spells if s.first > hour), default=self.hours - hour
            )
            return self._outage(hour, min(self.random.randint(1, 4), room))
        set_clock(at)
        if self._begins("clock wrong", hour):
            self._clock_goes_wrong(hour)
        elif not self.on("scheduler left alone", hour) and dice > 0.86:
            self._crash(scheduler=True)
        elif 0.1 < dice < 0.22:
            self._crash(scheduler=False)
        self._settle(f"hour {hour}")
        # Half past: alerts are looked at, and notifications sent again.
        set_clock(max(now(), START + hour * HOUR + HOUR / 2))
        self._settle("a look")
        self._harvest()
        return 1

    def _begins(self, what: str, hour: int) -> bool:
        return any(spell.what == what and spell.first == hour for spell in self.spells)

    def _outage(self, hour: int, hours: int) -> int:
        """Let hours pass without a scheduler."""
        self._kill_scheduler()
        self.seen.outages += 1
        set_clock(START + (hour + hours) * HOUR - dt.timedelta(minutes=2))
        self._start()
        self._settle("a look")
        self._harvest()
        return hours

    def _clock_goes_wrong(self, hour: int) -> None:
        """Let the clock be some hours ahead for a while: times pass, and a run is started."""
        ahead = next(s.hours for s in self.spells if s.what == "clock wrong")
        self._settle(f"hour {hour}")
        set_clock(START + (hour + ahead) * HOUR + dt.timedelta(minutes=1))
        self._settle("the wrong hour")
        set_clock(START + hour * HOUR + dt.timedelta(minutes=10))
        self._settle("the clock to be right again")

    def _crash(self, *, scheduler: bool) -> None:
        """Kill at any point of the hour: the run, the scheduler, or both."""
        if self.random.random() < 0.7:
            self._catch_a_run()
            time.sleep(self.random.random() * 0.1)  # a run is short
        else:
            time.sleep(self.random.random())
        if scheduler:
            self._kill_scheduler()
            self.seen.kills["scheduler"] += 1
        if not scheduler or self.random.random() < 0.5:
            self._kill_run()
        if scheduler:
            self._start()

    def _catch_a_run(self) -> None:
        """Wait for a moment at which a run is at work, or a little while."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and not self._rows(_AT_WORK):
            time.sleep(0.002)

    def _kill_run(self) -> None:
        for (owner,) in self._rows(_AT_WORK):
            with contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(str(owner).partition("-")[0]), signal.SIGKILL)
                self.seen.kills["run"] += 1

    def _start(self) -> None:
        self._scheduler = fork_to(lambda: _schedule(self.root, self.memory))

    def _kill_scheduler(self) -> None:
        os.kill(self._scheduler, signal.SIGKILL)
        os.waitpid(self._scheduler, 0)

    def _settle(self, what: str) -> None:
        """Wait until the scheduler has done everything that is due now, and no time is open.

        A time that has no row then is lost, and counted so at the end.
        """
        at = now().timestamp()
        SHARED["looked"] = 0
        open_times = "select 1 from schedule_fire where ended_at is null"
        self._wait(what, lambda: at <= SHARED["looked"] and not self._rows(open_times))

    def _wait(self, what: str, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(sqlite3.Error):
                if condition():
                    return
            time.sleep(0.1)
        raise SystemExit(f"in vain waited for {what}: {self._rows(_FIRES)[-5:]}")

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        place = f"file:{self.results}?mode=ro"  # never makes the file
        with contextlib.closing(sqlite3.connect(place, uri=True, timeout=30)) as connection:
            return connection.execute(query, values).fetchall()

    def _deliver_rest(self) -> None:
        """Let some more hours pass, without runs, until every notification has arrived."""
        end = START + self.hours * HOUR - dt.timedelta(minutes=5)
        self._set_spells(-1)
        text = FILES["experiments/hello.yaml"].rpartition("schedule")[0]
        _write(self.root, {"experiments/hello.yaml": text})
        for step in range(100):
            set_clock(end + step * dt.timedelta(minutes=15))
            self._settle("a look")
            self._harvest()
            if not self._rows("select 1 from notification where state = 'waiting'"):
                return

    # --- what is seen on the way ------------------------------------------------------------------

    def _harvest(self) -> None:
        """Note what is in the results file, before retention removes it."""
        stored = {row[0]: Fire(*row) for row in self._rows(_FIRES)}
        kept = utc.timestamp(now() - dt.timedelta(days=RETENTION_DAYS - 1))
        for due, before in list(self.seen.fires.items()):
            after = stored.get(due)
            if after is None and (before.ended_at or "~") > kept:
                del self.seen.fires[due]  # the scheduler took it back
            elif after is not None and before.ended_at and after != before:
                self.seen.changed.append(due)
        self.seen.fires.update(stored)
        query = "select id, state, occasion, digest from notification"
        self.seen.told.update({row[0]: Told(*row[1:]) for row in self._rows(query)})

    def _measure_disk(self, day: int) -> None:
        self.seen.days.append(day)
        self.seen.megabytes.append(self.results.stat().st_size / 1e6)
        size = self._rows("select coalesce(sum(length(cast(text as blob))), 0) from answer_text")
        self.seen.texts.append(size[0][0] / 1e6)
        files = [path for path in (self.root / ".edison").rglob("*") if path.is_file()]
        self.seen.folder.append(sum(path.stat().st_size for path in files) / 1e6)

    def _look_back(self) -> None:
        """Note what is kept."""
        seen = self.seen
        alerts = self._rows("select condition, level, opened_at, closed_at from alert order by id")
        for condition, level, opened, closed in alerts:
            end = None if closed is None else hour_of(closed)
            seen.alerts.append(Alert(condition, level, hour_of(opened), end))
        query = (
            "select id, status, created_at, (select count(*) from cell where run_id = run.id) "
            "from run"
        )
        for run_id, status, created, cells in self._rows(query):
            seen.runs.append(RunRow(run_id, status, hour_of(created), cells))
        seen.backups = len([*(self.root / ".edison/backups").glob("results-*")])
        seen.hook = [json.loads(line) for line in self.hook_log.read_text("utf-8").splitlines()]
        for line in self.memory.read_text("utf-8").splitlines():
            at, process, kilobytes = line.split()
            hour = (float(at) - START.timestamp()) / HOUR.total_seconds()
            seen.memory.append((hour, int(process), int(kilobytes)))


def main() -> None:
    """Soak, print what was found as JSON, and fail if something is not as promised."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=int, default=_MONTH)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), given.hours, given.seed)
        account = Account(soak.go(lambda said: print(said, file=sys.stderr, flush=True)))
    print(as_json(account))
    if given.write is not None:
        command = f"`python -m benchmarks.soak --seed {given.seed}`"
        text = f"# A month of hourly runs\n\nMeasured with {command}.\n\n{markdown(account)}"
        given.write.write_text(text, encoding="utf-8")
    raise SystemExit(1 if account.wrong else 0)


if __name__ == "__main__":
    main()
