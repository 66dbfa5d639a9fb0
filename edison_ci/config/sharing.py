"""Sections of edison.yaml for what machines share: budgets, limits of a site, and answers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edison_ci.config.project import MonthlyDollars
from edison_ci.shape import EnvName, Name, Shape, items


class SharedBudget(Shape):
    """A monthly budget that several machines share: each leases money from a site."""

    url_env: EnvName = Field(description="Variable with the address of the site.")
    token_env: EnvName = Field(description="Variable with the token of an editor of the site.")
    if_unreachable: Literal["stop", "continue"] = Field(
        "stop", description="What runs do when what they leased is spent and the site is down."
    )


class SiteLimits(Shape):
    """Limits of a site on all machines that lease from it, for a calendar month in UTC."""

    monthly_usd: MonthlyDollars | None = Field(
        None, description="Limit of all projects together in dollars."
    )
    teams: Annotated[dict[Name, MonthlyDollars], items(0, 1_000)] = Field(
        {}, description="Limits of teams in dollars: name to limit."
    )
    projects: Annotated[dict[Name, MonthlyDollars], items(0, 1_000)] = Field(
        {}, description="Limits of projects in dollars: name in kebab-case to limit."
    )


class SharedCacheEntry(Shape):
    """A server on which checkouts share their answers."""

    url_env: EnvName = Field(
        description="Variable with the URL below which answers are kept; unset, there is no cache."
    )
    token_env: EnvName | None = Field(
        None, description="Variable with a bearer token, or with a whole header (`Name: value`)."
    )
    unsigned: Literal["replay", "ignore"] = Field(
        "replay",
        description="Answers without a trusted signature: `replay` uses them, and the run is "
        "inconclusive at best; `ignore` asks the model.",
    )
