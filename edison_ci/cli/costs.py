"""edison costs: spending by day, experiment, model or phase, and the use of each budget."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from edison_ci import feature, utc
from edison_ci.api.budgets import BudgetUse, budgets_in_use, shared_budgets, site_budgets
from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand
from edison_ci.cli.terminal import BAD, ODD, StyledText, Terminal, simulated_mark, sparkline
from edison_ci.errors import UsageError
from edison_ci.numeric import counted, dollars, fixed, percent
from edison_ci.results import current_prices, spending
from edison_ci.store import database

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.config.load import Project

_ByProject = Literal["project", "team"]
_NEARLY = 0.8
_NO_TEAM = "(no team)"


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
def costs(
    state: CliState, since: int, by: spending.By | _ByProject | None, folder: Path | None
) -> None:
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
    today = utc.now()
    first = f"{today - dt.timedelta(days=since - 1):%Y-%m-%d}"
    if folder is not None:
        by = by or "project"
        rows, days = _of_projects(terminal, project.root, project.root / folder, by, first)
        limits = []
    elif by == "project" or by == "team":
        raise UsageError(f"--by {by} needs --projects", hint="name the folder of the projects")
    else:
        by = by or "day"
        with lookup.results_of(project) as connection:
            prices = current_prices.CurrentPrices(project)
            rows = spending.spending_by(connection, by, prices, since=first)
            days = (
                rows
                if by == "day"
                else spending.spending_by(connection, "day", prices, since=first)
            )
            limits = budgets_in_use(connection, project, f"{today:%Y-%m-%d}")
    limits = [*_shared_limits(state, terminal, project), *limits]
    total = spending.sum_rows("total", days)
    if terminal.json:
        terminal.document(
            {
                "since": first,
                "by": by,
                "total": _row_json(total),
                "rows": [_row_json(row) for row in rows],
                "limits": [{**limit._asdict(), "used": limit.used} for limit in limits],
            }
        )
        return
    if rows:
        _table(terminal, by, [*rows, total])
        _daily_line(terminal, days, first, today)
    else:
        terminal.note(f"nothing was spent since {first}")
    _show_limits(terminal, limits)


def _of_projects(
    terminal: Terminal, home: Path, folder: Path, by: spending.By | _ByProject, first: str
) -> tuple[list[spending.SpendingRow], list[spending.SpendingRow]]:
    """Return what the projects of a folder spent: in groups, and by day."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", hint="name the folder of the projects")
    listing = feature.required("projects", "site")(home, folder).listing()
    groups: dict[str, list[spending.SpendingRow]] = {}
    days: dict[str, list[spending.SpendingRow]] = {}
    for project in listing.projects:
        site = project.site
        if not site.results.exists():
            continue
        with database.open_for_reading(site.results) as connection:
            each_day = spending.spending_by(connection, "day", None, since=first)
            if by == "project":
                found = [spending.sum_rows(project.name, each_day)] if each_day else []
            elif by == "team":
                found = (
                    [spending.sum_rows(site.file.team or _NO_TEAM, each_day)] if each_day else []
                )
            else:
                found = spending.spending_by(connection, by, None, since=first)
        for rows, into in ((found, groups), (each_day, days)):
            for row in rows:
                into.setdefault(row.key, []).append(row)
    for unreadable in listing.unreadable:
        said = f" {unreadable.name} is left out: {unreadable.problem}"
        terminal.note(StyledText("warning:", ODD), said)
    grouped, daily = (
        [spending.sum_rows(key, rows) for key, rows in each.items()] for each in (groups, days)
    )
    return spending.in_order(by, grouped), spending.in_order("day", daily)


def _table(terminal: Terminal, by: str, rows: Sequence[spending.SpendingRow]) -> None:
    saved = by != "phase" and rows[-1].saved_microusd is not None
    table: list[tuple[str, ...]] = [
        (
            by,
            "cost",
            "calls",
            "failed",
            "tokens in",
            "tokens out",
            *(["saved"] if saved else []),
            "",
        )
    ]
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


def _daily_line(
    terminal: Terminal, days: Sequence[spending.SpendingRow], first: str, today: dt.datetime
) -> None:
    """Print a sparkline of every day since the first with spending."""
    spent = {day.key: day.total_microusd for day in days}
    start = max(dt.date.fromisoformat(first), dt.date.fromisoformat(min(spent)))
    span = (today.date() - start).days
    if span < 1:
        return
    each = [spent.get(f"{start + dt.timedelta(days=n)}", 0) for n in range(span + 1)]
    shown = each[-60:]
    most = dollars(max(shown))
    terminal.result(f"each day  {sparkline(shown, from_zero=True)}  up to {most}")


# --- limits ---------------------------------------------------------------------------------------


def _shared_limits(state: CliState, terminal: Terminal, project: Project) -> list[BudgetUse]:
    """Return the limits of the budget that the project shares, or has as a site."""
    limits = site_budgets(project, utc.now())
    if project.file.shared_budget is not None and not state.offline:
        try:
            limits += shared_budgets(feature.required("shared_limits", "site")(project))
        except UsageError as error:
            terminal.note(f"the use of the shared budget is not known: {error}")
    return limits


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


def _row_json(row: spending.SpendingRow) -> dict[str, Any]:
    return {**asdict(row), "cost_microusd": row.total_microusd}
