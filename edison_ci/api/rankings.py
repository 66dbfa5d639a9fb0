"""Rankings from stored results: leaderboards of prompt versions, and the model to use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.decide import recommendation
from edison_ci.documents.record_json import Document, fields_of
from edison_ci.errors import UsageError
from edison_ci.numeric import counted, dollars, fixed
from edison_ci.plan import versions as plan_versions
from edison_ci.results import leaderboard as result_leaderboard
from edison_ci.results import scores, spending, stored_runs
from edison_ci.results.snapshot import measured_experiments
from edison_ci.spelling import did_you_mean
from edison_ci.stats import sentences as stat_sentences

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.config.load import Project
    from edison_ci.decide.recommendation import RecommendationResult, RejectedModel
    from edison_ci.results.leaderboard import Contrast, Leaderboard, LeaderboardRow
    from edison_ci.stats.value import ValuedModel


def measured_names(connection: sqlite3.Connection, project: Project, name: str | None) -> list[str]:
    """Return the named experiment if it has a complete run, or all that have one."""
    measured = measured_experiments(connection)
    if name is None:
        return measured
    names = [*dict.fromkeys([*measured, *project.experiments])]
    if name not in names:
        hint = did_you_mean(name, names, label="experiments")
        raise UsageError(f"there is no experiment {name!r}", hint=hint)
    return [name] if name in measured else []


@dataclass(frozen=True, slots=True)
class LeaderboardRequest:
    """What to rank, or the requirements of a recommendation."""

    experiment: str | None
    tags: tuple[str, ...]
    min_cases: int
    top: int
    recommend: bool
    min_score: float | None
    max_cost: float | None
    """Of an answer, in dollars."""
    max_latency: float | None
    """Median, in milliseconds."""


def leaderboards(project: Project, request: LeaderboardRequest) -> list[Leaderboard]:
    """Return the board of each experiment; raises UsageError if no case has one of the tags."""
    rule = result_leaderboard.BoardRule(min_cases=request.min_cases, most=request.top)
    tags, boards = request.tags, []
    with stored_runs.open_runs(project) as runs:
        reader = runs.connection
        names = measured_names(reader, project, request.experiment)
        filters = {
            name: result_leaderboard.case_filter_of(project, name, reader, tags) for name in names
        }
        if tags and names and not any(case_filter.only for case_filter in filters.values()):
            listed = " or ".join(map(repr, tags))
            raise UsageError(f"no case has the tag {listed}", hint="see: edison dataset stats")
        for name, case_filter in filters.items():
            board = result_leaderboard.board_of(reader, name, case_filter, rule)
            if board is not None and (case_filter.only or not tags):
                boards.append(board)
    return boards


def recommendations(project: Project, request: LeaderboardRequest) -> list[RecommendationResult]:
    """Return the recommended model of each experiment."""
    required = recommendation.Requirements(
        min_score=request.min_score,
        max_cost_microusd=None if request.max_cost is None else request.max_cost * 1e6,
        max_latency_ms=request.max_latency,
    )
    advices = []
    with stored_runs.open_runs(project) as runs:
        reader, prices = runs.connection, spending.CurrentPrices(project)
        for name in measured_names(reader, project, request.experiment):
            case_filter = result_leaderboard.case_filter_of(project, name, reader)
            measured = result_leaderboard.measurements_of(reader, name, case_filter, prices)
            if measured is not None:
                advices.append(recommendation.advise(name, measured, case_filter, required))
    return advices


def board_json(board: Leaderboard) -> Document:
    """Return a board as a command prints it."""
    left_out = fields_of(
        board, "graded_otherwise", too_few_cases="too_few", quarantined_cases="quarantined"
    )
    return {
        **fields_of(board, "experiment", "runs", "preferences"),
        "rows": [_row(row) for row in board.rows],
        "comparisons": [_contrast(board, contrast) for contrast in board.contrasts],
        "left_out": {**left_out, "beyond_top": len(board.beyond)},
    }


def _row(row: LeaderboardRow) -> Document:
    place, run = row.place, row.place.run
    hashed = plan_versions.short(place.version)
    return {
        "rank": {"best": row.best_rank, "worst": row.worst_rank},
        "model": place.model,
        "prompt": {"id": place.prompt, "hash": hashed, "label": row.label},
        **fields_of(run, "simulated", "partial", run_id="id"),
        "composite": scores.interval_json(row.composite),
        "pass_rate": scores.interval_json(row.pass_rate),
        "missing": row.scores.missing,
        **fields_of(row, "answers", estimated_answers="estimated"),
        "answer_cost_microusd": row.cost_microusd,
        "latency_ms": {"p50": row.p50_ms, "p95": row.p95_ms},
    }


def _contrast(board: Leaderboard, contrast: Contrast) -> Document:
    low, high = contrast.interval or (None, None)
    return {
        **fields_of(contrast, "better", "worse", "n", "p", "p_holm", "method"),
        "shown": contrast.significant,
        "estimate": contrast.difference,
        "low": low,
        "high": high,
        "family": len(board.contrasts),
    }


def advice_json(advice: RecommendationResult) -> Document:
    """Return a recommendation as a command prints it."""
    best = advice.recommendation
    models = {} if best is None else {model.name: model for model in best.models}
    return {
        **fields_of(advice, "experiment", "cases", "margin"),
        "simulated": bool(advice.simulation),
        "most_accurate": None if best is None else best.best,
        "fastest": None if best is None else advice.fastest,
        "best_value": None if best is None else best.value,
        "front": [model.name for model in models.values() if model.on_front],
        "sentences": recommendation_sentences(advice),
        "models": [
            {
                "name": name,
                **{key: value for key, value in _row(row).items() if key != "rank"},
                "answer_paid_microusd": row.paid_microusd,
                "prices": "current" if row.current else "paid",
                **_valued(models.get(name)),
            }
            for name, row in advice.rows.items()
        ],
        "doubts": [_doubt_json(advice, doubt) for doubt in advice.doubts],
        "left_out": [{"model": name, "reason": reason} for name, reason in advice.refused],
    }


def _doubt_json(advice: RecommendationResult, doubt: RejectedModel) -> Document:
    contrast = doubt.contrast
    low, high = contrast.interval or (None, None)
    return {
        **fields_of(doubt, "worse", "n_needed", model="name"),
        **fields_of(contrast, "n", "p", estimate="difference"),
        "low": low,
        "high": high,
        "would_save_microusd": recommendation.would_save_microusd(advice, doubt),
    }


def _valued(model: ValuedModel | None) -> Document:
    """Return the results of a model on the cases that all models have."""
    if model is None:
        return dict.fromkeys(("common", "on_front", "as_good", "worst_plausible"))
    low, high = model.interval or (None, None)
    return {
        "common": {"estimate": model.value, "low": low, "high": high, "n": model.n},
        **fields_of(model, "on_front", "as_good", "worst_plausible"),
    }


def _no_recommendation(advice: RecommendationResult) -> str:
    if not advice.rows and advice.refused:
        return "No model meets the requirements."
    return (
        f"Not enough cases: {counted(advice.cases, 'case')} with a score of every model. "
        "At least two are needed, and about 50 are useful."
    )


def recommendation_sentences(advice: RecommendationResult) -> list[str]:
    """Return the recommendation in sentences, with what the cases cannot show."""
    best = advice.recommendation
    if best is None:
        return [_no_recommendation(advice)]
    if len(advice.rows) == 1:
        sentences = [f"{best.best} is the only model: nothing to compare it with."]
    else:
        sentences = [stat_sentences.value_sentence(best, margin=advice.margin)]
    sentences += [recommendation.doubt_sentence(advice, doubt) for doubt in advice.doubts]
    saved = recommendation.saved_microusd(advice)
    if saved is not None and best.loss > 0:
        # Per thousand answers, because the saving per answer is too small to read.
        sentences.append(
            f"It scores {fixed(100 * best.loss, 1)} points less and saves {dollars(1000 * saved)} "
            "in 1,000 answers."
        )
    if not any(row.cost_microusd for row in advice.rows.values()):
        sentences.append("No answer cost anything, so cost was not considered.")
    else:
        sentences += _prices(advice)
    if any(row.place.run.partial for row in advice.rows.values()):
        sentences.append("Some models were measured on a part of the cases only.")
    if advice.cases < recommendation.FEW:
        sentences.append(f"Very few cases ({advice.cases}): do not rely on this.")
    return sentences


def _prices(advice: RecommendationResult) -> list[str]:
    """Return sentences on the prices that models are compared at, and what was paid instead."""
    current = {name: row for name, row in advice.rows.items() if row.current}
    if not current:
        return []
    changed = [
        f"{name} {dollars(row.paid_microusd)}"
        for name, row in current.items()
        if row.paid_microusd != row.cost_microusd
    ]
    paid = [name for name in advice.rows if name not in current]
    return [
        "Costs are at the current prices"
        + (f"; paid were, for an answer: {', '.join(changed)}" if changed else "")
        + (f"; of {', '.join(paid)} as they were paid, without a current price" if paid else "")
        + "."
    ]
