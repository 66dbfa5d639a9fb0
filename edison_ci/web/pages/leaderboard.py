"""The page of the leaderboard: models and prompt versions, and the differences between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.report.charts.pareto import Pareto, Spot, pareto
from edison_ci.results.case_filter import Roll, roll_of
from edison_ci.results.comparable import complete_runs, measured_experiments
from edison_ci.results.leaderboard import Board, board_of
from edison_ci.results.run_lists import newest_measured, ranked_cells
from edison_ci.results.slices import Shown
from edison_ci.results.totals import totals_by_model
from edison_ci.rounding import snap
from edison_ci.stats.sentences import chance, comparisons_sentence
from edison_ci.web.cache import AGAIN_S, aside, remembered
from edison_ci.web.page_context import AT_ONCE, MOST_CELLS, Look, Page
from edison_ci.web.workspace import project_of, searchable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.report.charts.drawing import Drawing
    from edison_ci.results.leaderboard import Standing
    from edison_ci.stats.intervals import Interval
    from edison_ci.store.runs import Run

_MOST_SAID = 12


class Place(NamedTuple):
    """A prompt version with a model, as the board shows it."""

    rank: str
    prompt: str
    version: str
    label: str
    model: str
    composite: Shown
    pass_rate: Shown
    cost_microusd: float | None
    p50_ms: float | None
    p95_ms: float | None
    run: Run
    missing: int


class Difference(NamedTuple):
    """Two places on the cases that both have."""

    better: str
    worse: str
    shown: bool
    points: float
    low: float | None
    high: float | None
    n: int
    luck: str


def leaderboard(look: Look) -> Page:
    """Return how everything measured in an experiment stands."""
    names = measured_experiments(look.connection)
    wanted = look.args.text("experiment")
    name = wanted if wanted in names else (newest_measured(look.connection) or "")
    shown: dict[str, Any] = {"experiments": names, "experiment": name}
    if name:
        (newest,) = complete_runs(look.connection, name, 1)
        cells = ranked_cells(look.connection, name, newest)
        small = cells <= MOST_CELLS
        board = _board(look, name, newest, at_once=cells <= AT_ONCE) if small else None
        places = _places(board.rows) if board is not None else _sums(look, newest)
        shown |= {
            "places": places,
            "small": small,
            "waiting": small and board is None,
            "board": board,
            "differences": _differences(board) if board is not None else [],
            "sentence": _sentence(board),
            "front": _pareto(places),
            "preferences": None if board is None else board.preferences,
        }
    return Page(
        "leaderboard",
        f"Leaderboard of {name}" if name else "Leaderboard",
        shown,
        area="leaderboard",
        refresh_s=AGAIN_S if shown.get("waiting") else None,
    )


def _board(look: Look, name: str, newest: Run, *, at_once: bool) -> Board | None:
    """Return the board; None while it is worked out."""
    project = project_of(look)
    key: tuple[Any, ...] = ("board", look.links.database, str(look.root), newest.id)
    known = project if project is not None and searchable(project, name) else None
    if known is not None:
        out = frozenset(e.case for e in known.quarantine.cases if e.experiment == name)
        key = (*key, out)

    def work(own: Look) -> Board | None:
        stored = own.connection
        roll = Roll() if known is None else roll_of(known, name, stored=stored)
        return board_of(stored, name, roll)

    key = (*key, newest.finished_at)
    if look.patient or at_once:
        return remembered(key, lambda: work(look))
    return aside(look, key, work)


def _places(rows: Sequence[Standing]) -> list[Place]:
    return [
        Place(
            rank=_rank(row.best_rank, row.worst_rank),
            prompt=row.place.prompt,
            version=row.place.version,
            label=row.label or "",
            model=row.place.model,
            composite=_shown(row.composite),
            pass_rate=_shown(row.pass_rate),
            cost_microusd=row.cost_microusd,
            p50_ms=row.p50_ms,
            p95_ms=row.p95_ms,
            run=row.place.run,
            missing=row.scores.missing,
        )
        for row in rows
    ]


def _sums(look: Look, run: Run) -> list[Place]:
    """Return the newest run alone, without ranks: nobody tested the differences."""
    rows = totals_by_model(look.connection, run.id)
    rows.sort(key=lambda row: -snap(row.composite.estimate or 0.0))
    return [
        Place("", row.prompt, row.version, run.labels.get(row.prompt, ""), row.model,
              row.composite, row.pass_rate, row.answer_cost_microusd, row.p50_ms, row.p95_ms, run,
              row.missing)
        for row in rows
    ]  # fmt: skip


def _rank(best: int, worst: int) -> str:
    return str(best) if best == worst else f"{best}\N{EN DASH}{worst}"


def _shown(found: Interval | None) -> Shown:
    if found is None:
        return Shown(None, None, None, 0, None)
    return Shown(found.estimate, found.low, found.high, found.n, found.method)


def _differences(board: Board) -> list[Difference]:
    found = []
    names = [_name(row, board.rows) for row in board.rows]
    ordered = sorted(board.contrasts, key=lambda each: (not each.shown, each.better, each.worse))
    for each in ordered[:_MOST_SAID]:
        low, high = each.interval or (None, None)
        luck = chance(each.p_holm)
        found.append(
            Difference(names[each.better], names[each.worse], each.shown, each.difference,
                       low, high, each.n, luck)
        )  # fmt: skip
    return found


def _name(row: Standing, rows: Sequence[Standing]) -> str:
    versions = {(each.place.prompt, each.place.version) for each in rows}
    version = row.label or row.place.version[:8]
    return row.place.model if len(versions) == 1 else f"{row.place.model} {version}"


def _sentence(board: Board | None) -> str:
    if board is None or not board.contrasts:
        return ""
    stand_out = sum(each.shown for each in board.contrasts)
    return comparisons_sentence(made=len(board.contrasts), stand_out=stand_out)


def _pareto(places: Sequence[Place]) -> Drawing | None:
    """Draw worth against cost; nothing where nothing costs anything."""
    known = [each for each in places if each.cost_microusd and each.composite.estimate is not None]
    if len(known) < 2:
        return None
    spots = tuple(
        Spot(
            label=f"{each.model} {each.label}".strip(),
            cost=each.cost_microusd,
            worth=each.composite.estimate,
            low=each.composite.low,
            high=each.composite.high,
            front=not any(_beats(other, each) for other in known),
        )
        for each in known
    )
    return pareto(Pareto("Score against cost: what is neither cheaper nor better", spots))


def _beats(other: Place, each: Place) -> bool:
    """Whether another is at least as good and at most as dear, and not the same in both."""
    ours = (-(each.composite.estimate or 0.0), each.cost_microusd or 0.0)
    theirs = (-(other.composite.estimate or 0.0), other.cost_microusd or 0.0)
    return theirs != ours and theirs[0] <= ours[0] and theirs[1] <= ours[1]
