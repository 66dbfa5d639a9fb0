"""What the base of a change gates and no experiment of the head measures.

An experiment may be deleted, archived, moved to where nobody looks, or left behind in a project
that is no longer the one found here. Nothing is run for it, so no run can tell: the report does,
first, and its verdict is inconclusive at best.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.cli.terminal import ODD, Ink
from edison_ci.errors import ExitCode, UsageError
from edison_ci.forge.changed import base_of
from edison_ci.forge.events import read_event
from edison_ci.git.repository import Repository
from edison_ci.operate.proposal_terms import is_proposed
from edison_ci.plan.baseline import dropped_experiments, project_at

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.cli.terminal import Terminal
    from edison_ci.config.load import Project

_PROJECT = "edison.yaml"
_UNKNOWN = (
    "The base of the change is not known here, so neither is what is no longer measured; "
    "check out with fetch-depth: 2."
)


@dataclass(frozen=True, slots=True)
class Coverage:
    """What is no longer measured, over all experiments."""

    dropped: tuple[str, ...] = ()
    """Sentences; none if everything that the base gates is measured."""
    insists: bool = False
    """Whether a gate of what was dropped says `if_unclear: fail`."""

    @property
    def exit_code(self) -> ExitCode:
        """How a command ends whose runs have nothing worse to say."""
        return ExitCode.UNCLEAR if self.dropped and self.insists else ExitCode.DONE

    def tell(self, terminal: Terminal) -> None:
        """Say what is no longer measured, before anything is run."""
        for sentence in self.dropped:
            terminal.note(Ink("in doubt: ", ODD), sentence)


def coverage_since(project: Project, folder: Path, ref: str | None) -> Coverage:
    """Return what the base of `ref` gates and the project does not; `folder` is where it was asked.

    What experiments that are still run no longer measure is told with their runs.
    """
    repository = Repository.find(project.root) if ref is not None else None
    if repository is None or ref is None:
        return Coverage()
    return _coverage(project, folder, repository, repository.base_for(ref))


def coverage_of_job(project: Project, folder: Path) -> Coverage:
    """Return the same for the change that a job works on; nothing elsewhere."""
    repository = Repository.find(project.root)
    if repository is None or not is_proposed(project.root):
        return Coverage()
    try:
        commit = base_of(read_event(os.environ), repository).commit
    except UsageError:
        return Coverage((_UNKNOWN,))
    return Coverage() if commit is None else _coverage(project, folder, repository, commit)


def _coverage(project: Project, folder: Path, repository: Repository, commit: str) -> Coverage:
    moved = _other_root(project, folder, repository, commit)
    if moved is not None:
        place = moved.relative_to(repository.root).as_posix()
        said = f"The base has its project in {place}/, which is no longer the one that is measured."
        return Coverage((said,))
    before = project_at(repository, project, commit)
    if before is None:
        return Coverage()
    gone = dropped_experiments(before, project)
    told = tuple(f"The base gates {old.id}, which is {_why(project, old.id)}." for old in gone)
    insists = any(gate.if_unclear == "fail" for old in gone for gate in old.file.gates)
    return Coverage(told, insists)


def _why(project: Project, name: str) -> str:
    return "archived now" if name in project.experiments else "no longer there"


def _other_root(project: Project, folder: Path, repository: Repository, commit: str) -> Path | None:
    """Return where the base has the project that a folder belongs to, if that is elsewhere."""
    start, top = folder.resolve(), repository.root.resolve()
    here = repository.modes(commit)
    for place in (start, *start.parents):
        if not place.is_relative_to(top):
            return None
        path = (place / _PROJECT).relative_to(top).as_posix()
        if path in here:
            return None if place == project.root.resolve() else place
    return None
