"""Work on an answer that takes too long is an error of its cell, not the end of the run."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from edison_ci.checks import time_limit
from edison_ci.checks.evaluation import EvaluationError
from edison_ci.checks.time_limit import limited
from tests.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A clock of this test's own that ticks often."""
    monkeypatch.setattr(time_limit, "LIMIT_S", 0.2)
    monkeypatch.setattr(time_limit, "_TICK_S", 0.05)
    time_limit.stop()
    yield
    time_limit.stop()


def endless() -> None:
    while True:
        pass


def stubborn() -> None:
    for _ in range(3):
        try:
            endless()
        except Exception:
            continue


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
        lambda: re.search("a.*x", "a" * 100_000),
    ],
    ids=["python", "catches all", "exponential", "fence", "tags", "quadratic"],
)
def test_what_takes_too_long_is_an_error(work: object) -> None:
    assert callable(work)
    with pytest.raises(EvaluationError, match=r"^it takes longer than 0\.2 s$"):
        limited("it", work)


def test_what_is_in_time_is_left_alone() -> None:
    assert {limited("it", lambda: 1) for _ in range(100)} == {1}
    sum(range(20_000_000))  # as long as you like, when nobody limits it
    with pytest.raises(ZeroDivisionError):
        limited("it", lambda: 1 / 0)


def test_limits_do_not_nest() -> None:
    with pytest.raises(EvaluationError, match="outer takes"):
        limited("outer", lambda: limited("inner", endless))
    assert limited("after", lambda: 1) == 1


def test_another_thread_is_not_interrupted() -> None:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(limited("it", lambda: sum(range(10**7)))))
    thread.start()
    thread.join()
    assert found


def test_the_clock_stops_before_python_ends() -> None:
    """Python takes its handlers away when it ends; a tick after that would kill the process."""
    code = (
        "import atexit, signal, sys\n"
        "atexit.register(lambda: sys.stdout.write(str(signal.getitimer(signal.ITIMER_VIRTUAL))))\n"
        "from edison_ci.checks.time_limit import limited\n"
        "limited('it', lambda: 1)\n"
        "assert signal.getitimer(signal.ITIMER_VIRTUAL)[1] > 0\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout == b"(0.0, 0.0)"


def test_what_a_run_starts_is_not_stopped_by_its_clock() -> None:
    limited("it", lambda: 1)
    code = "import signal, sys; sys.stdout.write(str(signal.getitimer(signal.ITIMER_VIRTUAL)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"(0.0, 0.0)"
