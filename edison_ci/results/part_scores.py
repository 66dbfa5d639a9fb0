"""Scores of the parts of a grade, checks, criteria and graders: how they are spread, and examples.

Spreads were written when the run ended, by prompt and model; of a run that goes on they are counted
from its cells.
"""

from __future__ import annotations

import json
import math
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Sequence

GRADING = ("criterion", "grader", "rubric", "check")
"""Kinds of parts that give scores; others only say what they found."""
LOOKED_THROUGH = 100
"""Cases in which the best and worst answers are looked for: the strongest, and the weakest."""


class PartName(NamedTuple):
    """A check, criterion or grader."""

    kind: str
    name: str

    @property
    def key(self) -> str:
        """As marks and addresses have it."""
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class PartSpread:
    """How the scores of a part are spread with a prompt and a model, cell by cell."""

    prompt: str
    model: str
    name: str
    kind: str
    n: int
    mean: float | None
    low: float | None
    high: float | None
    sd: float | None
    passed: int
    failed: int
    errors: int
    """Answers without a grade of it."""
    bins: tuple[int, ...]
    """Scores in each tenth of the scale."""

    @property
    def part(self) -> PartName:
        """Which part it is."""
        return PartName(self.kind, self.name)

    @property
    def binary(self) -> bool:
        """Whether every score is 0 or 1.

        Told by the moments: x² = x for 0 and 1 alone, and x² < x for every score between them.
        """
        if self.mean is None:
            return True
        squares = (self.sd or 0.0) ** 2 * (self.n - 1) + self.n * self.mean**2
        return math.isclose(squares, self.n * self.mean, rel_tol=1e-9)


@dataclass(frozen=True, slots=True)
class ScoreSpread:
    """How the scores of a part are spread, over all prompts and models."""

    kind: str
    name: str
    counts: tuple[int, ...]
    """Of scores in each tenth of the scale."""
    mean: float | None
    """None without a score."""


def part_spreads(connection: sqlite3.Connection, run_id: str) -> tuple[PartSpread, ...]:
    """Return the spreads of head as they were written when the run ended."""
    rows = connection.execute(
        "select prompt, model, name, kind, n, mean, min, max, sd, passed, failed, errors, bins "
        "from rollup_part where run_id = ? and side = 'head' order by prompt, model, kind, name",
        (run_id,),
    )
    return tuple(PartSpread(*(*row[:-1], tuple(json.loads(row[-1])))) for row in rows)


def by_part(spreads: Iterable[PartSpread]) -> dict[PartName, tuple[PartSpread, ...]]:
    """Return spreads by part, each in its order."""
    found: dict[PartName, list[PartSpread]] = {}
    for spread in spreads:
        found.setdefault(spread.part, []).append(spread)
    return {part: tuple(same) for part, same in found.items()}


def together(part: PartName, spreads: Sequence[PartSpread]) -> ScoreSpread:
    """Return the spread of a part over prompts and models."""
    counts = tuple(map(sum, zip(*(spread.bins for spread in spreads), strict=True)))
    scored = [(spread.mean, spread.n) for spread in spreads if spread.mean is not None]
    n = sum(each for _, each in scored)
    mean = math.fsum(mean * each for mean, each in scored) / n if n else None
    return ScoreSpread(*part, counts, mean)


def graded_spreads(spreads: Iterable[PartSpread]) -> Iterator[ScoreSpread]:
    """Yield what there is to draw: a check that only says yes or no has nothing to spread."""
    found = by_part(spread for spread in spreads if spread.kind in GRADING and spread.n)
    for part in sorted(found, key=lambda part: (part.kind == "check", part)):
        if part.kind != "check" or not all(spread.binary for spread in found[part]):
            yield together(part, found[part])


def live_spreads(connection: sqlite3.Connection, run_id: str) -> Iterator[ScoreSpread]:
    """Yield the same of a run that goes on, from its cells."""
    rows = connection.execute(
        "select p.kind, p.name, min(cast(p.score * 10 + 1e-9 as integer), 9), count(*), "
        "sum(p.score), sum(p.score not in (0, 1)) from cell c "
        "join part p on p.cell_id = c.id where c.run_id = ?1 and c.side = 'head' "
        "and p.score is not null and p.kind in ('criterion', 'grader', 'check', 'rubric') "
        "group by 1, 2, 3 order by p.kind = 'check', p.kind, p.name",
        (run_id,),
    )
    for (kind, name), group in groupby(rows, key=lambda row: row[:2]):
        bins = [row[2:] for row in group]
        if kind == "check" and not any(between for *_, between in bins):
            continue
        counts = {at: count for at, count, *_ in bins}
        mean = math.fsum(total for _, _, total, _ in bins) / sum(counts.values())
        yield ScoreSpread(kind, name, tuple(counts.get(i, 0) for i in range(10)), mean)


class PartExample(NamedTuple):
    """An answer that is good or bad in a part."""

    id: str
    """Of its cell."""
    case: str
    model: str
    draw: int
    score: float
    reason: str


def examples_of(
    connection: sqlite3.Connection, run_id: str, part: PartName, *, worst: bool, limit: int
) -> list[PartExample]:
    """Return answers with the lowest or highest score in a part, of a run that has ended.

    They are looked for in the cases that are the weakest, or the strongest, as a whole: all cells
    of a run may be a million.
    """
    order = "worst" if worst else "best"
    by = "lowest nulls last, composite, case_id" if worst else "composite desc, case_id desc"
    rows = connection.execute(
        "select c.id, c.case_id, c.model, c.draw, p.score, p.reason "
        f"from (select case_id from rollup_case indexed by rollup_case_{order} "
        f"where run_id = ? and side = 'head' order by {by} limit ?) k "
        "cross join cell c on c.run_id = ? and c.case_id = k.case_id and c.side = 'head' "
        "cross join part p on p.cell_id = c.id and p.kind = ? and p.name = ? "
        f"where p.score is not null order by p.score {'' if worst else 'desc'}, c.case_id, c.model "
        "limit ?",
        (run_id, LOOKED_THROUGH, run_id, part.kind, part.name, limit),
    )
    return [PartExample(*row) for row in rows]
