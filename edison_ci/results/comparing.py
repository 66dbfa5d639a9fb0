"""How does head differ from base, over all prompts and models?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.frozen import dataclass
from edison_ci.rounding import snap
from edison_ci.stats.arrays import generator_for
from edison_ci.stats.intervals import Interval, clustered_interval, mean_interval
from edison_ci.stats.paired import Pairs, paired_difference
from edison_ci.stats.permutation import paired_p

if TYPE_CHECKING:
    import sqlite3


@dataclass(frozen=True, slots=True)
class Compared:
    """The score of the base, and the change from it on the cases that both sides have."""

    composite: Interval | None
    estimate: float | None
    low: float | None
    high: float | None
    n: int
    p: float | None

    def as_json(self) -> dict[str, Any] | None:
        """Return the change; None when there is no pair."""
        if self.estimate is None:
            return None
        return {
            "estimate": self.estimate,
            "low": self.low,
            "high": self.high,
            "n": self.n,
            "p": self.p,
        }


def compared(connection: sqlite3.Connection, run_id: str) -> Compared:
    """Return the change of the composite from base to head; the unit is the case.

    Prompts and models that only one side has say nothing about a change.
    """
    rows = connection.execute(
        "select case_id, avg(case side when 'base' then composite end), "
        "avg(case side when 'head' then composite end), max(cluster) from cell "
        "where run_id = ?1 and status in ('ok', 'malformed') and (prompt, model) in ("
        "select prompt, model from cell where run_id = ?1 and side = 'base' intersect "
        "select prompt, model from cell where run_id = ?1 and side = 'head') "
        "group by case_id order by case_id",
        (run_id,),
    )
    pairs: list[tuple[str, float, float, str | None]] = []
    alone: list[tuple[float, str]] = []
    for case_id, before, after, cluster in rows:
        group = f"cluster {cluster}" if cluster is not None else f"case {case_id}"
        if before is not None:
            alone.append((snap(before), group))
        if before is not None and after is not None:
            pairs.append((group, snap(before), snap(after), case_id))
    clustered = any(group.startswith("cluster ") for _, group in alone)
    score = _score(alone, clustered=clustered)
    if not pairs:
        return Compared(score, None, None, None, 0, None)
    groups = tuple(group for group, *_ in pairs) if clustered else None
    base, head = [p[1] for p in pairs], [p[2] for p in pairs]
    found = paired_difference([b - a for a, b in zip(base, head, strict=True)], clusters=groups)
    if found is None:
        return Compared(score, None, None, None, 0, None)
    low, high = found.interval or (None, None)
    rng = generator_for([str(p[3]) for p in pairs])
    p = paired_p(Pairs.of(base, head, groups), rng=rng).value if len(pairs) > 1 else None
    return Compared(score, found.value, low, high, found.n, p)


def _score(alone: list[tuple[float, str]], *, clustered: bool) -> Interval | None:
    scores = [score for score, _ in alone]
    if clustered:
        return clustered_interval(scores, [group for _, group in alone])
    return mean_interval(scores)
