"""Which cases pass on the base and on the head, and how many flip between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from edison_ci.stats.flips import CaseFlips, PassCount, case_flips, passes_all

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

PassCounts: TypeAlias = "Iterable[tuple[str, PassCount]]"
"""Cases with the answers that pass."""
_BothCounts: TypeAlias = tuple[tuple[PassCount, ...], tuple[PassCount, ...]]
"""Counts of the base and of the head, one for each variant."""


def pass_counts(
    connection: sqlite3.Connection, cells: str, values: Sequence[str] | Mapping[str, str | int]
) -> Iterator[tuple[str, PassCount]]:
    """Yield how many answers to each case pass; `cells` is a table `c` and a condition on it.

    A case whose answers could not be graded is not among them.
    """
    rows = connection.execute(
        "select c.case_id, sum(c.status = 'ok' and c.passed = 1), count(*) "
        f"from {cells} and (c.status = 'malformed' or c.status = 'ok' and c.passed is not null) "
        "group by c.case_id",
        values,
    )
    # Few counts differ, so that each needs to be in memory once.
    shared: dict[tuple[int, int], PassCount] = {}
    for case, passed, of in rows:
        yield case, shared.setdefault((passed, of), PassCount(passed, of))


def flips_between(
    base: Sequence[PassCounts],
    head: Sequence[PassCounts],
    left_out: Collection[str] = (),
    clusters: Mapping[str, str] | None = None,
) -> tuple[dict[str, tuple[bool, bool]], CaseFlips]:
    """Return whether two sides pass each case, and how many flip; each has a count per variant."""
    found: dict[str, _BothCounts] = {}
    shared: dict[_BothCounts, _BothCounts] = {}
    for old_rows, new_rows in zip(base, head, strict=True):
        old = dict(old_rows)
        for case, new in new_rows:
            if case in old and case not in left_out:
                before, after = found.get(case, ((), ()))
                both = (*before, old.pop(case)), (*after, new)
                found[case] = shared.setdefault(both, both)
    passes = {both: (passes_all(both[0]), passes_all(both[1])) for both in shared}
    cases = sorted(found)
    groups = None
    if clusters and any(case in clusters for case in cases):
        groups = [clusters.get(case, f"\0alone {case}") for case in cases]
    sides = [[found[case][side] for case in cases] for side in (0, 1)]
    flips = case_flips(sides[0], sides[1], groups)
    return {case: passes[found[case]] for case in cases}, flips
