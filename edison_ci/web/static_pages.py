"""Pages of a run as static files, for any web server or for opening directly.

The pages are rendered by Datasette in this process with the normal templates, on a copy of the
results that has only this run. Links point to files; what needs a server (filters, sorting, tables,
scripts) is removed.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from edison_ci.errors import UsageError
from edison_ci.report.markup import escape
from edison_ci.web.page_context import PREFIX
from edison_ci.web.pages.run import LIST_ARGS
from edison_ci.web.rendering import asset
from edison_ci.web.serving import application

if TYPE_CHECKING:
    from collections.abc import Callable

    from edison_ci.web.serving import Serving

MOST_PAGES = 5_000
STYLE = "edison.css"
_KEPT_ARGUMENTS = frozenset(
    {"case", "metric", "page", "budgets", "models", "preferred", "repeats", "slices"}
)
"""Query parameters of written pages; others need a server."""
_NO_PAGES = re.compile(
    rf"{PREFIX}/(?:static|health|metrics|help|alerts?|schedules?|audit|loops?|models|search)\b|.*/(?:events|grade|edit|export|history)$"
)
_LINK = re.compile(r'\s(href|src)="([^"]*)"')
_SERVER = re.compile(
    r"<form\b.*?</form>|<script\b.*?</script>|<noscript\b.*?</noscript>"
    r'|\sdata-(?:home|help|up|again)="[^"]*"',
    re.S,
)
_CHARSET = '<meta charset="utf-8">'
_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
    "style-src 'self' file:; img-src data:; base-uri 'none'; form-action 'none'\">"
)


def require_few_cells(cells: int) -> None:
    """Raise UsageError for runs with too many pages: each cell has one."""
    if cells > MOST_PAGES:
        raise UsageError(
            f"the run has more than {MOST_PAGES:,} pages",
            hint="write a single file instead: --out report.html",
        )


async def write_static_pages(serving: Serving, write: Callable[[str, bytes], object]) -> None:
    """Write all pages that are reachable from the first one."""
    datasette = application(replace(serving, synchronous=True))
    await datasette.invoke_startup()
    style = asset(STYLE)
    assert style is not None, "the stylesheet is part of the package"
    write(STYLE, style[0])
    waiting, scheduled = deque([PREFIX]), {PREFIX}

    def reached(address: str) -> str | None:
        """Return the file of an address, and schedule it; None if it is not written."""
        page = _page(address)
        if page is None:
            return None
        if page not in scheduled:
            scheduled.add(page)
            waiting.append(page)
        return file_name(page)

    while waiting:
        require_few_cells(len(scheduled))
        address = waiting.popleft()
        write(file_name(address), _rewritten(await _fetch(datasette, address), reached))


async def _fetch(datasette: Any, address: str) -> str:
    response = await datasette.client.get(address)
    if response.status_code not in (200, 404):  # 404: a case or cell that is not in the copy
        raise UsageError(
            f"the page {address} could not be rendered (status {response.status_code})",
            hint="open it with edison serve to see the error",
        )
    return str(response.text)


def _page(address: str) -> str | None:
    """Return the normalized address of a page to write; None if it is not written."""
    parts = urlsplit(address)
    path = parts.path.rstrip("/")
    ours = path == PREFIX or path.startswith(f"{PREFIX}/")
    if parts.scheme or parts.netloc or not ours or _NO_PAGES.match(path):
        return None
    arguments = parse_qsl(parts.query)
    if f"{PREFIX}/cell/" in path or path.endswith("/case"):
        # One page for each answer, whichever list leads to it.
        arguments = [(name, value) for name, value in arguments if name not in LIST_ARGS]
    if any(name not in _KEPT_ARGUMENTS for name, _ in arguments):
        return None
    kept = sorted((name, value) for name, value in arguments if (name, value) != ("page", "1"))
    return f"{path}?{urlencode(kept)}" if kept else path


def file_name(address: str) -> str:
    """Return a readable and unique file name for a page."""
    path, _, query = address.removeprefix(PREFIX).partition("?")
    words = re.sub(r"[^A-Za-z0-9]+", "-", path).strip("-").lower()[:60]
    if not words and not query:
        return "index.html"
    digest = hashlib.sha256(address.encode()).hexdigest()[:8]
    return f"{words or 'index'}-{digest}.html"


def _rewritten(text: str, reached: Callable[[str], str | None]) -> bytes:
    def link(match: re.Match[str]) -> str:
        name, address = match[1], unescape(match[2])
        if address.startswith(("#", "data:")):
            return match[0]
        path, _, mark = address.partition("#")
        if urlsplit(path).path == f"{PREFIX}/static/{STYLE}":
            return f' {name}="{STYLE}"'
        file = reached(path)
        if file is None:
            return ""  # the text stays without a link
        return f' {name}="{escape(f"{file}#{mark}" if mark else file)}"'

    kept = _LINK.sub(link, _SERVER.sub("", text))
    return kept.replace(_CHARSET, f"{_CHARSET}\n{_POLICY}", 1).encode()
