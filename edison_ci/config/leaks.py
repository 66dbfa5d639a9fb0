"""Keys that look leaked: in the lines that a change adds, or without Git in every file.

With Git the working tree is compared with the base: the commit at which HEAD left the default
branch, or what a pull request is merged into. Lines that were there before are not told again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci.documents.files import WorkingTree, read
from edison_ci.documents.marks import Fault
from edison_ci.documents.secrets import leaked_in
from edison_ci.errors import Location, Problem, UsageError
from edison_ci.git.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_FILES = 2_000
_MAX_BYTES = 1_000_000
_LEFT_OUT = frozenset({".git", ".venv", "venv", "node_modules", "__pycache__", ".tools"})
_OWN = ("cache", "locks", "backups", "schemas", "loops", "drafts")
"""Folders of .edison that only edison writes."""


def leaked_keys(root: Path) -> list[Problem]:
    """Return a problem for each key that looks leaked in a project or its repository."""
    repository = Repository.find(root)
    base = None if repository is None else _base(repository)
    top = root if repository is None or base is None else repository.root
    paths = _files(root) if repository is None or base is None else _changed(repository, base)
    tree, problems = WorkingTree(top), []
    for path in sorted(paths)[:_MOST_FILES]:
        text = _text(tree, path)
        found = [] if text is None else [*leaked_in(text)]
        if text is None or not found:
            continue
        before = set[str]()
        if repository is not None and base is not None:
            before = _lines(repository, base, path)
        lines = text.split("\n")
        name = os.path.relpath(Path(tree.root, path), root.resolve()).replace(os.sep, "/")
        for fault in found:
            if lines[fault.at[0]] not in before:
                where = Location(name, fault.at[0] + 1, fault.at[1] + 1)
                problems.append(Problem(where, "leaked-key", fault.message, fault.hint))
    return problems


def _base(repository: Repository) -> str | None:
    """Return the commit to compare with; None if there is none in this clone."""
    try:
        branch = repository.default_branch()
        return None if branch is None else repository.base_for(branch, fetch=False)
    except UsageError:
        return None


def _changed(repository: Repository, base: str) -> Iterator[str]:
    for path in repository.changed_paths(base):
        if not _LEFT_OUT.intersection(path.split("/")):
            yield path


def _files(root: Path) -> Iterator[str]:
    """Yield the files of a project, without those of tools and of edison itself."""
    for folder, folders, names in os.walk(root):
        inside = Path(folder).relative_to(root)
        folders[:] = [
            name
            for name in folders
            if name not in _LEFT_OUT and not (inside.name == ".edison" and name in _OWN)
        ]
        yield from ((inside / name).as_posix() for name in names)


def _text(tree: WorkingTree, path: str) -> str | None:
    """Return the text of a file; None if it is gone, large, binary or a link that leaves."""
    try:
        data = read(tree, path, max_bytes=_MAX_BYTES)
    except Fault:
        return None
    return None if b"\0" in data[:8_000] else data.decode("utf-8", "replace")


def _lines(repository: Repository, base: str, path: str) -> set[str]:
    try:
        data = repository.read(base, path, max_bytes=_MAX_BYTES)
    except UsageError:
        return set()
    return set((data or b"").decode("utf-8", "replace").split("\n"))
