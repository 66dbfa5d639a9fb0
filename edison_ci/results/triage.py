"""Triage: which cases of a run fail, why, and what changed against the base.

From the sums of cases that are written when a run ends, so that no list of cells is gone through;
only the cells that are shown are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.errors import UsageError
from edison_ci.numeric import mean
from edison_ci.records import Move, Side
from edison_ci.results import case_grid, comparison, comparison_sample, explanation, samples
from edison_ci.store import cells as store_cells

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

    from edison_ci.results.explanation import CellExplanation
    from edison_ci.results.run_result import RunResult
    from edison_ci.stats.flips import CaseFlips
    from edison_ci.store.runs import Run

SHOWN = 10
"""Failing cases that are listed unless all are asked for."""


class FailingCase(NamedTuple):
    """A case that fails, by its worst answer."""

    case: str
    model: str
    repeat: int
    composite: float | None
    """Of its worst answer; None if it could not be graded."""
    newly: bool
    """Whether it passes on the base."""
    why: str
    """In one sentence."""


class Triage(NamedTuple):
    """What fails in a run that has ended. Cases in quarantine are left out."""

    cases: int
    failing: int
    """Cases with an answer that does not pass, or is in error."""
    flips: CaseFlips | None
    """Cases that began to fail or to pass since the base; None without a base."""
    worst: tuple[FailingCase, ...]
    """Newly failing cases first, then by score."""


class ShownAnswer(NamedTuple):
    """An answer in brief."""

    cell: str
    composite: float | None
    passed: bool | None
    text: str | None
    """None if it was blocked or is no longer stored."""
    why: str
    """Why it passed or failed, in one sentence."""


class ChangedCase(NamedTuple):
    """A case that changed since the base, with an answer of each side."""

    case: str
    prompt: str
    model: str
    move: Move
    before: ShownAnswer
    after: ShownAnswer


def triage_of(result: RunResult, *, most: int | None = SHOWN) -> Triage:
    """Return what fails in a run; at most so many cases are listed, or all of them."""
    connection, run, left_out = result.connection, result.run, result.quarantined
    passes, flips = _flips(result, left_out)
    newly = {case for case, (before, after) in passes.items() if before and not after}
    cases, failing = _counts(connection, run, left_out)
    listed = _worst_cases(connection, run, left_out, newly, failing if most is None else most)
    worst = tuple(_failing(connection, run, case, case in newly) for case in listed)
    return Triage(cases, failing, flips, worst)


_BAD = "failed + malformed + blocked + error > 0"


def _counts(connection: sqlite3.Connection, run: Run, left_out: Collection[str]) -> tuple[int, int]:
    """Return how many cases a run has, and how many of them fail."""
    count = (
        f"select count(*), coalesce(sum({_BAD}), 0) from rollup_case "
        "where run_id = ? and side = 'head'"
    )
    cases, failing = connection.execute(count, (run.id,)).fetchone()
    for case in left_out:
        aside, bad = connection.execute(f"{count} and case_id = ?", (run.id, case)).fetchone()
        cases, failing = cases - aside, failing - bad
    return cases, failing


def _worst_cases(
    connection: sqlite3.Connection,
    run: Run,
    left_out: Collection[str],
    newly: Collection[str],
    most: int,
) -> list[str]:
    """Return the first failing cases, newly failing ones before others, each kind by score.

    They are read one by one until there are enough: a run may have a million.
    """
    first: list[str] = []
    others: list[str] = []
    if most:
        rows = connection.execute(
            f"select case_id from rollup_case where run_id = ? and side = 'head' and {_BAD} "
            "order by lowest, composite, case_id",
            (run.id,),
        )
        for (case,) in rows:
            if case not in left_out and len(found := first if case in newly else others) < most:
                found.append(case)
            if len(first) == min(most, len(newly)) and len(first) + len(others) >= most:
                break
    return [*first, *others][:most]


def _flips(
    result: RunResult, left_out: Collection[str]
) -> tuple[dict[str, tuple[bool, bool]], CaseFlips | None]:
    base = "select 1 from rollup_case where run_id = ? and side = 'base' limit 1"
    if not result.connection.execute(base, (result.run.id,)).fetchone():
        return {}, None
    cells = samples.TwoSidedSample.of_run(result.connection, result.run.id, left_out)
    variants = cells.common_variants()
    return cells.flips(variants, result.clusters) if variants else ({}, None)


def _failing(connection: sqlite3.Connection, run: Run, case: str, newly: bool) -> FailingCase:
    """Return the worst answer of a case."""
    (cell_id,) = connection.execute(
        f"select id from cell where run_id = ? and case_id = ? and side = 'head' {_WORST_FIRST}",
        (run.id, case),
    ).fetchone()
    cell = store_cells.find_cell(connection, run.id, cell_id)
    why = reason_of(explanation.explain(connection, None, run, cell))
    return FailingCase(case, cell.model, cell.repeat, cell.composite, newly, why)


_WORST_FIRST = (
    "order by status in ('ok', 'skipped'), coalesce(passed, 1), composite, prompt, model, repeat "
    "limit 1"
)
_BEST_FIRST = (
    "order by status in ('ok', 'skipped') desc, coalesce(passed, 1) desc, composite desc, repeat "
    "limit 1"
)


def reason_of(found: CellExplanation) -> str:
    """Return why an answer passed or failed, by the first component that fails."""
    return explanation.failure_of(found.cell) or found.why


def changed_cases(result: RunResult, *, most: int | None = None) -> tuple[ChangedCase, ...]:
    """Return the cases that changed: newly failing ones, then fixed ones, then scores."""
    order = [*Move]
    moved = [
        (order.index(move), -abs(case.b - case.a), case.case, change.prompt, change.model)
        for change in result.changes
        for move, cases in change.comparison.moved.items()
        for case in cases
    ]
    return tuple(
        _changed(result, order[place], case, prompt, model)
        for place, _, case, prompt, model in sorted(moved)[:most]
    )


class ChangedList(NamedTuple):
    """Cases that changed in the same way, over all prompts and models."""

    move: Move
    total: int
    cases: tuple[ChangedCase, ...]
    """The first of them, each by the model with which it changed most."""


def changed_lists(result: RunResult, *, most: int) -> tuple[ChangedList, ...]:
    """Return the cases that changed since the base, by kind; the counts are those of the flips."""
    base, head = (
        comparison_sample.CellChoice(str(side), result.run, side=side) for side in samples.SIDES
    )
    setting = comparison.ComparisonSettings((), result.clusters, result.quarantined)
    try:
        moved = comparison.compare_choices(result.connection, base, head, setting).moved
    except UsageError:  # no cells on the base, or nothing in common: gates and notes say so
        return ()
    found = []
    for move, cases in moved.items():
        shown = (changed_case(result, each.case, move) for each in cases[:most])
        known = tuple(each for each in shown if each is not None)
        if cases:
            found.append(ChangedList(move, len(cases), known))
    return tuple(found)


def changed_case(result: RunResult, case: str, move: Move) -> ChangedCase | None:
    """Return a case that is known to have changed, by the model with which it changed most."""
    sides: dict[tuple[str, str], dict[str, list[float]]] = {}
    for each in case_grid.answers_to(result.connection, result.run.id, case):
        scores = sides.setdefault((each.prompt, each.model), {}).setdefault(each.side, [])
        scores.append(each.composite or 0.0)
    gains = {
        variant: mean(found[Side.HEAD]) - mean(found[Side.BASE])
        for variant, found in sides.items()
        if {Side.HEAD, Side.BASE} <= found.keys()
    }
    if not gains:
        return None
    sign = 1 if move.better else -1
    prompt, model = max(gains, key=lambda variant: sign * gains[variant])
    return _changed(result, move, case, prompt, model)


def _changed(result: RunResult, move: Move, case: str, prompt: str, model: str) -> ChangedCase:
    """Return the answers that show the change: the best of the better side, the other's worst."""
    sides = (Side.BASE, Side.HEAD)
    orders = (_WORST_FIRST, _BEST_FIRST) if move.better else (_BEST_FIRST, _WORST_FIRST)
    before, after = (
        _shown(result, (side, case, prompt, model), order)
        for side, order in zip(sides, orders, strict=True)
    )
    return ChangedCase(case, prompt, model, move, before, after)


def _shown(result: RunResult, place: tuple[str, ...], order: str) -> ShownAnswer:
    (cell_id,) = result.connection.execute(
        "select id from cell where run_id = ? and side = ? and case_id = ? and prompt = ? "
        f"and model = ? {order}",
        (result.run.id, *place),
    ).fetchone()
    cell = store_cells.find_cell(result.connection, result.run.id, cell_id)
    found = explanation.explain(result.connection, None, result.run, cell)
    return ShownAnswer(cell.id, cell.composite, cell.passed, found.text, reason_of(found))
