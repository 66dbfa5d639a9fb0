"""What became of the experiments, prompts and models that a base gates.

Each has a counterpart at the head: the one of the same name, or the one that took its place, as
its content shows. What has no counterpart is dropped: the base held it to a gate, and nothing
measures it any more. What was replaced and is still there is dropped too: it could change unseen.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.config.prompt import Prompt

    Configured = tuple[str, Model, Mapping[str, object]]

T = TypeVar("T")

_ALIKE = 0.5
"""How much of the content two files of different names must have in common, as Git has it."""
_WORD = re.compile(r"\w+|[^\w\s]")
_NAMES = frozenset({"experiment", "title", "description", "archived", "version"})
"""Keys of an experiment that say nothing of what it measures."""


class Counterparts(NamedTuple):
    """What took the place of the prompts and models of one experiment of the base."""

    prompts: dict[str, str]
    """New ids by old ones, of those that changed their id."""
    models: dict[str, str]
    """New names of configurations by old ones, of those that changed their name."""
    replaced: tuple[str, ...]
    """What is compared with a former self of another name, in sentences."""
    dropped: tuple[str, ...]
    """What the base gates and the head does not measure, in sentences."""


def counterparts(old: Experiment, project: Project, new: Experiment) -> Counterparts:
    """Return what became of the prompts and models of an experiment of the base."""
    prompts = _matched({p.id: p for p in old.prompts}, {p.id: p for p in new.prompts}, _same_text)
    models = _matched({m[0]: m for m in old.models}, {m[0]: m for m in new.models}, _same_model)
    dropped = (
        *_dropped_prompts(old, project, new, prompts),
        *_dropped_models(old, project, new, models),
        *_dropped_formats(old, new, prompts),
    )
    named = (("prompt", prompts), ("model", models))
    replaced = [f"{kind} {a} is now {b}" for kind, each in named for a, b in each.items()]
    return Counterparts(dict(prompts), models, tuple(replaced), dropped)


def successors(before: Project, project: Project) -> dict[str, str]:
    """Return the experiments of a base that go on under another name, by that name."""
    gone = {e.id: e for e in before.experiments.values() if not _runs(project, e.id)}
    added = {
        e.id: e
        for e in project.experiments.values()
        if e.id not in before.experiments and not e.file.archived
    }
    found = _alike(gone, added, _same_experiment)
    return {new: old for old, new in found.items()}


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
    found = project.experiments.get(name)
    return found is not None and not found.file.archived


# --- what is dropped ------------------------------------------------------------------------------


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
    """Yield the formats that answers had to have, and need not have any more."""
    known: dict[str, Prompt] = {prompt.id: prompt for prompt in new.prompts}
    for prompt in old.prompts:
        other = known.get(renamed.get(prompt.id, prompt.id))
        if other is not None and not _formats(prompt) <= _formats(other):
            yield (
                f"answers to {other.id} need no longer be {prompt.expect}: "
                f"its `expect` is now {other.expect}"
            )


def _formats(prompt: Prompt) -> set[str]:
    return set(prompt.expect.split("+")) - {"none"}


# --- what is alike --------------------------------------------------------------------------------


def _matched(
    old: Mapping[str, T], new: Mapping[str, T], likeness: Callable[[T, T], float]
) -> dict[str, str]:
    """Return new names by old ones: of what is alike, and of one thing that replaces another."""
    gone = {name: each for name, each in old.items() if name not in new}
    added = {name: each for name, each in new.items() if name not in old}
    found = _alike(gone, added, likeness)
    left = [name for name in gone if name not in found]
    right = [name for name in added if name not in found.values()]
    if len(left) == len(right) == 1:
        found[left[0]] = right[0]
    return found


def _alike(
    gone: Mapping[str, T], added: Mapping[str, T], likeness: Callable[[T, T], float]
) -> dict[str, str]:
    """Return pairs of which at least half is the same, the most alike first."""
    scored = [
        (-score, old, new)
        for old, one in gone.items()
        for new, other in added.items()
        if (score := likeness(one, other)) >= _ALIKE
    ]
    found: dict[str, str] = {}
    for _, old, new in sorted(scored):
        if old not in found and new not in found.values():
            found[old] = new
    return found


def _same_experiment(old: Experiment, new: Experiment) -> float:
    """Return how much two experiments have in common: nothing without a prompt in common."""
    shared = any(
        one.id == other.id or _same_text(one, other) >= _ALIKE
        for one in old.prompts
        for other in new.prompts
    )
    if not shared:
        return 0.0
    return _common(Counter(_leaves(old.document.value)), Counter(_leaves(new.document.value)))


def _leaves(value: Any, place: str = "") -> Iterator[str]:
    """Yield every value of a document with its place, wherever in a list it stands."""
    if isinstance(value, dict):
        for key, each in value.items():
            if place or key not in _NAMES:
                yield from _leaves(each, f"{place}.{key}")
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each, f"{place}[]")
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
