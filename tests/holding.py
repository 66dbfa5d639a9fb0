"""Commands whose simulated models stop answering after some calls, until a test lets them go.

A test that interferes with a run then never comes too late, however slow the machine is.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from tests import forked

if TYPE_CHECKING:
    from edison_ci.records import Completion, Request
    from tests.conftest import Folder


def start(folder: Folder, *argv: str, calls: int, after: str = "") -> subprocess.Popen[str]:
    """Start a command that gets so many answers, counted from when it has said something."""
    return forked.Popen(
        [sys.executable, "-P", __file__, *argv],
        cwd=folder.path,
        env={
            **os.environ,
            "HELD_CALLS": str(calls),
            "HELD_AFTER": after,
            "HELD_UNTIL": str(_release(folder)),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def let_go(folder: Folder) -> None:
    """Let the models of a command answer again."""
    _release(folder).touch()


def heard(process: subprocess.Popen[str], text: str) -> str:
    """Return what a command says on standard error, up to the line with a text."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if text in line:
            return "".join(lines)
    raise AssertionError(f"{text!r} was not said:\n{''.join(lines)}")


def stopped(folder: Folder, running: subprocess.Popen[str], *argv: str) -> str:
    """Stop a held command by another one, and return what that shows."""
    words = [sys.executable, "-P", "-m", "edison_ci", "runs", *argv]
    with forked.Popen(words, cwd=folder.path, stdout=subprocess.PIPE, text=True) as stopping:
        heard(running, "stopping:")
        let_go(folder)
        assert running.wait() == 130
        out, _ = stopping.communicate()
    assert stopping.returncode == 0
    return str(out)


def _release(folder: Folder) -> Path:
    return folder.path.with_name("let-go")


def _wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.01)


class _Listening:
    """A stream that notices when words have been written to it."""

    def __init__(self, inner: TextIO, words: str) -> None:
        self._inner, self._words, self._last = inner, words, ""
        self.heard = not words

    def write(self, text: str) -> int:
        self._last = (self._last + text)[-10_000:]
        self.heard = self.heard or self._words in self._last
        return self._inner.write(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def main() -> None:
    """Run the command of the arguments."""
    from edison_ci.cli.app import run
    from edison_ci.features.simulator.provider import SimulatedProvider

    listening = _Listening(sys.stderr, os.environ["HELD_AFTER"])
    sys.stderr = listening
    left, release = int(os.environ["HELD_CALLS"]), Path(os.environ["HELD_UNTIL"])
    whole = SimulatedProvider.complete

    async def complete(self: SimulatedProvider, request: Request) -> Completion:
        nonlocal left
        answer = await whole(self, request)
        if listening.heard:
            left -= 1
            if left < 0:
                await asyncio.to_thread(_wait_for, release)
        return answer

    setattr(SimulatedProvider, "complete", complete)  # noqa: B010
    run(sys.argv[1:])


if __name__ == "__main__":
    main()
