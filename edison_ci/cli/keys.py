"""How is a single key read from a terminal, and a line when one is wanted?

The terminal hands over every key at once for as long as keys are wanted, not only while somebody
waits for one: whoever types ahead would lose keys otherwise.
"""

from __future__ import annotations

import os
import select
import sys
from typing import TYPE_CHECKING, Any

import click

try:
    import termios
    import tty
except ImportError:  # Windows has no such terminals; click knows its keyboards
    termios = tty = None  # type: ignore[assignment]  # looked at before it is used

if TYPE_CHECKING:
    from types import TracebackType

_ESCAPE = "\x1b"
_END = "\x04"


class Keys:
    """The keyboard, one key at a time while it is entered."""

    def __init__(self) -> None:
        self._usual: Any = None

    def __enter__(self) -> Keys:
        if termios is not None:
            self._usual = termios.tcgetattr(sys.stdin)
            self._one_by_one()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._as_usual()

    def key(self) -> str:
        """Return the next key; raises EOFError at the end, KeyboardInterrupt when interrupted."""
        if termios is None:
            return click.getchar()
        descriptor, data = sys.stdin.fileno(), b""
        while True:
            read = os.read(descriptor, 1)
            data += read
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError:
                if read and len(data) < 4:
                    continue  # the rest of a letter is still to come
                text = "?"
            if text in ("", _END):
                raise EOFError
            if text == _ESCAPE:
                self._rest(descriptor)
            return text

    def line(self, prompt: str) -> str:
        """Return a line that somebody typed; '' at the end of the input."""
        self._as_usual()
        try:
            return input(prompt).strip()
        except EOFError:
            return ""
        finally:
            self._one_by_one()

    def _rest(self, descriptor: int) -> None:
        """Swallow what an arrow or function key sends behind its escape."""
        while select.select([descriptor], [], [], 0)[0] and os.read(descriptor, 1):
            pass

    def _one_by_one(self) -> None:
        if termios is not None:
            tty.setcbreak(sys.stdin, termios.TCSADRAIN)

    def _as_usual(self) -> None:
        if self._usual is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._usual)
