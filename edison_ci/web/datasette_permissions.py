"""What people may do on Datasette's own pages.

Its two lines ask in different ways; both get the same answer. Reading and exporting tables is for
every member, SQL of one's own for editors. The file is never handed out as it is, as it may be
written to meanwhile, and nothing is changed by Datasette. At this machine, where nobody signs in,
whoever asks can read the file anyway.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from datasette import Response

from edison_ci.operate.actors import Role
from edison_ci.web.databases import served_by
from edison_ci.web.identity import KNOWN, site_now
from edison_ci.web.page_context import Links
from edison_ci.web.rendering import problem_page, rendered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.operate.actors import Actor

NEEDED = {
    "view-instance": Role.VIEWER,
    "view-database": Role.VIEWER,
    "view-table": Role.VIEWER,
    "view-query": Role.VIEWER,
    "execute-sql": Role.EDITOR,
}
"""Everything else that Datasette knows is for nobody."""
_ROLE = "edison_role"


def datasette_actor(request: Any) -> dict[str, Any] | None:
    """Return who asks in the way that Datasette knows people."""
    actor: Actor | None = request.scope.get(KNOWN)
    if actor is None or actor.role is None:
        return None
    return {"id": actor.name, "name": actor.name, _ROLE: actor.role.word}


def allowed(datasette: Any, actor: Mapping[str, Any] | None, action: str) -> bool | None:
    """Return whether somebody may; None if it is not ours to say."""
    served = served_by(datasette)
    if served is None:
        return None
    needed = NEEDED.get(action)
    if needed is None:
        return False
    if not served.door.sign_in:
        return None
    word = str((actor or {}).get(_ROLE, "")).upper()
    return word in Role.__members__ and Role[word] >= needed


def told_forbidden(datasette: Any, request: Any, message: str) -> Any:
    """Return what to say of a page that a role does not reach; None if it is not ours to say."""
    served = served_by(datasette)
    if served is None:
        return None

    async def inner() -> Any:
        needed = NEEDED.get(message)
        said = f"this needs {needed.word} or more" if needed else message
        actor: Actor | None = request.scope.get(KNOWN)
        if actor is not None:
            site = await asyncio.to_thread(site_now, served.root)
            entry = site.entry(actor, f"refused: {message}", request.path, after=said)
            await asyncio.to_thread(site.note, entry)
        if request.path.partition("?")[0].endswith(".json"):
            return Response.json({"ok": False, "error": said, "status": 403}, status=403)
        name = next(name for name in datasette.databases if not name.startswith("_"))
        links = Links(datasette.urls.path, name, several=False)
        page = problem_page(403, said, "ask an admin, or look at the pages instead")
        return await rendered(datasette, request, links, page, 403)

    return inner


def rules(datasette: Any, actor: Mapping[str, Any] | None, action: str) -> Any:
    """Return the same for Datasette 1.0, as what its SQL joins with the rules of others."""
    answer = allowed(datasette, actor, action)
    if answer is None:
        return None
    from datasette.permissions import PermissionSQL  # 0.65 has none

    reason = "the role in edison.yaml"
    return PermissionSQL.allow(reason) if answer else PermissionSQL.deny(reason)
