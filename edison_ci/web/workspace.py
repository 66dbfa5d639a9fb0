"""The project files beside the results: prompts and cases for the pages.

Prompts and cases are in Git, not in the results. Pages work without them and show more with them.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from edison_ci.config.load import inspect_project
from edison_ci.documents.files import WorkingTree
from edison_ci.errors import EdisonError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable
    from pathlib import Path

    from edison_ci.config.load import Project
    from edison_ci.web.page_context import PageContext

_MOST_REFS = 500
MOST_BYTES = 20_000_000
"""Larger datasets are not searched for a case for a page."""


class _RecordingTree(WorkingTree):
    """A working tree that records the paths that were read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.paths: set[str] = set()

    def open(self, path: str, *, max_bytes: int | None = None) -> BinaryIO:
        self.paths.add(path)
        return super().open(path, max_bytes=max_bytes)

    def names(self, folder: str) -> list[str]:
        self.paths.add(folder)
        return super().names(folder)

    def exists(self, path: str) -> bool:
        self.paths.add(path)
        return super().exists(path)


class _CachedProject(NamedTuple):
    """A loaded project with the state of its files."""

    project: Project | None
    day: dt.date
    """Quarantines end on a day, so the project depends on it."""
    files: dict[str, tuple[int, int] | None]


_projects: dict[Path, _CachedProject] = {}
_guard = threading.Lock()


def project_of(context: PageContext) -> Project | None:
    """Return the project of a page; None if it is not accessible or invalid."""
    return None if context.root is None else project_in(context.root, context.now.date())


def project_in(root: Path, day: dt.date) -> Project | None:
    """Return the project in a folder, reloaded only after one of its files has changed."""
    with _guard:
        cached = _projects.get(root)
        if cached is None or cached.day != day or cached.files != _files(root, cached.files):
            tree = _RecordingTree(root)
            project = _load(tree, root)
            # A change during loading is noticed at the next request.
            cached = _projects[root] = _CachedProject(project, day, _files(root, tree.paths))
        return cached.project


def _files(root: Path, names: Iterable[str]) -> dict[str, tuple[int, int] | None]:
    """Return mtime and size of files and folders; None for missing ones."""
    states: dict[str, tuple[int, int] | None] = {}
    for name in names:
        try:
            # For every file at every visit; with pathlib it takes three times as long.
            status = os.stat(f"{root}/{name}")  # noqa: PTH116
        except (OSError, ValueError):
            states[name] = None
        else:
            states[name] = (status.st_mtime_ns, status.st_size)
    return states


def _load(tree: WorkingTree, root: Path) -> Project | None:
    try:
        return inspect_project(tree, root=root)[0]
    except (EdisonError, OSError):
        return None


def searchable(project: Project | None, experiment: str) -> bool:
    """Whether the cases of an experiment are small enough to be searched for a page."""
    if project is None or experiment not in project.experiments:
        return False
    total = 0
    for entry in project.experiments[experiment].file.data:
        try:
            total += (project.root / entry.path).stat().st_size
        except OSError:
            return False
    return total <= MOST_BYTES


def git_state(root: Path) -> tuple[tuple[str, int], ...] | None:
    """Return a value that changes with every branch and checkout; None if it is unknown.

    Reading mtimes is faster than running Git for every page.
    """
    top = next((up for up in (root, *root.parents) if (up / ".git").exists()), None)
    folder = None if top is None else top / ".git"
    if folder is None or not folder.is_dir() or (folder / "reftable").exists():
        return None  # no repository, a linked worktree, or another format of refs
    files = [folder / name for name in ("HEAD", "config", "packed-refs", "shallow")]
    for kind in ("heads", "remotes"):
        files += sorted((folder / "refs" / kind).rglob("*"))[: _MOST_REFS + 1]
    if len(files) > _MOST_REFS:
        return None
    return tuple((str(file), _changed_at(file)) for file in files)


def _changed_at(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
