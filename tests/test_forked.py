"""A forked process is like one that was started."""

from __future__ import annotations

import os
import re
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
LEAVES = """
import asyncio, atexit, sys, threading, time
atexit.register(print, "at the end")
threading.Thread(target=lambda: (time.sleep(0.01), print("from a thread"))).start()
async def leave():
    asyncio.get_running_loop().left = asyncio.create_task(asyncio.sleep(3600))
    await asyncio.sleep(0)
asyncio.new_event_loop().run_until_complete(leave())
"""
ENDS = {
    "told": ["-c", TELLS],
    "a command": ["-m", "edison_ci", "nonsense"],
    "things left": ["-c", LEAVES],
    "a sentence": ["-c", "import sys; print('out'); sys.exit('in words')"],
    "a large number": ["-c", "import sys; sys.exit(259)"],
    "an error": ["-c", "1 / 0"],
    "Ctrl-C": ["-c", "raise KeyboardInterrupt"],
    "no room": ["-c", "import sys; sys.stdout = open('/dev/full', 'w'); print('lost')"],
}


@pytest.mark.nightly
@pytest.mark.parametrize("how", ENDS.values(), ids=ENDS)
def test_it_says_what_a_process_says(how: list[str], tmp_path: Path) -> None:
    told: dict[str, Any] = {
        "cwd": tmp_path,
        "env": {**os.environ, "TOLD": "of an environment"},
        "input": b"a line\n",
        "capture_output": True,
    }
    one, other = (run([*PYTHON, *how, "ä"], **told) for run in (forked.run, subprocess.run))
    assert (one.stdout, _shown(one.stderr)) == (other.stdout, _shown(other.stderr))
    assert one.returncode == other.returncode
    assert one.stdout or one.returncode


def _shown(err: bytes) -> list[bytes]:
    """What is said of an error: not where it was raised, nor where an object lay."""
    lines = re.sub(rb" at 0x[0-9a-f]+|=\S+", b"", err).splitlines()
    return [line for line in lines if not line.startswith((b"  ", b"Traceback"))]


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
