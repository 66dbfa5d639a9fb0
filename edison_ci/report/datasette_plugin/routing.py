"""Which pages are there, and at which address?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.plugins import later

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = "/-/edison"
_PAGES = "edison_ci.report.datasette_plugin.pages"


class Route(NamedTuple):
    """An address and the function that looks at the results for it."""

    pattern: str
    view: Callable[..., Any]
    content_type: str = "text/html; charset=utf-8"


class Area(NamedTuple):
    """An entry of the navigation."""

    key: str
    name: str
    steps: tuple[str, ...] = ()


def _page(path: str, place: str, content_type: str = "text/html; charset=utf-8") -> Route:
    return Route(f"^{PREFIX}{path}$", later(f"{_PAGES}.{place}"), content_type)


PAGES = (
    _page("/?", "home:home"),
    _page("/experiment/(?P<experiment>[^/]+)", "experiment:experiment"),
    _page("/run/(?P<run>[^/]+)", "run:run"),
    _page("/run/(?P<run>[^/]+)/case", "case:case"),
    _page("/cell/(?P<cell>[^/]+)", "cell:cell"),
    _page("/help", "help:keys"),
)
"""Every page; the first that fits answers."""

AREAS = (Area("home", "Experiments"),)
"""What stands in the navigation of every page."""
