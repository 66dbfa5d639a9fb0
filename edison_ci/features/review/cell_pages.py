"""Pages of a cell: what the grid offers, replies of graders, and adding a counterexample."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.access.site import Role, require_role
from edison_ci.api.counterexamples import CaseEntry, origin_of
from edison_ci.errors import UsageError
from edison_ci.proposals.file_proposal import FEWEST_NOTE_CHARS, MOST_NOTE_CHARS
from edison_ci.results.case_grid import cell_actions as actions_in_grid
from edison_ci.results.explanation import explain, explain_cell
from edison_ci.web.formats import as_text
from edison_ci.web.page_context import SHOWN_ID, Crumb, Page, PageContext, requested_cell
from edison_ci.web.workspace import project_of

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.config.load import Project
    from edison_ci.errors import EdisonError
    from edison_ci.records import Json
    from edison_ci.results.case_grid import CaseGrid, CellActions
    from edison_ci.web.page_context import Links


def cell_actions(context: PageContext, grid: CaseGrid) -> CellActions:
    """Return what the cells of a page of the grid offer."""
    grader = context.actor if context.may(Role.REVIEWER) else None
    return actions_in_grid(context.connection, grid, None if grader is None else grader.name)


def reply(context: PageContext) -> Page:
    """Return the whole replies of the judges and graders of an answer."""
    run, cell = requested_cell(context, context.path["cell"])
    explanation = explain(context.connection, None, run, cell)
    return Page(
        "reply",
        f"Replies of graders to {cell.case_id} with {cell.model}",
        {"cell": cell, "judgments": explanation.judgments},
        crumbs=(
            Crumb(f"run {run.id}", context.links.to("run", run.id)),
            Crumb(cell.case_id, context.links.to("cell", cell.id[:SHOWN_ID])),
        ),
        area="home",
    )


def counterexample(context: PageContext) -> Page:
    """Return the form with the input and the expected answer of a cell's case."""
    project, actor = project_of(context), context.actor
    if context.actions is None or actor is None or project is None:
        raise UsageError("cases cannot be added on these pages", hint="add the case to its dataset")
    require_role(actor, Role.EDITOR, "add case", project.file.members)
    return case_page(
        context.links,
        project,
        context.connection,
        context.path["cell"],
        suggestion=context.args.text("suggestion"),
    )


def case_page(  # noqa: PLR0913 - the form as it was sent, or as it is at first
    links: Links,
    project: Project,
    connection: sqlite3.Connection,
    cell_id: str,
    *,
    entry: CaseEntry | None = None,
    problem: EdisonError | None = None,
    suggestion: str = "",
) -> Page:
    """Return the form with what was entered and what is wrong with it, if anything."""
    explanation = explain_cell(connection, cell_id)
    if explanation is None:
        raise UsageError(f"there is no cell {cell_id!r}", hint="open it from the page of its run")
    run, cell = explanation.run, explanation.cell
    origin = origin_of(project, project.experiment(run.experiment), cell.case_id)
    case = origin.case
    assert case is not None, "the cell has one"
    if entry is None:
        inputs = {name: _field(value) for name, value in case.inputs.items()}
        entry = CaseEntry(inputs, _field(case.expected), "")
    return Page(
        "counterexample",
        f"Counterexample to {cell.case_id}",
        {
            "cell": cell,
            "known": explanation,
            "origin": origin,
            "json": [name for name, value in case.inputs.items() if not isinstance(value, str)],
            "given": entry,
            "problem": problem,
            "suggestion": suggestion,
            "limits": (FEWEST_NOTE_CHARS, MOST_NOTE_CHARS),
        },
        crumbs=(
            Crumb(run.experiment, links.to("experiment", run.experiment)),
            Crumb(cell.case_id, links.to("cell", cell.id[:SHOWN_ID])),
        ),
        area="home",
    )


def _field(value: Json) -> str:
    return "" if value is None else as_text(value)
