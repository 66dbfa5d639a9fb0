"""Pages of the results in Datasette: what it asks of a plugin, and nothing else.

Every Datasette of the environment loads this, so nothing heavy is imported here, and nothing is
shown, changed or sent unless a database is attached that says it is ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from datasette import hookimpl

from edison_ci.plugins import later

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

_routes = later("edison_ci.web.responses:routes")
_guarded = later("edison_ci.web.security:guarded")
_bounded = later("edison_ci.web.security:bounded")
_told = later("edison_ci.web.responses:told")
_links = later("edison_ci.web.responses:menu")
_actor = later("edison_ci.web.datasette_permissions:datasette_actor")
_allowed = later("edison_ci.web.datasette_permissions:allowed")
_rules = later("edison_ci.web.datasette_permissions:rules")
_forbidden = later("edison_ci.web.datasette_permissions:told_forbidden")
_actions = later("edison_ci.web.responses:database_menu")


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
def prepare_connection(conn: Any, datasette: Any) -> None:
    """Bound the length of a value, where `edison serve` serves."""
    _bounded(conn, datasette)


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


@hookimpl(wrapper=True)  # type: ignore[untyped-decorator]
def handle_exception(
    datasette: Any, request: Any, exception: Exception
) -> Generator[None, list[Any], list[Any]]:
    """Return our own words for what went wrong where we serve, and nobody else's.

    Datasette prints all it knows: with every variable, and what people sent is among them.
    """
    others = yield
    ours = _told(datasette, request, exception)
    return others if ours is None else [ours]


@hookimpl(tryfirst=True)  # type: ignore[untyped-decorator]
def actor_from_request(request: Any) -> dict[str, Any] | None:
    """Return who signed in."""
    found: dict[str, Any] | None = _actor(request)
    return found


@hookimpl(trylast=True)  # type: ignore[untyped-decorator]
def permission_allowed(datasette: Any, actor: Any, action: str) -> bool | None:
    """Return what people may do on Datasette's own pages, in 0.65: there the last word counts."""
    found: bool | None = _allowed(datasette, actor, action)
    return found


@hookimpl  # type: ignore[untyped-decorator]
def permission_resources_sql(datasette: Any, actor: Any, action: str) -> Any:
    """Return the same in 1.0."""
    return _rules(datasette, actor, action)


@hookimpl(tryfirst=True)  # type: ignore[untyped-decorator]
def forbidden(datasette: Any, request: Any, message: str) -> Any:
    """Return our own words for what somebody may not see where we serve."""
    return _forbidden(datasette, request, message)
