"""The answers of a comparison side by side: case by case, with A and B of each variant together."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.checks.output import parse_output
from edison_ci.records import CellStatus, Move, Side
from edison_ci.results.comparison import compare_choices
from edison_ci.results.comparison_sample import comparison_sample
from edison_ci.results.explanation import expected_form, failure_of
from edison_ci.results.samples import SIDES
from edison_ci.store.answers import answer_at
from edison_ci.store.cells import find_cell
from edison_ci.store.judgments import judge_scores_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from edison_ci.results.comparison import ComparisonEstimate, ComparisonSettings
    from edison_ci.results.comparison_sample import CellChoice
    from edison_ci.results.samples import CellSource, Variant
    from edison_ci.store.answers import CachedAnswer
    from edison_ci.store.cells import CellRow
    from edison_ci.store.judgments import JudgeScoreRow
    from edison_ci.store.runs import Run


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
        return [each for each in self.cases if move is None or each.move == move]


class ComparedAnswer(NamedTuple):
    """An answer of one side."""

    cell: CellRow
    answer: CachedAnswer | None
    text: str | None
    """As it is graded; None without one, or if it is withheld."""
    why: str
    """Why it fails; empty if it does not."""
    judge_scores: tuple[JudgeScoreRow, ...]


class AnswerPair(NamedTuple):
    """The answers of A and B to a case, of one prompt and model; None where one has none."""

    variant: Variant
    a: ComparedAnswer | None
    b: ComparedAnswer | None


def side_by_side(
    connection: sqlite3.Connection, a: CellChoice, b: CellChoice, setting: ComparisonSettings
) -> SideBySide:
    """Compare B with A as `edison compare` does, and list the cases of both."""
    estimate = compare_choices(connection, a, b, setting)
    cells = comparison_sample(connection, a, b, setting.quarantined).cells
    variants = cells.common_variants()
    moved = {each.case: move for move, cases in estimate.moved.items() for each in cases}
    sides = [
        {case for variant in variants for case in cells.case_ids(variant, side)} for side in SIDES
    ]
    rest = sorted((sides[0] & sides[1]) - set(moved))
    listed = [ListedChange(case, move) for case, move in moved.items()]
    listed += [ListedChange(case, None) for case in rest]
    return SideBySide(estimate, tuple(listed), variants, (cells.base, cells.head))


def answer_pairs(
    connection: sqlite3.Connection, found: SideBySide, listed: ListedChange
) -> list[AnswerPair]:
    """Return the answers to a case, A and B of each prompt and model together.

    Of several repeats, those are taken that show the change.
    """
    runs = (found.estimate.a.run, found.estimate.b.run)
    sides = [*map(_Side, runs, found.sources, _orders(listed.move))]
    pairs = []
    for variant in found.variants:
        a, b = (_answer(connection, side, variant, listed.case) for side in sides)
        if a is not None or b is not None:
            pairs.append(AnswerPair(variant, a, b))
    return pairs


_FIRST = "repeat"
_WORST = "status in ('ok', 'skipped'), coalesce(passed, 1), composite, repeat"
_BEST = "status in ('ok', 'skipped') desc, coalesce(passed, 1) desc, composite desc, repeat"


def _orders(move: Move | None) -> tuple[str, str]:
    if move is None:
        return _FIRST, _FIRST
    return (_WORST, _BEST) if move.better else (_BEST, _WORST)


class _Side(NamedTuple):
    """Where the answers of a side are, and which of several repeats is taken."""

    run: Run
    source: CellSource
    order: str


def _answer(
    connection: sqlite3.Connection, side: _Side, variant: Variant, case: str
) -> ComparedAnswer | None:
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
    cell = find_cell(connection, run.id, row[0])
    answer, text = answer_at(connection, cell.request_hash, cell.answer_no), None
    if answer is not None and cell.status is not CellStatus.BLOCKED:
        form = expected_form(run, None, cell.side, cell.version)
        output = parse_output(answer.completion.text, form)
        text = output.raw if output.malformed else output.text
    return ComparedAnswer(
        cell, answer, text, failure_of(cell), judge_scores_of(connection, cell.id)
    )


def outcome_word(answer: ComparedAnswer) -> str:
    """Return the outcome of an answer in a word."""
    cell = answer.cell
    if cell.status is not CellStatus.OK or cell.passed is None:
        return "ungraded" if cell.status is CellStatus.OK else str(cell.status)
    return "pass" if cell.passed else "fail"


def base_of(run: Run) -> tuple[str, Side] | None:
    """Return name and side of the base that a run was measured against; None without one."""
    return None if run.base_commit is None else (run.base_ref or run.base_commit[:8], Side.BASE)


def moves_of(cases: Sequence[ListedChange]) -> dict[Move, int]:
    """Return how many cases changed in each way."""
    return {move: n for move in Move if (n := sum(each.move == move for each in cases))}
