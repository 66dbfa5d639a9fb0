"""Duties of a server: retention and backups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.access.site import BY_ITSELF
from edison_ci.api.duties import DAY_S, Duty
from edison_ci.features.upkeep.maintenance import gc, make_daily_backup, preview_gc
from edison_ci.numeric import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.access.site import Site


def duties_of(site: Site) -> Iterator[Duty]:
    """Yield the duties of a project, as its settings have them."""
    if site.file.settings.retention_days:
        yield Duty("retention", DAY_S, _apply_retention)
    if site.file.settings.backups:
        yield Duty("backup", DAY_S, make_daily_backup)


def _apply_retention(site: Site) -> str:
    # Looked at first without the lock that keeps runs from starting.
    due = preview_gc(site)
    if not (due.texts or due.reasons or due.events):
        return "nothing was old enough"
    gone = gc(site, actor=BY_ITSELF)
    return f"{counted(gone.texts, 'text')} deleted"
