"""Code checks in a sandboxed child process.

Each evaluation has a process and a session of its own, without the keys and settings of this one,
with a home that is deleted afterwards. The whole session is killed after five seconds.
`child_entry` drops the rest from the inside: the network, other processes, and write access to all
other folders. Where the kernel does not allow that, as on macOS or without user namespaces, code
could read the keys of its parent and send them anywhere. So it is not run there unless a flag or an
environment variable allows it; no file of the repository can.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from edison_ci.checks.evaluation import EvaluationError, quote, single_line
from edison_ci.extras import search_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.records import Json

NO_SANDBOX = "this machine has no sandbox for code (user and mount namespaces of Linux 5.12)"
LIMIT_S = 5.0
_PROBE_S = 30.0
_MAX_OUTPUT_BYTES = 1_000_000
_MAX_ERROR_BYTES = 10_000
"""The end of standard error that is kept."""
_BLOCK = 65_536
_GLANCE_S = 0.1
_MAX_MEMORY_BYTES = 256 << 20
_SESSION, _RESIDENT = 3, 21
"""Fields of /proc/PID/stat, counted from the one after the name."""
_SET_DUMPABLE = 4
_ENTRY = Path(__file__).with_name("child_entry.py")
_NO_SANDBOX = 97
"""Exit code of `child_entry`."""
WITHOUT_SANDBOX = "EDISON_ALLOW_CODE_WITHOUT_SANDBOX"
"""Variable that allows code without a sandbox, like `--allow-code-without-sandbox`."""


class _ChildOutput(NamedTuple):
    """The output and the exit code of a child."""

    code: int
    out: bytes
    err: bytes


def run_function(root: Path, path: str, function: str, request: str) -> Json:
    """Return the result of a function in a file for a JSON text; raises EvaluationError."""
    file = (root / path).resolve()
    if not file.is_relative_to(root.resolve()) or not file.is_file():
        raise EvaluationError(f"{path} is not a file of the project")
    return _run(["python", str(file), function], root, request, f"{path}:{function}")


def run_program(root: Path, command: Sequence[str], request: str) -> Json:
    """Return the JSON output of a program for a JSON text; raises EvaluationError."""
    return _run(["command", *command], root, request, command[0])


def entry_command(*arguments: str) -> list[str]:
    """Return the command of a child of this process that runs code; see `child_entry`."""
    return [sys.executable, "-I", str(_ENTRY), str(os.getpid()), *arguments]


def _run(arguments: list[str], root: Path, request: str, name: str) -> Json:
    name = single_line(name[:100])
    hide_environment()
    kind = "open" if _sandbox_is_optional() else "sandbox"
    command = entry_command(kind, *arguments)
    with tempfile.TemporaryDirectory(prefix="edison-check-", ignore_cleanup_errors=True) as home:
        child = _Child(command, root, child_environment(home))
        try:
            said = child.communicate(request.encode())
        except EvaluationError as error:
            raise EvaluationError(f"{name} was stopped: {error}") from None
        finally:
            child.end()
    if said.code == _NO_SANDBOX and kind == "sandbox":
        raise EvaluationError(f"{name} was not run: {NO_SANDBOX}")
    if said.code != 0:
        lines = said.err.decode("utf-8", "replace").strip().splitlines()
        last = quote(lines[-1], 150) if lines else "no error output"
        raise EvaluationError(f"{name} ended with {_ending(said.code)}: {last}")
    try:
        found: Json = json.loads(said.out, parse_constant=_refuse)
    except (ValueError, RecursionError):
        shown = quote(said.out[:200].decode("utf-8", "replace"))
        raise EvaluationError(f"{name} wrote {shown}, which is not JSON") from None
    return found


def _sandbox_is_optional() -> bool:
    return os.environ.get(WITHOUT_SANDBOX, "").lower() in ("1", "true", "yes")


@cache
def has_sandbox() -> bool:
    """Whether the kernel can run code without network, keys and write access."""
    with tempfile.TemporaryDirectory(prefix="edison-check-") as home:
        command = entry_command("sandbox", "probe")
        try:
            done = subprocess.run(
                command, env=child_environment(home), capture_output=True, timeout=_PROBE_S
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
    return done.returncode == 0


def sandbox_fault() -> str:
    """Return why code cannot run on this machine; empty if it can."""
    return "" if _sandbox_is_optional() or has_sandbox() else NO_SANDBOX


def _refuse(name: str) -> None:
    raise ValueError(name)


def child_environment(home: str) -> dict[str, str]:
    """Return the environment variables of code from the repository."""
    return {
        "PATH": search_path(),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "HOME": home,
        "TMPDIR": home,
    }


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def session_memory(session: int) -> int:
    """Return the bytes of memory that the processes of a session use; 0 without /proc."""
    pages = 0
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_bytes().rpartition(b")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[_SESSION]) == session:
            pages += int(fields[_RESIDENT])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _too_slow() -> EvaluationError:
    return EvaluationError(f"it took longer than {LIMIT_S:g} s")


class _Child:
    """A running child and its output so far."""

    def __init__(self, command: list[str], root: Path, env: dict[str, str]) -> None:
        self._memory_checked_at = time.monotonic()
        self._ends_at = self._memory_checked_at + LIMIT_S
        self._process = subprocess.Popen(
            command,
            cwd=root,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        self._out, self._err = bytearray(), bytearray()

    def communicate(self, request: bytes) -> _ChildOutput:
        """Send the request and return the output; raises EvaluationError."""
        process = self._process
        rest = memoryview(request)
        with selectors.DefaultSelector() as pipes:
            for pipe, event, name in (
                (process.stdin, selectors.EVENT_WRITE, "in"),
                (process.stdout, selectors.EVENT_READ, "out"),
                (process.stderr, selectors.EVENT_READ, "err"),
            ):
                if pipe is not None:
                    os.set_blocking(pipe.fileno(), False)
                    pipes.register(pipe, event, name)
            while pipes.get_map():
                # Polled before reading: output written before the end is in the pipes then.
                ended = process.poll() is not None
                ready = pipes.select(min(self._left(), _GLANCE_S))
                self._check_memory()
                if not ready and ended:
                    break  # a process that it started keeps the pipes open
                for key, _ in ready:
                    rest = self._step(key, rest, pipes)
        try:
            code = process.wait(self._left())
        except subprocess.TimeoutExpired:
            raise _too_slow() from None
        return _ChildOutput(code, bytes(self._out), bytes(self._err))

    def _check_memory(self) -> None:
        """Raise EvaluationError if the child uses too much memory."""
        now = time.monotonic()
        if now < self._memory_checked_at + _GLANCE_S:
            return
        self._memory_checked_at = now
        if session_memory(self._process.pid) > _MAX_MEMORY_BYTES:
            raise EvaluationError(f"it used more than {_MAX_MEMORY_BYTES >> 20} MB")

    def _left(self) -> float:
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise _too_slow()
        return left

    def _step(
        self, key: selectors.SelectorKey, rest: memoryview, pipes: selectors.BaseSelector
    ) -> memoryview:
        """Write or read a block; return the rest to write."""
        pipe: IO[bytes] = key.fileobj  # type: ignore[assignment]  # only pipes are registered
        if key.data == "in":
            try:
                rest = rest[os.write(pipe.fileno(), rest[:_BLOCK]) :]
            except BrokenPipeError:  # a child may answer before it has read everything
                rest = rest[:0]
            if not rest:
                pipes.unregister(pipe)
                pipe.close()
            return rest
        block = os.read(pipe.fileno(), _BLOCK)
        if not block:
            pipes.unregister(pipe)
        elif key.data == "out":
            self._out += block
            if len(self._out) > _MAX_OUTPUT_BYTES:
                raise EvaluationError(f"it wrote more than {_MAX_OUTPUT_BYTES:,} bytes")
        else:
            self._err = (self._err + block)[-_MAX_ERROR_BYTES:]
        return rest

    def end(self) -> None:
        """Kill the child and the rest of its session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


@cache
def hide_environment() -> None:
    """Make the environment of this process, with its keys, unreadable for children."""
    import ctypes  # slow to load, and for code checks only

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
