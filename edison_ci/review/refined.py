"""What a file says after a suggestion, and whether it still may.

A suggestion was looked at and measured on one version of a prompt, so it is put on that version and
on no other. Guardrails are asked again: the results may come from another machine.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from edison_ci.config.prompt import read_prompt
from edison_ci.documents.files import read
from edison_ci.documents.json_text import read_json
from edison_ci.errors import UsageError
from edison_ci.plan.versions import short
from edison_ci.refine.candidate import Subject, with_prompt
from edison_ci.refine.guardrails import Background, judged

if TYPE_CHECKING:
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.prompt import Prompt
    from edison_ci.documents.marks import Json
    from edison_ci.refine.candidate import Candidate
    from edison_ci.store.suggestions import Suggestion


def prompt_in(project: Project, path: str, data: bytes | None) -> Prompt | None:
    """Return the prompt that a file is; None if it is not there, or not valid."""
    return None if data is None else read_prompt(data, path, partial(_json, project))[0]


def is_base(project: Project, suggestion: Suggestion, data: bytes | None) -> bool:
    """Whether a file is the version that a suggestion changes."""
    prompt = prompt_in(project, suggestion.path, data)
    return prompt is not None and prompt.version == suggestion.base_hash


def is_result(project: Project, suggestion: Suggestion, data: bytes | None) -> bool:
    """Whether a file is the version that a suggestion makes."""
    prompt = prompt_in(project, suggestion.path, data)
    return prompt is not None and prompt.version == suggestion.new_hash


def experiment_of(project: Project, suggestion: Suggestion) -> Experiment:
    """Return the experiment that a suggestion is for, if it still has the prompt."""
    experiment = project.experiment(suggestion.experiment)
    if suggestion.path not in {prompt.path for prompt in experiment.prompts}:
        raise UsageError(
            f"suggestion {suggestion.id} is for {suggestion.path}, "
            f"which is no prompt of {experiment.id}",
            hint="ask for another: edison refine",
        )
    return experiment


def refined(project: Project, suggestion: Suggestion, data: bytes) -> bytes:
    """Return a file after a suggestion; refuses what does not fit, or breaks a guardrail."""
    candidate = looked_at(project, suggestion, data, suggestion.diff)
    if not candidate.ok or candidate.change is None:
        raise UsageError(
            f"suggestion {suggestion.id} is not allowed here: {candidate.reason}",
            hint="ask for another: edison refine",
        )
    if suggestion.new_hash is not None and candidate.version != suggestion.new_hash:
        raise UsageError(
            f"suggestion {suggestion.id} would not make the version that was measured",
            hint="something that the prompt names has changed: edison refine again",
        )
    return candidate.change.text.encode("utf-8", "surrogatepass")


def looked_at(project: Project, suggestion: Suggestion, data: bytes, diff: str) -> Candidate:
    """Return what the guardrails say of a diff of the file that a suggestion changes."""
    prompt = prompt_in(project, suggestion.path, data)
    if prompt is None or prompt.version != suggestion.base_hash:
        raise stale(suggestion, prompt)
    experiment = experiment_of(project, suggestion)
    subject = Subject(project, with_prompt(experiment, prompt), data.decode("utf-8"))
    background = Background(cases=lambda: project.cases(experiment), made_by=suggestion.made_by)
    return judged(subject, diff, suggestion.note, background)


def stale(suggestion: Suggestion, prompt: Prompt | None, where: str = "") -> UsageError:
    """Return the refusal of a suggestion whose prompt has changed."""
    now = "is not there, or not valid" if prompt is None else f"is {short(prompt.version)}"
    place = f" on {where}" if where else ""
    return UsageError(
        f"suggestion {suggestion.id} changes {suggestion.path} in version "
        f"{short(suggestion.base_hash)}, and{place} it {now}",
        hint="ask for another: edison refine; or put that version back first",
    )


def _json(project: Project, file: str) -> Json:
    return read_json(read(project.tree, file), file).value
