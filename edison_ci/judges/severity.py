"""Severity of judges: how strict each is, and scores had every judge answered.

A lenient judge's outage must not move a score. With more than 5% of the judgments missing, the
additive model x_ij = m_i + b_j (case i, judge j, the b_j sum to 0) is fitted by least squares over
what is there, and m_i counts (STATS.md section 3). There are at most five judges, so the normal
equations, with the cases eliminated, are a small system.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from edison_ci.rounding import exceeds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MAX_MISSING = 0.05
_SINGULAR = 1e-12


def missing_share(table: Sequence[Mapping[str, float]], judges: Sequence[str]) -> float:
    """Return the share of judgments that are missing."""
    cells = len(table) * len(judges)
    return (cells - sum(len(row) for row in table)) / cells if cells else 0.0


def strictness(table: Sequence[Mapping[str, float]], judges: Sequence[str]) -> dict[str, float]:
    """Return how many points above the others each judge scores; a strict judge is below 0.

    A judge that shares no case with another cannot be told from its cases and gets 0.
    """
    size = len(judges)
    index = {judge: number for number, judge in enumerate(judges)}
    left = [[0.0] * size for _ in judges]
    right = [0.0] * size
    for row in table:
        present = [(index[judge], score) for judge, score in row.items()]
        mean = statistics.fmean(score for _, score in present) if present else 0.0
        for one, score in present:
            right[one] += score - mean
            left[one][one] += 1.0
            for other, _ in present:
                left[one][other] -= 1.0 / len(present)
    return _centred(judges, left, right)


def case_scores(table: Sequence[Mapping[str, float]], judges: Sequence[str]) -> list[float | None]:
    """Return one score per case: the mean over judges, corrected when too many are missing."""
    bias = dict.fromkeys(judges, 0.0)
    if exceeds(missing_share(table, judges), MAX_MISSING):
        bias = strictness(table, judges)
    return [
        statistics.fmean(score - bias[judge] for judge, score in row.items()) if row else None
        for row in table
    ]


def _centred(
    judges: Sequence[str], left: list[list[float]], right: list[float]
) -> dict[str, float]:
    """Solve the singular system under the condition that each island of judges sums to 0."""
    solved = dict.fromkeys(judges, 0.0)
    for island in _islands(left):
        # Each island has one equation too many; the condition takes its place.
        matrix = [[left[i][j] for j in island] + [right[i]] for i in island]
        matrix[-1] = [1.0] * len(island) + [0.0]
        for number, value in zip(island, _solve(matrix), strict=True):
            solved[judges[number]] = value
    return solved


def _islands(left: list[list[float]]) -> list[list[int]]:
    """Return the groups of judges that share cases, directly or through others."""
    unseen, islands = set(range(len(left))), []
    while unseen:
        island, stack = set[int](), [min(unseen)]
        while stack:
            number = stack.pop()
            if number not in island:
                island.add(number)
                stack += [j for j, value in enumerate(left[number]) if value < -_SINGULAR]
        unseen -= island
        islands.append(sorted(island))
    return islands


def _solve(matrix: list[list[float]]) -> list[float]:
    """Return the solution of a small linear system, by elimination with pivots."""
    size = len(matrix)
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(matrix[row][column]))
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        head = matrix[column]
        assert abs(head[column]) > _SINGULAR
        for row in range(size):
            if row != column:
                factor = matrix[row][column] / head[column]
                matrix[row] = [a - factor * b for a, b in zip(matrix[row], head, strict=True)]
    return [matrix[row][size] / matrix[row][row] for row in range(size)]
