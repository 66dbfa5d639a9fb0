"""edison leaderboard: models and prompt versions ranked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from edison_ci.cli.options import EdisonCommand, State
from edison_ci.cli.reading import experiments_meant, price, readable_at, results_of
from edison_ci.cli.terminal import GOOD, ODD, Ink, Terminal, counted
from edison_ci.errors import UsageError
from edison_ci.formatting import milliseconds, points, rate
from edison_ci.plan.versions import short
from edison_ci.results.case_filter import roll_of
from edison_ci.results.leaderboard import BoardRule, board_of
from edison_ci.results.run_document import interval_json
from edison_ci.rounding import fixed
from edison_ci.stats.sentences import chance, comparisons_sentence, signed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.results.leaderboard import Board, Contrast, Key, Preferences, Standing
    from edison_ci.stats.ranking import Placed


def show_preferences(terminal: Terminal, found: Preferences, rows: Sequence[Standing]) -> None:
    """Print who stands where by what the judge prefers, with the ranks each may have."""
    ranking = found.ranking
    names = _preferences_names(found, rows)
    about = f"head to head, by {found.judge}"
    mark = (Ink("  simulated", ODD),) if found.simulated else ()
    if len(ranking.islands) > 1:
        islands = "; ".join(", ".join(names[name] for name in island) for island in ranking.islands)
        said = f"{about}: no joint ranking: never compared with each other: {islands}"
        terminal.result(said, *mark)
        return
    terminal.result(f"{about}: {ranking.method}, {ranking.n:,} cases or clusters", *mark)
    beats = f"beats {names[found.baseline]}"
    table: list[tuple[str, ...]] = [("rank", "", "Elo-like", beats)]
    table += [_preferences_row(placed, names, found.baseline) for placed in ranking.placed]
    terminal.table(table)
    for note in ranking.notes:
        for name, shown in names.items():
            note = note.replace(name, shown)
        terminal.note(note)


def _preferences_row(placed: Placed, names: dict[str, str], baseline: str) -> tuple[str, ...]:
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


def _preferences_names(found: Preferences, rows: Sequence[Standing]) -> dict[str, str]:
    """Return what systems are called, as short as they can be told apart."""
    played = {name: found.names[name] for island in found.ranking.islands for name in island}
    labels = {(row.place.prompt, row.place.version): row.label for row in rows}
    several = len({key.prompt for key in played.values()}) > 1
    versions = len({key[:2] for key in played.values()}) > 1

    def shown(key: Key) -> str:
        words = [key.model]
        if versions:
            version = labels.get((key.prompt, key.version)) or short(key.version)
            words.append(f"{key.prompt} {version}" if several else version)
        return " ".join(words)

    return {name: shown(key) for name, key in played.items()}


_MOST_SAID = 10


@click.command(cls=EdisonCommand)
@click.argument("experiment", required=False)
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only cases with this tag.")
@click.option(
    "--min-cases",
    type=click.IntRange(1, 1_000_000),
    default=1,
    show_default=True,
    metavar="N",
    help="Leave out what has a score on fewer cases.",
)
@click.option(
    "--top",
    type=click.IntRange(1, 50),
    default=20,
    show_default=True,
    metavar="N",
    help="Rows to show and to compare with each other.",
)
@click.pass_obj
def leaderboard(state: State, /, experiment: str | None, **options: Any) -> None:
    """Rank models and prompt versions.

    Each prompt version with a model counts once, with its newest complete run; without EXPERIMENT
    there is a board for each. Who is better is tested on the cases that both have, allowing for the
    number of comparisons: what shares a rank is a tie. Cases in quarantine are left out. Where
    answers were compared head to head, there is a second ranking by what the judge prefers.

    Examples:
      edison leaderboard
      edison leaderboard support-reply --tag billing --min-cases 20
      edison leaderboard --json
    """
    terminal = Terminal(state)
    project = readable_at(state, terminal)
    rule = BoardRule(min_cases=options["min_cases"], most=options["top"])
    tags, boards = options["tags"], []
    with results_of(project) as connection:
        names = experiments_meant(connection, project, experiment)
        rolls = {name: roll_of(project, name, tags, stored=connection) for name in names}
        if tags and names and not any(roll.only for roll in rolls.values()):
            asked = " or ".join(map(repr, tags))
            raise UsageError(f"no case has the tag {asked}", hint="see: edison dataset stats")
        for name, roll in rolls.items():
            board = board_of(connection, name, roll, rule)
            if board is not None and (roll.only or not tags):
                boards.append(board)
    if terminal.json:
        terminal.document({"boards": [_board(board) for board in boards]})
        return
    if not boards:
        terminal.note("no complete run yet: edison run")
    for index, board in enumerate(boards):
        if index:
            terminal.result("")
        _show(terminal, board)


def _show(terminal: Terminal, board: Board) -> None:
    head = f"  {counted(len(board.rows), 'row')} from {counted(board.runs, 'complete run')}"
    terminal.result(Ink(board.experiment, bold=True), head)
    if board.rows:
        several = len({row.place.prompt for row in board.rows}) > 1
        table: list[tuple[str, ...]] = [
            ("rank", "model", "prompt", "score", "passed", "cost/answer", "latency", "")
        ]
        table += [_row(row, several=several) for row in board.rows]
        terminal.table(table, right=(5,))
        _differences(terminal, board)
    if board.preferences is not None:
        show_preferences(terminal, board.preferences, board.rows)
    for note in _notes(board):
        terminal.note(note)


def _row(row: Standing, *, several: bool) -> tuple[str, ...]:
    place, marks = row.place, []
    if place.run.simulated:
        marks.append("simulated")
    if place.run.partial:
        marks.append("part of the cases")
    if row.scores.missing:
        marks.append(f"{row.scores.missing:,} missing")
    cost = price(row.cost_microusd)
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


def ranks(row: Standing) -> str:
    """Return the ranks that a row may have."""
    if row.best_rank == row.worst_rank:
        return str(row.best_rank)
    return f"{row.best_rank}-{row.worst_rank}"


def version_name(row: Standing, *, several: bool) -> str:
    """Return a version as people know it, with its prompt where there are several."""
    version = short(row.place.version)
    known = row.label if row.label and version in row.label else f"{row.label or ''} ({version})"
    return f"{row.place.prompt} {known.strip()}" if several else known.strip()


def _differences(terminal: Terminal, board: Board) -> None:
    contrasts = board.contrasts
    shown = [contrast for contrast in contrasts if contrast.shown]
    tied = [contrast for contrast in contrasts if not contrast.shown]
    names = _names(board.rows)
    for contrast in shown[:_MOST_SAID]:
        about = f"  {names[contrast.better]} over {names[contrast.worse]}: {_gap(contrast)}"
        terminal.result(Ink("shown", GOOD), about)
    for contrast in tied[: max(0, _MOST_SAID - len(shown))]:
        about = f"    {names[contrast.better]} and {names[contrast.worse]}: {_gap(contrast)}"
        terminal.result(Ink("tie", ODD), about)
    if contrasts:
        terminal.result(comparisons_sentence(made=len(contrasts), stand_out=len(shown)))
    pairs = len(board.rows) * (len(board.rows) - 1) // 2
    if pairs > len(contrasts):
        left = counted(pairs - len(contrasts), "pair")
        terminal.result(f"{left} not compared: too few cases in common")


def _gap(contrast: Contrast) -> str:
    said = f"{signed(contrast.difference)} points"
    if contrast.interval is not None:
        low, high = contrast.interval
        said += f" (likely {signed(low)} to {signed(high)})"
    luck = f", by luck {chance(contrast.p_holm)}" if contrast.shown else ""
    return f"{said} on {counted(contrast.n, 'case')}{luck}"


def _names(rows: Sequence[Standing]) -> list[str]:
    """Return the shortest names that tell the rows apart."""
    models = {row.place.model for row in rows}
    versions = {(row.place.prompt, row.place.version) for row in rows}
    prompts = {row.place.prompt for row in rows}
    found = []
    for row in rows:
        version = row.label or short(row.place.version)
        words = [row.place.model] if len(models) > 1 or len(versions) == 1 else []
        if len(versions) > 1:
            words.append(f"{row.place.prompt} {version}" if len(prompts) > 1 else version)
        found.append(" ".join(words))
    return found


def _notes(board: Board) -> list[str]:
    notes = []
    if board.too_few:
        notes.append(f"{counted(board.too_few, 'row')} left out: too few cases with a score")
    if board.beyond:
        notes.append(f"{counted(board.beyond, 'row')} left out: see more with --top")
    if board.other_yardstick:
        left = counted(board.other_yardstick, "row")
        notes.append(f"{left} left out: graded by another rubric, checks or judges")
    if board.quarantined:
        notes.append(f"{counted(board.quarantined, 'case')} in quarantine left out")
    return notes


def _board(board: Board) -> dict[str, Any]:
    return {
        "experiment": board.experiment,
        "runs": board.runs,
        "rows": [standing_json(row) for row in board.rows],
        "comparisons": [_contrast(board, contrast) for contrast in board.contrasts],
        "left_out": {
            "too_few_cases": board.too_few,
            "beyond_top": board.beyond,
            "graded_otherwise": board.other_yardstick,
            "quarantined_cases": board.quarantined,
        },
        "preferences": None if board.preferences is None else board.preferences.as_json(),
    }


def standing_json(row: Standing) -> dict[str, Any]:
    """Return a row as it appears in `--json`."""
    place = row.place
    return {
        "rank": {"best": row.best_rank, "worst": row.worst_rank},
        "model": place.model,
        "prompt": {"id": place.prompt, "hash": short(place.version), "label": row.label},
        "run_id": place.run.id,
        "simulated": place.run.simulated,
        "partial": place.run.partial,
        "composite": interval_json(row.composite),
        "pass_rate": interval_json(row.pass_rate),
        "missing": row.scores.missing,
        "answers": row.answers,
        "answer_cost_microusd": row.cost_microusd,
        "estimated_answers": row.estimated,
        "latency_ms": {"p50": row.p50_ms, "p95": row.p95_ms},
    }


def _contrast(board: Board, contrast: Contrast) -> dict[str, Any]:
    low, high = contrast.interval or (None, None)
    return {
        "better": contrast.better,
        "worse": contrast.worse,
        "shown": contrast.shown,
        "estimate": contrast.difference,
        "low": low,
        "high": high,
        "n": contrast.n,
        "p": contrast.p,
        "p_holm": contrast.p_holm,
        "family": len(board.contrasts),
        "method": contrast.method,
    }
