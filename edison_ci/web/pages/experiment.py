"""The pages of an experiment, its leaderboard, and the versions of prompts."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci import feature, utc
from edison_ci.decide.findings import advice_on, findings_of
from edison_ci.errors import EdisonError, UsageError
from edison_ci.numeric import snap
from edison_ci.report.charts.estimates import pareto
from edison_ci.report.charts.trend import Rule, Trend, TrendPoint, trend
from edison_ci.report.components import diff_view
from edison_ci.report.run_charts import pareto_chart, score_series, trends_of
from edison_ci.results.leaderboard import Leaderboard, board_of
from edison_ci.results.overview import overview_of
from edison_ci.results.rollups import totals_by_model
from edison_ci.results.run_lists import count_of, experiments, ids_of, newest_measured, ranked_cells
from edison_ci.results.run_result import RunResult
from edison_ci.results.samples import CaseFilter, case_filter_of
from edison_ci.results.slices import EstimateWithInterval
from edison_ci.results.snapshot import (
    complete_runs,
    has_pairwise_judge,
    measured_experiments,
    objective_of,
)
from edison_ci.results.trends import (
    TrendRun,
    alarm_rule,
    drift_of,
    floor_of,
    points_of,
)
from edison_ci.results.troubles import Trouble, troubles_of
from edison_ci.results.versions import History, ModelScore, Version, measured_prompts, model_scores
from edison_ci.spelling import did_you_mean
from edison_ci.stats.sentences import comparisons_sentence, p_words
from edison_ci.store.runs import find_run
from edison_ci.store.suggestions import open_suggestions
from edison_ci.web.cache import REFRESH_S, cached, cached_in_background, stored_messages
from edison_ci.web.figures import fluid_figure
from edison_ci.web.page_context import (
    INLINE_CELLS,
    MOST_CELLS,
    Crumb,
    Page,
    PageContext,
    Paging,
    grouped,
    paged,
    run_results,
    with_liveness,
)
from edison_ci.web.pages.run import judge_findings_of
from edison_ci.web.pages.steering import may_steer
from edison_ci.web.workspace import git_state, project_of, searchable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from edison_ci.decide.findings import Finding
    from edison_ci.results.leaderboard import LeaderboardRow
    from edison_ci.results.pairwise import HeadToHead
    from edison_ci.results.trends import DriftFinding
    from edison_ci.stats.intervals import Interval
    from edison_ci.store.runs import Run


RANGES = ("30", "7", "all")
"""Days that the charts of an experiment show; the first one if none is asked for."""
_IN_TREND = {"7": 60, "30": 60, "all": 80}
"""Most runs that the charts of each range show, the newest ones."""


class WinCard(NamedTuple):
    """The win rate of the newest complete run, by its pairwise judge."""

    match: HeadToHead
    run_id: str


def experiment(context: PageContext) -> Page:
    """Return an experiment: latest scores, trends of the last days, models and runs."""
    name = context.path["experiment"]
    if name not in experiments(context.connection):
        return _not_run(context, name)
    days = context.args.choice("days", RANGES)
    points = points_of(context.connection, name, most=_IN_TREND[days])
    since = "" if days == "all" else _since(context, int(days))
    shown = [point for point in points if point.run.created_at >= since]
    paging = Paging.of(context.args, count_of(context.connection, name))
    newest = find_run(context.connection, name)
    last = points[-1] if points else None
    models = totals_by_model(context.connection, last.run.id) if last else []
    kept_days = days if days != RANGES[0] else ""
    evidence = _evidence(context, name, points) if last else None
    waits = last is not None and evidence is None and last.run.cells_planned <= MOST_CELLS
    return Page(
        "experiment",
        name,
        {
            "experiment": name,
            "may_start": may_steer(context),
            "objective": objective_of(newest),
            "newest": newest,
            "last": last,
            "before": points[-2] if len(points) > 1 else None,
            "labels": last.run.labels if last else {},
            "models": paged(context, models, "experiment", name, turn="models", days=kept_days),
            "win": _win_rate(context, last.run) if last else None,
            "screens": RunResult(context.connection, last.run).screens if last else (),
            "days": days,
            "ranges": sorted(RANGES, key=lambda each: (each == "all", len(each))),
            "charts": _charts(context, shown, evidence) if len(shown) > 1 else [],
            "evidence": evidence,
            "production": _production_chart(evidence),
            "shown": len(shown),
            "measured": len(points),
            "cut_off": len(shown) == _IN_TREND[days],
            "changes": [point for point in shown if point.changed and not point.only_prompts],
            "versions": [point for point in shown if point.only_prompts],
            "troubles": _troubles(context, newest),
            "runs": run_results(context, ids_of(context.connection, name, most=paging.per_page,
                                           offset=paging.offset)),
            "paging": paging,
            "loops": feature.ask("loops_of", context.connection, name, default=0),
            "waiting": open_suggestions(context.connection).get(name, 0),
            "alerts": feature.ask("alerts", context, name, default=()),
        },
        crumbs=(Crumb("Experiments", context.links.to()),),
        area="home",
        refresh_s=REFRESH_S if waits else None,
    )  # fmt: skip


def _since(context: PageContext, days: int) -> str:
    return utc.timestamp(context.now - dt.timedelta(days=days))


def _not_run(context: PageContext, name: str) -> Page:
    """Return what an experiment of the project would run; raises UsageError if there is none."""
    project = project_of(context)
    found = None if project is None else project.experiments.get(name)
    if found is None:
        requested_experiment(context)  # raises, with the names that are known
        raise AssertionError("the experiment has a run")
    return Page(
        "not_run",
        name,
        {"experiment": found, "may_start": may_steer(context)},
        crumbs=(Crumb("Experiments", context.links.to()),),
        area="home",
    )


def _troubles(context: PageContext, newest: Run) -> tuple[Trouble, ...]:
    found = with_liveness(context, newest)
    return () if found.moving else troubles_of(RunResult(context.connection, found))


def _win_rate(context: PageContext, run: Run) -> WinCard | None:
    """Return how often the head, or the first model, wins; None without a pairwise judge."""
    if run.cells_planned > MOST_CELLS or not has_pairwise_judge(run):
        return None
    findings = judge_findings_of(context, run)
    matches = findings.matches if findings is not None else ()
    ordered = sorted(matches, key=lambda match: match.among_models)
    return WinCard(ordered[0], run.id) if ordered else None


def requested_experiment(context: PageContext) -> str:
    """Return the experiment of the address; raises UsageError if it has no run."""
    wanted, known = context.path["experiment"], experiments(context.connection)
    if wanted not in known:
        hint = did_you_mean(wanted, known, label="experiments")
        raise UsageError(f"the experiment {wanted!r} has no stored run", hint=hint)
    return wanted


class Evidence(NamedTuple):
    """What the runs of an experiment support."""

    drift: DriftFinding | None
    floor: float | None
    """The score that it is not to fall below."""
    findings: tuple[Finding, ...]
    production: Any


def _evidence(context: PageContext, name: str, points: Sequence[TrendRun]) -> Evidence | None:
    """Return what the runs support; None while it is computed, or for very large runs."""
    newest = points[-1].run
    cells = len(points) * newest.cells_planned
    if newest.cells_planned > MOST_CELLS:
        return None
    project = project_of(context)
    known = project if project is not None and searchable(project, name) else None
    watched = known.experiments.get(name) if known is not None else None
    floor, rule = floor_of(watched), alarm_rule(watched.file.alerts if watched else None)
    out = () if known is None else tuple(e for e in known.quarantine if e.experiment == name)

    def work(own: PageContext) -> Evidence:
        drift = drift_of(own.connection, points, threshold=floor, rule=rule)
        found = findings_of(advice_on(own.connection, known, name), drift)
        sampled = feature.ask("production_trend", own.connection, name, drift)
        return Evidence(drift, floor, found, sampled)

    key = ("evidence", context.links.database, str(context.root), name, floor, rule, out,
           newest.id, newest.finished_at, len(points),
           feature.ask("production_sample", context.connection, name))  # fmt: skip
    if context.synchronous or cells <= INLINE_CELLS:
        return cached(key, lambda: work(context))
    return cached_in_background(context, key, work)


def _production_chart(evidence: Evidence | None) -> Markup | None:
    """Draw the samples of production; None with fewer than two."""
    points = () if evidence is None or evidence.production is None else evidence.production.points
    points = points[-_IN_TREND["all"] :]
    if len(points) < 2:
        return None
    title = "Score of samples of production, with 95% CI"
    return fluid_figure(trend, Trend(title, (score_series("production", points),)))


def _charts(
    context: PageContext, points: Sequence[TrendRun], evidence: Evidence | None
) -> list[Markup]:
    opened = feature.ask("alert_marks", context, points, default=())
    charts = [
        replace(chart, happenings=(*chart.happenings, *opened))
        for chart in trends_of(context.connection, points)
    ]
    if evidence is not None:
        ahead = _ahead(points, evidence.drift)
        rules = () if evidence.floor is None else (Rule("floor", evidence.floor),)
        charts[0] = replace(charts[0], rules=rules, ahead=ahead)
    return [fluid_figure(trend, chart) for chart in charts]


def _ahead(points: Sequence[TrendRun], drift: DriftFinding | None) -> tuple[TrendPoint, ...]:
    """Return the forecast on the axis of the chart, where the next runs would come."""
    path = drift.forecast.path if drift is not None and drift.forecast is not None else ()
    days = points[-1].day - points[0].day
    if not path or days <= 0:
        return ()
    runs_a_day, last = (len(points) - 1) / days, len(points) - 1
    return tuple(
        TrendPoint(
            at=last + max(0.0, place.time - points[-1].day) * runs_a_day,
            label=f"{dt.datetime.fromtimestamp(place.time * 86_400, dt.UTC):%Y-%m-%d}",
            value=place.value,
            low=place.low,
            high=place.high,
        )
        for place in path
    )


# --- leaderboard ----------------------------------------------------------------------------------

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
    wanted = context.args.text("experiment")
    several = [name for name in context.args.texts("experiment") if name in names]
    if wanted == ALL and len(names) > 1:
        several = names
    if len(set(several)) > 1:
        return _together(context, names, list(dict.fromkeys(several)))
    name = wanted if wanted in names else (newest_measured(context.connection) or "")
    shown: dict[str, Any] = {"experiments": names, "experiment": name, "all": ALL}
    if name:
        (newest,) = complete_runs(context.connection, name, 1)
        cells = ranked_cells(context.connection, name, newest)
        small = cells <= MOST_CELLS
        board = _board(context, name, newest, at_once=cells <= INLINE_CELLS) if small else None
        places = _sums(context, newest)
        if board is not None:
            others = [place._replace(rank="") for place in _places(board.beyond)]
            places = [*_places(board.rows), *others]
        preferences = None if board is None else board.preferences
        preferred = () if preferences is None else preferences.ranking.placed
        kept: dict[str, Any] = {"experiment": wanted if wanted in names else ""}
        rows = paged(context, places, "leaderboard", **kept)
        shown |= {
            "places": rows,
            "preferred": paged(context, preferred, "leaderboard", turn="preferred", **kept),
            "small": small,
            "waiting": small and board is None,
            "board": board,
            "differences": _differences(board) if board is not None else [],
            "sentence": _sentence(board),
            "front": _pareto(places[:_MOST_SPOTS]),
            "preferences": preferences,
        }
    return Page(
        "leaderboard",
        f"Leaderboard of {name}" if name else "Leaderboard",
        shown,
        area="leaderboard",
        refresh_s=REFRESH_S if shown.get("waiting") else None,
    )


def _together(context: PageContext, names: list[str], several: list[str]) -> Page:
    """Return models by experiments; ranks need the same cases, so there are none."""
    overview = overview_of(context.connection, several[:_MOST_TOGETHER])
    kept = ALL if several == names else several
    shown = paged(context, overview.models, "leaderboard", experiment=kept)
    return Page(
        "leaderboards",
        "Leaderboard of all experiments" if several == names else "Leaderboard",
        {
            "experiments": names,
            "several": several,
            "all": ALL,
            "overview": overview,
            "models": shown,
            "left_out": len(several[_MOST_TOGETHER:]),
        },
        area="leaderboard",
    )


def _board(context: PageContext, name: str, newest: Run, *, at_once: bool) -> Leaderboard | None:
    """Return the leaderboard; None while it is computed."""
    project = project_of(context)
    key: tuple[Any, ...] = ("board", context.links.database, str(context.root), newest.id)
    known = project if project is not None and searchable(project, name) else None
    if known is not None:
        out = frozenset(e.case for e in known.quarantine if e.experiment == name)
        key = (*key, out)

    def work(own: PageContext) -> Leaderboard | None:
        stored = own.connection
        case_filter = CaseFilter() if known is None else case_filter_of(known, name, stored)
        return board_of(stored, name, case_filter)

    key = (*key, newest.finished_at)
    if context.synchronous or at_once:
        return cached(key, lambda: work(context))
    return cached_in_background(context, key, work)


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


def _estimate(found: Interval | None) -> EstimateWithInterval:
    if found is None:
        return EstimateWithInterval(None, None, None, 0, None)
    return EstimateWithInterval(found.estimate, found.low, found.high, found.n, found.method)


def _differences(board: Leaderboard) -> list[Difference]:
    found = []
    names = [_name(row, board.rows) for row in board.rows]
    ordered = sorted(
        board.contrasts, key=lambda each: (not each.significant, each.better, each.worse)
    )
    for each in ordered[:_MOST_DIFFERENCES]:
        low, high = each.interval or (None, None)
        luck = p_words(each.p_holm)
        found.append(
            Difference(names[each.better], names[each.worse], each.significant, each.difference,
                       low, high, each.n, luck)
        )  # fmt: skip
    return found


def _name(row: LeaderboardRow, rows: Sequence[LeaderboardRow]) -> str:
    versions = {(each.place.prompt, each.place.version) for each in rows}
    version = row.label or row.place.version[:8]
    return row.place.model if len(versions) == 1 else f"{row.place.model} {version}"


def _sentence(board: Leaderboard | None) -> str:
    if board is None or not board.contrasts:
        return ""
    stand_out = sum(each.significant for each in board.contrasts)
    return comparisons_sentence(made=len(board.contrasts), stand_out=stand_out)


def _pareto(places: Sequence[LeaderboardLine]) -> Markup | None:
    """Draw score against cost; None with fewer than two variants that cost something."""
    chart = pareto_chart(
        (f"{place.model} {place.label}".strip(), place.cost_microusd, place.composite)
        for place in places
        if place.cost_microusd
    )
    return None if chart is None else fluid_figure(pareto, chart)


# --- prompts --------------------------------------------------------------------------------------

_MOST_CHARS = 200_000
"""Longer prompts are not compared."""


class VersionLine(NamedTuple):
    """A version of a prompt."""

    hash: str
    label: str
    author: str
    date: str
    subject: str
    commit: str
    results: tuple[ModelScore, ...]
    text: str | None


def prompts(context: PageContext) -> Page:
    """Return all measured prompts."""
    found = paged(context, measured_prompts(context.connection), "prompts")
    values = {"prompts": found.rows, **found.values}
    return Page("prompts", "Prompts", values, area="prompts")


def prompt(context: PageContext) -> Page:
    """Return the versions of a prompt, newest first, and the diff of one of them."""
    name = context.path["prompt"]
    results = model_scores(context.connection, name)
    if not results:
        known = sorted(each.prompt for each in measured_prompts(context.connection))
        hint = did_you_mean(name, known, label="prompts")
        raise UsageError(f"the prompt {name!r} was not measured", hint=hint)
    versions, cut_off, why = _lineage(context, name)
    lines = _lines(versions, results)
    wanted = context.args.text("version")
    chosen = next((i for i, line in enumerate(lines) if line.hash.startswith(wanted)), 0)
    before = next((line for line in lines[chosen + 1 :] if line.text is not None), None)
    results_of = [(line, each) for line in lines for each in line.results or (None,)]
    shown = paged(context, results_of, "prompt", name, version=wanted)
    return Page(
        "prompt",
        f"Prompt {name}",
        {
            "prompt": name,
            "versions": grouped(shown.rows),
            **shown.values,
            "chosen": lines[chosen],
            "before": before,
            "changes": _changes(before, lines[chosen]),
            "cut_off": cut_off,
            "why": why,
            "editable": feature.ask("may_edit_prompts", context, default=False),
            "messages": stored_messages(context.args.text("messages")),
        },
        crumbs=(Crumb("Prompts", context.links.to("prompts")),),
        area="prompts",
    )


def _lineage(context: PageContext, name: str) -> tuple[list[Version], bool, str]:
    """Return the versions in Git, oldest first, or the reason why there are none."""
    project = project_of(context)
    if project is None:
        return [], False, "The project files with the texts are not available here."
    found = next((each for each in project.prompts.values() if each.id == name), None)
    if found is None:
        return [], False, "The prompt is no longer part of the project."

    def read() -> tuple[list[Version], bool, str]:
        try:
            history = History.of(found, project)
            return history.versions(), history.cut_off, ""
        except (EdisonError, OSError):
            return [], False, "Git could not be read."

    state = git_state(project.root)
    key = ("lineage", str(project.root), found.path, found.version, state)
    return read() if state is None else cached(key, read)


def _lines(known: list[Version], results: dict[str, list[ModelScore]]) -> list[VersionLine]:
    lines = [
        VersionLine(
            version.hash, version.label, version.author or "", version.date or "",
            version.subject or "", version.commit or "",
            tuple(results.get(version.hash, ())), _text(version),
        )
        for version in reversed(known)
    ]  # fmt: skip
    there = {line.hash for line in lines}
    alone = [
        VersionLine(version, "", "", found[0].created_at, "", "", tuple(found), None)
        for version, found in results.items()
        if version not in there
    ]
    return lines + sorted(alone, key=lambda line: line.date, reverse=True)


def _text(version: Version) -> str | None:
    return None if version.data is None else version.data.decode("utf-8", "replace")


def _changes(before: VersionLine | None, now: VersionLine) -> Markup | None:
    if before is None or before.text is None or now.text is None:
        return None
    if max(len(before.text), len(now.text)) > _MOST_CHARS:
        return None
    return diff_view(before.text, now.text)
