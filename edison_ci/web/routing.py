"""Pages and their addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.plugins import later

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = "/-/edison"
SIGN_IN, SIGN_OUT, YOU = (f"{PREFIX}/{page}" for page in ("sign-in", "sign-out", "you"))
LONGEST_NEXT = 1_000
"""Characters of the address of the page to see after signing in."""
_PAGES = "edison_ci.web.pages"


class Route(NamedTuple):
    """An address and the function that looks at the results for it."""

    pattern: str
    view: Callable[..., Any]
    content_type: str = "text/plain; version=0.0.4; charset=utf-8"
    """Of what is no page."""
    any_version: bool = False
    """Whether it can look at a file that another version made."""
    open: bool = False
    """Whether everybody may see it; what it says in detail is for people who are known."""


class Area(NamedTuple):
    """An entry of the navigation."""

    key: str
    name: str
    steps: tuple[str, ...] = ()


def _page(path: str, place: str) -> Route:
    return Route(f"^{PREFIX}{path}$", later(f"{_PAGES}.{place}"))


PAGES = (
    _page("/?", "home:home"),
    _page("/experiment/(?P<experiment>[^/]+)", "experiment:experiment"),
    _page("/run/(?P<run>[^/]+)", "run:run"),
    _page("/run/(?P<run>[^/]+)/case", "case:case"),
    _page("/run/(?P<run>[^/]+)/decisions", "decisions:decisions"),
    _page("/run/(?P<run>[^/]+)/criteria", "criteria:criteria"),
    _page("/run/(?P<run>[^/]+)/facets", "facets:facets"),
    _page("/run/(?P<run>[^/]+)/judges", "judges:judges"),
    _page("/run/(?P<run>[^/]+)/log", "log:log"),
    _page("/run/(?P<run>[^/]+)/grade", "grading:grading"),
    _page("/cell/(?P<cell>[^/]+)", "cell:cell"),
    _page("/leaderboard", "leaderboard:leaderboard"),
    _page("/costs", "costs:costs"),
    _page("/prompts", "prompts:prompts"),
    _page("/prompt/(?P<prompt>[^/]+)", "prompts:prompt"),
    _page("/suggestions", "suggestions:suggestions"),
    _page("/suggestion/(?P<suggestion>[^/]+)", "suggestions:suggestion"),
    _page("/suggestion/(?P<suggestion>[^/]+)/edit", "suggestions:editing"),
    _page("/loops", "loops:loops"),
    _page("/loop/(?P<loop>[^/]+)", "loops:loop"),
    _page("/datasets", "datasets:datasets"),
    _page("/dataset/(?P<experiment>[^/]+)", "datasets:dataset"),
    _page("/audit", "audit:audit"),
    _page("/help", "help:keys"),
    _page("/health", "health:health")._replace(any_version=True, open=True),
    _page("/metrics", "health:metrics"),
)
"""Every page; the first that fits answers."""

AREAS = (
    Area("home", "Experiments"),
    Area("leaderboard", "Leaderboard", ("leaderboard",)),
    Area("prompts", "Prompts", ("prompts",)),
    Area("suggestions", "Suggestions", ("suggestions",)),
    Area("loops", "Loops", ("loops",)),
    Area("datasets", "Datasets", ("datasets",)),
    Area("costs", "Costs", ("costs",)),
    Area("audit", "Audit", ("audit",)),
)
"""What stands in the navigation of every page."""
