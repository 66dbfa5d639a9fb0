"""What the files of the project say, where they are beside the results.

Prompts and cases are in Git and not in the results. Pages work without them, and show more with
them.
"""

from __future__ import annotations

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
    from edison_ci.web.page_context import Look

_MOST_REFS = 500
MOST_BYTES = 20_000_000
"""Larger datasets are not searched for a case while somebody waits for a page."""


class _Noted(WorkingTree):
    """The files of a project, with a note of those that were looked at."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.seen: set[str] = set()

    def open(self, path: str, *, max_bytes: int | None = None) -> BinaryIO:
        self.seen.add(path)
        return super().open(path, max_bytes=max_bytes)

    def names(self, folder: str) -> list[str]:
        self.seen.add(folder)
        return super().names(folder)

    def exists(self, path: str) -> bool:
        self.seen.add(path)
        return super().exists(path)


class _Kept(NamedTuple):
    """A project, and what its files were like when it was read."""

    project: Project | None
    day: dt.date
    """Cases are set aside until a day."""
    files: dict[str, tuple[int, int] | None]


_kept: dict[Path, _Kept] = {}
_guard = threading.Lock()


def project_of(look: Look) -> Project | None:
    """Return the project as far as it can be read; None if it is not here or not readable."""
    return None if look.root is None else project_in(look.root, look.now.date())


def project_in(root: Path, day: dt.date) -> Project | None:
    """Return the project in a folder, read again only once one of its files has changed."""
    with _guard:
        kept = _kept.get(root)
        if kept is None or kept.day != day or kept.files != _files(root, kept.files):
            tree = _Noted(root)
            project = _read(tree, root)
            # What changes while it is read is noticed when it is asked for again.
            kept = _kept[root] = _Kept(project, day, _files(root, tree.seen))
        return kept.project


def _files(root: Path, names: Iterable[str]) -> dict[str, tuple[int, int] | None]:
    """Return when files and folders were changed, and their sizes; None for what is not there."""
    found: dict[str, tuple[int, int] | None] = {}
    for name in names:
        try:
            status = (root / name).stat()
        except (OSError, ValueError):
            found[name] = None
        else:
            found[name] = (status.st_mtime_ns, status.st_size)
    return found


def _read(tree: WorkingTree, root: Path) -> Project | None:
    try:
        return inspect_project(tree, root=root)[0]
    except (EdisonError, OSError):
        return None


def searchable(project: Project | None, experiment: str) -> bool:
    """Whether the cases of an experiment can be gone through for a page."""
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
    """Return what changes whenever a branch or what is checked out does; None if it is not known.

    Git itself would take longer to say so than a page may take.
    """
    top = next((up for up in (root, *root.parents) if (up / ".git").exists()), None)
    folder = None if top is None else top / ".git"
    if folder is None or not folder.is_dir() or (folder / "reftable").exists():
        return None  # no repository, one of several working trees, or refs kept in another way
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
