"""What is refined, and what a diff would make of it.

A candidate is looked at as if it were in the repository: the project is read again with this one
file changed, in memory. Nothing is written.
"""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING, BinaryIO

from edison_ci._dataclass import dataclass
from edison_ci.config.load import inspect_project
from edison_ci.config.project_files import only_errors
from edison_ci.documents import files
from edison_ci.documents.marks import Fault
from edison_ci.errors import Location, Problem, UsageError
from edison_ci.names import did_you_mean
from edison_ci.refine.patch import PatchRefused, apply_patch, parse_patch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.decisions import Refine
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.documents.files import Tree
    from edison_ci.refine.patch import Patch
    from edison_ci.store.suggestions import Guardrail

_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Subject:
    """A prompt of an experiment that is to be refined."""

    project: Project
    experiment: Experiment
    """With this prompt only."""
    text: str
    """Of the prompt's file, as it is in the working tree."""

    @property
    def prompt(self) -> Prompt:
        """The prompt as it is."""
        return self.experiment.prompts[0]

    @property
    def limits(self) -> Refine:
        """How far a change may go."""
        return self.experiment.file.refine


@dataclass(frozen=True, slots=True)
class Change:
    """What a diff makes of a prompt file, before anybody says whether that is allowed."""

    subject: Subject
    patch: Patch
    text: str
    """Of the file after it."""
    experiment: Experiment | None = None
    """The experiment after it; None if the project is then no longer valid."""
    problems: tuple[Problem, ...] = ()
    """Why it is not valid."""

    @property
    def prompt(self) -> Prompt | None:
        """The prompt after it; None if it can no longer be read."""
        return None if self.experiment is None else self.experiment.prompts[0]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A diff that somebody wrote, and which guardrails it keeps."""

    diff: str
    """As it was written, or as it is applied where that is possible."""
    note: str
    guardrails: tuple[Guardrail, ...]
    change: Change | None = None
    """None if the diff cannot be applied."""

    @property
    def ok(self) -> bool:
        """Whether it keeps every guardrail."""
        return all(rail.ok for rail in self.guardrails)

    @property
    def reason(self) -> str:
        """Why it is refused; empty if it is not."""
        return "; ".join(f"{rail.rule}: {rail.detail}" for rail in self.guardrails if not rail.ok)

    @property
    def version(self) -> str | None:
        """The version of the prompt that it makes."""
        prompt = None if self.change is None else self.change.prompt
        return None if prompt is None else prompt.version


# --- the prompt -----------------------------------------------------------------------------------


def subject_of(project: Project, experiment: Experiment, wanted: str | None = None) -> Subject:
    """Return the prompt that is to be refined; one of several must be named, by id or path."""
    prompt = _chosen(experiment, wanted)
    data = files.read(project.tree, prompt.path)
    text = data.decode("utf-8")  # the project was loaded, so it is
    where = Location(prompt.path)
    if "\r" in text:
        raise UsageError(
            f"{prompt.path} has Windows line ends, and diffs are made of lines that end in one way",
            hint="save it with line feeds only, and commit it",
            where=where,
        )
    if text.startswith(_BOM):
        hint = "save it as UTF-8 without a byte order mark, and commit it"
        raise UsageError(f"{prompt.path} starts with a byte order mark", hint=hint, where=where)
    return Subject(project, with_prompt(experiment, prompt), text)


def _chosen(experiment: Experiment, wanted: str | None) -> Prompt:
    known = {prompt.id: prompt for prompt in experiment.prompts}
    if wanted is None:
        if len(known) == 1:
            return experiment.prompts[0]
        raise UsageError(
            f"{experiment.id} has {len(known)} prompts, and one is refined at a time",
            hint=f"name it: --prompt {' or --prompt '.join(known)}",
        )
    for prompt in experiment.prompts:
        if wanted in (prompt.id, prompt.path):
            return prompt
    hint = did_you_mean(wanted, known, label="prompts")
    raise UsageError(f"{experiment.id} has no prompt {wanted!r}", hint=hint)


def with_prompt(experiment: Experiment, prompt: Prompt) -> Experiment:
    """Return the experiment with one prompt only."""
    file = experiment.file.model_copy(update={"prompts": (prompt.path,)})
    return dataclasses.replace(experiment, file=file, prompts=(prompt,))


# --- the change -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Changed:
    """A tree with another text of one file."""

    tree: Tree
    path: str
    text: str

    def open(self, path: str, *, max_bytes: int | None = None) -> BinaryIO:
        """Open a file, the changed one in its new text."""
        if files.inside(path) != files.inside(self.path):
            return self.tree.open(path, max_bytes=max_bytes)
        return io.BytesIO(self.text.encode("utf-8", "surrogatepass"))

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        return self.tree.names(folder)

    def exists(self, path: str) -> bool:
        """Whether a path stands for something."""
        return self.tree.exists(path)


def change_of(subject: Subject, diff: str) -> Change:
    """Return what a diff makes of the prompt; raises PatchRefused."""
    patch = parse_patch(diff, subject.prompt.path)
    return changed(subject, patch, apply_patch(subject.text, patch))


def changed(subject: Subject, patch: Patch, text: str) -> Change:
    """Return the change to a text, with the project read again as if it were in it."""
    path = subject.prompt.path
    tree = _Changed(subject.project.tree, path, text)
    try:
        project, problems = inspect_project(tree, root=subject.project.root)
    except Fault as fault:
        raise PatchRefused(fault.message) from None
    errors = only_errors(problems)
    found = None if project is None else project.experiments.get(subject.experiment.id)
    prompt = None
    if found is not None and not errors:
        prompt = next((one for one in found.prompts if one.path == path), None)
    if prompt is None:
        return Change(subject, patch, text, None, tuple(_own(errors, path)))
    return Change(subject, patch, text, with_prompt(subject.experiment, prompt))


def _own(problems: Sequence[Problem], path: str) -> list[Problem]:
    """Return the problems of the changed file, or all if it has none of its own."""
    return [problem for problem in problems if problem.where.file == path] or list(problems)
