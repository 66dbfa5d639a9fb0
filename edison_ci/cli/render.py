"""edison render: what exactly would a model be sent?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import Ink, Terminal
from edison_ci.config.cases import STATIC
from edison_ci.config.load import Experiment, Project, find_root, load_project
from edison_ci.config.prompt import GRADER_VARIABLES
from edison_ci.config.prompt_header import fits
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.documents.secret_text import redacted
from edison_ci.errors import ConfigError, UsageError
from edison_ci.names import did_you_mean
from edison_ci.plan.tokens import ESTIMATE, TokenCounter, counter_for
from edison_ci.plan.versions import label_of, short
from edison_ci.templating import MissingValueError, RenderError

if TYPE_CHECKING:
    from edison_ci.config.models import Configuration
    from edison_ci.config.prompt import Prompt
    from edison_ci.records import Case, Json, Message

_REMEMBERED_IDS = 10_000


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt filled in for one case."""

    prompt: Prompt
    label: str
    case: Case
    messages: tuple[Message, ...]
    configuration: Configuration | None
    counter: TokenCounter


@click.command(cls=EdisonCommand)
@click.argument("prompt")
@click.option("--case", "case_id", metavar="ID", help="Id of the case; the first one by default.")
@click.option("--experiment", metavar="NAME", help="Experiment to take cases and models from.")
@click.option("--model", metavar="NAME", help="Model configuration; the first one by default.")
@click.option("--var", "variables", multiple=True, metavar="NAME=VALUE", help="Set a variable.")
@click.pass_obj
def render(state: State, /, prompt: str, **options: Any) -> None:
    """Show exactly what a model would be sent.

    PROMPT is a path or an id. Tokens are shown for each section. A variable whose declared type is
    not a string takes JSON. What looks like a key is cut short.

    Examples:
      edison render support-reply
      edison render prompts/support-reply.md --case return-green-blanket
      edison render support-reply --var message="Where is my order?" --json
    """
    terminal = Terminal(state)
    project = load_project(state.entered(find_root(state.folder)))
    found = _prompt(project, prompt, state.folder)
    home = _experiment(project, found, options["experiment"])
    configuration = _configuration(home, found, options["model"])
    case = _case(project, home, options["case_id"])
    rendered = Rendered(
        prompt=found,
        label=label_of(found, project.root),
        case=case,
        messages=_messages(found, case, _variables(found, options["variables"])),
        configuration=configuration,
        counter=counter_for(configuration.model) if configuration else ESTIMATE,
    )
    if terminal.json:
        terminal.document(_document(rendered))
    else:
        _show(terminal, rendered)


def _prompt(project: Project, wanted: str, folder: Path) -> Prompt:
    place = Path(os.path.relpath((folder / wanted).resolve(), project.root)).as_posix()
    for path, prompt in project.prompts.items():
        if wanted == prompt.id or path in (wanted, place, f"{place}.md"):
            return prompt
    known = [prompt.id for prompt in project.prompts.values()]
    hint = did_you_mean(wanted, known, label="prompts")
    raise UsageError(f"there is no prompt {wanted!r}", hint=hint)


def _experiment(project: Project, prompt: Prompt, name: str | None) -> Experiment | None:
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


def _case(project: Project, experiment: Experiment | None, wanted: str | None) -> Case:
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


def _variables(prompt: Prompt, given: tuple[str, ...]) -> dict[str, Json]:
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


def _messages(prompt: Prompt, case: Case, given: dict[str, Json]) -> tuple[Message, ...]:
    graded = {"expected": case.expected} if prompt.header.type == "grader" else {}
    values = {**case.inputs, **graded, **given}
    try:
        return prompt.render(values)
    except MissingValueError as error:
        known = ", ".join(sorted(values)) or "none"
        raise UsageError(
            f"{error.name} is missing for case {case.id!r}",
            hint=f"variables given: {known}; set more with --var NAME=VALUE",
        ) from None
    except RenderError as error:
        raise UsageError(
            f"case {case.id!r} cannot be rendered: {error}", hint=f"see {prompt.path}"
        ) from None


def _configuration(
    experiment: Experiment | None, prompt: Prompt, name: str | None
) -> Configuration | None:
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


def _document(rendered: Rendered) -> dict[str, Any]:
    prompt, configuration, counter = rendered.prompt, rendered.configuration, rendered.counter
    counts = [counter.count(message.content) for message in rendered.messages]
    return {
        "prompt": {
            "id": prompt.id,
            "path": prompt.path,
            "hash": prompt.version,
            "label": rendered.label,
        },
        "case": rendered.case.id,
        "model": configuration.name if configuration else None,
        "params": dict(configuration.params) if configuration else {},
        "expect": prompt.expect,
        "messages": [
            {"role": m.role, "content": m.content, "tokens": n}
            for m, n in zip(rendered.messages, counts, strict=True)
        ],
        "tools": prompt.tools,
        "tokens": {"total": sum(counts), "method": counter.method, "exact": counter.exact},
    }


def _show(terminal: Terminal, rendered: Rendered) -> None:
    prompt, configuration, counter = rendered.prompt, rendered.configuration, rendered.counter
    hashed = short(prompt.version)
    terminal.note(f"{prompt.id} {rendered.label} ({hashed}), case {rendered.case.id}")
    if configuration is not None:
        sent = ", ".join(f"{k}={v}" for k, v in configuration.params.items())
        model = configuration.model
        terminal.note(f"{configuration.name}: {model.provider}/{model.model} ({sent})")
    mark = "" if counter.exact else "~"
    total = 0
    for message in rendered.messages:
        count = counter.count(message.content)
        total += count
        terminal.result(Ink(f"--- {message.role} ({mark}{count:,} tokens)", bold=True))
        for line in redacted(message.content).split("\n"):
            terminal.result(line)
    terminal.note(f"{mark}{total:,} tokens ({counter.method})")
    if any(redacted(message.content) != message.content for message in rendered.messages):
        terminal.note("something that looks like a key is cut short here; a model would see it all")
