"""Routes and responses: pages, forms, static files, live progress and errors.

A request finds its results database, the function of the page reads one consistent state of it in a
thread of Datasette, and a template is rendered. The base template is not Datasette's own, which has
inline scripts that the content security policy forbids.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from contextlib import aclosing
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from datasette import Forbidden, NotFound, Response

from edison_ci import feature, utc
from edison_ci.access.site import Role
from edison_ci.api.try_grid import find_try
from edison_ci.errors import EdisonError, UsageError
from edison_ci.feature import FormEntry
from edison_ci.report import components
from edison_ci.results.live_progress import PhaseChange, phase_changes, progress_of
from edison_ci.results.run_lists import experiments
from edison_ci.results.stored_runs import current_run
from edison_ci.sanitize import json_text
from edison_ci.spelling import did_you_mean
from edison_ci.store.database import is_current, one_state
from edison_ci.store.runs import find_run
from edison_ci.web import formats
from edison_ci.web.api import api_routes
from edison_ci.web.databases import results_databases, settings_of
from edison_ci.web.exports import FORMATS, Export, experiment_export, pieces_of, run_export
from edison_ci.web.forms import LONGEST, FormRoute, form_view
from edison_ci.web.identity import KNOWN, NEEDED, current_actor, current_site
from edison_ci.web.page_context import (
    GITHUB_CALLBACK,
    PREFIX,
    SIGN_IN,
    SIGN_IN_GITHUB,
    SIGN_OUT,
    YOU,
    Args,
    Links,
    Page,
    PageContext,
)
from edison_ci.web.pages import (
    answers,
    case_history,
    compare,
    experiment,
    home,
    models,
    run,
    search,
    steering,
)
from edison_ci.web.pages.live import live_view
from edison_ci.web.rendering import asset, problem_page, render_error, render_page, status_of
from edison_ci.web.security import KEEP, MOST_SENT, PAGE_HEADERS
from edison_ci.web.sign_in import end_github, sign_in, sign_out, start_github, you
from edison_ci.web.workspace import project_in

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping

    from edison_ci.access.site import Actor
    from edison_ci.api.try_grid import TryGrid
    from edison_ci.web.databases import ResultsDatabase

    View = Callable[..., Awaitable[Any]]
    PageFunction = Callable[[PageContext], Page | dict[str, Any] | str]

logger = logging.getLogger(__name__)

# --- routes ---------------------------------------------------------------------------------------


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
    """Return the pattern of a path: `{name}` stands for a part of it."""

    def group(found: re.Match[str]) -> str:
        return f"(?P<{found[1]}>{_PARAMETERS.get(found[1], '[^/]+')})"

    return f"^{PREFIX}{re.sub(r'{([a-z]+)}', group, path)}$"


def _page(path: str, page: PageFunction) -> Route:
    return Route(_pattern(path), page)


PAGES = (
    _page("/?", home.home),
    _page("/experiment/{experiment}", experiment.experiment),
    _page("/run/{run}", run.run),
    _page("/run/{run}/case", answers.case),
    _page("/run/{run}/decisions", run.decisions),
    _page("/run/{run}/criteria", run.criteria),
    _page("/run/{run}/slices", run.slices),
    _page("/run/{run}/judges", run.judges),
    _page("/run/{run}/log", run.log),
    _page("/run/{run}/steer", steering.steer),
    _page("/experiment/{experiment}/plan", steering.plan),
    Route(f"^{PREFIX}/cell/(?P<cell>[^/]+)$", answers.cell),
    _page("/compare", compare.compare),
    _page("/leaderboard", experiment.leaderboard),
    _page("/costs", home.costs),
    _page("/prompts", experiment.prompts),
    _page("/prompt/{prompt}", experiment.prompt),
    _page("/dataset/{experiment}/history", case_history.history),
    _page("/search", search.search),
    _page("/models", models.models),
    _page("/audit", home.audit),
    _page("/help", home.keys),
)
"""Pages of the core."""


def all_pages() -> Iterator[Route]:
    """Yield every page; the first route that matches is used."""
    yield from PAGES
    for entry in feature.pages():
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


_FORMS = "edison_ci.web.steer_forms"
POSTS = (
    FormEntry("/experiment/{experiment}/start", "editor", "start run", f"{_FORMS}:start"),
    FormEntry("/run/{run}/change", "editor", "steer", f"{_FORMS}:steer"),
    FormEntry("/run/{run}/pause", "editor", "pause run", f"{_FORMS}:pause"),
    FormEntry("/run/{run}/go-on", "editor", "resume run", f"{_FORMS}:resume"),
    FormEntry("/run/{run}/cancel", "editor", "cancel run", f"{_FORMS}:cancel"),
)
"""Addresses of the core that change something."""


def routes(datasette: Any) -> list[tuple[str, View]]:
    """Return the patterns of all addresses with their views."""
    found: list[tuple[str, View]] = [
        (rf"^{PREFIX}/static/(?P<name>[a-z.]+)$", _static),
        (rf"^{PREFIX}/run/(?P<run>[^/]+)/events$", _events),
        (rf"^{PREFIX}/run/(?P<run>[^/]+)/export$", _export),
        (rf"^{PREFIX}/experiment/(?P<experiment>[^/]+)/export$", _export),
        (rf"^{PREFIX}/try/(?P<try>[0-9a-f]{{32}})/events$", _try_events),
    ]
    found += [route for made in feature.routes() for route in made()]
    found += api_routes()
    found += [(post.pattern, form_view(post)) for post in all_forms()]
    if (settings := settings_of(datasette)) is not None and settings.access.sign_in:
        found += [(f"^{SIGN_IN}$", sign_in), (f"^{SIGN_OUT}$", sign_out), (f"^{YOU}$", you)]
        if settings.access.github is not None:
            found += [(f"^{SIGN_IN_GITHUB}$", start_github), (f"^{GITHUB_CALLBACK}$", end_github)]
    found += [(route.pattern, _view(route)) for route in all_pages()]
    found.append((rf"^{PREFIX}/.*$", _view(Route("", _not_found))))
    if settings is not None:
        found.append((r"^/$", _home))
    return found


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
    found = await results_databases(datasette)
    if database not in {each.name for each in found}:
        return []
    links = _links(datasette, found, database)
    return [{"href": links.to(), "label": "edison: results as pages"}]


# --- pages ----------------------------------------------------------------------------------------


def _view(route: Route) -> View:
    async def view(datasette: Any, request: Any) -> Any:
        return await _respond(datasette, request, route)

    return view


async def _respond(datasette: Any, request: Any, route: Route) -> Any:
    args = Args(dict(_pairs(request)))
    database, links = await _database(datasette, request, args, open_=route.open)
    actor, settings = await current_actor(datasette, request), settings_of(datasette)

    def read_page(connection: sqlite3.Connection) -> Any:
        with one_state(connection):
            if not route.any_version and not is_current(connection):
                return Page("other_version", "Results of another version")
            context = PageContext(
                connection=connection,
                path=dict(request.url_vars),
                args=args,
                links=links,
                root=database.root,
                file=database.path,
                now=utc.now(),
                actor=actor,
                actions=settings.actions if settings is not None else None,
                synchronous=settings is None or settings.synchronous,
                server=settings,
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


async def _database(
    datasette: Any, request: Any, args: Args, *, open_: bool = False
) -> tuple[ResultsDatabase, Links]:
    """Return the results database of a request, if the visitor may see it."""
    found = await results_databases(datasette)
    database = next((each for each in found if args.text("db") in ("", each.name)), None)
    if database is None:
        raise NotFound("no results of edison are attached")
    if not open_:
        await _require_view_permission(datasette, request, database)
    return database, _links(datasette, found, database.name)


def _links(datasette: Any, found: list[ResultsDatabase], database: str) -> Links:
    return Links(datasette.urls.path, database, several=found[0].name != database)


def _pairs(request: Any) -> list[tuple[str, list[str]]]:
    return [(key, request.args.getlist(key)) for key in request.args]


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
    found = asset(request.url_vars["name"])
    if found is None:
        raise NotFound("this file does not exist")
    body, kind = found
    long = "public, max-age=31536000, immutable"
    headers = {**PAGE_HEADERS, "cache-control": long, KEEP: long}
    return Response(body, content_type=kind, headers=headers)


# --- errors ---------------------------------------------------------------------------------------


def error_response(
    datasette: Any, request: Any, exception: Exception
) -> Callable[[], Awaitable[Any]] | None:
    """Return the response for an exception; None unless `edison serve` started the server."""
    if settings_of(datasette) is None:
        return None
    status = getattr(exception, "status", 500)
    if status == 500 and not isinstance(exception, EdisonError):
        logger.error("a page failed", exc_info=exception)

    async def respond() -> Any:
        found = await results_databases(datasette)
        links = _links(datasette, found, found[0].name)
        if isinstance(exception, EdisonError):
            return await render_error(datasette, request, links, exception)
        # The text of an unexpected error may contain data of the results.
        text = str(exception) if status != 500 else f"a bug in edison: {type(exception).__name__}"
        if request.path.partition("?")[0].endswith(".json"):
            return Response.json({"ok": False, "error": text, "status": status}, status=status)
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
            return Response.json({"ok": False, "error": text, "status": 403}, status=403)
        name = next(name for name in datasette.databases if not name.startswith("_"))
        links = Links(datasette.urls.path, name, several=False)
        page = problem_page(403, text, "ask an admin, or use the pages instead")
        return await render_page(datasette, request, links, page, 403)

    return respond


# --- live progress --------------------------------------------------------------------------------

# A stream of server-sent events with the progress of a run. It ends with the run, or after a while;
# the browser then reconnects with the number of the last event.
EVERY_S = 0.25
_QUIET_S = 5.0
_LONGEST_S = 300.0


async def _events(datasette: Any, request: Any, send: Any, receive: Any) -> None:
    place, links = await _database(datasette, request, Args(dict(_pairs(request))))
    last = request.headers.get("last-event-id") or request.args.get("since") or "0"
    since = int(last) if last.isascii() and last.isdigit() else 0
    database = datasette.get_database(place.name)
    follower = ProgressFollower(place, request.url_vars["run"], links)
    chunks = stream_progress(database, follower, since)
    await _send_stream(send, receive, chunks)


class ProgressFollower:
    """Reads the progress of a run again and again; changes of its status are read once."""

    def __init__(self, place: ResultsDatabase, wanted: str, links: Links) -> None:
        self._place, self._wanted, self._links = place, wanted, links
        self._changes: list[PhaseChange] = []

    def read(self, connection: sqlite3.Connection, since: int) -> dict[str, Any] | None:
        """Return the progress of the run, with the texts of its page; None if nothing happened."""
        if not is_current(connection):
            raise NotFound("results of another version")
        found = find_run(connection, self._wanted)
        if self._place.root is not None:
            found = current_run(self._place.root / ".edison" / "locks", found)
        progress = progress_of(connection, found)
        if progress.seq <= since and found.moving:
            return None
        after = self._changes[-1].seq if self._changes else 0
        self._changes += phase_changes(connection, found.id, after=after)
        return {
            **progress.as_json(),
            "status": found.status,
            "moving": found.moving,
            "view": live_view(connection, found, progress, self._changes, self._links),
        }


async def stream_progress(
    database: Any, follower: ProgressFollower, since: int
) -> AsyncIterator[bytes]:
    """Yield the progress of a run as events, also now and then while nothing happens."""
    loop = asyncio.get_running_loop()
    end, quiet = loop.time() + _LONGEST_S, loop.time() + _QUIET_S
    yield b"retry: 1000\n\n"
    while loop.time() < end:
        try:
            known = since if loop.time() < quiet else -1
            found = await database.execute_fn(partial(follower.read, since=known))
        except EdisonError:
            return
        if found is not None:
            since, quiet = found["seq"], loop.time() + _QUIET_S
            yield f"id: {since}\nevent: progress\ndata: {json.dumps(found)}\n\n".encode()
            if not found["moving"]:
                return
        await asyncio.sleep(EVERY_S)


async def _try_events(datasette: Any, request: Any, send: Any, receive: Any) -> None:
    _, links = await _database(datasette, request, Args(dict(_pairs(request))))
    actor = await current_actor(datasette, request)
    grid = find_try(request.url_vars["try"], actor.name) if actor is not None else None

    async def render(template: str, **values: Any) -> str:
        known = {"to": links.to, "show": formats, "ui": components, "grid": grid, **values}
        return str(await datasette.render_template(f"edison/{template}.html", known, request))

    await _send_stream(send, receive, stream_try(grid, render))


async def stream_try(
    grid: TryGrid | None, render: Callable[..., Awaitable[str]]
) -> AsyncIterator[bytes]:
    """Yield the cells of a try as markup, each once, until it is complete."""
    loop, sent = asyncio.get_running_loop(), 0
    quiet = loop.time() + _QUIET_S
    yield b"retry: 1000\n\n"
    while True:
        ended = grid is None or grid.ended  # asked first: nothing may come between
        new = grid.finished(sent) if grid is not None else []
        sent += len(new)
        if new or ended:
            quiet = loop.time() + _QUIET_S
            cells = {cell.number: await render("try_cell", cell=cell) for cell in new}
            head = await render("try_head") if grid is not None else ""
            data = json.dumps({"cells": cells, "head": head, "ended": ended})
            yield f"event: cells\ndata: {data}\n\n".encode()
        elif loop.time() > quiet:
            quiet = loop.time() + _QUIET_S
            yield b": keep-alive\n\n"
        if ended:
            return
        await asyncio.sleep(EVERY_S)


# --- downloads ------------------------------------------------------------------------------------


async def _export(datasette: Any, request: Any, send: Any, receive: Any) -> None:
    """Send a run, or the runs of an experiment, as a file."""
    args = Args(dict(_pairs(request)))
    place, links = await _database(datasette, request, args)
    try:
        export = await datasette.get_database(place.name).execute_fn(
            lambda connection: _exported(connection, place, request.url_vars, args)
        )
    except EdisonError as error:
        status = status_of(error, 404)
        page = problem_page(status, error.message, error.hint)
        await (await render_page(datasette, request, links, page, status)).asgi_send(send)
        return
    assert place.path is not None, "a results file is on disk"
    settings, actor = settings_of(datasette), await current_actor(datasette, request)
    if settings is not None and actor is not None:
        site = await asyncio.to_thread(current_site, settings.root)
        await asyncio.to_thread(site.note_export, export.name, "a browser", actor)
    kind = {
        "content-type": export.content_type,
        "content-disposition": f'attachment; filename="{export.name}"',
    }
    # A download that is broken off leaves its connection at once.
    async with aclosing(pieces_of(place.path, export.texts)) as pieces:
        await _send_stream(send, receive, pieces, kind)


def _exported(
    connection: sqlite3.Connection, place: ResultsDatabase, path: dict[str, str], args: Args
) -> Export:
    """Return the file that an address names; raises UsageError if there is none."""
    kind = args.text("format")
    if kind not in FORMATS:
        hint = did_you_mean(kind, FORMATS, label="formats")
        raise UsageError(f"there is no format {kind!r}", hint=hint)
    if not is_current(connection):
        raise UsageError("these are results of another version")
    with one_state(connection):
        if "run" in path:
            found = find_run(connection, path["run"])
            project = None if place.root is None else project_in(place.root, utc.now().date())
            return run_export(found.id, found.experiment, kind, project)
        names = experiments(connection)
    if path["experiment"] not in names:
        hint = did_you_mean(path["experiment"], names, label="experiments")
        raise UsageError(f"the experiment {path['experiment']!r} has no stored run", hint=hint)
    return experiment_export(path["experiment"], kind)


_EVENT_STREAM = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}


async def _send_stream(
    send: Any,
    receive: Any,
    chunks: AsyncIterator[bytes],
    kind: Mapping[str, str] = MappingProxyType(_EVENT_STREAM),
) -> None:
    """Send a stream until it ends or the browser disconnects."""
    headers = [(k.encode(), v.encode()) for k, v in {**PAGE_HEADERS, **kind}.items()]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    disconnected = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        async for chunk in chunks:
            if disconnected.done():
                return
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        disconnected.cancel()


async def _wait_for_disconnect(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
