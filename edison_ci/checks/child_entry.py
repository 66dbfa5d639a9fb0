"""Entry point of the child process of a code check or a program: the sandbox, then the code.

This file runs on its own (`python -I child_entry.py ...`), so it imports nothing of the package. It
drops what the code does not need: the network, other processes, write access to all folders but its
HOME, and memory, processor time, files and core dumps above a limit. Then it becomes the program,
or calls the function and writes its result. If the kernel does not allow the first three, it runs
nothing, unless it is told `open`. It ends with its parent, also if that is killed.

    child_entry.py PARENT sandbox|open command PROGRAM ARGUMENT...
    child_entry.py PARENT sandbox program PROGRAM ARGUMENT...     (a model: without a time limit)
    child_entry.py PARENT sandbox|open python FILE FUNCTION
    child_entry.py PARENT sandbox probe
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

_ADDRESSES = 256 << 20
_DATA = 1 << 30
_CPU_S = 5
_FILE = 16 << 20
_PROCESSES = 64
_DIE_WITH_PARENT = 1
_NO_NEW_PRIVILEGES, _CAPABILITIES = 38, 0x20080522
_NAMESPACES = 0x10000000 | 0x40000000 | 0x20000000 | 0x00020000
"""Namespaces of users, network, processes and mounts."""
_PRIVATE, _BIND = 0x4000 | 1 << 18, 0x1000
_MOUNT_SETATTR, _RECURSIVE, _READ_ONLY, _HERE = 442, 0x8000, 1, -100
NO_SANDBOX = 97
"""Exit code: the kernel does not allow a sandbox, so nothing was run."""


def isolate(parent: int) -> bool:
    """Drop network, other processes and write access; return whether that worked.

    When the first process of a namespace ends, the kernel kills all others in it, also those that
    left the session; and /proc in it does not show the environment of processes outside.
    """
    import ctypes

    system = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if not hasattr(system, "unshare"):
        return False
    _die_with(parent, system)
    if system.unshare(_NAMESPACES) != 0:
        return False
    with contextlib.suppress(OSError):
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    if not _read_only_but(system, os.environ["HOME"].encode()):
        return False
    _die_with(parent, system)  # again: the kernel forgot it with the powers outside
    # The first process of a namespace ignores most signals, so the code must be the second.
    for _ in range(2):
        child = os.fork()
        if child != 0:
            _wait(child)
        system.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    return _without_powers(system)


def _die_with(parent: int, system: Any) -> None:
    system.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before
        os._exit(1)


def _read_only_but(system: Any, home: bytes) -> bool:
    """Make all mounts read-only except one folder; needs Linux 5.12."""
    import ctypes

    def attribute(path: bytes, flags: int, on: int, off: int) -> bool:
        wanted = (ctypes.c_uint64 * 4)(on, off, 0, 0)
        size = ctypes.sizeof(wanted)
        return bool(system.syscall(_MOUNT_SETATTR, _HERE, path, flags, wanted, size) == 0)

    return (
        system.mount(None, b"/", None, _PRIVATE, None) == 0
        and system.mount(home, home, None, _BIND, None) == 0
        and attribute(b"/", _RECURSIVE, _READ_ONLY, 0)
        and attribute(home, 0, 0, _READ_ONLY)
    )


def _without_powers(system: Any) -> bool:
    """Drop the capabilities in the namespace, such as mounting, for good."""
    import ctypes

    header = (ctypes.c_uint32 * 2)(_CAPABILITIES, 0)
    none = (ctypes.c_uint32 * 6)()
    return bool(
        system.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 and system.capset(header, none) == 0
    )


def _wait(child: int) -> NoReturn:
    """Wait without open files, and exit with the code of the child."""
    for file in (0, 1, 2):
        os.close(file)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(code if code >= 0 else 128 - code)


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def limit(memory: tuple[int, int], *, isolated: bool) -> None:
    """Set the resource limits of the code; `memory` is a kind of limit and its value.

    Processes are limited only in a namespace: elsewhere all processes of the user would count.
    """
    for kind, most in (
        memory,
        (resource.RLIMIT_CPU, _CPU_S),
        (resource.RLIMIT_FSIZE, _FILE),
        (resource.RLIMIT_CORE, 0),
        *([(resource.RLIMIT_NPROC, _PROCESSES)] if isolated else []),
    ):
        with contextlib.suppress(ValueError, OSError):  # the limit is lower already
            resource.setrlimit(kind, (most, most))


def call(file: str, function: str) -> None:
    """Call the function with the request on standard input and write its result."""
    import importlib.util
    import json

    result = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # printed output is not the result
    request = json.load(sys.stdin)
    sys.path.append(str(Path.cwd()))  # last, so that it shadows no module of Python
    spec = importlib.util.spec_from_file_location("edison_check", file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, function)(request["output"], request["expected"], request["case"])
    json.dump(found, result, default=_number)
    result.close()


def _number(value: Any) -> float:
    """Return a number of another type, such as numpy's, as a float."""
    return float(value)


def main(arguments: list[str]) -> None:
    """Set up the sandbox and run the code that the arguments name."""
    isolated = False
    parent, wanted, *arguments = arguments
    with contextlib.suppress(OSError, ImportError):
        isolated = isolate(int(parent))
    if arguments == ["probe"] or (wanted == "sandbox" and not isolated):
        sys.exit(0 if isolated else NO_SANDBOX)
    if arguments[0] == "command":
        # Programs such as Node.js reserve far more memory than they use; `child` checks their use.
        limit((resource.RLIMIT_DATA, _DATA), isolated=isolated)
        os.execvp(arguments[1], arguments[1:])
    if arguments[0] == "program":
        os.execvp(arguments[1], arguments[1:])
    limit((resource.RLIMIT_AS, _ADDRESSES), isolated=isolated)
    call(*arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
