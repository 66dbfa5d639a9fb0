"""A project, a server that charges, and processes that die: where the faults are played."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.conftest import MINIMAL, ROOT, Folder, Result
from tests.faults.child import Plan
from tests.loopback.script import Rule, rule
from tests.loopback.server import LoopbackServer
from tests.timing import PATIENCE_S, poll

if TYPE_CHECKING:
    from collections.abc import Iterator

_UNDISTURBED: dict[str, dict[str, Undisturbed]] = {}


class Undisturbed(NamedTuple):
    """What a run finds that nobody disturbs."""

    results: list[tuple[Any, ...]]
    document: dict[str, Any]


class Stable:
    """Starts processes quickly; see `child.py`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.child"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._numbers = itertools.count()
        self._news = threading.Condition()
        self._speaking = threading.Lock()
        self._pids: dict[int, int] = {}
        self._ended: dict[int, int] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def start(self, **job: Any) -> int:
        number = next(self._numbers)
        self._say(number=number, **job)
        with self._news:
            assert self._news.wait_for(lambda: number in self._pids, PATIENCE_S)
            return self._pids[number]

    def send(self, pid: int, number: signal.Signals) -> None:
        """Send a signal, unless the process has ended."""
        self._say(pid=pid, signal=int(number))

    def _say(self, **told: Any) -> None:
        assert self._process.stdin is not None
        with self._speaking:
            self._process.stdin.write((json.dumps(told) + "\n").encode())
            self._process.stdin.flush()

    def wait(self, pid: int, patience_s: float = PATIENCE_S) -> int | None:
        """Return how a process ended; None if it does not."""
        with self._news:
            if not self._news.wait_for(lambda: pid in self._ended, patience_s):
                return None
            return self._ended[pid]

    def has_ended(self, pid: int) -> bool:
        with self._news:
            return pid in self._ended

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            with self._news:
                if "number" in told:
                    self._ended.pop(told["pid"], None)  # numbers of processes are used again
                    self._pids[told["number"]] = told["pid"]
                else:
                    self._ended[told["pid"]] = told["status"]
                self._news.notify_all()


@dataclass(frozen=True)
class Running:
    """A command that was started."""

    stable: Stable
    pid: int
    out: Path
    err: Path

    def send(self, number: signal.Signals) -> None:
        self.stable.send(self.pid, number)

    def wait(self, patience_s: float = PATIENCE_S) -> Result:
        """Wait until it ends. One that does not is made to say what it waits for."""
        code = self.stable.wait(self.pid, patience_s)
        if code is None:
            self.send(signal.SIGABRT)
            self.stable.wait(self.pid)
            raise AssertionError(f"it did not end: {self.err.read_text('utf-8')}")
        return Result(code, self.out.read_text("utf-8"), self.err.read_text("utf-8"))

    @property
    def has_ended(self) -> bool:
        return self.stable.has_ended(self.pid)

    def until_it_says(self, text: str, times: int = 1) -> None:
        """Wait for words on its standard error."""
        poll(f"it says {text!r}", lambda: self.err.read_text("utf-8").count(text) >= times)

    @property
    def peak_mb(self) -> float:
        """Most memory that it had, when it has ended by itself."""
        return int(Path(f"{self.out}.peak").read_text()) / 1024


def figure(text: str) -> None:
    """Tell a figure to whoever runs with `-s`; `make faults` does."""
    sys.stdout.write(f"\n  {text}\n")


@dataclass
class Shape:
    """What a project looks like."""

    cases: int = 6
    concurrency: int = 2
    judged: bool = True
    timeout_s: float = PATIENCE_S
    attempts: int = 3
    max_tokens: int = 40
    experiments: tuple[str, ...] = ("hello",)
    monthly_usd: float | None = None
    dollars_in: int = 1
    """Dollars per million tokens of input; output costs twice as much."""
    extra: str = ""
    """More of the experiments' files."""


def verdict(number: int) -> str:
    """What the judge says of the answer to a case."""
    entry = {"Warmth": 1 + number % 5, "Brevity": 1 + number % 4}
    scores = {name: {"score": score, "reason": "so"} for name, score in entry.items()}
    return json.dumps({"scores": scores, "flags": []}, separators=(",", ":"))


def name_of(number: int) -> str:
    return f"P{number:03d}"


@dataclass
class Stage:
    """A project whose models are served by the loopback server."""

    folder: Folder
    server: LoopbackServer
    stable: Stable
    shape: Shape
    logs: Path
    """Where processes write what they say."""
    number: Iterator[int] = field(default_factory=itertools.count)

    # --- the project ------------------------------------------------------------------------------

    def build(self) -> None:
        shape = self.shape
        for name, text in MINIMAL.items():
            if name not in ("experiments/hello.yaml", "datasets/names.jsonl", "models.yaml"):
                self.folder.write(name, text)
        for position, experiment in enumerate(shape.experiments):
            # Neighbours share half of their cases.
            first = position * (shape.cases // 2)
            self.dataset(experiment, range(first, first + shape.cases))
            judged = (
                "rubric: {path: rubrics/tone.yaml, weight: 0.5}\njudges: {pointwise: [judge]}\n"
            )
            self.folder.write(
                f"experiments/{experiment}.yaml",
                f"experiment: {experiment}\nobjective: Greet people by name.\n"
                "prompts: [prompts/hello.md]\nmodels: [small]\n"
                f"dataset: datasets/{experiment}.jsonl\n"
                'checks:\n  - contains: {value: "{{ expected }}", weight: 0.5}\n'
                f"{judged if shape.judged else ''}"
                "gates:\n  - {metric: composite, no_worse_than: base, margin: 10pp}\n"
                f"{shape.extra}",
            )
        if shape.monthly_usd is not None:
            self.monthly(shape.monthly_usd)
        self.models()
        self.script()

    def dataset(self, experiment: str, numbers: range) -> None:
        rows = (
            {"id": f"c{i}", "input": {"name": name_of(i)}, "expected": f"{i % 16:x}"}
            for i in numbers
        )
        text = "".join(json.dumps(row) + "\n" for row in rows)
        self.folder.write(f"datasets/{experiment}.jsonl", text)

    def monthly(self, dollars: float) -> None:
        self.folder.write(
            "edison.yaml",
            f"version: 1\nproject: mini\nsettings: {{monthly_budget_usd: {dollars:.6f}}}\n",
        )

    def models(self, url: str = "", more: str = "", price: str = "", limits: str = "") -> None:
        shape = self.shape
        price = price or f"{{in: {shape.dollars_in}, out: {2 * shape.dollars_in}}}"
        limits = (
            f"limits: {{concurrency: {shape.concurrency}, timeout_s: {shape.timeout_s}, "
            f"attempts: {shape.attempts}{limits}}}"
        )
        common = (
            f"provider: openai_compatible, base_url: '{url or self.server.openai_url}', "
            f"price: {price}, params: {{max_tokens: {shape.max_tokens}}}, {limits}"
        )
        self.folder.write(
            "models.yaml",
            f"small: {{{common}, model: small-1{more}}}\njudge: {{{common}, model: judge-1}}\n",
        )

    def script(self, *faults: Rule) -> None:
        """Let the server misbehave so, and answer well otherwise."""
        self.server.script = [*faults, *self.good_rules()]

    def good_rules(self) -> list[Rule]:
        most = self.shape.cases * (1 + len(self.shape.experiments))
        return [
            rule(model="judge-1", contains=f"\n{name_of(i)}\n", text=verdict(i))
            for i in range(most)
        ]

    def undisturbed(self, experiment: str = "hello") -> list[tuple[Any, ...]]:
        """Return the results of the same project when nobody disturbs it, on another server."""
        return self.undisturbed_run(experiment).results

    def undisturbed_run(self, experiment: str = "hello") -> Undisturbed:
        files = sorted(path for path in self.folder.path.rglob("*") if path.is_file())
        told = [(path.relative_to(self.folder.path), path.read_text("utf-8")) for path in files]
        key = repr(told).replace(self.server.url, "")
        if key not in _UNDISTURBED:
            _UNDISTURBED[key] = self._run_elsewhere()
        return _UNDISTURBED[key][experiment]

    def _run_elsewhere(self) -> dict[str, Undisturbed]:
        place = self.logs.parent / f"undisturbed-{len(_UNDISTURBED)}"
        dollars = self.shape.dollars_in
        with LoopbackServer(self.good_rules(), price_in=dollars, price_out=2 * dollars) as server:
            other = copied(self, place)
            text = other.folder.read("models.yaml").replace(self.server.url, server.url)
            other.folder.write("models.yaml", text)
            other.folder.write("edison.yaml", MINIMAL["edison.yaml"])
            done = other.edison("run", "--json")
        assert done.code == 0, done.all
        documents = {run["experiment"]: run for run in json.loads(done.out)["runs"]}
        return {
            name: Undisturbed(other.results(name), documents[name])
            for name in self.shape.experiments
        }

    # --- commands ---------------------------------------------------------------------------------

    def start(self, *argv: str, env: dict[str, str] | None = None, **plan: Any) -> Running:
        number = next(self.number)
        self.logs.mkdir(exist_ok=True)
        out, err = (self.logs / f"{kind}-{number}.txt" for kind in ("out", "err"))
        err.touch()  # it is read before the process has begun
        pid = self.stable.start(
            argv=argv,
            folder=str(self.folder.path),
            env={**os.environ, **(env or {})},
            out=str(out),
            err=str(err),
            plan=dataclasses.asdict(Plan(**plan)),
        )
        return Running(self.stable, pid, out, err)

    def edison(self, *argv: str, env: dict[str, str] | None = None, **plan: Any) -> Result:
        return self.start(*argv, env=env, **plan).wait()

    def run_json(self, *argv: str, code: int = 0, **plan: Any) -> dict[str, Any]:
        """Return the only run of a command's document."""
        done = self.edison(*argv, "--json", **plan)
        assert done.code == code, done.all
        (found,) = json.loads(done.out)["runs"]
        assert isinstance(found, dict)
        return found

    # --- what there is ----------------------------------------------------------------------------

    @property
    def database(self) -> Path:
        return self.folder.path / ".edison/results.db"

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(
            f"{self.database.as_uri()}?mode=ro", uri=True, timeout=PATIENCE_S
        )
        try:
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def one(self, sql: str) -> Any:
        return self.rows(sql)[0][0]

    def count(self, table: str) -> int:
        """Return how many rows there are, 0 while there is no file."""
        try:
            return int(self.one(f"select count(*) from {table}"))
        except sqlite3.OperationalError:
            return 0

    def booked(self) -> int:
        return int(self.one("select coalesce(sum(microusd), 0) from booked where scope='project'"))

    def states(self) -> dict[str, int]:
        return dict(self.rows("select state, count(*) from attempt group by state"))

    def results(self, experiment: str = "hello") -> list[tuple[Any, ...]]:
        """Return cells, answers and scores of the newest run: all that must not depend on luck."""
        run = f"(select id from run where experiment = '{experiment}' order by rowid desc limit 1)"
        return self.rows(
            "select c.prompt, c.version, c.model, c.case_id, c.repeat, c.answer_no, c.status, "
            "c.composite,"
            " c.passed, c.error, t.text, a.cost_microusd, a.tokens_in, a.tokens_out,"
            " (select group_concat(p.kind || p.name || coalesce(p.score, '-') || p.status, '|')"
            " from component p where p.cell_id = c.id order by p.kind, p.name)"
            " from cell c left join answer_text t on t.request_hash = c.request_hash and "
            "t.answer_no = c.answer_no"
            " left join answer a on a.request_hash = c.request_hash and a.answer_no = c.answer_no"
            f" where c.run_id = {run} order by c.case_id, c.repeat"
        )

    # --- what must be so --------------------------------------------------------------------------

    def check_file(self) -> None:
        """The file is whole, its totals are those of its rows, and no charge is missing in it."""
        if not self.database.exists():
            assert self.server.ledger_rows() == []
            return
        connection = sqlite3.connect(self.database, timeout=PATIENCE_S)
        try:
            assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
            assert connection.execute("pragma foreign_key_check").fetchall() == []
        finally:
            connection.close()
        spent = self.one(
            "select coalesce(sum(coalesce(cost_microusd, est_microusd)), 0) from attempt"
        )
        assert self.booked() == spent
        assert self.booked() >= self.server.ledger_total()

    def check_settled(self, *, lost: int) -> None:
        """Nothing is open, every call was settled once, and few were paid and lost."""
        self.check_file()
        assert self.states().get("reserved", 0) == 0
        twice = self.rows(
            "select request_hash, count(*) from attempt where state = 'settled' "
            "group by request_hash having count(*) > 1"
        )
        assert twice == []
        assert self.count("answer") == self.states()["settled"]
        paid_and_lost = len(self.server.ledger_rows()) - self.count("answer")
        assert 0 <= paid_and_lost <= lost
        assert paid_and_lost <= self.states().get("unknown", 0)


TONE = """
import time
from checks.words import LONG

def check(output, expected, case):
    time.sleep(0.3)
    if case["id"] == "c3":
        raise ValueError("no such tone")
    return {"score": len(output) % LONG / LONG, "reason": f"{case['inputs']}"}
"""
TONE_CHECK = "python checks/tone.py:check"


def with_code(stage: Stage) -> list[tuple[Any, ...]]:
    """Add checks that run code, and return what they find without workers."""
    text = stage.folder.read("experiments/hello.yaml")
    more = (
        "  - python: {value: checks/tone.py:check, weight: 0.3}\n"
        "  - any_of: [{contains: a}, {command: [python3, checks/grade.py]}]\nrubric:"
    )
    assert text.count("rubric:") == 1
    stage.folder.write("experiments/hello.yaml", text.replace("rubric:", more))
    stage.folder.write("checks/tone.py", TONE)
    stage.folder.write("checks/words.py", "LONG = 7\n")
    stage.folder.write("checks/grade.py", 'print(\'{"pass": true, "reason": "so"}\')\n')
    other, dollars = copied(stage, stage.logs.parent / "without-workers"), stage.shape.dollars_in
    with LoopbackServer(stage.good_rules(), price_in=dollars, price_out=2 * dollars) as server:
        text = other.folder.read("models.yaml").replace(stage.server.url, server.url)
        other.folder.write("models.yaml", text)
        done = other.edison("run", "--allow-code")
    assert done.code == 0, done.all
    return with_reasons(other)


def with_reasons(stage: Stage) -> list[tuple[Any, ...]]:
    """Return the results of the newest run, and why each check found what it did."""
    reasons = stage.rows(
        "select c.case_id, p.name, p.score, p.passed, p.weight, p.status, p.reason from cell c "
        "join component p on p.cell_id = c.id order by 1, 2"
    )
    assert any("no such tone" in row[-1] for row in reasons)
    return [*stage.results(), *reasons]


def copied(stage: Stage, path: Path) -> Stage:
    """Return the same project, without results, at another place."""
    shutil.copytree(stage.folder.path, path, ignore=shutil.ignore_patterns("*.db*", "locks"))
    logs = stage.logs.parent / f"logs-{path.parent.name}-{path.name}"
    return Stage(Folder(path), stage.server, stage.stable, stage.shape, logs)
