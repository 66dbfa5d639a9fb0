"""What do the files of the project say, where they are beside the results?

Prompts and cases are in Git and not in the results. Pages work without them, and show more with
them.
"""

from __future__ import annotations

import datetime as dt
import threading
from typing import TYPE_CHECKING

from edison_ci.config.load import inspect_project
from edison_ci.documents.files import WorkingTree
from edison_ci.errors import EdisonError

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.config.load import Project
    from edison_ci.report.datasette_plugin.looking import Look

_FRESH = dt.timedelta(seconds=10)
"""Reading a project takes longer than a page may, so it is kept for a moment."""
MOST_BYTES = 20_000_000
"""Larger datasets are not searched for a case while somebody waits for a page."""

_kept: dict[Path, tuple[dt.datetime, Project | None]] = {}
_guard = threading.Lock()


def project_of(look: Look) -> Project | None:
    """Return the project as far as it can be read; None if it is not here or not readable."""
    if look.root is None:
        return None
    with _guard:
        when, project = _kept.get(look.root, (None, None))
        if when is None or not when <= look.now < when + _FRESH:
            project = _read(look.root)
            _kept[look.root] = (look.now, project)
        return project


def _read(root: Path) -> Project | None:
    try:
        return inspect_project(WorkingTree(root), root=root)[0]
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
