"""What stands in the grid of a run: which cases and columns, and what in each of its boxes?

Only the cells of the twenty cases on the page are read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from edison_ci.frozen import dataclass
from edison_ci.report.datasette_plugin import finding
from edison_ci.report.datasette_plugin.wishing import Graded, Wish
from edison_ci.results.totals import Totals, totals_by_model
from edison_ci.rounding import mean_or_none
from edison_ci.store.grades import flagged_cells

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Hashable, Iterable, Sequence

    from edison_ci.report.datasette_plugin.looking import Args, Paging

_LIVE_CELLS = 2_000
"""Of a run that goes on, so many cells tell which prompts and models it has."""


@dataclass(frozen=True, slots=True)
class Draw:
    """One answer to a case, with a prompt and a model."""

    id: str
    number: int
    status: str
    composite: float | None
    passed: int | None
    cost_microusd: int | None
    tokens: int | None
    latency_ms: int | None
    part: float | None
    """Score of the part that was asked for."""


@dataclass(frozen=True, slots=True)
class Box:
    """A case with a prompt and a model, over its draws."""

    draws: tuple[Draw, ...]

    @property
    def word(self) -> str:
        """How it went, in a word: a failed draw says more than one that passed."""
        statuses = [draw.status for draw in self.draws]
        for status in ("error", "blocked", "malformed", "skipped"):
            if status in statuses and (status != "skipped" or set(statuses) == {"skipped"}):
                return status
        if any(draw.passed == 0 for draw in self.draws):
            return "fail"
        return "pass" if any(draw.passed == 1 for draw in self.draws) else "ungraded"

    @property
    def passes(self) -> int:
        """How many of its draws pass."""
        return sum(draw.passed == 1 for draw in self.draws)

    def mean(self, name: str) -> float | None:
        """Return the mean of a number over the draws that have it."""
        values = [getattr(draw, name) for draw in self.draws]
        return mean_or_none([value for value in values if value is not None])


@dataclass(frozen=True, slots=True)
class Row:
    """A case."""

    case: str
    tags: tuple[str, ...]
    boxes: tuple[Box | None, ...]
    """One for each column; None where nothing was asked."""


@dataclass(frozen=True, slots=True)
class Column:
    """A prompt with a model."""

    prompt: str
    model: str
    version: str
    totals: Totals | None
    """None while the run goes on."""


@dataclass(frozen=True, slots=True)
class Choices:
    """What can be chosen in the filters."""

    tags: tuple[str, ...]
    prompts: tuple[str, ...]
    models: tuple[str, ...]
    parts: tuple[Graded, ...]
    sides: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """What is shown of a run."""

    wish: Wish
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    paging: Paging
    choices: Choices
    settled: bool
    """Whether the sums are there that filters and sorting need."""
    searched: int | None
    """In the answers to how many cases a text was looked for; None for all of them."""
    flagged: frozenset[str]
    """Cells that somebody wants a second look at."""

    def wants_look(self, box: Box) -> bool:
        """Whether somebody wants a second look at an answer in a box."""
        return any(draw.id in self.flagged for draw in box.draws)


def grid_of(
    connection: sqlite3.Connection, run_id: str, args: Args, state: Hashable = None
) -> Grid:
    """Return the part of a run that the address asks for.

    `state` names what the run is by now, so that what was counted in it need not be again.
    """
    wish = Wish.of(args)
    every = _columns(connection, run_id, wish.side)
    settled = any(column.totals is not None for column in every)
    columns = tuple(
        column
        for column in every
        if wish.prompt in ("", column.prompt) and wish.model in ("", column.model)
    )
    if settled:
        found = finding.settled(connection, run_id, wish, args, state)
    else:
        found = finding.unsettled(connection, run_id, wish, args)
    return Grid(
        wish=wish,
        columns=columns,
        rows=tuple(_rows(connection, run_id, wish, columns, found.cases)),
        paging=found.paging,
        choices=_choices(connection, run_id, every),
        settled=settled,
        searched=found.searched,
        flagged=frozenset(each.cell_id for each in flagged_cells(connection, run_id)),
    )


def _columns(connection: sqlite3.Connection, run_id: str, side: str) -> list[Column]:
    found = [
        Column(totals.prompt, totals.model, totals.version, totals)
        for totals in totals_by_model(connection, run_id, side)
    ]
    if found:
        return found
    rows = connection.execute(
        "select distinct prompt, model, version from (select prompt, model, version from cell "
        "where run_id = ? and side = ? limit ?) order by 1, 2",
        (run_id, side, _LIVE_CELLS),
    )
    return [Column(prompt, model, version, None) for prompt, model, version in rows]


def _rows(
    connection: sqlite3.Connection,
    run_id: str,
    wish: Wish,
    columns: Sequence[Column],
    cases: Sequence[str],
) -> Iterable[Row]:
    places = {(column.prompt, column.model): index for index, column in enumerate(columns)}
    part = wish.part or Graded("", "")
    for case in cases:
        boxes: list[list[Draw]] = [[] for _ in columns]
        cells = connection.execute(
            "select c.prompt, c.model, c.id, c.draw, c.status, c.composite, c.passed, "
            "a.cost_microusd, a.tokens_in + a.tokens_out, a.latency_ms, p.score "
            "from cell c left join answer a on a.address = c.address and a.take = c.take "
            "left join part p on p.cell_id = c.id and p.kind = ? and p.name = ? "
            "where c.run_id = ? and c.case_id = ? and c.side = ? order by c.draw",
            (part.kind, part.name, run_id, case, wish.side),
        )
        for prompt, model, *draw in cells:
            place = places.get((prompt, model))
            if place is not None:
                boxes[place].append(Draw(*draw))
        tags = connection.execute(
            "select tags from run_case where run_id = ? and case_id = ?", (run_id, case)
        ).fetchone()
        yield Row(
            case,
            tuple(json.loads(tags[0])) if tags else (),
            tuple(Box(tuple(box)) if box else None for box in boxes),
        )


def _choices(connection: sqlite3.Connection, run_id: str, columns: Sequence[Column]) -> Choices:
    tags = connection.execute(
        "select value from rollup_facet where run_id = ? and side = 'head' and prompt = '' "
        "and model = '' and facet = 'tag' and value <> '(none)' order by value",
        (run_id,),
    )
    parts = connection.execute(
        "select distinct kind, name from rollup_part where run_id = ? "
        "and kind in ('criterion', 'check', 'grader') order by kind desc, name",
        (run_id,),
    )
    sides = connection.execute(
        "select side from rollup_run where run_id = ? order by side desc", (run_id,)
    )
    return Choices(
        tags=tuple(tag for (tag,) in tags),
        prompts=tuple(sorted({column.prompt for column in columns})),
        models=tuple(sorted({column.model for column in columns})),
        parts=tuple(Graded(*part) for part in parts),
        sides=tuple(side for (side,) in sides),
    )
