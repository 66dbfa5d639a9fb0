"""What judges say of the cases of a dataset, as questions."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence

_COLUMNS = (
    "experiment, case_id, judge, criterion, case_hash, hash, score, low, high, reason, status, "
    "simulated, address, take, judged_at"
)


@dataclass(frozen=True, slots=True)
class QuestionScore:
    """What one judge says of one case by one criterion."""

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
    address: str
    take: int | None
    judged_at: str

    @property
    def share(self) -> float | None:
        """The score as a share of its scale."""
        return None if self.score is None else (self.score - self.low) / (self.high - self.low)


def keep_scores(scores: Sequence[QuestionScore]) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that stores scores, in the place of what the judge said before."""

    def operation(connection: sqlite3.Connection) -> None:
        connection.executemany(
            f"insert or replace into question_score ({_COLUMNS}) "
            f"values ({', '.join('?' * len(_COLUMNS.split(',')))})",
            [astuple(score) for score in scores],
        )

    return operation


def count_judged(connection: sqlite3.Connection, experiment: str) -> int:
    """Return how many cases of an experiment judges have scored as questions."""
    row = connection.execute(
        "select count(distinct case_id) from question_score where experiment = ?", (experiment,)
    ).fetchone()
    return int(row[0])


def last_judged(connection: sqlite3.Connection, experiment: str) -> str | None:
    """Return when a case of an experiment was last scored as a question."""
    row = connection.execute(
        "select max(judged_at) from question_score where experiment = ?", (experiment,)
    ).fetchone()
    return None if row[0] is None else str(row[0])


def scores_of(
    connection: sqlite3.Connection, experiment: str, cases: Sequence[str] | None = None
) -> Iterator[QuestionScore]:
    """Yield what is known of the cases of an experiment, case by case; None stands for all."""
    for case in [None] if cases is None else list(dict.fromkeys(cases)):
        where = "experiment = ?" + ("" if case is None else " and case_id = ?")
        rows = connection.execute(
            f"select {_COLUMNS} from question_score where {where} "
            "order by case_id, judge, criterion",
            (experiment,) if case is None else (experiment, case),
        )
        for row in rows:
            known = list(row)
            known[11] = bool(known[11])
            yield QuestionScore(*known)
