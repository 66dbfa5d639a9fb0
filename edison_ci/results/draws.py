"""How often do all draws of a case pass, and how often at least one?"""

from __future__ import annotations

from collections import defaultdict
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from edison_ci.results.scores import spread_of
from edison_ci.results.slices import Reliability
from edison_ci.rounding import mean
from edison_ci.stats.draws import pass_all_k, pass_at_k
from edison_ci.stats.slices import Scores

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

SOME = (2, 3, 4, 5, 8, 10, 16, 20, 32, 50, 64, 100)
"""Numbers of draws that are told, beside the number there is."""
_Key = tuple[str, str, int]
"""Prompt, model, k."""


def reliability_of(connection: sqlite3.Connection, run_id: str) -> list[Reliability]:
    """Return pass^k and pass@k over cases (STATS 5), for each prompt and model and over all."""
    (last,) = connection.execute(
        "select max(draw) from cell where run_id = ? and side = 'head'", (run_id,)
    ).fetchone()
    draws = (last or 0) + 1
    if draws < 2:
        return []
    ks = [*(k for k in SOME if k < draws), draws]
    clustered = spread_of(connection, run_id).clustered
    sums: defaultdict[_Key, tuple[Scores, Scores]] = defaultdict(
        lambda: (Scores.empty(clustered=clustered), Scores.empty(clustered=clustered))
    )
    rows = connection.execute(
        "select case_id, max(cluster), prompt, model, sum(passed), count(passed) from cell "
        "where run_id = ? and side = 'head' and passed is not null "
        "group by case_id, prompt, model order by case_id",
        (run_id,),
    )
    for case, found in groupby(rows, key=itemgetter(0)):
        same = list(found)
        group = f"case {case}" if same[0][1] is None else f"cluster {same[0][1]}"
        for k in ks:
            _add(sums, group, k, [row[2:] for row in same])
    several = len({key[:2] for key in sums}) > 2
    return [
        row
        for key, both in sorted(sums.items(), key=itemgetter(0))
        if key[0] or several
        for row in _row(key, *both)
    ]


def _add(
    sums: dict[_Key, tuple[Scores, Scores]],
    group: str,
    k: int,
    rows: Iterable[tuple[str, str, int, int]],
) -> None:
    """Take a case: a value for each prompt and model that has k draws, and their mean."""
    values: list[tuple[float, float]] = []
    for prompt, model, passes, runs in rows:
        every, some = pass_all_k(passes, runs, k), pass_at_k(passes, runs, k)
        if every is None or some is None:
            continue  # it has fewer draws
        values.append((every, some))
        for sample, one in zip(sums[prompt, model, k], (every, some), strict=True):
            sample.add(one, group)
    if values:
        for place, sample in enumerate(sums["", "", k]):
            sample.add(mean([value[place] for value in values]), group)


def _row(key: _Key, every: Scores, some: Scores) -> list[Reliability]:
    both, either = every.interval(), some.interval()
    if both is None or either is None:
        return []
    return [
        Reliability(
            *key,
            *(both.estimate, both.low, both.high),
            *(either.estimate, either.low, either.high),
            both.n,
            both.method,
        )
    ]
