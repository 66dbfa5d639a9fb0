"""How are the scores of each check, criterion and grader spread, and which cases fail in one?

There are several parts to each cell, so this is most of what is read when a run ends: once, in the
order of an index, and added up here, as SQLite would sort all of it to group it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

FAILED = "failed"
"""The kind of mark that a failing case has."""
_BINS = 10
_FAILS_BELOW = 0.5
"""A score fails below this where the part itself neither passes nor fails."""

_PARTS = """
select c.case_id, c.side, c.prompt, c.model, p.kind, p.name, p.score, p.passed, p.status
from cell c join part p on p.cell_id = c.id where c.run_id = ? order by c.case_id
"""


@dataclass(slots=True)
class _Spread:
    """The scores of a part, one after the other."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float | None = None
    high: float | None = None
    passed: int = 0
    failed: int = 0
    errors: int = 0
    skipped: int = 0
    bins: list[int] = field(default_factory=lambda: [0] * _BINS)

    def add(self, score: float | None, passed: int | None, status: str) -> None:
        """Count one more.

        The sum of squares is kept around the running mean (Welford 1962): the plain one loses
        digits.
        """
        if passed is not None:
            self.passed += passed
            self.failed += not passed
        if status != "ok":
            self.errors += status == "error"
            self.skipped += status == "skipped"
        if score is None:
            return
        self.n += 1
        away = score - self.mean
        self.mean += away / self.n
        self.squares += away * (score - self.mean)
        if self.low is None or score < self.low:
            self.low = score
        if self.high is None or score > self.high:
            self.high = score
        self.bins[min(_BINS - 1, max(0, int(score * _BINS)))] += 1

    def row(self) -> tuple[Any, ...]:
        """Return it as a table has it; digits that depend on the order are rounded away."""
        mean = round(self.mean, 12) if self.n else None
        sd = round(math.sqrt(self.squares / (self.n - 1)), 12) if self.n > 1 else None
        counts = (self.passed, self.failed, self.errors, self.skipped)
        return (
            self.n,
            mean,
            self.low,
            self.high,
            sd,
            *counts,
            json.dumps(self.bins, separators=(",", ":")),
        )


def write_parts(connection: sqlite3.Connection, run_id: str) -> None:
    """Write the sums of each part, and a mark on every case that fails in one."""
    spreads: dict[tuple[str, str, str, str, str], _Spread] = {}
    connection.executemany(
        "insert into rollup_mark (run_id, side, kind, value, case_id) values (?, ?, ?, ?, ?)",
        ((run_id, *mark) for mark in _read(connection, run_id, spreads)),
    )
    connection.executemany(
        "insert into rollup_part (run_id, side, prompt, model, kind, name, n, mean, min, max, sd, "
        f"passed, failed, errors, skipped, bins) values ({', '.join('?' * 16)})",
        [(run_id, *key, *spread.row()) for key, spread in sorted(spreads.items())],
    )


def _read(
    connection: sqlite3.Connection, run_id: str, spreads: dict[Any, _Spread]
) -> Iterator[tuple[str, str, str, str]]:
    """Add up the parts; yield side, kind, value and case of each mark on the way."""
    for case, rows in groupby(connection.execute(_PARTS, (run_id,)), key=itemgetter(0)):
        failing = set()
        for _, side, prompt, model, kind, name, score, passed, status in rows:
            key = (side, prompt, model, kind, name)
            spread = spreads.get(key)
            if spread is None:
                spread = spreads[key] = _Spread()
            spread.add(score, passed, status)
            if not passed and (passed == 0 or (score is not None and score < _FAILS_BELOW)):
                failing.add((side, f"{kind}:{name}"))
        for side, part in failing:
            yield side, FAILED, part, case
