"""The prompt, case and model that a command line means."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from edison_ci.config.cases import STATIC
from edison_ci.config.prompt import GRADER_VARIABLES, fits
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.errors import ConfigError, UsageError
from edison_ci.names import did_you_mean

if TYPE_CHECKING:
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Configuration
    from edison_ci.config.prompt import Prompt
    from edison_ci.records import Case, Json

_REMEMBERED_IDS = 10_000


def prompt_named(project: Project, wanted: str, folder: Path) -> Prompt:
    """Return a prompt by id or path, or say which are near."""
    place = Path(os.path.relpath((folder / wanted).resolve(), project.root)).as_posix()
    for path, prompt in project.prompts.items():
        if wanted == prompt.id or path in (wanted, place, f"{place}.md"):
            return prompt
    known = [prompt.id for prompt in project.prompts.values()]
    hint = did_you_mean(wanted, known, label="prompts")
    raise UsageError(f"there is no prompt {wanted!r}", hint=hint)


def home_of(project: Project, prompt: Prompt, name: str | None) -> Experiment | None:
    """Return the experiment to take cases and models from: the first that uses the prompt."""

    def uses(experiment: Experiment) -> bool:
        return prompt.path in [p.path for p in (*experiment.prompts, *experiment.graders)]

    if name is None:
        return next((e for e in project.experiments.values() if uses(e)), None)
    chosen = project.experiment(name)
    if not uses(chosen):
        others = [e.id for e in project.experiments.values() if uses(e)]
        hint = f"these do: {', '.join(others)}" if others else "no experiment does"
        raise UsageError(f"experiment {name!r} does not use {prompt.path}", hint=hint)
    return chosen


def case_named(project: Project, experiment: Experiment | None, wanted: str | None) -> Case:
    """Return a case by id; the first one without."""
    if experiment is None or not experiment.file.data:
        if wanted is not None:
            hint = "no experiment with a dataset uses this prompt"
            raise UsageError("there are no cases", hint=hint)
        return STATIC
    feed = project.cases(experiment)
    near: list[str] = []
    for case in feed:
        if wanted is None or case.id == wanted:
            return case
        if len(near) < _REMEMBERED_IDS:
            near.append(case.id)
    if feed.problems:
        raise ConfigError(feed.problems)
    hint = did_you_mean(wanted or "", near) or f"the first are: {', '.join(near[:3])}"
    raise UsageError(f"{experiment.id} has no case {wanted!r}", hint=hint)


def variables_given(prompt: Prompt, given: tuple[str, ...]) -> dict[str, Json]:
    """Return the values that were set, each of the type that the prompt declares."""
    values: dict[str, Json] = {}
    known = {*prompt.inputs, *(GRADER_VARIABLES if prompt.header.type == "grader" else ())}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name:
            hint = 'write --var name="some text"'
            raise UsageError(f"--var {text!r} is not NAME=VALUE", hint=hint)
        if name not in known:
            hint = did_you_mean(name, known, label="it has") or "it has none"
            raise UsageError(f"{prompt.id} has no variable {name!r}", hint=hint)
        kind = prompt.inputs[name].type if name in prompt.inputs else "string"
        values[name] = value if kind == "string" else _typed(name, value, kind)
    return values


def _typed(name: str, text: str, kind: str) -> Json:
    hint = f"--var {name}=... takes a {kind} as JSON"
    try:
        value = parse_json(text)
    except Fault as fault:
        raise UsageError(f"{name} is not JSON: {fault.message}", hint=hint) from None
    if not fits(value, kind):
        raise UsageError(f"{name} is not a {kind}", hint=hint)
    return value


def configuration_named(
    experiment: Experiment | None, prompt: Prompt, name: str | None
) -> Configuration | None:
    """Return a model configuration by name; the first one without."""
    if experiment is None or prompt.header.type == "grader":
        return None
    found = experiment.configurations(prompt)
    if name is None:
        return found[0] if found else None
    for configuration in found:
        if configuration.name == name:
            return configuration
    hint = did_you_mean(name, [configuration.name for configuration in found], label="models")
    raise UsageError(f"{experiment.id} has no model {name!r}", hint=hint)
