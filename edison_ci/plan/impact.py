"""Which experiments does a change touch?

An experiment is affected when a file it is made of changed, or when what it takes from a shared
file (its models, the defaults, prices, its quarantined cases) is no longer the same. The answer may
name an experiment too many, never one too few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edison_ci.config.commit_tree import CommitTree
from edison_ci.config.load import inspect_project
from edison_ci.errors import UsageError
from edison_ci.plan.fingerprint import describe
from edison_ci.repository import Repository

if TYPE_CHECKING:
    from edison_ci.config.load import Experiment, Project


@dataclass(frozen=True, slots=True)
class Impact:
    """What changed since a commit."""

    ref: str
    commit: str
    affected: dict[str, tuple[str, ...]]
    """Experiments and why: the files that changed, or what differs."""
    unaffected: tuple[str, ...]


def impact_since(project: Project, ref: str) -> Impact:
    """Return which experiments differ between the base of `ref` and the working tree."""
    repository = Repository.find(project.root)
    if repository is None:
        raise UsageError(
            "this project is not in a Git repository", hint="run git init, then commit"
        )
    commit = repository.base_for(ref)
    prefix = project.root.resolve().relative_to(repository.root).as_posix()
    prefix = "" if prefix == "." else prefix
    changed = _inside(repository.changed_paths(commit), prefix)
    base, _ = inspect_project(CommitTree(repository, commit, prefix))
    affected: dict[str, tuple[str, ...]] = {}
    unaffected: list[str] = []
    for experiment in project.experiments.values():
        reasons = sorted(files_of(experiment) & changed)
        if not reasons:
            reasons = _differences(project, experiment, base)
        if reasons:
            affected[experiment.id] = tuple(reasons)
        else:
            unaffected.append(experiment.id)
    return Impact(ref, commit, affected, tuple(unaffected))


def _inside(paths: frozenset[str], prefix: str) -> set[str]:
    if not prefix:
        return set(paths)
    return {path.removeprefix(prefix + "/") for path in paths if path.startswith(prefix + "/")}


def files_of(experiment: Experiment) -> set[str]:
    """Return the files that belong to the experiment alone, as paths in the project."""
    found = {experiment.path, *(entry.path for entry in experiment.file.data)}
    for prompt in (*experiment.prompts, *experiment.graders):
        found.add(prompt.path)
        found |= {x for x in (prompt.header.output, prompt.header.tools) if isinstance(x, str)}
    if experiment.file.rubric is not None:
        found.add(experiment.file.rubric.path)
    if experiment.rubric is not None and experiment.rubric.calibration is not None:
        found.add(experiment.rubric.calibration.labels)
    return found | experiment.check_files()


def _differences(project: Project, experiment: Experiment, base: Project | None) -> list[str]:
    if base is None:
        return ["the project cannot be read at the base"]
    before = base.experiments.get(experiment.id)
    if before is None:
        return ["the experiment is not valid at the base"]
    old, new = describe(base, before), describe(project, experiment)
    return [f"{key} differ" for key in new if old[key] != new[key]]
