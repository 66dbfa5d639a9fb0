"""Triage: which cases of a run fail, why, and what changed against the base.

From the sums of cases that are written when a run ends, so that no list of cells is gone through;
only the cells that are shown are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.records import CellStatus
from edison_ci.results.explanation import explain
from edison_ci.results.samples import TwoSidedSample, metric_of
from edison_ci.stats.flips import flip_p, flips_of
from edison_ci.stats.paired import Pairs
from edison_ci.stats.sentences import p_words
from edison_ci.store.cells import find_cell

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.store.runs import Run

SHOWN = 10
"""Failing cases that are listed unless all are asked for."""

_BAD = "({0}.failed + {0}.malformed + {0}.blocked > 0)"
_GOOD = "({0}.passed > 0 and {0}.failed + {0}.malformed + {0}.blocked + {0}.error = 0)"
_BESIDE = (
    "rollup_case h left join rollup_case b on b.run_id = h.run_id and b.side = 'base' "
    "and b.case_id = h.case_id where h.run_id = ? and h.side = 'head'"
)


class FailingCase(NamedTuple):
    """A case that fails, by its worst answer."""

    case: str
    model: str
    repeat: int
    composite: float | None
    """Of its worst answer; None if it could not be graded."""
    newly: bool
    """Whether it passes on the base."""
    why: str
    """In one sentence."""


class Triage(NamedTuple):
    """What fails in a run that has ended."""

    cases: int
    failing: int
    """Cases with an answer that does not pass, or is in error."""
    newly_failing: int | None
    """Cases that pass on the base and fail now; None without a base."""
    fixed: int | None
    by_chance: str
    """What noise alone gives: the flips that repeats show, or else a p-value; may be empty."""
    worst: tuple[FailingCase, ...]
    """Newly failing cases first, then by score."""


def triage_of(connection: sqlite3.Connection, run: Run, *, most: int | None = SHOWN) -> Triage:
    """Return what fails in a run; at most so many cases are listed, or all of them."""
    bad = f"({_BAD.format('h')} or h.error > 0)"
    newly, fixed = (
        f"({_GOOD.format(good)} and {_BAD.format(worse)})" for good, worse in ("bh", "hb")
    )
    total, failing, broken, repaired, known = connection.execute(
        f"select count(*), coalesce(sum({bad}), 0), coalesce(sum({newly}), 0), "
        f"coalesce(sum({fixed}), 0), count(b.case_id) from {_BESIDE}",
        (run.id,),
    ).fetchone()
    rows = connection.execute(
        f"select h.case_id, coalesce({newly}, 0) from {_BESIDE} and {bad} "
        "order by 2 desc, h.lowest, h.composite, h.case_id limit ?",
        (run.id, -1 if most is None else most),
    )
    worst = tuple(_failing(connection, run, case, bool(new)) for case, new in rows.fetchall())
    if not known:
        return Triage(total, failing, None, None, "", worst)
    return Triage(total, failing, broken, repaired, _by_chance(connection, run), worst)


def _by_chance(connection: sqlite3.Connection, run: Run) -> str:
    """Return what chance alone gives, by the function that the gate on flips decides with."""
    cells = TwoSidedSample.of_run(connection, run.id)
    variants = cells.common_variants()
    if len(variants) != 1:
        return ""  # one case flips with several models at once
    found = cells.pairs(metric_of(cells, "flips"), variants)
    pairs = Pairs(tuple(found.base), tuple(found.head))
    flips = flips_of(pairs)
    if not flips.broken:
        return ""
    if flips.noise is not None:
        return f"about {round(flips.noise):,} expected by chance"
    return f"one-sided {p_words(flip_p(pairs).value)}"


def _failing(connection: sqlite3.Connection, run: Run, case: str, newly: bool) -> FailingCase:
    """Return the worst answer of a case."""
    (cell_id,) = connection.execute(
        "select id from cell where run_id = ? and case_id = ? and side = 'head' order by "
        "status in ('ok', 'skipped'), coalesce(passed, 1), composite, prompt, model, repeat "
        "limit 1",
        (run.id, case),
    ).fetchone()
    cell = find_cell(connection, run.id, cell_id)
    found = explain(connection, None, run, cell)
    failed = [component for component in found.counted if component.passed is False]
    why = found.why
    if cell.status is CellStatus.OK and failed:
        first, more = failed[0], len(failed) - 1
        why = f"{first.name}: {first.reason}" if first.reason else f"{first.kind} {first.name}"
        why += f" (and {more:,} more)" if more else ""
    return FailingCase(case, cell.model, cell.repeat, cell.composite, newly, why)
