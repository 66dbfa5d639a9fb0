"""A run survives being killed, interrupted and refused money, and ends as if nothing had been."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from edison_ci.errors import BusyError, ExitCode, UsageError
from edison_ci.results.report import as_json
from edison_ci.results.run_result import RunResult
from edison_ci.store.database import open_reader
from edison_ci.store.liveness import experiment_lock
from edison_ci.store.runs import find_run
from tests import forked
from tests.conftest import ROOT
from tests.execute.child import start
from tests.opened import opened
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Folder

CASES = 60


@pytest.fixture
def project(mini: Folder) -> Folder:
    """A project of 60 cases whose simulated model takes its time."""
    rows = (
        f'{{"id": "c{i}", "input": {{"name": "P {i}"}}, "expected": "P {i}"}}\n'
        for i in range(CASES)
    )
    mini.write("datasets/names.jsonl", "".join(rows))
    mini.write(
        "models.yaml",
        "small: {provider: sim, model: small, options: {latency_ms: 30}, limits: {concurrency: 4},"
        " price: {in: 1, out: 2}}\njudge: {provider: sim, model: judge}\n",
    )
    return mini


def child(folder: Folder, how: str, *args: str) -> subprocess.Popen[str]:
    return forked.Popen(
        [sys.executable, "-m", "tests.execute.child", str(folder.path), how, *args],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def held_at(folder: Folder, cells: int) -> subprocess.Popen[str]:
    """Return a run that waits, with so many cells done, for a line or to be killed."""
    process = child(folder, "run", "--hold-at", str(cells))
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= cells:
            return process
    raise AssertionError(process.stderr.read() if process.stderr else "no output")


def cells(folder: Folder) -> list[tuple[object, ...]]:
    with opened(folder.path / ".edison/results.db") as connection:
        return connection.execute(
            "select prompt, model, case_id, repeat, request_hash, answer_no, status, composite, "
            "passed "
            "from cell order by case_id, repeat"
        ).fetchall()


def ask(folder: Folder, sql: str) -> list[tuple[object, ...]]:
    with opened(folder.path / ".edison/results.db") as connection:
        return connection.execute(sql).fetchall()


def undisturbed(folder: Folder, tmp_path: Path) -> list[tuple[object, ...]]:
    import shutil

    from tests.conftest import Folder as Copy

    other = Copy(tmp_path / "undisturbed")
    shutil.copytree(folder.path, other.path, ignore=shutil.ignore_patterns("*.db*", "locks"))
    assert start(other.path, "run").exit_code is ExitCode.DONE
    return cells(other)


def test_a_run_fills_every_cell_and_stores_every_answer(project: Folder) -> None:
    ended = start(project.path, "run")
    assert (ended.status, ended.exit_code) == ("COMPLETED", ExitCode.DONE)
    assert ended.progress.cells == {"ok": CASES}
    assert ask(project, "select count(*) from answer") == [(CASES,)]
    assert ask(project, "select status, complete from run") == [("COMPLETED", 1)]


@pytest.mark.parametrize("after", [1, 20, 55])
def test_a_killed_run_is_resumed_to_the_same_result(
    project: Folder, tmp_path: Path, after: int
) -> None:
    expected = undisturbed(project, tmp_path)
    process = held_at(project, after)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    kept = len(ask(project, "select request_hash from answer"))
    assert kept >= after

    resumed = child(project, "resume")
    _, errors = resumed.communicate(timeout=PATIENCE_S)
    assert resumed.returncode == 0, errors
    assert cells(project) == expected
    bought = ask(project, "select count(*) from attempt where state = 'settled'")
    lost = ask(project, "select count(*) from attempt where state = 'unknown'")
    assert bought == [(CASES,)]
    assert int(str(lost[0][0])) <= 4  # at most one answer per open connection
    assert ask(project, "select count(*) from attempt where state = 'reserved'") == [(0,)]


def test_what_was_booked_is_what_the_attempts_say(project: Folder) -> None:
    process = held_at(project, 15)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    child(project, "resume").communicate(timeout=PATIENCE_S)
    total = ask(
        project,
        "select sum(coalesce(cost_microusd, est_microusd)) from attempt where state <> 'released'",
    )
    assert ask(project, "select microusd from booked where scope = 'project'") == total


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_pauses_and_can_be_resumed(
    project: Folder, tmp_path: Path, number: signal.Signals
) -> None:
    expected = undisturbed(project, tmp_path)
    process = held_at(project, 10)
    process.send_signal(number)
    process.communicate("go on\n", timeout=PATIENCE_S)
    assert process.returncode == ExitCode.PAUSED
    assert ask(project, "select status, stopped_by from run") == [("PAUSED", number.name)]
    assert (
        ask(
            project, "select distinct state from attempt where state not in ('settled', 'released')"
        )
        == []
    )
    assert start(project.path, "resume").exit_code is ExitCode.DONE
    assert cells(project) == expected


def test_a_second_run_of_the_same_experiment_is_refused(project: Folder) -> None:
    with (
        experiment_lock(project.path / ".edison/locks", "hello", "first"),
        pytest.raises(BusyError, match="first"),
    ):
        start(project.path, "run")


def test_a_budget_is_never_passed_and_pauses_the_run(project: Folder) -> None:
    ended = start(project.path, "run", 9_000)
    assert (ended.status, ended.exit_code) == ("PAUSED", ExitCode.BUDGET)
    assert ended.progress.stopped_by == "budget: --budget"
    booked = ask(project, "select max(microusd) from booked where scope like 'run:%'")
    assert 0 < int(str(booked[0][0])) <= 9_000
    assert start(project.path, "resume").exit_code is ExitCode.DONE


def test_a_second_run_reuses_what_is_stored(project: Folder) -> None:
    start(project.path, "run")
    again = start(project.path, "run")
    assert (again.progress.usage.bought, again.progress.usage.reused) == (0, CASES)


def test_a_changed_plan_is_not_resumed(project: Folder) -> None:
    process = held_at(project, 5)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    project.edit("prompts/hello.md", "friendly", "grumpy")
    with pytest.raises(UsageError, match="has changed: prompts"):
        start(project.path, "resume")


def test_a_finished_run_is_not_resumed(project: Folder) -> None:
    start(project.path, "run")
    with pytest.raises(UsageError, match="COMPLETED"):
        start(project.path, "resume")


def test_simulated_errors_are_retried_and_never_counted_as_answers(project: Folder) -> None:
    project.edit("models.yaml", "latency_ms: 30", "error_rate: 0.02")
    ended = start(project.path, "run")
    assert ended.progress.cells["ok"] + ended.progress.cells["error"] == CASES
    assert ask(project, "select count(*) from cell where status = 'error' and composite > 0") == [
        (0,)
    ]


def test_the_summary_has_intervals_and_counts(project: Folder) -> None:
    ended = start(project.path, "run")
    reader = open_reader(project.path / ".edison/results.db")
    try:
        found = as_json(RunResult(reader, find_run(reader, ended.run_id)))
    finally:
        reader.close()
    assert found["cells"] == {
        "total": CASES, "ok": CASES, "malformed": 0, "error": 0, "blocked": 0, "skipped": 0,
    }  # fmt: skip
    assert found["simulated"] is True
    assert found["calls"] == {
        "made": CASES,
        "reused": 0,
        "shared": 0,
        "retried": 0,
        "unknown": 0,
        "estimated": 0,
    }
    composite = found["composite"]
    assert composite["low"] < composite["estimate"] < composite["high"]
    assert found["cost_microusd"] > 0
