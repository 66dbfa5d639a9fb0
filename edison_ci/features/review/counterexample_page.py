"""The page that adds a counterexample: a case like one that fails, with what would be right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.access.site import Role, require_role
from edison_ci.api.counterexamples import CaseEntry, origin_of
from edison_ci.errors import UsageError
from edison_ci.proposals.file_proposal import FEWEST_NOTE_CHARS, MOST_NOTE_CHARS
from edison_ci.results.explanation import explain
from edison_ci.store.cells import find_cell, run_of_cell
from edison_ci.store.runs import find_run
from edison_ci.web.formats import as_text
from edison_ci.web.page_context import SHOWN_ID, Crumb, Page, PageContext
from edison_ci.web.workspace import project_of

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.config.load import Project
    from edison_ci.errors import EdisonError
    from edison_ci.records import Json
    from edison_ci.web.page_context import Links


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
    wanted: str,
    *,
    given: CaseEntry | None = None,
    problem: EdisonError | None = None,
    suggestion: str = "",
) -> Page:
    """Return the form with what was entered and what is wrong with it, if anything."""
    run_id = run_of_cell(connection, wanted)
    if run_id is None:
        raise UsageError(f"there is no cell {wanted!r}", hint="open it from the page of its run")
    run = find_run(connection, run_id)
    cell = find_cell(connection, run.id, wanted)
    known = explain(connection, None, run, cell)
    origin = origin_of(project, project.experiment(run.experiment), cell.case_id)
    case = origin.case
    assert case is not None, "the cell has one"
    if given is None:
        inputs = {name: _field(value) for name, value in case.inputs.items()}
        given = CaseEntry(inputs, _field(case.expected), "")
    return Page(
        "counterexample",
        f"Counterexample to {cell.case_id}",
        {
            "cell": cell,
            "known": known,
            "origin": origin,
            "json": [name for name, value in case.inputs.items() if not isinstance(value, str)],
            "given": given,
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
