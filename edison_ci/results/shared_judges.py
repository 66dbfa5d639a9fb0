"""Scores by the judges that graded both sides of a case.

A judge may fail on one side. If it is a strict one, that side would look better than it is; so in a
comparison a criterion is scored by the judges that both sides have (STATS 3).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from edison_ci.judges.panel import combine_scores
from edison_ci.results.snapshot import experiment_in, snapshot_of
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence

    from edison_ci.judges.panel import Combine

ByJudge: TypeAlias = dict[str, dict[str, float]]
"""Scores by criterion, then by judge."""


def combine_of(connection: sqlite3.Connection, run_id: str) -> Combine:
    """Return how a run combined the scores of its judges."""
    run = find_run(connection, run_id)
    judges = experiment_in(snapshot_of(run), run.experiment).get("judges") or {}
    how: Combine = judges.get("combine", "mean")
    return how


def judge_scores_of(
    connection: sqlite3.Connection, cells: str, values: Mapping[str, object]
) -> ByJudge:
    """Return the scores of each judge for the cells `c` of a condition."""
    rows = connection.execute(
        "select o.criterion, o.judge, o.score from cell c join judge_score o on o.cell_id = c.id "
        f"where {cells} and o.score is not null order by o.judge",
        values,
    )
    found: ByJudge = defaultdict(dict)
    for criterion, judge, score in rows:
        found[criterion][judge] = score
    return dict(found)


def shared_scores(sides: Sequence[ByJudge], combine: Combine) -> list[dict[str, float | None]]:
    """Return the scores of each side by the judges of both, where their judges differ."""
    base, head = sides
    found: list[dict[str, float | None]] = [{}, {}]
    for criterion in sorted(base.keys() & head.keys()):
        if base[criterion].keys() == head[criterion].keys():
            continue
        both = sorted(base[criterion].keys() & head[criterion].keys())
        for scores, side in zip(found, sides, strict=True):
            scores[criterion] = combine_scores([side[criterion][judge] for judge in both], combine)
    return found
