"""How does a page become a response?"""

from __future__ import annotations

from typing import Any

from datasette import Response

from edison_ci.errors import EdisonError, ExitCode, RoleError
from edison_ci.report import components
from edison_ci.report.datasette_plugin import shown
from edison_ci.report.datasette_plugin.files import asset_address
from edison_ci.report.datasette_plugin.guarding import PAGE_HEADERS
from edison_ci.report.datasette_plugin.looking import Links, Page
from edison_ci.report.datasette_plugin.routing import AREAS

_TITLES = {400: "Not done", 403: "Not allowed", 404: "Not there"}


async def rendered(
    datasette: Any, request: Any, links: Links, page: Page, status: int = 200
) -> Any:
    """Return a page as HTML."""
    context = {
        "page": page,
        "to": links.to,
        "raw": links.raw,
        "database": links.database,
        "show": shown,
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
    status = 400
    if isinstance(error, RoleError):
        status = 403
    elif error.exit_code == ExitCode.NOT_MEASURED:
        status = 503
    page = problem_page(status, error.message, error.hint)
    return await rendered(datasette, request, links, page, status)
