"""Responses in pieces: live progress as server-sent events, and downloads.

The stream of a run ends with it, or after a while; the browser then reconnects with the number of
the last event.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from datasette import NotFound

from edison_ci import utc
from edison_ci.api.try_grid import find_try
from edison_ci.errors import EdisonError, UsageError
from edison_ci.report import components
from edison_ci.results.live_progress import PhaseChange, phase_changes, progress_of
from edison_ci.results.run_lists import experiments
from edison_ci.results.stored_runs import find_current_run, is_current, one_state
from edison_ci.spelling import did_you_mean
from edison_ci.web import formats
from edison_ci.web.databases import settings_of
from edison_ci.web.exports import FORMATS, Export, experiment_export, pieces_of, run_export
from edison_ci.web.identity import current_actor, current_site
from edison_ci.web.pages.live import live_view
from edison_ci.web.rendering import problem_page, render_page, status_of
from edison_ci.web.requests import args_of, requested_database
from edison_ci.web.security import PAGE_HEADERS
from edison_ci.web.workspace import project_in

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from edison_ci.api.try_grid import TryGrid
    from edison_ci.web.databases import ResultsDatabase
    from edison_ci.web.page_context import Args, Links

EVERY_S = 0.25
_QUIET_S = 5.0
_LONGEST_S = 300.0


async def run_events(datasette: Any, request: Any, send: Any, receive: Any) -> None:
    """Send the progress of a run, from the event that the browser has seen last."""
    place, links = await requested_database(datasette, request)
    last = request.headers.get("last-event-id") or request.args.get("since") or "0"
    since = int(last) if last.isascii() and last.isdigit() else 0
    database = datasette.get_database(place.name)
    follower = ProgressFollower(place, request.url_vars["run"], links)
    chunks = stream_progress(database, follower, since)
    await send_stream(send, receive, chunks)


class ProgressFollower:
    """Reads the progress of a run again and again; changes of its status are read once."""

    def __init__(self, place: ResultsDatabase, wanted: str, links: Links) -> None:
        self._place, self._wanted, self._links = place, wanted, links
        self._changes: list[PhaseChange] = []

    def read(self, connection: sqlite3.Connection, since: int) -> dict[str, Any] | None:
        """Return the progress of the run, with the texts of its page; None if nothing happened."""
        if not is_current(connection):
            raise NotFound("results of another version")
        run = find_current_run(connection, self._wanted, self._place.root)
        progress = progress_of(connection, run)
        if progress.seq <= since and run.moving:
            return None
        after = self._changes[-1].seq if self._changes else 0
        self._changes += phase_changes(connection, run.id, after=after)
        return {
            **progress.as_json(),
            "status": run.status,
            "moving": run.moving,
            "view": live_view(connection, run, progress, self._changes, self._links),
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
            after = since if loop.time() < quiet else -1
            news = await database.execute_fn(partial(follower.read, since=after))
        except EdisonError:
            return
        if news is not None:
            since, quiet = news["seq"], loop.time() + _QUIET_S
            yield f"id: {since}\nevent: progress\ndata: {json.dumps(news)}\n\n".encode()
            if not news["moving"]:
                return
        await asyncio.sleep(EVERY_S)


async def try_events(datasette: Any, request: Any, send: Any, receive: Any) -> None:
    """Send the answers of a try to the person who started it."""
    _, links = await requested_database(datasette, request)
    actor = await current_actor(datasette, request)
    grid = find_try(request.url_vars["try"], actor.name) if actor is not None else None

    async def render(template: str, **values: Any) -> str:
        context = {"to": links.to, "show": formats, "ui": components, "grid": grid, **values}
        return str(await datasette.render_template(f"edison/{template}.html", context, request))

    await send_stream(send, receive, stream_try(grid, render))


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


async def export(datasette: Any, request: Any, send: Any, receive: Any) -> None:
    """Send a run, or the runs of an experiment, as a file."""
    args = args_of(request)
    place, links = await requested_database(datasette, request)
    try:
        file = await datasette.get_database(place.name).execute_fn(
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
        await asyncio.to_thread(site.note_export, file.name, "a browser", actor)
    kind = {
        "content-type": file.content_type,
        "content-disposition": f'attachment; filename="{file.name}"',
    }
    # A download that is broken off leaves its connection at once.
    async with aclosing(pieces_of(place.path, file.texts)) as pieces:
        await send_stream(send, receive, pieces, kind)


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
            run = find_current_run(connection, path["run"])
            project = None if place.root is None else project_in(place.root, utc.now().date())
            return run_export(run.id, run.experiment, kind, project)
        names = experiments(connection)
    if path["experiment"] not in names:
        hint = did_you_mean(path["experiment"], names, label="experiments")
        raise UsageError(f"the experiment {path['experiment']!r} has no stored run", hint=hint)
    return experiment_export(path["experiment"], kind)


_EVENT_STREAM = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}


async def send_stream(
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
