"""The page of the slices of a run: scores by tag, length, difficulty and kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from edison_ci.report.charts.heatmap import Field, HeatMap, heatmap
from edison_ci.results.run_result import RunResult
from edison_ci.web.page_context import Crumb, Look, Page, run_named
from edison_ci.web.pages.run import crumbs_of, head_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.report.charts.drawing import Drawing
    from edison_ci.results.slices import Facet

_ORDER = ("kind", "difficulty", "length", "tag")
_VALUES = ("easy", "medium", "hard", "XS", "S", "M", "L", "XL")
_MOST_ROWS = 60
METRICS = ("score", "passed")


def facets(look: Look) -> Page:
    """Return scores by tag, length, difficulty and kind, for each model and overall."""
    run = run_named(look, look.path["run"])
    result = RunResult(look.connection, run)
    found, metric = result.breakdown, look.args.choice("metric", METRICS)
    compared = [each for each in found.facets if each.model]
    return Page(
        "facets",
        f"Kinds of cases of {run.experiment}, run {run.id}",
        {
            **head_of(look, run, "facets"),
            "facets": sorted(compared, key=lambda each: (each.prompt, each.model, _place(each))),
            "several": len({(each.prompt, each.model) for each in compared}) > 1,
            "out": result.outstanding,
            "family": max((each.family for each in found.facets), default=0),
            "map": _map(found.facets, metric) if found.facets else None,
            "metric": metric,
            "metrics": METRICS,
            "reliability": [each for each in found.reliability if each.k > 1],
        },
        crumbs=crumbs_of(look, run, Crumb(f"run {run.id}", look.links.to("run", run.id))),
        area="home",
    )


def _place(facet: Facet) -> tuple[int, int, str]:
    value = _VALUES.index(facet.value) if facet.value in _VALUES else len(_VALUES)
    kind = _ORDER.index(facet.facet) if facet.facet in _ORDER else len(_ORDER)
    return kind, value, facet.value


def _map(found: Sequence[Facet], metric: str) -> Drawing:
    columns = sorted({(each.prompt, each.model) for each in found})
    several = len({prompt for prompt, _ in columns if prompt}) > 1
    names = tuple(
        "all" if not model else f"{model} · {prompt}" if several else model
        for prompt, model in columns
    )
    by_place = {(each.facet, each.value, each.prompt, each.model): each for each in found}
    rows = []
    whole = sorted((each for each in found if not each.model and not each.prompt), key=_place)
    for each in whole[:_MOST_ROWS]:
        fields = tuple(
            _field(by_place.get((each.facet, each.value, *column)), metric) for column in columns
        )
        rows.append((f"{each.facet} {each.value}", fields))
    title = "Score by kind of case" if metric == "score" else "Share that passed by kind of case"
    return heatmap(HeatMap(title, names, tuple(rows), width=800))


def _field(facet: Facet | None, metric: str) -> Field | None:
    if facet is None:
        return None
    shown = facet.composite if metric == "score" else facet.pass_rate
    return Field(shown.estimate, shown.n, stands_out=_direction(facet))


def _direction(facet: Facet) -> Literal["", "above", "below"]:
    if not facet.stands_out:
        return ""
    return "above" if (facet.difference or 0.0) > 0 else "below"
