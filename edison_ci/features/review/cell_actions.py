"""What a cell of the grid offers: a thumb up or down, and the whole reply of its graders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.access.site import Role
from edison_ci.records import CellStatus
from edison_ci.results.explanation import explain
from edison_ci.store.judgments import judged_cells
from edison_ci.store.manual_grades import own_grades
from edison_ci.web.page_context import SHOWN_ID, Crumb, Page, requested_cell
from edison_ci.web.pages.run import CellActions

if TYPE_CHECKING:
    from edison_ci.results.case_grid import CaseGrid
    from edison_ci.web.page_context import PageContext


def cell_actions(context: PageContext, grid: CaseGrid) -> CellActions:
    """Return what the cells of a page of the grid offer."""
    boxes = [box for row in grid.rows for box in row.boxes if box is not None]
    judged = judged_cells(context.connection, [box.worst.id for box in boxes])
    if context.actor is None or not context.may(Role.REVIEWER):
        return CellActions(frozenset(), {}, judged)
    able = (CellStatus.OK, CellStatus.MALFORMED)
    gradable = frozenset(
        box.worst.id for box in boxes if box.worst.status in able and box.text is not None
    )
    mine = own_grades(context.connection, context.actor.name, gradable)
    return CellActions(gradable, mine, judged)


def reply(context: PageContext) -> Page:
    """Return the whole replies of the judges and graders of an answer."""
    run, cell = requested_cell(context, context.path["cell"])
    known = explain(context.connection, None, run, cell)
    return Page(
        "reply",
        f"Replies of graders to {cell.case_id} with {cell.model}",
        {"cell": cell, "judgments": known.judgments},
        crumbs=(
            Crumb(f"run {run.id}", context.links.to("run", run.id)),
            Crumb(cell.case_id, context.links.to("cell", cell.id[:SHOWN_ID])),
        ),
        area="home",
    )
