"""edison models: the models of the project."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.lookup import open_project
from edison_ci.cli.options import CliState, EdisonCommand, EdisonGroup
from edison_ci.cli.terminal import BAD, GOOD, StyledText, Terminal, simulated_label
from edison_ci.contracts import WHAT_TO_CHECK
from edison_ci.errors import ExitCode, UsageError
from edison_ci.execute.standalone import ProbeResult, probe
from edison_ci.numeric import dollars
from edison_ci.operate.sessions import require_editor, run_context
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from edison_ci.config.capabilities import Capabilities
    from edison_ci.config.load import Project
    from edison_ci.config.models import Model


@click.group(cls=EdisonGroup, invoke_without_command=True)
@click.pass_context
def models(ctx: click.Context) -> None:
    """List or test the models of the project.

    Examples:
      edison models list
      edison models test small
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(list_models)


@models.command("list", cls=EdisonCommand)
@click.pass_obj
def list_models(state: CliState) -> None:
    """List the models with price, key and limits.

    Prices are dollars per million tokens, input and output; of a key only its variable is shown.

    Examples:
      edison models list
      edison models list --json
    """
    terminal = Terminal(state)
    project = open_project(state)
    if terminal.json:
        listed = [_as_json(project, model) for model in project.models.values()]
        terminal.document({"models": listed})
        return
    rows = [("name", "provider", "model", "in/out per M", "key", "concurrency", "retires")]
    rows += [_row(project, model) for model in project.models.values()]
    retiring = any(row[-1] for row in rows[1:])
    terminal.table([row if retiring else row[:-1] for row in rows], right=(3, 5))
    terminal.note(f"prices of {project.prices.date} ({project.prices.origin})")


@models.command("test", cls=EdisonCommand)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.pass_obj
def test_models(state: CliState, names: tuple[str, ...]) -> None:
    """Send one short call to each model and diagnose failures.

    Sends the parameters and the form of reply that a run sends: a judge is asked as a judge, a
    refiner as a refiner. Distinguishes a wrong key, no network, no quota and an unknown model, and
    ends within a minute. A call costs next to nothing; it counts towards the budgets.

    Examples:
      edison models test
      edison models test small --json
    """
    terminal = Terminal(state)
    project = open_project(state)
    chosen = [_find_model(project, name) for name in dict.fromkeys(names)] or [
        *project.models.values()
    ]
    require_editor(project, "models test")
    trials = probe(project, chosen, run_context(project, offline=state.offline))
    if terminal.json:
        terminal.document({"models": [_trial(trial) for trial in trials]})
    else:
        for trial in trials:
            _show_trial(terminal, trial)
    # A model that cannot be called on its own is not an error of the others.
    if any(trial.error for trial in trials if trial.error != "NOT_THERE"):
        raise click.exceptions.Exit(ExitCode.NOT_MEASURED)


def _find_model(project: Project, name: str) -> Model:
    found = project.models.get(name)
    if found is None:
        hint = did_you_mean(name, project.models, label="models")
        raise UsageError(f"there is no model {name!r}", hint=hint)
    return found


def _trial(trial: ProbeResult) -> dict[str, Any]:
    return {
        "name": trial.model.name,
        "simulated": trial.model.simulated,
        "ok": not trial.error,
        "error": {"code": trial.error, "message": trial.message} if trial.error else None,
        "served_model": trial.served_model,
        "latency_ms": trial.latency_ms,
        "cost_microusd": trial.cost_microusd,
    }


def _show_trial(terminal: Terminal, trial: ProbeResult) -> None:
    mark = simulated_label(trial.model.simulated)
    if trial.error:
        terminal.result(
            StyledText("failed", BAD),
            f"  {trial.model.name}: {trial.error}: {trial.message}",
            *mark,
        )
        terminal.note(f"    {_HINTS.get(trial.error, 'check its entry in models.yaml')}")
        return
    served = f", served by {trial.served_model}" if trial.served_model else ""
    terminal.result(
        StyledText("ok", GOOD),
        f"  {trial.model.name}: {trial.latency_ms:,} ms, {dollars(trial.cost_microusd)}{served}",
        *mark,
    )


_HINTS = {
    **WHAT_TO_CHECK,
    "NO_KEY": "set the variable",
    "NOT_INSTALLED": "a library is missing; edison doctor lists them all",
    "NOT_THERE": "not an error: this model cannot be called on its own yet",
}
"""What to do about a failure."""


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


def _abilities(can: Capabilities) -> dict[str, Any] | None:
    """Return what a model accepts; None if the table does not list it."""
    if not can.known:
        return None
    return {
        "protocol": "embeddings" if can.embedding else "responses" if can.responses else "chat",
        "sampling": can.sampling,
        "system": can.system,
        "schema": can.schema,
        "tools": can.tools,
        "reasoning": list(can.reasoning or ()),
        "context": can.context,
        "max_out": can.max_out,
    }


def _as_json(project: Project, model: Model) -> dict[str, Any]:
    price = project.prices.price_of(model)
    return {
        "name": model.name,
        "provider": model.provider,
        "model": model.model,
        "simulated": model.simulated,
        "endpoint": model.address or None,
        "keys": {env: bool(os.environ.get(env)) for env in model.keys.values()},
        "params": dict(model.params),
        "price": price.as_json() if price else None,
        "takes": _abilities(model.capabilities),
        "retires": project.prices.retires(model),
        "limits": model.limits.model_dump(),
    }
