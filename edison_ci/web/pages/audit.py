"""The page of the audit: who changed what."""

from __future__ import annotations

import json
from typing import Any

from edison_ci.store.audit import count_audit, read_audit
from edison_ci.web.page_context import Look, Page, Paging


def audit(look: Look) -> Page:
    """Return the rows of the audit, newest first."""
    paging = Paging.of(look.args, count_audit(look.connection))
    rows = read_audit(look.connection, limit=paging.per_page, offset=paging.offset)

    def again(**changes: Any) -> str:
        return look.links.to("audit", **changes)

    return Page(
        "audit",
        "Audit",
        {"rows": rows, "value": _value, "paging": paging, "again": again},
        area="audit",
    )


def _value(stored: Any) -> str:
    """Return what something was, before or after, as text."""
    if stored is None:
        return ""
    return stored if isinstance(stored, str) else json.dumps(stored, ensure_ascii=False, indent=1)
