"""The budgets of a project, and how much of each is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci import feature
from edison_ci.execute.budgets import caps_of
from edison_ci.results.spending import last_run_of
from edison_ci.store.ledger import booked

if TYPE_CHECKING:
    import datetime as dt
    import sqlite3
    from collections.abc import Iterable
    from typing import Any

    from edison_ci.config.load import Project


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
        last = last_run_of(connection, experiment.id)
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
