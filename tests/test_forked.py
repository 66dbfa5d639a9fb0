"""A forked process is like one that was started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests import forked
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = [sys.executable, "-P"]
TELLS = """
import os, sys, threading
print(sys.argv[1:], os.getcwd(), os.environ["TOLD"], sys.stdin.read(), threading.active_count())
print("also this", file=sys.stderr)
sys.exit(3)
"""


@pytest.mark.parametrize("how", [["-c", TELLS], ["-m", "edison_ci", "nonsense"]])
def test_it_says_what_a_process_says(how: list[str], tmp_path: Path) -> None:
    told: dict[str, Any] = {
        "cwd": tmp_path,
        "env": {**os.environ, "TOLD": "of an environment"},
        "input": b"a line\n",
        "capture_output": True,
    }
    one, other = (run([*PYTHON, *how, "ä"], **told) for run in (forked.run, subprocess.run))
    assert (one.stdout, one.stderr) == (other.stdout, other.stderr)
    assert one.returncode == other.returncode
    assert one.returncode in (2, 3)


def test_it_has_edison_already_where_a_start_is_no_matter() -> None:
    asked = [*PYTHON, "-c", "import sys; print('edison_ci.cli.app' in sys.modules)"]
    assert forked.run(asked, capture_output=True, text=True).stdout == "True\n"
    elsewhere = {**os.environ, "PYTHONPATH": "elsewhere"}
    assert forked.run(asked, env=elsewhere, capture_output=True, text=True).stdout == "False\n"


def test_it_is_waited_for_and_killed() -> None:
    with forked.Popen(
        [*PYTHON, "-c", "import time; print(1, flush=True); time.sleep(3600)"],
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S / 30_000)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == -signal.SIGTERM
    with pytest.raises(subprocess.CalledProcessError):
        forked.run([*PYTHON, "-c", "1 / 0"], check=True, stderr=subprocess.DEVNULL)
