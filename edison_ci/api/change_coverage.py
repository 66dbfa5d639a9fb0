"""Experiments that the base of a change gates and the head no longer measures.

An experiment may be deleted, archived or moved, or belong to a project that moved. No run can
report it, so the report lists it first, and its verdict is inconclusive at best.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.access import events, proposal_terms
from edison_ci.errors import ExitCode, UsageError
from edison_ci.git import repository as git
from edison_ci.plan import baseline

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.config.load import Project

_PROJECT = "edison.yaml"
_UNKNOWN = (
    "The base of the change is unknown, so dropped experiments cannot be detected; "
    "check out with fetch-depth: 2."
)


@dataclass(frozen=True, slots=True)
class ChangeCoverage:
    """Experiments that are no longer measured."""

    dropped: tuple[str, ...] = ()
    """Sentences; empty if everything that the base gates is measured."""
    insists: bool = False
    """Whether a dropped gate has `if_unclear: fail`."""

    @property
    def exit_code(self) -> ExitCode:
        """Exit code of a command whose runs have no worse one."""
        return ExitCode.UNCLEAR if self.dropped and self.insists else ExitCode.DONE


def coverage_since(project: Project, folder: Path, ref: str | None) -> ChangeCoverage:
    """Return what the base of `ref` gates and the project does not.

    `folder` is the working folder. Gates that an experiment lost are reported with its runs.
    """
    repository = git.Repository.find(project.root) if ref is not None else None
    if repository is None or ref is None:
        return ChangeCoverage()
    return _coverage(project, folder, repository, repository.base_for(ref))


def coverage_of_job(project: Project, folder: Path) -> ChangeCoverage:
    """Return the same for the pull request of a job; empty elsewhere."""
    repository = git.Repository.find(project.root)
    if repository is None or not proposal_terms.is_proposed(project.root):
        return ChangeCoverage()
    try:
        commit = events.find_base(events.read_event(os.environ), repository).commit
    except UsageError:
        return ChangeCoverage((_UNKNOWN,))
    return ChangeCoverage() if commit is None else _coverage(project, folder, repository, commit)


def _coverage(
    project: Project, folder: Path, repository: git.Repository, commit: str
) -> ChangeCoverage:
    moved = _other_root(project, folder, repository, commit)
    if moved is not None:
        place = moved.relative_to(repository.root).as_posix()
        sentence = f"The base has its project in {place}/, which is no longer the measured one."
        return ChangeCoverage((sentence,))
    before = baseline.project_at(repository, project, commit)
    if before is None:
        return ChangeCoverage()
    gone = baseline.dropped_experiments(before, project)
    dropped = tuple(
        f"The base gates {old.id}, which is {_change_of(project, old.id)}." for old in gone
    )
    insists = any(gate.if_unclear == "fail" for old in gone for gate in old.file.gates)
    return ChangeCoverage(dropped, insists)


def _change_of(project: Project, name: str) -> str:
    return "archived now" if name in project.experiments else "no longer there"


def _other_root(
    project: Project, folder: Path, repository: git.Repository, commit: str
) -> Path | None:
    """Return the root of the project in the base, if it differs from the current one."""
    start, top = folder.resolve(), repository.root.resolve()
    paths = repository.modes(commit)
    for place in (start, *start.parents):
        if not place.is_relative_to(top):
            return None
        path = (place / _PROJECT).relative_to(top).as_posix()
        if path in paths:
            return None if place == project.root.resolve() else place
    return None
