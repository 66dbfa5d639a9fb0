"""Baselines: the files of an experiment at a ref, its counterparts at head, and what changed since.

The variant is what is measured: prompts and generating models. The eval suite is what it is
measured with: data, checks, rubric, judges, gates. Base and head are measured with the same eval
suite, so that only the variant differs. A prompt or model that was renamed is compared with its
predecessor; what the base gates and the head does not measure is a doubt about the comparison.

Gates may also compare with a fixed version: a tag, or the prompt versions in production. Both are
read from the trusted side of a change, never from files that the change could edit: the mark
`production` from the prompts at the base, and a tag only if it is part of the base's history.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from edison_ci._dataclass import dataclass
from edison_ci.config import expected_form
from edison_ci.config.load import inspect_project
from edison_ci.documents.files import file_digest
from edison_ci.documents.marks import Fault
from edison_ci.errors import Severity, UsageError
from edison_ci.git.command import run_git
from edison_ci.git.objects import CommitTree
from edison_ci.git.repository import Repository
from edison_ci.plan.fingerprint import describe, plain
from edison_ci.plan.versions import past_versions
from edison_ci.records import BaselineDoubt, PromptId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.config.prompt import Prompt
    from edison_ci.errors import Problem

    Configured = tuple[str, Model, Mapping[str, object]]


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
    repository = Repository.required(project.root, hint="run git init, then commit")
    if offline and repository.is_shallow() and not _has_merge_base(repository, ref):
        raise UsageError(
            f"this shallow clone does not reach back to {ref!r}, and --offline disables fetching",
            hint="run without --offline, or fetch it first: git fetch --unshallow",
        )
    commit = repository.base_for(ref)
    prefix = repository.prefix_of(project.root)
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


def _has_merge_base(repository: Repository, ref: str) -> bool:
    """Whether the merge base of HEAD and `ref` is in this clone."""
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
        yield "selection of cases"


def _selection(experiment: Experiment) -> list[object]:
    """Return what decides which cases there are, besides the content of the data."""
    return [plain(experiment.file.data), experiment.types()]


def _changed_data(experiment: Experiment, prefix: str, changed: frozenset[str]) -> Iterator[str]:
    """Yield the data files whose bytes changed.

    Data behind a link cannot be read in a commit, so there the experiment is not valid at the base.
    """
    for entry in experiment.file.data:
        if f"{prefix}{entry.path}" in changed:
            yield entry.path


# Each prompt and model of the base has a counterpart at head: the one of the same name, or the one
# with similar content. One without a counterpart counts as dropped: the base gates it, and nothing
# measures it any more. One that was replaced but still exists is dropped too: it could change
# without being measured.
T = TypeVar("T")

_ALIKE = 0.5
"""Share of content that two files of different names must have in common, as for Git."""
_WORD = re.compile(r"\w+|[^\w\s]")
_NAMES = frozenset({"experiment", "title", "description", "archived", "version"})
"""Keys of an experiment that do not influence its results."""


class Counterparts(NamedTuple):
    """Counterparts at head of the prompts and models of one experiment of the base."""

    prompts: dict[str, str]
    """New ids by old ones, of those that changed their id."""
    models: dict[str, str]
    """New names of configurations by old ones, of those that changed their name."""
    replaced: tuple[str, ...]
    """Prompts and models that are compared with a predecessor of another name, in sentences."""
    dropped: tuple[str, ...]
    """What the base gates and the head does not measure, in sentences."""
    held: tuple[str, ...]
    """Forms of answers that both sides are held to, as the text of one asks for them."""


def counterparts(old: Experiment, project: Project, new: Experiment) -> Counterparts:
    """Return the counterparts of the prompts and models of an experiment of the base."""
    prompts = _matched({p.id: p for p in old.prompts}, {p.id: p for p in new.prompts}, _same_text)
    models = _matched({m[0]: m for m in old.models}, {m[0]: m for m in new.models}, _same_model)
    dropped = (
        *_dropped_prompts(old, project, new, prompts),
        *_dropped_models(old, project, new, models),
        *_dropped_formats(old, new, prompts),
    )
    named = (("prompt", prompts), ("model", models))
    replaced = [f"{kind} {a} is now {b}" for kind, renamed in named for a, b in renamed.items()]
    held = tuple(_differing_formats(old, new, prompts))
    return Counterparts(dict(prompts), models, tuple(replaced), dropped, held)


def successors(before: Project, project: Project) -> dict[str, str]:
    """Return the experiments of a base that have another name now, by that name."""
    gone = {e.id: e for e in before.experiments.values() if not _runs(project, e.id)}
    added = {
        e.id: e
        for e in project.experiments.values()
        if e.id not in before.experiments and not e.file.archived
    }
    pairs = _alike(gone, added, _same_experiment)
    return {new: old for old, new in pairs.items()}


def dropped_experiments(before: Project, project: Project) -> list[Experiment]:
    """Return the experiments that a base gates and the head does not run, under any name."""
    followed = set(successors(before, project).values()) - project.experiments.keys()
    return [
        old
        for name, old in before.experiments.items()
        if old.file.gates
        and not old.file.archived
        and not _runs(project, name)
        and name not in followed
    ]


def _runs(project: Project, name: str) -> bool:
    experiment = project.experiments.get(name)
    return experiment is not None and not experiment.file.archived


def _dropped_prompts(
    old: Experiment, project: Project, new: Experiment, renamed: Mapping[str, str]
) -> Iterator[str]:
    measured = {prompt.path for prompt in new.prompts}
    names = {prompt.id for prompt in new.prompts}
    for prompt in old.prompts:
        there = prompt.path not in measured and project.tree.exists(prompt.path)
        if prompt.id not in names and prompt.id not in renamed:
            yield f"prompt {prompt.id} is no longer measured"
        elif there:
            yield f"prompt {prompt.path} is still there, but another file is measured in its place"


def _dropped_models(
    old: Experiment, project: Project, new: Experiment, renamed: Mapping[str, str]
) -> Iterator[str]:
    names = {name: model for name, model, _ in new.models}
    for name, model, _ in old.models:
        other = names.get(renamed.get(name, name))
        if other is None:
            yield f"model {name} is no longer measured"
        elif other.name != model.name and model.name in project.models:
            yield f"model {model.name} is still there, but {other.name} is measured in its place"


def _dropped_formats(old: Experiment, new: Experiment, renamed: Mapping[str, str]) -> Iterator[str]:
    """Yield the formats that answers had to have by a written key, and need not have any more.

    What was only found in the text of both prompts is no promise: both are held to the stricter.
    """
    for prompt, other in _pairs(old, new, renamed):
        was, now = prompt.detected, other.detected
        if not (was.forms if now.written is None else was.written_forms) <= now.forms:
            yield (
                f"answers to {other.id} need no longer be {prompt.expect}: "
                f"its `expect` is now {other.expect}"
            )


def _differing_formats(
    old: Experiment, new: Experiment, renamed: Mapping[str, str]
) -> Iterator[str]:
    """Yield what was found in the text of one side only, and holds for both."""
    for prompt, other in _pairs(old, new, renamed):
        was, now = prompt.detected, other.detected
        by_key = was.written is None or now.written is None
        if not by_key and (was.forms ^ now.forms) - was.written_forms - now.written_forms:
            held = expected_form.joined_form(was.forms | now.forms)
            yield (
                f"answers to {other.id} must be {held} on both sides: the text of the base asks "
                f"for {was.form}, that of the head for {now.form}"
            )


def _pairs(
    old: Experiment, new: Experiment, renamed: Mapping[str, str]
) -> Iterator[tuple[Prompt, Prompt]]:
    """Yield each prompt of the base with its counterpart."""
    prompts: dict[str, Prompt] = {prompt.id: prompt for prompt in new.prompts}
    for prompt in old.prompts:
        other = prompts.get(renamed.get(prompt.id, prompt.id))
        if other is not None:
            yield prompt, other


def held_to_the_stricter(head: Experiment, base: Experiment) -> tuple[Experiment, Experiment]:
    """Return both experiments with the forms of answers that either of them asks for.

    Only where the head writes what the base leaves to its text, what the head writes holds.
    """
    forms: dict[str, str] = {}
    for old, new in _pairs(base, head, {}):
        was, now = old.detected, new.detected
        loose = now.written is None and was.written is not None
        both = was.forms | now.forms
        forms[new.id] = now.form if loose else expected_form.joined_form(both)
    sides = (
        dataclasses.replace(
            side,
            prompts=tuple(dataclasses.replace(p, held=forms.get(p.id)) for p in side.prompts),
        )
        for side in (head, base)
    )
    return next(sides), next(sides)


def _matched(
    old: Mapping[str, T], new: Mapping[str, T], likeness: Callable[[T, T], float]
) -> dict[str, str]:
    """Return new names by old ones: of what is alike, and of one thing that replaces another."""
    gone = {name: item for name, item in old.items() if name not in new}
    added = {name: item for name, item in new.items() if name not in old}
    matched = _alike(gone, added, likeness)
    left = [name for name in gone if name not in matched]
    right = [name for name in added if name not in matched.values()]
    if len(left) == len(right) == 1:
        matched[left[0]] = right[0]
    return matched


def _alike(
    gone: Mapping[str, T], added: Mapping[str, T], likeness: Callable[[T, T], float]
) -> dict[str, str]:
    """Return pairs of which at least half is the same, the most alike first."""
    scored = [
        (-score, old, new)
        for old, old_item in gone.items()
        for new, other in added.items()
        if (score := likeness(old_item, other)) >= _ALIKE
    ]
    pairs: dict[str, str] = {}
    for _, old, new in sorted(scored):
        if old not in pairs and new not in pairs.values():
            pairs[old] = new
    return pairs


def _same_experiment(old: Experiment, new: Experiment) -> float:
    """Return how much two experiments have in common: nothing without a prompt in common."""
    shared = any(
        prompt.id == other.id or _same_text(prompt, other) >= _ALIKE
        for prompt in old.prompts
        for other in new.prompts
    )
    if not shared:
        return 0.0
    return _common(Counter(_leaves(old.document.value)), Counter(_leaves(new.document.value)))


def _leaves(value: Any, place: str = "") -> Iterator[str]:
    """Yield every value of a document with its place, wherever in a list it stands."""
    if isinstance(value, dict):
        for key, item in value.items():
            if place or key not in _NAMES:
                yield from _leaves(item, f"{place}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, f"{place}[]")
    else:
        yield f"{place}={value}"


def _same_text(old: Prompt, new: Prompt) -> float:
    return _common(_words(old), _words(new))


def _words(prompt: Prompt) -> Counter[str]:
    return Counter(_WORD.findall("\n".join(s.template.source for s in prompt.sections)))


def _same_model(old: Configured, new: Configured) -> float:
    """Return whether it is the same model: with other parameters, or under another name."""
    if old[1].name == new[1].name:
        return 1.0
    return 0.9 if old[1].identity() == new[1].identity() else 0.0


def _common(one: Counter[str], other: Counter[str]) -> float:
    most = max(one.total(), other.total())
    return (one & other).total() / most if most else 1.0


@dataclass(frozen=True)
class Base:
    """What a run is compared with."""

    ref: str
    commit: str
    project: Project | None = None
    """The project as it was; None if it could not be read."""
    experiment: Experiment | None = None
    """The experiment as it was, with its own eval suite, by the names of now."""
    changed_eval_suite: tuple[str, ...] = ()
    """What of the eval suite is no longer the same."""
    replaced: tuple[str, ...] = ()
    """What is compared with a former self of another name."""
    doubts: tuple[BaselineDoubt, ...] = ()
    """What the base gates and the head does not measure."""
    invalid: str = ""
    """The first problem of an experiment that the base has and that is not valid there."""
    held: tuple[str, ...] = ()
    """Forms of answers that both sides are held to, as the text of one asks for them."""

    def variant_on(self, experiment: Experiment) -> Experiment | None:
        """Return an experiment with the prompts and models of the base; None if it has none."""
        if self.experiment is None or self.project is None:
            return None
        prompts_by_id = {prompt.id: prompt for prompt in self.project.prompts.values()}
        prompts_by_id |= {prompt.id: prompt for prompt in self.experiment.prompts}
        prompts = tuple(prompts_by_id[p.id] for p in experiment.prompts if p.id in prompts_by_id)
        models = tuple(entry for entry in map(self._model, experiment.models) if entry is not None)
        if not prompts or not models:
            return None
        return dataclasses.replace(experiment, prompts=prompts, models=models)

    def _model(self, configured: Configured) -> Configured | None:
        """Return a model as the base has it: in its experiment, or else in its registry."""
        name, model, params = configured
        assert self.experiment is not None  # or there is no variant
        assert self.project is not None
        for entry in self.experiment.models:
            if entry[0] == name:
                return entry
        registered = self.project.models.get(model.name)
        return None if registered is None else (name, registered, params)


def base_of(project: Project, experiment: Experiment, ref: str, *, commit: str = "") -> Base:
    """Return an experiment as it was at a ref; `commit` is the commit if it is known."""
    repository = Repository.required(project.root, hint="run git init, then commit")
    commit = commit or repository.base_for(ref)
    before, problems = _inspected_at(repository, project, commit)
    if before is None:
        return Base(ref, commit, invalid=_first_problem(experiment, problems))
    former = experiment.id
    if former not in before.experiments:
        former = successors(before, project).get(experiment.id, "")
    if former not in before.experiments:
        there = before.tree.exists(experiment.path)
        invalid = _first_problem(experiment, problems) if there else ""
        return Base(ref, commit, before, invalid=invalid)
    matched = counterparts(before.experiments[former], project, experiment)
    old = _by_names_of_now(before.experiments[former], experiment, matched)
    before = _aside_by_names_of_now(before, former, experiment.id)
    changed = _changed(_eval_suite(before, old), _eval_suite(project, experiment))
    moved = () if former == experiment.id else (f"experiment {former} is now {experiment.id}",)
    base = Base(ref, commit, before, old, changed, (*moved, *matched.replaced), held=matched.held)
    return dataclasses.replace(base, doubts=tuple(_doubts(base, matched)))


def project_at(repository: Repository, project: Project, commit: str) -> Project | None:
    """Return a project as it was at a commit; None if it was none there."""
    return _inspected_at(repository, project, commit)[0]


def _inspected_at(
    repository: Repository, project: Project, commit: str
) -> tuple[Project | None, list[Problem]]:
    tree = CommitTree(repository, commit, repository.prefix_of(project.root))
    before, problems = inspect_project(tree)
    return before and dataclasses.replace(before, root=project.root), problems


def _first_problem(experiment: Experiment, problems: Iterable[Problem]) -> str:
    """Return the first error of a base, of its experiment if there is one; empty without one."""
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    errors.sort(key=lambda problem: problem.where.file != experiment.path)
    return next((f"{problem.where}: {problem.message}" for problem in errors), "")


def _by_names_of_now(old: Experiment, new: Experiment, matched: Counterparts) -> Experiment:
    """Return an experiment of the base with the names that its parts have at the head."""
    prompts = tuple(
        dataclasses.replace(prompt, id=PromptId(matched.prompts.get(prompt.id, prompt.id)))
        for prompt in old.prompts
    )
    models = tuple((matched.models.get(name, name), model, own) for name, model, own in old.models)
    file = old.file.model_copy(update={"experiment": new.id})
    return dataclasses.replace(old, path=new.path, file=file, prompts=prompts, models=models)


def _aside_by_names_of_now(before: Project, former: str, name: str) -> Project:
    """Return the project of the base with its quarantine by the name that an experiment has."""
    cases = tuple(
        case.model_copy(update={"experiment": name}) if case.experiment == former else case
        for case in before.quarantine
    )
    return dataclasses.replace(before, quarantine=cases)


def _doubts(base: Base, matched: Counterparts) -> Iterator[BaselineDoubt]:
    """Yield what of the base's gates nothing is measured for; a base without gates has none."""
    old = base.experiment
    if old is None or old.file.archived or not old.file.gates:
        return
    yield from (
        BaselineDoubt("coverage", f"The base gates it, but {reason}.") for reason in matched.dropped
    )
    if base.changed_eval_suite and not readable(base):
        sentence = (
            "The cases of the base cannot be read at its commit, so only others were measured."
        )
        yield BaselineDoubt("coverage", sentence)


def with_eval_suite_of(base: Base, experiment: Experiment) -> tuple[Experiment, Experiment] | None:
    """Return head and base as experiments with the base's eval suite, both with what both have."""
    old = base.experiment
    if old is None:
        return None
    names = {name for name, _, _ in old.models}
    models = tuple(entry for entry in experiment.models if entry[0] in names)
    kept, prompts = {name for name, _, _ in models}, {prompt.id for prompt in experiment.prompts}
    head = dataclasses.replace(old, prompts=experiment.prompts, models=models or experiment.models)
    return head, dataclasses.replace(
        old,
        prompts=tuple(p for p in old.prompts if p.id in prompts) or old.prompts,
        models=tuple(entry for entry in old.models if entry[0] in kept) or old.models,
    )


def _eval_suite(project: Project, experiment: Experiment) -> dict[str, Any]:
    """Return what an experiment is measured with, by the place where it is written."""
    bare = dataclasses.replace(experiment, prompts=(), models=())
    places = describe(project, bare)
    own = dict(places.pop(experiment.path))
    for variant in ("prompts", "models"):
        own.pop(variant, None)
    data = {
        entry.path: [plain(entry), file_digest(project.tree, entry.path)]
        for entry in experiment.file.data
    }
    return {**places, **{f"{experiment.path}: {key}": value for key, value in own.items()}, **data}


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


VERSION_LABEL = re.compile(r"v([1-9][0-9]*)")


def tagged_commit(repository: Repository, tag: str, trusted: str) -> str:
    """Return the commit of a tag; raises UsageError unless a trusted commit descends from it.

    The author of a change may be able to push a tag, but not one into the history of its base.
    """
    whole = " (in Actions: check out with `fetch-depth: 0`)" if repository.is_shallow() else ""
    commit = repository.tagged(tag)
    if commit is None:
        hint = f"git fetch --tags{whole}"
        raise UsageError(f"this clone has no tag {tag}", hint=hint)
    if not repository.is_ancestor(commit, trusted):
        message = f"tag {tag} is not in the history of the base, {trusted[:8]}{whole}"
        raise UsageError(message, hint="name a tag on the default branch")
    return commit


def production_versions(
    repository: Repository, project: Project, experiment: str, trusted: str
) -> dict[str, str]:
    """Return the versions in production by prompt, as a trusted commit marks them."""
    before = project_at(repository, project, trusted)
    measured = None if before is None else before.experiments.get(experiment)
    prompts = () if measured is None else measured.prompts
    marks = {p.id: production_version(p, project.root) for p in prompts if p.header.production}
    if not marks:
        raise UsageError(
            f"no prompt of {experiment} is marked as in production at {trusted[:8]}",
            hint="run edison promote PROMPT VERSION, and merge that",
        )
    return {str(prompt): version for prompt, version in marks.items()}


def production_version(prompt: Prompt, root: Path) -> str:
    """Return the first digits of the version that a prompt names as in production."""
    name = prompt.header.production
    label = VERSION_LABEL.fullmatch(name)
    if label is None:
        return name
    repository = Repository.find(root)
    past = past_versions(prompt.path, root, repository) if repository else []
    number = int(label[1])
    if number > len(past):
        raise UsageError(f"{prompt.id} has no version {name}", hint="write its hash instead")
    return past[number - 1]
