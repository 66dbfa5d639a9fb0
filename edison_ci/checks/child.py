"""Code in a child process with limits and a sandbox: code checks, and programs that are models.

Each evaluation of a code check has its own process and session, without the keys and
settings of this one, with a home that is deleted afterwards. The whole session is killed after five
seconds. `child_entry` drops the rest from the inside: the network, other processes, all files but
those that are shown, and write access. Where the kernel does not allow that, as on macOS or
without user namespaces, code could read the keys of its parent and send them anywhere. So it is not
run there unless a flag or an environment variable allows it; no file of the repository can.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pwd
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.checks.evaluation import EvaluationError, quote, single_line
from edison_ci.extras import find_program, search_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from edison_ci.records import Json

NO_SANDBOX = (
    "this machine has no sandbox for code (user and mount namespaces of Linux 5.12, or Landlock "
    "and seccomp of Linux 6.2)"
)
Sandbox = Literal["namespaces", "landlock", "none"]
END_S = 5.0
"""How long `child_entry` may take to end what code started."""
LIMIT_S = 5.0
_PROBE_S = 30.0
_MAX_OUTPUT_BYTES = 1_000_000
_MAX_ERROR_BYTES = 10_000
"""The end of standard error that is kept."""
_BLOCK = 65_536
_GLANCE_S = 0.1
_PARENT, _SESSION, _THREADS, _RESIDENT = 1, 3, 17, 21
"""Fields of /proc/PID/stat, counted from the one after the name."""
_SET_DUMPABLE = 4
_ENTRY = Path(__file__).with_name("child_entry.py")
_NO_SANDBOX, TOO_MANY_PROCESSES = 97, 96
"""Exit codes of `child_entry`."""
WITHOUT_SANDBOX = "EDISON_ALLOW_CODE_WITHOUT_SANDBOX"
"""Variable that allows code without a sandbox, like `--allow-code-without-sandbox`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a child and everything that it starts may use."""

    memory_bytes: int
    files_bytes: int
    """Of all files that it has written."""
    file_bytes: int
    """Of one file."""
    processes: int
    """Threads count."""
    cpu_s: int | None = None
    """Processor time of each process."""

    @property
    def too_many_processes(self) -> str:
        """The fault of a child with more processes than that."""
        return f"it started more than {self.processes} processes"

    def excess(self, usage: Usage) -> str:
        """Return what a child uses too much of; empty if nothing."""
        if usage.memory_bytes > self.memory_bytes:
            return f"it used more than {self.memory_bytes >> 20:,} MB"
        if usage.processes > self.processes + _ENTRY_PROCESSES:
            return self.too_many_processes
        if usage.files_bytes > self.files_bytes:
            return f"it wrote more than {self.files_bytes >> 20:,} MB to files"
        return ""


CHECK_LIMITS = Limits(256 << 20, 256 << 20, 16 << 20, 64, cpu_s=5)
PROGRAM_LIMITS = Limits(2 << 30, 1 << 30, 1 << 30, 256)
"""A call of a program has its time by `limits.timeout_s`."""
_ENTRY_PROCESSES = 2
"""Processes of `child_entry` outside of the code."""


class Usage(NamedTuple):
    """What the processes of a child use."""

    memory_bytes: int
    processes: int
    """Threads count."""
    files_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Terms:
    """What `child_entry` lets code do."""

    sandbox: Sandbox
    limits: Limits
    visible: Sequence[str] = ()
    """Paths that are there; nothing else is."""
    writable: Sequence[str] = ()
    """Folders among these, besides HOME, that may be written to."""


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


def entry_command(terms: Terms, *arguments: str) -> list[str]:
    """Return the command of a child of this process that runs code; see `child_entry`."""
    written_terms = json.dumps(dataclasses.asdict(terms))
    return [sys.executable, "-I", str(_ENTRY), str(os.getpid()), written_terms, *arguments]


def _run(arguments: list[str], root: Path, request: str, name: str) -> Json:
    name = single_line(name[:100])
    hide_environment()
    if fault := sandbox_fault():
        raise EvaluationError(f"{name} was not run: {fault}")
    terms = Terms(sandbox(), CHECK_LIMITS, paths_for_check(root, arguments[1]))
    with tempfile.TemporaryDirectory(prefix="edison-check-", ignore_cleanup_errors=True) as home:
        try:
            child = _Child(terms, arguments, root, home)
        except OSError as error:
            raise EvaluationError(f"{name} cannot be started: {error.strerror}") from None
        try:
            output = child.communicate(request.encode())
        except EvaluationError as error:
            raise EvaluationError(f"{name} was stopped: {error}") from None
        finally:
            child.end()
    if output.code == _NO_SANDBOX and terms.sandbox != "none":
        raise EvaluationError(f"{name} was not run: {NO_SANDBOX}")
    if output.code == TOO_MANY_PROCESSES and terms.sandbox == "namespaces":
        raise EvaluationError(f"{name} was stopped: {CHECK_LIMITS.too_many_processes}")
    if output.code != 0:
        lines = output.err.decode("utf-8", "replace").strip().splitlines()
        last = quote(lines[-1], 150) if lines else "no error output"
        raise EvaluationError(f"{name} ended with {_ending(output.code)}: {last}")
    try:
        result: Json = json.loads(output.out, parse_constant=_refuse)
    except (ValueError, RecursionError):
        excerpt = quote(output.out[:200].decode("utf-8", "replace"))
        raise EvaluationError(f"{name} wrote {excerpt}, which is not JSON") from None
    return result


def _sandbox_is_optional() -> bool:
    return os.environ.get(WITHOUT_SANDBOX, "").lower() in ("1", "true", "yes")


def sandbox() -> Sandbox:
    """Return how the kernel can run code without network, keys and write access."""
    kinds: tuple[Sandbox, ...] = ("namespaces", "landlock")
    return next((kind for kind in kinds if enters(kind)), "none")


@cache
def enters(kind: Sandbox) -> bool:
    """Whether the kernel allows this kind of sandbox."""
    with tempfile.TemporaryDirectory(prefix="edison-check-") as home:
        terms = Terms(kind, CHECK_LIMITS, paths_for_program((), (), Path(home)))
        try:
            done = subprocess.run(
                entry_command(terms, "probe"),
                cwd=home,
                env=child_environment(home),
                capture_output=True,
                timeout=_PROBE_S,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
    return done.returncode == 0


def has_sandbox() -> bool:
    """Whether the kernel can run code without network, keys and write access."""
    return sandbox() != "none"


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


def process_stats() -> list[list[int]]:
    """Return id, parent, session, threads and resident pages of all processes, from /proc."""
    stats = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = entry.read_bytes().rpartition(b")")[2].split()
            places = (_PARENT, _SESSION, _THREADS, _RESIDENT)
            stats.append([int(entry.parent.name), *(int(fields[index]) for index in places)])
    return stats


def usage_of(process: int, stats: Iterable[Sequence[int]]) -> Usage:
    """Return what a process uses, with everything it started and the rest of its session."""
    members, pages, threads = {process}, 0, 0
    rest = list(stats)
    while own := [row for row in rest if row[0] in members or {row[1], row[2]} & members]:
        members.update(row[0] for row in own)
        pages += sum(row[4] for row in own)
        threads += sum(row[3] for row in own)
        rest = [row for row in rest if row[0] not in members]
    return Usage(pages * os.sysconf("SC_PAGE_SIZE"), threads)


def kill_child(process: int, sandbox: Sandbox = "none") -> None:
    """Kill a child and its session; under Landlock `child_entry` ends all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sandbox == "landlock":
            os.kill(process, signal.SIGTERM)
        else:
            os.killpg(process, signal.SIGKILL)


def files_size(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # it is gone
                total += Path(where, name).lstat().st_size
    return total


def _too_slow() -> EvaluationError:
    return EvaluationError(f"it took longer than {LIMIT_S:g} s")


class _Child:
    """A running child and its output so far."""

    def __init__(self, terms: Terms, arguments: list[str], root: Path, home: str) -> None:
        self._sandbox, self._home = terms.sandbox, Path(home)
        self._checked_at = time.monotonic()
        self._ends_at = self._checked_at + LIMIT_S
        self._process = subprocess.Popen(
            entry_command(terms, *arguments),
            cwd=root,
            env=child_environment(home),
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
                self._check_usage()
                if not ready and ended:
                    break  # a process that it started keeps the pipes open
                for key, _ in ready:
                    rest = self._step(key, rest, pipes)
        try:
            code = process.wait(self._left())
        except subprocess.TimeoutExpired:
            raise _too_slow() from None
        return _ChildOutput(code, bytes(self._out), bytes(self._err))

    def _check_usage(self) -> None:
        """Raise EvaluationError if the child uses too much."""
        now = time.monotonic()
        if now < self._checked_at + _GLANCE_S:
            return
        self._checked_at = now
        usage = usage_of(self._process.pid, process_stats())
        if excess := CHECK_LIMITS.excess(usage._replace(files_bytes=files_size(self._home))):
            raise EvaluationError(excess)

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
        """Kill the child and everything that it started."""
        kill_child(self._process.pid, self._sandbox)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            kill_child(self._process.pid)
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


# What a sandbox shows of this machine: a program sees the system with its libraries, the
# installation of its interpreter, and the folders that it is given. A code check sees all but
# homes, folders of sessions, where other programs listen and keep secrets, and the internal files
# of Git.
_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/localtime"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/mime.types"),
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_SESSIONS = ("/dev", "/proc", "/run", "/sys", "/tmp", "/var")
"""Folders with data and sockets of running programs."""
_MOST_LINKS = 40


def paths_for_program(programs: Sequence[str], folders: Sequence[Path], root: Path) -> list[str]:
    """Return what a program sees besides its own folder: the system, interpreters, and `folders`.

    `root` is the project: nothing of it is among them, unless `folders` names it.
    """
    root = root.resolve()
    hidden = {*_homes(), root}
    system = [path for name in _SYSTEM for path in _without(Path(name), hidden)]
    named = [
        path
        for folder in map(Path.resolve, folders)
        for path in _without(folder, {folder / ".git", root / ".git"})
    ]
    # Files of the project that are not the program's could change it unnoticed.
    located = [find_program(word) or "" for word in programs]
    foreign = [
        path
        for word, path in zip(programs, located, strict=True)
        if not ("/" in word and Path(path).resolve().is_relative_to(root))
    ]
    return _outermost([*system, *_devices(), *_installations(foreign, hidden), *named])


def paths_for_check(root: Path, program: str) -> list[str]:
    """Return what a code check sees: the project without Git, and this machine without homes."""
    root = root.resolve()
    machine = _machine(find_program(program) or "", search_path(), root / ".git")
    return _outermost([*machine, *_without(root, {root / ".git"})])


@cache  # each evaluation of a check asks for it
def _machine(program: str, search: str, internal: Path) -> tuple[Path, ...]:
    hidden = {*_homes(), *map(Path, _SESSIONS), internal}
    installations = _installations((sys.executable, program), hidden)
    return (
        *_without(Path("/"), hidden),
        *_devices(),
        *installations,
        *(path for entry in search.split(os.pathsep) for path in _tools(Path(entry), hidden)),
    )


def _tools(folder: Path, hidden: set[Path]) -> Iterator[Path]:
    """Yield a folder of the search path, or what is installed there with its interpreter."""
    folder = folder.resolve()
    installed = _installation(folder / "tool", hidden)
    if installed.parent != folder:
        yield installed
    elif not any(place.is_relative_to(folder) for place in hidden):
        yield folder


def _homes() -> set[Path]:
    """Return the folders of users: of this one, and those that have others in them."""
    home = pwd.getpwuid(os.getuid()).pw_dir
    return {path.resolve() for path in (Path.home(), Path(home), Path("/home"), Path("/root"))}


def _devices() -> list[Path]:
    return [Path(name) for name in _DEVICES]


def _without(path: Path, hidden: set[Path]) -> Iterator[Path]:
    """Yield a path, or what is in it and not hidden."""
    if path in hidden or not os.path.lexists(path):
        return
    inner = [place for place in hidden if place.is_relative_to(path)]
    if path.is_symlink() or not any(map(os.path.lexists, inner)):
        yield path
        return
    for child in sorted(path.iterdir()):
        yield from _without(child, hidden)


def _installations(programs: Iterable[str], hidden: set[Path]) -> Iterator[Path]:
    """Yield the installations of programs, and those that links lead to, as in environments."""
    for program in programs:
        path = Path(program)
        for _ in range(_MOST_LINKS if path.is_absolute() else 0):
            path = path.parent.resolve() / path.name
            yield _installation(path, hidden)
            if not path.is_symlink():
                break
            path = path.parent / path.readlink()


def _installation(path: Path, hidden: set[Path]) -> Path:
    """Return the folder of an interpreter; of other programs, which may have secrets, the file."""
    prefix, kind = path.parent.parent, path.parent.name
    own = any((prefix / name).exists() for name in ("pyvenv.cfg", "include"))
    interpreter = kind == "shims" or (kind == "bin" and own)  # pyenv and the like have shims
    shared = prefix.name == ".local" or any(place.is_relative_to(prefix) for place in hidden)
    return prefix if interpreter and not shared else path


def _outermost(paths: Iterable[Path]) -> list[str]:
    """Return the paths that are in no other one, each once."""
    distinct = dict.fromkeys(paths)
    folders = {path for path in distinct if not path.is_symlink()}
    return [str(path) for path in distinct if not folders.intersection(path.parents)]
