"""With what is an experiment compared?

The subject is what a change is about: prompts and the models that generate. The material is what it
is measured with: data, checks, rubric, judges, gates. Base and head are measured with the same
material, so that only the subject differs.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from edison_ci.config.commit_tree import CommitTree
from edison_ci.config.load import inspect_project
from edison_ci.documents.marks import Fault
from edison_ci.errors import UsageError
from edison_ci.frozen import dataclass
from edison_ci.plan.fingerprint import describe, file_digest, plain
from edison_ci.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.config.prompt import Prompt

    Configured = tuple[str, Model, Mapping[str, object]]


@dataclass(frozen=True)
class Base:
    """What a run is compared with."""

    ref: str
    commit: str
    project: Project | None = None
    """The project as it was; None if it could not be read."""
    experiment: Experiment | None = None
    """The experiment as it was, with its own material."""
    changed_material: tuple[str, ...] = ()
    """What of the material is no longer the same."""

    def subject_on(self, experiment: Experiment) -> Experiment | None:
        """Return an experiment with the prompts and models of the base; None if it has none."""
        if self.experiment is None or self.project is None:
            return None
        known = {prompt.id: prompt for prompt in self.project.prompts.values()}
        prompts = tuple(known[p.id] for p in experiment.prompts if p.id in known)
        models = tuple(entry for entry in map(self._model, experiment.models) if entry is not None)
        if not prompts or not models:
            return None
        return dataclasses.replace(experiment, prompts=prompts, models=models)

    def _model(self, wanted: Configured) -> Configured | None:
        """Return a model as the base has it: in its experiment, or else in its registry."""
        name, model, params = wanted
        assert self.experiment is not None  # or there is no subject
        assert self.project is not None
        for entry in self.experiment.models:
            if entry[0] == name:
                return entry
        known = self.project.models.get(model.name)
        return None if known is None else (name, known, params)


def base_of(project: Project, experiment: Experiment, ref: str, *, commit: str = "") -> Base:
    """Return what an experiment was at a ref; `commit` says which commit that was before."""
    repository = Repository.find(project.root)
    if repository is None:
        raise UsageError(
            "this project is not in a Git repository", hint="run git init, then commit"
        )
    commit = commit or repository.base_for(ref)
    folder = project.root.resolve().relative_to(repository.root).as_posix()
    tree = CommitTree(repository, commit, "" if folder == "." else f"{folder}/")
    before, _ = inspect_project(tree)
    if before is None:
        return Base(ref, commit)
    before = dataclasses.replace(before, root=project.root)
    old = before.experiments.get(experiment.id)
    if old is None:
        return Base(ref, commit, before)
    changed = _changed(_material(before, old), _material(project, experiment))
    return Base(ref, commit, before, old, changed)


def with_material_of(base: Base, experiment: Experiment) -> tuple[Experiment, Experiment] | None:
    """Return head and base as experiments with the base's material."""
    old = base.experiment
    if old is None:
        return None
    names = {name for name, _, _ in old.models}
    prompts: tuple[Prompt, ...] = experiment.prompts
    models = tuple(entry for entry in experiment.models if entry[0] in names)
    return dataclasses.replace(old, prompts=prompts, models=models or experiment.models), old


def _material(project: Project, experiment: Experiment) -> dict[str, Any]:
    """Return what an experiment is measured with, by the place where it is written."""
    bare = dataclasses.replace(experiment, prompts=(), models=())
    told = describe(project, bare)
    own = dict(told.pop(experiment.path))
    for subject in ("prompts", "models"):
        own.pop(subject, None)
    data = {
        entry.path: [plain(entry), file_digest(project.tree, entry.path)]
        for entry in experiment.file.data
    }
    return {**told, **{f"{experiment.path}: {key}": value for key, value in own.items()}, **data}


def _changed(old: dict[str, Any], new: dict[str, Any]) -> tuple[str, ...]:
    places = sorted({*old, *new})
    return tuple(place for place in places if old.get(place) != new.get(place))


def readable(base: Base) -> bool:
    """Whether the data of the base can be read at its commit."""
    if base.project is None or base.experiment is None:
        return False
    for entry in base.experiment.file.data:
        try:
            base.project.tree.open(entry.path).close()
        except Fault:
            return False
    return True
