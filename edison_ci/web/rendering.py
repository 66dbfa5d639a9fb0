"""Rendering of pages and errors with templates, and the static files of the pages."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from datasette import Response

from edison_ci import ranges
from edison_ci.errors import BusyError, DecidedAlready, EdisonError, ExitCode, RoleError
from edison_ci.report import components
from edison_ci.web import formats
from edison_ci.web.databases import settings_of
from edison_ci.web.identity import current_actor
from edison_ci.web.page_context import PREFIX, SITE_AREA, Links, Page, PageInstead, areas
from edison_ci.web.security import PAGE_HEADERS
from edison_ci.web.traces import error_mark

_ASSETS = {
    "edison.css": ("edison_ci.report", "text/css; charset=utf-8"),
    "edison.js": ("edison_ci.web", "text/javascript; charset=utf-8"),
    "editor.js": ("edison_ci.web", "text/javascript; charset=utf-8"),
}


@cache
def asset(name: str) -> tuple[bytes, str] | None:
    """Return content and content type of a static file; None if there is none."""
    if name not in _ASSETS:
        return None
    package, kind = _ASSETS[name]
    return files(package).joinpath("static", name).read_bytes(), kind


def asset_address(links: Links, name: str) -> str:
    """Return the address of a static file, with a hash of its content."""
    content = asset(name)
    digest = hashlib.sha256(content[0]).hexdigest()[:12] if content else ""
    return links.to("static", name, v=digest)


_TITLES = {400: "Invalid request", 403: "Not allowed", 404: "Not found", 409: "Not possible now"}
_NOT_NOW = ("cannot_start", "plan_changed")
"""Codes of errors with the status 409, as over HTTP."""


async def render_page(
    datasette: Any, request: Any, links: Links, page: Page, status: int = 200
) -> Any:
    """Render a page as HTML."""
    settings = settings_of(datasette)
    signed_in = settings is not None and settings.access.sign_in
    person = await current_actor(datasette, request) if signed_in else None
    in_project = None if settings is None or settings.is_home else settings.root.name
    context = {
        "page": page,
        "person": person,
        "to": links.to,
        "raw": links.raw,
        "database": links.database,
        "show": formats,
        "ui": components,
        "ranges": ranges,
        "in_project": in_project,
        "projects_address": f"{PREFIX}/projects",
        "areas": [SITE_AREA, *areas()] if settings is not None and settings.is_site else areas(),
        "asset": lambda name: asset_address(links, name),
        **page.values,
    }
    # Datasette adds `urls`, `request` and others; the templates use only the values above.
    body = await datasette.render_template(f"edison/{page.template}.html", context, request)
    return Response.html(body, status=status, headers=dict(PAGE_HEADERS))


def problem_page(status: int, message: str, hint: str = "") -> Page:
    """Return the page of an error."""
    values = {"message": message, "hint": hint, "mark": error_mark()}
    return Page("missing", _TITLES.get(status, "Error"), values)


async def render_error(datasette: Any, request: Any, links: Links, error: EdisonError) -> Any:
    """Render the page of a rejected form."""
    if isinstance(error, PageInstead):
        return await render_page(datasette, request, links, error.page, 422)
    status = status_of(error, 400)
    page = problem_page(status, error.message, error.hint)
    # Forms are posted below their page.
    page.values["back"] = datasette.urls.path(request.path.rpartition("/")[0])
    return await render_page(datasette, request, links, page, status)


def status_of(error: EdisonError, otherwise: int) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, RoleError):
        return 403
    if isinstance(error, BusyError | DecidedAlready) or error.code in _NOT_NOW:
        return 409
    return 503 if error.exit_code == ExitCode.NOT_MEASURED else otherwise
