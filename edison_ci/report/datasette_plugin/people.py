"""Who is asking, and may they do that?

Only `edison serve` knows its people. Whoever sits at this machine is the person who started it,
known as on the command line: by GitHub or by Git. Datasette alone knows nobody, and only reads.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from datasette import Forbidden

from edison_ci.errors import EdisonError
from edison_ci.operate.actors import Actor, role_of
from edison_ci.operate.site import Site, site_at
from edison_ci.report.datasette_plugin.attached import PROJECT_FILE, served_by

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.operate.actors import Role

_sites: dict[Path, tuple[tuple[int, int], Site]] = {}
_guard = threading.Lock()


async def who(datasette: Any, request: Any) -> Actor | None:
    """Return who asks, with their role of now; None if it is not known or nobody may act here."""
    del request  # everybody who gets here sits at this machine
    served = served_by(datasette)
    if served is None or served.person is None:
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
