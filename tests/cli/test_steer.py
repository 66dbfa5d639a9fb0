"""edison runs steer: a run of one process is changed by another, seen at the server it calls."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests import forked
from tests.cli.screen import OnTty
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.opened import opened
from tests.timing import PATIENCE_S, poll

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

CASES = 30
EXPERIMENT = """\
experiment: hello
objective: Greet every person by name, in one short and friendly sentence.
prompts: [prompts/hello.md]
models: [small, large]
dataset: datasets/names.jsonl
checks: [chars: {min: 1}]
stop: {budget_usd: 0.02}
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LoopbackServer]:
    with LoopbackServer(ledger=tmp_path / "ledger.jsonl") as server:
        yield server


@pytest.fixture
def project(mini: Folder, server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """Two models with a price for batches on the loopback server, each with four calls at once."""
    monkeypatch.setenv("OWN_KEY", "k-123456789012")
    mini.write(
        "datasets/names.jsonl",
        "".join(f'{{"id": "c{i}", "input": {{"name": "P{i}."}}}}\n' for i in range(CASES)),
    )
    mini.write("experiments/hello.yaml", EXPERIMENT)
    mini.write(
        "models.yaml",
        "".join(
            f"{name}: {{provider: openai_compatible, base_url: '{server.openai_url}', "
            f"model: {name}, key_env: OWN_KEY, params: {{max_tokens: 40}}, "
            "price: {in: 1, out: 2, batch: {in: 0.5, out: 1}}, "
            "limits: {concurrency: 4, attempts: 1}}\n"
            for name in ("small", "large")
        ),
    )
    keys = f"version: 1\nkeys:\n  - {{env: OWN_KEY, hosts: ['{server.url}']}}\n"
    mini.write(".edison/trust.yaml", keys)
    return mini


@pytest.fixture
def started(project: Folder) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that a test started; none outlives it."""
    found: list[subprocess.Popen[str]] = []
    yield found
    for process in found:
        if process.poll() is None:
            process.kill()
        process.communicate()


def command(project: Folder, *argv: str) -> subprocess.Popen[str]:
    return forked.Popen(
        [sys.executable, "-P", "-m", "edison_ci", *argv],
        cwd=project.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def held_run(
    project: Folder, server: LoopbackServer, started: list[subprocess.Popen[str]]
) -> tuple[subprocess.Popen[str], threading.Event]:
    """Start a run whose calls are held until the event is set; return when 4 are on their way."""
    held = threading.Event()
    server.script = [rule(until=held)]
    running = command(project, "run", "--model", "small")
    started.append(running)
    poll("4 calls at once", lambda: server.in_flight == 4)
    return running, held


def ended(project: Folder, *argv: str) -> subprocess.CompletedProcess[str]:
    process = command(project, *argv)
    out, err = process.communicate(timeout=PATIENCE_S)
    return subprocess.CompletedProcess(argv, process.returncode, out, err)


def steer(project: Folder, *argv: str) -> subprocess.CompletedProcess[str]:
    """Steer from a process of its own."""
    return ended(project, "runs", "steer", "hello", *argv)


def state(project: Folder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(steer(project, "--json").stdout)
    return found


def rows(project: Folder, sql: str) -> list[tuple[Any, ...]]:
    with opened(project.path / ".edison" / "results.db") as connection:
        return connection.execute(sql).fetchall()


def calls(server: LoopbackServer, model: str) -> int:
    return sum(seen.chat.model == model for seen in server.requests if seen.chat)


def test_concurrency_rises_and_falls_at_the_server(
    project: Folder, server: LoopbackServer, started: list[subprocess.Popen[str]]
) -> None:
    first, second = threading.Event(), threading.Event()
    server.script = [rule(until=first)]
    running = command(project, "run", "--model", "small")
    started.append(running)
    poll("4 calls at once", lambda: server.in_flight == 4)

    done = steer(project, "--concurrency", "small=9")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done: small makes 9 calls at once, before 4\n"
    poll("9 calls at once", lambda: server.in_flight == 9)

    assert steer(project, "--concurrency", "small=2").returncode == 0
    server.script = [rule(until=second)]
    first.set()
    poll("the calls", lambda: calls(server, "small") >= 11 and server.in_flight == 2)
    assert calls(server, "small") == 11, "nine that were on their way, and two"
    second.set()
    _, said = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0
    assert "steered by" in said
    assert "small makes 2 calls at once, before 9" in said
    assert server.peak == 9
    assert len(server.ledger_rows()) == CASES


def test_a_paused_model_gets_no_calls_while_another_goes_on(
    project: Folder, server: LoopbackServer, started: list[subprocess.Popen[str]]
) -> None:
    held = threading.Event()
    server.script = [rule(until=held)]
    running = command(project, "run")
    started.append(running)
    poll("8 calls at once", lambda: server.in_flight == 8)

    assert (
        "small is paused; 4 calls in flight will finish"
        in steer(project, "--pause", "small").stdout
    )
    held.set()
    poll("the calls", lambda: calls(server, "large") == CASES and server.in_flight == 0)
    poll("the cells", lambda: [m["done"] for m in state(project)["models"]] == [4, CASES])
    assert calls(server, "small") == 4
    small, large = state(project)["models"]
    assert (small["paused"], small["in_flight"], small["waiting"]) == (True, 0, CASES - 4)
    assert (large["paused"], large["waiting"]) == (False, 0)
    shown = steer(project).stdout
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert "small        4          0     4       26       0  paused" in shown
    assert running.poll() is None, "it waits for the paused model"

    again = steer(project, "--pause", "small")
    assert (again.returncode, again.stdout) == (2, "refused: small is paused already\n")
    assert steer(project, "--resume", "small").stdout == "done: small is resumed\n"
    assert running.wait(PATIENCE_S) == 0
    assert calls(server, "small") == CASES
    assert rows(project, "select count(*) from attempt where state <> 'settled'") in (
        [(0,)],
        rows(project, "select count(*) from attempt where state = 'released'"),
    )


@pytest.mark.nightly
def test_a_paused_run_can_be_paused_and_resumed_without_paused_models(
    project: Folder, server: LoopbackServer, started: list[subprocess.Popen[str]]
) -> None:
    running, held = held_run(project, server, started)
    assert steer(project, "--pause", "small").returncode == 0
    held.set()
    poll("0 calls at once", lambda: server.in_flight == 0)
    assert ended(project, "runs", "pause", "hello").returncode == 0
    assert running.wait(PATIENCE_S) == 130
    refused = steer(project, "--resume", "small")
    assert refused.returncode == 2
    assert "is PAUSED (pause): it cannot be steered" in refused.stderr
    assert "edison resume" in refused.stderr
    assert ended(project, "resume", "hello").returncode == 0
    assert calls(server, "small") == CASES


def test_what_is_refused_has_a_reason_and_changes_nothing(
    project: Folder, server: LoopbackServer, started: list[subprocess.Popen[str]]
) -> None:
    _, held = held_run(project, server, started)
    done = steer(
        project, "--concurrency", "smal=5", "--concurrency", "small=0", "--resume", "small"
    )
    assert done.returncode == 2
    assert done.stdout.splitlines() == [
        "refused: the run does not call a model 'smal'; did you mean 'small'?",
        "refused: concurrency is 1 to 1,000, not 0",
        "refused: small is not paused",
    ]
    assert steer(project, "--concurrency", "large=5").returncode == 2  # not of this run
    found = state(project)
    assert [model["concurrency"] for model in found["models"]] == [4]
    assert [each["done"] for each in found["steering"]] == [False] * 4
    audited = rows(
        project,
        "select action, entity, after, run_id from audit where action = 'steer' order by seq",
    )
    assert [row[0] for row in audited] == ["steer", "steer"]
    assert audited[0][1] == f"run {found['run_id']}"
    assert "concurrency smal=5" in audited[0][2]
    assert audited[0][3] == found["run_id"]
    held.set()


def test_a_run_that_is_killed_before_it_answers_changes_nothing(
    project: Folder, server: LoopbackServer, started: list[subprocess.Popen[str]]
) -> None:
    running, held = held_run(project, server, started)
    running.send_signal(signal.SIGSTOP)  # it is alive, and does not answer
    asking = command(project, "runs", "steer", "hello", "--concurrency", "small=9")
    started.append(asking)
    poll("a request", lambda: rows(project, "select count(*) from steering") == [(1,)])
    running.send_signal(signal.SIGKILL)
    running.wait(PATIENCE_S)
    out, _ = asking.communicate(timeout=PATIENCE_S)
    assert asking.returncode == 2
    assert out.startswith("refused: the process of the run ended before it was taken")
    held.set()
    assert ended(project, "resume", "hello").returncode == 0
    assert server.peak == 4
    assert rows(project, "select done from steering") == [(0,)]


def test_a_request_that_a_dead_run_left_is_not_taken_when_it_is_resumed(
    project: Folder, server: LoopbackServer, started: list[subprocess.Popen[str]]
) -> None:
    running, held = held_run(project, server, started)
    running.send_signal(signal.SIGSTOP)
    asking = command(project, "runs", "steer", "hello", "--pause", "small")
    started.append(asking)
    poll("a request", lambda: rows(project, "select count(*) from steering") == [(1,)])
    asking.kill()
    running.kill()
    running.wait(PATIENCE_S)
    held.set()
    assert ended(project, "resume", "hello").returncode == 0, "small is not paused"
    ((done, said),) = rows(project, "select done, said from steering")
    assert (done, said) == (0, "the run stopped before it was taken, and was resumed since")


def test_a_finished_run_is_refused_with_what_can_be_done_instead(
    project: Folder, edison: Edison, server: LoopbackServer
) -> None:
    assert edison(project, "run", "--model", "small").code == 0
    done = edison(project, "runs", "steer", "--concurrency", "small=2")
    assert done.code == 2
    assert "is COMPLETED: it cannot be steered" in done.err
    assert "edison run hello" in done.err
    assert "30 of 30 cells done" in edison(project, "runs", "steer").out
    assert rows(project, "select count(*) from steering") == [(0,)]


@pytest.mark.parametrize("wrong", ["small", "small=", "=3", "small=x", "small=-1"])
def test_a_concurrency_that_is_none_is_refused(project: Folder, edison: Edison, wrong: str) -> None:
    done = edison(project, "runs", "steer", "--concurrency", wrong)
    assert done.code == 2
    assert "is not MODEL=N, such as small=20" in done.err


# --- errors asked again ---------------------------------------------------------------------------


def test_cells_in_error_are_asked_again_in_the_same_run(
    project: Folder, server: LoopbackServer, started: list[subprocess.Popen[str]]
) -> None:
    held = threading.Event()
    wrong = [rule(model="small", contains=f"P{i}.", status=500) for i in (7, 21)]
    server.script = [*wrong, rule(model="large", until=held)]
    running = command(project, "run")
    started.append(running)
    poll("4 calls at once", lambda: server.in_flight >= 4)
    poll("two errors", lambda: rows(project, _ERRORS) == [("c21",), ("c7",)])

    def small() -> tuple[int, int, int]:
        found = next(m for m in state(project)["models"] if m["name"] == "small")
        return found["done"], found["errors"], found["waiting"]

    poll("the next report", lambda: small() == (CASES, 2, 0))

    server.script = [rule(model="large", until=held)]
    done = steer(project, "--requeue", "errors")
    assert done.stdout == "done: 2 cells in error will be asked again\n"
    poll("answers", lambda: rows(project, _ERRORS) == [])
    again = steer(project, "--requeue", "errors")
    assert (again.returncode, again.stdout) == (2, "refused: no cell is in error\n")
    held.set()
    assert running.wait(PATIENCE_S) == 0
    ((run_id, total),) = rows(project, "select run_id, count(*) from cell group by run_id")
    assert total == 2 * CASES
    assert calls(server, "small") == CASES + 2
    last = rows(project, "select data from event where type = 'run:completed'")[0][0]
    figures = json.loads(last)
    assert figures["cells"] == {"error": 0, "ok": 2 * CASES}
    assert (figures["done"], figures["total"]) == (2 * CASES, 2 * CASES)
    assert run_id == state(project)["run_id"]


def test_a_cell_that_fails_again_stays_one_error(
    project: Folder, server: LoopbackServer, started: list[subprocess.Popen[str]]
) -> None:
    held = threading.Event()
    server.script = [
        rule(model="small", contains="P7.", status=500),
        rule(model="large", until=held),
    ]
    running = command(project, "run")
    started.append(running)
    poll("4 calls at once", lambda: server.in_flight >= 4)
    poll("an error", lambda: rows(project, _ERRORS) == [("c7",)])
    assert steer(project, "--requeue", "errors").returncode == 0
    poll("a second try", lambda: calls(server, "small") == CASES + 1)
    poll("it again", lambda: steer(project, "--requeue", "errors").returncode == 0)
    held.set()
    running.communicate(timeout=PATIENCE_S)
    last = rows(project, "select data from event where type = 'run:progress' order by seq desc")
    assert json.loads(last[0][0])["cells"] == {"error": 1, "ok": 2 * CASES - 1}


_ERRORS = "select case_id from cell where status = 'error' order by case_id"


# --- the budget -----------------------------------------------------------------------------------


@pytest.mark.parametrize("raised", [True, False])
def test_a_raised_budget_lets_the_run_finish(
    project: Folder,
    server: LoopbackServer,
    started: list[subprocess.Popen[str]],
    raised: bool,
) -> None:
    held = threading.Event()
    server.script = [rule(until=held)]
    running = command(project, "run", "--model", "small", "--budget", "0.0005")
    started.append(running)
    poll("3 calls at once", lambda: server.in_flight == 3)  # there is no money for a fourth
    if raised:
        done = steer(project, "--budget", "0.01")
        assert done.stdout == "done: the budget of the run is $0.0100, before $0.000500\n"
        assert state(project)["budget"]["limit_microusd"] == 10_000
    held.set()
    assert running.wait(PATIENCE_S) == (0 if raised else 4)
    if raised:
        assert calls(server, "small") == CASES
        return
    refused = steer(project, "--budget", "0.01")
    assert refused.returncode == 2
    (run_id,) = rows(project, "select id from run")[0]
    assert f"edison resume {run_id} --budget USD" in refused.stderr


@pytest.mark.nightly
def test_a_budget_stays_within_the_other_limits_which_are_named(
    project: Folder, server: LoopbackServer, started: list[subprocess.Popen[str]]
) -> None:
    limits = "stop: {budget_usd: 0.02, daily_budget_usd: 0.015}\n"
    project.write(
        "experiments/hello.yaml", EXPERIMENT.replace("stop: {budget_usd: 0.02}\n", limits)
    )
    held = threading.Event()
    server.script = [rule(until=held)]
    started.append(command(project, "run", "--model", "small", "--budget", "0.002"))
    poll("4 calls at once", lambda: server.in_flight == 4)
    assert steer(project, "--budget", "3").stdout == (
        "refused: stop.budget_usd allows this run at most $0.0200; "
        "stop.daily_budget_usd allows this run at most $0.0150\n"
    )
    assert "stop.daily_budget_usd" in steer(project, "--budget", "0.016").stdout
    assert "the run has booked $" in steer(project, "--budget", "0.00001").stdout
    assert state(project)["budget"]["limit_microusd"] == 2_000
    assert steer(project, "--budget", "0.015").returncode == 0
    held.set()


def test_a_resumed_run_keeps_its_raised_budget(
    project: Folder, server: LoopbackServer, started: list[subprocess.Popen[str]]
) -> None:
    held = threading.Event()
    server.script = [rule(until=held)]
    running = command(project, "run", "--model", "small", "--budget", "0.0005")
    started.append(running)
    poll("3 calls at once", lambda: server.in_flight == 3)  # there is no money for a fourth
    assert steer(project, "--budget", "0.01").returncode == 0
    running.kill()
    running.wait(PATIENCE_S)
    held.set()
    assert ended(project, "resume", "hello").returncode == 0
    assert len(rows(project, "select id from cell")) == CASES


# --- cancel ---------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_cancel_shows_progress_and_spend_and_asks_on_a_terminal(
    project: Folder, server: LoopbackServer, started: list[subprocess.Popen[str]]
) -> None:
    held = threading.Event()
    server.script = [rule(model="large", until=held)]
    running = command(project, "run", "--yes")
    started.append(running)
    poll("4 calls at once", lambda: server.in_flight == 4)
    poll("the cells of small", lambda: state(project)["done"] == CASES)
    with OnTty(project.path, "runs", "cancel", "hello", size=(80, 24)) as asking:
        shown = asking.until(lambda text: "Cancel it?" in text)
        assert "is EXECUTING" in shown
        assert f"{CASES} of {2 * CASES} cells done, $0.00" in shown
        assert "of $0.0200 spent" in shown
        asking.press(b"n\n")
        assert asking.end() != 0
    assert running.poll() is None
    assert state(project)["status"] == "EXECUTING"
    with OnTty(project.path, "runs", "cancel", "hello", size=(80, 24)) as asking:
        asking.until(lambda text: "Cancel it?" in text)
        asking.press(b"y\n")
        asking.until(lambda text: "CANCELLED" in text)
        assert asking.end() == 0
    assert running.wait(PATIENCE_S) == 130
    held.set()


def test_cancel_does_not_ask_where_nobody_can_answer(project: Folder, edison: Edison) -> None:
    paused = edison(project, "run", "--model", "small", "--budget", "0.0000001")
    assert paused.code == 4
    done = edison(project, "runs", "cancel", "hello")
    assert (done.code, "CANCELLED" in done.out, "Cancel it?" in done.err) == (0, True, False)


def test_the_summary_and_the_report_say_what_was_changed(
    project: Folder, server: LoopbackServer, started: list[subprocess.Popen[str]]
) -> None:
    held = threading.Event()
    server.script = [rule(until=held)]
    running = command(project, "run", "--model", "small", "--markdown", "report.md")
    started.append(running)
    poll("4 calls at once", lambda: server.in_flight == 4)
    assert steer(project, "--concurrency", "small=6", "--resume", "small").returncode == 2
    watching = command(project, "runs", "watch", "hello")
    started.append(watching)
    held.set()
    out, _ = running.communicate(timeout=PATIENCE_S)
    said = "small makes 6 calls at once, before 4"
    assert f": {said}." in out
    report = (project.path / "report.md").read_text("utf-8")
    assert said in report
    assert "is not paused" not in report  # what was refused changed nothing
    assert f": {said}\n" in watching.communicate(timeout=PATIENCE_S)[0]
    html = ended(project, "report", "hello", "--format", "html", "--out", "report.html")
    assert html.returncode == 0, html.stderr
    assert said in (project.path / "report.html").read_text("utf-8")
