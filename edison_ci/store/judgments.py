"""Judgments: scores of answers, comparisons of two answers, scores of cases as questions.

Also whether the judges of a run were approved to decide its gates.
"""

from __future__ import annotations

import json
from dataclasses import astuple
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.store import ledger
from edison_ci.store.database import marks

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from edison_ci.store.ledger import Totals


@dataclass(frozen=True, slots=True)
class Judgment:
    """An answer of a judge or grader that a cell rests on."""

    model: str
    request_hash: str
    answer_no: int


@dataclass(frozen=True, slots=True)
class JudgeScoreRow:
    """Score of one judge on one criterion, before the judges' scores are combined."""

    judge: str
    criterion: str
    raw: float | None
    """On the criterion's scale; None if the reply cannot be used."""
    score: float | None
    """From 0 (worst) to 1 (best)."""
    missing: str | None = None
    """Why there is no score."""
    reason: str = ""


def write_judge_scores(
    connection: sqlite3.Connection, judge_scores: Iterable[tuple[str, JudgeScoreRow]]
) -> None:
    """Store scores by cell id; they replace earlier scores of the same judge and criterion."""
    if rows := [
        (cell, row.judge, row.criterion, row.raw, row.score, row.missing, row.reason)
        for cell, row in judge_scores
    ]:
        connection.executemany(
            "insert or replace into judge_score values (?, ?, ?, ?, ?, ?, ?)", rows
        )


def judge_scores_of(connection: sqlite3.Connection, cell_id: str) -> tuple[JudgeScoreRow, ...]:
    """Return every judge's scores of a cell."""
    rows = connection.execute(
        "select judge, criterion, raw, score, missing, reason from judge_score where cell_id = ? "
        "order by judge, criterion",
        (cell_id,),
    )
    return tuple(JudgeScoreRow(*row) for row in rows)


def judged_cells(connection: sqlite3.Connection, cells: Collection[str]) -> frozenset[str]:
    """Return which of some cells have a reply of a judge or grader."""
    rows = connection.execute(
        "select value from json_each(?) "
        "where exists (select 1 from judgment where cell_id = value)",
        (json.dumps([*cells]),),
    )
    return frozenset(cell for (cell,) in rows)


def several_judges(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether more than one judge scored the answers of a run."""
    # Every judge scores every answer that is judged, so one answer is enough to read.
    row = connection.execute(
        "select min(o.judge) <> max(o.judge) from judge_score o where o.cell_id = (select c.id "
        "from cell c join judge_score p on p.cell_id = c.id where c.run_id = ? limit 1)",
        (run_id,),
    ).fetchone()
    return bool(row[0])


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """Two answers of a run to one case, compared by a judge in both orders."""

    a_cell: str
    """Head, or the model that is listed later."""
    b_cell: str
    """Base, or the model that is listed first."""
    run_id: str
    judge: str
    judge_hash: str
    ab_winner: str | None
    """`a`, `b` or `tie` when a was shown first; None without a usable reply."""
    ba_winner: str | None
    """The same when b was shown first."""
    ab_reason: str
    ba_reason: str
    chars_a: int
    chars_b: int
    asked: bool
    """False where no judge had to be asked: equal answers, or one that is malformed."""
    own: str | None = None
    """`a`, `b` or `both`: what the judge's own model wrote."""
    judgments: tuple[Judgment, ...] = ()
    """Every reply of the judge, including those that could not be used."""

    @property
    def id(self) -> str:
        """Name of the pair while it waits to be written."""
        return f"{self.a_cell}:{self.b_cell}"

    @property
    def status(self) -> str:
        """`ok`, or `error` if an order is missing."""
        return "error" if self.ab_winner is None or self.ba_winner is None else "ok"


_COMPARISON = (
    "a_cell, b_cell, run_id, judge, judge_hash, ab_winner, ba_winner, ab_reason, ba_reason, "
    "chars_a, chars_b, asked, own, status"
)
_comparison_fields = attrgetter(*_COMPARISON.split(", "))


def store_comparisons(rows: Sequence[ComparisonRow]) -> ledger.OnTotals[None]:
    """Return the operation that stores comparisons, in place of earlier failures."""

    def operation(connection: sqlite3.Connection, _: Totals) -> None:
        connection.executemany(
            f"insert or replace into comparison ({_COMPARISON}) "
            f"values ({marks(_COMPARISON.split(','))})",
            map(_comparison_fields, rows),
        )
        connection.executemany(
            "insert or ignore into judgment values (?, ?, ?, ?)",
            [
                (row.a_cell, j.model, j.request_hash, j.answer_no)
                for row in rows
                for j in row.judgments
            ],
        )

    return ledger.OnTotals(operation)


def is_compared(connection: sqlite3.Connection, a_cell: str, b_cell: str) -> bool:
    """Whether two cells were compared in both orders."""
    row = connection.execute(
        "select 1 from comparison where a_cell = ? and b_cell = ? and status = 'ok'",
        (a_cell, b_cell),
    ).fetchone()
    return row is not None


def comparisons_of(connection: sqlite3.Connection, cell_id: str) -> list[ComparisonRow]:
    """Return every comparison that a cell takes part in."""
    rows = connection.execute(
        f"select {_COMPARISON.removesuffix(', status')} from comparison "
        "where a_cell = ?1 or b_cell = ?1 order by a_cell, b_cell",
        (cell_id,),
    )
    return [ComparisonRow(*row) for row in rows]


def none_compared(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether judges were asked to compare answers of a run, and every comparison failed."""
    row = connection.execute(
        "select count(*), coalesce(sum(x.status = 'ok'), 0) from cell c "
        "join comparison x on x.a_cell = c.id where c.run_id = ? and x.asked = 1",
        (run_id,),
    ).fetchone()
    return bool(row[0] and not row[1])


def any_comparison(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether any two answers of a run were compared."""
    row = connection.execute(
        "select 1 from cell c join comparison x on x.a_cell = c.id where c.run_id = ? limit 1",
        (run_id,),
    ).fetchone()
    return row is not None


class ApprovalRow(NamedTuple):
    """Whether the judges of a run may decide its gates, and how far they agreed with people."""

    judges: str
    """Their names, as JSON."""
    approved: bool
    reason: str
    kappa: float | None
    lower_bound: float | None
    n: int
    cases: int
    floor: float
    passes: int
    true_passes: int
    fails: int
    true_fails: int


def write_approval(run_id: str, row: ApprovalRow | None) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that replaces the stored approval of a run's judges; None removes it."""

    def operation(connection: sqlite3.Connection) -> None:
        connection.execute("delete from judge_approval where run_id = ?", (run_id,))
        if row is not None:
            connection.execute(
                f"insert into judge_approval (run_id, {', '.join(row._fields)}) "
                f"values (?, {marks(row)})",
                (run_id, *row),
            )

    return operation


_QUESTION_COLUMNS = (
    "experiment, case_id, judge, criterion, case_hash, hash, score, low, high, reason, status, "
    "simulated, request_hash, answer_no, judged_at"
)


@dataclass(frozen=True, slots=True)
class QuestionScore:
    """Score of one judge for one case of a dataset by one criterion."""

    experiment: str
    case_id: str
    judge: str
    criterion: str
    case_hash: str
    hash: str
    score: float | None
    low: float
    high: float
    reason: str
    status: str
    """ok or error."""
    simulated: bool
    request_hash: str
    answer_no: int | None
    judged_at: str

    @property
    def share(self) -> float | None:
        """The score as a share of its scale."""
        return None if self.score is None else (self.score - self.low) / (self.high - self.low)


def write_question_scores(scores: Sequence[QuestionScore]) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that stores scores, in place of the judge's earlier ones."""

    def operation(connection: sqlite3.Connection) -> None:
        connection.executemany(
            f"insert or replace into question_score ({_QUESTION_COLUMNS}) "
            f"values ({marks(_QUESTION_COLUMNS.split(','))})",
            [astuple(score) for score in scores],
        )

    return operation


def question_scores(
    connection: sqlite3.Connection, experiment: str, cases: Sequence[str] | None = None
) -> Iterator[QuestionScore]:
    """Yield the question scores of an experiment, case by case; of all cases by default."""
    for case in [None] if cases is None else list(dict.fromkeys(cases)):
        where = "experiment = ?" + ("" if case is None else " and case_id = ?")
        rows = connection.execute(
            f"select {_QUESTION_COLUMNS} from question_score where {where} "
            "order by case_id, judge, criterion",
            (experiment,) if case is None else (experiment, case),
        )
        for row in rows:
            values = list(row)
            values[11] = bool(values[11])
            yield QuestionScore(*values)
