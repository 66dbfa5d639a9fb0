"""Requests answered: routes, pages, redirects and errors.

The database is found, the page's function looks at one state of it in a thread of Datasette's, and
a template of ours is rendered; Datasette's own base template has scripts that our policy forbids.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from datasette import Forbidden, NotFound, Response

from edison_ci import formatting
from edison_ci.errors import EdisonError, UsageError
from edison_ci.operate.actors import Role
from edison_ci.plugins import later
from edison_ci.store.database import is_current, one_state
from edison_ci.web.databases import attached_to, served_by
from edison_ci.web.forms import LONGEST, Post, posted
from edison_ci.web.identity import who
from edison_ci.web.live_run import send_stream, stream
from edison_ci.web.page_context import Args, Links, Look, Page
from edison_ci.web.rendering import problem_page, refused, rendered, status_of
from edison_ci.web.routing import PAGES, PREFIX, SIGN_IN, SIGN_OUT, YOU, Route
from edison_ci.web.security import KEEP, MOST_SENT, PAGE_HEADERS
from edison_ci.web.sign_in import sign_in, sign_out, you
from edison_ci.web.static_files import asset

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable

    from edison_ci.web.databases import Attached

    View = Callable[..., Awaitable[Any]]


_ACTING = "edison_ci.web.form_actions"


def _form(path: str, needs: Role, action: str, place: str, *, longest: int = LONGEST) -> Post:
    of = path.split("/")[1]
    return Post(f"^{PREFIX}{path}$", needs, action, later(f"{_ACTING}:{place}"), longest, of)


_CELL = "/cell/(?P<cell>[0-9a-f]{12,64})"
_SUGGESTION = "/suggestion/(?P<suggestion>[^/]+)"

POSTS = (
    _form(f"{_CELL}/grade", Role.REVIEWER, "grade", "grade"),
    _form(f"{_CELL}/flag", Role.REVIEWER, "grade", "flag"),
    _form(f"{_SUGGESTION}/approve", Role.REVIEWER, "review approve", "approve"),
    _form(f"{_SUGGESTION}/reject", Role.REVIEWER, "review reject", "reject"),
    _form(f"{_SUGGESTION}/comment", Role.REVIEWER, "review comment", "comment"),
    _form(f"{_SUGGESTION}/edited", Role.EDITOR, "review edit", "edit", longest=MOST_SENT),
)
"""Every address that changes something."""


logger = logging.getLogger(__name__)


def routes(datasette: Any) -> list[tuple[str, View]]:
    """Return every address of ours with what answers it."""
    found: list[tuple[str, View]] = [
        (rf"^{PREFIX}/static/(?P<name>[a-z.]+)$", _static),
        (rf"^{PREFIX}/run/(?P<run>[^/]+)/events$", _events),
    ]
    found += [(post.pattern, posted(post)) for post in POSTS]
    if (served := served_by(datasette)) is not None and served.door.sign_in:
        found += [(f"^{SIGN_IN}$", sign_in), (f"^{SIGN_OUT}$", sign_out), (f"^{YOU}$", you)]
    found += [(route.pattern, _view(route)) for route in PAGES]
    found.append((rf"^{PREFIX}/.*$", _view(Route("", _nowhere))))
    if served_by(datasette) is not None:
        found.append((r"^/$", _home))
    return found


def _nowhere(look: Look) -> Page:
    del look
    raise UsageError("there is no such page", hint="it may have moved, or the address is cut off")


def told(datasette: Any, request: Any, exception: Exception) -> Callable[[], Awaitable[Any]] | None:
    """Return what to say of an error on the pages that `edison serve` serves."""
    if served_by(datasette) is None:
        return None  # whoever serves them has ways of their own
    status = getattr(exception, "status", 500)
    if status == 500 and not isinstance(exception, EdisonError):
        logger.error("a page failed", exc_info=exception)

    async def inner() -> Any:
        if isinstance(exception, EdisonError):
            found = await attached_to(datasette)
            return await refused(
                datasette, request, _links(datasette, found, found[0].name), exception
            )
        said = str(exception) if status != 500 else f"a bug in edison: {type(exception).__name__}"
        if request.path.partition("?")[0].endswith(".json"):
            return Response.json({"ok": False, "error": said, "status": status}, status=status)
        found = await attached_to(datasette)
        page = problem_page(status, said)
        links = _links(datasette, found, found[0].name)
        return await rendered(datasette, request, links, page, status)

    return inner


async def _home(datasette: Any) -> Any:
    return Response.redirect(datasette.urls.path(PREFIX))


async def _static(request: Any) -> Any:
    found = asset(request.url_vars["name"])
    if found is None:
        raise NotFound("there is no such file")
    body, kind = found
    long = "public, max-age=31536000, immutable"
    headers = {**PAGE_HEADERS, "cache-control": long, KEEP: long}
    return Response(body, content_type=kind, headers=headers)


async def _events(datasette: Any, request: Any, send: Any, receive: Any) -> None:
    place, _ = await _place(datasette, request, Args(dict(_pairs(request))))
    last = request.headers.get("last-event-id") or request.args.get("since") or "0"
    seen = int(last) if last.isascii() and last.isdigit() else 0
    database = datasette.get_database(place.name)
    chunks = stream(database, place, request.url_vars["run"], seen)
    await send_stream(send, receive, chunks)


async def menu(datasette: Any) -> list[dict[str, str]]:
    """Return the link to our pages, if there is anything to show."""
    if not await attached_to(datasette):
        return []
    return [{"href": datasette.urls.path(PREFIX), "label": "edison: results as pages"}]


async def database_menu(datasette: Any, database: str) -> list[dict[str, str]]:
    """Return the link from a database of ours to its pages."""
    found = await attached_to(datasette)
    if database not in {each.name for each in found}:
        return []
    links = _links(datasette, found, database)
    return [{"href": links.to(), "label": "edison: results as pages"}]


def _links(datasette: Any, found: list[Attached], database: str) -> Links:
    return Links(datasette.urls.path, database, several=found[0].name != database)


def _view(route: Route) -> View:
    async def view(datasette: Any, request: Any) -> Any:
        return await _answer(datasette, request, route)

    return view


async def _answer(datasette: Any, request: Any, route: Route) -> Any:
    args = Args(dict(_pairs(request)))
    place, links = await _place(datasette, request, args, open_=route.open)
    actor, served = await who(datasette, request), served_by(datasette)

    def looked(connection: sqlite3.Connection) -> Any:
        with one_state(connection):
            return page_of(connection)

    def page_of(connection: sqlite3.Connection) -> Any:
        if not route.any_version and not is_current(connection):
            return Page("other_version", "Results of another version")
        look = Look(
            connection=connection,
            path=dict(request.url_vars),
            args=args,
            links=links,
            root=place.root,
            file=place.path,
            now=formatting.now(),
            actor=actor,
            actions=served.actions if served is not None else None,
            patient=served is None or served.patient,
        )
        return route.view(look)

    status = 200
    try:
        page = await datasette.get_database(place.name).execute_fn(looked)
    except EdisonError as error:
        status = status_of(error, 404)
        page = problem_page(status, error.message, error.hint)
    if isinstance(page, Page):
        return await rendered(datasette, request, links, page, status)
    if route.open and served and served.door.sign_in and actor is None:
        page = {key: page[key] for key in ("_status", "ok")}
    return _data(page, route)


async def _place(
    datasette: Any, request: Any, args: Args, *, open_: bool = False
) -> tuple[Attached, Links]:
    """Return the results that a request is about, if whoever asks may see them."""
    found = await attached_to(datasette)
    place = next((each for each in found if args.text("db") in ("", each.name)), None)
    if place is None:
        raise NotFound("no results of edison are attached")
    if not open_:
        await _refuse_strangers(datasette, request, place)
    return place, _links(datasette, found, place.name)


def _pairs(request: Any) -> list[tuple[str, list[str]]]:
    return [(key, request.args.getlist(key)) for key in request.args]


async def _refuse_strangers(datasette: Any, request: Any, place: Attached) -> None:
    """Refuse whoever may not see the database in Datasette either."""
    if hasattr(datasette, "permission_allowed"):  # 0.65
        allowed = await datasette.permission_allowed(
            request.actor, "view-database", place.name, default=True
        )
    else:
        from datasette.resources import DatabaseResource  # 1.0

        allowed = await datasette.allowed(
            action="view-database", resource=DatabaseResource(place.name), actor=request.actor
        )
    if not allowed:
        raise Forbidden("view-database")


def _data(value: Any, route: Route) -> Any:
    headers = dict(PAGE_HEADERS)
    if isinstance(value, dict):
        status = int(value.pop("_status", 200))
        body = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        return Response(
            body, status=status, content_type="application/json; charset=utf-8", headers=headers
        )
    return Response(value, content_type=route.content_type, headers=headers)
