"""What does running add to the time the models take? (rows 1 to 7 and 11 to 14 of the targets)

    python -m benchmarks.running [--quick] [--write docs/benchmarks/running.md]

A mock model server with a fixed latency is pinned to one core and `edison` to the other. Every
answer is committed before it counts, as always. `ideal` is calls x latency / connections. The
floor is what `benchmarks/floor.py`, which does the least that a runner must, takes in the same
minutes on the same machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.measure import EDISON, Measured, measure, once
from edison_ci.records import CellStatus, Side
from edison_ci.store.cells import CellRow, Component, finish_cells
from edison_ci.store.runs import NewRun, start_run
from edison_ci.store.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
BARE = [sys.executable, "-P", str(HERE / "bare.py")]
FLOOR = [sys.executable, "-P", str(HERE / "floor.py")]
CONNECTIONS = 50
LATENCY_MS = 100

MODELS = """\
mock:
  provider: openai_compatible
  base_url: http://127.0.0.1:{port}/v1
  model: mock
  price: {{in: 1, out: 2}}
  limits: {{concurrency: {connections}}}
"""
EXPERIMENT = """\
experiment: codeword
objective: Name the code word of the item that is asked for.
prompts: [prompts/codeword.md]
models: [mock]
datasets:
  - path: datasets/cases.jsonl
    limits: {max_rows: 10000000, max_bytes: 10000000000}
checks:
  - contains: "{{ expected }}"
"""
JUDGED = """\
rubric: rubrics/codeword.yaml
judges: {pointwise: [mock]}
"""
FILES = {
    "edison.yaml": "version: 1\nproject: bench\n",
    "prompts/codeword.md": "---\nid: codeword\n---\n# user\nAnswer briefly. {{ q }}\n",
    "rubrics/codeword.yaml": "rubric: codeword\ncriteria:\n"
    "  - {name: accuracy, description: Names the code word that was asked for., weight: 0.5}\n"
    "  - {name: clarity, description: Adds nothing else to the code word., weight: 0.5}\n",
}


class Server(NamedTuple):
    """A mock model server that runs."""

    port: int

    def stats(self, path: str = "/stats") -> dict[str, int]:
        """Return its counters; `/reset` sets them to zero."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as reply:
            found: dict[str, int] = json.load(reply)
        return found


@contextmanager
def serving(folder: Path, *, latency_ms: int) -> Iterator[Server]:
    """Compile the server, start it on the last core, and stop it in the end."""
    program = folder / "mock_llm"
    if not program.exists():
        source = str(HERE / "mock_llm.cpp")
        subprocess.run(["g++", "-O2", "-std=c++17", "-o", str(program), source], check=True)
    port = _free_port()
    command = [str(program), "--port", str(port), "--latency-ms", str(latency_ms)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.sched_setaffinity(server.pid, {max(os.sched_getaffinity(0))})
    try:
        found = Server(port)
        _wait_for(found)
        yield found
    finally:
        server.kill()
        server.wait()


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(server: Server) -> None:
    for _ in range(100):
        try:
            server.stats()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit("the mock server does not answer")


def fnv(text: str) -> int:
    """Return the hash from which the server makes its answer."""
    value = 1469598103934665603
    for byte in text.encode():
        value = ((value ^ byte) * 1099511628211) & 0xFFFFFFFFFFFFFFFF
    return value


def make_project(folder: Path, server: Server, cases: int, *, judged: bool = False) -> Path:
    """Write a project whose every answer the server gets right."""
    shutil.rmtree(folder, ignore_errors=True)
    texts = {
        **FILES,
        "models.yaml": MODELS.format(port=server.port, connections=CONNECTIONS),
        "experiments/codeword.yaml": EXPERIMENT + (JUDGED if judged else ""),
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "datasets").mkdir()
    with (folder / "datasets" / "cases.jsonl").open("w") as stream:
        for index in range(cases):
            question = f"Case {index}: what is the code word for item {index * 7919 % 100003}?"
            expected = f"The answer is {fnv(f'Answer briefly. {question}') & 0xFFFFFFFF:08x}."
            row = {"id": f"case-{index:07d}", "input": {"q": question}, "expected": expected}
            stream.write(json.dumps(row) + "\n")
    return folder


class Ran(NamedTuple):
    """Medians of several runs of a project."""

    measured: Measured
    calls: int
    floor: Measured | None


def ran(folder: Path, server: Server, *, repeat: int, cached: bool = False) -> Ran:
    """Run a project several times, each from nothing unless it is to be cached."""
    runs: list[Measured] = []
    least: list[Measured] = []
    calls = 0
    for _ in range(repeat):
        if not cached:
            shutil.rmtree(folder / ".edison", ignore_errors=True)
            least.append(floor(folder, server))
        server.stats("/reset")
        runs.append(once([*EDISON, "run", "-q", "--yes"], folder))
        calls = server.stats()["requests"]
        check(folder)
    return Ran(medians(runs), calls, medians(least) if least else None)


def floor(folder: Path, server: Server) -> Measured:
    """Return what the least costs that a runner must do with the same cases."""
    with tempfile.TemporaryDirectory() as name:
        cases, results = folder / "datasets" / "cases.jsonl", Path(name) / "results.db"
        return once([*FLOOR, str(server.port), str(cases), str(results)], folder)


def medians(runs: list[Measured]) -> Measured:
    """Return the medians of several runs, and the peak of all of them."""
    return Measured(
        statistics.median(run.wall_s for run in runs),
        statistics.median(run.cpu_s for run in runs),
        max(run.peak_mb for run in runs),
    )


def check(folder: Path) -> None:
    """Refuse to count a run that did not do its work."""
    import sqlite3

    with sqlite3.connect(folder / ".edison" / "results.db") as connection:
        bad = connection.execute("select count(*) from cell where status <> 'ok' or passed <> 1")
        if bad.fetchone()[0]:
            raise SystemExit("the run has cells that are not right")


def report(folder: Path, *, quick: bool) -> str:
    """Measure every row and return the table."""
    repeat = 1 if quick else 3
    large = 10_000
    rows: list[tuple[str, ...]] = []
    with serving(folder, latency_ms=LATENCY_MS) as server:
        one = ran(make_project(folder / "1k", server, 1_000), server, repeat=repeat)
        ten = ran(make_project(folder / "10k", server, large), server, repeat=repeat)
        bare = once([*BARE, str(server.port), str(large), str(CONNECTIONS)], folder)
        judged = make_project(folder / "judged", server, 1_000, judged=True)
        two = ran(judged, server, repeat=repeat)
        again = ran(folder / "1k", server, repeat=3, cached=True)
        again_ten = ran(folder / "10k", server, repeat=3, cached=True)
    with serving(folder, latency_ms=0) as server:
        fast = ran(make_project(folder / "fast", server, large), server, repeat=repeat)
        gate = decided(make_project(folder / "gate", server, large), repeat=repeat)
        hundred = None
        if not quick:
            project = make_project(folder / "100k", server, 100_000)
            hundred = ran(project, server, repeat=1)
    for row, what, target, result in (
        ("1", "wall / ideal, 1,000 cases", "1.25", one),
        ("2", "wall / ideal, 10,000 cases", "1.08", ten),
        ("3", "wall / ideal, 1,000 cases with one judge call each", "1.20", two),
    ):
        ideal = result.calls * LATENCY_MS / 1000 / CONNECTIONS
        said = f"{result.measured.wall_s / ideal:.2f} ({result.measured.wall_s:.2f} s)"
        # The floor judges nothing.
        least = f"{result.floor.wall_s / ideal:.2f}" if result.floor and result is not two else ""
        rows.append((row, f"{what} ({result.calls:,} calls)", target, said, least))
    per_call, loop = (1000 * cpu_s / large for cpu_s in (ten.measured.cpu_s, bare.cpu_s))
    said = f"{per_call:.2f} ms ({per_call / loop:.1f} x a bare aiohttp loop, {loop:.2f} ms)"
    least = f"{1000 * ten.floor.cpu_s / large:.2f} ms" if ten.floor else ""
    rows.append(("4", "CPU per call, 10,000 cases, stored", "0.8 ms", said, least))
    rate = large / fast.measured.wall_s
    rows.append(("5", "cases per second at latency 0", "1,200", f"{rate:,.0f}"))
    rows.append(("6", "cached re-run, 1,000 cases", "0.9 s", f"{again.measured.wall_s:.2f} s"))
    rows.append(("7", "cached re-run, 10,000 cases", "1.8 s", f"{again_ten.measured.wall_s:.2f} s"))
    memory = [one.measured.peak_mb, ten.measured.peak_mb]
    memory += [hundred.measured.peak_mb] if hundred else []
    shown = " / ".join(f"{mb:.0f}" for mb in memory)
    rows.append(("11", "peak memory, 1k / 10k / 100k cases", "100 / 110 / 130 MB", f"{shown} MB"))
    last = memory[-1] - memory[-2]
    grown = last / ((100_000 - large) if hundred else (large - 1_000)) * 1000
    rows.append(("12", "memory growth per 1,000 cases", "0.3 MB", f"{grown:.2f} MB"))
    rows.append(("13", "rows per second through the writer", "20,000", f"{written(folder):,.0f}"))
    said = f"{gate.wall_s:.2f} s, {gate.peak_mb:.0f} MB"
    rows.append(("14", "gate on 10,000 paired cases", "0.6 s, 90 MB", said))
    return table(rows)


def decided(folder: Path, *, repeat: int) -> Measured:
    """Return what it takes to decide again about a run of two versions."""
    with (folder / "experiments" / "codeword.yaml").open("a") as stream:
        stream.write("gates:\n  - {metric: composite, no_worse_than: base, margin: 5pp}\n")
    (folder / ".gitignore").write_text(".edison/\n")
    identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "start"]):
        subprocess.run(["git", *identity, *words], cwd=folder, check=True)
    prompt = folder / "prompts" / "codeword.md"
    text = prompt.read_text().replace("id: codeword\n", "id: codeword\nparams: {top_p: 0.9}\n")
    prompt.write_text(text)
    once([*EDISON, "run", "-q", "--yes", "--against", "HEAD"], folder)
    return measure([*EDISON, "compare", "--gates", "latest"], cwd=folder, repeat=repeat)


def written(folder: Path) -> float:
    """Return how many rows the writer takes in a second: finished cells, a check each."""
    part, count = Component("contains", "check", 1.0, True, 1.0, CellStatus.OK), 50_000
    run = NewRun("r", "e", "t", "h", "{}", {}, count, False, False, "o", "2026")
    with Writer(folder / "rows.db") as writer:
        writer.submit(start_run(run)).result()
        begun = time.perf_counter()
        for first in range(0, count, 64):
            cells = [cell(n, part) for n in range(first, min(first + 64, count))]
            last = writer.submit(finish_cells(cells))
        last.result()
        return 2 * count / (time.perf_counter() - begun)


def cell(number: int, part: Component) -> CellRow:
    """Return a cell like those of a run."""
    return CellRow(
        f"{number:012x}", "r", Side.HEAD, "p", "v", "m", f"case-{number}", 0, "a" * 64, 0,
        CellStatus.OK,
        1.0, True, components=(part,),
    )  # fmt: skip


def table(rows: list[tuple[str, ...]]) -> str:
    """Return the rows as Markdown."""
    head = (
        f"Measured with `python -m benchmarks.running` on {os.cpu_count()} cores, Python "
        f"{platform.python_version()}: {CONNECTIONS} connections, {LATENCY_MS} ms latency, a core "
        "each for the server and for edison, start-up included, every answer committed before it "
        "counts. The floor is a script with no files to read, no money to count and nothing to "
        "go on from (`benchmarks/floor.py`), in the same minutes.\n\n"
        "| row | what | target | measured | floor |\n| --- | --- | --- | --- | --- |\n"
    )
    return head + "\n".join(f"| {' | '.join([*row, ''][:5])} |" for row in rows)


def main() -> None:
    """Measure, print and perhaps write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="once each, without 100,000 cases")
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        text = report(Path(name), quick=args.quick)
    print(text)
    if args.write:
        args.write.parent.mkdir(parents=True, exist_ok=True)
        args.write.write_text(f"# Running\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
