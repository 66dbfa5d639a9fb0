"""Projects: read them, and say what is wrong with their files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci.config.inspection import inspect
from edison_ci.config.load import find_root, load_project
from edison_ci.operate.own_results import set_aside_unknown

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.errors import Problem


def load(folder: str | Path = ".") -> Project:
    """Return the project that a folder belongs to; raises ConfigError with all its problems."""
    root = find_root(Path(folder))
    set_aside_unknown(root)
    return load_project(root)


def validate(folder: str | Path = ".") -> list[Problem]:
    """Return everything that is wrong with the files of a project, warnings included."""
    return inspect(find_root(Path(folder))).problems
