"""The results database that a request asks for, and its parameters."""

from __future__ import annotations

from typing import Any

from datasette import Forbidden, NotFound

from edison_ci.web.databases import ResultsDatabase, results_databases
from edison_ci.web.page_context import Args, Links


async def requested_database(
    datasette: Any, request: Any, *, open_: bool = False
) -> tuple[ResultsDatabase, Links]:
    """Return the results database of a request, if the visitor may see it."""
    databases, name = await results_databases(datasette), args_of(request).text("db")
    database = next((attached for attached in databases if name in ("", attached.name)), None)
    if database is None:
        raise NotFound("no results of edison are attached")
    if not open_:
        await _require_view_permission(datasette, request, database)
    return database, links_to(datasette, databases, database.name)


def links_to(datasette: Any, databases: list[ResultsDatabase], database: str) -> Links:
    """Return the addresses of the pages about one of the attached databases."""
    return Links(datasette.urls.path, database, several=databases[0].name != database)


def args_of(request: Any) -> Args:
    """Return the query parameters of a request."""
    return Args({key: request.args.getlist(key) for key in request.args})


async def _require_view_permission(datasette: Any, request: Any, database: ResultsDatabase) -> None:
    """Raise Forbidden if the visitor may not see the database in Datasette."""
    if hasattr(datasette, "permission_allowed"):  # 0.65
        allowed = await datasette.permission_allowed(
            request.actor, "view-database", database.name, default=True
        )
    else:
        from datasette.resources import DatabaseResource  # 1.0

        allowed = await datasette.allowed(
            action="view-database", resource=DatabaseResource(database.name), actor=request.actor
        )
    if not allowed:
        raise Forbidden("view-database")
