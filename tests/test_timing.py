"""No test depends on the speed of the machine, nor on how the tests were started."""

from __future__ import annotations

import ast
import datetime as dt
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.timing import PATIENCE_S, rest_of_day_s, slowness, within

HERE = Path(__file__).parent
LIMITED = {"communicate", "join", "timeout", "wait", "wait_for"}
"""Functions whose last argument is a number of seconds."""
A_WAIT = re.compile(
    r"timeout\s*=\s*[\d.]|[.]join\(\s*[\d.]|[.](?:communicate|timeout|wait|wait_for)\("
)
"""What every file has in which there is something to find."""


def limits(path: Path) -> list[str]:
    """Return where a wait has a limit of its own instead of PATIENCE_S."""
    found, text = [], path.read_text(encoding="utf-8")
    if not A_WAIT.search(text):
        return []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        values = [word.value for word in node.keywords if word.arg == "timeout"]
        if name in LIMITED and node.args:
            values.append(node.args[-1])
        for value in values:
            if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(value)}")
    return found


def test_every_wait_is_patient() -> None:
    found = [each for path in sorted(HERE.rglob("*.py")) for each in limits(path)]
    assert found == [], "use PATIENCE_S of tests/timing.py"


def test_a_limit_of_its_own_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    path = tmp_path / "some.py"
    path.write_text("run(x, timeout=5)\nprocess.wait(10)\nprocess.wait(PATIENCE_S)\n'a'.join('b')")
    assert limits(path) == ["some.py:1 5", "some.py:2 10"]
    path.write_text("thread.join(\n    .5\n)\n")
    assert limits(path) == ["some.py:1 0.5"]


def test_what_takes_much_processor_time_is_found() -> None:
    assert slowness() >= 1
    with within(1):
        pass
    started = time.process_time()
    with pytest.raises(AssertionError, match=r"it took \d\.\d s"), within(0.01 / slowness()):
        while time.process_time() < started + 0.05:
            pass


@pytest.mark.nightly
def test_processes_hear_ctrl_c_though_the_tests_ignore_it() -> None:
    """As with `nohup make test &`, or in a script's background."""
    one = "tests/cli/test_app.py::test_a_signal_ends_a_real_process_in_130[SIGINT]"
    ignoring = f"trap '' INT; exec {sys.executable} -m pytest -p no:cacheprovider '{one}'"
    done = subprocess.run(
        ["bash", "-c", ignoring], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("now", "wait_s"),
    [
        ("2026-11-30T00:00:00", 0.0),
        ("2026-11-30T23:57:59", 0.0),
        ("2026-11-30T23:58:01", 119.0),
        ("2026-12-31T23:59:59.75", 0.25),
    ],
)
def test_no_test_starts_when_its_day_is_about_to_end(now: str, wait_s: float) -> None:
    assert rest_of_day_s(dt.datetime.fromisoformat(f"{now}+00:00")) == wait_s
