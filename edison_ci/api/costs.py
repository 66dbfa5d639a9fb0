"""Costs: what projects spent, in groups and by day, and how much of each budget is used."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from edison_ci import feature, utc
from edison_ci.documents.record_json import Document, fields_of
from edison_ci.errors import UsageError
from edison_ci.execute.budgets import caps_of
from edison_ci.results import spending
from edison_ci.store import database
from edison_ci.store.ledger import booked

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from edison_ci.access.site import Site
    from edison_ci.config.load import Project
    from edison_ci.results.spending import SpendingRow

By = spending.By | Literal["project", "team"]
_NO_TEAM = "(no team)"


class BudgetUse(NamedTuple):
    """A budget and how much of it is used."""

    name: str
    of: str
    """Its scope: the project in 30 days, an experiment today, a run."""
    spent: int
    limit: int
    unit: str
    """Either microusd or tokens."""

    @property
    def used(self) -> float:
        """The share that is used."""
        return self.spent / self.limit if self.limit else 1.0


def budgets_in_use(connection: sqlite3.Connection, project: Project, day: str) -> list[BudgetUse]:
    """Return every budget that is set, that of the project first."""
    budgets: dict[tuple[str, str], BudgetUse] = {}
    for experiment in project.experiments.values():
        last = spending.last_run_of(connection, experiment.id)
        for cap in caps_of(project, experiment, last or "", None):
            if cap.scope.startswith("run:") and last is None:
                continue
            microusd, tokens = booked(connection, cap, day)
            scopes = {30: "the project in 30 days", 1: f"{experiment.id} today"}
            of = scopes.get(cap.days or 0, f"the last run of {experiment.id}")
            if cap.microusd is not None:
                use = BudgetUse(cap.name, of, microusd, cap.microusd, "microusd")
            else:
                use = BudgetUse(cap.name, of, tokens, cap.tokens or 0, "tokens")
            budgets[cap.name, of] = use
    return sorted(budgets.values(), key=lambda use: not use.of.startswith("the project"))


def site_budgets(project: Project, now: dt.datetime) -> list[BudgetUse]:
    """Return the limits of the budget that the project has as a site."""
    return shared_budgets(feature.ask("site_limits", project, now, default=()))


def shared_budgets(limits: Iterable[Any]) -> list[BudgetUse]:
    """Return limits of a budget that projects share."""
    return [
        BudgetUse(limit.name, limit.of, limit.used_microusd, limit.limit_microusd, "microusd")
        for limit in limits
    ]


class Costs(NamedTuple):
    """What was spent since a day, and the limits of it."""

    first: dt.date
    by: By
    rows: list[SpendingRow]
    days: list[SpendingRow]
    limits: list[BudgetUse]
    unreadable: list[str]
    """Projects of the folder that are left out, and why."""
    unknown: str = ""
    """Why the use of the shared budget is not known; empty if it is."""

    @property
    def total(self) -> SpendingRow:
        """The sum of all days."""
        return spending.sum_rows("total", self.days)

    def as_json(self) -> Document:
        """Return it as a command prints it."""
        return {
            "since": f"{self.first}",
            "by": self.by,
            "total": _row_json(self.total),
            "rows": [_row_json(row) for row in self.rows],
            "limits": [
                fields_of(limit, "name", "of", "spent", "limit", "unit", "used")
                for limit in self.limits
            ],
        }


def _row_json(row: SpendingRow) -> Document:
    return {**asdict(row), "cost_microusd": row.total_microusd}


def costs_of(
    project: Project,
    *,
    days: int,
    by: By | None,
    folder: Path | None,
    offline: bool,
) -> Costs:
    """Return what a project spent in some days up to today, or all projects of a folder."""
    now = utc.now()
    first = now.date() - dt.timedelta(days=days - 1)
    limits: list[BudgetUse] = []
    unreadable: list[str] = []
    if folder is not None:
        by = by or "project"
        rows, each_day, unreadable = _of_projects(project, folder, by, f"{first}")
    elif by == "project" or by == "team":
        raise UsageError(f"--by {by} needs --projects", hint="name the folder of the projects")
    else:
        by = by or "day"
        with database.open_for_reading(project.root / project.file.results) as connection:
            prices = spending.CurrentPrices(project)
            rows = spending.spending_by(connection, by, prices, since=f"{first}")
            each_day = rows
            if by != "day":
                each_day = spending.spending_by(connection, "day", prices, since=f"{first}")
            limits = budgets_in_use(connection, project, f"{now:%Y-%m-%d}")
    shared, unknown = _shared_limits(project, now, offline=offline)
    return Costs(first, by, rows, each_day, [*shared, *limits], unreadable, unknown)


def _of_projects(
    project: Project, folder: Path, by: By, first: str
) -> tuple[list[SpendingRow], list[SpendingRow], list[str]]:
    """Return what the projects of a folder spent, in groups and by day, and what is left out."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}", hint="name the folder of the projects")
    listing = feature.required("projects", "site")(project.root, folder).listing()
    groups: dict[str, list[SpendingRow]] = {}
    days: dict[str, list[SpendingRow]] = {}
    for member in listing.projects:
        if member.site.results.exists():
            for row, into in _of_project(member.name, member.site, by, first):
                (groups if into else days).setdefault(row.key, []).append(row)
    grouped, daily = (
        [spending.sum_rows(key, rows) for key, rows in by_key.items()] for by_key in (groups, days)
    )
    unreadable = [f"{other.name} is left out: {other.problem}" for other in listing.unreadable]
    return spending.in_order(by, grouped), spending.in_order("day", daily), unreadable


def _of_project(name: str, site: Site, by: By, first: str) -> Iterator[tuple[SpendingRow, bool]]:
    """Yield the rows of a project: those of its groups with True, those of its days with False."""
    with database.open_for_reading(site.results) as connection:
        days = spending.spending_by(connection, "day", None, since=first)
        if by == "project" or by == "team":
            key = name if by == "project" else site.file.team or _NO_TEAM
            groups = [spending.sum_rows(key, days)] if days else []
        else:
            groups = spending.spending_by(connection, by, None, since=first)
    yield from ((row, True) for row in groups)
    yield from ((row, False) for row in days)


def _shared_limits(
    project: Project, now: dt.datetime, *, offline: bool
) -> tuple[list[BudgetUse], str]:
    """Return the limits of a shared budget or a site, and why those of the budget are not known."""
    limits, unknown = site_budgets(project, now), ""
    if project.file.shared_budget is not None and not offline:
        try:
            limits += shared_budgets(feature.required("shared_limits", "site")(project))
        except UsageError as error:
            unknown = str(error)
    return limits, unknown
