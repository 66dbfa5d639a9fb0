"""edison models: the models of the project."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from edison_ci.access import proposal_terms
from edison_ci.access import site as sites
from edison_ci.access.job import key_environment
from edison_ci.api import model_edits
from edison_ci.api import sessions as run_sessions
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand, EdisonGroup
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.config import load, vendors
from edison_ci.contracts import WHAT_TO_CHECK, CallError, ErrorKind
from edison_ci.errors import EdisonError, ExitCode, UsageError
from edison_ci.execute import probe
from edison_ci.numeric import counted, dollar_range, dollars
from edison_ci.plan import plan as planning
from edison_ci.providers import model_lists
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from edison_ci.access.job import KeyEnvironment
    from edison_ci.api.model_edits import ModelEdit
    from edison_ci.config.load import Project
    from edison_ci.config.models import Capabilities, Model
    from edison_ci.config.trust import TrustFile
    from edison_ci.plan.estimate import CostRange
    from edison_ci.providers.model_lists import ListedModel

_FETCH_S = 30.0
"""Deadline of the list of one service."""
_MOST_EXPERIMENTS = 5
"""Experiments whose cost is printed for a new model."""


@click.group(cls=EdisonGroup, invoke_without_command=True)
@click.pass_context
def models(ctx: click.Context) -> None:
    """List, add or test the models of the project.

    Examples:
      edison models list
      edison models add openai/gpt-5-mini
      edison models fetch anthropic
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
    project = lookup.open_project(state)
    if terminal.json:
        listed = [_as_json(project, model) for model in project.models.values()]
        terminal.document({"models": listed})
        return
    rows = [("name", "provider", "model", "in/out per M", "key", "concurrency", "retires")]
    rows += [_row(project, model) for model in project.models.values()]
    retiring = any(row[-1] for row in rows[1:])
    terminal.table([row if retiring else row[:-1] for row in rows], right=(3, 5), totals=0)
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
    project = lookup.open_project(state)
    chosen = [_find_model(project, name) for name in dict.fromkeys(names)] or [
        *project.models.values()
    ]
    run_sessions.require_editor(project, "models test")
    trials = probe.probe(project, chosen, run_sessions.run_context(project, offline=state.offline))
    if terminal.json:
        terminal.document({"models": [_trial(trial) for trial in trials]})
    else:
        for trial in trials:
            _show_trial(terminal, trial)
    # A model that cannot be called on its own is not an error of the others.
    if any(trial.error for trial in trials if trial.error != "NOT_THERE"):
        raise click.exceptions.Exit(ExitCode.NOT_MEASURED)


@models.command("add", cls=EdisonCommand)
@click.argument("model", metavar="VENDOR/MODEL")
@click.option(
    "--base-url", metavar="URL", help="Address of the service; its host is trusted with the key."
)
@click.option("--key-env", metavar="NAME", help="Variable with the key; default: the vendor's.")
@click.option("--name", "called", metavar="NAME", help="Name in models.yaml.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Option of the provider, such as region=eu-central-1; repeatable.",
)
@click.pass_obj
def add_model(
    state: CliState, /, model: str, options: tuple[str, ...], **given: str | None
) -> None:
    """Add a model: to models.yaml, trust.yaml and the workflows.

    Comments and the rest of the files stay as they are, and nothing is asked. A key is trusted to
    the vendor's own host, or to the address in --base-url, and to no other. If the key is set, it
    is tested with one short call. Prints the price, and what a run of each experiment would cost.

    Examples:
      edison models add openai/gpt-5-mini
      edison models add groq/llama-3.3-70b-versatile --name llama
      edison models add llama-3 --base-url https://llm.example/v1 --key-env LLM_KEY
      edison models add bedrock/amazon.nova-lite-v1:0 --option region=eu-west-1
    """
    terminal, project = Terminal(state), lookup.open_project(state)
    asked = model_edits.ModelRequest(model, options=dict(map(_option, options)), **given)
    edit = model_edits.prepare_model(project, asked)
    model_edits.write_model(sites.Site(project.root, project.file), edit)
    project = load.load_project(project.root)
    added = project.models[edit.model.name]
    tested = _test_added(project, added, offline=state.offline)
    costs = _costs(project, added)
    if terminal.json:
        terminal.document(_added_json(project, edit, tested, costs))
    else:
        _show_added(terminal, project, edit, tested)
        _show_costs(terminal, costs)
    if tested is not None and tested.error and tested.error != "NOT_THERE":
        raise click.exceptions.Exit(ExitCode.NOT_MEASURED)


def _option(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key or not value:
        raise UsageError(f"{text!r} is not an option", hint="write --option region=eu-central-1")
    return key, value


def _test_added(project: Project, model: Model, *, offline: bool) -> probe.ProbeResult | None:
    """Return the result of one short call; None if a key is not set, or without a network."""
    if offline or not all(map(project.has_key, model.variables)):
        return None
    (found,) = probe.probe(project, [model], run_sessions.run_context(project, offline=offline))
    return found


def _costs(project: Project, model: Model) -> dict[str, CostRange | None]:
    """Return what a run of each experiment with this model alone would cost."""
    found: dict[str, CostRange | None] = {}
    for experiment in [*project.experiments.values()][:_MOST_EXPERIMENTS]:
        alone = replace(experiment, models=((model.name, model, {}),))
        try:
            found[experiment.id] = planning.bare_plan(project, alone).cost_microusd
        except EdisonError:  # an experiment with other problems, which validate tells
            continue
    return found


def _show_added(
    terminal: Terminal, project: Project, edit: ModelEdit, tested: probe.ProbeResult | None
) -> None:
    for path in sorted(edit.files):
        terminal.result("  ", StyledText("wrote", GOOD), f" {path}")
    for env, host in edit.trusted:
        terminal.result(f"  trusted: {env} may now be sent to {host}")
        if host.startswith("http://"):
            terminal.result(StyledText(f"  the key is sent to {host} without encryption", ODD))
    for env, host in edit.built_in:
        if (env, host) not in edit.trusted:
            terminal.result(f"  {env} may be sent to {host}, the vendor's own host (built in)")
    for path in edit.without_place:
        names = ", ".join(edit.model.keys.values())
        terminal.result(f"  add {names} to env of the step that runs edison in {path}")
    _show_price(terminal, project, edit.model.name)
    if tested is not None:
        _show_trial(terminal, tested)
    elif edit.model.keys:
        terminal.note(f"  not tested: set {', '.join(edit.model.keys.values())}, then run")
        terminal.note(f"    edison models test {edit.model.name}")


def _show_price(terminal: Terminal, project: Project, name: str) -> None:
    price = project.prices.price_of(project.models[name])
    if price is None:
        terminal.result("  price unknown: add price: {in: ..., out: ...} to models.yaml")
        terminal.note("    a run with a budget does not start without it")
    elif price.tokens_in == price.tokens_out == 0:
        terminal.result("  free")
    else:
        terminal.result(
            f"  ${price.tokens_in:g} in, ${price.tokens_out:g} out per million tokens "
            f"(prices of {project.prices.date}, {project.prices.origin})"
        )


def _show_costs(terminal: Terminal, costs: dict[str, CostRange | None]) -> None:
    for experiment, cost in costs.items():
        shown = "unknown" if cost is None else dollar_range(cost.low, cost.high)
        terminal.result(f"  a run of {experiment} with this model alone: {shown}")
    terminal.note("Next: name it under models in an experiment, then edison run")


def _added_json(
    project: Project,
    edit: ModelEdit,
    tested: probe.ProbeResult | None,
    costs: dict[str, CostRange | None],
) -> dict[str, Any]:
    return {
        "model": _as_json(project, project.models[edit.model.name]),
        "written": sorted(edit.files),
        "trusted": [{"env": env, "host": host} for env, host in edit.trusted],
        "built_in": [{"env": env, "host": host} for env, host in edit.built_in],
        "without_place": [*edit.without_place],
        "test": None if tested is None else _trial(tested),
        "runs": {
            name: None if cost is None else {"low": cost.low, "high": cost.high}
            for name, cost in costs.items()
        },
    }


@models.command("fetch", cls=EdisonCommand)
@click.argument("names", nargs=-1, metavar="[VENDOR|NAME]...")
@click.pass_obj
def fetch_models(state: CliState, names: tuple[str, ...]) -> None:
    """List the models that a key can reach, with their prices.

    Asks the service of each vendor or model of models.yaml; without a name, every vendor whose key
    is set. Prices are dollars per million tokens, input and output: those of the service where it
    tells them, else those of the price table.

    Examples:
      edison models fetch
      edison models fetch openai
      edison models fetch small --json
    """
    terminal, project = Terminal(state), lookup.open_project(state)
    run_sessions.require_editor(project, "models fetch")
    trust = proposal_terms.apply_base_terms(project).trust
    chosen = {name: _service(project, name) for name in dict.fromkeys(names)} or _with_keys(project)
    if not chosen:
        raise UsageError(
            "no key of a known vendor is set", hint="set one, such as OPENAI_API_KEY, or name one"
        )
    environ = key_environment(project)
    fetched = {
        name: _fetch(model, environ, trust, offline=state.offline) for name, model in chosen.items()
    }
    if terminal.json:
        terminal.document(
            {
                "services": [
                    _fetched_json(project, name, chosen[name], found)
                    for name, found in fetched.items()
                ]
            }
        )
    else:
        for name, found in fetched.items():
            _show_fetched(terminal, project, (name, chosen[name]), found)
    if any(isinstance(found, CallError) for found in fetched.values()):
        raise click.exceptions.Exit(ExitCode.NOT_MEASURED)


def _service(project: Project, name: str) -> Model:
    """Return a model of the project, or one that stands for a vendor."""
    if name in project.models:
        return project.models[name]
    vendor = vendors.VENDORS.get(name)
    if vendor is None:
        hint = did_you_mean(name, [*project.models, *vendors.VENDORS], label="models and vendors")
        raise UsageError(f"there is no model or vendor {name!r}", hint=hint)
    if vendor.options:
        raise UsageError(
            f"{name} has no list of models that a key alone can read",
            hint="see the vendor's console; edison admin prices show lists known models",
        )
    return model_edits.vendor_model(name)


def _with_keys(project: Project) -> dict[str, Model]:
    """Return the vendors whose key is set or sealed."""
    return {
        name: _service(project, name)
        for name, vendor in vendors.VENDORS.items()
        if vendor.key_env and not vendor.options and project.has_key(vendor.key_env)
    }


def _fetch(
    model: Model, environ: KeyEnvironment, trust: TrustFile, *, offline: bool
) -> list[ListedModel] | CallError:
    lister = model_lists.lister_for(model, environ=environ, offline=offline, trust=trust)

    async def ask() -> list[ListedModel]:
        async with asyncio.timeout(_FETCH_S):
            return await lister.models()

    try:
        return asyncio.run(ask())
    except CallError as error:
        return error
    except TimeoutError:
        return CallError(ErrorKind.TIMEOUT, f"no list within {_FETCH_S:g} s", charged=False)


def _price_of(project: Project, service: Model, listed: ListedModel) -> tuple[float, float] | None:
    if listed.price is not None:
        return listed.price
    price = project.prices.price_of(replace(service, model=listed.id, price=None))
    return None if price is None else (price.tokens_in, price.tokens_out)


def _names_in_registry(project: Project, service: Model, listed: ListedModel) -> list[str]:
    return [
        model.name
        for model in project.models.values()
        if (model.provider, model.base_url, model.model)
        == (service.provider, service.base_url, listed.id)
    ]


def _show_fetched(
    terminal: Terminal,
    project: Project,
    service: tuple[str, Model],
    found: list[ListedModel] | CallError,
) -> None:
    name, model = service
    if isinstance(found, CallError):
        terminal.result(StyledText("failed", BAD), f"  {name}: {found}; called {model.address}")
        terminal.note(f"    {_HINTS.get(found.kind, 'check its address and its key')}")
        return
    terminal.result(StyledText(name, bold=True), f"  {counted(len(found), 'model')}")
    rows: list[tuple[str, ...]] = [("model", "in/out per M", "in models.yaml as")]
    for listed in found:
        price = _price_of(project, model, listed)
        shown = "unknown" if price is None else f"${price[0]:g}/{price[1]:g}"
        rows.append((listed.id, shown, ", ".join(_names_in_registry(project, model, listed))))
    terminal.table(rows, right=(1,))
    terminal.note(
        f"add one with: edison models add {name}/MODEL" if name in vendors.VENDORS else ""
    )


def _fetched_json(
    project: Project, name: str, model: Model, found: list[ListedModel] | CallError
) -> dict[str, Any]:
    error, listed = (found, []) if isinstance(found, CallError) else (None, found)
    return {
        "name": name,
        "endpoint": model.address or None,
        "error": None if error is None else {"code": error.kind, "message": error.message},
        "models": [
            {
                "id": one.id,
                "price": None if price is None else {"in": price[0], "out": price[1]},
                "names": _names_in_registry(project, model, one),
            }
            for one in listed
            for price in [_price_of(project, model, one)]
        ],
    }


def _find_model(project: Project, name: str) -> Model:
    found = project.models.get(name)
    if found is None:
        hint = did_you_mean(name, project.models, label="models")
        raise UsageError(f"there is no model {name!r}", hint=hint)
    return found


def _trial(trial: probe.ProbeResult) -> dict[str, Any]:
    return {
        "name": trial.model.name,
        "simulated": trial.model.simulated,
        "ok": not trial.error,
        "error": {"code": trial.error, "message": trial.message} if trial.error else None,
        "served_model": trial.served_model,
        "latency_ms": trial.latency_ms,
        "cost_microusd": trial.cost_microusd,
    }


def _show_trial(terminal: Terminal, trial: probe.ProbeResult) -> None:
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
    keys = [f"{env}{'' if project.has_key(env) else ' (not set)'}" for env in model.keys.values()]
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
        "keys": {env: project.has_key(env) for env in model.keys.values()},
        "params": dict(model.params),
        "price": price.as_json() if price else None,
        "takes": _abilities(model.capabilities),
        "retires": project.prices.retires(model),
        "limits": model.limits.model_dump(),
    }
