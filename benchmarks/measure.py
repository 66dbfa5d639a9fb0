"""How long does a command take, and how much memory, beside the smallest command there is?"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


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


def once(command: list[str], cwd: Path) -> Measured:
    """Run a command on one core; it must end with 0."""
    start = time.perf_counter()
    child = subprocess.Popen(
        command,
        cwd=cwd,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=_one_core,
    )
    errors = child.stderr.read() if child.stderr else b""
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{errors.decode()}")
    return Measured(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def _one_core() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


# As users have it: modules are compiled once and kept.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
EDISON = [sys.executable, "-P", "-m", "edison_ci"]
PASS = [sys.executable, "-P", "-c", "pass"]
