"""The page of the judges of a run: agreement with each other and with people, and bias."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.results.judges import JudgesSaid, cells_apart, judges_said, licence_of
from edison_ci.web.cache import AGAIN_S, aside, remembered
from edison_ci.web.page_context import AT_ONCE, MOST_CELLS, Crumb, Look, Page, run_named
from edison_ci.web.pages.cell import SHOWN_ID
from edison_ci.web.pages.run import crumbs_of, head_of

if TYPE_CHECKING:
    from edison_ci.store.runs import Run

_MOST_APART = 20
"""Answers on which judges are far apart that are linked."""


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
            "licence": licence_of(look.connection, run.id),
            "cells": _cells(look, run, said),
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


def _cells(look: Look, run: Run, said: JudgesSaid | None) -> dict[tuple[str, str, str, int], str]:
    """Return the cells of the answers on which judges are far apart, as people see their ids."""
    apart = said.agreement.apart if said is not None and said.agreement is not None else ()
    found = cells_apart(look.connection, run.id, apart[:_MOST_APART])
    return {key: cell[:SHOWN_ID] for key, cell in found.items()}
