"""edison render: exactly what a model would be sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edison_ci._dataclass import dataclass
from edison_ci.cli.choosing import (
    case_named,
    configuration_named,
    home_of,
    prompt_named,
    variables_given,
)
from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import Ink, Terminal
from edison_ci.config.load import find_root, load_project
from edison_ci.documents.secrets import redacted
from edison_ci.errors import UsageError
from edison_ci.plan.tokens import ESTIMATE, TokenCounter, counter_for
from edison_ci.plan.versions import label_of, short
from edison_ci.templating.templates import MissingValueError, RenderError

if TYPE_CHECKING:
    from edison_ci.config.models import Configuration
    from edison_ci.config.prompt import Prompt
    from edison_ci.records import Case, Json, Message


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
    found = prompt_named(project, prompt, state.folder)
    home = home_of(project, found, options["experiment"])
    configuration = configuration_named(home, found, options["model"])
    case = case_named(project, home, options["case_id"])
    rendered = Rendered(
        prompt=found,
        label=label_of(found, project.root),
        case=case,
        messages=_messages(found, case, variables_given(found, options["variables"])),
        configuration=configuration,
        counter=counter_for(configuration.model) if configuration else ESTIMATE,
    )
    if terminal.json:
        terminal.document(_document(rendered))
    else:
        _show(terminal, rendered)


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
