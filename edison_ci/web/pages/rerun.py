"""Another answer for a cell, on the page of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.access.site import Role
from edison_ci.api.try_grid import find_try
from edison_ci.records import Side

if TYPE_CHECKING:
    from edison_ci.api.try_grid import TryGrid
    from edison_ci.store.cells import CellRow
    from edison_ci.web.page_context import PageContext


class Rerun(NamedTuple):
    """Whether the visitor may request another answer, and the one that was requested."""

    allowed: bool
    grid: TryGrid | None = None
    forgotten: bool = False
    """Whether the page names an answer whose grade is no longer in memory."""


def requested_rerun(context: PageContext, cell: CellRow) -> Rerun:
    """Return what a page shows about another answer for its cell."""
    actor = context.actor
    if actor is None or not context.may(Role.EDITOR):
        return Rerun(False)
    key = context.args.text("again")
    grid = find_try(key, actor.name) if key else None
    if grid is not None and grid.about != f"cell {cell.id[:12]}":
        grid = None
    return Rerun(cell.side == Side.HEAD, grid, bool(key) and grid is None)
