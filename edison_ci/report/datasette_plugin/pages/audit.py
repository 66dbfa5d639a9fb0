"""The audit: who changed what?"""

from __future__ import annotations

import json
from typing import Any

from edison_ci.report.datasette_plugin.looking import Look, Page, Paging


def audit(look: Look) -> Page:
    """Return the rows of the audit, newest first."""
    (total,) = look.connection.execute("select count(*) from audit").fetchone()
    paging = Paging.of(look.args, total)
    rows = look.connection.execute(
        "select seq, time, actor, known_by, action, entity, before, after, host, sha256 "
        "from audit order by seq desc limit ? offset ?",
        (paging.per_page, paging.offset),
    )
    names = ("seq", "time", "actor", "known_by", "action", "entity", "before", "after", "host",
             "sha256")  # fmt: skip
    found = [dict(zip(names, row, strict=True)) for row in rows]
    for row in found:
        row["before"], row["after"] = (_told(row[name]) for name in ("before", "after"))

    def again(**changes: Any) -> str:
        return look.links.to("audit", **changes)

    return Page("audit", "Audit", {"rows": found, "paging": paging, "again": again}, area="audit")


def _told(stored: str | None) -> str:
    """Return a value of a row as text."""
    if stored is None:
        return ""
    try:
        value = json.loads(stored)
    except ValueError:
        return stored
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
