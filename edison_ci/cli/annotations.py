"""How does GitHub show a problem at its line?"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from edison_ci.errors import Problem, Severity
from edison_ci.report.workflow import command

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_MAX = 9
"""GitHub shows ten of a level in a step; the tenth says how many more there are."""


def workflow_commands(problems: Sequence[Problem], root: Path | None) -> Iterator[str]:
    """Yield problems as workflow commands, errors first; `root` is the project they are in."""
    ranked = sorted(problems, key=lambda p: (p.severity is Severity.WARNING, p.where.order))
    folder = folder_in_checkout(root)
    for problem in ranked[:_MAX]:
        yield annotation(problem, folder)
    if len(ranked) > _MAX:
        yield f"::{ranked[_MAX].severity}::{len(ranked) - _MAX} more problems, see the log"


def annotation(problem: Problem, folder: str = "") -> str:
    """Return a problem as a workflow command; its file is in `folder` of the checkout."""
    where = problem.where
    properties = {
        "file": folder + where.file if where.file else None,
        "line": where.line,
        "col": where.column,
        "title": f"edison: {problem.code}",
    }
    text = f"{problem.message} ({problem.hint})" if problem.hint else problem.message
    return command(str(problem.severity), text, properties)


def folder_in_checkout(root: Path | None) -> str:
    """Return where the project is in the checkout, as paths of annotations start there."""
    workspace = os.environ.get("GITHUB_WORKSPACE")
    if root is None or not workspace:
        return ""
    folder = os.path.relpath(root.resolve(), os.path.realpath(workspace))
    return "" if folder == "." or folder.startswith("..") else f"{folder}/"
