"""edison costs: spending by day, experiment, model or phase, and the use of each budget."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edison_ci import utc
from edison_ci.api import costs as api_costs
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import BAD, ODD, StyledText, Terminal, simulated_mark, sparkline
from edison_ci.numeric import counted, dollars, fixed, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.api.costs import BudgetUse
    from edison_ci.results.spending import SpendingRow

_NEARLY = 0.8


@click.command(cls=EdisonCommand)
@click.option(
    "--since",
    type=click.IntRange(1, 36_500),
    default=30,
    show_default=True,
    metavar="DAYS",
    help="Number of days to include, up to today.",
)
@click.option(
    "--by",
    type=click.Choice(["day", "month", "experiment", "model", "phase", "project", "team"]),
    help="How to group the amounts; default: day, with --projects project.",
)
@click.option(
    "--projects",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="The costs of all projects in this folder, instead of this one.",
)
@click.pass_obj
def costs(state: CliState, since: int, by: api_costs.By | None, folder: Path | None) -> None:
    """Show spending and how much of each budget is used.

    Days are UTC. A sum with ~ includes calls that count with their maximum cost: those whose
    provider reported no usage, with estimated tokens, and those that were lost or are in flight.
    "Saved" is what the stored answers that complete runs used again would cost at the current
    prices.

    Examples:
      edison costs
      edison costs --by model --since 7
      edison costs --by experiment --json
      edison costs --projects projects --by team
    """
    terminal = Terminal(state)
    project = lookup.open_readable_project(state, terminal)
    spent = api_costs.costs_of(
        project,
        days=since,
        by=by,
        folder=None if folder is None else project.root / folder,
        offline=state.offline,
    )
    for left_out in spent.unreadable:
        terminal.note(StyledText("warning:", ODD), f" {left_out}")
    if spent.unknown:
        terminal.note(f"the use of the shared budget is not known: {spent.unknown}")
    if terminal.json:
        terminal.document(spent.as_json())
        return
    if spent.rows:
        _table(terminal, spent.by, [*spent.rows, spent.total])
        _daily_line(terminal, spent.days, spent.first)
    else:
        terminal.note(f"nothing was spent since {spent.first}")
    _show_limits(terminal, spent.limits)


def _table(terminal: Terminal, by: str, rows: Sequence[SpendingRow]) -> None:
    saved = by != "phase" and rows[-1].saved_microusd is not None
    more = ("saved",) if saved else ()
    table = [(by, "cost", "calls", "failed", "tokens in", "tokens out", *more, "")]
    for row in rows:
        amount = dollars(row.total_microusd)
        mark = "~" if row.estimated_microusd or row.unknown_microusd else ""
        cells = (
            row.key or "(no experiment)",
            f"{mark}{amount}",
            f"{row.calls:,}",
            f"{row.failed:,}",
            f"{row.tokens_in:,}",
            f"{row.tokens_out:,}",
        )
        more = (dollars(row.saved_microusd or 0),) if saved else ()
        table.append((*cells, *more, simulated_mark(row.simulated, row.calls)))
    terminal.table(table, right=range(1, 7 if saved else 6), totals=1)
    total = rows[-1]
    if total.simulated_microusd:
        terminal.result(f"{dollars(total.simulated_microusd)} of it is simulated and was not paid")
    if total.estimated_microusd:
        silent = f"{counted(total.estimated, 'answer')} without usage; their tokens are estimated"
        terminal.result(f"~ {dollars(total.estimated_microusd)} of it is the most for {silent}")
    if total.unknown:
        lost = f"{counted(total.unknown, 'call')} lost or in flight"
        terminal.result(f"~ {dollars(total.unknown_microusd)} of it is the maximum cost of {lost}")
    if total.saved_microusd:
        terminal.result(f"reuse saved {dollars(total.saved_microusd)} at the current prices")
    if total.replayed:
        terminal.result(f"{counted(total.replayed, 'answer')} came from files, free of charge")


def _daily_line(terminal: Terminal, days: Sequence[SpendingRow], first: dt.date) -> None:
    """Print a sparkline of every day since the first with spending."""
    spent = {day.key: day.total_microusd for day in days}
    start = max(first, dt.date.fromisoformat(min(spent)))
    span = (utc.now().date() - start).days
    if span < 1:
        return
    amounts = [spent.get(f"{start + dt.timedelta(days=n)}", 0) for n in range(span + 1)]
    newest = amounts[-60:]
    most = dollars(max(newest))
    terminal.result(f"each day  {sparkline(newest, from_zero=True)}  up to {most}")


def _show_limits(terminal: Terminal, limits: Sequence[BudgetUse]) -> None:
    for limit in terminal.listed(limits):
        formatted = dollars if limit.unit == "microusd" else _tokens
        color = BAD if limit.used >= 1 else ODD if limit.used >= _NEARLY else None
        terminal.result(
            StyledText(percent(limit.used).rjust(5), color),
            f"  {formatted(limit.spent)} of {formatted(limit.limit)}: {limit.of} ({limit.name})",
        )


def _tokens(count: float) -> str:
    return f"{fixed(count, grouped=True)} tokens"
