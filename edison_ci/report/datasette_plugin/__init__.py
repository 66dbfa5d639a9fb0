"""Pages of the results in Datasette: what it asks of a plugin, and nothing else.

Every Datasette of the environment loads this, so nothing heavy is imported here, and nothing is
shown, changed or sent unless a database is attached that says it is ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from datasette import hookimpl

from edison_ci.plugins import later

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_routes = later("edison_ci.report.datasette_plugin.answering:routes")
_guarded = later("edison_ci.report.datasette_plugin.guarding:guarded")
_told = later("edison_ci.report.datasette_plugin.answering:told")
_links = later("edison_ci.report.datasette_plugin.answering:menu")
_actions = later("edison_ci.report.datasette_plugin.answering:database_menu")


@hookimpl  # type: ignore[untyped-decorator]  # Datasette has no types
def register_routes(datasette: Any) -> list[tuple[str, Callable[..., Awaitable[Any]]]]:
    """Return the addresses of our pages."""
    found: list[tuple[str, Callable[..., Awaitable[Any]]]] = _routes(datasette)
    return found


@hookimpl  # type: ignore[untyped-decorator]
def asgi_wrapper(datasette: Any) -> Callable[[Any], Any]:
    """Return what stands before every page that `edison serve` serves."""

    def wrap(app: Any) -> Any:
        return _guarded(datasette, app)

    return wrap


@hookimpl  # type: ignore[untyped-decorator]
def menu_links(datasette: Any) -> Callable[[], Awaitable[list[dict[str, str]]]]:
    """Return the link to our pages, for the menu of Datasette's own."""

    async def inner() -> list[dict[str, str]]:
        found: list[dict[str, str]] = await _links(datasette)
        return found

    return inner


@hookimpl  # type: ignore[untyped-decorator]
def database_actions(datasette: Any, database: str) -> Callable[[], Awaitable[list[Any]]]:
    """Return the link to our pages, for the menu of a database."""

    async def inner() -> list[Any]:
        found: list[Any] = await _actions(datasette, database)
        return found

    return inner


@hookimpl(tryfirst=True)  # type: ignore[untyped-decorator]
def handle_exception(
    datasette: Any, request: Any, exception: Exception
) -> Callable[[], Awaitable[Any]] | None:
    """Return our own words for what went wrong where we serve; Datasette prints all it knows."""
    found: Callable[[], Awaitable[Any]] | None = _told(datasette, request, exception)
    return found
