"""The server of the pages.

Datasette with the settings that large results need. Beyond this machine people sign in.
"""

from __future__ import annotations

import importlib
import ipaddress
import pkgutil
import socket
from typing import TYPE_CHECKING, Any

from edison_ci import formatting
from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.web import pages
from edison_ci.web.databases import Door, Served, serve_with
from edison_ci.web.routing import PREFIX
from edison_ci.web.workspace import project_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edison_ci.operate.actors import Identity
    from edison_ci.review.actions import ReviewActions


# Whoever opens a page first would wait for what it imports, for its template and for the files of
# the project.
_HEAVY = ("numpy", "scipy.special")
"""What statistics import where they need it."""


def prepare(datasette: Any, root: Path) -> None:
    """Import what pages need, compile their templates and read the project."""
    project_in(root, formatting.now().date())
    for found in pkgutil.iter_modules(pages.__path__, f"{pages.__name__}."):
        importlib.import_module(found.name)
    for name in _HEAVY:
        importlib.import_module(name)
    # 1.0 has a function for it.
    ask = getattr(datasette, "get_jinja_environment", None)
    environment = ask() if ask is not None else datasette.jinja_env
    for name in environment.list_templates(filter_func=lambda name: name.startswith("edison/")):
        environment.get_template(name)


LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
SETTINGS = {
    "allow_download": False,
    "allow_signed_tokens": False,  # of 1.0; ours are made by edison roles token
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
    actions: ReviewActions | None = None
    """Who carries out what is decided on a page."""
    door: Door = Door()
    patient: bool = False
    """Whether pages may take as long as they need, since nobody waits for them."""


def is_this_machine(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host in LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def application(serving: Serving) -> Any:
    """Return Datasette on the results, with our settings."""
    from datasette.app import Datasette  # half a second, and only serving needs it

    found = Datasette(
        [str(serving.results)],
        settings={**SETTINGS, "force_https_urls": serving.door.tls},
        metadata={"title": serving.title},
    )
    hosts = _hosts(serving)
    served = Served(
        serving.root, hosts, serving.person, serving.actions, serving.door, serving.patient
    )
    serve_with(found, served)
    return found


def _hosts(serving: Serving) -> frozenset[str] | None:
    named = {name.casefold() for name in serving.door.names}
    if not is_this_machine(serving.host):
        return LOCAL_NAMES | named if named else None
    return LOCAL_NAMES | named | {serving.host.strip("[]").casefold()}


def _address(serving: Serving, port: int) -> str:
    """Return where to find the pages, as far as we can tell."""
    if serving.door.tls:
        return f"https://{serving.door.names[0] if serving.door.names else socket.gethostname()}"
    host = serving.host
    if host.strip("[]") in ("0.0.0.0", "::"):
        host = serving.door.names[0] if serving.door.names else socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(serving: Serving, on_ready: Callable[[str, int], None]) -> None:
    """Serve until somebody stops it; `on_ready` is told address and port once it can be asked."""
    import uvicorn

    listening = _listen(serving.host, serving.port)
    port = listening.getsockname()[1]
    datasette = application(serving)
    prepare(datasette, serving.root)
    config = uvicorn.Config(
        datasette.app(),
        log_level="warning",
        lifespan="on",
        ws="none",
        server_header=False,
        proxy_headers=False,  # who may say where a request comes from is ours to tell
        timeout_graceful_shutdown=_GRACE_S,
    )
    # The socket listens already, so whoever asks now is answered when the server is up.
    on_ready(f"{_address(serving, port)}{PREFIX}", port)
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
