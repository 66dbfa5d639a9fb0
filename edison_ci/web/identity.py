"""Who is asking, and what they may do.

Only `edison serve` knows its people. Where people sign in, it is whose session or token it is;
otherwise it is the person who started it at this machine, known as on the command line: by GitHub
or by Git. Datasette alone knows nobody, and only reads.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from datasette import Forbidden

from edison_ci.errors import EdisonError
from edison_ci.operate.accounts import Accounts
from edison_ci.operate.actors import Actor, role_of
from edison_ci.operate.site import Site, site_at
from edison_ci.web.databases import PROJECT_FILE, served_by

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edison_ci.operate.actors import Role
    from edison_ci.web.databases import Served

KNOWN = "edison_actor"
"""Where the guard leaves who it let in; nobody else can write there."""
_sites: dict[Path, tuple[tuple[int, int], Site]] = {}
_guard = threading.Lock()


async def who(datasette: Any, request: Any) -> Actor | None:
    """Return who asks, with their role of now; None if it is not known or nobody may act here."""
    served = served_by(datasette)
    if served is None:
        return None
    if served.door.sign_in:
        actor: Actor | None = request.scope.get(KNOWN)
        return actor
    if served.person is None:
        return None
    site = await asyncio.to_thread(site_now, served.root)
    return Actor(served.person, role_of(served.person, site.file.members))


async def require(
    datasette: Any, request: Any, needed: Role, action: str, entity: str = ""
) -> Actor:
    """Return who asks if their role is enough; a refusal is audited, and becomes a page (403)."""
    served, actor = served_by(datasette), await who(datasette, request)
    if served is None or actor is None:
        raise Forbidden(f"{action}: these pages only read; start them with edison serve")
    site = await asyncio.to_thread(site_now, served.root)
    return await asyncio.to_thread(site.admit, actor, needed, action, entity)


async def entering(served: Served, scope: Mapping[str, Any]) -> Actor | None:
    """Return who a request comes from, by its token or its session."""
    authorization = header(scope, b"authorization")
    if authorization:  # whoever shows a token is not let in by a cookie instead
        kind, _, token = authorization.partition(" ")
        if kind.casefold() != "bearer":
            return None
        return await asyncio.to_thread(_accounts(served).by_token, token.strip())
    cookie = session_cookie(served, scope)
    return await asyncio.to_thread(_accounts(served).by_session, cookie) if cookie else None


def cookie_name(served: Served) -> str:
    """Return the name of our cookie; browsers guard the prefix, where there is HTTPS."""
    return "__Host-edison_session" if served.door.tls else "edison_session"


def session_cookie(served: Served, scope: Mapping[str, Any]) -> str:
    """Return what our cookie says; '' without one."""
    for part in header(scope, b"cookie").split(";"):
        name, _, value = part.strip().partition("=")
        if name == cookie_name(served):
            return value
    return ""


def address_of(served: Served, scope: Mapping[str, Any]) -> str:
    """Return the address of whoever asks; what they say of it themselves does not count."""
    if served.door.proxy:
        return header(scope, b"x-forwarded-for").rpartition(",")[2].strip()
    client = scope.get("client") or ("",)
    return str(client[0])


def header(scope: Mapping[str, Any], name: bytes) -> str:
    """Return a header of a request, all its lines as one list (RFC 9110, 5.3); '' without it.

    A line that somebody adds is never in place of another: a name, an origin or a length that is
    given twice is none of those that are allowed.
    """
    found = [value for key, value in scope["headers"] if key == name]
    return (b"; " if name == b"cookie" else b", ").join(found).decode("latin-1")


def _accounts(served: Served) -> Accounts:
    return Accounts(site_now(served.root))


def site_now(root: Path) -> Site:
    """Return the project with the members that edison.yaml names now.

    While the file cannot be read, what it said last counts: somebody is just editing it.
    """
    with _guard:
        seen, site = _sites.get(root, (None, None))
        try:
            stat = (root / PROJECT_FILE).stat()
            now = (stat.st_mtime_ns, stat.st_size)
            if site is None or now != seen:
                site = site_at(root)
                _sites[root] = (now, site)
        except (EdisonError, OSError):
            if site is None:
                raise
        return site
