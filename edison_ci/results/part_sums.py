"""How do the scores of each check, criterion and grader come out, and which cases fail in one?

There are several parts to each cell, so this is most of what is read when a run ends: once, in the
order of an index, and added up here, as SQLite would sort all of it to group it.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.rounding import TOLERANCE, snap

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

FAILED = "failed"
"""The kind of mark that a failing case has."""
_BATCH = 1000
_BINS = 10
_FAILS_BELOW = 0.5 - TOLERANCE
"""A score fails below this where the part itself neither passes nor fails."""

# What most rows do not have is null: to make a text of it takes longer than to find it.
_PARTS = f"""
select p.kind, p.name, p.score, p.passed, nullif(p.status, 'ok'), c.rowid,
  p.kind = 'safety' and c.status = 'blocked' and p.reason <> 'flag',
  case when p.passed = 0 or (p.passed is null and p.score < {_FAILS_BELOW}) then c.case_id end
  {{who}}
from cell c join part p on p.cell_id = c.id where c.run_id = ? and c.side = ? order by c.case_id
"""
_SCORE, _PASSED, _STATUS, _CELL, _BLOCKED, _FAILING, _WHO = range(2, 9)
_Rows = list[tuple[Any, ...]]
_Part = tuple[str, str]
"""Kind and name."""


class PartTotal(NamedTuple):
    """How a check, criterion or grader went, over all prompts and models."""

    name: str
    kind: str
    graded: int
    """Answers it gave a score to."""
    passed: int
    mean: float | None
    errors: int
    blocked: int
    """Answers that a screen kept back."""


@dataclass(slots=True)
class _Total:
    """The sums of a part over a side."""

    first: int
    """The first cell that has it."""
    n: int = 0
    total: float = 0.0
    passed: int = 0
    errors: int = 0
    blocked: int = 0

    def add(self, rows: _Rows) -> None:
        """Count some more, in their order."""
        self.first = min(self.first, min([row[_CELL] for row in rows]))
        scores = [row[_SCORE] for row in rows if row[_SCORE] is not None]
        self.n += len(scores)
        self.total += math.fsum(scores)
        self.passed += sum([row[_PASSED] for row in rows if row[_PASSED]])
        self.errors += sum([row[_STATUS] == "error" for row in rows])
        self.blocked += sum([row[_BLOCKED] for row in rows])

    def of(self, part: _Part) -> PartTotal:
        mean = snap(self.total / self.n) if self.n else None
        kind, name = part
        return PartTotal(name, kind, self.n, self.passed, mean, self.errors, self.blocked)


@dataclass(slots=True)
class _Spread:
    """The scores of a part with a prompt and model."""

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

    def add(self, rows: _Rows) -> None:
        """Count some more, in their order."""
        passes = [row[_PASSED] for row in rows if row[_PASSED] is not None]
        passed = sum(passes)
        self.passed += passed
        self.failed += len(passes) - passed
        states = [row[_STATUS] for row in rows if row[_STATUS] is not None]
        self.errors += states.count("error")
        self.skipped += states.count("skipped")
        scores = [row[_SCORE] for row in rows if row[_SCORE] is not None]
        if scores:
            self._score(scores)

    def _score(self, scores: list[float]) -> None:
        """Take scores.

        The sum of squares is kept around the running mean (Welford 1962): the plain one loses
        digits.
        """
        n, mean, squares = self.n, self.mean, self.squares
        for score in scores:
            n += 1
            away = score - mean
            mean += away / n
            squares += away * (score - mean)
        self.n, self.mean, self.squares = n, mean, squares
        low, high = min(scores), max(scores)
        self.low = low if self.low is None else min(self.low, low)
        self.high = high if self.high is None else max(self.high, high)
        for score, times in Counter(scores).items():
            self.bins[min(_BINS - 1, max(0, int(score * _BINS + TOLERANCE)))] += times

    def row(self) -> tuple[Any, ...]:
        """Return it as a table has it; digits that depend on the order are rounded away."""
        mean = snap(self.mean) if self.n else None
        sd = snap(math.sqrt(self.squares / (self.n - 1))) if self.n > 1 else None
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
    """Write the sums of each part, and a mark on every case that fails in one.

    They are told apart by the prompts and models that the sums of models have.
    """
    who: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    query = "select side, prompt, model from rollup_model where run_id = ?"
    for side, *one in connection.execute(query, (run_id,)):
        who[side].append(tuple(one))
    for side, keys in who.items():
        _write_side(connection, run_id, side, keys)


def _write_side(
    connection: sqlite3.Connection, run_id: str, side: str, who: list[tuple[str, str]]
) -> None:
    spreads: defaultdict[tuple[str, ...], _Spread] = defaultdict(_Spread)
    totals: dict[_Part, _Total] = {}
    for part, rows in _read(connection, run_id, side, totals, several=len(who) > 1):
        for one, same in _by_model(rows, who).items():
            spreads[*one, *part].add(same)
        failing = {row[_FAILING] for row in rows if row[_FAILING] is not None}
        connection.executemany(
            "insert or ignore into rollup_mark (run_id, side, kind, value, case_id) "
            "values (?, ?, ?, ?, ?)",
            [(run_id, side, FAILED, ":".join(part), case) for case in failing],
        )
    connection.executemany(
        "insert into rollup_part (run_id, side, prompt, model, kind, name, n, mean, min, max, sd, "
        f"passed, failed, errors, skipped, bins) values ({', '.join('?' * 16)})",
        [(run_id, side, *key, *spread.row()) for key, spread in sorted(spreads.items())],
    )
    connection.executemany(
        "insert into rollup_part_total (run_id, side, place, name, kind, n, passed, mean, errors, "
        f"blocked) values ({', '.join('?' * 10)})",
        [(run_id, side, place, *total) for place, total in enumerate(_ordered(totals))],
    )


def part_totals(connection: sqlite3.Connection, run_id: str, side: str) -> list[PartTotal]:
    """Return how each part of a side went, from its cells, in the order parts first came in."""
    totals: dict[_Part, _Total] = {}
    for _ in _read(connection, run_id, side, totals, several=False):
        pass
    return _ordered(totals)


def stored_part_totals(connection: sqlite3.Connection, run_id: str, side: str) -> list[PartTotal]:
    """Return the same as it was written when the run ended."""
    rows = connection.execute(
        "select name, kind, n, passed, mean, errors, blocked from rollup_part_total "
        "where run_id = ? and side = ? order by place",
        (run_id, side),
    )
    return [PartTotal(*row) for row in rows]


def _read(
    connection: sqlite3.Connection,
    run_id: str,
    side: str,
    totals: dict[_Part, _Total],
    *,
    several: bool,
) -> Iterator[tuple[_Part, _Rows]]:
    """Add up the parts of a side, and hand on the rows of each."""
    query = _PARTS.format(who=", c.prompt, c.model" if several else "")
    cursor = connection.execute(query, (run_id, side))
    while rows := cursor.fetchmany(_BATCH):
        found: defaultdict[_Part, _Rows] = defaultdict(list)
        for row in rows:
            found[row[0], row[1]].append(row)
        for part, same in found.items():
            totals.setdefault(part, _Total(same[0][_CELL])).add(same)
            yield part, same


def _ordered(totals: dict[_Part, _Total]) -> list[PartTotal]:
    ranked = sorted((total.first, name, kind) for (kind, name), total in totals.items())
    return [totals[kind, name].of((kind, name)) for _, name, kind in ranked]


def _by_model(rows: _Rows, who: list[tuple[str, str]]) -> dict[tuple[str, str], _Rows]:
    if len(who) == 1:
        return {who[0]: rows}
    found: defaultdict[tuple[str, str], _Rows] = defaultdict(list)
    for row in rows:
        found[row[_WHO], row[_WHO + 1]].append(row)
    return found
