"""edison leaderboard: models and prompt versions ranked, and the one to use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from edison_ci.api import rankings
from edison_ci.api.rankings import LeaderboardRequest
from edison_ci.cli import lookup
from edison_ci.cli.options import (
    CliState,
    EdisonCommand,
    NumberRange,
    ScoreType,
    takes,
)
from edison_ci.cli.terminal import (
    GOOD,
    MOST_BLOCKS,
    ODD,
    Item,
    StyledText,
    Terminal,
    simulated_label,
)
from edison_ci.errors import UsageError
from edison_ci.numeric import counted, dollars, fixed, milliseconds, points, rate
from edison_ci.plan import versions as plan_versions
from edison_ci.stats import sentences as stat_sentences

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edison_ci.decide.recommendation import RecommendationResult
    from edison_ci.results.leaderboard import Contrast, Leaderboard, LeaderboardRow
    from edison_ci.results.pairwise import Key, PreferenceRanking
    from edison_ci.stats.ranking import RankedSystem
    from edison_ci.stats.value import ValuedModel


def _show_preferences(
    terminal: Terminal, preferences: PreferenceRanking, rows: Sequence[LeaderboardRow]
) -> None:
    """Print the ranking by pairwise preferences of the judge, with the range of each rank."""
    ranking = preferences.ranking
    names = _preference_names(preferences, rows)
    about = f"head to head, by {preferences.judge}"
    mark = simulated_label(preferences.simulated)
    if len(ranking.islands) > 1:
        islands = "; ".join(", ".join(names[name] for name in island) for island in ranking.islands)
        sentence = f"{about}: no joint ranking, because these groups were never compared: {islands}"
        terminal.result(sentence, *mark)
        return
    terminal.result(f"{about}: {ranking.method}, {ranking.n:,} cases or clusters", *mark)
    beats = f"beats {names[preferences.baseline]}"
    table: list[tuple[str, ...]] = [("rank", "", "Elo-like", beats)]
    table += [_preference_row(placed, names, preferences.baseline) for placed in ranking.placed]
    terminal.table(table)
    for note in ranking.notes:
        for name, label in names.items():
            note = note.replace(name, label)
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


def _preference_names(
    preferences: PreferenceRanking, rows: Sequence[LeaderboardRow]
) -> dict[str, str]:
    """Return the shortest distinct names of the systems."""
    played = {
        name: preferences.names[name] for island in preferences.ranking.islands for name in island
    }
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
    type=NumberRange(min=0),
    metavar="USD",
    help="With --recommend: maximum cost of an answer in dollars.",
)
@click.option(
    "--max-latency",
    type=NumberRange(min=0),
    metavar="MS",
    help="With --recommend: maximum median latency in milliseconds.",
)
@click.pass_context
@takes(LeaderboardRequest)
def leaderboard(ctx: click.Context, request: LeaderboardRequest) -> None:
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
    _refuse_mixed(ctx, recommend=request.recommend)
    project = lookup.open_readable_project(state, terminal)
    if request.recommend:
        advices = rankings.recommendations(project, request)
        if terminal.json:
            listed = [rankings.advice_json(advice) for advice in advices]
            terminal.document({"experiments": listed})
        else:
            _show_each(terminal, advices, _show_recommendation)
    else:
        boards = rankings.leaderboards(project, request)
        if terminal.json:
            terminal.document({"boards": [rankings.board_json(board) for board in boards]})
        else:
            _show_each(terminal, boards, _show)


def _show_each(
    terminal: Terminal, items: Sequence[Item], show: Callable[[Terminal, Item], None]
) -> None:
    """Print what there is for each experiment, with an empty line between them."""
    if not items:
        terminal.note("no complete run yet: edison run")
    for index, item in enumerate(terminal.listed(items, most=MOST_BLOCKS)):
        if index:
            terminal.result("")
        show(terminal, item)


_RANKING = ("tags", "min_cases", "top")
_REQUIREMENTS = ("min_score", "max_cost", "max_latency")


def _refuse_mixed(ctx: click.Context, *, recommend: bool) -> None:
    """Raise UsageError if an option belongs to another form of the command."""
    foreign: tuple[str, ...] = _RANKING if recommend else _REQUIREMENTS
    problem = "does not go with --recommend" if recommend else "needs --recommend"
    for param in ctx.command.params:
        if param.name not in foreign:
            continue
        if ctx.get_parameter_source(str(param.name)) is not ParameterSource.DEFAULT:
            raise UsageError(f"{param.opts[0]} {problem}", hint="see: edison leaderboard --help")


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
    label = row.label if row.label and version in row.label else f"{row.label or ''} ({version})"
    return f"{row.place.prompt} {label.strip()}" if several else label.strip()


def _differences(terminal: Terminal, board: Leaderboard) -> None:
    contrasts = board.contrasts
    significant = [contrast for contrast in contrasts if contrast.significant]
    tied = [contrast for contrast in contrasts if not contrast.significant]
    names = _names(board.rows)
    for contrast in significant[:_MOST_CONTRASTS]:
        about = f"  {names[contrast.better]} over {names[contrast.worse]}: {_gap(contrast)}"
        terminal.result(StyledText("shown", GOOD), about)
    for contrast in tied[: max(0, _MOST_CONTRASTS - len(significant))]:
        about = f"    {names[contrast.better]} and {names[contrast.worse]}: {_gap(contrast)}"
        terminal.result(StyledText("tie", ODD), about)
    if contrasts:
        terminal.result(
            stat_sentences.comparisons_sentence(made=len(contrasts), stand_out=len(significant))
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
    tested = f", {stat_sentences.two_sided(contrast.p_holm)}" if contrast.significant else ""
    return f"{text} on {counted(contrast.n, 'case')}{tested}"


def _names(rows: Sequence[LeaderboardRow]) -> list[str]:
    """Return the shortest distinct names of the rows."""
    models = {row.place.model for row in rows}
    versions = {(row.place.prompt, row.place.version) for row in rows}
    prompts = {row.place.prompt for row in rows}
    names = []
    for row in rows:
        version = row.label or plan_versions.short(row.place.version)
        words = [row.place.model] if len(models) > 1 or len(versions) == 1 else []
        if len(versions) > 1:
            words.append(f"{row.place.prompt} {version}" if len(prompts) > 1 else version)
        names.append(" ".join(words))
    return names


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


def _show_recommendation(terminal: Terminal, advice: RecommendationResult) -> None:
    about = f"  {counted(len(advice.rows), 'model')} on {counted(advice.cases, 'case')}"
    marks = simulated_label(advice.simulation)
    terminal.result(StyledText(advice.experiment, bold=True), about, *marks)
    best = advice.recommendation
    if best is None:
        for sentence in rankings.recommendation_sentences(advice):
            terminal.result(sentence)
    else:
        rows = advice.rows
        table = [("most accurate", best.best, points(rows[best.best].composite))]
        if advice.fastest is not None:
            fast = rows[advice.fastest]
            table.append(("fastest", advice.fastest, milliseconds(fast.p50_ms, fast.p95_ms)))
        table.append(("best value", best.value, dollars(rows[best.value].cost_microusd)))
        terminal.table(table)
        for sentence in rankings.recommendation_sentences(advice):
            terminal.result(sentence)
        _models(terminal, advice)
    for name, reason in advice.refused:
        terminal.result(f"left out: {name}, because {reason}")


def _models(terminal: Terminal, advice: RecommendationResult) -> None:
    best = advice.recommendation
    if best is None or len(best.models) < 2:
        return
    table: list[tuple[str, ...]] = [
        ("model", "prompt", "score", "against the best", "cost/answer", "latency", "")
    ]
    for model in best.models:
        row = advice.rows[model.name]
        worst = model.worst_plausible
        against = "-" if worst is None else f"worst plausible {stat_sentences.signed(worst)}"
        marks = [name for name, holds in _marks(model, best.best) if holds]
        table.append(
            (
                model.name,
                row.label or plan_versions.short(row.place.version),
                _score(model),
                "the best" if model.name == best.best else against,
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
