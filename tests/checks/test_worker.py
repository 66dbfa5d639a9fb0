"""The worker process answers, dies in time, inherits nothing, and does not outlive us."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edison_ci.checks import worker, worker_jobs
from edison_ci.checks.evaluation import EvaluationError
from edison_ci.checks.worker import bounded
from tests.conftest import ROOT
from tests.timing import PATIENCE_S, poll


def idle() -> list[int]:
    return [each._process.pid for each in worker._workers._idle]


def test_a_worker_is_kept_for_the_next_job() -> None:
    bounded("search", "a", "a", what="it")
    before = idle()
    bounded("search", "a", "a", what="it")
    assert idle() == before


def test_a_worker_that_died_while_it_waited_is_replaced() -> None:
    bounded("search", "a", "a", what="it")
    for pid in idle():
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert bounded("search", "a", "a", what="it") == ["a"]


def test_the_limit_is_that_of_the_job() -> None:
    with pytest.raises(EvaluationError, match=r"it takes longer than 0\.2 s"):
        bounded("search", "(a|aa)+$", "a" * 60 + "b", what="it", limit_s=0.2)


def test_a_job_that_fails_says_how() -> None:
    with pytest.raises(EvaluationError, match=r"it failed: (error|PatternError): missing"):
        bounded("search", "(", "a", what="it")
    with pytest.raises(EvaluationError, match="it failed: it is nested too deeply"):
        bounded("schema", {"$ref": "#"}, 1, what="it")


def test_the_worker_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    worker._workers.end()
    bounded("search", "a", "a", what="it")
    for pid in idle():
        assert b"canary" not in Path(f"/proc/{pid}/environ").read_bytes()


def has_ended(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()  # ended, but nobody noticed
    except OSError:
        return True


def test_a_worker_ends_with_the_one_who_started_it() -> None:
    code = (
        "from edison_ci.checks import worker as w\n"
        "w.bounded('search', 'a', 'a', what='it')\n"
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
