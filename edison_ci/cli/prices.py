"""edison admin prices: the price table of models."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.options import CliState, EdisonCommand, EdisonGroup
from edison_ci.cli.terminal import Terminal
from edison_ci.config import load, price_updates
from edison_ci.config import prices as config_prices
from edison_ci.documents import files, marks
from edison_ci.documents.record_json import fields_of
from edison_ci.errors import ProjectNotFound, UsageError
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHOWN = 40


@click.group(cls=EdisonGroup, invoke_without_command=True)
@click.pass_context
def prices(ctx: click.Context) -> None:
    """Show or update the price table.

    Without a command it prints the size, date and source of the table.

    Examples:
      edison admin prices
      edison admin prices show gpt-4o
      edison admin prices update --from model_prices_and_context_window.json
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(show, pattern=None)


@prices.command(cls=EdisonCommand)
@click.argument("pattern", required=False)
@click.pass_obj
def show(state: CliState, pattern: str | None) -> None:
    """Show the prices of models whose name contains PATTERN.

    Names are PROVIDER/MODEL; prices are dollars per million tokens.

    Examples:
      edison admin prices show gpt-4o
      edison admin prices show anthropic/ --json
    """
    terminal = Terminal(state)
    table = _table(state)
    models = {k: v for k, v in sorted(table.models.items()) if not pattern or pattern in k}
    if pattern and not models:
        hint = did_you_mean(pattern, table.models) or "see: edison admin prices show / --json"
        raise UsageError(f"no model's name contains {pattern!r}", hint=hint)
    about = fields_of(table, "date", "source", "origin")
    if terminal.json:
        terminal.document({**about, "models": dict(models)})
        return
    if not pattern:
        terminal.result(f"{len(table.models):,} models, prices of {table.date} ({table.origin})")
        terminal.result(f"source: {table.source}")
        terminal.note("show some with: edison admin prices show PATTERN")
        return
    keys = ("in", "out", "cached_in", "cache_write")
    rows: list[tuple[str, ...]] = [
        ("model", "in", "out", "cached in", "cache write", "larger calls", "batch", "retires")
    ]
    for name, row in list(models.items())[:_SHOWN]:
        rates = [f"{row[key]:g}" if key in row else "" for key in keys]
        tiers = ", ".join(
            f"{_pair(tier)} above {tier['tokens']:,}" for tier in row.get("above", ())
        )
        batch = _pair(row["batch"]) if "batch" in row else ""
        rows.append((name, *rates, tiers, batch, str(row.get("retires", ""))))
    terminal.table(rows, right=(1, 2, 3, 4))
    if len(models) > _SHOWN:
        terminal.note(f"and {len(models) - _SHOWN:,} more; list all with --json")
    terminal.note(f"dollars per million tokens, of {table.date} ({table.origin})")


def _pair(rates: Mapping[str, Any]) -> str:
    return f"{rates['in']:g}/{rates['out']:g}"


@prices.command(cls=EdisonCommand)
@click.option(
    "--from",
    "source",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A price file of edison, or litellm's model_prices_and_context_window.json.",
)
@click.pass_obj
def update(state: CliState, source: Path) -> None:
    """Update the price table of the project from a file.

    Writes .edison/prices.json; commit and review it like any other file. Models that the new source
    no longer lists are kept and marked as retired.

    Examples:
      edison admin prices update --from model_prices_and_context_window.json
    """
    terminal = Terminal(state)
    root = state.enter_project(load.find_root(state.folder))
    today = dt.datetime.now(dt.UTC).date()
    old, data = _load(root), _read(state.folder / source)
    try:
        new, changes = price_updates.update_table(old, data, name=source.name, today=today)
    except marks.Fault as fault:
        hint = fault.hint or "give a price file of litellm or of edison"
        raise UsageError(_message(source.name, fault), hint=hint) from None
    table = price_updates.dump_table(new).encode()
    files.replace_file(root, config_prices.PROJECT_FILE, table)
    lists = fields_of(changes, "added", "changed", "kept_retired")
    if terminal.json:
        terminal.document({"written": config_prices.PROJECT_FILE, **lists})
        return
    added, changed, kept = map(len, lists.values())
    counts = f"{added:,} added, {changed:,} changed, {kept:,} no longer listed and kept as retired"
    terminal.result(f"wrote {config_prices.PROJECT_FILE}: {counts}")
    terminal.note(
        f"Next: review the change with git diff {config_prices.PROJECT_FILE}, then commit it"
    )


def _read(path: Path) -> bytes:
    hint = "give a price file"
    if not path.is_file():  # reading a FIFO would block
        what = "is not a file" if path.exists() else "does not exist"
        raise UsageError(f"{str(path)!r} {what}", hint=hint)
    if path.stat().st_size > config_prices.MAX_BYTES:
        raise UsageError(
            f"{str(path)!r} is larger than {config_prices.MAX_BYTES:,} bytes", hint=hint
        )
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{str(path)!r} cannot be read: {error.strerror}", hint=hint) from None


def _table(state: CliState) -> config_prices.PriceTable:
    try:
        root = load.find_root(state.folder)
    except ProjectNotFound:
        return config_prices.load_prices()
    return _load(state.enter_project(root))


def _load(root: Path) -> config_prices.PriceTable:
    try:
        return config_prices.load_prices(files.WorkingTree(root))
    except marks.Fault as fault:
        hint = (
            fault.hint
            or f"create it again: remove {config_prices.PROJECT_FILE}, then run "
            "edison admin prices update --from FILE"
        )
        raise UsageError(_message(config_prices.PROJECT_FILE, fault), hint=hint) from None


def _message(file: str, fault: marks.Fault) -> str:
    """Return the message of a fault, with the name of the file."""
    return fault.message if file in fault.message else f"{file}: {fault.message}"
