"""What a job for a proposal may spend: what the branch that it is proposed to would let it.

A proposal may lower every limit and raise none. The limits of a run hold for each run, and one more
holds for all that the job buys, so that ten experiments are no way to spend ten times as much.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci.frozen import dataclass

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


def limits_of(header: ProjectFile, stops: Mapping[str, Stop], most: float | None) -> BaseLimits:
    """Return the limits of a base: `most` for run and job alike, else what its runs may spend."""
    usual = header.defaults.budget_usd
    budgets = [usual if stop.budget_usd is None else stop.budget_usd for stop in stops.values()]
    return BaseLimits(
        run_usd=max([usual, *budgets]) if most is None else most,
        job_usd=(sum(budgets) or usual) if most is None else most,
        monthly_usd=header.settings.monthly_budget_usd,
        stops=stops,
    )
