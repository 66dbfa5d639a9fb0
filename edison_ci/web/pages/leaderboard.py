"""The leaderboard of an experiment, or of several side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.numeric import snap
from edison_ci.report.charts.estimates import pareto
from edison_ci.report.components import fluid_figure
from edison_ci.report.run_charts import pareto_chart
from edison_ci.results.leaderboard import CaseFilter, Leaderboard, board_of, case_filter_of
from edison_ci.results.run_lists import newest_measured, ranked_cells
from edison_ci.results.scores import EstimateWithInterval, totals_by_model
from edison_ci.results.snapshot import complete_runs, measured_experiments
from edison_ci.results.trends import overview_of
from edison_ci.stats.sentences import comparisons_sentence, p_words
from edison_ci.web.cache import REFRESH_S
from edison_ci.web.page_context import MOST_CELLS, Page, PageContext, paged
from edison_ci.web.workspace import project_of, searchable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from edison_ci.results.leaderboard import LeaderboardRow
    from edison_ci.stats.intervals import Interval
    from edison_ci.store.runs import Run


_MOST_DIFFERENCES = 12
_MOST_SPOTS = 20
"""Variants that the chart of score and cost shows, the best ones."""


class LeaderboardLine(NamedTuple):
    """A variant (prompt version and model) on the leaderboard."""

    rank: str
    prompt: str
    version: str
    label: str
    model: str
    composite: EstimateWithInterval
    pass_rate: EstimateWithInterval
    cost_microusd: float | None
    p50_ms: float | None
    p95_ms: float | None
    run: Run
    missing: int


class Difference(NamedTuple):
    """The difference of two variants on their common cases."""

    better: str
    worse: str
    significant: bool
    points: float
    low: float | None
    high: float | None
    n: int
    p: str


ALL = "*"
"""In the address of the leaderboard: all experiments."""
_MOST_TOGETHER = 12
"""Experiments that are shown side by side."""


def leaderboard(context: PageContext) -> Page:
    """Return the leaderboard of an experiment, or of several side by side."""
    names = measured_experiments(context.connection)
    requested = context.args.text("experiment")
    several = [name for name in context.args.texts("experiment") if name in names]
    if requested == ALL and len(names) > 1:
        several = names
    if len(set(several)) > 1:
        return _together(context, names, list(dict.fromkeys(several)))
    name = requested if requested in names else (newest_measured(context.connection) or "")
    kept = {"experiment": requested if requested in names else ""}
    values = {"experiments": names, "experiment": name, "all": ALL}
    values |= _ranked(context, name, kept) if name else {}
    return Page(
        "leaderboard",
        f"Leaderboard of {name}" if name else "Leaderboard",
        values,
        area="leaderboard",
        refresh_s=REFRESH_S if values.get("waiting") else None,
    )


def _ranked(context: PageContext, name: str, kept: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the leaderboard of one experiment; `kept` are those of its address."""
    (newest,) = complete_runs(context.connection, name, 1)
    cells = ranked_cells(context.connection, name, newest)
    small = cells <= MOST_CELLS
    board = _board(context, name, newest, cells) if small else None
    places = _sums(context, newest)
    if board is not None:
        others = [place._replace(rank="") for place in _places(board.beyond)]
        places = [*_places(board.rows), *others]
    preferences = None if board is None else board.preferences
    preferred = () if preferences is None else preferences.ranking.placed
    return {
        "places": paged(context, places, "leaderboard", **kept),
        "preferred": paged(context, preferred, "leaderboard", turn="preferred", **kept),
        "small": small,
        "waiting": small and board is None,
        "board": board,
        "differences": _differences(board) if board is not None else [],
        "sentence": _sentence(board),
        "front": _pareto(places[:_MOST_SPOTS]),
        "preferences": preferences,
    }


def _together(context: PageContext, names: list[str], several: list[str]) -> Page:
    """Return models by experiments; ranks need the same cases, so there are none."""
    overview = overview_of(context.connection, several[:_MOST_TOGETHER])
    kept = ALL if several == names else several
    models = paged(context, overview.models, "leaderboard", experiment=kept)
    return Page(
        "leaderboards",
        "Leaderboard of all experiments" if several == names else "Leaderboard",
        {
            "experiments": names,
            "several": several,
            "all": ALL,
            "overview": overview,
            "models": models,
            "left_out": len(several[_MOST_TOGETHER:]),
        },
        area="leaderboard",
    )


def _board(context: PageContext, name: str, newest: Run, cells: int) -> Leaderboard | None:
    """Return the leaderboard; None while it is computed."""
    project = project_of(context)
    usable = project if project is not None and searchable(project, name) else None
    out = None
    if usable is not None:
        out = frozenset(entry.case for entry in usable.quarantine if entry.experiment == name)

    def work(own: PageContext) -> Leaderboard | None:
        stored = own.connection
        case_filter = CaseFilter() if usable is None else case_filter_of(usable, name, stored)
        return board_of(stored, name, case_filter)

    return context.computed(work, "board", newest.id, out, newest.finished_at, cells=cells)


def _places(rows: Sequence[LeaderboardRow]) -> list[LeaderboardLine]:
    return [
        LeaderboardLine(
            rank=_rank(row.best_rank, row.worst_rank),
            prompt=row.place.prompt,
            version=row.place.version,
            label=row.label or "",
            model=row.place.model,
            composite=_estimate(row.composite),
            pass_rate=_estimate(row.pass_rate),
            cost_microusd=row.cost_microusd,
            p50_ms=row.p50_ms,
            p95_ms=row.p95_ms,
            run=row.place.run,
            missing=row.scores.missing,
        )
        for row in rows
    ]


def _sums(context: PageContext, run: Run) -> list[LeaderboardLine]:
    """Return the newest run only, without ranks, as differences are not tested."""
    rows = totals_by_model(context.connection, run.id)
    rows.sort(key=lambda row: -snap(row.composite.estimate or 0.0))
    return [
        LeaderboardLine("", row.prompt, row.version, run.labels.get(row.prompt, ""), row.model,
              row.composite, row.pass_rate, row.answer_cost_microusd, row.p50_ms, row.p95_ms, run,
              row.missing)
        for row in rows
    ]  # fmt: skip


def _rank(best: int, worst: int) -> str:
    return str(best) if best == worst else f"{best}\N{EN DASH}{worst}"


def _estimate(interval: Interval | None) -> EstimateWithInterval:
    if interval is None:
        return EstimateWithInterval(None, None, None, 0, None)
    return EstimateWithInterval(
        interval.estimate, interval.low, interval.high, interval.n, interval.method
    )


def _differences(board: Leaderboard) -> list[Difference]:
    names = [_name(row, board.rows) for row in board.rows]
    ordered = sorted(
        board.contrasts, key=lambda pair: (not pair.significant, pair.better, pair.worse)
    )
    return [
        Difference(
            better=names[contrast.better],
            worse=names[contrast.worse],
            significant=contrast.significant,
            points=contrast.difference,
            low=contrast.interval.low if contrast.interval else None,
            high=contrast.interval.high if contrast.interval else None,
            n=contrast.n,
            p=p_words(contrast.p_holm),
        )
        for contrast in ordered[:_MOST_DIFFERENCES]
    ]


def _name(row: LeaderboardRow, rows: Sequence[LeaderboardRow]) -> str:
    versions = {(other.place.prompt, other.place.version) for other in rows}
    version = row.label or row.place.version[:8]
    return row.place.model if len(versions) == 1 else f"{row.place.model} {version}"


def _sentence(board: Leaderboard | None) -> str:
    if board is None or not board.contrasts:
        return ""
    stand_out = sum(contrast.significant for contrast in board.contrasts)
    return comparisons_sentence(made=len(board.contrasts), stand_out=stand_out)


def _pareto(places: Sequence[LeaderboardLine]) -> Markup | None:
    """Draw score against cost; None with fewer than two variants that cost something."""
    chart = pareto_chart(
        (f"{place.model} {place.label}".strip(), place.cost_microusd, place.composite)
        for place in places
        if place.cost_microusd
    )
    return None if chart is None else fluid_figure(pareto, chart)
