"""Experiments that a change touches.

An experiment is affected when something that its plan hash is made of is no longer the same: read
at the base and now, its own files, what it takes from shared files (models, prices, defaults,
settings, quarantined cases), and the bytes of its data. The answer may name an experiment too many,
never one too few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.load import inspect_project
from edison_ci.errors import UsageError
from edison_ci.git.command import run_git
from edison_ci.git.commit_tree import CommitTree
from edison_ci.git.repository import Repository
from edison_ci.plan.fingerprint import describe, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.config.load import Experiment, Project


@dataclass(frozen=True, slots=True)
class Impact:
    """What changed since a commit."""

    ref: str
    commit: str
    affected: dict[str, tuple[str, ...]]
    """Experiments and why: the files that changed, or what differs."""
    unaffected: tuple[str, ...]


def impact_since(project: Project, ref: str, *, offline: bool = False) -> Impact:
    """Return which experiments differ between the base of `ref` and the working tree.

    In a shallow clone the base may have to be fetched, which `offline` refuses.
    """
    repository = Repository.find(project.root)
    if repository is None:
        raise UsageError(
            "this project is not in a Git repository", hint="run git init, then commit"
        )
    if offline and repository.is_shallow() and not _is_here(repository, ref):
        raise UsageError(
            f"this shallow clone does not reach back to {ref!r}, and --offline forbids to fetch it",
            hint="run without --offline, or fetch it first: git fetch --unshallow",
        )
    commit = repository.base_for(ref)
    folder = project.root.resolve().relative_to(repository.root).as_posix()
    prefix = "" if folder == "." else f"{folder}/"
    base, _ = inspect_project(CommitTree(repository, commit, prefix))
    changed = repository.changed_paths(commit)
    affected: dict[str, tuple[str, ...]] = {}
    for experiment in project.experiments.values():
        reasons = [*_differences(project, experiment, base)]
        reasons += _changed_data(experiment, prefix, changed)
        if reasons:
            affected[experiment.id] = tuple(dict.fromkeys(reasons))
    unaffected = tuple(name for name in project.experiments if name not in affected)
    return Impact(ref, commit, affected, unaffected)


def _is_here(repository: Repository, ref: str) -> bool:
    """Whether what HEAD and `ref` share can be told without asking the remote."""
    words = ("merge-base", "HEAD", "--end-of-options", ref)
    return not ref.startswith("-") and run_git(*words, cwd=repository.root).code == 0


def _differences(project: Project, experiment: Experiment, base: Project | None) -> Iterator[str]:
    if base is None:
        yield "the project cannot be read at the base"
        return
    before = base.experiments.get(experiment.id)
    if before is None:
        there = base.tree.exists(experiment.path)
        yield "it is not valid at the base" if there else "it is new"
        return
    old, new = describe(base, before), describe(project, experiment)
    yield from (place for place in sorted({*old, *new}) if old.get(place) != new.get(place))
    if _selection(before) != _selection(experiment):
        yield "which cases it takes"


def _selection(experiment: Experiment) -> list[object]:
    """Return what, beside the bytes of the data, decides which cases there are."""
    return [plain(experiment.file.data), experiment.types()]


def _changed_data(experiment: Experiment, prefix: str, changed: frozenset[str]) -> Iterator[str]:
    """Yield the data files whose bytes changed.

    Data behind a link cannot be read in a commit, so there the experiment is not valid at the base.
    """
    for entry in experiment.file.data:
        if f"{prefix}{entry.path}" in changed:
            yield entry.path
