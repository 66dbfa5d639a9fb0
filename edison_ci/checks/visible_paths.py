"""The files of this machine that a sandbox shows to code: the system, interpreters, and no home.

A program sees the system with its libraries, the installation of its interpreter, and the folders
that it is given. A code check sees all but homes, folders of sessions, where other programs listen
and keep secrets, and the internal files of Git.
"""

from __future__ import annotations

import os
import pwd
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci.extras import find_program, search_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

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
