"""What do workers add, and what do they lose? (the table of docs/benchmarks/cluster.md)

    python -m benchmarks.cluster [--quick] [--write docs/benchmarks/cluster.md]

A mock model server with a fixed latency, a scheduler, workers and `edison run` share the cores of
this machine. Workers are started before the time is taken; the start of `edison run` counts.
`ideal` is calls x latency / connections. Every promise is one row; a broken one is marked.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.measure import EDISON, ENVIRONMENT
from benchmarks.running import Server, make_project, serving
from edison_ci.features.cluster.local_workers import local_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parent.parent
LATENCY_MS = 200
CONNECTIONS = 25
WORKERS = 4
PROCESS = "edison_ci.features.cluster.local_workers"
RECORDED = [sys.executable, "-P", "-m", "benchmarks.recorded_messages"]
RPM = 3_000
MOST_MB = 200
KEY = "sk-benchmark-0123456789abcdef0123456789abcdef"
VOLATILE = frozenset(
    {"run_id", "calls", "wall_s", "created_at", "finished_at", "latency_ms", "cost_microusd",
     "tokens"}
)  # fmt: skip
"""What differs between two runs with the same results: times, and calls that were paid twice."""
MODELS = """\
mock:
  provider: openai_compatible
  base_url: http://127.0.0.1:{port}/v1
  model: mock
  key_env: BENCH_KEY
  price: {{in: 1, out: 2}}
  params: {{max_tokens: 16}}
  limits: {{concurrency: {connections}{rpm}}}
"""
TRUST = "version: 1\nkeys:\n  - {{env: BENCH_KEY, hosts: ['http://127.0.0.1:{port}']}}\n"
GATES = "gates:\n  - {metric: pass_rate, at_least: 90%}\n"


class Row(NamedTuple):
    """A promise and what was found."""

    promise: str
    target: str
    measured: str
    kept: bool


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    wall_s: float
    cpu_s: float
    peak_mb: float
    document: dict[str, Any]
    said: str


class Command:
    """A command of edison that runs."""

    def __init__(self, folder: Path, *argv: str, program: list[str] = EDISON, **more: str) -> None:
        self._begun = time.perf_counter()
        self._out, self._err = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115
        env = {**ENVIRONMENT, "BENCH_KEY": KEY, "PYTHONPATH": str(ROOT), **more}
        self.process = subprocess.Popen(
            [*program, *argv, "--json"],
            cwd=folder,
            env=env,
            stdout=self._out,
            stderr=self._err,
        )

    def end(self) -> Ended:
        """Wait for the end."""
        _, status, usage = os.wait4(self.process.pid, 0)
        wall = time.perf_counter() - self._begun
        self.process.returncode = os.waitstatus_to_exitcode(status)
        for stream in (self._out, self._err):
            stream.seek(0)
        out, said = self._out.read().decode(), self._err.read().decode()
        document = json.loads(out)["runs"][0] if out.strip() else {}
        cpu, peak_mb = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
        return Ended(self.process.returncode, wall, cpu, peak_mb, document, said)

    def until(self, what: Callable[[], bool]) -> None:
        """Wait for something, as long as the command runs."""
        while not what():
            if self.process.poll() is not None:
                self._err.seek(0)
                raise SystemExit(f"a run ended too early:\n{self._err.read().decode()}")
            time.sleep(0.02)


class Bench:
    """A project, its server, and clusters for it."""

    def __init__(
        self, folder: Path, server: Server, cells: int, connections: int = CONNECTIONS
    ) -> None:
        self.folder, self.server, self.cells = folder, server, cells
        self._connections = connections

    def project(self, name: str, *, rpm: int | None = None) -> Path:
        """Return a project without results; the counters of the server start again."""
        path = make_project(self.folder / name, self.server, self.cells)
        limit = "" if rpm is None else f", rpm: {rpm}"
        text = MODELS.format(port=self.server.port, connections=self._connections, rpm=limit)
        (path / "models.yaml").write_text(text)
        (path / ".edison").mkdir()
        (path / ".edison" / "trust.yaml").write_text(TRUST.format(port=self.server.port))
        with (path / "experiments" / "codeword.yaml").open("a") as stream:
            stream.write(GATES)
        self.server.stats("/reset")
        return path

    @contextlib.contextmanager
    def workers(self, project: Path, count: int, record: Path | None = None) -> Iterator[Workers]:
        """Start workers for a project; yields how to reach them."""
        before = set(children(os.getpid()))
        os.environ |= {"BENCH_KEY": KEY, "PYTHONPATH": str(ROOT)}
        if record is not None:
            os.environ |= {"RECORD_TO": str(record), "RECORDED": PROCESS}
        module = PROCESS if record is None else "benchmarks.recorded_messages"
        with local_cluster(count, cwd=project, module=module) as cluster:
            crew = next(iter(set(children(os.getpid())) - before))
            time.sleep(5)  # all of them are registered, and none is busy any more
            yield Workers(cluster.scheduler, str(cluster.certificates.folder), crew)

    def run(self, project: Path, workers: Workers, *argv: str, **more: Any) -> Command:
        """Start a run at workers."""
        on = ("--on", workers.scheduler)
        return Command(project, *(argv or ("run",)), *on, EDISON_TLS=workers.tls, **more)

    def requests(self) -> int:
        """Return how many calls the server has had."""
        return self.server.stats()["requests"]


class Workers(NamedTuple):
    """Workers that run."""

    scheduler: str
    tls: str
    crew: int

    def pids(self) -> list[int]:
        """Return the processes of the workers."""
        return children(self.crew)[1:]  # the first is the scheduler

    def cpu_s(self) -> float:
        """Return the processor time of the workers until now."""
        ticks = 0
        for pid in self.pids():
            rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(rest[11]) + int(rest[12])
        return ticks / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """Return the processes that a process started and that are alive."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            rest = path.read_text().rpartition(")")[2].split()
            if int(rest[1]) == pid and rest[0] != "Z":
                found.append(int(path.parent.name))
    return sorted(found)


def writers(project: Path) -> set[int]:
    """Return the processes that have the results file open for writing."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/[0-9]*"):
        with contextlib.suppress(OSError):
            if link.readlink() == project / ".edison/results.db":
                info = (link.parent.parent / "fdinfo" / link.name).read_text()
                if int(info.split("flags:")[1].split()[0], 8) & os.O_ACCMODE:
                    found.add(int(link.parent.parent.name))
    return found


def verdict(value: Any) -> Any:
    """Return what a run found, without what differs between two runs with the same results."""
    if isinstance(value, dict):
        return {key: verdict(each) for key, each in value.items() if key not in VOLATILE}
    return [verdict(each) for each in value] if isinstance(value, list) else value


def _settled(project: Path) -> tuple[int, int]:
    """Return how many calls were settled, and how many of these twice."""
    import sqlite3

    connection = sqlite3.connect(f"file:{project}/.edison/results.db?mode=ro", uri=True)
    settled = "from attempt where state = 'settled'"
    every = connection.execute(f"select count(*) {settled}").fetchone()[0]
    once = connection.execute(f"select count(distinct request_hash) {settled}").fetchone()[0]
    connection.close()
    return every, every - once


# --- the rows -------------------------------------------------------------------------------------


def speed(bench: Bench) -> tuple[list[Row], Ended]:
    """Return the rows about time and memory, and the run that the others are compared with."""
    found: dict[int, Ended] = {}
    holding: set[int] = set()
    own = 0
    for count in (1, WORKERS):
        project = bench.project(f"speed-{count}")
        with bench.workers(project, count) as workers:
            command = bench.run(project, workers)
            own = command.process.pid
            command.until(lambda: bench.requests() > bench.cells // 2)
            holding = writers(project)
            found[count] = command.end()
    one, many = found[1].wall_s, found[WORKERS].wall_s
    ideal = bench.cells * LATENCY_MS / 1000 / CONNECTIONS
    peak = max(each.peak_mb for each in found.values())
    return [
        Row(
            f"{bench.cells:,} cells, 1 worker",
            "",
            f"{one:.1f} s, {one / ideal:.2f} x ideal ({ideal:.0f} s)",
            True,
        ),
        Row(
            f"{bench.cells:,} cells, {WORKERS} workers",
            "1.25 x ideal",
            f"{many:.1f} s, {WORKERS * many / ideal:.2f} x ideal ({ideal / WORKERS:.0f} s)",
            WORKERS * many / ideal <= 1.25,
        ),
        Row("as fast as 1 worker", "3.3 x", f"{one / many:.2f} x", one / many >= 3.3),
        Row("memory of the coordinator", f"{MOST_MB} MB", f"{peak:.0f} MB", peak <= MOST_MB),
        Row(
            "processes with the results file open for writing",
            "the coordinator",
            f"{len(holding)}",
            holding == {own},
        ),
    ], found[WORKERS]


def killed_worker(bench: Bench, expected: Ended) -> Row:
    """Kill a worker at half."""
    project = bench.project("killed-worker")
    with bench.workers(project, WORKERS) as workers:
        command = bench.run(project, workers)
        command.until(lambda: bench.requests() > bench.cells // 2)
        os.kill(workers.pids()[-1], signal.SIGKILL)
        ended = command.end()
    settled, twice = _settled(project)
    unknown = ended.document["calls"]["unknown"]
    same = verdict(ended.document) == verdict(expected.document)
    return Row(
        "SIGKILL of a worker at half",
        "each call settled once, equal verdict",
        f"{settled:,} settled, {twice} twice, {unknown} of unknown fate asked again, verdict "
        f"{'equal' if same else 'DIFFERENT'}",
        same and settled == bench.cells and not twice,
    )


def killed_coordinator(bench: Bench, expected: Ended) -> Row:
    """Kill the coordinator at half, and resume with other workers."""
    project = bench.project("killed-coordinator")
    with bench.workers(project, WORKERS) as workers:
        command = bench.run(project, workers)
        command.until(lambda: bench.requests() > bench.cells // 2)
        command.process.kill()
        command.end()
    with bench.workers(project, 2) as workers:
        ended = bench.run(project, workers, "resume").end()
    settled, twice = _settled(project)
    same = verdict(ended.document) == verdict(expected.document)
    return Row(
        "SIGKILL of the coordinator at half, resumed with 2 other workers",
        "each call settled once, equal verdict",
        f"{settled:,} settled, {twice} twice, verdict {'equal' if same else 'DIFFERENT'}",
        same and settled == bench.cells and not twice,
    )


def budget(bench: Bench, expected: Ended) -> Row:
    """Give half of the money that the whole run costs."""
    half = expected.document["cost_microusd"] // 2
    project = bench.project("budget")
    with bench.workers(project, WORKERS) as workers:
        ended = bench.run(project, workers, "run", "--budget", f"{half / 1_000_000:.6f}").end()
    stats = bench.server.stats()
    charged = stats["tokens_in"] + 2 * stats["tokens_out"]
    return Row(
        "a budget of half the cost, as the server counts it",
        f"${half / 1_000_000:.4f}, exit code 4",
        f"${charged / 1_000_000:.4f}, exit code {ended.code}",
        charged <= half and ended.code == 4,
    )


def rate(bench: Bench) -> Row:
    """Share a number of requests per minute."""
    cells = min(bench.cells, 2 * RPM + 500) if bench.cells > RPM else bench.cells
    rpm = RPM if bench.cells > RPM else bench.cells // 2
    project = bench.project("rate", rpm=rpm)
    with bench.workers(project, WORKERS) as workers:
        ended = bench.run(project, workers, "run", "--limit", str(cells)).end()
    most = bench.server.stats()["most_in_60s"]
    return Row(
        f"{rpm:,} requests a minute shared by {WORKERS} workers",
        f"{rpm:,} in every 60 s",
        f"{most:,} at most, of {cells:,} in {ended.wall_s:.0f} s",
        most <= rpm and bench.requests() == cells,
    )


def keys(bench: Bench) -> Row:
    """Look for the key in everything that coordinator, scheduler and workers say."""
    project, record = bench.project("keys"), bench.folder / "recorded"
    record.mkdir()
    with bench.workers(project, 2, record) as workers:
        more = {"RECORD_TO": str(record), "RECORDED": "edison_ci"}
        run = bench.run(project, workers, "run", "--limit", "500", program=RECORDED, **more)
        run.end()
    texts = [path.read_bytes() for path in record.iterdir()]
    parts = [KEY[first : first + 12].encode() for first in range(0, len(KEY) - 11)]
    found = sum(part in text for text in texts for part in parts)
    prompts = sum(b"what is the code word" in text for text in texts)
    size = sum(map(len, texts))
    return Row(
        "bytes of a key between processes",
        "0",
        f"{found} in {size / 1_000_000:.1f} MB of {len(texts)} processes ({prompts} saw prompts)",
        not found and prompts >= 3,
    )


def _tell(row: Row) -> Row:
    sys.stderr.write(f"{row.promise}: {row.measured}\n")
    return row


def report(folder: Path, cells: int) -> str:
    """Measure everything; return the table."""
    load = os.getloadavg()[0]
    with serving(folder, latency_ms=LATENCY_MS) as server:
        bench = Bench(folder, server, cells)
        rows, expected = speed(bench)
        for row in rows:
            _tell(row)
        for measure in (killed_worker, killed_coordinator, budget):
            rows.append(_tell(measure(bench, expected)))
        for measure_alone in (rate, keys):
            rows.append(_tell(measure_alone(bench)))
    head = (
        f"Measured with `python -m benchmarks.cluster` on {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, load {load:.1f} before it began: a mock model with "
        f"{LATENCY_MS} ms latency, {CONNECTIONS} connections a worker; server, scheduler, workers "
        "and coordinator on the same cores, over loopback with TLS. Workers were started before; "
        "the start of `edison run` counts. `ideal` is calls x latency / connections.\n\n"
        "| what | target | measured | kept |\n| --- | --- | --- | --- |\n"
    )
    told = (
        f"| {r.promise} | {r.target} | {r.measured} | {'yes' if r.kept else 'NO'} |" for r in rows
    )
    return head + "\n".join(told)


def main() -> None:
    """Measure, print and perhaps write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="1,200 cells in place of 12,000")
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        text = report(Path(name), 1_200 if args.quick else 12_000)
    print(text)
    if args.write:
        args.write.parent.mkdir(parents=True, exist_ok=True)
        args.write.write_text(f"# Cluster\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
