"""The page of a cell: what was asked, what was answered, and why it passes or fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.errors import UsageError
from edison_ci.results.case_answers import answers_to, case_kind, neighbouring_cells
from edison_ci.results.explanation import Explained, explain
from edison_ci.results.run_result import labels_of
from edison_ci.store.cells import find_cell, run_of_cell
from edison_ci.web.own_grade import own_of
from edison_ci.web.page_context import Crumb, Look, Page, run_named
from edison_ci.web.pages.run import crumbs_of
from edison_ci.web.workspace import project_of, searchable

if TYPE_CHECKING:
    from edison_ci.store.opinions import OpinionRow
    from edison_ci.store.runs import CellRow, Run

SHOWN_ID = 12
"""Digits of a cell's id that people see."""


def cell(look: Look) -> Page:
    """Return everything that is known about a cell."""
    run, found = cell_named(look, look.path["cell"])
    project = project_of(look)
    known = explain(
        look.connection, project if searchable(project, run.experiment) else None, run, found
    )
    siblings = answers_to(look.connection, run.id, found.case_id)
    near = neighbouring_cells(look.connection, found)
    return Page(
        "cell",
        f"{found.case_id} with {found.model}, {run.experiment}",
        {
            "run": run,
            "cell": found,
            "known": known,
            "word": next(each.word for each in siblings if each.id == found.id),
            "marks": labels_of(run),
            "label": run.labels.get(found.prompt) if found.side == "head" else None,
            "siblings": siblings,
            "others": [each for each in siblings if each.id != found.id],
            "before": near.before and near.before[:SHOWN_ID],
            "after": near.after and near.after[:SHOWN_ID],
            "facts": case_kind(look.connection, run.id, found.case_id),
            "judges": _by_judge(known.opinions),
            "own": own_of(look, run, found, known.people),
            "missing_case": _why_no_case(look, known, searchable(project, run.experiment)),
        },
        crumbs=crumbs_of(look, run, Crumb(f"run {run.id}", look.links.to("run", run.id))),
        area="home",
    )


def cell_named(look: Look, wanted: str) -> tuple[Run, CellRow]:
    """Return a cell by the beginning of its id, with its run."""
    known = len(wanted) >= SHOWN_ID and all(digit in "0123456789abcdef" for digit in wanted)
    run_id = run_of_cell(look.connection, wanted) if known else None
    if run_id is None:
        raise UsageError(
            f"there is no cell {wanted!r}", hint="open it from the grid of its run instead"
        )
    return run_named(look, run_id), find_cell(look.connection, run_id, wanted)


def _by_judge(opinions: tuple[OpinionRow, ...]) -> dict[str, list[OpinionRow]]:
    found: dict[str, list[OpinionRow]] = {}
    for opinion in opinions:
        found.setdefault(opinion.judge, []).append(opinion)
    return found


def _why_no_case(look: Look, known: Explained, searched: bool) -> str:
    """Say why the input is not shown, if it is not."""
    if known.case is not None:
        return ""
    if look.root is None:
        return "Inputs are in the project's files, which are not beside these results."
    if not searched:
        return f"Its dataset was not searched here. See: edison explain {known.cell.id[:SHOWN_ID]}"
    return "The case was edited or taken away since, so what was asked is no longer known."
