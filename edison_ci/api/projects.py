"""Projects: load one, and list the problems of its files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci.access.own_results import set_aside_untrusted
from edison_ci.config.load import find_root, load_project
from edison_ci.config.validation import inspect

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.errors import Problem


def load(folder: str | Path = ".") -> Project:
    """Load the project of a folder; raises ConfigError with all problems."""
    root = find_root(Path(folder))
    set_aside_untrusted(root)
    return load_project(root)


def validate(folder: str | Path = ".") -> list[Problem]:
    """Return all problems of a project's files, including warnings."""
    return inspect(find_root(Path(folder))).problems
