"""How does head differ from base, over all prompts and models?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edison_ci.stats.arrays import generator_for
from edison_ci.stats.intervals import Interval, mean_interval
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
    """Return the change of the composite from base to head; the unit is the case."""
    rows = connection.execute(
        "select case_id, avg(case side when 'base' then composite end), "
        "avg(case side when 'head' then composite end) from cell "
        "where run_id = ? and status in ('ok', 'malformed') group by case_id order by case_id",
        (run_id,),
    )
    ids: list[str] = []
    base: list[float] = []
    head: list[float] = []
    alone: list[float] = []
    for case_id, before, after in rows:
        if before is not None:
            alone.append(before)
        if before is not None and after is not None:
            ids.append(case_id)
            base.append(before)
            head.append(after)
    score = mean_interval(alone) if alone else None
    found = paired_difference([b - a for a, b in zip(base, head, strict=True)]) if ids else None
    if found is None:
        return Compared(score, None, None, None, 0, None)
    low, high = found.interval or (None, None)
    p = paired_p(Pairs.of(base, head), rng=generator_for(ids)).value if len(ids) > 1 else None
    return Compared(score, found.value, low, high, found.n, p)
