"""The visitor of a page, and their permissions, also on Datasette's own pages.

With sign-in the visitor is the owner of the session or token; without it, the person who started
`edison serve`, identified by GitHub or Git as on the command line. Plain Datasette has no visitors
and is read-only.

On Datasette's own pages every member may read and export tables; custom SQL needs the role editor.
The database file is never downloadable, as it may be written meanwhile, and Datasette changes
nothing. Without sign-in the visitor can read the file anyway, so there are no limits.
"""

from __future__ import annotations

import asyncio
import ipaddress
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from datasette import Forbidden

from edison_ci.access.accounts import Accounts, network_key
from edison_ci.access.site import Actor, Role, Site, open_site, role_in
from edison_ci.errors import EdisonError
from edison_ci.web.databases import PROJECT_FILE, settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edison_ci.access.site import Identity
    from edison_ci.web.databases import ServerSettings


NEEDED = {
    "view-instance": Role.VIEWER,
    "view-database": Role.VIEWER,
    "view-table": Role.VIEWER,
    "view-query": Role.VIEWER,
    "execute-sql": Role.EDITOR,
}
"""Roles for actions of Datasette; all other actions are denied."""
_ROLE = "edison_role"


def datasette_actor(request: Any) -> dict[str, Any] | None:
    """Return the visitor as a Datasette actor."""
    actor: Actor | None = request.scope.get(KNOWN)
    if actor is None or actor.role is None:
        return None
    return {"id": actor.name, "name": actor.name, _ROLE: actor.role.word}


def is_allowed(datasette: Any, actor: Mapping[str, Any] | None, action: str) -> bool | None:
    """Return whether an action is allowed; None if Datasette decides."""
    settings = settings_of(datasette)
    if settings is None:
        return None
    needed = NEEDED.get(action)
    if needed is None:
        return False
    if not settings.access.sign_in:
        return None
    word = str((actor or {}).get(_ROLE, "")).upper()
    return word in Role.__members__ and Role[word] >= needed


def permission_rule(datasette: Any, actor: Mapping[str, Any] | None, action: str) -> Any:
    """Return the decision as a permission rule of Datasette 1.0."""
    answer = is_allowed(datasette, actor, action)
    if answer is None:
        return None
    from datasette.permissions import PermissionSQL  # not in 0.65

    reason = "the role in edison.yaml"
    return PermissionSQL.allow(reason) if answer else PermissionSQL.deny(reason)


KNOWN = "edison_actor"
"""Key of the ASGI scope under which the security check stores the visitor."""
_sites: dict[Path, tuple[tuple[int, int], Site]] = {}
_guard = threading.Lock()


async def current_actor(datasette: Any, request: Any) -> Actor | None:
    """Return the visitor with their current role; None if unknown or pages are read-only."""
    settings = settings_of(datasette)
    if settings is None:
        return None
    if settings.access.sign_in:
        actor: Actor | None = request.scope.get(KNOWN)
        return actor
    if settings.person is None:
        return None
    return await asyncio.to_thread(_actor_here, settings, settings.person)


def _actor_here(settings: ServerSettings, identity: Identity) -> Actor:
    """Return a person with their role in the served project."""
    home, site = current_site(settings.home), current_site(settings.root)
    return Actor(identity, role_in(home, site, identity))


async def require(
    datasette: Any, request: Any, needed: Role, action: str, entity: str = ""
) -> Actor:
    """Return the visitor if their role is sufficient; else audit and raise RoleError (403)."""
    settings, actor = settings_of(datasette), await current_actor(datasette, request)
    if settings is None or actor is None:
        raise Forbidden(f"{action}: these pages are read-only; start them with edison serve")
    site = await asyncio.to_thread(current_site, settings.root)
    return await asyncio.to_thread(site.admit, actor, needed, action, entity)


async def authenticate(
    settings: ServerSettings, scope: Mapping[str, Any], *, audited: bool = True
) -> Actor | None:
    """Return the sender of a request: by token, by the header of a proxy, or by session.

    In a project of a site that is not for them, they have no role. With `audited` a token or a
    header that is not valid is audited.
    """
    if KNOWN in scope:
        known: Actor | None = scope[KNOWN]
        return known
    actor = await _authenticated(settings, scope, audited=audited)
    if actor is None or settings.is_home:
        return actor
    return await asyncio.to_thread(_actor_here, settings, actor.identity)


async def _authenticated(
    settings: ServerSettings, scope: Mapping[str, Any], *, audited: bool
) -> Actor | None:
    authorization = header(scope, b"authorization")
    if authorization:  # with a token, a cookie does not count
        kind, _, token = authorization.partition(" ")
        if kind.casefold() != "bearer":
            return None
        by_token = partial(_accounts(settings).by_token, audited=audited)
        return await asyncio.to_thread(by_token, token.strip())
    named = proxy_user(settings, scope)
    if named:
        by_header = partial(_accounts(settings).by_header, audited=audited)
        return await asyncio.to_thread(by_header, named)
    cookie = session_cookie(settings, scope)
    return await asyncio.to_thread(_accounts(settings).by_session, cookie) if cookie else None


def proxy_user(settings: ServerSettings, scope: Mapping[str, Any]) -> str:
    """Return the visitor that the proxy names; '' without one, or from another address."""
    access = settings.access
    if not access.user_header:
        return ""
    client = scope.get("client") or ("",)
    try:
        # The peer of the connection: X-Forwarded-For is written by anyone.
        peer = ipaddress.ip_address(str(client[0]))
    except ValueError:
        return ""
    peer = getattr(peer, "ipv4_mapped", None) or peer
    if not any(peer in network for network in access.user_header_from):
        return ""
    return header(scope, access.user_header.encode("latin-1")).strip()


def cookie_name(settings: ServerSettings) -> str:
    """Return the name of the session cookie; browsers protect the __Host- prefix."""
    return "__Host-edison_session" if settings.access.tls else "edison_session"


def session_cookie(settings: ServerSettings, scope: Mapping[str, Any]) -> str:
    """Return the value of the session cookie; '' without one."""
    return cookie_value(scope, cookie_name(settings))


def cookie_value(scope: Mapping[str, Any], wanted: str) -> str:
    """Return the value of a cookie; '' without it, or with two of them.

    Another site of the same domain can set one of the same name, and it may come first.
    """
    parts = (part.strip().partition("=") for part in header(scope, b"cookie").split(";"))
    values = [value for name, _, value in parts if name == wanted]
    return values[0] if len(values) == 1 else ""


def caller_key(settings: ServerSettings, scope: Mapping[str, Any], actor: Actor | None) -> str:
    """Return whose requests count together: those of a member, else of a network address."""
    if actor is not None:
        return f"member:{actor.name}"
    return f"address:{network_key(address_of(settings, scope))}"


def address_of(settings: ServerSettings, scope: Mapping[str, Any]) -> str:
    """Return the IP address of the client, from the proxy header only if one is configured."""
    if settings.access.proxy:
        return header(scope, b"x-forwarded-for").rpartition(",")[2].strip()
    client = scope.get("client") or ("",)
    return str(client[0])


def header(scope: Mapping[str, Any], name: bytes) -> str:
    """Return a header with repeated lines joined (RFC 9110, 5.3); '' without it.

    Joining makes an added duplicate visible: a host, origin or length that occurs twice matches no
    allowed value.
    """
    values = [value for key, value in scope["headers"] if key == name]
    return (b"; " if name == b"cookie" else b", ").join(values).decode("latin-1")


def _accounts(settings: ServerSettings) -> Accounts:
    return Accounts(current_site(settings.home))


def current_site(root: Path) -> Site:
    """Return the project with the current members of edison.yaml.

    While the file is invalid, for example during an edit, its last valid state is used.
    """
    with _guard:
        stamp, site = _sites.get(root, (None, None))
        try:
            stat = (root / PROJECT_FILE).stat()
            now = (stat.st_mtime_ns, stat.st_size)
            if site is None or now != stamp:
                site = open_site(root)
                _sites[root] = (now, site)
        except (EdisonError, OSError):
            if site is None:
                raise
        return site
