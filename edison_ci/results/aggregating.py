"""What is written down of a run's numbers, so that nobody has to add up its cells again?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from edison_ci.results.breakdown import Slices
from edison_ci.results.draws import reliability_of
from edison_ci.results.rollups import Measured, write_rollups
from edison_ci.results.scores import Samples, read_cases, spread_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

    from edison_ci.results.scores import Scored
    from edison_ci.stats.intervals import Interval


def rollups_of(reader: sqlite3.Connection, run_id: str) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that writes the sums of a run, with their intervals."""
    spread = spread_of(reader, run_id)
    samples, slices = Samples(spread), Slices(reader, run_id, spread)
    read_cases(reader, run_id, spread, samples, slices)
    return write_rollups(
        run_id,
        intervals=[measured for one in samples.scored() for measured in _measured(one)],
        facets=slices.facets(),
        reliability=reliability_of(reader, run_id),
    )


def _measured(scored: Scored) -> Iterator[Measured]:
    kinds: tuple[tuple[Literal["composite", "pass_rate"], Interval | None], ...] = (
        ("composite", scored.composite),
        ("pass_rate", scored.pass_rate),
    )
    for metric, found in kinds:
        if found is not None and found.low is not None and found.high is not None:
            yield Measured(
                "head",
                scored.prompt,
                scored.model,
                metric,
                found.estimate,
                found.low,
                found.high,
                found.n,
                found.method,
            )
