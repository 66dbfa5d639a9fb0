"""A terminal that commands run on: a real pty, and a screen that shows what it was told."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from tests import forked
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_UNFINISHED = re.compile(r"\x1b(\[[?0-9;]*)?\Z")
_TOKEN = re.compile(r"\x1b\[(?P<numbers>[?0-9;]*)(?P<letter>[A-Za-z])|(?P<char>.)", re.DOTALL)


@dataclass
class Screen:
    """What a person sees; it knows the sequences that bars need, and fails at any other."""

    width: int
    height: int
    rows: list[str] = field(default_factory=lambda: [""])
    row: int = 0
    column: int = 0
    cursor: bool = True
    styles: set[str] = field(default_factory=set)
    pending: str = ""
    """The beginning of a sequence."""

    def feed(self, text: str) -> None:
        text = self.pending + text
        cut = _UNFINISHED.search(text)
        self.pending = cut.group() if cut else ""
        text = text.removesuffix(self.pending)
        for found in _TOKEN.finditer(text):
            if found["char"] is not None:
                self._put(found["char"])
            else:
                self._obey(found["letter"], found["numbers"])

    def resize(self, width: int) -> None:
        """Become narrower or wider; lines that are too long are wrapped, as most terminals do."""
        wrapped: list[str] = []
        for number, row in enumerate(self.rows):
            if number == self.row:
                at = len(wrapped) + max(self.column - 1, 0) // width
            wrapped += [row[start : start + width] for start in range(0, max(len(row), 1), width)]
        self.column -= max(self.column - 1, 0) // width * width
        self.width, self.rows, self.row = width, wrapped, at

    @property
    def text(self) -> str:
        return "\n".join(row.rstrip() for row in self.rows).strip("\n")

    def _put(self, char: str) -> None:
        assert char not in "\x1b\b\x07", f"{char!r} is nothing that a command should write"
        if char == "\r":
            self.column = 0
        elif char == "\n":
            self._down()
        else:
            if self.column == self.width:
                self._down()
                self.column = 0
            line = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = line[: self.column] + char + line[self.column + 1 :]
            self.column += 1

    def _down(self) -> None:
        self.row += 1
        if self.row == len(self.rows):
            self.rows.append("")

    def _obey(self, letter: str, numbers: str) -> None:
        if letter == "A":
            top = max(len(self.rows) - self.height, 0)
            self.row = max(self.row - int(numbers or 1), top)
        elif (letter, numbers) == ("K", "2"):
            self.rows[self.row] = ""
        elif letter in "hl" and numbers == "?25":
            self.cursor = letter == "h"
        elif (letter, numbers) == ("J", "2"):
            self.rows, self.row = [""], 0
        elif letter == "H":
            self.row = 0
        elif letter == "m":
            self.styles.add(numbers)
        else:
            raise AssertionError(f"a screen does not know {letter!r} {numbers!r}")


class Tty:
    """A pty of some size, and what its screen shows."""

    def __init__(self, width: int = 100, height: int = 30) -> None:
        self.master, self.slave = pty.openpty()
        self.screen = Screen(width, height)
        self.written = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self.resize(width, height)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.master)
        self.leave()

    def leave(self) -> None:
        """Close our end of what commands write to, so that their end is seen."""
        if self.slave >= 0:
            os.close(self.slave)
            self.slave = -1

    def resize(self, width: int, height: int) -> None:
        size = struct.pack("HHHH", height, width, 0, 0)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, size)
        self.screen.height = height
        if width != self.screen.width:
            self.screen.resize(width)

    def read(self, timeout_s: float = 0.0) -> bool:
        """Take in what was written; False if nothing came, or all have gone."""
        if not select.select([self.master], [], [], timeout_s)[0]:
            return False
        with contextlib.suppress(OSError):  # what Linux says when all have gone
            data = os.read(self.master, 1 << 16)
            text = self._decoder.decode(data)
            self.written += text
            self.screen.feed(text)
            return bool(data)
        return False

    def until(self, what: Callable[[str], object]) -> str:
        """Read until the screen shows something."""
        deadline = time.monotonic() + PATIENCE_S
        while not what(self.screen.text):
            assert time.monotonic() < deadline, f"in vain waited, with:\n{self.screen.text}"
            self.read(0.1)
        return self.screen.text


_START = (
    "import fcntl, signal, sys, termios\n"
    "signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a test under nohup would ignore it\n"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"  # so that Ctrl-C and Ctrl-Z reach it
    "from edison_ci.__main__ import main\n"
    "sys.argv[0] = 'edison'\n"
    "main()\n"
)


class OnTty(Tty):
    """A command on a terminal of its own."""

    def __init__(
        self,
        folder: Path,
        *argv: str,
        size: tuple[int, int] = (100, 30),
        env: dict[str, str] | None = None,
    ) -> None:
        super().__init__(*size)
        plain = {k: v for k, v in os.environ.items() if k not in ("CI", "COLUMNS", "LINES")}
        self.process = forked.Popen(
            [sys.executable, "-P", "-c", _START, *argv],
            cwd=folder,
            env={**plain, "TERM": "xterm-256color", **(env or {})},
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            start_new_session=True,
        )
        self.leave()

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        super().__exit__()

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def end(self) -> int:
        """Read to the end; return the exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it does not end:\n{self.screen.text}"
            self.read(0.1)
        while self.read():
            pass
        return self.process.returncode
