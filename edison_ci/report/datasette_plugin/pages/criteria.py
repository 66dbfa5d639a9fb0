"""The criteria of a run: which part of the grade is weak, and where?"""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.frozen import dataclass
from edison_ci.report.charts.histogram import Histogram, histogram, tenths
from edison_ci.report.datasette_plugin.looking import Crumb, Look, Page
from edison_ci.report.datasette_plugin.pages.cell import SHOWN_ID
from edison_ci.report.datasette_plugin.pages.run import crumbs_of, head_of
from edison_ci.report.datasette_plugin.runs import run_named
from edison_ci.report.datasette_plugin.wishing import Graded
from edison_ci.results.run_lists import cases_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from edison_ci.report.charts.drawing import Drawing

KINDS = ("criterion", "rubric", "grader", "check")
_LOOKED_THROUGH = 100
"""Cases in which the best and worst answers are looked for: the weakest, and the strongest."""
_EXAMPLES = 5


class PartLine(NamedTuple):
    """A part of the grade with a prompt and a model."""

    prompt: str
    model: str
    n: int
    mean: float | None
    low: float | None
    high: float | None
    sd: float | None
    passed: int
    failed: int
    errors: int
    bins: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PartPage:
    """A part of the grade."""

    part: Graded
    lines: tuple[PartLine, ...]
    drawing: Drawing


class Example(NamedTuple):
    """An answer that is good or bad in a part."""

    id: str
    case: str
    model: str
    draw: int
    score: float
    reason: str


def criteria(look: Look) -> Page:
    """Return how each part of the grade is spread, and the best and worst answers in one."""
    run = run_named(look, look.path["run"])
    parts = parts_of(look.connection, run.id)
    kind, _, name = look.args.text("part").partition(":")
    chosen = next((each for each in parts if each.part == Graded(kind, name)), None)
    chosen = chosen or (parts[0] if parts else None)
    worst: list[Example] = []
    best: list[Example] = []
    every = True
    if chosen is not None:
        worst, every = _examples(look.connection, run.id, chosen.part, worst=True)
        best, _ = _examples(look.connection, run.id, chosen.part, worst=False)
    return Page(
        "criteria",
        f"Criteria of {run.experiment}, run {run.id}",
        {
            **head_of(look, run, "criteria"),
            "parts_of_grade": parts,
            "chosen": chosen,
            "worst": worst,
            "best": best,
            "every": every,
            "looked_through": _LOOKED_THROUGH,
        },
        crumbs=crumbs_of(look, run, Crumb(f"run {run.id}", look.links.to("run", run.id))),
        area="home",
    )


def parts_of(connection: sqlite3.Connection, run_id: str) -> list[PartPage]:
    """Return the parts of the grade of a run, criteria first."""
    rows = connection.execute(
        "select kind, name, prompt, model, n, mean, min, max, sd, passed, failed, errors, bins "
        "from rollup_part where run_id = ? and side = 'head' order by kind, name, prompt, model",
        (run_id,),
    ).fetchall()
    found = []
    for (kind, name), group in groupby(rows, key=lambda row: row[:2]):
        if kind in KINDS:
            lines = tuple(_part_line(row[2:]) for row in group)
            found.append(PartPage(Graded(kind, name), lines, _drawing(name, lines)))
    found.sort(key=lambda each: (KINDS.index(each.part.kind), each.part.name))
    return found


def _part_line(row: tuple[Any, ...]) -> PartLine:
    return PartLine(*(*row[:-1], tuple(json.loads(row[-1]))))


def _drawing(name: str, lines: Iterable[PartLine]) -> Drawing:
    counts, total, scored = [0] * 10, 0.0, 0
    for line in lines:
        counts = [a + b for a, b in zip(counts, line.bins, strict=True)]
        if line.mean is not None:
            total, scored = total + line.mean * line.n, scored + line.n
    mean = total / scored if scored else None
    return histogram(Histogram(f"{name}: how scores are spread", tenths(counts), mean=mean))


def _examples(
    connection: sqlite3.Connection, run_id: str, part: Graded, *, worst: bool
) -> tuple[list[Example], bool]:
    """Return answers with the lowest or highest score, and whether all cases were looked at."""
    order = "worst" if worst else "best"
    by = "lowest nulls last, composite, case_id" if worst else "composite desc, case_id desc"
    rows = connection.execute(
        "select substr(c.id, 1, ?), c.case_id, c.model, c.draw, p.score, p.reason "
        f"from (select case_id from rollup_case indexed by rollup_case_{order} "
        f"where run_id = ? and side = 'head' order by {by} limit ?) k "
        "cross join cell c on c.run_id = ? and c.case_id = k.case_id and c.side = 'head' "
        "cross join part p on p.cell_id = c.id and p.kind = ? and p.name = ? "
        f"where p.score is not null order by p.score {'' if worst else 'desc'}, c.case_id, c.model "
        "limit ?",
        (SHOWN_ID, run_id, _LOOKED_THROUGH, run_id, part.kind, part.name, _EXAMPLES),
    )
    return [Example(*row) for row in rows], cases_of(connection, run_id) <= _LOOKED_THROUGH
