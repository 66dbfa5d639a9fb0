"""What does a page show of a run besides its picture?

Cases by models, how scores are spread, what it cost whom, and the answers that failed: as much of
it as a reader looks at, the worst first, and how much there is.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.frozen import dataclass
from edison_ci.results.trends import points_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator

    from edison_ci.results.cells import CellResult, Cells
    from edison_ci.results.trends import Point
    from edison_ci.results.view import RunView

MOST_CASES = 200
MOST_FAILING = 40
MOST_COLUMNS = 12
_BINS = 10


class Subject(NamedTuple):
    """A prompt with a model."""

    prompt: str
    model: str


class Square(NamedTuple):
    """How a case went with a prompt and a model, over its draws."""

    outcome: str
    composite: float | None
    draws: int


@dataclass(frozen=True, slots=True)
class Grid:
    """Cases by prompts with models, the worst cases first."""

    columns: tuple[Subject, ...]
    rows: tuple[tuple[str, tuple[Square | None, ...]], ...]
    cases: int
    """How many there are."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How the scores of a criterion, grader or check are spread."""

    kind: str
    name: str
    counts: tuple[int, ...]
    """Of scores in each tenth of the scale."""
    mean: float


class Cost(NamedTuple):
    """What a model cost in a phase of the run."""

    model: str
    phase: str
    calls: int
    unknown: int
    microusd: int
    tokens_in: int
    tokens_out: int


@dataclass(frozen=True, slots=True)
class CloseUp:
    """What a page shows of a run besides its picture."""

    grid: Grid
    spreads: tuple[Spread, ...]
    costs: tuple[Cost, ...]
    failing: tuple[CellResult, ...]
    failing_total: int
    history: tuple[Point, ...]
    """The complete runs of its experiment up to it, oldest first."""


def close_up(connection: sqlite3.Connection, view: RunView, cells: Cells) -> CloseUp:
    """Return what a page shows of a run; nothing is measured or decided."""
    failing, total = cells.failing(view, MOST_FAILING)
    history = points_of(connection, view.run.experiment)
    return CloseUp(
        grid=_grid(connection, view),
        spreads=tuple(_spreads(connection, view.run.id)),
        costs=tuple(_costs(connection, view.run.id)),
        failing=failing,
        failing_total=total,
        history=tuple(p for p in history if p.run.created_at <= view.run.created_at),
    )


def _grid(connection: sqlite3.Connection, view: RunView) -> Grid:
    scored = (measured.place for measured in view.scores if measured.place.side == "head")
    columns = tuple(dict.fromkeys(Subject(p.prompt, p.model) for p in scored))[:MOST_COLUMNS]
    run_id = view.run.id
    (cases,) = connection.execute(
        "select count(distinct case_id) from cell where run_id = ? and side = 'head'", (run_id,)
    ).fetchone()
    worst = connection.execute(
        "select case_id from cell where run_id = ? and side = 'head' group by case_id "
        "order by sum(passed = 0) desc, round(avg(composite), 9), case_id limit ?",
        (run_id, MOST_CASES),
    )
    names = [name for (name,) in worst.fetchall()]
    found: dict[str, dict[Subject, Square]] = {name: {} for name in names}
    rows = connection.execute(
        "select case_id, prompt, model, avg(composite), count(*), sum(passed = 0), sum(passed), "
        "min(status), max(status) from cell where run_id = ? and side = 'head' "
        "and case_id in (select value from json_each(?)) group by case_id, prompt, model",
        (run_id, json.dumps(names)),
    )
    for case, prompt, model, composite, draws, *how in rows:
        found[case][Subject(prompt, model)] = Square(_outcome(*how), composite, draws)
    placed = ((name, tuple(found[name].get(column) for column in columns)) for name in names)
    return Grid(columns, tuple(placed), int(cases))


def _outcome(failed: int | None, passed: int | None, least: str, most: str) -> str:
    """Return how draws went together: one that fails decides, an error counts if nothing else."""
    if least == most != "ok":
        return most
    if failed:
        return "failed"
    return "passed" if passed else "ungraded" if most == "ok" else most


def _spreads(connection: sqlite3.Connection, run_id: str) -> Iterator[Spread]:
    """Yield how scores are spread; a check that only says yes or no has nothing to spread."""
    rows = connection.execute(
        "select p.kind, p.name, min(cast(p.score * ?2 + 1e-9 as integer), ?2 - 1), count(*), "
        "sum(p.score), sum(p.score not in (0, 1)), min(c.rowid) from cell c "
        "join part p on p.cell_id = c.id where c.run_id = ?1 and c.side = 'head' "
        "and p.score is not null and p.kind in ('criterion', 'grader', 'check', 'rubric') "
        "group by 1, 2, 3 order by p.kind = 'check', p.kind, p.name",
        (run_id, _BINS),
    )
    grouped: dict[tuple[str, str], list[tuple[int, int, float, int]]] = {}
    for kind, name, *counted in rows:
        at, count, total, between, _ = counted
        grouped.setdefault((kind, name), []).append((at, count, total, between))
    for (kind, name), bins in grouped.items():
        if kind == "check" and not any(between for *_, between in bins):
            continue
        counts = {at: count for at, count, *_ in bins}
        drawn = tuple(counts.get(i, 0) for i in range(_BINS))
        mean = math.fsum(total for _, _, total, _ in bins) / sum(counts.values())
        yield Spread(kind, name, drawn, mean)


def _costs(connection: sqlite3.Connection, run_id: str) -> Iterable[Cost]:
    rows = connection.execute(
        "select t.model, t.phase, sum(t.state = 'settled'), sum(t.state in ('unknown', "
        "'reserved')), sum(case t.state when 'settled' then t.cost_microusd when 'released' "
        "then 0 else t.est_microusd end), coalesce(sum(a.tokens_in), 0), "
        "coalesce(sum(a.tokens_out), 0) from attempt t left join answer a on a.attempt = t.id "
        "where t.run_id = ? and t.phase <> 'replay' group by t.model, t.phase "
        "order by 5 desc, t.model, t.phase",
        (run_id,),
    )
    return (Cost(*row) for row in rows.fetchall())
