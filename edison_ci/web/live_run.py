"""Pages that follow a run while it goes on.

A stream of server-sent events: how far the run is, whenever the runner has said something new. It
ends when the run does, or by itself after a while; a browser then comes back, with the number of
the last event that it saw.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from datasette import NotFound

from edison_ci.errors import EdisonError
from edison_ci.results.progress import Progress, progress_of
from edison_ci.store.database import is_current
from edison_ci.store.owners import is_alive
from edison_ci.store.runs import find_run
from edison_ci.web.security import PAGE_HEADERS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import AsyncIterator

    from edison_ci.web.databases import Attached

EVERY_S = 0.25
_QUIET_S = 15.0
_LONGEST_S = 300.0


def told_now(
    connection: sqlite3.Connection, place: Attached, wanted: str
) -> tuple[Progress, str, bool]:
    """Return how far a run is, its status, and whether it still goes on."""
    if not is_current(connection):
        raise NotFound("results of another version")
    run = find_run(connection, wanted)
    if place.root is not None:
        locks = place.root / ".edison" / "locks"
        run = run.as_seen(alive=run.owner is not None and is_alive(locks, run.owner))
    return progress_of(connection, run), run.status, run.moving


async def stream(database: Any, place: Attached, wanted: str, seen: int) -> AsyncIterator[bytes]:
    """Yield what happens to a run as events; a comment now and then keeps the line open."""
    loop = asyncio.get_running_loop()
    end, quiet = loop.time() + _LONGEST_S, loop.time() + _QUIET_S
    yield b"retry: 1000\n\n"
    while loop.time() < end:
        try:
            progress, status, moving = await database.execute_fn(
                lambda connection: told_now(connection, place, wanted)
            )
        except EdisonError:
            return
        if progress.seq > seen or not moving:
            seen, quiet = progress.seq, loop.time() + _QUIET_S
            data = json.dumps({**progress.as_json(), "status": status, "moving": moving})
            yield f"id: {seen}\nevent: progress\ndata: {data}\n\n".encode()
        elif loop.time() > quiet:
            quiet = loop.time() + _QUIET_S
            yield b": still there\n\n"
        if not moving:
            return
        await asyncio.sleep(EVERY_S)


async def send_stream(send: Any, receive: Any, chunks: AsyncIterator[bytes]) -> None:
    """Send a stream until it ends or the reader goes away."""
    kind = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}
    headers = [(k.encode(), v.encode()) for k, v in {**PAGE_HEADERS, **kind}.items()]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    gone = asyncio.ensure_future(_left(receive))
    try:
        async for chunk in chunks:
            if gone.done():
                return
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        gone.cancel()


async def _left(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
