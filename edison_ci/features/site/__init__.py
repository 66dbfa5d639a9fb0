"""Sites: many projects on one server, uploads of runs, shared budgets and caches."""

from edison_ci.deferred import submodules
from edison_ci.feature import Command, Feature, PageEntry

__getattr__ = submodules(__name__)
FEATURE = Feature(
    __name__,
    commands={
        "push": Command("Team", "commands:push", "Send runs to a site of a team.", "runs"),
        "pull": Command(
            "Team", "commands:pull", "Fetch runs of this project from a site of a team.", "runs"
        ),
    },
    hooks={
        "api_routes": "lease_api:api_routes",
        "project_apps": "projects_page:ProjectApps",
        "projects": "projects:Projects",
        "shared_limits": "shared_budget:shared_limits",
        "money_lease": "shared_budget:MoneyLease",
        "shared_cache": "shared_cache:cache_access",
        "site_limits": "shared_budget:limits_of",
    },
    pages=(PageEntry("/projects", "projects_page:projects"),),
    routes="transfer_routes:transfer_routes",
)
