"""Inspection of a project: every file and every case read, and everything that is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.data_check import DataCheck, unclaimed_data
from edison_ci.config.load import inspect_project
from edison_ci.config.needs import missing_in
from edison_ci.documents.files import WorkingTree
from edison_ci.errors import sorted_problems

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.config.load import Project
    from edison_ci.errors import Problem


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was found in one project."""

    root: Path
    project: Project | None
    """None if it cannot be read at all."""
    cases: int
    problems: list[Problem]


def inspect(root: Path) -> Inspection:
    """Read every file of a project, and every case."""
    project, problems = inspect_project(WorkingTree(root), root=root)
    cases = 0
    if project is not None:
        for experiment in project.experiments.values():
            check = DataCheck(project, experiment).run()
            problems += check.problems
            cases += check.cases
        problems += unclaimed_data(project)
        problems += missing_in(project)
    return Inspection(root, project, cases, list(sorted_problems(problems)))
