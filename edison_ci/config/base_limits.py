"""What a job for a proposal may spend: what the branch that it is proposed to would let it.

A proposal may lower every limit and raise none. The limits of a run hold for each run, and one more
holds for all that the job buys, so that ten experiments are no way to spend ten times as much.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.config.decisions import Stop
    from edison_ci.config.project import ProjectFile


@dataclass(frozen=True, slots=True)
class BaseLimits:
    """The budgets of the base."""

    run_usd: float
    job_usd: float
    monthly_usd: float | None = None
    stops: Mapping[str, Stop] = field(default_factory=dict)
    """Stop rules by experiment, of which the budgets count."""
    run_tokens: int | None = None
    """Most tokens of a run of an experiment that the base does not have; None without a limit."""


def limits_of(header: ProjectFile, stops: Mapping[str, Stop], most: float | None) -> BaseLimits:
    """Return the limits of a base: `most` for run and job alike, else what its runs may spend.

    A job is about one day at most of what the experiments of the base may spend, so that one with
    another name is no way around the limit of a day.
    """
    usual = header.defaults.budget_usd
    budgets = [usual if stop.budget_usd is None else stop.budget_usd for stop in stops.values()]
    days = [
        budget if stop.daily_budget_usd is None else min(budget, stop.daily_budget_usd)
        for budget, stop in zip(budgets, stops.values(), strict=True)
    ]
    tokens = [stop.max_total_tokens for stop in stops.values()]
    limited = [most_tokens for most_tokens in tokens if most_tokens is not None]
    return BaseLimits(
        run_usd=max([usual, *budgets]) if most is None else most,
        job_usd=(sum(days) if days else usual) if most is None else most,
        monthly_usd=header.settings.monthly_budget_usd,
        stops=stops,
        run_tokens=max(limited) if limited and len(limited) == len(tokens) else None,
    )
