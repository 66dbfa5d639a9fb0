"""Starts Python as `subprocess` does, in forks of a process that has imported edison already.

Importing takes a second of processor time, a fork 20 ms. `Popen` and `run` take what those of
`subprocess` take, for `[sys.executable, "-P", "-m", "edison_ci", ...]`, `-c CODE` or a script, and
the process is one as any other: it has its own environment, folder, streams and signals, and dies
by itself. What a fork cannot be (another Python path, another locale) is started as usual.

Where the start itself is tested, or what a command imports, tests use `subprocess`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import inspect
import io
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIXED = ("PYTHON", "LC_", "LANG", "LD_", "COVERAGE", "OPENBLAS")
"""Variables that act only when Python starts."""
_EXAMPLES = Path(__file__).parent.parent / "examples"
_LEFT_OUT = ("edison_ci.__main__", "edison_ci.providers.local", "edison_ci.providers.litellm")


# --- in the tests ---------------------------------------------------------------------------------


class Popen(subprocess.Popen[Any]):
    """A process that was forked where that makes no difference."""

    _told: socket.socket | None = None

    def _execute_child(self, *given: Any) -> None:
        whole = super()._execute_child  # type: ignore[misc]
        asked = inspect.signature(whole).bind(*given).arguments
        job = _job(asked)
        if job is None:
            whole(*given)
            return
        streams = [
            number if asked[name] == -1 else asked[name]
            for number, name in enumerate(("p2cread", "c2pwrite", "errwrite"))
        ]
        self._told, theirs = socket.socketpair()
        with theirs:
            _home(_fixed(job["environment"])).ask(job, [*streams, theirs.fileno()])
        self.pid = int(_line(self._told))
        self._child_created = True
        pipes = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in pipes))  # type: ignore[attr-defined]

    def _internal_poll(self, *given: Any, **named: Any) -> int | None:
        if self._told is None:
            found: int | None = super()._internal_poll(*given, **named)  # type: ignore[misc]
            return found
        lock = self._waitpid_lock  # type: ignore[attr-defined]
        if not lock.acquire(blocking=False):
            return None  # somebody waits for it
        try:
            return self._ended(0)
        finally:
            lock.release()

    def _wait(self, timeout: float | None) -> int:
        if self._told is None:
            found: int = super()._wait(timeout)  # type: ignore[misc]
            return found
        with self._waitpid_lock:  # type: ignore[attr-defined]
            code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, timeout_s: float | None) -> int | None:
        """Return the exit code as soon as there is one."""
        assert self._told is not None
        if self.returncode is None:
            self._told.settimeout(timeout_s)
            try:
                self.returncode = int(_line(self._told))
            except (BlockingIOError, TimeoutError):
                return None
            self._told.close()
        return self.returncode


def run(
    command: Sequence[str | Path],
    *,
    input: Any = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a process to its end, as `subprocess.run` does."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with Popen(command, **options) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def _job(asked: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a fork is asked for, or None if it would be no fork."""
    words = [os.fspath(word) for word in asked["args"]]
    environment = dict(os.environ if asked["env"] is None else asked["env"])
    safe = words[1:2] == ["-P"]
    words = [words[0], *words[1 + safe :]]
    plain = (
        hasattr(os, "pidfd_open")
        and words[0] == sys.executable
        and (words[1:2] in (["-c"], ["-m"]) or (words[1:2] and not words[1].startswith("-")))
        and (safe or words[1:3] != ["-m", "edison_ci"])  # which would not find itself unsafe
        and asked["close_fds"]
        and not any(asked[name] for name in ("preexec_fn", "pass_fds", "shell", "executable"))
        and not any(name.startswith("COVERAGE") for name in environment)
    )
    if not plain or not _is_worth_it(_fixed(environment)):
        return None
    return {
        "words": words[1:],
        "safe": safe,
        "folder": os.fspath(asked["cwd"] or Path.cwd()),
        "environment": environment,
        "leads": asked["start_new_session"],
    }


_Fixed = tuple[tuple[str, str], ...]


def _fixed(environment: dict[str, str]) -> _Fixed:
    """Return what a process must have been started with to fork for this environment."""
    named = {name: text for name, text in environment.items() if name.startswith(_FIXED)}
    named.pop("PYTHONDONTWRITEBYTECODE", None)  # everything is compiled already
    return tuple(sorted(named.items()))


def _is_worth_it(fixed: _Fixed) -> bool:
    """Whether to fork for such an environment: the usual one, or one that is asked for often."""
    _asked[fixed] += 1
    usual = fixed == _fixed(dict(os.environ))
    return os.getpid() in _begun and (usual or _asked[fixed] > _OFTEN)


def begin() -> None:
    """Fork from now on, in this process: one that tests start has no use for it."""
    _begun.add(os.getpid())


_begun: set[int] = set()
_asked: Counter[_Fixed] = Counter()
_OFTEN = 1


def _line(stream: socket.socket) -> bytes:
    """Read a line; nothing is waited for within one."""
    text = stream.recv(1)
    assert text, "the process that forks has died"
    stream.settimeout(None)
    while not text.endswith(b"\n"):
        text += stream.recv(1)
    return text


class _Home:
    """The process that forks."""

    def __init__(self, fixed: _Fixed) -> None:
        self._mine, theirs = socket.socketpair()
        self._asking = threading.Lock()
        others = {name: text for name, text in os.environ.items() if not name.startswith(_FIXED)}
        environment = {**others, **dict(fixed)}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                env=environment,
                pass_fds=[theirs.fileno()],
            )

    def ask(self, job: dict[str, Any], streams: list[int]) -> None:
        text = json.dumps(job).encode()
        with self._asking:
            socket.send_fds(self._mine, [len(text).to_bytes(8)], streams)
            self._mine.sendall(text)

    def close(self) -> None:
        self._mine.close()
        self._process.wait()


_homes: dict[_Fixed, _Home] = {}


def _home(fixed: _Fixed) -> _Home:
    if fixed not in _homes:
        _homes[fixed] = _Home(fixed)
    return _homes[fixed]


def close() -> None:
    """End the processes that fork."""
    while _homes:
        _, home = _homes.popitem()
        home.close()


# --- in the process that forks --------------------------------------------------------------------


def warm_up() -> None:
    """Import whatever a command may import, build what is built at first use, start no thread."""
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"  # as a command does before it imports
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    package = importlib.import_module("edison_ci")
    for found in pkgutil.walk_packages(package.__path__, "edison_ci."):
        if not found.name.startswith(_LEFT_OUT):
            with contextlib.suppress(ImportError):  # what an extra would bring
                importlib.import_module(found.name)
    for name in ("numpy", "scipy.special"):
        importlib.import_module(name)
    for example in ("customer-support", "code-generation"):
        importlib.import_module("edison_ci.config.load").load_project(_EXAMPLES / example)
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()


def warm_up_server() -> None:
    """Import what a server imports, and compile the templates of its pages."""
    serving = importlib.import_module("edison_ci.web.serving")
    importlib.import_module("uvicorn")
    importlib.import_module("uvicorn.lifespan.on")
    importlib.import_module("uvicorn.loops.auto")
    importlib.import_module("uvicorn.protocols.http.auto")
    serving.compile_templates(importlib.import_module("datasette.app").Datasette([], memory=True))
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()


def _serve(asked: socket.socket) -> dict[str, Any] | None:
    """Fork for each job; return it in the fork, and None at the end."""
    waiting = selectors.DefaultSelector()
    waiting.register(asked, selectors.EVENT_READ)
    is_ready_to_serve = False
    while True:
        for key, _ in waiting.select():
            if key.fileobj is not asked:
                pid, told = key.data
                _, status = os.waitpid(pid, 0)
                waiting.unregister(key.fd)
                os.close(key.fd)
                _tell(told, os.waitstatus_to_exitcode(status))
                os.close(told)
                continue
            head, streams, _, _ = socket.recv_fds(asked, 8, 4)
            if not head:
                return None
            job: dict[str, Any] = json.loads(_exactly(asked, int.from_bytes(head)))
            if "serve" in job["words"] and not is_ready_to_serve:
                warm_up_server()
                is_ready_to_serve = True
            *standard, told = streams
            pid = os.fork()
            if pid == 0:
                waiting.close()
                _take(standard)
                os.close(told)
                asked.close()
                return job
            for number in standard:
                os.close(number)
            _tell(told, pid)
            waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, told))


def _exactly(stream: socket.socket, size: int) -> bytes:
    text = b""
    while len(text) < size:
        text += stream.recv(size - len(text))
    return text


def _tell(told: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody waits for it
        os.write(told, f"{number}\n".encode())


def _take(streams: list[int]) -> None:
    """Make these our standard streams."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        raw = io.FileIO(number, "w" if number else "r", closefd=False)
        fresh = io.TextIOWrapper(
            io.BufferedWriter(raw) if number else io.BufferedReader(raw),
            encoding=old.encoding,
            errors="backslashreplace" if number == 2 else old.errors,
            newline="\n" if number else None,
            line_buffering=number == 2 or os.isatty(number),
            write_through=bool(number) and unbuffered,
        )
        setattr(sys, name, fresh)
        setattr(sys, f"__{name}__", fresh)


def _become(job: dict[str, Any]) -> None:
    """Do what Python does with such a command line."""
    if job["leads"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(job["environment"])
    time.tzset()
    tempfile.tempdir = None
    os.chdir(job["folder"])
    kind, *words = job["words"]
    if kind in ("-c", "-m"):
        what, *words = words
    sys.argv = ["-c" if kind == "-c" else kind, *words]
    if not job["safe"]:
        sys.path.insert(0, "" if kind == "-c" else str(Path.cwd()))
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    elif kind == "-c":
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), main.__dict__)
    else:
        runpy.run_path(kind, run_name="__main__")


def _end(code: int) -> None:
    """End as Python does, but leave what was imported to the system: freeing it takes 140 ms."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    gc.collect()  # which tells of tasks and files that nobody ended
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        sys.exit(code)  # Python says what was lost
    os._exit(code & 0xFF)


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is meant for the tests
    asked = socket.socket(fileno=int(sys.argv[1]))
    warm_up()
    job = _serve(asked)
    if job is None:
        return
    try:
        _become(job)
        code = 0
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        code = ended.code or 0
    _end(code)


if __name__ == "__main__":
    _main()
