"""How long does a command take, and how much memory, beside the smallest command there is?"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

SAMPLE_S = 0.02
"""Between two looks at the memory of a process tree."""


@dataclass(frozen=True)
class Measured:
    """Medians over several runs of one command."""

    wall_s: float
    cpu_s: float
    peak_mb: float


def measure(command: list[str], *, cwd: Path, repeat: int = 5) -> Measured:
    """Run a command several times on one core; it must end with 0."""
    runs = [once(command, cwd) for _ in range(repeat)]
    return Measured(
        statistics.median(run.wall_s for run in runs),
        statistics.median(run.cpu_s for run in runs),
        max(run.peak_mb for run in runs),
    )


def once(command: list[str], cwd: Path, *, tree: bool = False) -> Measured:
    """Run a command on one core; it must end with 0.

    Its peak memory is that of its largest process, or of all its processes together (`tree`).
    """
    start = time.perf_counter()
    child = subprocess.Popen(
        command,
        cwd=cwd,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=_one_core,
    )
    memory = TreeMemory(child.pid)
    if tree:
        memory.start()
    errors = child.stderr.read() if child.stderr else b""
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if tree:
        memory.stop()
    if child.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{errors.decode()}")
    peak_mb = memory.peak_mb or usage.ru_maxrss / 1024
    return Measured(wall, usage.ru_utime + usage.ru_stime, peak_mb)


class TreeMemory(threading.Thread):
    """Samples the resident memory of a process and all its descendants together."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._ended = threading.Event()
        self.peak_mb = 0.0

    def run(self) -> None:
        # Its own peak is kept by the system, between samples too, and without what ru_maxrss
        # counts from before the process became the command.
        while not self._ended.wait(SAMPLE_S):
            self.peak_mb = max(self.peak_mb, highest_mb(self._pid), resident_mb(self._pid))

    def stop(self) -> None:
        """End the sampling."""
        self._ended.set()
        self.join()


def highest_mb(pid: int) -> float:
    """Return the most megabytes that a process alone has had; 0 once it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    lines = (line.split() for line in status.splitlines() if line.startswith("VmHWM:"))
    return max((int(kilobytes) / 1024 for _, kilobytes, _ in lines), default=0.0)


def resident_mb(pid: int, parent_command: bytes = b"") -> float:
    """Return the megabytes of a process and its descendants; 0 once it has ended."""
    folder = Path(f"/proc/{pid}")
    try:
        command = (folder / "cmdline").read_bytes()
        # A child that is not yet another program has the memory of its parent, counted already.
        if command == parent_command:
            return 0.0
        pages = int((folder / "statm").read_text().split()[1])
        children = [
            int(child)
            for thread in (folder / "task").iterdir()
            for child in (thread / "children").read_text().split()
        ]
    except OSError:  # a process or a thread ended meanwhile; the next sample counts the others
        return 0.0
    own_mb = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return own_mb + sum(resident_mb(child, command) for child in children)


def _one_core() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


# As users have it: modules are compiled once and kept.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
EDISON = [sys.executable, "-P", "-m", "edison_ci"]
PASS = [sys.executable, "-P", "-c", "pass"]
