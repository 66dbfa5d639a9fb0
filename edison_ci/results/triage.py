"""Triage: which cases fail, why, and what changed, with the answers of both sides.

From the sums of cases that are written when a run ends, so that no list of cells is gone through;
only the cells that are shown are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError
from edison_ci.numeric import mean
from edison_ci.records import Move, Side
from edison_ci.results import case_grid, comparison, comparison_sample, explanation, samples
from edison_ci.store import cells as store_cells
from edison_ci.store.answers import answer_at
from edison_ci.store.judgments import judge_scores_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection

    from edison_ci.results.comparison import ComparisonEstimate, ComparisonSettings
    from edison_ci.results.comparison_sample import CellChoice
    from edison_ci.results.run_result import RunResult
    from edison_ci.results.samples import CellSource, Variant
    from edison_ci.stats.flips import CaseFlips
    from edison_ci.store.answers import CachedAnswer
    from edison_ci.store.cells import CellRow
    from edison_ci.store.judgments import JudgeScoreRow
    from edison_ci.store.runs import Run


class FailingCase(NamedTuple):
    """A case that fails, by its worst answer."""

    case: str
    model: str
    repeat: int
    composite: float | None
    """Of its worst answer; None if it could not be graded."""
    newly: bool
    """Whether it passes on the base."""
    before: float | None
    """Its mean score on the base, if it is newly failing."""
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


def triage_of(result: RunResult, *, most: int | None) -> Triage:
    """Return what fails in a run; at most `most` cases are listed, or all of them."""
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
            if case not in left_out and len(listed := first if case in newly else others) < most:
                listed.append(case)
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
        f"select id from cell where run_id = ? and case_id = ? and side = 'head' "
        f"order by {_WORST} limit 1",
        (run.id, case),
    ).fetchone()
    cell = store_cells.find_cell(connection, run.id, cell_id)
    why, before = explanation.outcome_reason(cell), None
    if newly:
        (before,) = connection.execute(
            "select avg(composite) from cell where run_id = ? and case_id = ? and side = 'base' "
            "and prompt = ? and model = ?",
            (run.id, case, cell.prompt, cell.model),
        ).fetchone()
    return FailingCase(case, cell.model, cell.repeat, cell.composite, newly, before, why)


_WORST = "status in ('ok', 'skipped'), coalesce(passed, 1), composite, prompt, model, repeat"
_BEST = "status in ('ok', 'skipped') desc, coalesce(passed, 1) desc, composite desc, repeat"


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
    lists = []
    for move, cases in moved.items():
        changed = (changed_case(result, moved_case.case, move) for moved_case in cases[:most])
        cases_shown = tuple(moved_case for moved_case in changed if moved_case is not None)
        if cases:
            lists.append(ChangedList(move, len(cases), cases_shown))
    return tuple(lists)


def changed_case(result: RunResult, case: str, move: Move) -> ChangedCase | None:
    """Return a case that is known to have changed, by the model with which it changed most."""
    sides: dict[tuple[str, str], dict[str, list[float]]] = {}
    for answer in case_grid.answers_to(result.connection, result.run.id, case):
        scores = sides.setdefault((answer.prompt, answer.model), {}).setdefault(answer.side, [])
        scores.append(answer.composite or 0.0)
    gains = {
        variant: mean(scores_by_side[Side.HEAD]) - mean(scores_by_side[Side.BASE])
        for variant, scores_by_side in sides.items()
        if {Side.HEAD, Side.BASE} <= scores_by_side.keys()
    }
    if not gains:
        return None
    sign = 1 if move.better else -1
    prompt, model = max(gains, key=lambda variant: sign * gains[variant])
    return _changed(result, move, case, prompt, model)


def _changed(result: RunResult, move: Move, case: str, prompt: str, model: str) -> ChangedCase:
    """Return the answers that show the change: the best of the better side, the other's worst."""
    before, after = (
        _shown(result, (side, case, prompt, model), order)
        for side, order in zip(samples.SIDES, _orders(move), strict=True)
    )
    return ChangedCase(case, prompt, model, move, before, after)


def _shown(result: RunResult, place: tuple[str, ...], order: str) -> ShownAnswer:
    connection, run = result.connection, result.run
    (cell_id,) = connection.execute(
        "select id from cell where run_id = ? and side = ? and case_id = ? and prompt = ? "
        f"and model = ? order by {order} limit 1",
        (run.id, *place),
    ).fetchone()
    answer = _answer_of(connection, run, cell_id)
    cell, why = answer.cell, explanation.outcome_reason(answer.cell)
    return ShownAnswer(cell.id, cell.composite, cell.passed, answer.text, why)


class ListedChange(NamedTuple):
    """A case of a comparison; its move is None if it did not change."""

    case: str
    move: Move | None


@dataclass(frozen=True, slots=True)
class SideBySide:
    """A comparison, and the cases that both sides have: changed ones first."""

    estimate: ComparisonEstimate
    cases: tuple[ListedChange, ...]
    variants: tuple[Variant, ...]
    """The prompts and models of which each case has a pair of answers."""
    sources: tuple[CellSource, CellSource]

    def of(self, move: Move | None) -> list[ListedChange]:
        """Return the cases that changed in a way; all for None."""
        return [change for change in self.cases if move is None or change.move == move]

    @property
    def moves(self) -> dict[Move, int]:
        """How many cases changed in each way."""
        return {move: n for move in Move if (n := len(self.of(move)))}


class StoredAnswer(NamedTuple):
    """An answer to a case, of one side of a comparison."""

    cell: CellRow
    answer: CachedAnswer | None
    text: str | None
    """As it is graded; None without one, or if it is withheld."""
    judge_scores: tuple[JudgeScoreRow, ...] = ()

    @property
    def word(self) -> str:
        """The outcome in a word."""
        return case_grid.outcome_word(self.cell.status, self.cell.passed)

    @property
    def why(self) -> str:
        """Why it fails; empty if it does not."""
        return explanation.failure_of(self.cell)


class AnswerPair(NamedTuple):
    """The answers of A and B to a case, of one prompt and model; None where one has none."""

    variant: Variant
    a: StoredAnswer | None
    b: StoredAnswer | None


def side_by_side(
    connection: sqlite3.Connection, a: CellChoice, b: CellChoice, setting: ComparisonSettings
) -> SideBySide:
    """Compare B with A as `edison compare` does, and list the cases of both."""
    estimate = comparison.compare_choices(connection, a, b, setting)
    cells = comparison_sample.comparison_sample(connection, a, b, setting.quarantined).cells
    variants = cells.common_variants()
    moved = {change.case: move for move, cases in estimate.moved.items() for change in cases}
    base_cases, head_cases = (
        {case for variant in variants for case in cells.case_ids(variant, side)}
        for side in samples.SIDES
    )
    rest = sorted((base_cases & head_cases) - set(moved))
    listed = [ListedChange(case, move) for case, move in moved.items()]
    listed += [ListedChange(case, None) for case in rest]
    return SideBySide(estimate, tuple(listed), variants, (cells.base, cells.head))


def answer_pairs(
    connection: sqlite3.Connection, compared: SideBySide, listed: ListedChange
) -> list[AnswerPair]:
    """Return the answers to a case, A and B of each prompt and model together.

    Of several repeats, those are taken that show the change.
    """
    runs = (compared.estimate.a.run, compared.estimate.b.run)
    sides = [*zip(runs, compared.sources, _orders(listed.move), strict=True)]
    pairs = []
    for variant in compared.variants:
        a, b = (_answer(connection, side, variant, listed.case) for side in sides)
        if a is not None or b is not None:
            pairs.append(AnswerPair(variant, a, b))
    return pairs


def _orders(move: Move | None) -> tuple[str, str]:
    """Return which repeat of each side shows a change."""
    if move is None:
        return "repeat", "repeat"
    return (_WORST, _BEST) if move.better else (_BEST, _WORST)


def _answer(
    connection: sqlite3.Connection, side: tuple[Run, CellSource, str], variant: Variant, case: str
) -> StoredAnswer | None:
    run, source, order = side
    stored = source.stored_name(variant)
    row = connection.execute(
        "select id from cell where run_id = ? and case_id = ? and side = ? and prompt = ? "
        f"and model = ? and substr(version, 1, ?) = ? order by {order} limit 1",
        (
            *(source.run_id, case, source.side, stored.prompt, stored.model),
            *(len(source.version), source.version),
        ),
    ).fetchone()
    if row is None:
        return None
    answer = _answer_of(connection, run, row[0])
    return answer._replace(judge_scores=judge_scores_of(connection, answer.cell.id))


def _answer_of(connection: sqlite3.Connection, run: Run, cell_id: str) -> StoredAnswer:
    cell = store_cells.find_cell(connection, run.id, cell_id)
    answer = answer_at(connection, cell.request_hash, cell.answer_no)
    output = explanation.output_of(run, cell, answer)
    return StoredAnswer(cell, answer, explanation.text_of(output))
