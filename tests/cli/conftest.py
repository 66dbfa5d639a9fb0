"""A way to run commands in this process, for the many tests where starting one is too slow."""

from __future__ import annotations

import contextlib
import io
import logging
import signal
import sys
from typing import TYPE_CHECKING, Protocol

import pytest

from edison_ci.cli.app import run
from tests.conftest import Result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Folder


class Edison(Protocol):
    """Runs a command in a folder."""

    def __call__(self, folder: Folder, *args: str, encoding: str = "utf-8") -> Result: ...


@pytest.fixture
def edison(monkeypatch: pytest.MonkeyPatch) -> Iterator[Edison]:
    """Run commands in this process, and put back what a process of its own would take along."""
    before, logger = signal.getsignal(signal.SIGTERM), logging.getLogger("edison_ci")

    def invoke(folder: Folder, *args: str, encoding: str = "utf-8") -> Result:
        monkeypatch.chdir(folder.path)
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        err = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        code = -1
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                run(list(args))
            except SystemExit as ended:
                assert isinstance(ended.code, int)
                code = ended.code
            sys.stdout.flush()
        return Result(code, _text(out), _text(err))

    yield invoke
    signal.signal(signal.SIGTERM, before)
    logger.handlers.clear()
    logger.propagate = True
    logger.setLevel(logging.NOTSET)


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    assert isinstance(stream.buffer, io.BytesIO)
    return stream.buffer.getvalue().decode(stream.encoding)
