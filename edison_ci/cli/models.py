"""edison models: which models does the project have?"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import Terminal, table
from edison_ci.config.load import Project, find_root, load_project

if TYPE_CHECKING:
    from edison_ci.config.models import Model


@click.group(invoke_without_command=False)
def models() -> None:
    """List the models of the project."""


@models.command("list", cls=EdisonCommand)
@click.pass_obj
def list_models(state: State) -> None:
    r"""List the models with price, key and limits.

    \b
    Examples:
      edison models list
      edison models list --json
    """
    terminal = Terminal(state)
    project = load_project(find_root(state.folder))
    if terminal.json:
        terminal.document(
            {"models": [_as_json(project, model) for model in project.models.values()]}
        )
        return
    rows: list[tuple[str, ...]] = [("name", "provider", "model", "in/out per M", "key", "at once")]
    rows += [_row(project, model) for model in project.models.values()]
    for line in table(rows, right=frozenset({3, 5})):
        terminal.result(line)
    terminal.note(f"prices of {project.prices.date} ({project.prices.origin})")


def _row(project: Project, model: Model) -> tuple[str, ...]:
    price = project.prices.price_of(model)
    shown = "unknown" if price is None else f"${price.tokens_in:g}/{price.tokens_out:g}"
    if price is not None and price.tokens_in == price.tokens_out == 0:
        shown = "free"
    keys = [f"{env}{'' if os.environ.get(env) else ' (not set)'}" for env in model.keys.values()]
    return (
        model.name,
        model.provider + (" (simulated)" if model.simulated else ""),
        model.model,
        shown,
        ", ".join(keys) or "none needed",
        str(model.limits.concurrency),
    )


def _as_json(project: Project, model: Model) -> dict[str, Any]:
    price = project.prices.price_of(model)
    return {
        "name": model.name,
        "provider": model.provider,
        "model": model.model,
        "simulated": model.simulated,
        "endpoint": model.endpoint or None,
        "keys": {env: bool(os.environ.get(env)) for env in model.keys.values()},
        "params": dict(model.params),
        "price": price.model_dump(by_alias=True) if price else None,
        "retires": project.prices.retires(model),
        "limits": model.limits.model_dump(),
    }
