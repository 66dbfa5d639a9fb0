"""A small project, broken on purpose, and what is said about it."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from edison_ci.config.load import inspect_project
from edison_ci.documents.files import WorkingTree
from edison_ci.errors import sorted_problems

if TYPE_CHECKING:
    from tests.conftest import Folder

TODAY = dt.date(2026, 6, 1)
EXPERIMENT = "experiments/hello.yaml"


def said(folder: Folder, today: dt.date = TODAY) -> list[str]:
    """Return everything wrong with a project, as a user reads it."""
    _, problems = inspect_project(WorkingTree(folder.path), root=folder.path, today=today)
    return [str(problem) for problem in sorted_problems(problems)]


def add(folder: Folder, name: str, text: str) -> None:
    """Add lines to a file."""
    folder.write(name, folder.read(name) + text)
