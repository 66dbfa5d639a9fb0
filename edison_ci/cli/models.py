"""edison models: the models of the project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edison_ci.api import model_calls
from edison_ci.api.model_edits import ModelRequest
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand, EdisonGroup, takes
from edison_ci.cli.terminal import BAD, GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.config import vendors
from edison_ci.errors import ExitCode, UsageError
from edison_ci.numeric import counted, dollar_range, dollars

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.api.model_calls import AddedModel, ModelList
    from edison_ci.config.load import Project
    from edison_ci.config.models import Model
    from edison_ci.execute.probe import ProbeResult
    from edison_ci.plan.estimate import CostRange


def _options(ctx: Any, param: Any, texts: tuple[str, ...]) -> dict[str, str]:
    """Return the options of a provider by name."""
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            hint = "write --option region=eu-central-1"
            raise UsageError(f"{text!r} is not an option", hint=hint)
        options[name] = value
    return options


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

    Prices are dollars per million tokens, input and output. Keys are never shown, only the names of
    their variables.

    Examples:
      edison models list
      edison models list --json
    """
    terminal = Terminal(state)
    project = lookup.open_project(state)
    if terminal.json:
        listed = [model_calls.model_json(project, model) for model in project.models.values()]
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
    results = model_calls.test_models(project, names, offline=state.offline)
    if terminal.json:
        terminal.document({"models": [model_calls.probe_json(result) for result in results]})
    else:
        for result in results:
            _show_test(terminal, result)
    # A model that cannot be called on its own is not an error of the others.
    if any(result.error for result in results if result.error != model_calls.NOT_THERE):
        raise click.exceptions.Exit(ExitCode.NOT_MEASURED)


@models.command("add", cls=EdisonCommand)
@click.argument("name", metavar="VENDOR/MODEL")
@click.option(
    "--base-url", metavar="URL", help="Address of the service; its host is trusted with the key."
)
@click.option("--key-env", metavar="NAME", help="Variable with the key; default: the vendor's.")
@click.option("--name", "called", metavar="NAME", help="Name in models.yaml.")
@click.option(
    "--option",
    "options",
    multiple=True,
    callback=_options,
    metavar="KEY=VALUE",
    help="Option of the provider, such as region=eu-central-1; repeatable.",
)
@click.pass_obj
@takes(ModelRequest)
def add_model(state: CliState, request: ModelRequest) -> None:
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
    added = model_calls.add_model(project, request, offline=state.offline)
    if terminal.json:
        terminal.document(added.as_json())
    else:
        _show_added(terminal, added)
    if added.test is not None and added.test.error not in ("", model_calls.NOT_THERE):
        raise click.exceptions.Exit(ExitCode.NOT_MEASURED)


def _show_added(terminal: Terminal, added: AddedModel) -> None:
    project, edit, test = added.project, added.edit, added.test
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
    _show_price(terminal, project, added.model)
    if test is not None:
        _show_test(terminal, test)
    elif edit.model.keys:
        terminal.note(f"  not tested: set {', '.join(edit.model.keys.values())}, then run")
        terminal.note(f"    edison models test {edit.model.name}")
    _show_costs(terminal, added.costs)


def _show_price(terminal: Terminal, project: Project, model: Model) -> None:
    price = project.prices.price_of(model)
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


def _show_costs(terminal: Terminal, costs: Mapping[str, CostRange | None]) -> None:
    for experiment, cost in costs.items():
        amount = "unknown" if cost is None else dollar_range(cost.low, cost.high)
        terminal.result(f"  a run of {experiment} with this model alone: {amount}")
    terminal.note("Next: name it under models in an experiment, then edison run")


@models.command("fetch", cls=EdisonCommand)
@click.argument("names", nargs=-1, metavar="[VENDOR|NAME]...")
@click.pass_obj
def fetch_models(state: CliState, names: tuple[str, ...]) -> None:
    """List the models that a key can reach, with their prices.

    Asks the service of each vendor or model of models.yaml; without a name, every vendor whose key
    is set. Prices are dollars per million tokens, input and output: those of the service where it
    reports them, else those of the price table.

    Examples:
      edison models fetch
      edison models fetch openai
      edison models fetch small --json
    """
    terminal, project = Terminal(state), lookup.open_project(state)
    lists = model_calls.fetch_models(project, names, offline=state.offline)
    if terminal.json:
        terminal.document({"services": [listed.as_json() for listed in lists]})
    else:
        for listed in lists:
            _show_list(terminal, listed)
    if any(listed.error for listed in lists):
        raise click.exceptions.Exit(ExitCode.NOT_MEASURED)


def _show_list(terminal: Terminal, listed: ModelList) -> None:
    name, error = listed.name, listed.error
    if error is not None:
        address = listed.service.address
        terminal.result(StyledText("failed", BAD), f"  {name}: {error}; called {address}")
        terminal.note(f"    {model_calls.advice_on(error.kind, 'check its address and its key')}")
        return
    terminal.result(StyledText(name, bold=True), f"  {counted(len(listed.offers), 'model')}")
    rows: list[tuple[str, ...]] = [("model", "in/out per M", "in models.yaml as")]
    for offer in listed.offers:
        price = "unknown" if offer.price is None else f"${offer.price[0]:g}/{offer.price[1]:g}"
        rows.append((offer.id, price, ", ".join(offer.names)))
    terminal.table(rows, right=(1,))
    terminal.note(
        f"add one with: edison models add {name}/MODEL" if name in vendors.VENDORS else ""
    )


def _show_test(terminal: Terminal, result: ProbeResult) -> None:
    mark = simulated_label(result.model.simulated)
    if result.error:
        terminal.result(
            StyledText("failed", BAD),
            f"  {result.model.name}: {result.error}: {result.message}",
            *mark,
        )
        advice = model_calls.advice_on(result.error, "check its entry in models.yaml")
        terminal.note(f"    {advice}")
        return
    served = f", served by {result.served_model}" if result.served_model else ""
    terminal.result(
        StyledText("ok", GOOD),
        f"  {result.model.name}: {result.latency_ms:,} ms, {dollars(result.cost_microusd)}{served}",
        *mark,
    )


def _row(project: Project, model: Model) -> tuple[str, str, str, str, str, str, str]:
    price = project.prices.price_of(model)
    rates = "unknown" if price is None else f"${price.tokens_in:g}/{price.tokens_out:g}"
    if price is not None and price.tokens_in == price.tokens_out == 0:
        rates = "free"
    keys = [f"{env}{'' if project.has_key(env) else ' (not set)'}" for env in model.keys.values()]
    return (
        model.name,
        model.provider + (" (simulated)" if model.simulated else ""),
        model.model,
        rates,
        ", ".join(keys) or "none needed",
        str(model.limits.concurrency),
        project.prices.retires(model) or "",
    )
