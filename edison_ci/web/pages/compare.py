"""The comparison of two runs, refs or prompt versions, with the answers side by side."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.documents.secrets import redacted
from edison_ci.errors import EdisonError, UsageError
from edison_ci.records import Move, Side
from edison_ci.results.comparison import pair_settings
from edison_ci.results.comparison_sample import CellChoice, Operands
from edison_ci.results.run_lists import recent_ids
from edison_ci.results.triage import (
    AnswerPair,
    ListedChange,
    SideBySide,
    StoredAnswer,
    answer_pairs,
    side_by_side,
)
from edison_ci.web.cache import REFRESH_S
from edison_ci.web.page_context import (
    MOST_CELLS,
    Crumb,
    Page,
    PageContext,
    Paging,
    requested_run,
    run_results,
)
from edison_ci.web.pages.answers import Reason, grade_reasons, word_diff
from edison_ci.web.workspace import project_of

if TYPE_CHECKING:
    from markupsafe import Markup

    from edison_ci.store.runs import Run

_PER_PAGE = 5
"""Cases on a page: each has up to eight texts."""
_MOST_WORDS = 500
"""Words up to which two answers are compared word by word; the time grows with the square."""
_OFFERED = 20
"""Newest runs that the fields offer."""


class ShownAnswer(NamedTuple):
    """An answer of one side, as the page shows it."""

    answer: StoredAnswer
    word: str
    text: str
    changes: Markup | None
    """Word diff to A; None for A, without one, or if the texts are too long."""
    same: bool
    """Whether it is the text of A."""
    reasons: list[Reason]


class ShownPair(NamedTuple):
    """The answers of A and B, of one prompt and model."""

    title: str
    sides: tuple[ShownAnswer | None, ShownAnswer | None]


class ShownCase(NamedTuple):
    """A case of the comparison."""

    listed: ListedChange
    pairs: list[ShownPair]


def compare(context: PageContext) -> Page:
    """Return the comparison that the address names; without one, the form to choose."""
    args = context.args
    operands = {"a": args.text("a"), "b": args.text("b"), "prompts": args.flag("prompts")}
    kept = {**operands, "experiment": args.text("experiment"), "full": args.flag("full")}
    move = args.choice("move", ("", *map(str, Move)))
    values: dict[str, Any] = {
        **kept,
        "move": move,
        "runs": run_results(context, recent_ids(context.connection, _OFFERED)),
        "found": None,
        "wrong": "",
        "hint": "",
        "waiting": False,
    }
    crumbs: tuple[Crumb, ...] = (Crumb("Experiments", context.links.to()),)
    title = "Compare"
    if operands["a"] or operands["b"]:
        try:
            a, b = _choices(context)
            title = f"{b.name} compared with {a.name}"
            run = Crumb(f"run {b.run.id}", context.links.to("run", b.run.id))
            crumbs = (*crumbs, *_experiment(context, b.run), run)
            values |= {"choices": (a, b)} | _compared(context, a, b, kept, move)
        except EdisonError as error:
            values |= {"wrong": error.message, "hint": error.hint}
    refresh_s = REFRESH_S if values["waiting"] else None
    return Page("compare", title, values, crumbs=crumbs, area="home", refresh_s=refresh_s)


def _experiment(context: PageContext, run: Run) -> tuple[Crumb, ...]:
    return (Crumb(run.experiment, context.links.to("experiment", run.experiment)),)


def _choices(context: PageContext) -> tuple[CellChoice, CellChoice]:
    """Return A and B; without A, the base of the run that B names."""
    a, b = context.args.text("a"), context.args.text("b") or "latest"
    project = project_of(context)
    if not a:
        run = requested_run(context, b)
        if run.base_commit is None:
            raise UsageError(
                f"run {run.id} was measured without a base", hint="name what to compare it with"
            )
        name = run.base_ref or run.base_commit[:8]
        return CellChoice(name, run, Side.BASE), CellChoice(b, run)
    if project is None:  # names other than those of runs need the files
        return CellChoice(a, requested_run(context, a)), CellChoice(b, requested_run(context, b))
    operands = Operands(context.connection, project, context.args.text("experiment") or None)
    if not context.args.flag("prompts"):
        return operands.pair(a, b)
    names = [PurePosixPath(name).name.removesuffix(".md") for name in (a, b)]
    run = operands.run_with(*names)
    first, second = (CellChoice(name, run, prompt=name) for name in names)
    return first, second


def _compared(
    context: PageContext, a: CellChoice, b: CellChoice, kept: dict[str, Any], move: str
) -> dict[str, Any]:
    """Return the values of a comparison."""
    if max(a.run.cells_planned, b.run.cells_planned) > MOST_CELLS:
        raise UsageError(
            "these runs are too large to be compared on a page",
            hint=f"edison compare {a.name} {b.name}",
        )
    comparison = _cached_comparison(context, a, b)
    if comparison is None:
        return {"waiting": True}
    cases = comparison.of(next((listed for listed in Move if listed == move), None))
    number = context.args.whole("page", 1)
    pages = max(1, -(-len(cases) // _PER_PAGE))
    paging = Paging(min(number, pages), len(cases), _PER_PAGE)
    compared_cases = [
        ShownCase(listed, _pairs(context, comparison, listed, full=kept["full"]))
        for listed in cases[paging.offset : paging.offset + _PER_PAGE]
    ]

    def again(**changes: Any) -> str:
        return context.links.to("compare", **{**kept, "move": move, **changes})

    return {
        "found": comparison.estimate,
        "shown": compared_cases,
        "paging": paging,
        "again": again,
        "moves": comparison.moves,
        "all": len(comparison.cases),
    }


def _cached_comparison(context: PageContext, a: CellChoice, b: CellChoice) -> SideBySide | None:
    """Return the comparison, cached with everything that it depends on."""
    setting = pair_settings(project_of(context), context.connection, a, b)
    sides = tuple(
        (side.name, side.run.id, side.run.finished_at, side.side, side.prompt, side.version)
        for side in (a, b)
    )
    state = (repr(setting.gates), setting.quarantined)
    cells = a.run.cells_planned + b.run.cells_planned
    return context.computed(
        lambda own: side_by_side(own.connection, a, b, setting),
        *("compare", sides, state),
        cells=0 if a.run.moving or b.run.moving else cells,
    )


def _pairs(
    context: PageContext, comparison: SideBySide, listed: ListedChange, *, full: bool
) -> list[ShownPair]:
    several = len({variant.prompt for variant in comparison.variants}) > 1
    return [
        _pair(pair, several=several, full=full)
        for pair in answer_pairs(context.connection, comparison, listed)
    ]


def _pair(pair: AnswerPair, *, several: bool, full: bool) -> ShownPair:
    before = redacted(pair.a.text or "") if pair.a is not None else ""
    sides: list[ShownAnswer | None] = []
    for answer in (pair.a, pair.b):
        if answer is None:
            sides.append(None)
            continue
        text, changes = redacted(answer.text or ""), None
        later = answer is pair.b and pair.a is not None
        if later and not full and text != before:
            changes = word_diff(before, text, most=_MOST_WORDS)
        same = later and bool(text) and text == before
        reasons = grade_reasons(answer.cell, answer.judge_scores)
        sides.append(ShownAnswer(answer, answer.word, text, changes, same, reasons))
    title = f"{pair.variant.model} · {pair.variant.prompt}" if several else pair.variant.model
    return ShownPair(title, (sides[0], sides[1]))
