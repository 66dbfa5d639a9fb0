"""How long does each page take on a million answers? (rows 16 and 17 of the targets)

    python -m benchmarks.pages [--outputs 1000000] [--write docs/benchmarks/pages.md]

A results file is written by the store's own functions: 20 runs of one experiment, 4 models, every
answer its own. Pages are then asked for over HTTP, one after the other, first and warm, on both
lines of Datasette. Row 17 is the time from a commit to the event that a page gets which follows the
run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.execute.aggregating import rollups_of
from edison_ci.store.answers import text_hash
from edison_ci.store.database import open_database
from edison_ci.store.events import add_event
from edison_ci.store.runs import CaseFacts, CellRow, NewRun, Part, finish_cells, move_run, start_run

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
RUNS = 20
MODELS = ("large", "medium", "small", "tiny")
CRITERIA = ("Accuracy", "Empathy", "Helpfulness")
TAGS = ("billing", "returns", "shipping", "upset", "short", "german")
REPEAT = 20
_BATCH = 5_000
_TEXT = "Thank you for your message. We are sorry for the delay and will send a new one today. " * 3
_TARGETS = (50, 15)


class Timing(NamedTuple):
    """How long a page took, in milliseconds."""

    page: str
    cold: float
    p50: float
    p95: float


# --- a file with many answers ---------------------------------------------------------------------


def generate(root: Path, outputs: int) -> None:
    """Write a project with so many answers."""
    (root / ".edison").mkdir()
    (root / "edison.yaml").write_text("version: 1\nproject: large\n", encoding="utf-8")
    cases = outputs // (RUNS * len(MODELS))
    with closing(open_database(root / ".edison" / "results.db")) as connection:
        connection.execute("pragma synchronous = off")
        for number in range(RUNS):
            _run(connection, number, cases)
        connection.execute("analyze")


def _run(connection: sqlite3.Connection, number: int, cases: int) -> None:
    rng, now = random.Random(number), f"2026-11-{number % 28 + 1:02d}T09:00:00.000Z"
    run_id = f"202611{number % 28 + 1:02d}T090000-{number:06x}"
    labels = {"support-reply": f"v{number + 1}"}
    cells = cases * len(MODELS)
    connection.execute("begin")
    new = NewRun(
        run_id,
        "support-reply",
        "cli",
        f"{number:08x}",
        "{}",
        labels,
        cells,
        True,
        False,
        "1-x",
        now,
    )
    start_run(new)(connection)
    move_run(run_id, "EXECUTING", now)(connection)
    batch: list[CellRow] = []
    for index in range(cases):
        facts = CaseFacts(json.dumps(rng.sample(TAGS, 2)), rng.randint(1, 5), "golden", 40)
        made = Made(rng, run_id, number)
        batch += [_cell(made, f"case-{index:06d}", model, facts) for model in MODELS]
        if len(batch) >= _BATCH or index == cases - 1:
            _answers(connection, run_id, batch, now)
            finish_cells(batch)(connection)
            batch.clear()
    for status in ("JUDGING", "AGGREGATING", "COMPLETED"):
        move_run(run_id, status, now, complete=int(status == "COMPLETED"))(connection)
    rollups_of(connection, run_id)(connection)
    connection.execute("commit")


class Made(NamedTuple):
    """A run that is being written."""

    rng: random.Random
    run_id: str
    number: int


def _cell(made: Made, case: str, model: str, facts: CaseFacts) -> CellRow:
    rng, run_id, number = made
    score = min(max(rng.gauss(0.7, 0.2), 0.0), 1.0)
    passed = score > 0.5
    key = f"{number:02d}{case}{model}"
    check = Part("contains", "check", float(passed), passed, 0.0, "ok", "it is in the answer")
    others = (Part(name, "criterion", score, None, 0.3, "ok", "fair") for name in CRITERIA)
    return CellRow(
        id=f"{abs(hash((run_id, case, model))) % 16**16:016x}{number:08x}",
        run_id=run_id,
        side="head",
        prompt="support-reply",
        version=f"{number:064x}",
        model=model,
        case_id=case,
        draw=0,
        address=key,
        take=0,
        status="ok",
        composite=score,
        passed=passed,
        case_hash=case,
        facts=facts,
        parts=(check, *others),
    )


def _answers(connection: sqlite3.Connection, run_id: str, cells: list[CellRow], now: str) -> None:
    (last,) = connection.execute("select coalesce(max(id), 0) from attempt").fetchone()
    rows = [(last + 1 + place, cell) for place, cell in enumerate(cells)]
    connection.executemany(
        "insert into attempt (id, address, run_id, model, phase, state, est_microusd, "
        "cost_microusd, est_tokens, owner, sent_at, done_at) "
        "values (?, ?, ?, ?, 'generate', 'settled', 900, 700, 900, '1-x', ?, ?)",
        [(number, cell.address, run_id, cell.model, now, now) for number, cell in rows],
    )
    connection.executemany(
        "insert into answer values (?, 0, ?, 'stop', 200, 80, 0, ?, 700, 'billed', 'sim/small', ?)",
        [(cell.address, number, 300 + number % 900, now) for number, cell in rows],
    )
    connection.executemany(
        "insert into answer_text values (?, 0, ?, null, ?)",
        [(cell.address, _TEXT, text_hash(_TEXT, None)) for _, cell in rows],
    )


# --- asking ---------------------------------------------------------------------------------------


@contextmanager
def served(root: Path, line: str) -> Iterator[str]:
    """Yield the address of a server."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if line != "0.65":
        env["PYTHONPATH"] = str(ROOT / ".tools" / "datasette-1")
    command = [sys.executable, "-P", "-m", "edison_ci", "serve", "--port", "0", "--json"]
    process = subprocess.Popen(command, cwd=root, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    told = ""
    for text in process.stdout:
        told += text
        if text.startswith("}"):
            break
    try:
        yield json.loads(told)["url"]
    finally:
        process.terminate()
        process.wait(timeout=30)


def pages(root: Path) -> dict[str, str]:
    """Return the pages that are asked for, by name."""
    with closing(sqlite3.connect(root / ".edison" / "results.db")) as connection:
        (run,) = connection.execute("select max(id) from run").fetchone()
        (cell,) = connection.execute("select id from cell limit 1").fetchone()
    return {
        "home": "",
        "experiment": "/experiment/support-reply",
        "run, by name": f"/run/{run}",
        "run, worst first": f"/run/{run}?sort=worst",
        "run, failed with a tag": f"/run/{run}?failed=1&tag=upset&sort=worst",
        "run, last page": f"/run/{run}?page=1000000",
        "run, dearest first": f"/run/{run}?metric=cost&sort=worst",
        "cell": f"/cell/{cell[:12]}",
        "case": f"/run/{run}/case?case=case-000001",
        "decisions": f"/run/{run}/decisions",
        "criteria": f"/run/{run}/criteria",
        "kinds of cases": f"/run/{run}/facets",
        "judges": f"/run/{run}/judges",
        "leaderboard": "/leaderboard",
        "costs": "/costs",
        "prompt": "/prompt/support-reply",
        "datasets": "/datasets",
        "dataset": "/dataset/support-reply",
        "audit": "/audit",
        "metrics": "/metrics",
    }


def ask(address: str, path: str) -> float:
    """Ask for a page; return how long it took."""
    start = time.perf_counter()
    with urllib.request.urlopen(address + path, timeout=120) as answer:
        answer.read()
    return 1000 * (time.perf_counter() - start)


def timings(root: Path, line: str) -> list[Timing]:
    """Ask for every page of a line."""
    found = []
    with served(root, line) as address:
        for name, path in pages(root).items():
            cold = ask(address, path)
            warm = sorted(ask(address, path) for _ in range(REPEAT))
            p95 = warm[max(0, round(0.95 * len(warm)) - 1)]
            found.append(Timing(name, cold, statistics.median(warm), p95))
    return found


def until_shown(root: Path, line: str) -> float:
    """Return the milliseconds from the commit of progress to the event that a page gets."""
    run_id, path = "20261201T090000-ffffff", root / ".edison" / "results.db"
    (root / ".edison" / "locks").mkdir(exist_ok=True)
    with closing(open_database(path)) as connection, served(root, line) as address:
        connection.execute("begin")
        now = "2026-12-01T09:00:00.000Z"
        new = NewRun(run_id, "live", "cli", "0", "{}", {}, 9, True, False, "1-x", now)
        start_run(new)(connection)
        connection.execute("commit")
        waits = []
        for done in range(1, 6):
            with urllib.request.urlopen(f"{address}/run/{run_id}/events?since=0") as stream:
                connection.execute("begin")
                add_event(connection, run_id, "run:progress", {"done": done, "total": 9}, now)
                connection.execute("commit")
                start = time.perf_counter()
                for text in stream:
                    if text.startswith(b"data:") and json.loads(text[5:])["done"] == done:
                        break
                waits.append(1000 * (time.perf_counter() - start))
        connection.execute("begin")
        for table in ("event", "run"):
            column = "id" if table == "run" else "run_id"
            connection.execute(f"delete from {table} where {column} = ?", (run_id,))
        connection.execute("commit")
    return max(waits)


def report(root: Path, outputs: int) -> str:
    """Measure and return the page of it."""
    size = (root / ".edison" / "results.db").stat().st_size / 1e6
    told = [
        "# What pages cost",
        "",
        "Written by `python -m benchmarks.pages`; milliseconds over HTTP on this machine, requests",
        f"one after the other. {outputs:,} answers, {RUNS} runs, {len(MODELS)} models, "
        f"{size:,.0f} MB;",
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}. Target: p95 {_TARGETS[0]} ms, stretch {_TARGETS[1]} ms.",
    ]
    for line in ("0.65", "1.0"):
        told += [
            "",
            f"## Datasette {line}",
            "",
            "| page | first | p50 | p95 |",
            "| --- | --- | --- | --- |",
        ]
        told += [
            f"| {one.page} | {one.cold:.0f} | {one.p50:.1f} | {one.p95:.1f} |"
            for one in timings(root, line)
        ]
        told += [
            "",
            f"From a commit to a page that follows the run: {until_shown(root, line):.0f} ms.",
        ]
    return "\n".join(told) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--outputs", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="make the file here, or use the one that is here")
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = given.keep or Path(folder)
        if not (root / "edison.yaml").exists():
            root.mkdir(parents=True, exist_ok=True)
            generate(root, given.outputs)
        told = report(root, given.outputs)
    print(told)
    if given.write:
        given.write.write_text(told, encoding="utf-8")


if __name__ == "__main__":
    main()
