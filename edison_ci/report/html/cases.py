"""Cases on the page of a run: how each went, which moved, and what failed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from edison_ci.documents.secrets import redacted
from edison_ci.formatting import NOTHING, counted, dollars, score
from edison_ci.report.components import badge, empty_state, outcome, scrolled, section, text_box
from edison_ci.report.markup import Html, element

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.records import Case
    from edison_ci.results.cells import CellResult, Failing, Grid, Square
    from edison_ci.results.comparison import Moved
    from edison_ci.results.run_result import RunResult

_MOST_MOVED = 30
_LONGEST = 20_000
"""Characters of a text that a page shows."""
_PASSES = {True: "passes", False: "fails", None: "not graded"}


def grid_of(grid: Grid) -> Html | None:
    """Return how each case went with each prompt and model."""
    if not grid.rows:
        return None
    one_prompt = len({column.prompt for column in grid.columns}) == 1
    names = (c.model if one_prompt else f"{c.prompt}, {c.model}" for c in grid.columns)
    cells = (element("th", element("bdi", name), scope="col", class_="num") for name in names)
    head = element("tr", element("th", "case", scope="col"), *cells)
    rows = (
        element(
            "tr",
            element("th", element("bdi", case), scope="row"),
            *(element("td", _square(square)) for square in squares),
        )
        for case, squares in grid.rows
    )
    table = element("table", element("thead", head), element("tbody", *rows), class_="data grid")
    told = f"{counted(grid.cases, 'case')}, the worst first."
    if grid.cases > len(grid.rows):
        told = f"The worst {len(grid.rows):,} of {counted(grid.cases, 'case')}; CSV has them all."
    return section(
        "Cases",
        element("p", told, " Numbers are points out of 100.", class_="quiet"),
        element("div", scrolled(table, "Cases by models"), class_="data-wrap"),
    )


def _square(square: Square | None) -> Html:
    if square is None:
        return outcome("skipped", NOTHING)
    draws = f" ({square.draws})" if square.draws > 1 else ""
    return outcome(square.outcome, f"{score(square.composite)}{draws}")


# --- what moved -----------------------------------------------------------------------------------


def moved_cases(view: RunResult) -> Html | None:
    """Return the cases that are clearly worse or better than in the base."""
    moved = [
        (word, one.prompt, one.model, case)
        for word in ("broken", "fixed")
        for one in view.changes
        for case in getattr(one.standing, word)
    ]
    if not moved:
        return None
    names = ("case", "", "prompt", "model", "base", "head", "passes")
    head = (element("th", name, scope="col", class_="num" if name in ("base", "head") else None)
            for name in names)  # fmt: skip
    rows = (_moved(*each) for each in moved[:_MOST_MOVED])
    table = element(
        "table", element("thead", element("tr", *head)), element("tbody", *rows), class_="data"
    )
    more = len(moved) - _MOST_MOVED
    said = f"{more:,} more are in the report as JSON."
    return section(
        "Cases that moved",
        element("div", scrolled(table, "Cases that moved"), class_="data-wrap"),
        element("p", said, class_="quiet after") if more > 0 else None,
    )


def _moved(word: str, prompt: str, model: str, case: Moved) -> Html:
    before, after = (_PASSES[passed] for passed in case.passed)
    return element(
        "tr",
        element("th", element("bdi", case.case), scope="row"),
        element("td", badge(word)),
        element("td", element("bdi", prompt), class_="name"),
        element("td", element("bdi", model), class_="name"),
        element("td", score(case.a), class_="num"),
        element("td", score(case.b), class_="num"),
        element("td", before if before == after else f"{before}, then {after}"),
    )


# --- what failed ----------------------------------------------------------------------------------


def failing_answers(found: Failing, cases: Mapping[str, Case], *, unfolded: bool) -> Html:
    """Return the answers that do not pass, with what was asked, what was said, and why."""
    if not found.cells:
        return section("Answers that fail", empty_state("None", "Every graded answer passes."))
    told = f"{counted(found.total, 'answer')}, the worst first."
    if found.total > len(found.cells):
        told = f"The worst {len(found.cells):,} of {counted(found.total, 'answer')}."
    folds = (_failing(cell, cases.get(cell.case), unfolded) for cell in found.cells)
    return section("Answers that fail", element("p", told, class_="quiet"), *folds)


def _failing(cell: CellResult, case: Case | None, unfolded: bool) -> Html:
    whose = f"{cell.prompt} with {cell.model}" + (f" #{cell.draw}" if cell.draw else "")
    end = f"{score(cell.composite)} of 100" if cell.composite is not None else cell.error or ""
    summary = element(
        "summary",
        badge(cell.outcome),
        element("strong", element("bdi", cell.case), class_="name"),
        element("span", element("bdi", whose), class_="quiet name"),
        element("span", end, class_="end"),
    )
    body = element("div", *_inside(cell, case), class_="case-body stack")
    return element("details", summary, body, class_="case", open=unfolded)


def _inside(cell: CellResult, case: Case | None) -> Iterator[Html]:
    reasons = [*_reasons(cell)]
    if reasons:
        yield element("ul", *(element("li", text) for text in reasons), class_="reasons")
    boxes = []
    if case is not None:
        boxes.append(_boxed("Asked", _asked(case)))
        if case.expected is not None:
            boxes.append(_boxed("Expected", _written(case.expected)))
    if cell.text is not None:
        boxes.append(_boxed("Answered", cell.text))
    if boxes:
        yield element("div", *boxes, class_="side-by-side")
    else:
        why = "was blocked and is shown to nobody" if cell.status == "blocked" else "is not stored"
        yield element("p", f"The text of this answer {why}.", class_="quiet")
    used = (
        "" if cell.tokens_out is None else f", {cell.tokens_in or 0:,} + {cell.tokens_out:,} tokens"
    )
    late = "" if cell.latency_ms is None else f", {cell.latency_ms:,} ms"
    told = f"cell {cell.id[:12]}, {dollars(cell.cost_microusd)}{used}{late}"
    yield element("p", told, class_="quiet small")


def _reasons(cell: CellResult) -> Iterator[str]:
    if cell.status != "ok":
        yield f"{cell.error or cell.status}: {cell.reason.removeprefix('blocked: ')}".removesuffix(
            ": "
        )
    for part in cell.parts:
        if part.passed is False or part.status == "error":
            what = "could not be graded" if part.status == "error" else f"has {score(part.score)}"
            yield f"{part.kind} {part.name} {what}" + (f": {part.reason}" if part.reason else "")


def _boxed(label: str, text: str) -> Html:
    shown = text if len(text) <= _LONGEST else text[:_LONGEST]
    more = f" (the first {_LONGEST:,} of {len(text):,} characters)" if shown != text else ""
    return element(
        "div",
        element("div", label, more, class_="text-box-label"),
        text_box(shown, label=label, prose=True),
    )


def _asked(case: Case) -> str:
    if len(case.inputs) == 1:
        return _written(next(iter(case.inputs.values())))
    return "\n".join(f"{name}: {_written(value)}" for name, value in case.inputs.items())


def _written(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
    return redacted(text)
