"""edison render: what exactly would a model be sent?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import Terminal
from edison_ci.config.cases import STATIC
from edison_ci.config.load import Experiment, Project, find_root, load_project
from edison_ci.errors import ConfigError, UsageError
from edison_ci.names import did_you_mean
from edison_ci.plan.tokens import ESTIMATE, TokenCounter, counter_for
from edison_ci.plan.versions import label_of, short
from edison_ci.templating import MissingValueError, RenderError

if TYPE_CHECKING:
    from edison_ci.config.models import Configuration
    from edison_ci.config.prompt import Prompt
    from edison_ci.records import Case, Message

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
    r"""Show exactly what a model would be sent.

    PROMPT is a path or an id. Tokens are shown for each section.

    \b
    Examples:
      edison render support-reply
      edison render prompts/support-reply.md --case return-green-blanket
      edison render support-reply --var message="Where is my order?" --json
    """
    terminal = Terminal(state)
    project = load_project(find_root(state.folder))
    found = _prompt(project, prompt)
    home = _experiment(project, found, options["experiment"])
    configuration = _configuration(home, found, options["model"])
    case = _case(project, home, options["case_id"])
    rendered = Rendered(
        prompt=found,
        label=label_of(found, project.root),
        case=case,
        messages=_messages(found, case, dict(_variable(text) for text in options["variables"])),
        configuration=configuration,
        counter=counter_for(configuration.model) if configuration else ESTIMATE,
    )
    if terminal.json:
        terminal.document(_document(rendered))
    else:
        _show(terminal, rendered)


def _prompt(project: Project, wanted: str) -> Prompt:
    normal = wanted.removeprefix("./")
    for path, prompt in project.prompts.items():
        if normal in (path, prompt.id, path.removesuffix(".md")):
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
        raise UsageError(f"experiment {name!r} does not use {prompt.path}")
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
    hint = did_you_mean(wanted or "", near)
    raise UsageError(f"{experiment.id} has no case {wanted!r}", hint=hint)


def _variable(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise UsageError(f"--var {text!r} is not NAME=VALUE")
    return name, value


def _messages(prompt: Prompt, case: Case, given: dict[str, Any]) -> tuple[Message, ...]:
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
        raise UsageError(f"case {case.id!r} cannot be rendered: {error}") from None


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
        terminal.result(terminal.style(f"--- {message.role} ({mark}{count} tokens)", bold=True))
        for line in message.content.split("\n"):
            terminal.result(terminal.style(line))
    terminal.note(f"{mark}{total} tokens ({counter.method})")
