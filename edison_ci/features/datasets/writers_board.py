"""edison leaderboard --writers: models ranked by the cases that they wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.cli import lookup
from edison_ci.cli.terminal import GOOD, ODD, StyledText, Terminal, simulated_label
from edison_ci.config import slices
from edison_ci.errors import UsageError
from edison_ci.features.datasets import case_discrimination, question_writers
from edison_ci.features.datasets import health as dataset_health
from edison_ci.numeric import counted, dollars, points, rate
from edison_ci.results import scores
from edison_ci.spelling import did_you_mean
from edison_ci.stats import sentences
from edison_ci.store import judgments

if TYPE_CHECKING:
    from edison_ci.config.load import Experiment, Project
    from edison_ci.features.datasets.question_writers import WriterRow, WritersBoard
    from edison_ci.results.leaderboard import Contrast

_MOST_CONTRASTS = 10


def rank_writers(terminal: Terminal, project: Project, name: str | None) -> None:
    """Print the writers of each dataset, or of that of one experiment."""
    if name is not None and name not in project.experiments:
        hint = did_you_mean(name, project.experiments, label="experiments")
        raise UsageError(f"there is no experiment {name!r}", hint=hint)
    wanted = [project.experiments[name]] if name else list(project.experiments.values())
    boards = [board for each in wanted if (board := _board(project, each)) is not None]
    if terminal.json:
        terminal.document({"experiments": [_json(board) for board in boards]})
        return
    if not boards:
        terminal.note("no case says which model wrote it (metadata.written_by)")
    for index, board in enumerate(boards):
        if index:
            terminal.result("")
        _show(terminal, board)


def _board(project: Project, experiment: Experiment) -> WritersBoard | None:
    quality, apart, costs = (
        dataset_health.QuestionQuality(),
        case_discrimination.DatasetDiscrimination(),
        question_writers.WriterCosts(),
    )
    if (project.root / project.file.results).exists():
        examined = dataset_health.examine(
            lambda: lookup.cases_of(project, experiment), slices.content_hash
        )
        with lookup.results_of(project) as connection:
            quality = dataset_health.quality_of(
                judgments.question_scores(connection, experiment.id), examined.has
            )
            apart = case_discrimination.discrimination_of(connection, experiment.id, examined.has)
            costs = question_writers.costs_by_writer(connection, project)
    return question_writers.board_of_writers(
        experiment.id, lookup.cases_of(project, experiment), (quality, apart), costs
    )


def _show(terminal: Terminal, board: WritersBoard) -> None:
    about = f"  {counted(len(board.rows), 'writer')} of {counted(board.cases, 'case')}"
    judged = f", judged by {', '.join(board.judges)}" if board.judges else ""
    terminal.result(
        StyledText(board.experiment, bold=True),
        f"{about}{judged}",
        *simulated_label(board.simulated),
    )
    titles = (
        "rank",
        "writer",
        "cases",
        "quality",
        "tell models apart",
        "duplicates",
        "cost/case",
        "",
    )
    terminal.table([titles, *map(_row, board.rows)], right=(2, 6))
    for contrast in board.contrasts[:_MOST_CONTRASTS]:
        one, other = (_name(board.rows[place]) for place in (contrast.better, contrast.worse))
        if contrast.significant:
            said = f"  {one} over {other}: {_gap(contrast)}, {sentences.p_words(contrast.p_holm)}"
            terminal.result(StyledText("shown", GOOD), said)
        else:
            terminal.result(StyledText("tie", ODD), f"    {one} and {other}: {_gap(contrast)}")
    if board.contrasts:
        stand_out = sum(each.significant for each in board.contrasts)
        terminal.result(
            sentences.comparisons_sentence(made=len(board.contrasts), stand_out=stand_out)
        )
    for note in _notes(board):
        terminal.note(note)


def _name(row: WriterRow) -> str:
    return row.writer or "(not generated)"


def _row(row: WriterRow) -> tuple[str, ...]:
    rank = "-" if row.best_rank is None else str(row.best_rank)
    if row.worst_rank != row.best_rank:
        rank += f"-{row.worst_rank}"
    return (
        rank,
        _name(row),
        f"{row.cases:,}",
        points(row.quality),
        rate(row.separating),
        f"{row.same:,} same, {row.near:,} near" if row.same or row.near else "none",
        dollars(row.cost_microusd),
        "very few questions" if row.few else "",
    )


def _gap(contrast: Contrast) -> str:
    text = f"{sentences.signed(contrast.difference)} points"
    if contrast.interval is not None:
        low, high = contrast.interval
        text += f" (likely {sentences.signed(low)} to {sentences.signed(high)})"
    return text


def _notes(board: WritersBoard) -> list[str]:
    notes = []
    if not board.judges:
        notes.append(f"quality is unknown: edison dataset judge {board.experiment}")
    if not board.enough_answers:
        notes.append("too few answers to tell which cases tell models apart: edison dataset health")
    if not any(row.cost_microusd is not None for row in board.rows):
        notes.append("no call of a writer is booked, so the cost of a case is unknown")
    if not board.all_compared:
        notes.append(
            "near duplicates were looked for among the first "
            f"{question_writers.MOST_COMPARED:,} cases"
        )
    if board.own_judges:
        names = ", ".join(board.own_judges)
        notes.append(f"{names} judged questions of its own, which it may favour")
    if board.beyond:
        left = counted(board.beyond, "writer")
        notes.append(f"{left} left out: at most {question_writers.MOST_WRITERS} are shown")
    return notes


def _json(board: WritersBoard) -> dict[str, Any]:
    return {
        "experiment": board.experiment,
        "cases": board.cases,
        "judges": list(board.judges),
        "own_judges": list(board.own_judges),
        "simulated": board.simulated,
        "rows": [_row_json(row) for row in board.rows],
        "comparisons": [_contrast_json(board, each) for each in board.contrasts],
        "all_compared": board.all_compared,
        "left_out": board.beyond,
    }


def _row_json(row: WriterRow) -> dict[str, Any]:
    return {
        "rank": {"best": row.best_rank, "worst": row.worst_rank},
        "writer": row.writer or None,
        "cases": row.cases,
        "quality": scores.interval_json(row.quality),
        "separating": scores.interval_json(row.separating),
        "duplicates": {"same": row.same, "near": row.near},
        "case_cost_microusd": row.cost_microusd,
    }


def _contrast_json(board: WritersBoard, each: Contrast) -> dict[str, Any]:
    low, high = each.interval or (None, None)
    return {
        "better": each.better,
        "worse": each.worse,
        "shown": each.significant,
        "estimate": each.difference,
        "low": low,
        "high": high,
        "n": each.n,
        "p": each.p,
        "p_holm": each.p_holm,
        "family": len(board.contrasts),
        "method": each.method,
    }
