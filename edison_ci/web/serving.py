"""The server of the pages: Datasette with settings for large results.

Servers that are reachable from other machines require sign-in.
"""

from __future__ import annotations

import importlib
import ipaddress
import socket
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from edison_ci import feature, utc
from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.results.stored_runs import ensure_results
from edison_ci.templating.compiled import CompiledTemplates
from edison_ci.web import security, workspace
from edison_ci.web.databases import (
    ServerAccess,
    ServerSettings,
    register_settings,
    settings_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edison_ci.access.site import Identity
    from edison_ci.web.databases import Actions, OtherProject, OtherProjects


# Done before the first request, which would otherwise wait for imports, templates and the project.
_HEAVY = ("numpy", "scipy.special")
"""Libraries that statistics import lazily."""


def prepare(datasette: Any, root: Path) -> None:
    """Import libraries, compile templates and load the project."""
    workspace.project_in(root, utc.now().date())
    for name in _HEAVY:
        importlib.import_module(name)
    compile_templates(datasette)


def compile_templates(datasette: Any) -> None:
    """Compile every template of our pages, or take it as it was compiled for another server."""
    environment = _environment(datasette)
    environment.bytecode_cache = _COMPILED
    for name in environment.list_templates(filter_func=lambda name: name.startswith("edison/")):
        environment.get_template(name)


_COMPILED = CompiledTemplates()
"""Each project of a site has its own server."""


def _environment(datasette: Any) -> Any:
    # Datasette 1.0 has a method for it.
    ask = getattr(datasette, "get_jinja_environment", None)
    return ask() if ask is not None else datasette.jinja_env


LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
SETTINGS = {
    "allow_download": False,
    "allow_signed_tokens": False,  # of 1.0; edison roles token makes its own
    "default_cache_ttl": 0,  # a run may be active
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
    """What to serve, and where."""

    results: Path
    root: Path
    title: str
    host: str
    port: int
    """0 for any free port."""
    person: Identity | None = None
    """The person who serves, with their role; None for read-only pages."""
    actions: Actions | None = None
    """Carries out review actions."""
    access: ServerAccess = ServerAccess()
    synchronous: bool = False
    """Whether slow results are computed at once, for pages written to files."""
    projects: OtherProjects | None = None
    """The projects of the site, besides the one that it is; None without others."""


def is_this_machine(host: str) -> bool:
    """Whether an address is reachable only from this machine."""
    if host in LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def application(serving: Serving) -> Any:
    """Return Datasette for the results, with these settings."""
    most = serving.access.per_minute
    settings = ServerSettings(
        root=serving.root,
        hosts=_hosts(serving),
        person=serving.person,
        actions=serving.actions,
        access=serving.access,
        synchronous=serving.synchronous,
        limit=security.RateLimit(most, time.monotonic) if most else None,
        projects=serving.projects,
    )
    return _datasette(serving.results, serving.title, settings)


def _datasette(results: Path, title: str, settings: ServerSettings, base: str = "/") -> Any:
    from datasette.app import Datasette  # takes half a second to import

    chosen = {**SETTINGS, "force_https_urls": settings.access.tls, "base_url": base}
    datasette = Datasette([str(results)], settings=chosen, metadata={"title": title})
    _environment(datasette).bytecode_cache = _COMPILED
    register_settings(datasette, settings)
    return datasette


def project_application(project: OtherProject, settings: ServerSettings, base: str) -> Any:
    """Return Datasette for a project of a site; visitors, limits and counts are those of the site.

    A project without results gets an empty file, which the first push fills.
    """
    site = project.site
    ensure_results(site)
    return _datasette(site.results, project.title, replace(settings, root=site.root), base)


def _hosts(serving: Serving) -> frozenset[str] | None:
    named = {name.casefold() for name in serving.access.names}
    if not is_this_machine(serving.host):
        return LOCAL_NAMES | named if named else None
    return LOCAL_NAMES | named | {serving.host.strip("[]").casefold()}


def _address(serving: Serving, port: int) -> str:
    """Return the URL of the pages, as far as it is known."""
    if serving.access.tls:
        return (
            f"https://{serving.access.names[0] if serving.access.names else socket.gethostname()}"
        )
    host = serving.host
    if host.strip("[]") in ("0.0.0.0", "::"):
        host = serving.access.names[0] if serving.access.names else socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(serving: Serving, on_ready: Callable[[str, int], None]) -> None:
    """Serve until interrupted; `on_ready` gets URL and port when the server is reachable."""
    import uvicorn

    listening = _listen(serving.host, serving.port)
    port = listening.getsockname()[1]
    datasette = application(serving)
    prepare(datasette, serving.root)
    app, settings = datasette.app(), settings_of(datasette)
    assert settings is not None, "it was just registered"
    if serving.projects is not None:
        make = partial(project_application, settings=settings)
        app = feature.hook("project_apps")(app, serving.projects, make)
    config = uvicorn.Config(
        app,
        log_level="warning",
        lifespan="on",
        ws="none",
        server_header=False,
        proxy_headers=False,  # handled by ServerAccess.proxy
        timeout_graceful_shutdown=_GRACE_S,
    )
    # The socket already listens, so early requests are answered when the server is up.
    on_ready(f"{_address(serving, port)}{settings.front}", port)
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
            hint="the port may be in use: --port 0 picks a free one",
        ) from None
    return listening
