"""Runs in separate processes: what is launched, the command that does it, and the process.

A process is in its own process group: it continues when the server or the scheduler that
started it stops, and its run can be resumed if it is killed with it.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.numeric import fixed

if TYPE_CHECKING:
    from pathlib import Path

_MOST_OUTPUT = 200_000


@dataclass(frozen=True, slots=True)
class RunLaunch:
    """A run that a process starts, or resumes."""

    target: str
    """The experiment; the id of the run if one is resumed."""
    resumes: bool = False
    budget_microusd: int | None = None
    wait: bool = False
    """Whether to wait until another run of the experiment has ended."""
    offline: bool = False
    fire: tuple[str, str] | None = None
    """The schedule, and its time that is due."""
    run_id: str | None = None
    """The id that the run gets."""
    plan_hash: str | None = None
    """Of the only plan that may be run."""
    started_by: str | None = None
    """`page` or `api`."""

    @property
    def words(self) -> list[str]:
        """The words of the command, after `edison`."""
        words = ["resume", self.target] if self.resumes else ["run", self.target, "--yes"]
        if self.fire is not None:
            words += ["--fire", "@".join(self.fire)]
        values = {
            "--run-id": self.run_id,
            "--if-plan": self.plan_hash,
            "--started-by": self.started_by,
            "--budget": self.budget,
        }
        for option, value in values.items():
            if value is not None:
                words += [option, value]
        flags = {"--wait": self.wait, "--offline": self.offline}
        return words + [option for option, chosen in flags.items() if chosen]

    @property
    def budget(self) -> str | None:
        """The budget in dollars, as it is written on a command line."""
        return None if self.budget_microusd is None else fixed(self.budget_microusd / 1e6, 6)


class Failure(NamedTuple):
    """Why a command failed, by the document that it printed."""

    message: str
    hint: str = ""


class RunProcess:
    """A process that carries out a run."""

    def __init__(self, root: Path, launch: RunLaunch, *, silent: bool = False) -> None:
        """Start it for the project at `root`; `silent` drops what it writes to stderr."""
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`
        shared = ("--directory", str(root), "--quiet", "--json")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "edison_ci", *shared, *launch.words],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.DEVNULL if silent else None,
            start_new_session=True,
        )

    def poll(self) -> int | None:
        """Return its exit code; None while it runs."""
        return self._process.poll()

    def wait(self) -> int:
        """Wait for its end, and return its exit code."""
        return self._process.wait()

    def stop(self, *, kill: bool = False) -> None:
        """Ask it to pause its run, or kill it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)

    def failure(self) -> Failure | None:
        """Return why it failed, once it has ended; None if it did not say."""
        self._output.seek(0)
        text = self._output.read(_MOST_OUTPUT).decode("utf-8", errors="replace")
        with contextlib.suppress(ValueError, KeyError, TypeError):
            error = json.loads(text)["error"]
            return Failure(str(error["message"]), str(error.get("hint") or ""))
        return None

    def close(self) -> None:
        """Let go of what it prints; the process continues."""
        self._output.close()
