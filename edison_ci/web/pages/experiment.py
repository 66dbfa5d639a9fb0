"""The page of an experiment: its newest numbers, their trend, its models and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.errors import UsageError
from edison_ci.names import did_you_mean
from edison_ci.report.charts.trend import Moment, Series, Trend, trend
from edison_ci.results.run_lists import count_of, experiments, ids_of
from edison_ci.results.snapshot import objective_of
from edison_ci.results.totals import totals_by_model
from edison_ci.results.trends import Point, points_of
from edison_ci.store.loops import loops_by_experiment
from edison_ci.store.runs import find_run
from edison_ci.store.suggestions import open_suggestions
from edison_ci.web.page_context import Crumb, Look, Page, Paging, run_results

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edison_ci.report.charts.drawing import Drawing

_IN_TREND = 40


def experiment(look: Look) -> Page:
    """Return how an experiment stands: its newest numbers, their trend, its models and runs."""
    name = named(look)
    points = points_of(look.connection, name, most=_IN_TREND)
    paging = Paging.of(look.args, count_of(look.connection, name))
    newest = find_run(look.connection, name)
    last = points[-1] if points else None
    return Page(
        "experiment",
        name,
        {
            "experiment": name,
            "objective": objective_of(newest),
            "newest": newest,
            "last": last,
            "before": points[-2] if len(points) > 1 else None,
            "labels": last.run.labels if last else {},
            "models": totals_by_model(look.connection, last.run.id) if last else [],
            "trend": score_trend(points) if len(points) > 1 else None,
            "changes": [point for point in points if point.changed and not point.only_prompts],
            "versions": [point for point in points if point.only_prompts],
            "runs": run_results(look, ids_of(look.connection, name, most=paging.per_page,
                                           offset=paging.offset)),
            "paging": paging,
            "loops": loops_by_experiment(look.connection).get(name, 0),
            "waiting": open_suggestions(look.connection).get(name, 0),
        },
        crumbs=(Crumb("Experiments", look.links.to()),),
        area="home",
    )  # fmt: skip


def named(look: Look) -> str:
    """Return the experiment that the address names; one that never ran is refused."""
    wanted, known = look.path["experiment"], experiments(look.connection)
    if wanted not in known:
        hint = did_you_mean(wanted, known, label="experiments")
        raise UsageError(f"no run of an experiment {wanted!r} is stored", hint=hint)
    return wanted


def score_trend(points: Sequence[Point]) -> Drawing:
    """Return the scores of runs as a chart with its table."""
    moments = tuple(_moment(index, point) for index, point in enumerate(points))
    return trend(
        Trend(
            title="Score of each whole run, with its 95% interval",
            series=(Series("score", moments),),
            width=800,
        )
    )


def _moment(index: int, point: Point) -> Moment:
    found = point.composite
    return Moment(
        at=float(index),  # runs come in bursts: time would hide most of them behind each other
        label=point.run.created_at[:10],
        value=None if found is None else found.estimate,
        low=None if found is None else found.low,
        high=None if found is None else found.high,
        note="; ".join(_notes(point)),
    )


def _notes(point: Point) -> Iterator[str]:
    if point.changed:
        word = "new version" if point.only_prompts else "changed"
        yield f"{word}: {', '.join(point.changed)}"
    if point.stopped is not None:
        yield point.stopped.sentence
