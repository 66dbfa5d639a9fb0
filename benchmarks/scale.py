"""How cost grows by cells, connections, workers, experiments, people and runs, measured and drawn.

    python -m benchmarks.scale [--quick | --most CELLS] [--part NAME] [--folder FOLDER]

Every part writes its figures to docs/benchmarks/scale.json, and the page docs/benchmarks/scale.md
is drawn from all of them; a part that is not measured keeps its older figures. Time is processor
time of `edison` (a busy machine changes it least) unless wall time is named. The model is a mock
server on this machine. A run of a part counts only if no cell is missing, doubled or wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import cluster
from benchmarks.measure import EDISON, ENVIRONMENT
from benchmarks.pages import served
from benchmarks.running import LATENCY_MS, MODELS, Server, make_project, serving
from tests.conftest import MINIMAL, Folder
from tests.large_project import LOOP, build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Row = dict[str, float]

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks" / "scale.md"
RECORD = PAGE.with_suffix(".json")
SIZES = (1_000, 10_000, 100_000, 1_000_000)
MOST_TWICE = 100_000
"""Cells of the largest run that is also measured without being killed."""
CONNECTIONS = 50
CASES_AT_ONCE = 20
"""Cases of each run, where several go on at once."""
VISITS = 20
QUICK = 10_000
"""Cells of the largest run with --quick, which leaves out larger numbers of all kinds."""
RESULTS = Path(".edison") / "results.db"


@dataclass(frozen=True)
class Ended:
    """A process that has ended."""

    code: int
    wall_s: float
    cpu_s: float
    peak_mb: float


class Started:
    """A process that goes on; its memory is read until it ends."""

    def __init__(self, words: Sequence[str], folder: Path) -> None:
        self._began = time.perf_counter()
        self._peak = 0.0
        self.process = subprocess.Popen(
            [*EDISON, *words],
            cwd=folder,
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def poll(self) -> Ended | None:
        """Return how it ended; None while it goes on."""
        pid, status, usage = os.wait4(self.process.pid, os.WNOHANG)
        if pid:
            self.process.returncode = code = os.waitstatus_to_exitcode(status)
            wall, cpu = time.perf_counter() - self._began, usage.ru_utime + usage.ru_stime
            return Ended(code, wall, cpu, self._peak)
        # ru_maxrss counts what the process had before it became `edison`.
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                self._peak = int(line.split()[1]) / 1024
        return None

    def wait(self, *, kill_when: Callable[[], bool] | None = None) -> Ended:
        """Return how it ended; it is killed by SIGKILL once a condition holds."""
        while (found := self.poll()) is None:
            time.sleep(0.02)
            if kill_when is not None and kill_when():
                self.process.send_signal(signal.SIGKILL)
                kill_when = None
        return found


def ran(folder: Path, *words: str, codes: Sequence[int] = (0,)) -> Ended:
    """Run a command to its end."""
    found = Started(words, folder).wait()
    if found.code not in codes:
        raise SystemExit(f"edison {' '.join(words)} ended with {found.code}")
    return found


def asked(folder: Path, sql: str) -> Any:
    """Return the first value of a query of the results."""
    with closing(sqlite3.connect(folder / RESULTS, timeout=60)) as connection:
        return connection.execute(sql).fetchone()[0]


def check(folder: Path, cells: int) -> None:
    """Refuse to count a run with a cell that is missing or wrong."""
    found = asked(folder, "select count(*) from cell where status = 'ok' and passed = 1")
    if found != cells:
        raise SystemExit(f"{found:,} of {cells:,} cells are right")


# --- cells ----------------------------------------------------------------------------------------


def cells(root: Path, most: int) -> list[Row]:
    """Return what runs of growing size cost, each killed at half and resumed."""
    return [of_size(root / f"{size}", size) for size in SIZES if size <= most]


def of_size(folder: Path, size: int) -> Row:
    """Return what a run of a size costs, and what is done with it afterwards."""
    with serving(folder.parent, latency_ms=0) as server:
        gated_project(folder, server, size)
        alone = ran(folder, "run", "-q", "--yes") if size <= MOST_TWICE else None
        shutil.rmtree(folder / ".edison", ignore_errors=True)
        server.stats("/reset")
        first, second = halves(folder, size)
        calls = server.stats()["requests"]
    check(folder, size)
    if not size <= calls <= size + 4 * CONNECTIONS:
        raise SystemExit(f"{calls:,} calls for {size:,} cells: answers were lost at the kill")
    return {
        "cells": size,
        "cpu_ms": 1000 * (first.cpu_s + second.cpu_s) / size,
        "wall_s": first.wall_s + second.wall_s,
        "peak_mb": max(first.peak_mb, second.peak_mb),
        **({} if alone is None else {"alone_mb": alone.peak_mb}),
        "again": calls - size,
        **afterwards(folder, size),
        "load": os.getloadavg()[0],
    }


def gated_project(folder: Path, server: Server, size: int) -> None:
    """Write a project with a gate that decides on every case."""
    make_project(folder, server, size)
    with (folder / "experiments" / "codeword.yaml").open("a") as experiment:
        experiment.write("gates:\n  - {metric: pass_rate, at_least: 90%}\n")


def halves(folder: Path, size: int) -> tuple[Ended, Ended]:
    """Run a project, kill it by SIGKILL at half, and resume it."""

    def half_done() -> bool:
        time.sleep(0.1)
        path = folder / RESULTS
        return path.exists() and asked(folder, "select count(*) from cell") >= size // 2

    first = Started(["run", "-q", "--yes"], folder).wait(kill_when=half_done)
    if first.code != -signal.SIGKILL:
        raise SystemExit("the run ended before it was killed")
    return first, ran(folder, "resume", "-q")


def afterwards(folder: Path, size: int) -> Row:
    """Return what reading, keeping and showing a run of a size costs."""
    used = {name: ran(folder, *words.split()) for name, words in COMMANDS.items()}
    found = {f"{name}_s": one.cpu_s for name, one in used.items()}
    found |= {f"{name}_mb": one.peak_mb for name, one in used.items()}
    visits, cpu_ms = pages(folder)
    size_bytes = (folder / RESULTS).stat().st_size
    gone = ran_gc(folder)
    return {
        "bytes": size_bytes / size,
        **found,
        "gc_s": gone.cpu_s,
        "gc_mb": gone.peak_mb,
        "page_p95_ms": sorted(visits)[round(0.95 * len(visits)) - 1],
        "page_cpu_ms": cpu_ms,
    }


def ran_gc(folder: Path) -> Ended:
    """Remove the texts of a run, as if it were old and another had taken its place."""
    with closing(sqlite3.connect(folder / RESULTS, timeout=60)) as connection, connection:
        old = "created_at = '2020' || substr(created_at, 5)"
        connection.execute(f"update run set {old}, complete = 0")
        guards = connection.execute(
            "select name, sql from sqlite_schema where type = 'trigger' and tbl_name = 'answer'"
        ).fetchall()
        for name, _ in guards:
            connection.execute(f"drop trigger {name}")
        connection.execute(f"update answer set {old}")
        for _, sql in guards:
            connection.execute(sql)
    ended = ran(folder, "admin", "gc")
    if left := asked(folder, "select count(*) from answer_text"):
        raise SystemExit(f"{left:,} texts are left after gc")
    return ended


COMMANDS = {
    "validate": "validate",
    "plan": "plan",
    "status": "status latest",
    "costs": "costs",
    "leaderboard": "leaderboard",
    "report": "report latest --format json",
}
"""Commands that read a whole run, or a whole dataset."""
READING = (*COMMANDS, "gc")
_PAGES = ("", "/run/{run}", "/run/{run}?sort=name&page=3", "/run/{run}?failed=1",
          "/run/{run}/criteria", "/run/{run}/slices", "/costs", "/experiment/codeword")  # fmt: skip


def pages(folder: Path) -> tuple[list[float], float]:
    """Return how long warm visits to the pages of a run took, and the processor time of one."""
    run = asked(folder, "select id from run")
    paths = [path.format(run=run) for path in _PAGES]
    with served(folder, "0.65") as server:
        server.settle(paths)
        worked = server.cpu()
        visits = [server.visit(path) for _ in range(VISITS) for path in paths]
        return visits, 1000 * (server.cpu() - worked) / len(visits)


# --- merging --------------------------------------------------------------------------------------


def merging(root: Path, most: int) -> list[Row]:
    """Return what merging two shards costs, for runs of growing size."""
    return [of_shards(root / f"merge-{size}", size) for size in SIZES if size <= most]


def of_shards(folder: Path, size: int) -> Row:
    """Run two shards, each with results of its own, and merge them."""
    with serving(folder.parent, latency_ms=0) as server:
        gated_project(folder, server, size)
        shards = []
        for number in (1, 2):
            ran(folder, "run", "-q", "--yes", "--shard", f"{number}/2")
            shards.append(f"shard-{number}.db")
            (folder / RESULTS).replace(folder / shards[-1])
            shutil.rmtree(folder / ".edison")
    merged = ran(folder, "runs", "merge", *shards)
    check(folder, size)
    again = ran(folder, "runs", "merge", *shards)
    return {
        "cells": size,
        "merge_s": merged.cpu_s,
        "wall_s": merged.wall_s,
        "peak_mb": merged.peak_mb,
        "again_s": again.cpu_s,
        "load": os.getloadavg()[0],
    }


# --- connections ----------------------------------------------------------------------------------


def connections(root: Path, most: int) -> list[Row]:
    """Return how the time of a run follows the number of connections."""
    found: list[Row] = []
    with serving(root, latency_ms=LATENCY_MS) as server:
        for count in (1, 50) if most <= QUICK else (1, 5, 25, 50, 100, 200):
            calls = 40 * count if count < 25 else 4_000
            folder = make_project(root / f"connections-{count}", server, calls)
            models = MODELS.format(port=server.port, connections=count)
            (folder / "models.yaml").write_text(models)
            ended = ran(folder, "run", "-q", "--yes")
            check(folder, calls)
            ideal = calls * LATENCY_MS / 1000 / count
            found.append(
                {
                    "connections": count,
                    "calls": calls,
                    "ideal_s": ideal,
                    "wall_s": ended.wall_s,
                    "cpu_ms": 1000 * ended.cpu_s / calls,
                    "peak_mb": ended.peak_mb,
                    "load": os.getloadavg()[0],
                }
            )
    return found


# --- workers --------------------------------------------------------------------------------------

WORKERS = (1, 2, 4, 8, 16)
CONNECTIONS_EACH = 10
CELLS_EACH = 1_000


def workers(root: Path, most: int) -> list[Row]:
    """Return what runs at growing numbers of workers take, with as many cells for each."""
    found: list[Row] = []
    with serving(root, latency_ms=cluster.LATENCY_MS) as server:
        for count in WORKERS[:2] if most <= QUICK else WORKERS:
            bench = cluster.Bench(root, server, count * CELLS_EACH, CONNECTIONS_EACH)
            project = bench.project(f"workers-{count}")
            with bench.workers(project, count) as hired:
                before = hired.cpu_s()
                ended = bench.run(project, hired).end()
                cpu_s = hired.cpu_s() - before
            check(project, bench.cells)
            found.append(
                {
                    "workers": count,
                    "cells": bench.cells,
                    "ideal_s": CELLS_EACH * cluster.LATENCY_MS / 1000 / CONNECTIONS_EACH,
                    "wall_s": ended.wall_s,
                    "coordinator_ms": 1000 * ended.cpu_s / bench.cells,
                    "worker_ms": 1000 * cpu_s / bench.cells,
                    "cores": (ended.cpu_s + cpu_s) / ended.wall_s,
                    "peak_mb": ended.peak_mb,
                    "load": os.getloadavg()[0],
                }
            )
    return found


# --- experiments ----------------------------------------------------------------------------------

LISTS = {
    "validate": "validate",
    "plan_one": "plan e0000",
    "plan_all": "plan",
    "status": "status",
    "costs": "costs",
    "leaderboard": "leaderboard e0000",
    "history": "history p000",
}


def experiments(root: Path, most: int) -> list[Row]:
    """Return what commands cost in projects with growing numbers of experiments."""
    found = []
    with serving(root, latency_ms=0) as server:
        for count in (10, 100) if most <= QUICK else (10, 100, 1_000):
            folder = many(root / f"experiments-{count}", server, count)
            ran(folder, "run", "-q", "--yes", "e0000")
            row: Row = {"experiments": count}
            row |= {f"{name}_s": ran(folder, *words.split()).cpu_s for name, words in LISTS.items()}
            found.append({**row, **start_of_site(folder), "load": os.getloadavg()[0]})
    return found


def start_of_site(folder: Path) -> Row:
    """Return the processor time of a server until its first page, and of its home page."""
    with served(folder, "0.65") as site:
        started = site.cpu()
        for _ in range(VISITS):
            site.visit("")
        return {"serve_s": started, "home_ms": 1000 * (site.cpu() - started) / VISITS}


def many(folder: Path, server: Server, count: int, *, budget_usd: float | None = None) -> Path:
    """Write a project with many experiments, on up to 100 prompts and the same few cases."""
    make_project(folder, server, CASES_AT_ONCE)
    if budget_usd is not None:
        with (folder / "edison.yaml").open("a") as file:
            file.write(f"settings: {{monthly_budget_usd: {budget_usd}}}\n")
    one = (folder / "experiments" / "codeword.yaml").read_text()
    prompt = (folder / "prompts" / "codeword.md").read_text()
    shutil.rmtree(folder / "experiments")
    (folder / "experiments").mkdir()
    for number in range(count):
        name = f"p{number % 100:03d}"
        # Other parameters make other requests: equal ones would share their answers.
        own = f"id: {name}\nparams: {{top_p: {(number % 100 + 1) / 1000}}}"
        (folder / "prompts" / f"{name}.md").write_text(prompt.replace("id: codeword", own))
        text = one.replace("experiment: codeword", f"experiment: e{number:04d}")
        text = text.replace("prompts/codeword.md", f"prompts/{name}.md")
        (folder / "experiments" / f"e{number:04d}.yaml").write_text(text)
    return folder


# --- people and versions --------------------------------------------------------------------------

TEAM_COMMANDS = {
    "roles": "roles list",
    "history": "history hello",
    "leaderboard": "leaderboard hello",
    "models": "models list",
    "review": "review list",
    "alerts": "alerts list",
}
TEAM_PAGES = {
    "prompt": "/prompt/hello",
    "loop": f"/loop/{LOOP}",
    "models_page": "/models",
    "board": "/leaderboard?experiment=hello",
    "suggestions": "/suggestions",
    "experiment": "/experiment/hello",
}


def people(root: Path, most: int) -> list[Row]:
    """Return what commands and pages cost with growing numbers of members, versions and others."""
    del most  # quick in any case
    return [of_team(root / f"people-{count}", count) for count in (10, 100)]


def of_team(folder: Path, count: int) -> Row:
    """Return what a project costs with so many of everything but experiments."""
    project = Folder(folder)
    for name, text in MINIMAL.items():
        project.write(name, text)
    build(project, experiments=10, others=count)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    for number in range(count):
        with (folder / "prompts" / "hello.md").open("a") as file:
            file.write(f"Mention the number {number}.\n")
        words = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "-qm", "Say")
        subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
        subprocess.run(["git", *words], cwd=folder, check=True)
    row: Row = {"count": count}
    row |= {f"{name}_s": ran(folder, *said.split()).cpu_s for name, said in TEAM_COMMANDS.items()}
    with served(folder, "0.65") as site:
        site.settle(TEAM_PAGES.values())
        for name, path in TEAM_PAGES.items():
            worked = site.cpu()
            for _ in range(VISITS):
                site.visit(path)
            row[f"{name}_ms"] = 1000 * (site.cpu() - worked) / VISITS
    return {**row, "load": os.getloadavg()[0]}


# --- runs at once ---------------------------------------------------------------------------------


def together(root: Path, most: int) -> list[Row]:
    """Return what runs of different experiments cost that share a results file at one time."""
    found = []
    with serving(root, latency_ms=LATENCY_MS) as server:
        for count in (1, 10) if most <= QUICK else (1, 10, 100):
            folder = many(root / f"together-{count}", server, count)
            ran(folder, "status", codes=(0, 2, 3))
            server.stats("/reset")
            began = time.perf_counter()
            ended = at_once(folder, count)
            wall = time.perf_counter() - began
            check(folder, count * CASES_AT_ONCE)
            if any(one.code for one in ended):
                raise SystemExit("a run failed")
            found.append(
                {
                    "runs": count,
                    "wall_s": wall,
                    "cpu_s": sum(one.cpu_s for one in ended) / count,
                    "quickest_s": min(one.wall_s for one in ended),
                    "slowest_s": max(one.wall_s for one in ended),
                    "peak_mb": max(one.peak_mb for one in ended),
                    "calls": server.stats()["requests"],
                    "load": os.getloadavg()[0],
                }
            )
    return found


def at_once(folder: Path, count: int) -> list[Ended]:
    """Start a run of each experiment at the same time, and wait for all of them."""
    words = ("run", "-q", "--yes", "--no-cache")
    going = [Started([*words, f"e{number:04d}"], folder) for number in range(count)]
    ended: list[Ended] = []
    while going:
        time.sleep(0.05)
        polled = [(one, one.poll()) for one in going]
        ended += [end for _, end in polled if end is not None]
        going = [one for one, end in polled if end is None]
    return ended


# --- the page -------------------------------------------------------------------------------------


def chart(title: str, rows: Iterable[tuple[str, float, str]]) -> list[str]:
    """Return horizontal bars as text; the longest has the greatest value."""
    drawn = list(rows)
    most = max((value for _, value, _ in drawn), default=0) or 1
    wide = max((len(label) for label, _, _ in drawn), default=0)
    bars = [
        f"{label:>{wide}}  {'█' * max(1, round(40 * value / most))} {said}"
        for label, value, said in drawn
    ]
    return ["```text", title, *bars, "```", ""]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table in Markdown."""
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


def exponent(rows: Sequence[Row], x: str, y: str) -> float:
    """Return the power of x with which y grows, from the last two rows; 1 is linear."""
    (x1, y1), (x2, y2) = ((row[x], row[y]) for row in rows[-2:])
    return math.log(y2 / y1) / math.log(x2 / x1)


def _cells(rows: Sequence[Row]) -> list[str]:
    lines = ["## Cells", "", CELLS, ""]
    lines += table(
        (
            "cells",
            "ms a cell",
            "peak",
            "not killed",
            "bytes a cell",
            "wall",
            "asked again",
            "page",
            "wall p95",
        ),
        [
            (
                f"{row['cells']:,.0f}",
                f"{row['cpu_ms']:.2f}",
                f"{row['peak_mb']:.0f} MB",
                f"{row['alone_mb']:.0f} MB" if "alone_mb" in row else "-",
                f"{row['bytes']:,.0f}",
                f"{row['wall_s']:,.0f} s",
                f"{row['again']:.0f}",
                f"{row['page_cpu_ms']:.0f} ms",
                f"{row['page_p95_ms']:.0f} ms",
            )
            for row in rows
        ],
    )
    name = [f"{row['cells']:,.0f}" for row in rows]
    for title, key, unit in (
        ("processor time of a cell, ms", "cpu_ms", ".2f"),
        ("peak memory of a run, MB", "peak_mb", ".0f"),
        ("size of the results file by cell, bytes", "bytes", ".0f"),
    ):
        lines += chart(
            title,
            [(n, row[key], format(row[key], unit)) for n, row in zip(name, rows, strict=True)],
        )
    lines += [
        "Processor seconds (and peak memory) of commands that read the whole; `gc` removes every "
        "text of the run:",
        "",
    ]
    lines += table(
        ("cells", *READING),
        [
            (n, *(f"{row[f'{c}_s']:.1f} ({row[f'{c}_mb']:.0f} MB)" for c in READING))
            for n, row in zip(name, rows, strict=True)
        ],
    )
    if len(rows) > 1:
        grown = ", ".join(f"{c} {exponent(rows, 'cells', f'{c}_s'):.2f}" for c in READING)
        lines += [
            f"Growth from the last row but one to the last, as a power of the cells: {grown}.",
            "",
        ]
    return lines


CELLS = (
    "One case is one cell, with one check, and a gate decides on all of them. Each run is killed "
    "by SIGKILL at half and resumed; up to 100,000 cells one is left alone too, with the peak "
    "memory `not killed`. `asked again` are the calls whose answers the killed process "
    "did not store. `page` is the processor time of a warm visit to a page of the run, on average."
)


def _merging(rows: Sequence[Row]) -> list[str]:
    lines = [
        "## Merging",
        "",
        "`edison runs merge` of two shards, which also evaluates the gate; `again` merges the same "
        "shards once more, which changes nothing.",
        "",
    ]
    return lines + table(
        ("cells", "ms a cell", "processor", "wall", "peak", "again"),
        [
            (
                f"{row['cells']:,.0f}",
                f"{1000 * row['merge_s'] / row['cells']:.2f}",
                f"{row['merge_s']:.1f} s",
                f"{row['wall_s']:.1f} s",
                f"{row['peak_mb']:.0f} MB",
                f"{row['again_s']:.1f} s",
            )
            for row in rows
        ],
    )


def _connections(rows: Sequence[Row]) -> list[str]:
    lines = ["## Connections", "", f"A model with {LATENCY_MS} ms; start-up included.", ""]
    lines += table(
        ("connections", "calls", "ideal", "wall", "ratio", "ms a call", "peak"),
        [
            (
                f"{row['connections']:.0f}",
                f"{row['calls']:,.0f}",
                f"{row['ideal_s']:.1f} s",
                f"{row['wall_s']:.1f} s",
                f"{row['wall_s'] / row['ideal_s']:.2f}",
                f"{row['cpu_ms']:.2f}",
                f"{row['peak_mb']:.0f} MB",
            )
            for row in rows
        ],
    )
    return lines + chart(
        "processor time of a call, start-up included, ms",
        [(f"{row['connections']:.0f}", row["cpu_ms"], f"{row['cpu_ms']:.2f}") for row in rows],
    )


def _workers(rows: Sequence[Row]) -> list[str]:
    lines = [
        "## Workers",
        "",
        f"Runs at workers with {CONNECTIONS_EACH} connections and {CELLS_EACH:,} cells each; a "
        f"model with {cluster.LATENCY_MS} ms; the start of `edison run` counts. `cores` is the "
        "processor time of coordinator and workers by the time of the run; the server, the "
        "scheduler and whatever else makes up the load are on the same cores.",
        "",
    ]
    lines += table(
        ("workers", "cells", "ideal", "wall", "coordinator", "workers", "cores", "peak", "load"),
        [
            (
                f"{row['workers']:.0f}",
                f"{row['cells']:,.0f}",
                f"{row['ideal_s']:.0f} s",
                f"{row['wall_s']:.1f} s",
                f"{row['coordinator_ms']:.2f} ms a call",
                f"{row['worker_ms']:.2f} ms a call",
                f"{row['cores']:.2f}",
                f"{row['peak_mb']:.0f} MB",
                f"{row['load']:.0f}",
            )
            for row in rows
        ],
    )
    rates = [(row["workers"], row["cells"] / row["wall_s"]) for row in rows]
    lines += chart(
        "calls a second", [(f"{count:.0f}", rate, f"{rate:.0f}") for count, rate in rates]
    )
    here, all_of_it = rows[-1]["coordinator_ms"], rows[-1]["coordinator_ms"] + rows[-1]["worker_ms"]
    asked_for = rows[-1]["cells"] / rows[-1]["ideal_s"]
    return [
        *lines,
        f"By the processor time of the last row, two cores carry at most {2000 / all_of_it:,.0f} "
        f"calls a second, less what the server takes; {rows[-1]['workers']:.0f} workers ask for "
        f"{asked_for:,.0f}. With workers on other machines the limit is the coordinator, which is "
        f"one process: {1000 / here:,.0f} calls a second.",
        "",
    ]


def _experiments(rows: Sequence[Row]) -> list[str]:
    lines = [
        "## Experiments",
        "",
        "Projects with growing numbers of experiments, on up to 100 prompts, with one run. "
        "Processor seconds of each command; `serve` until its first page.",
        "",
    ]
    lines += table(
        ("experiments", *(name.replace("_", " ") for name in LISTS), "serve", "home page"),
        [
            (
                f"{row['experiments']:,.0f}",
                *(f"{row[f'{name}_s']:.2f}" for name in LISTS),
                f"{row['serve_s']:.2f}" if "serve_s" in row else "-",
                f"{row['home_ms']:.0f} ms" if "home_ms" in row else "-",
            )
            for row in rows
        ],
    )
    return lines


def _people(rows: Sequence[Row]) -> list[str]:
    lines = [
        "## People and versions",
        "",
        "A project with so many members, models, versions of a prompt, commits of it, runs, loops, "
        "iterations of one of them, suggestions and alerts. Processor seconds of commands, and "
        "processor milliseconds of a warm visit to a page.",
        "",
    ]
    lines += table(
        ("of each", *(f"`{words}`" for words in TEAM_COMMANDS.values())),
        [
            (f"{row['count']:.0f}", *(f"{row[f'{name}_s']:.2f} s" for name in TEAM_COMMANDS))
            for row in rows
        ],
    )
    pages_of = [path.partition("?")[0].replace(LOOP, "LOOP") for path in TEAM_PAGES.values()]
    lines += table(
        ("of each", *(f"`{path}`" for path in pages_of)),
        [
            (f"{row['count']:.0f}", *(f"{row[f'{name}_ms']:.0f} ms" for name in TEAM_PAGES))
            for row in rows
        ],
    )
    return lines


def _together(rows: Sequence[Row]) -> list[str]:
    lines = [
        "## Runs at once",
        "",
        f"Processes started at the same moment, each with an experiment of {CASES_AT_ONCE} cases, "
        "on one results file. No cell is missing and none was asked for twice.",
        "",
    ]
    lines += table(
        ("runs", "all of them", "quickest", "slowest", "processor, each", "peak, each", "calls"),
        [
            (
                f"{row['runs']:.0f}",
                f"{row['wall_s']:.1f} s",
                f"{row['quickest_s']:.1f} s",
                f"{row['slowest_s']:.1f} s",
                f"{row['cpu_s']:.2f} s",
                f"{row['peak_mb']:.0f} MB",
                f"{row['calls']:,.0f}",
            )
            for row in rows
        ],
    )
    return lines


PARTS = {
    "cells": (cells, _cells),
    "merging": (merging, _merging),
    "connections": (connections, _connections),
    "workers": (workers, _workers),
    "experiments": (experiments, _experiments),
    "people": (people, _people),
    "together": (together, _together),
}


def page(record: dict[str, Any]) -> str:
    """Return the page that is drawn from the record."""
    parts: dict[str, list[Row]] = record["parts"]
    loads = [row["load"] for name in ("cells", "connections") for row in parts.get(name, [])]
    lines = [
        "# Growth",
        "",
        "Drawn by `python -m benchmarks.scale` from `scale.json`; measured on "
        f"{record['machine']}. While cells and connections were measured, the load of the machine "
        f"was {min(loads, default=0):.1f} to {max(loads, default=0):.1f}.",
        "",
    ]
    for name, (_, drawn) in PARTS.items():
        if name in parts:
            lines += drawn(parts[name])
    return "\n".join([*lines, "## What is not flat or linear", "", *NOTES, *record["notes"]]) + "\n"


NOTES = (
    "- `leaderboard`, `report`, `compare` and gates against a base hold a name and a number of "
    "each case in memory, because they pair cases; a floor or ceiling holds the number alone, "
    "`status` and pages neither. A run remembers each case by its hash.",
    "- `gc` and `merge` sort a row of each answer, which grows a little faster than the answers.",
    "- Every command but `status` reads all files of a project, about 2 ms an experiment; "
    "`serve` does so once, before the first page.",
    "- `plan` without a name plans every experiment.",
    "- Runs at once wait for the processor, hardly for each other: the processor time of a run "
    "grows by a quarter from 1 to 100 of them.",
)


def main() -> None:
    """Measure, write the record and draw the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--quick", action="store_const", const=QUICK, dest="most", help="small sizes"
    )
    parser.add_argument("--most", type=int, help="cells of the largest run")
    parser.add_argument("--part", choices=PARTS, help="measure only this")
    parser.add_argument("--folder", type=Path, help="where projects are made, and stay")
    parser.set_defaults(most=SIZES[-1])
    args = parser.parse_args()
    record: dict[str, Any] = {"parts": {}, "notes": []}
    if RECORD.exists():
        record = json.loads(RECORD.read_text(encoding="utf-8"))
    record["machine"] = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    with tempfile.TemporaryDirectory() if args.folder is None else nullcontext(args.folder) as name:
        for part in [args.part] if args.part else PARTS:
            rows = PARTS[part][0](Path(name), args.most)
            record["parts"][part] = [{k: float(f"{v:.3f}") for k, v in row.items()} for row in rows]
            print(json.dumps(record["parts"][part]), file=sys.stderr)
            RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
            PAGE.write_text(page(record), encoding="utf-8")


if __name__ == "__main__":
    main()
