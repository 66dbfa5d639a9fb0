"""Pages rendered with templates, as responses."""

from __future__ import annotations

from typing import Any

from datasette import Response

from edison_ci.errors import BusyError, EdisonError, ExitCode, RoleError
from edison_ci.report import components
from edison_ci.store.suggestions import DecidedAlready
from edison_ci.web import formats
from edison_ci.web.databases import served_by
from edison_ci.web.identity import who
from edison_ci.web.page_context import Links, Page, ShownInstead
from edison_ci.web.routing import AREAS
from edison_ci.web.security import PAGE_HEADERS
from edison_ci.web.static_files import asset_address

_TITLES = {400: "Not done", 403: "Not allowed", 404: "Not there", 409: "Not any more"}


async def rendered(
    datasette: Any, request: Any, links: Links, page: Page, status: int = 200
) -> Any:
    """Return a page as HTML."""
    served = served_by(datasette)
    person = await who(datasette, request) if served and served.door.sign_in else None
    context = {
        "page": page,
        "person": person,
        "to": links.to,
        "raw": links.raw,
        "database": links.database,
        "show": formats,
        "ui": components,
        "areas": AREAS,
        "asset": lambda name: asset_address(links, name),
        **page.shown,
    }
    # Only what the templates are given is theirs: Datasette adds `urls`, `request` and the like.
    body = await datasette.render_template(f"edison/{page.template}.html", context, request)
    return Response.html(body, status=status, headers=dict(PAGE_HEADERS))


def problem_page(status: int, message: str, hint: str = "") -> Page:
    """Return a page that says what is wrong."""
    return Page("missing", _TITLES.get(status, "Error"), {"message": message, "hint": hint})


async def refused(datasette: Any, request: Any, links: Links, error: EdisonError) -> Any:
    """Return the page of something that was not done."""
    if isinstance(error, ShownInstead):
        return await rendered(datasette, request, links, error.page, 422)
    status = status_of(error, 400)
    page = problem_page(status, error.message, error.hint)
    page.shown["back"] = request.path.rpartition("/")[0]  # forms are sent to below their page
    return await rendered(datasette, request, links, page, status)


def status_of(error: EdisonError, otherwise: int) -> int:
    """Return the status that tells of an error."""
    if isinstance(error, RoleError):
        return 403
    if isinstance(error, BusyError | DecidedAlready):
        return 409
    return 503 if error.exit_code == ExitCode.NOT_MEASURED else otherwise
