"""edison models: which models does the project have?"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.options import EdisonCommand, EdisonGroup, State
from edison_ci.cli.terminal import Terminal
from edison_ci.config.load import Project, find_root, load_project

if TYPE_CHECKING:
    from edison_ci.config.models import Model


@click.group(cls=EdisonGroup, invoke_without_command=True)
@click.pass_context
def models(ctx: click.Context) -> None:
    """List the models of the project.

    Examples:
      edison models list
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_models)


@models.command("list", cls=EdisonCommand)
@click.pass_obj
def list_models(state: State) -> None:
    """List the models with price, key and limits.

    Prices are dollars per million tokens, in and out; a key is only said to be set or not.

    Examples:
      edison models list
      edison models list --json
    """
    terminal = Terminal(state)
    project = load_project(state.entered(find_root(state.folder)))
    if terminal.json:
        listed = [_as_json(project, model) for model in project.models.values()]
        terminal.document({"models": listed})
        return
    rows = [("name", "provider", "model", "in/out per M", "key", "at once", "retires")]
    rows += [_row(project, model) for model in project.models.values()]
    retiring = any(row[-1] for row in rows[1:])
    terminal.table([row if retiring else row[:-1] for row in rows], right=(3, 5))
    terminal.note(f"prices of {project.prices.date} ({project.prices.origin})")


def _row(project: Project, model: Model) -> tuple[str, str, str, str, str, str, str]:
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
        project.prices.retires(model) or "",
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
