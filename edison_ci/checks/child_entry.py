"""Entry point of the child process of a code check or a program: the sandbox, then the code.

This file runs on its own (`python -I child_entry.py ...`), so it imports nothing of the package. It
drops what the code does not need: the network, other processes, all files but those that are named,
write access to all folders but its HOME, and memory, processor time, files and core dumps above a
limit. Then it becomes the program, or calls the function and writes its result. If the kernel does
not allow the sandbox, it runs nothing, unless the sandbox is optional. It ends with its parent,
also if that is killed.

    child_entry.py PARENT TERMS command PROGRAM ARGUMENT...
    child_entry.py PARENT TERMS python FILE FUNCTION
    child_entry.py PARENT TERMS probe

TERMS is the JSON text of `child.Terms`.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

_DIE_WITH_PARENT = 1
_NO_NEW_PRIVILEGES, _CAPABILITIES = 38, 0x20080522
_NAMESPACES = 0x10000000 | 0x40000000 | 0x20000000 | 0x00020000 | 0x08000000
"""Namespaces of users, network, processes, mounts and IPC."""
_PRIVATE, _BIND, _PLAIN = 0x4000 | 1 << 18, 0x1000 | 0x4000, 2 | 4
_DETACH = 2
_MOUNT_SETATTR, _RECURSIVE, _READ_ONLY, _HERE = 442, 0x8000, 1, -100
_BYTES_OF_INODE = 4096
"""Written bytes for each of which there may be a file: empty ones use memory of the kernel."""
_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
"""Links in /dev."""
NO_SANDBOX = 97
"""Exit code: the kernel does not allow a sandbox, so nothing was run."""


def isolate(parent: int, terms: dict[str, Any]) -> bool:
    """Enter the sandbox; return whether that worked.

    When the first process of a namespace ends, the kernel kills all others in it, also those that
    left the session.
    """
    import ctypes

    system = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if not hasattr(system, "pivot_root") or system.unshare(_NAMESPACES) != 0:
        return False
    with contextlib.suppress(OSError):
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
    _die_with(parent)  # again: the kernel forgot it with the powers outside
    # The first process of a namespace ignores most signals, so the code must be the second.
    _continue_in_child(system)
    with contextlib.suppress(OSError):
        if _show_only(system, terms):
            _continue_in_child(system)
            return _without_powers(system)
    return False


def _continue_in_child(system: Any) -> None:
    child = os.fork()
    if child != 0:
        _wait(child)
    system.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)


def _show_only(system: Any, terms: dict[str, Any]) -> bool:
    """Make a root that has the named paths only, read-only at their own places.

    HOME is empty and in memory, so that the kernel limits what is written. Needs Linux 5.12.
    """
    import ctypes

    def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> bool:
        names = [None if name is None else name.encode() for name in (source, target, kind)]
        return bool(system.mount(*names, flags, options.encode()) == 0)

    def attribute(path: str, flags: int, on: int, off: int) -> bool:
        wanted = (ctypes.c_uint64 * 4)(on, off, 0, 0)
        size = ctypes.sizeof(wanted)
        status = system.syscall(_MOUNT_SETATTR, _HERE, path.encode(), flags, wanted, size)
        return bool(status == 0)

    folder, home = str(Path.cwd()), os.environ["HOME"]
    writable = [*terms["writable"], home]
    if not (
        mount("none", "/", None, _PRIVATE) and mount("tmpfs", home, "tmpfs", _PLAIN, "mode=755")
    ):
        return False
    for path in terms["visible"]:
        if not _make_place(path, home + path):
            mount(path, home + path, None, _BIND)  # what cannot be shown is not there
    for place in ("/proc", home, folder):
        Path(home + place).mkdir(parents=True, exist_ok=True)
    for name, target in {**_LINKS, "shm": home}.items():
        with contextlib.suppress(FileExistsError):  # the project may be in shared memory
            Path(f"{home}/dev/{name}").symlink_to(target)
    mount("proc", f"{home}/proc", "proc", _PLAIN | 8)  # without it, /proc is empty
    most = terms["limits"]["files_bytes"]
    options = f"mode=700,size={most},nr_inodes={max(most // _BYTES_OF_INODE, 16)}"
    if not mount("tmpfs", home + home, "tmpfs", _PLAIN, options):
        return False
    os.chdir(home)
    entered = (
        system.pivot_root(b".", b".") == 0
        and system.umount2(b".", _DETACH) == 0
        and attribute("/", _RECURSIVE, _READ_ONLY, 0)
        and all(attribute(path, 0, 0, _READ_ONLY) for path in writable)
    )
    os.chdir(folder)
    return entered


def _make_place(path: str, place: str) -> bool:
    """Make a file or folder to mount a path on; return whether the path is a link, copied."""
    Path(place).parent.mkdir(parents=True, exist_ok=True)
    if Path(path).is_symlink():
        Path(place).symlink_to(Path(path).readlink())
        return True
    if Path(path).is_dir():
        Path(place).mkdir(exist_ok=True)
    else:
        Path(place).touch()
    return False


def _die_with(parent: int) -> None:
    import ctypes

    system = ctypes.CDLL(None)
    if hasattr(system, "prctl"):
        system.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before
        os._exit(1)


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


def limit(limits: dict[str, Any], memory: int, *, isolated: bool) -> None:
    """Set the resource limits of the code; `memory` is the kind of limit that holds it.

    Programs such as Node.js reserve far more memory than they use, so that their data has four
    times the limit; the parent checks what they use. Processes are limited only in a namespace:
    elsewhere all processes of the user would count.
    """
    share = 1 if memory == resource.RLIMIT_AS else 4
    for kind, most in (
        (memory, share * limits["memory_bytes"]),
        (resource.RLIMIT_FSIZE, limits["file_bytes"]),
        (resource.RLIMIT_CORE, 0),
        *([(resource.RLIMIT_CPU, limits["cpu_s"])] if limits["cpu_s"] else []),
        *([(resource.RLIMIT_NPROC, limits["processes"])] if isolated else []),
    ):
        with contextlib.suppress(ValueError, OSError):  # the limit is lower already
            resource.setrlimit(kind, (most, most))


def call(file: str, function: str) -> None:
    """Call the function with the request on standard input and write its result."""
    import importlib.util

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
    parent, text, action, *words = arguments
    terms = json.loads(text)
    isolated = False
    _die_with(int(parent))
    if terms["sandbox"] != "none":
        with contextlib.suppress(OSError, ImportError):
            isolated = isolate(int(parent), terms)
        if action == "probe" or (terms["sandbox"] == "required" and not isolated):
            sys.exit(0 if isolated else NO_SANDBOX)
    if action == "command":
        limit(terms["limits"], resource.RLIMIT_DATA, isolated=isolated)
        os.execvp(words[0], words)
    limit(terms["limits"], resource.RLIMIT_AS, isolated=isolated)
    call(*words)


if __name__ == "__main__":
    main(sys.argv[1:])
