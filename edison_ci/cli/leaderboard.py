"""edison leaderboard: models and prompt versions ranked, and the one to use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from edison_ci.cli import lookup
from edison_ci.cli.options import CliState, EdisonCommand, ScoreType
from edison_ci.cli.terminal import GOOD, MOST_BLOCKS, ODD, StyledText, Terminal, simulated_label
from edison_ci.decide import findings, recommendation
from edison_ci.errors import UsageError
from edison_ci.numeric import counted, dollars, fixed, milliseconds, points, rate
from edison_ci.plan import versions as plan_versions
from edison_ci.results import current_prices, samples, scores
from edison_ci.results import leaderboard as result_leaderboard
from edison_ci.stats import sentences as stat_sentences

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.config.load import Project
    from edison_ci.decide.recommendation import RecommendationResult, RejectedModel
    from edison_ci.results.leaderboard import (
        Contrast,
        Key,
        Leaderboard,
        LeaderboardRow,
        PreferenceRanking,
    )
    from edison_ci.stats.ranking import RankedSystem
    from edison_ci.stats.value import ValuedModel


def _show_preferences(
    terminal: Terminal, found: PreferenceRanking, rows: Sequence[LeaderboardRow]
) -> None:
    """Print the ranking by pairwise preferences of the judge, with the range of each rank."""
    ranking = found.ranking
    names = _preference_names(found, rows)
    about = f"head to head, by {found.judge}"
    mark = simulated_label(found.simulated)
    if len(ranking.islands) > 1:
        islands = "; ".join(", ".join(names[name] for name in island) for island in ranking.islands)
        said = f"{about}: no joint ranking, because these groups were never compared: {islands}"
        terminal.result(said, *mark)
        return
    terminal.result(f"{about}: {ranking.method}, {ranking.n:,} cases or clusters", *mark)
    beats = f"beats {names[found.baseline]}"
    table: list[tuple[str, ...]] = [("rank", "", "Elo-like", beats)]
    table += [_preference_row(placed, names, found.baseline) for placed in ranking.placed]
    terminal.table(table)
    for note in ranking.notes:
        for name, shown in names.items():
            note = note.replace(name, shown)
        terminal.note(note)


def _preference_row(placed: RankedSystem, names: dict[str, str], baseline: str) -> tuple[str, ...]:
    best, worst = placed.best_rank, placed.worst_rank
    likely = ""
    if placed.interval is not None:
        likely = f" (likely {fixed(placed.interval.low)} to {fixed(placed.interval.high)})"
    chance = "-"
    if placed.beats_baseline is not None and placed.system != baseline:
        chance = f"{fixed(100 * placed.beats_baseline)}%"
    return (
        str(best) if best == worst else f"{best}-{worst}",
        names[placed.system],
        f"{fixed(placed.value)}{likely}",
        chance,
    )


def _preference_names(found: PreferenceRanking, rows: Sequence[LeaderboardRow]) -> dict[str, str]:
    """Return the shortest distinct names of the systems."""
    played = {name: found.names[name] for island in found.ranking.islands for name in island}
    labels = {(row.place.prompt, row.place.version): row.label for row in rows}
    several = len({key.prompt for key in played.values()}) > 1
    versions = len({key[:2] for key in played.values()}) > 1

    def label(key: Key) -> str:
        words = [key.model]
        if versions:
            version = labels.get((key.prompt, key.version)) or plan_versions.short(key.version)
            words.append(f"{key.prompt} {version}" if several else version)
        return " ".join(words)

    return {name: label(key) for name, key in played.items()}


_MOST_CONTRASTS = 10


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option(
    "--tag", "tags", multiple=True, metavar="TAG", help="Use only cases with this tag; repeatable."
)
@click.option(
    "--min-cases",
    type=click.IntRange(1, 1_000_000),
    default=1,
    show_default=True,
    metavar="N",
    help="Leave out rows with scores on fewer cases.",
)
@click.option(
    "--top",
    type=click.IntRange(1, 50),
    default=20,
    show_default=True,
    metavar="N",
    help="Number of rows to show and compare.",
)
@click.option("--recommend", is_flag=True, help="Recommend a model by score, cost and latency.")
@click.option(
    "--min-score",
    type=ScoreType(),
    metavar="POINTS",
    help="With --recommend: minimum score, such as 80.",
)
@click.option(
    "--max-cost",
    type=click.FloatRange(min=0),
    metavar="USD",
    help="With --recommend: maximum cost of an answer in dollars.",
)
@click.option(
    "--max-latency",
    type=click.FloatRange(min=0),
    metavar="MS",
    help="With --recommend: maximum median latency in milliseconds.",
)
@click.pass_context
def leaderboard(ctx: click.Context, /, experiment: str | None, **options: Any) -> None:
    """Rank models and prompt versions, or recommend one.

    Each prompt version with a model is one row, from its newest complete run. Without EXPERIMENT
    there is a board for each experiment. Differences are tested on the cases that both rows have,
    corrected for the number of comparisons; rows that share a rank are tied. Cases in quarantine
    are left out. If answers were compared pairwise, a second ranking shows the judge's preferences.

    --recommend uses the newest version of each prompt, on the cases that all models have. Best
    value is the cheapest model that is non-inferior to the most accurate one with a margin of 5
    points; with too few cases for that test, the output says so. A model is on the front if no
    other model beats it in score, cost and latency at once. Costs are what an answer costs at the
    current prices, from the tokens that were stored.

    Examples:
      edison leaderboard
      edison leaderboard support-reply --tag billing --min-cases 20
      edison leaderboard --recommend
      edison leaderboard --recommend --min-score 80 --max-cost 0.002
    """
    state: CliState = ctx.obj
    terminal = Terminal(state)
    _refuse_mixed(ctx, recommend=options["recommend"])
    project = lookup.open_readable_project(state, terminal)
    if options["recommend"]:
        _recommend(terminal, project, experiment, options)
    else:
        _rank(terminal, project, experiment, options)


_RANKING = ("tags", "min_cases", "top")
_REQUIREMENTS = ("min_score", "max_cost", "max_latency")


def _refuse_mixed(ctx: click.Context, *, recommend: bool) -> None:
    """Raise UsageError if an option belongs to another form of the command."""
    foreign: tuple[str, ...] = _RANKING if recommend else _REQUIREMENTS
    said = "does not go with --recommend" if recommend else "needs --recommend"
    for param in ctx.command.params:
        if param.name not in foreign:
            continue
        if ctx.get_parameter_source(str(param.name)) is not ParameterSource.DEFAULT:
            raise UsageError(f"{param.opts[0]} {said}", hint="see: edison leaderboard --help")


def _rank(
    terminal: Terminal, project: Project, experiment: str | None, options: Mapping[str, Any]
) -> None:
    """Print the board of each experiment."""
    rule = result_leaderboard.BoardRule(min_cases=options["min_cases"], most=options["top"])
    tags, boards = options["tags"], []
    with lookup.results_of(project) as connection:
        names = lookup.measured_names(connection, project, experiment)
        rolls = {name: samples.case_filter_of(project, name, connection, tags) for name in names}
        if tags and names and not any(case_filter.only for case_filter in rolls.values()):
            listed = " or ".join(map(repr, tags))
            raise UsageError(f"no case has the tag {listed}", hint="see: edison dataset stats")
        for name, case_filter in rolls.items():
            board = result_leaderboard.board_of(connection, name, case_filter, rule)
            if board is not None and (case_filter.only or not tags):
                boards.append(board)
    if terminal.json:
        terminal.document({"boards": [_board(board) for board in boards]})
        return
    if not boards:
        terminal.note("no complete run yet: edison run")
    for index, board in enumerate(terminal.listed(boards, most=MOST_BLOCKS)):
        if index:
            terminal.result("")
        _show(terminal, board)


def _show(terminal: Terminal, board: Leaderboard) -> None:
    head = f"  {counted(len(board.rows), 'row')} from {counted(board.runs, 'complete run')}"
    terminal.result(StyledText(board.experiment, bold=True), head)
    if board.rows:
        several = len({row.place.prompt for row in board.rows}) > 1
        table: list[tuple[str, ...]] = [
            ("rank", "model", "prompt", "score", "passed", "cost/answer", "latency", "")
        ]
        table += [_row(row, several=several) for row in board.rows]
        terminal.table(table, right=(5,))
        _differences(terminal, board)
    if board.preferences is not None:
        _show_preferences(terminal, board.preferences, board.rows)
    for note in _notes(board):
        terminal.note(note)


def _row(row: LeaderboardRow, *, several: bool) -> tuple[str, ...]:
    place, marks = row.place, []
    if place.run.simulated:
        marks.append(place.run.simulation)
    if place.run.partial:
        marks.append("part of the cases")
    if row.scores.missing:
        marks.append(f"{row.scores.missing:,} missing")
    cost = dollars(row.cost_microusd)
    return (
        ranks(row),
        place.model,
        version_name(row, several=several),
        points(row.composite),
        rate(row.pass_rate),
        f"~{cost}" if row.estimated and row.cost_microusd else cost,
        milliseconds(row.p50_ms, row.p95_ms),
        ", ".join(marks),
    )


def ranks(row: LeaderboardRow) -> str:
    """Return the rank of a row, or its range."""
    if row.best_rank == row.worst_rank:
        return str(row.best_rank)
    return f"{row.best_rank}-{row.worst_rank}"


def version_name(row: LeaderboardRow, *, several: bool) -> str:
    """Return the label and hash of a version, with its prompt if there are several."""
    version = plan_versions.short(row.place.version)
    known = row.label if row.label and version in row.label else f"{row.label or ''} ({version})"
    return f"{row.place.prompt} {known.strip()}" if several else known.strip()


def _differences(terminal: Terminal, board: Leaderboard) -> None:
    contrasts = board.contrasts
    shown = [contrast for contrast in contrasts if contrast.significant]
    tied = [contrast for contrast in contrasts if not contrast.significant]
    names = _names(board.rows)
    for contrast in shown[:_MOST_CONTRASTS]:
        about = f"  {names[contrast.better]} over {names[contrast.worse]}: {_gap(contrast)}"
        terminal.result(StyledText("shown", GOOD), about)
    for contrast in tied[: max(0, _MOST_CONTRASTS - len(shown))]:
        about = f"    {names[contrast.better]} and {names[contrast.worse]}: {_gap(contrast)}"
        terminal.result(StyledText("tie", ODD), about)
    if contrasts:
        terminal.result(
            stat_sentences.comparisons_sentence(made=len(contrasts), stand_out=len(shown))
        )
    pairs = len(board.rows) * (len(board.rows) - 1) // 2
    if pairs > len(contrasts):
        left = counted(pairs - len(contrasts), "pair")
        terminal.result(f"{left} not compared: too few cases in common")


def _gap(contrast: Contrast) -> str:
    text = f"{stat_sentences.signed(contrast.difference)} points"
    if contrast.interval is not None:
        low, high = contrast.interval
        text += f" (likely {stat_sentences.signed(low)} to {stat_sentences.signed(high)})"
    tested = f", {stat_sentences.p_words(contrast.p_holm)}" if contrast.significant else ""
    return f"{text} on {counted(contrast.n, 'case')}{tested}"


def _names(rows: Sequence[LeaderboardRow]) -> list[str]:
    """Return the shortest distinct names of the rows."""
    models = {row.place.model for row in rows}
    versions = {(row.place.prompt, row.place.version) for row in rows}
    prompts = {row.place.prompt for row in rows}
    found = []
    for row in rows:
        version = row.label or plan_versions.short(row.place.version)
        words = [row.place.model] if len(models) > 1 or len(versions) == 1 else []
        if len(versions) > 1:
            words.append(f"{row.place.prompt} {version}" if len(prompts) > 1 else version)
        found.append(" ".join(words))
    return found


def _notes(board: Leaderboard) -> list[str]:
    notes = []
    if board.too_few:
        notes.append(f"{counted(board.too_few, 'row')} left out: too few cases with a score")
    if board.beyond:
        notes.append(f"{counted(len(board.beyond), 'row')} left out: see more with --top")
    if board.graded_otherwise:
        left = counted(board.graded_otherwise, "row")
        notes.append(f"{left} left out: graded with another rubric, checks or judges")
    if board.quarantined:
        notes.append(f"{counted(board.quarantined, 'case')} in quarantine left out")
    return notes


def _board(board: Leaderboard) -> dict[str, Any]:
    return {
        "experiment": board.experiment,
        "runs": board.runs,
        "rows": [row_json(row) for row in board.rows],
        "comparisons": [_contrast(board, contrast) for contrast in board.contrasts],
        "left_out": {
            "too_few_cases": board.too_few,
            "beyond_top": len(board.beyond),
            "graded_otherwise": board.graded_otherwise,
            "quarantined_cases": board.quarantined,
        },
        "preferences": None if board.preferences is None else board.preferences.as_json(),
    }


def row_json(row: LeaderboardRow) -> dict[str, Any]:
    """Return a row as it appears in `--json`."""
    place = row.place
    return {
        "rank": {"best": row.best_rank, "worst": row.worst_rank},
        "model": place.model,
        "prompt": {
            "id": place.prompt,
            "hash": plan_versions.short(place.version),
            "label": row.label,
        },
        "run_id": place.run.id,
        "simulated": place.run.simulated,
        "partial": place.run.partial,
        "composite": scores.interval_json(row.composite),
        "pass_rate": scores.interval_json(row.pass_rate),
        "missing": row.scores.missing,
        "answers": row.answers,
        "answer_cost_microusd": row.cost_microusd,
        "estimated_answers": row.estimated,
        "latency_ms": {"p50": row.p50_ms, "p95": row.p95_ms},
    }


def _contrast(board: Leaderboard, contrast: Contrast) -> dict[str, Any]:
    low, high = contrast.interval or (None, None)
    return {
        "better": contrast.better,
        "worse": contrast.worse,
        "shown": contrast.significant,
        "estimate": contrast.difference,
        "low": low,
        "high": high,
        "n": contrast.n,
        "p": contrast.p,
        "p_holm": contrast.p_holm,
        "family": len(board.contrasts),
        "method": contrast.method,
    }


def _recommend(
    terminal: Terminal, project: Project, experiment: str | None, options: Mapping[str, Any]
) -> None:
    """Print the recommended model of each experiment."""
    max_usd = options["max_cost"]
    required = recommendation.Requirements(
        min_score=options["min_score"],
        max_cost_microusd=None if max_usd is None else max_usd * 1e6,
        max_latency_ms=options["max_latency"],
    )
    advices = []
    with lookup.results_of(project) as connection:
        for name in lookup.measured_names(connection, project, experiment):
            case_filter = samples.case_filter_of(project, name, connection)
            measured = result_leaderboard.measurements_of(
                connection, name, case_filter, current_prices.CurrentPrices(project)
            )
            if measured is not None:
                advices.append(recommendation.advise(name, measured, case_filter, required))
    if terminal.json:
        terminal.document({"experiments": [_advice(advice) for advice in advices]})
        return
    if not advices:
        terminal.note("no complete run yet: edison run")
    for index, advice in enumerate(terminal.listed(advices, most=MOST_BLOCKS)):
        if index:
            terminal.result("")
        _show_recommendation(terminal, advice)


def _show_recommendation(terminal: Terminal, advice: RecommendationResult) -> None:
    about = f"  {counted(len(advice.rows), 'model')} on {counted(advice.cases, 'case')}"
    marks = simulated_label(advice.simulation)
    terminal.result(StyledText(advice.experiment, bold=True), about, *marks)
    found = advice.recommendation
    if found is None:
        terminal.result(_no_recommendation(advice))
    else:
        rows = advice.rows
        table = [("most accurate", found.best, points(rows[found.best].composite))]
        if advice.fastest is not None:
            fast = rows[advice.fastest]
            table.append(("fastest", advice.fastest, milliseconds(fast.p50_ms, fast.p95_ms)))
        table.append(("best value", found.value, dollars(rows[found.value].cost_microusd)))
        terminal.table(table)
        for sentence in sentences(advice):
            terminal.result(sentence)
        _models(terminal, advice)
    for name, reason in advice.refused:
        terminal.result(f"left out: {name}, because {reason}")


def _no_recommendation(advice: RecommendationResult) -> str:
    if not advice.rows and advice.refused:
        return "No model meets the requirements."
    return (
        f"Not enough cases: {counted(advice.cases, 'case')} with a score of every model. "
        "At least two are needed, and about 50 are useful."
    )


def sentences(advice: RecommendationResult) -> list[str]:
    """Return the recommendation in sentences, with what the cases cannot show."""
    found = advice.recommendation
    if found is None:
        return [_no_recommendation(advice)]
    if len(advice.rows) == 1:
        said = [f"{found.best} is the only model: nothing to compare it with."]
    else:
        said = [stat_sentences.value_sentence(found, margin=advice.margin)]
    said += [_doubt(doubt, found.best, advice.margin) for doubt in advice.doubts]
    saved = findings.saved_microusd(advice)
    if saved is not None and found.loss > 0:
        # Per thousand answers, because the saving per answer is too small to read.
        said.append(
            f"It scores {fixed(100 * found.loss, 1)} points less and saves {dollars(1000 * saved)} "
            "in 1,000 answers."
        )
    if not any(row.cost_microusd for row in advice.rows.values()):
        said.append("No answer cost anything, so cost was not considered.")
    else:
        said += _prices(advice)
    if any(row.place.run.partial for row in advice.rows.values()):
        said.append("Some models were measured on a part of the cases only.")
    if advice.cases < recommendation.FEW:
        said.append(f"Very few cases ({advice.cases}): do not rely on this.")
    return said


def _prices(advice: RecommendationResult) -> list[str]:
    """Say at which prices the models are compared, and where that differs from what was paid."""
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


def _doubt(doubt: RejectedModel, best: str, margin: float) -> str:
    contrast = doubt.contrast
    change = f"{stat_sentences.signed(contrast.difference)} points"
    if contrast.interval is not None:
        low, high = contrast.interval
        change += f" (likely {stat_sentences.signed(low)} to {stat_sentences.signed(high)})"
    if doubt.worse:
        return f"{doubt.name} is shown to be worse than {best}: {change}."
    said = f"Not enough cases to tell whether {doubt.name} is as good as {best}: {change}"
    said += f" on {counted(contrast.n, 'case')}."
    if doubt.n_needed is not None:
        said += (
            f" If it is, about {doubt.n_needed:,} cases would show that it is within "
            f"{100 * margin:g} points."
        )
    return said


def _models(terminal: Terminal, advice: RecommendationResult) -> None:
    found = advice.recommendation
    if found is None or len(found.models) < 2:
        return
    table: list[tuple[str, ...]] = [
        ("model", "prompt", "score", "against the best", "cost/answer", "latency", "")
    ]
    for model in found.models:
        row = advice.rows[model.name]
        worst = model.worst_plausible
        against = "-" if worst is None else f"worst plausible {stat_sentences.signed(worst)}"
        marks = [name for name, holds in _marks(model, found.best) if holds]
        table.append(
            (
                model.name,
                row.label or plan_versions.short(row.place.version),
                _score(model),
                "the best" if model.name == found.best else against,
                dollars(row.cost_microusd),
                milliseconds(row.p50_ms, row.p95_ms),
                ", ".join(marks),
            )
        )
    terminal.table(table, right=(4,))


def _score(model: ValuedModel) -> str:
    if model.interval is None:
        return fixed(100 * model.value, 1)
    low, high = model.interval
    return f"{fixed(100 * model.value, 1)} ({fixed(100 * low, 1)} to {fixed(100 * high, 1)})"


def _marks(model: ValuedModel, best: str) -> list[tuple[str, bool]]:
    return [("on the front", model.on_front), ("as good", model.as_good and model.name != best)]


def _advice(advice: RecommendationResult) -> dict[str, Any]:
    found = advice.recommendation
    models = {} if found is None else {model.name: model for model in found.models}
    return {
        "experiment": advice.experiment,
        "cases": advice.cases,
        "simulated": bool(advice.simulation),
        "most_accurate": None if found is None else found.best,
        "fastest": advice.fastest if found is not None else None,
        "best_value": None if found is None else found.value,
        "front": [model.name for model in models.values() if model.on_front],
        "margin": advice.margin,
        "sentences": sentences(advice),
        "models": [
            {
                "name": name,
                **{k: v for k, v in row_json(row).items() if k != "rank"},
                "answer_paid_microusd": row.paid_microusd,
                "prices": "current" if row.current else "paid",
                **_valued(models.get(name)),
            }
            for name, row in advice.rows.items()
        ],
        "doubts": [
            {
                "model": doubt.name,
                "worse": doubt.worse,
                "estimate": doubt.contrast.difference,
                "low": doubt.contrast.interval and doubt.contrast.interval.low,
                "high": doubt.contrast.interval and doubt.contrast.interval.high,
                "n": doubt.contrast.n,
                "p": doubt.contrast.p,
                "n_needed": doubt.n_needed,
            }
            for doubt in advice.doubts
        ],
        "left_out": [{"model": name, "reason": reason} for name, reason in advice.refused],
    }


def _valued(model: ValuedModel | None) -> dict[str, Any]:
    """Return the results of a model on the cases that all models have."""
    if model is None:
        return {"common": None, "on_front": None, "as_good": None, "worst_plausible": None}
    low, high = model.interval or (None, None)
    return {
        "common": {"estimate": model.value, "low": low, "high": high, "n": model.n},
        "on_front": model.on_front,
        "as_good": model.as_good,
        "worst_plausible": model.worst_plausible,
    }
