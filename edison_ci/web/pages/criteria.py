"""The page of the criteria of a run: how each part of the grade is spread, with examples."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.report.charts.histogram import Histogram, histogram, tenths
from edison_ci.results.part_scores import (
    LOOKED_THROUGH,
    PartName,
    by_part,
    examples_of,
    together,
)
from edison_ci.results.run_lists import cases_of
from edison_ci.results.run_result import RunResult
from edison_ci.web.page_context import Crumb, Look, Page, run_named
from edison_ci.web.pages.run import crumbs_of, head_of

if TYPE_CHECKING:
    from edison_ci.report.charts.drawing import Drawing
    from edison_ci.results.part_scores import PartSpread, ScoreSpread

KINDS = ("criterion", "rubric", "grader", "check")
_EXAMPLES = 5


@dataclass(frozen=True, slots=True)
class PartPanel:
    """A part of the grade, with what each prompt and model scored in it."""

    part: PartName
    lines: tuple[PartSpread, ...]
    drawing: Drawing


def criteria(look: Look) -> Page:
    """Return how each part of the grade is spread, and the best and worst answers in one."""
    run = run_named(look, look.path["run"])
    parts = parts_of(RunResult(look.connection, run))
    kind, _, name = look.args.text("part").partition(":")
    chosen = next((each for each in parts if each.part == PartName(kind, name)), None)
    chosen = chosen or (parts[0] if parts else None)
    examples = partial(examples_of, look.connection, run.id, limit=_EXAMPLES)
    return Page(
        "criteria",
        f"Criteria of {run.experiment}, run {run.id}",
        {
            **head_of(look, run, "criteria"),
            "parts_of_grade": parts,
            "chosen": chosen,
            "worst": examples(chosen.part, worst=True) if chosen is not None else [],
            "best": examples(chosen.part, worst=False) if chosen is not None else [],
            "every": cases_of(look.connection, run.id) <= LOOKED_THROUGH,
            "looked_through": LOOKED_THROUGH,
        },
        crumbs=crumbs_of(look, run, Crumb(f"run {run.id}", look.links.to("run", run.id))),
        area="home",
    )


def parts_of(result: RunResult) -> list[PartPanel]:
    """Return the parts of the grade of a run, criteria first."""
    found = [
        PartPanel(part, lines, _drawing(together(part, lines)))
        for part, lines in by_part(result.breakdown.parts).items()
        if part.kind in KINDS
    ]
    found.sort(key=lambda each: (KINDS.index(each.part.kind), each.part.name))
    return found


def _drawing(spread: ScoreSpread) -> Drawing:
    title = f"{spread.name}: how scores are spread"
    return histogram(Histogram(title, tenths(spread.counts), mean=spread.mean))
