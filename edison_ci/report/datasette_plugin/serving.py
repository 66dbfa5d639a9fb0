"""How are the pages served, and to whom?

Datasette with the settings that large results need, on an address of this machine only.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Any

from edison_ci.errors import UsageError
from edison_ci.frozen import dataclass
from edison_ci.report.datasette_plugin.attached import Served, serve_with
from edison_ci.report.datasette_plugin.routing import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edison_ci.operate.actors import Identity
    from edison_ci.report.datasette_plugin.clerk import Clerk

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
SETTINGS = {
    "allow_download": False,
    "default_cache_ttl": 0,  # a run may be going on
    "default_page_size": 50,
    "facet_suggest_time_limit_ms": 50,
    "facet_time_limit_ms": 500,
    "max_returned_rows": 1_000,
    "num_sql_threads": 4,
    "sql_time_limit_ms": 3_000,
    "suggest_facets": False,  # takes seconds on a million rows
    "truncate_cells_html": 300,
}
_WAITING = 128
_GRACE_S = 2


@dataclass(frozen=True, slots=True)
class Serving:
    """What is served, and where."""

    results: Path
    root: Path
    title: str
    host: str
    port: int
    """0 for any that is free."""
    person: Identity | None = None
    """Who serves it, and may change things as the role allows; None if pages only read."""
    clerk: Clerk | None = None
    """Who carries out what is decided on a page."""


def refuse_beyond_this_machine(host: str) -> None:
    """Refuse an address that others can reach: nobody would be asked who they are."""
    if host in LOCAL_NAMES:
        return
    try:
        local = ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        local = False
    if not local:
        raise UsageError(
            f"{host} can be reached from other machines, and there is no sign-in yet",
            hint="serve on 127.0.0.1 and tunnel to it (ssh -L), or publish static pages",
        )


def application(serving: Serving) -> Any:
    """Return Datasette on the results, with our settings."""
    from datasette.app import Datasette  # half a second, and only serving needs it

    found = Datasette(
        [str(serving.results)],
        settings=SETTINGS,
        metadata={"title": serving.title},
    )
    hosts = LOCAL_NAMES | {serving.host.strip("[]").casefold()}
    serve_with(found, Served(serving.root, hosts, serving.person, serving.clerk))
    return found


def serve(serving: Serving, on_ready: Callable[[str], None]) -> None:
    """Serve until somebody stops it; `on_ready` is told the address once it can be asked."""
    import uvicorn

    listening = _listen(serving.host, serving.port)
    port = listening.getsockname()[1]
    host = f"[{serving.host}]" if ":" in serving.host else serving.host
    config = uvicorn.Config(
        application(serving).app(),
        log_level="warning",
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
    )
    # The socket listens already, so whoever asks now is answered when the server is up.
    on_ready(f"http://{host}:{port}{PREFIX}")
    uvicorn.Server(config).run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host.strip("[]"), port))
        listening.listen(_WAITING)
    except OSError as error:
        listening.close()
        raise UsageError(
            f"cannot serve on {host}:{port}: {error.strerror or error}",
            hint="another program may use the port: --port 0 takes a free one",
        ) from None
    return listening
