"""With what is an experiment compared?

The subject is what a change is about: prompts and the models that generate. The material is what it
is measured with: data, checks, rubric, judges, gates. Base and head are measured with the same
material, so that only the subject differs. What has another name at the head is compared with its
former self, and what the base gates and the head does not measure is a doubt about the comparison.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.config.commit_tree import CommitTree
from edison_ci.config.load import inspect_project
from edison_ci.documents.marks import Fault
from edison_ci.errors import UsageError
from edison_ci.frozen import dataclass
from edison_ci.plan.counterparts import counterparts, successors
from edison_ci.plan.fingerprint import describe, file_digest, plain
from edison_ci.records import PromptId
from edison_ci.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.plan.counterparts import Counterparts

    Configured = tuple[str, Model, Mapping[str, object]]


class Doubt(NamedTuple):
    """Why a run cannot pass, whatever its gates find: it is inconclusive at best."""

    metric: str
    """`coverage`: the base gates more than was measured; `provenance`: answers prove nothing."""
    sentence: str


@dataclass(frozen=True)
class Base:
    """What a run is compared with."""

    ref: str
    commit: str
    project: Project | None = None
    """The project as it was; None if it could not be read."""
    experiment: Experiment | None = None
    """The experiment as it was, with its own material, by the names of now."""
    changed_material: tuple[str, ...] = ()
    """What of the material is no longer the same."""
    replaced: tuple[str, ...] = ()
    """What is compared with a former self of another name."""
    doubts: tuple[Doubt, ...] = ()
    """What the base gates and the head does not measure."""

    def subject_on(self, experiment: Experiment) -> Experiment | None:
        """Return an experiment with the prompts and models of the base; None if it has none."""
        if self.experiment is None or self.project is None:
            return None
        known = {prompt.id: prompt for prompt in self.project.prompts.values()}
        known |= {prompt.id: prompt for prompt in self.experiment.prompts}
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
    before = project_at(repository, project, commit)
    if before is None:
        return Base(ref, commit)
    former = experiment.id
    if former not in before.experiments:
        former = successors(before, project).get(experiment.id, "")
    if former not in before.experiments:
        return Base(ref, commit, before)
    found = counterparts(before.experiments[former], project, experiment)
    old = _by_names_of_now(before.experiments[former], experiment, found)
    before = _aside_by_names_of_now(before, former, experiment.id)
    changed = _changed(_material(before, old), _material(project, experiment))
    moved = () if former == experiment.id else (f"experiment {former} is now {experiment.id}",)
    base = Base(ref, commit, before, old, changed, (*moved, *found.replaced))
    return dataclasses.replace(base, doubts=tuple(_doubts(base, found)))


def project_at(repository: Repository, project: Project, commit: str) -> Project | None:
    """Return a project as it was at a commit; None if it was none there."""
    folder = project.root.resolve().relative_to(repository.root).as_posix()
    tree = CommitTree(repository, commit, "" if folder == "." else f"{folder}/")
    before, _ = inspect_project(tree)
    return None if before is None else dataclasses.replace(before, root=project.root)


def _by_names_of_now(old: Experiment, new: Experiment, found: Counterparts) -> Experiment:
    """Return an experiment of the base with the names that its parts have at the head."""
    prompts = tuple(
        dataclasses.replace(prompt, id=PromptId(found.prompts.get(prompt.id, prompt.id)))
        for prompt in old.prompts
    )
    models = tuple((found.models.get(name, name), model, own) for name, model, own in old.models)
    file = old.file.model_copy(update={"experiment": new.id})
    return dataclasses.replace(old, path=new.path, file=file, prompts=prompts, models=models)


def _aside_by_names_of_now(before: Project, former: str, name: str) -> Project:
    """Return the project of the base with its quarantine by the name that an experiment has."""
    cases = tuple(
        case.model_copy(update={"experiment": name}) if case.experiment == former else case
        for case in before.quarantine.cases
    )
    quarantine = before.quarantine.model_copy(update={"cases": cases})
    return dataclasses.replace(before, quarantine=quarantine)


def _doubts(base: Base, found: Counterparts) -> Iterator[Doubt]:
    """Yield what of the base's gates nothing is measured for; a base without gates has none."""
    old = base.experiment
    if old is None or old.file.archived or not old.file.gates:
        return
    yield from (Doubt("coverage", f"The base gates it, but {each}.") for each in found.dropped)
    if base.changed_material and not readable(base):
        said = "The cases of the base cannot be read at its commit, so only others were measured."
        yield Doubt("coverage", said)


def with_material_of(base: Base, experiment: Experiment) -> tuple[Experiment, Experiment] | None:
    """Return head and base as experiments with the base's material, both with what both have."""
    old = base.experiment
    if old is None:
        return None
    names = {name for name, _, _ in old.models}
    models = tuple(entry for entry in experiment.models if entry[0] in names)
    kept, known = {name for name, _, _ in models}, {prompt.id for prompt in experiment.prompts}
    head = dataclasses.replace(old, prompts=experiment.prompts, models=models or experiment.models)
    return head, dataclasses.replace(
        old,
        prompts=tuple(p for p in old.prompts if p.id in known) or old.prompts,
        models=tuple(entry for entry in old.models if entry[0] in kept) or old.models,
    )


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
