"""The prompt to refine, and candidates: diffs applied to it in memory.

The project is loaded again with the one changed file, as if the change were committed. Nothing is
written.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.load import inspect_project
from edison_ci.config.project_files import only_errors
from edison_ci.documents import files
from edison_ci.documents.marks import Fault
from edison_ci.documents.text_diff import PatchRefused, apply_patch, parse_patch
from edison_ci.errors import Location, Problem, UsageError
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.experiment import Refine
    from edison_ci.config.holdout import Holdout
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.documents.text_diff import Patch
    from edison_ci.store.suggestions import Guardrail

_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class RefineTarget:
    """A prompt of an experiment to refine."""

    project: Project
    experiment: Experiment
    """With this prompt only."""
    text: str
    """Text of the prompt's file in the working tree."""
    holdout: Holdout | None = None
    """The cases that its refiner never sees; None until a refinement begins."""

    @property
    def prompt(self) -> Prompt:
        """The current prompt."""
        return self.experiment.prompts[0]

    @property
    def limits(self) -> Refine:
        """The `refine` settings, which limit a change."""
        return self.experiment.file.refine


@dataclass(frozen=True, slots=True)
class Change:
    """A prompt file after a diff, before guardrails are checked."""

    target: RefineTarget
    patch: Patch
    text: str
    """Text of the file after the diff."""
    experiment: Experiment | None = None
    """The experiment after the diff; None if the project is then invalid."""
    problems: tuple[Problem, ...] = ()
    """Why the project is invalid."""

    @property
    def prompt(self) -> Prompt | None:
        """The prompt after the diff; None if it cannot be parsed."""
        return None if self.experiment is None else self.experiment.prompts[0]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A suggested diff with the results of the guardrails."""

    diff: str
    """Normalized if it could be applied, else as it was written."""
    note: str
    guardrails: tuple[Guardrail, ...]
    change: Change | None = None
    """None if the diff cannot be applied."""

    @property
    def ok(self) -> bool:
        """Whether it passes every guardrail."""
        return all(rail.ok for rail in self.guardrails)

    @property
    def reason(self) -> str:
        """Why it is refused; empty if it passes."""
        return "; ".join(f"{rail.rule}: {rail.detail}" for rail in self.guardrails if not rail.ok)

    @property
    def version(self) -> str | None:
        """Version hash of the changed prompt."""
        prompt = None if self.change is None else self.change.prompt
        return None if prompt is None else prompt.version


def target_of(project: Project, experiment: Experiment, name: str | None = None) -> RefineTarget:
    """Return the prompt to refine; with several prompts `wanted` is an id or a path."""
    prompt = _pick_prompt(experiment, name)
    data = files.read(project.tree, prompt.path)
    text = data.decode("utf-8")  # loading the project has checked that
    where = Location(prompt.path)
    if "\r" in text:
        raise UsageError(
            f"{prompt.path} has Windows line endings, which diffs do not support",
            hint="save it with LF line endings, and commit it",
            where=where,
        )
    if text.startswith(_BOM):
        hint = "save it as UTF-8 without a byte order mark, and commit it"
        raise UsageError(f"{prompt.path} starts with a byte order mark", hint=hint, where=where)
    return RefineTarget(project, with_prompt(experiment, prompt), text)


def _pick_prompt(experiment: Experiment, name: str | None) -> Prompt:
    prompts = {prompt.id: prompt for prompt in experiment.prompts}
    if name is None:
        if len(prompts) == 1:
            return experiment.prompts[0]
        raise UsageError(
            f"{experiment.id} has {len(prompts)} prompts, but only one is refined at a time",
            hint=f"name it: --prompt {' or --prompt '.join(prompts)}",
        )
    for prompt in experiment.prompts:
        if name in (prompt.id, prompt.path):
            return prompt
    hint = did_you_mean(name, prompts, label="prompts")
    raise UsageError(f"{experiment.id} has no prompt {name!r}", hint=hint)


def with_prompt(experiment: Experiment, *prompts: Prompt) -> Experiment:
    """Return the experiment with this prompt, or these prompts, only."""
    paths = tuple(prompt.path for prompt in prompts)
    file = experiment.file.model_copy(update={"prompts": paths})
    return dataclasses.replace(experiment, file=file, prompts=prompts)


def change_of(target: RefineTarget, diff: str) -> Change:
    """Apply a diff to the prompt; raises PatchRefused."""
    patch = parse_patch(diff, target.prompt.path)
    return change_to(target, patch, apply_patch(target.text, patch))


def change_to(target: RefineTarget, patch: Patch, text: str) -> Change:
    """Return the change to a new text, with the project loaded again."""
    return Change(target, patch, text, *experiment_with(target, text))


def experiment_with(
    target: RefineTarget, text: str
) -> tuple[Experiment | None, tuple[Problem, ...]]:
    """Return the experiment with another text of the prompt, or why the project is then invalid."""
    path = target.prompt.path
    tree = files.OverlayTree(target.project.tree, path, text)
    try:
        project, problems = inspect_project(tree, root=target.project.root)
    except Fault as fault:
        raise PatchRefused(fault.message) from None
    errors = only_errors(problems)
    experiment = None if project is None else project.experiments.get(target.experiment.id)
    prompt = None
    if experiment is not None and not errors:
        prompt = next((changed for changed in experiment.prompts if changed.path == path), None)
    if prompt is None:
        return None, tuple(_own_problems(errors, path))
    return with_prompt(target.experiment, prompt), ()


def _own_problems(problems: Sequence[Problem], path: str) -> list[Problem]:
    """Return the problems of the changed file, or all problems if it has none."""
    return [problem for problem in problems if problem.where.file == path] or list(problems)
