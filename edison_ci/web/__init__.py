"""Results pages as a Datasette plugin; this module has the plugin hooks only.

Every Datasette in the environment loads this module, so each hook imports what it needs when it is
called. Without an attached results database of edison nothing is shown or changed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from pluggy import HookimplMarker

from edison_ci.deferred import submodules

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

# The marker of Datasette, which itself takes half a second to load.
hookimpl = HookimplMarker("datasette")

__getattr__ = submodules(__name__)


@hookimpl
def register_routes(datasette: Any) -> list[tuple[str, Callable[..., Awaitable[Any]]]]:
    """Return the routes of the pages."""
    from edison_ci.web.responses import routes

    return routes(datasette)


@hookimpl
def asgi_wrapper(datasette: Any) -> Callable[[Any], Any]:
    """Wrap the application with the security checks of `edison serve`."""
    from edison_ci.web.security import with_guard

    def wrap(app: Any) -> Any:
        return with_guard(datasette, app)

    return wrap


@hookimpl
def prepare_connection(conn: Any, datasette: Any) -> None:
    """Limit the length of SQLite values under `edison serve`."""
    from edison_ci.web.security import limit_value_length

    limit_value_length(conn, datasette)


@hookimpl
def menu_links(datasette: Any) -> Callable[[], Awaitable[list[dict[str, str]]]]:
    """Return the link to the pages for Datasette's main menu."""
    from edison_ci.web.responses import menu

    return partial(menu, datasette)


@hookimpl
def database_actions(datasette: Any, database: str) -> Callable[[], Awaitable[list[Any]]]:
    """Return the link to the pages for the menu of a database."""
    from edison_ci.web.responses import database_menu

    return partial(database_menu, datasette, database)


@hookimpl(wrapper=True)
def handle_exception(
    datasette: Any, request: Any, exception: Exception
) -> Generator[None, list[Any], list[Any]]:
    """Replace Datasette's error pages under `edison serve`.

    Datasette prints tracebacks with variables, which can include what people have sent.
    """
    from edison_ci.web.responses import error_response

    others = yield
    response = error_response(datasette, request, exception)
    return others if response is None else [response]


@hookimpl(tryfirst=True)
def actor_from_request(request: Any) -> dict[str, Any] | None:
    """Return the signed-in person as a Datasette actor."""
    from edison_ci.web.identity import datasette_actor

    return datasette_actor(request)


@hookimpl(trylast=True)
def permission_allowed(datasette: Any, actor: Any, action: str) -> bool | None:
    """Decide permissions on Datasette's own pages, for 0.65, where the last hook decides."""
    from edison_ci.web.identity import is_allowed

    return is_allowed(datasette, actor, action)


@hookimpl
def permission_resources_sql(datasette: Any, actor: Any, action: str) -> Any:
    """Decide permissions on Datasette's own pages, for 1.0."""
    from edison_ci.web.identity import permission_rule

    return permission_rule(datasette, actor, action)


@hookimpl(tryfirst=True)
def forbidden(datasette: Any, request: Any, message: str) -> Any:
    """Return the error page for a missing permission under `edison serve`."""
    from edison_ci.web.responses import forbidden_response

    return forbidden_response(datasette, request, message)
