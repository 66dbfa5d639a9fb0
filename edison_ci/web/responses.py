"""Routes and responses: pages, forms, static files and errors.

A request finds its results database, the function of the page reads one consistent state of it in a
thread of Datasette, and a template is rendered. The base template is not Datasette's own, which has
inline scripts that the content security policy forbids.
"""

from __future__ import annotations

import asyncio
import logging
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from datasette import NotFound, Response

from edison_ci import feature, utc
from edison_ci.access.accounts import INVITATION
from edison_ci.access.site import Role
from edison_ci.errors import EdisonError, UsageError
from edison_ci.feature import FormEntry, PageEntry
from edison_ci.results.stored_runs import is_current, one_state, timed
from edison_ci.sanitize import json_text
from edison_ci.web.api import api_routes
from edison_ci.web.databases import memory_of, results_databases, settings_of
from edison_ci.web.forms import LONGEST, FormRoute, form_view
from edison_ci.web.identity import KNOWN, NEEDED, current_actor, current_site
from edison_ci.web.page_context import (
    GITHUB_CALLBACK,
    PREFIX,
    SIGN_IN,
    SIGN_IN_GITHUB,
    SIGN_OUT,
    YOU,
    Links,
    Page,
    PageContext,
)
from edison_ci.web.rendering import asset, problem_page, render_error, render_page, status_of
from edison_ci.web.requests import args_of, links_to, requested_database
from edison_ci.web.security import KEEP, MOST_SENT, PAGE_HEADERS
from edison_ci.web.sign_in import end_github, invitation, sign_in, sign_out, start_github, you
from edison_ci.web.streams import export, run_events, try_events
from edison_ci.web.traces import error_mark

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable, Callable, Iterator

    from edison_ci.access.site import Actor

    View = Callable[..., Awaitable[Any]]
    PageFunction = Callable[[PageContext], Page | dict[str, Any] | str]

logger = logging.getLogger(__name__)


class Route(NamedTuple):
    """An address and the function of its page."""

    pattern: str
    page: PageFunction
    content_type: str = "text/plain; version=0.0.4; charset=utf-8"
    """Content type of a response that is neither HTML nor JSON."""
    any_version: bool = False
    """Whether it can read a results file of another version."""
    open: bool = False
    """Whether it needs no sign-in; details are for members only."""


_PARAMETERS = {"alert": "[0-9]{1,9}", "cell": "[0-9a-f]{12,64}"}
"""What the parameters of an address may be, other than a name."""


def _pattern(path: str) -> str:
    """Return the pattern of a path: `{name}` matches a part of it."""

    def group(parameter: re.Match[str]) -> str:
        return f"(?P<{parameter[1]}>{_PARAMETERS.get(parameter[1], '[^/]+')})"

    return f"^{PREFIX}{re.sub(r'{([a-z]+)}', group, path)}$"


_PAGES = "edison_ci.web.pages"
PAGES = (
    PageEntry("/?", f"{_PAGES}.home:home"),
    PageEntry("/experiment/{experiment}", f"{_PAGES}.experiment:experiment"),
    PageEntry("/run/{run}", f"{_PAGES}.run:run"),
    PageEntry("/run/{run}/case", f"{_PAGES}.answers:case"),
    PageEntry("/run/{run}/decisions", f"{_PAGES}.run_tabs:decisions"),
    PageEntry("/run/{run}/criteria", f"{_PAGES}.run_tabs:criteria"),
    PageEntry("/run/{run}/slices", f"{_PAGES}.run_tabs:slices"),
    PageEntry("/run/{run}/judges", f"{_PAGES}.run_tabs:judges"),
    PageEntry("/run/{run}/log", f"{_PAGES}.run_tabs:log"),
    PageEntry("/run/{run}/steer", f"{_PAGES}.steering:steer"),
    PageEntry("/experiment/{experiment}/plan", f"{_PAGES}.steering:plan"),
    PageEntry("/cell/(?P<cell>[^/]+)", f"{_PAGES}.answers:cell"),
    PageEntry("/compare", f"{_PAGES}.compare:compare"),
    PageEntry("/leaderboard", f"{_PAGES}.leaderboard:leaderboard"),
    PageEntry("/costs", f"{_PAGES}.home:costs"),
    PageEntry("/prompts", f"{_PAGES}.prompts:prompts"),
    PageEntry("/prompt/{prompt}", f"{_PAGES}.prompts:prompt"),
    PageEntry("/dataset/{experiment}/history", f"{_PAGES}.case_history:history"),
    PageEntry("/search", f"{_PAGES}.search:search"),
    PageEntry("/models", f"{_PAGES}.models:models"),
    PageEntry("/audit", f"{_PAGES}.home:audit"),
    PageEntry("/help", f"{_PAGES}.home:keys"),
)
"""Pages of the core."""


def all_pages() -> Iterator[Route]:
    """Yield every page; the first route that matches is used."""
    for entry in (*PAGES, *feature.pages()):
        page = feature.load(entry.place)
        yield Route(_pattern(entry.path), page, any_version=entry.any_version, open=entry.open)


def all_forms() -> Iterator[FormRoute]:
    """Yield every address that changes something."""
    for entry in (*POSTS, *feature.forms()):
        do = feature.load(entry.place)
        longest = MOST_SENT if entry.long else LONGEST
        of = entry.path.split("/")[1]
        yield FormRoute(
            _pattern(entry.path), Role[entry.role.upper()], entry.action, do, longest, of
        )


_FORMS = "edison_ci.web.pages.steering"
POSTS = (
    FormEntry("/experiment/{experiment}/start", "editor", "start run", f"{_FORMS}:start_form"),
    FormEntry("/run/{run}/change", "editor", "steer", f"{_FORMS}:steer_form"),
    FormEntry("/run/{run}/pause", "editor", "pause run", f"{_FORMS}:pause_form"),
    FormEntry("/run/{run}/go-on", "editor", "resume run", f"{_FORMS}:resume_form"),
    FormEntry("/run/{run}/cancel", "editor", "cancel run", f"{_FORMS}:cancel_form"),
)
"""Addresses of the core that change something."""


def routes(datasette: Any) -> list[tuple[str, View]]:
    """Return the patterns of all addresses with their views."""
    views: list[tuple[str, View]] = [
        (rf"^{PREFIX}/static/(?P<name>[a-z.]+)$", _static),
        (rf"^{PREFIX}/run/(?P<run>[^/]+)/events$", run_events),
        (rf"^{PREFIX}/run/(?P<run>[^/]+)/export$", export),
        (rf"^{PREFIX}/experiment/(?P<experiment>[^/]+)/export$", export),
        (rf"^{PREFIX}/try/(?P<try>[0-9a-f]{{32}})/events$", try_events),
    ]
    views += [route for made in feature.routes() for route in made()]
    views += api_routes()
    views += [(post.pattern, form_view(post)) for post in all_forms()]
    if (settings := settings_of(datasette)) is not None and settings.access.sign_in:
        views += [(f"^{SIGN_IN}$", sign_in), (f"^{SIGN_OUT}$", sign_out), (f"^{YOU}$", you)]
        views.append((f"^{INVITATION}$", invitation))
        if settings.access.github is not None:
            views += [(f"^{SIGN_IN_GITHUB}$", start_github), (f"^{GITHUB_CALLBACK}$", end_github)]
    views += [(route.pattern, _view(route)) for route in all_pages()]
    views.append((rf"^{PREFIX}/.*$", _view(Route("", _not_found))))
    if settings is not None:
        views.append((r"^/$", _home))
    return views


def _not_found(context: PageContext) -> Page:
    del context
    raise UsageError("this page does not exist", hint="check the address")


async def menu(datasette: Any) -> list[dict[str, str]]:
    """Return the link to the pages for Datasette's menu, if there are results."""
    if not await results_databases(datasette):
        return []
    return [{"href": datasette.urls.path(PREFIX), "label": "edison: results as pages"}]


async def database_menu(datasette: Any, database: str) -> list[dict[str, str]]:
    """Return the link from a results database to its pages."""
    databases = await results_databases(datasette)
    if database not in {attached.name for attached in databases}:
        return []
    links = links_to(datasette, databases, database)
    return [{"href": links.to(), "label": "edison: results as pages"}]


def _view(route: Route) -> View:
    async def view(datasette: Any, request: Any) -> Any:
        return await _respond(datasette, request, route)

    return view


async def _respond(datasette: Any, request: Any, route: Route) -> Any:
    database, links = await requested_database(datasette, request, open_=route.open)
    actor, settings = await current_actor(datasette, request), settings_of(datasette)

    def read_page(connection: sqlite3.Connection) -> Any:
        with one_state(connection):
            if not route.any_version and not is_current(connection):
                return Page("other_version", "Results of another version")
            context = PageContext(
                connection=timed(connection),
                path=dict(request.url_vars),
                args=args_of(request),
                links=links,
                root=database.root,
                file=database.path,
                now=utc.now(),
                actor=actor,
                actions=settings.actions if settings is not None else None,
                synchronous=settings is None or settings.synchronous,
                server=settings,
                memory=memory_of(datasette),
            )
            return route.page(context)

    status = 200
    try:
        page = await datasette.get_database(database.name).execute_fn(read_page)
    except EdisonError as error:
        status = status_of(error, 404)
        page = problem_page(status, error.message, error.hint)
    if isinstance(page, Page):
        return await render_page(datasette, request, links, page, status)
    if route.open and settings and settings.access.sign_in and actor is None:
        page = {key: page[key] for key in ("_status", "ok")}
    return _data_response(page, route)


def _data_response(value: Any, route: Route) -> Any:
    headers = dict(PAGE_HEADERS)
    if isinstance(value, dict):
        status = int(value.pop("_status", 200))
        body = f"{json_text(value)}\n"
        return Response(
            body, status=status, content_type="application/json; charset=utf-8", headers=headers
        )
    return Response(value, content_type=route.content_type, headers=headers)


async def _home(datasette: Any) -> Any:
    settings = settings_of(datasette)
    assert settings is not None, "the address is that of edison serve"
    return Response.redirect(datasette.urls.path(settings.front))


async def _static(request: Any) -> Any:
    content = asset(request.url_vars["name"])
    if content is None:
        raise NotFound("this file does not exist")
    body, kind = content
    long = "public, max-age=31536000, immutable"
    headers = {**PAGE_HEADERS, "cache-control": long, KEEP: long}
    return Response(body, content_type=kind, headers=headers)


def error_response(
    datasette: Any, request: Any, exception: Exception
) -> Callable[[], Awaitable[Any]] | None:
    """Return the response for an exception; None unless `edison serve` started the server."""
    if settings_of(datasette) is None:
        return None
    status = getattr(exception, "status", 500)
    if status == 500 and not isinstance(exception, EdisonError):
        logger.error("a page failed", exc_info=exception, extra={"trace_id": error_mark().trace_id})

    async def respond() -> Any:
        databases = await results_databases(datasette)
        links = links_to(datasette, databases, databases[0].name)
        if isinstance(exception, EdisonError):
            return await render_error(datasette, request, links, exception)
        # The text of an unexpected error may contain data of the results.
        text = str(exception) if status != 500 else f"a bug in edison: {type(exception).__name__}"
        if request.path.partition("?")[0].endswith(".json"):
            body = {"ok": False, "error": text, "status": status, **error_mark()._asdict()}
            return Response.json(body, status=status)
        page = problem_page(status, text)
        return await render_page(datasette, request, links, page, status)

    return respond


def forbidden_response(
    datasette: Any, request: Any, message: str
) -> Callable[[], Awaitable[Any]] | None:
    """Return the audited response for a missing role; None unless `edison serve` serves."""
    settings = settings_of(datasette)
    if settings is None:
        return None

    async def respond() -> Any:
        needed = NEEDED.get(message)
        text = f"this needs the role {needed.word} or higher" if needed else message
        actor: Actor | None = request.scope.get(KNOWN)
        if actor is not None:
            site = await asyncio.to_thread(current_site, settings.root)
            entry = site.entry(actor, f"refused: {message}", request.path, after=text)
            await asyncio.to_thread(site.note, entry)
        if request.path.partition("?")[0].endswith(".json"):
            body = {"ok": False, "error": text, "status": 403, **error_mark()._asdict()}
            return Response.json(body, status=403)
        name = next(name for name in datasette.databases if not name.startswith("_"))
        links = Links(datasette.urls.path, name, several=False)
        page = problem_page(403, text, "ask an admin, or use the pages instead")
        return await render_page(datasette, request, links, page, 403)

    return respond
