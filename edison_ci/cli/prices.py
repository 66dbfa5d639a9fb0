"""edison prices: what do models cost, and since when is that known?"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.terminal import Terminal, table
from edison_ci.config.load import find_root
from edison_ci.config.prices import (
    MAX_BYTES,
    PROJECT_FILE,
    PriceTable,
    dump_table,
    load_prices,
    update_table,
)
from edison_ci.documents.files import WorkingTree
from edison_ci.documents.marks import Fault
from edison_ci.errors import ProjectNotFound, UsageError

_SHOWN = 40


@click.group(invoke_without_command=True)
@click.pass_context
def prices(ctx: click.Context) -> None:
    """Show or update the price table."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(show, pattern=None)


@prices.command(cls=EdisonCommand)
@click.argument("pattern", required=False)
@click.pass_obj
def show(state: State, pattern: str | None) -> None:
    r"""Show prices, those whose name contains PATTERN.

    \b
    Examples:
      edison prices show gpt-4o
      edison prices show anthropic/ --json
    """
    terminal = Terminal(state)
    found = _table(state)
    wanted = {k: v for k, v in sorted(found.models.items()) if not pattern or pattern in k}
    if terminal.json:
        terminal.document(
            {
                "date": found.date,
                "source": found.source,
                "origin": found.origin,
                "models": dict(wanted),
            }
        )
        return
    terminal.note(f"{len(found.models):,} models, prices of {found.date} ({found.origin})")
    terminal.note(f"source: {found.source}")
    if not pattern:
        terminal.note("show some with: edison prices show PATTERN")
        return
    if not wanted:
        raise UsageError(f"no model's name contains {pattern!r}")
    rows = [("model", "in", "out", "cached in", "retires")]
    for name, row in list(wanted.items())[:_SHOWN]:
        cached = f"{row['cached_in']:g}" if "cached_in" in row else ""
        rows.append(
            (name, f"{row['in']:g}", f"{row['out']:g}", cached, str(row.get("retires", "")))
        )
    for line in table(rows, right=frozenset({1, 2, 3})):
        terminal.result(line)
    if len(wanted) > _SHOWN:
        terminal.note(f"and {len(wanted) - _SHOWN} more")


@prices.command(cls=EdisonCommand)
@click.option(
    "--from",
    "source",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A price file: ours, or litellm's model_prices_and_context_window.json.",
)
@click.pass_obj
def update(state: State, source: Path) -> None:
    r"""Update the project's price table from a file.

    The result is written to .edison/prices.json, which is committed and reviewed like any other
    file. Models the new source no longer lists are kept and marked as retired.

    \b
    Examples:
      edison prices update --from model_prices_and_context_window.json
    """
    terminal = Terminal(state)
    root = find_root(state.folder)
    if source.stat().st_size > MAX_BYTES:
        raise UsageError(f"{source.name} is larger than {MAX_BYTES:,} bytes")
    today = dt.datetime.now(dt.UTC).date()
    try:
        old = load_prices(WorkingTree(root))
        new, changes = update_table(old, source.read_bytes(), name=source.name, today=today)
    except Fault as fault:
        raise UsageError(fault.message, hint=fault.hint) from None
    path = root / PROJECT_FILE
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(dump_table(new), encoding="utf-8")
    temporary.replace(path)
    if terminal.json:
        terminal.document(
            {
                "written": PROJECT_FILE,
                "added": list(changes.added),
                "changed": list(changes.changed),
                "kept_retired": list(changes.kept_retired),
            }
        )
        return
    terminal.result(
        f"wrote {PROJECT_FILE}: {len(changes.added)} added, {len(changes.changed)} changed, "
        f"{len(changes.kept_retired)} no longer listed and kept as retired"
    )


def _table(state: State) -> PriceTable:
    try:
        root = find_root(state.folder)
    except ProjectNotFound:
        return load_prices()
    try:
        return load_prices(WorkingTree(root))
    except Fault as fault:
        raise UsageError(fault.message, hint=fault.hint) from None
