"""The page of a cell: what was asked, what was answered, and why does it pass or fail?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.errors import UsageError
from edison_ci.report.datasette_plugin.looking import Crumb, Look, Page
from edison_ci.report.datasette_plugin.own import own_of
from edison_ci.report.datasette_plugin.pages.run import crumbs_of
from edison_ci.report.datasette_plugin.runs import run_named
from edison_ci.report.datasette_plugin.workspace import project_of, searchable
from edison_ci.results.explanation import Explained, explain
from edison_ci.results.run_result import labels_of
from edison_ci.store.cells import find_cell, run_of_cell

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.store.opinions import OpinionRow
    from edison_ci.store.runs import CellRow, Run

SHOWN_ID = 12
"""Digits of a cell's id that people see."""


class Sibling(NamedTuple):
    """Another answer to the same case."""

    id: str
    side: str
    prompt: str
    version: str
    model: str
    draw: int
    status: str
    composite: float | None
    passed: int | None

    @property
    def word(self) -> str:
        """How it went."""
        if self.status != "ok":
            return self.status
        return {1: "pass", 0: "fail"}.get(self.passed, "ungraded")  # type: ignore[arg-type]


def cell(look: Look) -> Page:
    """Return everything that is known about a cell."""
    run, found = cell_named(look, look.path["cell"])
    project = project_of(look)
    known = explain(
        look.connection, project if searchable(project, run.experiment) else None, run, found
    )
    siblings = siblings_of(look.connection, found)
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
            "before": _neighbour(look.connection, found, "<", "desc"),
            "after": _neighbour(look.connection, found, ">", "asc"),
            "facts": facts_of(look.connection, run.id, found.case_id),
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


def siblings_of(connection: sqlite3.Connection, found: CellRow) -> list[Sibling]:
    """Return every answer to the same case in the same run, this one with them."""
    rows = connection.execute(
        "select id, side, prompt, version, model, draw, status, composite, passed from cell "
        "where run_id = ? and case_id = ? order by side desc, prompt, model, draw",
        (found.run_id, found.case_id),
    )
    return [Sibling(*row) for row in rows]


def _neighbour(connection: sqlite3.Connection, found: CellRow, sign: str, order: str) -> str | None:
    """Return the same prompt and model's cell of the next or the previous case, by name."""
    row = connection.execute(
        f"select case_id from run_case where run_id = ? and case_id {sign} ? "
        f"order by case_id {order} limit 1",
        (found.run_id, found.case_id),
    ).fetchone()
    if row is None:
        return None
    cell = connection.execute(
        "select id from cell where run_id = ? and case_id = ? and model = ? and side = ? "
        "and prompt = ? order by draw limit 1",
        (found.run_id, row[0], found.model, found.side, found.prompt),
    ).fetchone()
    return None if cell is None else str(cell[0])[:SHOWN_ID]


def facts_of(connection: sqlite3.Connection, run_id: str, case: str) -> dict[str, Any]:
    """Return what kind of case a case of a run was; nothing if nobody said."""
    row = connection.execute(
        "select tags, difficulty, kind, words from run_case where run_id = ? and case_id = ?",
        (run_id, case),
    ).fetchone()
    if row is None:
        return {}
    tags, difficulty, kind, words = row
    return {"tags": json.loads(tags), "difficulty": difficulty, "kind": kind, "words": words}


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
