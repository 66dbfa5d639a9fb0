"""Stylesheet and script of the pages, and how long a browser may keep them."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edison_ci.web.page_context import Links

_ASSETS = {
    "edison.css": ("edison_ci.report", "text/css; charset=utf-8"),
    "edison.js": ("edison_ci.web", "text/javascript; charset=utf-8"),
}


@cache
def asset(name: str) -> tuple[bytes, str] | None:
    """Return a file and its type."""
    if name not in _ASSETS:
        return None
    package, kind = _ASSETS[name]
    return files(package).joinpath("static", name).read_bytes(), kind


def asset_address(links: Links, name: str) -> str:
    """Return the address of a file, which changes when the file does."""
    found = asset(name)
    digest = hashlib.sha256(found[0]).hexdigest()[:12] if found else ""
    return links.to("static", name, v=digest)
