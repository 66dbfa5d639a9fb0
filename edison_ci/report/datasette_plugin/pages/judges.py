"""The judges of a run: do they agree with each other and with people, and are they fair?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edison_ci.report.datasette_plugin.looking import Crumb, Look, Page
from edison_ci.report.datasette_plugin.pages.run import crumbs_of, head_of
from edison_ci.report.datasette_plugin.remembering import AGAIN_S, aside, remembered
from edison_ci.report.datasette_plugin.runs import AT_ONCE, MOST_CELLS, run_named
from edison_ci.results.judges import JudgesSaid, judges_said

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.store.runs import Run

_LICENCE = (
    *("judges", "licensed", "reason", "kappa", "n", "floor"),
    *("passes", "true_passes", "fails", "true_fails"),
)


def judges(look: Look) -> Page:
    """Return what there is to say of the judges of a run."""
    run = run_named(look, look.path["run"])
    small = run.cells_planned <= MOST_CELLS
    wanted = small and not run.moving
    said = _said(look, run) if wanted else None
    waiting = wanted and said is None
    return Page(
        "judges",
        f"Judges of {run.experiment}, run {run.id}",
        {
            **head_of(look, run, "judges"),
            "said": said,
            "small": small,
            "waiting": waiting,
            "licence": _licence(look.connection, run.id),
            "cells": _cells(look.connection, run, said),
        },
        crumbs=crumbs_of(look, run, Crumb(f"run {run.id}", look.links.to("run", run.id))),
        area="home",
        refresh_s=AGAIN_S if waiting else None,
    )


def _said(look: Look, run: Run) -> JudgesSaid | None:
    # Grading a run anew ends it anew.
    key = ("judges", look.links.database, str(look.root), run.id, run.finished_at)
    if look.patient or run.cells_planned <= AT_ONCE:
        return remembered(key, lambda: judges_said(look.connection, run.id))
    return aside(look, key, lambda own: judges_said(own.connection, run.id))


def _licence(connection: sqlite3.Connection, run_id: str) -> dict[str, Any] | None:
    row = connection.execute(
        f"select {', '.join(_LICENCE)} from licence where run_id = ?", (run_id,)
    ).fetchone()
    if row is None:
        return None
    found = dict(zip(_LICENCE, row, strict=True))
    return {**found, "judges": json.loads(found["judges"])}


def _cells(
    connection: sqlite3.Connection, run: Run, said: JudgesSaid | None
) -> dict[tuple[str, str, str, int], str]:
    """Return the cells of the answers on which judges are far apart."""
    found: dict[tuple[str, str, str, int], str] = {}
    apart = said.agreement.apart if said is not None and said.agreement is not None else ()
    for each in apart[:20]:
        row = connection.execute(
            "select id from cell where run_id = ? and case_id = ? and model = ? and side = ? "
            "and draw = ? limit 1",
            (run.id, each.case, each.model, each.side, each.draw),
        ).fetchone()
        if row is not None:
            found[each.case, each.model, each.side, each.draw] = str(row[0])[:12]
    return found
