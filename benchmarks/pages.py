"""How long does each page take on a million answers? (rows 16 and 17 of the targets)

    python -m benchmarks.pages [--outputs 1000000] [--database FOLDER] [--write FILE]
    python -m benchmarks.pages --database FOLDER --scrape docs/operating.md
    python -m benchmarks.pages --wide docs/benchmarks/pages.md

Pages are asked for over HTTP, one after the other, on both lines of Datasette. Cold is the first
visit to a page of a server that was just started, with the results out of the memory of the
operating system; warm is every further visit, once nothing is worked out aside any more. CPU is
what the server itself used for a warm one, which a busy machine changes least. Row 17 follows a
real run in its page's stream of events, while other pages are asked for: from the moment that an
event was written to the moment it is received.
`--database` names a folder that is filled the first time and used again afterwards. `--scrape`
measures the metrics alone, and replaces what stands between the marks in the file; `--wide` does so
with home and the lists of a project of many experiments and members.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import urllib.request
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from benchmarks.large_results import LIVE, RARE, generate
from benchmarks.measure import EDISON, measure

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = Path(__file__).parent.parent
LINES = ("0.65", "1.0")
COLD, WARM = 3, 20
"""Servers that are started, and visits to each page of the last of them."""
VISITS = 1_000
"""After which a server must not have grown."""
TARGET_MS, STRETCH_MS, LIVE_TARGET_MS = 50, 15, 1_000
SCRAPE_TARGET_MS = 100
EXPERIMENTS, MEMBERS = 1_000, 100
WIDE_START = "<!-- wide: python -m benchmarks.pages --wide docs/benchmarks/pages.md -->"
WIDE_END = "<!-- end of wide -->"
START, END = "<!-- scrape: python -m benchmarks.pages -->", "<!-- end of scrape -->"


class Timing(NamedTuple):
    """How long a page took, in milliseconds."""

    page: str
    cold: float
    warm: float
    p95: float
    cpu: float


class Watched(NamedTuple):
    """How a run was followed."""

    events: int
    slowest_ms: float
    visits: int
    """Pages that were asked for while it ran."""


_GRIDS: dict[str, dict[str, object]] = {
    "worst first": {},
    "by name": {"sort": "name"},
    "best first": {"sort": "best"},
    "dearest first": {"sort": "cost"},
    "in the middle": {"page": 1_500},
    "last page": {"page": 1_000_000},
    "failed": {"failed": 1},
    "failed with a tag, worst first": {"failed": 1, "tag": "upset"},
    "failing in a criterion, worst first": {
        "failed": 1,
        "component": "criterion:Empathy",
    },
    "blocked, slowest first": {"status": "blocked", "sort": "latency"},
    "with a text": {"q": RARE},
    "with a text, failed, worst first": {"q": RARE, "failed": 1},
}
"""What the grid of a run is asked for."""


# --- which pages ----------------------------------------------------------------------------------


def pages(root: Path) -> dict[str, str]:
    """Return the pages that are asked for, by name."""
    with closing(sqlite3.connect(root / ".edison" / "results.db")) as connection:

        def run(experiment: str) -> str:
            largest = "order by cells_planned desc, created_at desc"
            sql = f"select id from run where experiment = ? {largest}"
            return str(connection.execute(sql, (experiment,)).fetchone()[0])

        def middle(run_id: str) -> tuple[str, str]:
            """Return a case in the middle of a run, and a cell of it."""
            (count,) = connection.execute(
                "select count(*) from run_case where run_id = ?", (run_id,)
            ).fetchone()
            (case,) = connection.execute(
                "select case_id from run_case where run_id = ? limit 1 offset ?",
                (run_id, count // 2),
            ).fetchone()
            (cell,) = connection.execute(
                "select id from cell where run_id = ? and case_id = ?", (run_id, case)
            ).fetchone()
            return case, cell[:12]

        usual, giant, drawn = map(run, ("support-reply", "catalogue", "several-repeats"))
        sizes = {"large": usual, "largest": giant}
        middles = {size: middle(run_id) for size, run_id in sizes.items()}
    found = {"home": ""}
    found |= {
        f"experiment {name}": f"/experiment/{name}"
        for name in ("support-reply", "catalogue", "nightly")
    }
    found |= {
        f"{size} run, {name}": f"/run/{run_id}{f'?{urlencode(args)}' if args else ''}"
        for size, run_id in sizes.items()
        for name, args in _GRIDS.items()
    }
    tabs = {"decisions": "decisions", "criteria": "criteria", "slices": "slices",
            "judges": "judges", "log": "log", "grading": "grade"}  # fmt: skip
    found |= {f"largest run, {name}": f"/run/{giant}/{tab}" for name, tab in tabs.items()}
    for size, (case, cell) in middles.items():
        found[f"{size} run, case"] = f"/run/{sizes[size]}/case?{urlencode({'case': case})}"
        found[f"{size} run, cell"] = f"/cell/{cell}"
    found["several repeats, judges"] = f"/run/{drawn}/judges"
    found |= {
        f"leaderboard {name}": f"/leaderboard?experiment={name}"
        for name in ("support-reply", "nightly", "several-repeats")
    }
    found["leaderboard of all experiments"] = "/leaderboard?experiment=*"
    found["experiment nightly, all days"] = "/experiment/nightly?days=all"
    found |= {
        f"search for {name}": f"/search?{urlencode({'q': text})}"
        for name, text in (("the start of a case", middles["largest"][0][:6]), ("nothing", "zq"))
    }
    found |= {
        f"dataset {name}": f"/dataset/{name}" for name in ("support-reply", "several-repeats")
    }
    found |= {
        name: f"/{name}"
        for name in (
            *("costs", "prompts", "datasets", "models", "suggestions", "loops", "audit"),
            *("health", "metrics"),
        )
    }
    return {**found, "prompt": "/prompt/support-reply"}


# --- a server -------------------------------------------------------------------------------------


class Server(NamedTuple):
    """A running `edison serve`."""

    address: str
    pid: int

    def visit(self, path: str) -> float:
        """Ask for a page; return how many milliseconds it took."""
        start = time.perf_counter()
        with urllib.request.urlopen(self.address + path, timeout=120) as answer:
            answer.read()
        return 1000 * (time.perf_counter() - start)

    def settle(self, paths: Iterable[str]) -> None:
        """Wait until nothing is worked out aside any more, which the pages that show it say."""
        for path in paths:
            waiting = True
            while waiting:
                with urllib.request.urlopen(self.address + path, timeout=120) as answer:
                    waiting = b"data-again" in answer.read()
        self.rest()

    def rest(self) -> None:
        """Wait for the end of the duties that a server does after its start, such as alerts."""
        busy = True
        while busy:
            worked = self.cpu()
            time.sleep(2)
            busy = self.cpu() - worked > 0.05

    def cpu(self) -> float:
        """Return the seconds that it has worked so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Return how many megabytes it holds."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        return 0.0


@contextmanager
def served(root: Path, line: str, edison: Sequence[str] = EDISON) -> Iterator[Server]:
    """Yield a server of a line of Datasette."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if line != LINES[0]:
        env["PYTHONPATH"] = str(ROOT / ".tools" / "datasette-1")
    command = [*edison, "serve", "--port", "0", "--json"]
    process = subprocess.Popen(command, cwd=root, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = ""
    for text in process.stdout:
        told += text
        if text.startswith("}"):
            break
    server = Server(json.loads(told)["url"], process.pid)
    try:
        server.visit("/help")  # the server is up, and nothing was looked at
        yield server
    finally:
        process.terminate()
        process.wait(timeout=30)


def forget(root: Path) -> None:
    """Take the results out of the memory of the operating system."""
    for path in root.glob(".edison/results.db*"):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


# --- rows 16 --------------------------------------------------------------------------------------


def timings(
    root: Path, line: str, wanted: dict[str, str] | None = None, *, visits: int = VISITS
) -> tuple[list[Timing], float, float]:
    """Visit every page; return the times, and the memory after some visits and after many."""
    wanted = pages(root) if wanted is None else wanted
    cold: dict[str, list[float]] = {name: [] for name in wanted}
    for number in range(COLD):
        forget(root)
        with served(root, line) as server:
            for name, path in wanted.items():
                cold[name].append(server.visit(path))
            if number == COLD - 1:
                server.settle(wanted.values())
                found = [
                    warm_timing(server, name, path, max(cold[name]))
                    for name, path in wanted.items()
                ]
                before = server.memory()
                paths = list(wanted.values())
                for visit in range(visits):
                    server.visit(paths[visit % len(paths)])
                after = server.memory()
    return found, before, after


def warm_timing(server: Server, name: str, path: str, cold: float) -> Timing:
    """Return how long a page takes that was visited before."""
    worked = server.cpu()
    took = sorted(server.visit(path) for _ in range(WARM))
    cpu = 1000 * (server.cpu() - worked) / WARM
    return Timing(name, cold, statistics.median(took), took[round(0.95 * WARM) - 1], cpu)


# --- row 17 ---------------------------------------------------------------------------------------


def watched(root: Path, line: str) -> Watched:
    """Follow a real run in its stream of events while other pages are asked for."""
    with served(root, line) as server, tempfile.TemporaryFile() as told:
        command = [sys.executable, "-m", "edison_ci", "run", LIVE, "--no-cache", "--yes", "--json"]
        known = _runs(root)
        process = subprocess.Popen(command, cwd=root, stdout=told, stderr=told)
        while not (new := _runs(root) - known):
            time.sleep(0.01)
            assert process.poll() is None, "the run has started"
        (run_id,) = new
        seen: list[tuple[int, float]] = []
        reader = threading.Thread(target=_follow, args=(server, run_id, seen))
        reader.start()
        visits = 0
        while process.poll() is None:
            for path in ("", f"/run/{run_id}", f"/experiment/{LIVE}", "/costs"):
                server.visit(path)
                visits += 1
        assert process.returncode in (0, 1), "the run was not disturbed"
        reader.join(timeout=30)
        return Watched(*_slowest(root, run_id, seen), visits)


def _follow(server: Server, run_id: str, seen: list[tuple[int, float]]) -> None:
    with urllib.request.urlopen(f"{server.address}/run/{run_id}/events", timeout=60) as stream:
        for text in stream:
            if text.startswith(b"data:"):
                seen.append((json.loads(text[5:])["seq"], time.time()))


def _runs(root: Path) -> set[str]:
    with closing(sqlite3.connect(root / ".edison" / "results.db")) as connection:
        return {run for (run,) in connection.execute("select id from run")}


def _slowest(root: Path, run_id: str, seen: list[tuple[int, float]]) -> tuple[int, float]:
    """Return how many events there were, and how long the slowest took to be received."""
    with closing(sqlite3.connect(root / ".edison" / "results.db")) as connection:
        events = connection.execute(
            "select seq, time from event where run_id = ? order by seq", (run_id,)
        ).fetchall()
    first = seen[0][1]
    waits = []
    for seq, stamp in events:
        written = datetime.fromisoformat(stamp).timestamp()
        received = next((at for known, at in seen if known >= seq), None)
        if received is not None and written >= first:  # before it, nobody followed the run
            waits.append(1000 * (received - written))
    return len(waits), max(waits)


# --- the report -----------------------------------------------------------------------------------


def report(root: Path) -> str:
    """Measure and return the page of it."""
    database = root / ".edison" / "results.db"
    with closing(sqlite3.connect(database)) as connection:
        (cells,) = connection.execute("select count(*) from cell").fetchone()
        (runs,) = connection.execute("select count(*) from run").fetchone()
    told = [
        "# Pages",
        "",
        f"Written by `python -m benchmarks.pages` on {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, SQLite {sqlite3.sqlite_version}: {cells:,} answers in "
        f"{runs:,} runs, {database.stat().st_size / 1e6:,.0f} MB; the largest run has 30%. "
        "Milliseconds over HTTP, one request after the other. Cold is the slowest of "
        f"{COLD} first visits, each to a new server with the file out of memory; warm are {WARM} "
        "further ones, CPU what the server used for one of them. The target is a 95th percentile "
        f"of {TARGET_MS} ms (row 16), {STRETCH_MS} ms if it can be; ratios are to the target.",
    ]
    for line in LINES:
        told += ["", f"## Datasette {line}", "", *_section(root, line)]
    return "\n".join(told) + "\n"


def _section(root: Path, line: str) -> Iterator[str]:
    found, before, after = timings(root, line)
    yield "| row | page | cold p95 | ratio | warm p50 | warm p95 | ratio | CPU |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for one in found:
        yield (
            f"| 16 | {one.page} | {one.cold:.0f} | {one.cold / TARGET_MS:.2f} | {one.warm:.1f} | "
            f"{one.p95:.1f} | {one.p95 / TARGET_MS:.2f} | {one.cpu:.1f} |"
        )
    over = [one.page for one in found if max(one.cold, one.p95) > TARGET_MS]
    warm = sum(one.p95 <= STRETCH_MS for one in found)
    missed = f" Over it: {', '.join(over)}." if over else ""
    yield ""
    yield (
        f"{len(found)} pages: {len(found) - len(over)} keep the target cold and warm, {warm} are "
        f"within {STRETCH_MS} ms warm.{missed}"
    )
    live = watched(root, line)
    yield ""
    yield (
        f"Row 17, from an event of a run that is written to the page that follows it: "
        f"{live.slowest_ms:.0f} ms at most over {live.events} events (target "
        f"{LIVE_TARGET_MS:,} ms, ratio {live.slowest_ms / LIVE_TARGET_MS:.2f}), with "
        f"{live.visits} visits to other pages meanwhile, none of which failed."
    )
    yield ""
    yield (
        f"Memory of the server: {before:.0f} MB after every page was seen, {after:.0f} MB after "
        f"{VISITS:,} visits more."
    )


def scrape(root: Path) -> str:
    """Measure the metrics and return what they cost, in words."""
    with closing(sqlite3.connect(root / ".edison" / "results.db")) as connection:
        (cells,) = connection.execute("select count(*) from cell").fetchone()
        (runs,) = connection.execute("select count(*) from run").fetchone()
    with served(root, LINES[0]) as server:
        server.visit("/metrics")
        page = warm_timing(server, "metrics", "/metrics", 0.0)
    whole = measure([*EDISON, "admin", "metrics"], cwd=root)
    start = measure([*EDISON, "--version"], cwd=root)
    if page.cpu > SCRAPE_TARGET_MS:
        raise SystemExit(f"a scrape takes {page.cpu:.0f} ms, more than {SCRAPE_TARGET_MS}")
    return (
        f"With {cells:,} answers in {runs:,} runs, one takes {page.cpu:.0f} ms of processor time "
        f"({page.warm:.0f} ms over HTTP while {os.getloadavg()[0]:.0f} processes share "
        f"{os.cpu_count()} cores); "
        f"`edison admin metrics` takes {1000 * (whole.cpu_s - start.cpu_s):.0f} ms more than "
        f"`edison --version`, with what it imports."
    )


_WIDE_FILES = {
    "models.yaml": "small: {provider: sim, model: small}\n",
    "prompts/hello.md": "---\nid: hello\n---\n# user\nSay hello to {{ name }}.\n",
    "datasets/names.jsonl": "".join(
        json.dumps({"id": f"p{n}", "input": {"name": f"P{n}"}, "expected": f"P{n}"}) + "\n"
        for n in range(3)
    ),
}
_WIDE_EXPERIMENT = """\
experiment: {name}
objective: Greet people by their name, number {number}.
prompts: [prompts/hello.md]
models: [small]
dataset: datasets/names.jsonl
checks: [contains: "{{{{ expected }}}}"]
gates: [{{metric: pass_rate, at_least: 10%}}]
"""


def make_wide(root: Path) -> None:
    """Make a project of many experiments, each with two runs, and many members."""
    roles = ("viewer", "reviewer", "editor", "admin")
    members = "".join(
        f"  - {{email: p{n}@example.org, role: {roles[n % 4]}}}\n" for n in range(MEMBERS - 1)
    )
    owner = "  - {email: owner@example.org, role: owner}\n"
    files = {"edison.yaml": f"version: 1\nproject: wide\nmembers:\n{owner}{members}", **_WIDE_FILES}
    for number in range(EXPERIMENTS):
        name = f"greeting-{number:04}"
        text = _WIDE_EXPERIMENT.format(name=name, number=number)
        files[f"experiments/{name}.yaml"] = text
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    for words in (["init", "-q"], ["config", "user.email", "owner@example.org"]):
        subprocess.run(["git", *words], cwd=root, check=True)
    for _ in range(2):
        subprocess.run([*EDISON, "run", "--yes", "-q"], cwd=root, check=True)


_WIDE_PAGES = {
    "home": "",
    "home, page 20": "?page=20",
    "home, with a text": "?q=number+77",
    "home, failed": "?status=fail",
    "one of the experiments": "/experiment/greeting-0500",
    **{
        name: f"/{name}"
        for name in ("prompts", "datasets", "models", "suggestions", "schedules", "alerts")
    },
    "costs": "/costs",
    "audit": "/audit",
    "health": "/health",
    "leaderboard of all experiments": "/leaderboard?experiment=*",
    "search": "/search?q=greeting-05",
}


def wide_report(root: Path) -> str:
    """Measure home and the lists of a wide project, and return the part of the page."""
    measured = {line: timings(root, line, _WIDE_PAGES, visits=0)[0] for line in LINES}
    told = [
        WIDE_START,
        f"## {EXPERIMENTS:,} experiments and {MEMBERS} members",
        "",
        f"Measured with {os.getloadavg()[0]:.0f} processes at work on {os.cpu_count()} cores, by "
        "`--wide`: every experiment has two runs of three cases.",
        "",
        "| page | " + " | ".join(f"{line}: cold | warm p95 | CPU" for line in LINES) + " |",
        "| --- |" + " --- |" * 3 * len(LINES),
    ]
    for rows in zip(*measured.values(), strict=True):
        numbers = (f"{row.cold:.0f} | {row.p95:.1f} | {row.cpu:.1f}" for row in rows)
        told.append(f"| {rows[0].page} | {' | '.join(numbers)} |")
    timed = [row for rows in measured.values() for row in rows]
    slow = sorted({row.page for row in timed if row.cpu > TARGET_MS})
    over = f"over it: {', '.join(slow)}" if slow else "none is over it"
    target = f"The target is {TARGET_MS} ms; in CPU, which a busy machine changes least, {over}."
    return "\n".join([*told, "", target, WIDE_END]) + "\n"


def put_between(file: Path, marks: tuple[str, str], text: str) -> None:
    """Replace what stands between two marks, or add it at the end."""
    before, _, rest = file.read_text(encoding="utf-8").partition(marks[0])
    after = rest.partition(f"{marks[1]}\n")[2]
    separate = "" if rest else "\n"
    file.write_text(f"{before}{separate}{text}{after}", encoding="utf-8")


def main() -> None:
    """Measure, print and perhaps write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--outputs", type=int, default=1_000_000)
    parser.add_argument("--database", type=Path, help="a folder to fill, or one that was filled")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--scrape", type=Path, help="measure the metrics only; a file with marks")
    parser.add_argument("--wide", type=Path, help="measure a wide project only; a file with marks")
    given = parser.parse_args()
    if given.wide is not None:
        with tempfile.TemporaryDirectory() as folder:
            root = given.database or Path(folder)
            if not (root / "edison.yaml").exists():
                make_wide(root)
            part = wide_report(root.resolve())
        print(part)
        put_between(given.wide, (WIDE_START, WIDE_END), part)
        return
    with tempfile.TemporaryDirectory() as folder:
        root = given.database or Path(folder)
        if not (root / ".edison" / "filled").exists():
            generate(root, given.outputs)
            (root / ".edison" / "filled").touch()
        if given.scrape is not None:
            before, _, rest = given.scrape.read_text(encoding="utf-8").partition(START)
            after = rest.partition(END)[2]
            told = textwrap.fill(scrape(root.resolve()), 120)
            text = f"{before}{START}\n{told}\n{END}{after}"
            given.scrape.write_text(text, encoding="utf-8")
        else:
            told = report(root.resolve())
    print(told)
    if given.write:
        whole = given.write.read_text(encoding="utf-8") if given.write.exists() else ""
        _, mark, wide = whole.partition(WIDE_START)
        kept = f"\n{mark}{wide}" if mark else ""  # measured apart, by --wide
        given.write.write_text(told + kept, encoding="utf-8")


if __name__ == "__main__":
    main()
