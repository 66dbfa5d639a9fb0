"""Which cases does one side of a comparison pass?

A case passes if all its answers do, whatever the draw or the model; a case whose answers could not
be graded neither passes nor fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Mapping, Sequence

Passed = tuple[bool | None, bool | None]
"""Whether A and B pass a case."""


def passing(
    connection: sqlite3.Connection, cells: str, values: Sequence[str]
) -> dict[str, bool | None]:
    """Return of each case whether it passes; `cells` is a table and a condition on it."""
    rows = connection.execute(
        "select case_id, min(case status when 'ok' then passed when 'malformed' then 0 end) "
        f"from {cells} and status in ('ok', 'malformed') group by case_id",
        values,
    )
    return {case: None if passed is None else bool(passed) for case, passed in rows}


def together(sides: Iterable[Mapping[str, bool | None]]) -> dict[str, bool | None]:
    """Return of each case whether it passes everywhere."""
    found: dict[str, bool | None] = {}
    for side in sides:
        for case, passed in side.items():
            known = found.get(case)
            found[case] = passed if known is None else known and passed is not False
    return found


def flips(
    cases: Iterable[str], a: Mapping[str, bool | None], b: Mapping[str, bool | None]
) -> list[Passed]:
    """Return of each case whether A and B pass it."""
    return [(a.get(case), b.get(case)) for case in cases]


def marks(passes: Iterable[Passed]) -> list[tuple[bool, bool]]:
    """Return passes as the statistics take them; what is not known has not changed."""
    return [(True, True) if a is None or b is None else (a, b) for a, b in passes]
