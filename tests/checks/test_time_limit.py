"""Work on an answer that takes too long is an error of its cell, not the end of the run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from edison_ci.checks import time_limit, worker_jobs
from edison_ci.checks.evaluation import EvaluationError
from edison_ci.checks.time_limit import run_job, run_limited
from tests.conftest import ROOT
from tests.timing import PATIENCE_S, poll

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A clock of this test's own that ticks often."""
    monkeypatch.setattr(time_limit, "LIMIT_S", 0.2)
    monkeypatch.setattr(time_limit, "_TICK_S", 0.05)
    time_limit.stop_clock()
    yield
    time_limit.stop_clock()


def endless() -> None:
    while True:
        pass


def stubborn() -> None:
    for _ in range(3):
        try:
            endless()
        except Exception:
            continue


@pytest.mark.nightly
@pytest.mark.parametrize(
    "work",
    [
        endless,
        stubborn,
        lambda: re.search(r"(a|aa)+$", "a" * 60 + "b"),
        lambda: re.search(
            r"\A\s*```(?:json)?\s*\n(.*?)\n\s*```\s*\Z", "```" + "\n" * 9_000 + "x", re.S
        ),
        lambda: re.findall(r"<thinking>(.*?)</thinking>", "<thinking>" * 50_000, re.S),
        lambda: re.search("a.*x", "a" * 50_000),
    ],
    ids=["python", "catches all", "exponential", "fence", "tags", "quadratic"],
)
def test_what_takes_too_long_is_an_error(work: object) -> None:
    assert callable(work)
    with pytest.raises(EvaluationError, match=r"^it takes longer than 0\.2 s$"):
        run_limited("it", work)


def test_what_is_in_time_is_left_alone() -> None:
    assert {run_limited("it", lambda: 1) for _ in range(100)} == {1}
    sum(range(20_000_000))  # as long as you like, when nobody limits it
    with pytest.raises(ZeroDivisionError):
        run_limited("it", lambda: 1 / 0)


def test_limits_do_not_nest() -> None:
    with pytest.raises(EvaluationError, match="outer takes"):
        run_limited("outer", lambda: run_limited("inner", endless))
    assert run_limited("after", lambda: 1) == 1


def test_another_thread_is_not_interrupted() -> None:
    found: list[int] = []
    thread = threading.Thread(
        target=lambda: found.append(run_limited("it", lambda: sum(range(10**7))))
    )
    thread.start()
    thread.join()
    assert found


def test_the_clock_stops_before_python_ends() -> None:
    """Python takes its handlers away when it ends; a tick after that would kill the process."""
    code = (
        "import atexit, signal, sys\n"
        "atexit.register(lambda: sys.stdout.write(str(signal.getitimer(signal.ITIMER_VIRTUAL))))\n"
        "from edison_ci.checks.time_limit import run_limited\n"
        "run_limited('it', lambda: 1)\n"
        "assert signal.getitimer(signal.ITIMER_VIRTUAL)[1] > 0\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout == b"(0.0, 0.0)"


def test_what_a_run_starts_is_not_stopped_by_its_clock() -> None:
    run_limited("it", lambda: 1)
    code = "import signal, sys; sys.stdout.write(str(signal.getitimer(signal.ITIMER_VIRTUAL)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"(0.0, 0.0)"


def idle() -> list[int]:
    return [each._process.pid for each in time_limit._workers._idle]


def test_a_worker_is_kept_for_the_next_job() -> None:
    run_job("search", "a", "a", what="it")
    before = idle()
    run_job("search", "a", "a", what="it")
    assert idle() == before


def test_a_worker_that_died_while_it_waited_is_replaced() -> None:
    run_job("search", "a", "a", what="it")
    for pid in idle():
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert run_job("search", "a", "a", what="it") == ["a"]


def test_the_limit_is_that_of_the_job() -> None:
    with pytest.raises(EvaluationError, match=r"it takes longer than 0\.2 s"):
        run_job("search", "(a|aa)+$", "a" * 60 + "b", what="it", limit_s=0.2)


def test_a_job_that_fails_says_how() -> None:
    with pytest.raises(EvaluationError, match=r"it failed: (error|PatternError): missing"):
        run_job("search", "(", "a", what="it")
    with pytest.raises(EvaluationError, match="it failed: it is nested too deeply"):
        run_job("schema", {"$ref": "#"}, 1, what="it")


def test_the_worker_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    time_limit._workers.end()
    run_job("search", "a", "a", what="it")
    for pid in idle():
        assert b"canary" not in Path(f"/proc/{pid}/environ").read_bytes()


def has_ended(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()  # ended, but nobody noticed
    except OSError:
        return True


def test_a_worker_ends_with_the_one_who_started_it() -> None:
    code = (
        "from edison_ci.checks import time_limit as w\n"
        "w.run_job('search', 'a', 'a', what='it')\n"
        "import os; os.write(1, str(w._workers._idle[0]._process.pid).encode()); os._exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True, timeout=PATIENCE_S
    )
    pid = int(done.stdout)
    poll("it has ended", lambda: has_ended(pid))


def test_jobs_answer_by_themselves() -> None:
    assert worker_jobs.answer({"job": "search", "arguments": ["b+", "abb"]}) == {"found": ["bb"]}
    assert worker_jobs.answer({"job": "sql", "arguments": ["SELECT 1"]}) == {"found": None}
    reply = worker_jobs.answer({"job": "schema", "arguments": [{"type": "array"}, 1]})
    assert reply == {"found": ["$", "1 is not of type 'array'"]}
    assert json.dumps(reply)
