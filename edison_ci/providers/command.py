"""A program of the repository as a model: one JSON object per line in, one per line out.

Each process answers one request at a time and stays for the next, so that a program is started once
for each concurrent call and not once for each case. A process that crashes, hangs, writes or uses
too much or answers something else than its request is killed with everything that it started; the
call gets an error with the last line of its standard error, and the next call a new process.

Programs run in a folder that has their own files and what the set-up made of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
import uuid
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.checks import child
from edison_ci.checks.child import paths_for_program
from edison_ci.contracts import CallError, ErrorKind, NotAsked
from edison_ci.documents.marks import Fault
from edison_ci.extras import find_program
from edison_ci.providers.application import SHOWN, asked, read_answer
from edison_ci.providers.openai_compatible import storable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edison_ci.providers.budget import StoredAnswer
    from edison_ci.records import Completion, Request

MOST_BYTES = 4_000_000
"""Of one answer; more is a flood."""
_STDERR_BYTES = 10_000
_SETUP_S = 600.0
_GLANCE_S = 0.5
_MARK = "EDISON_PROGRAM"
"""Variable by which the processes that a program leaves behind are found."""
_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Program:
    """A program, its files, and what it gets."""

    run: Sequence[str]
    root: Path
    """The project."""
    write_files: Callable[[Path], object]
    """Writes its files into a folder."""
    setup: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables besides PATH and the like."""
    confined: bool = False
    """Whether it runs without network, sees its own files only, and writes to its home only."""
    readable: Sequence[Path] = ()
    """Folders that it sees besides, if it is confined."""
    limits: child.Limits = child.PROGRAM_LIMITS
    timeout_s: float = 60.0


class NotRun(NotAsked):
    """A program that may not run here; its cells are skipped."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorKind.BAD_REQUEST, reason, charged=False)


@dataclass(frozen=True, slots=True)
class SkippedProgram:
    """A program that may not run here."""

    reason: str

    async def complete(self, _: Request) -> Completion:
        """Raise NotRun."""
        raise NotRun(self.reason)

    async def answer(self, _: Request) -> StoredAnswer:
        """Raise NotRun."""
        raise NotRun(self.reason)


@dataclass(slots=True)
class _Process:
    """A running program."""

    process: asyncio.subprocess.Process
    mark: str
    sandbox: child.Sandbox
    excess: str = ""
    """What it used too much of, which it was killed for."""
    errors: bytearray = field(default_factory=bytearray)
    reading: asyncio.Task[None] | None = None

    async def read_errors(self) -> None:
        """Keep the end of its standard error."""
        assert self.process.stderr is not None
        while block := await self.process.stderr.read(_STDERR_BYTES):
            self.errors += block
            del self.errors[:-_STDERR_BYTES]

    @property
    def last_line(self) -> str:
        """The last line of its standard error."""
        lines = self.errors.decode("utf-8", "replace").strip().splitlines()
        return storable(lines[-1].strip()[:SHOWN]) if lines else "no error output"

    def kill(self) -> None:
        """Kill it with everything that it started."""
        child.kill_child(self.process.pid, self.sandbox)
        for stray in _marked(self.mark) if self.sandbox == "none" else ():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(stray, signal.SIGKILL)

    async def end(self) -> None:
        """Kill it with everything that it started, and wait."""
        self.kill()
        try:
            await asyncio.wait_for(self.process.wait(), child.END_S)
        except TimeoutError:
            self.sandbox = "none"
            self.kill()
            await self.process.wait()
        if self.reading is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.reading, 1)


def _marked(mark: str) -> list[int]:
    """Return the processes with this mark in their environment; none without /proc."""
    variable, processes = f"{_MARK}={mark}".encode(), []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            if variable in entry.read_bytes().split(b"\0"):
                processes.append(int(entry.parent.name))
    return processes


class CommandProvider:
    """Answers requests with long-lived processes of one program."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._idle: list[_Process] = []
        self._number = 0
        self._building = asyncio.Lock()
        self._built = False
        self._folder = Path()
        self._own_bytes = 0
        self._running: list[_Process] = []
        self._watching: asyncio.Task[None] | None = None
        self._broken: CallError | None = None

    async def complete(self, request: Request) -> Completion:
        """Return the answer of the program, or raise CallError."""
        await self._build()
        self._number += 1
        number = self._number
        line = _as_json({"id": number, **asked(request)}).encode("utf-8", "replace") + b"\n"
        process = self._idle.pop() if self._idle else await self._start(self._program.run)
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(self._program.timeout_s):
                reply = await _exchange(process, line)
            answer = read_answer(_parse(reply, number), round(1000 * (clock() - began)))
        except BaseException as error:
            await self._end(process)
            raise self._explained(error, process) from None
        self._idle.append(process)
        return answer

    async def _build(self) -> None:
        """Write the files and run the set-up once; raises CallError, each time, if that failed."""
        if self._built:
            return
        async with self._building:
            if self._built:
                return
            if self._broken is None:
                try:
                    await asyncio.to_thread(self._write_files)
                    if self._program.setup:
                        await self._set_up()
                    self._built = True
                except CallError as error:
                    self._broken = error
        if self._broken is not None:
            raise CallError(self._broken.kind, self._broken.message, charged=False)

    def _write_files(self) -> None:
        """Make the folder of the program, with its files, and beside it an empty home."""
        self._folder = Path(tempfile.mkdtemp(prefix="edison-program-")).resolve()
        for name in ("files", "home"):
            (self._folder / name).mkdir()
        try:
            self._program.write_files(self._folder / "files")
        except (OSError, Fault) as error:
            message = f"the files of the program cannot be read: {error}"
            raise CallError(ErrorKind.MODEL_NOT_FOUND, message, charged=False) from None
        self._own_bytes = child.files_size(self._folder)

    async def _set_up(self) -> None:
        process = await self._start(self._program.setup, writable=True)
        inside, outside = process.process.stdin, process.process.stdout
        assert inside is not None
        assert outside is not None
        inside.close()
        try:
            async with asyncio.timeout(_SETUP_S):
                while await outside.read(_STDERR_BYTES):
                    pass
                code = await process.process.wait()
        except TimeoutError:
            code = None
        finally:
            await self._end(process)
        if process.excess:
            message = f"the set-up of the program was stopped: {process.excess}"
            raise CallError(ErrorKind.MODEL_NOT_FOUND, message, charged=False)
        if code != 0:
            how = f"took longer than {_SETUP_S:g} s" if code is None else f"ended with {code}"
            message = f"the set-up of the program {how}: {process.last_line}"
            raise CallError(ErrorKind.MODEL_NOT_FOUND, message, charged=False)

    async def _start(self, words: Sequence[str], *, writable: bool = False) -> _Process:
        """Start a process of the program; `writable` lets it write to the folder of its files."""
        program, mark = self._program, uuid.uuid4().hex
        child.hide_environment()
        folder = self._folder / "files"
        first = _located(words[0], folder)
        environment = child.child_environment(str(self._folder / "home"))
        sandbox: child.Sandbox = child.sandbox() if program.confined else "none"
        if not program.confined:
            environment["HOME"] = os.environ.get("HOME", environment["HOME"])
        starting = [line[0] for line in (program.run, program.setup) if line]
        visible = [*paths_for_program(starting, program.readable, program.root), str(folder)]
        terms = child.Terms(sandbox, program.limits, visible, [str(folder)] if writable else [])
        started = await asyncio.create_subprocess_exec(
            *child.entry_command(terms, "command", first, *words[1:]),
            cwd=folder,
            env={**environment, "PYTHONUNBUFFERED": "1", **program.environment, _MARK: mark},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=MOST_BYTES,
        )
        process = _Process(started, mark, sandbox)
        process.reading = asyncio.create_task(process.read_errors())
        self._running.append(process)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        return process

    async def _watch(self) -> None:
        """Kill each process that uses too much."""
        limits = self._program.limits
        while self._running:
            await asyncio.sleep(_GLANCE_S)
            written = await asyncio.to_thread(child.files_size, self._folder) - self._own_bytes
            stats = await asyncio.to_thread(child.process_stats)
            for process in [*self._running]:
                usage = child.usage_of(process.process.pid, stats)
                if excess := limits.excess(usage._replace(files_bytes=written)):
                    process.excess = excess
                    process.kill()

    async def _end(self, process: _Process) -> None:
        """Kill a process with everything that it started."""
        self._running.remove(process)
        await process.end()

    def _explained(self, error: BaseException, process: _Process) -> BaseException:
        """Return the error of a call that the program did not answer."""
        if isinstance(error, TimeoutError):
            message = f"the program gave no answer within {self._program.timeout_s:g} s"
            return CallError(ErrorKind.TIMEOUT, f"{message}: {process.last_line}")
        if isinstance(error, asyncio.LimitOverrunError | ValueError):
            message = f"the program wrote more than {MOST_BYTES:,} bytes without an end of line"
            return CallError(ErrorKind.BAD_RESPONSE, message)
        if isinstance(error, asyncio.IncompleteReadError | ConnectionError):
            code = process.process.returncode
            message = f"the program ended with {code} before it answered: {process.last_line}"
            if code == child.TOO_MANY_PROCESSES:
                process.excess = process.excess or self._program.limits.too_many_processes
            if process.excess:
                message = f"the program was stopped: {process.excess}"
            return CallError(ErrorKind.BAD_RESPONSE, message)
        return error

    async def aclose(self) -> None:
        """End every process."""
        idle, self._idle = self._idle, []
        await asyncio.gather(*(self._end(process) for process in idle))
        if self._watching is not None:
            self._watching.cancel()
        if self._folder.name:
            shutil.rmtree(self._folder, ignore_errors=True)


def _located(word: str, folder: Path) -> str:
    """Return the path of a program; raises CallError if it is not there."""
    path = str(folder / word) if "/" in word else word
    program = find_program(path)
    if program is None:
        message = f"{word} cannot be started: it is no executable file here"
        raise CallError(ErrorKind.MODEL_NOT_FOUND, message, charged=False)
    return str(Path(program).parent.resolve() / Path(program).name)


async def _exchange(process: _Process, line: bytes) -> bytes:
    inside, outside = process.process.stdin, process.process.stdout
    assert inside is not None
    assert outside is not None
    try:
        inside.write(line)
    except RuntimeError as error:  # uvloop says so of a process that has ended
        raise ConnectionResetError(str(error)) from None
    await inside.drain()
    return await outside.readuntil(b"\n")


def _parse(line: bytes, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        start = storable(line[:SHOWN].decode("utf-8", "replace").strip())
        message = (
            f"the program wrote {start!r}, which is not JSON; logs belong on its standard error"
        )
        raise CallError(ErrorKind.BAD_RESPONSE, message) from None
    if not isinstance(value, dict) or value.get("id", number) != number:
        message = f"the program did not answer request {number} with one JSON object"
        raise CallError(ErrorKind.BAD_RESPONSE, message)
    if error := value.get("error"):
        raise CallError(ErrorKind.BAD_RESPONSE, f"the program says: {storable(str(error))[:SHOWN]}")
    return value
