"""Facts of a run as tables, each worded here for every report that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.numeric import NOTHING, counted, dollars, score
from edison_ci.records import Move, Side
from edison_ci.report.document import (
    Column,
    Name,
    Status,
    Table,
    change_of,
    latency_of,
    rate_of,
    score_of,
)
from edison_ci.results.run_sentences import version_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.report.document import Inline
    from edison_ci.results.comparison import MovedCase
    from edison_ci.results.components import ComponentTotal
    from edison_ci.results.leaderboard import LeaderboardRow
    from edison_ci.results.run_result import Change, RunResult

DECISIONS = {
    "a_better": "worse",
    "b_better": "better",
    "same": "no practical difference",
    "unclear": "undecided",
}
"""Result of a comparison of base (A) and head (B), about head."""
_INTERVAL = "95% CI"
_PASSES = {True: "passes", False: "fails", None: "not graded"}
_SCREENS = ("safety", "flag")


def eval_suite_table(view: RunResult) -> Table:
    """Return the changes of the eval suite."""
    rows = ((Name(c.place), Name(c.before), Name(c.after)) for c in view.eval_suite)
    return Table.of(("file", "base", "head"), rows)


def scores_table(view: RunResult) -> Table:
    """Return score, pass rate, cost and latency of every prompt version with every model."""
    columns = (
        Column("prompt"),
        Column("version"),
        Column("model"),
        Column("score", numeric=True, split=("score", _INTERVAL)),
        Column("pass rate", numeric=True, split=("pass rate", _INTERVAL)),
        Column("cost per answer", numeric=True),
        Column("latency", numeric=True, split=("p50", "p95")),
    )
    return Table(columns, tuple(map(_score_row, view.variants)))


def _score_row(row: LeaderboardRow) -> tuple[Inline, ...]:
    place = row.place
    first, *hash_ = version_names("base" if place.side == Side.BASE else row.label, place.version)
    about = "~" if row.estimated else ""
    return (
        Name(place.prompt),
        (Name(first), " ", Name(*hash_)) if hash_ else Name(first),
        Name(place.model),
        score_of(row.composite),
        rate_of(row.pass_rate),
        Name(f"{about}{dollars(row.cost_microusd)}"),
        latency_of(row.p50_ms, row.p95_ms),
    )


def changes_table(view: RunResult) -> Table:
    """Return the change of each prompt with each model since the base."""
    columns = (
        Column("prompt"),
        Column("model"),
        Column("base", numeric=True, detail=True),
        Column("head", numeric=True, detail=True),
        Column("change", numeric=True, split=("change", _INTERVAL)),
        Column("decision"),
        Column("cases", numeric=True),
        Column("fixed", numeric=True),
        Column("newly failing", numeric=True),
    )
    return Table(columns, tuple(map(_change_row, view.changes)))


def _change_row(change: Change) -> tuple[Inline, ...]:
    comparison = change.comparison
    low, high = comparison.interval or (None, None)
    needed = counted(comparison.n_more, "more case") if comparison.n_more else ""
    return (
        Name(change.prompt),
        Name(change.model),
        *map(score, comparison.scores),
        change_of(comparison.estimate, low, high),
        DECISIONS[comparison.verdict] + (f" (about {needed} needed)" if needed else ""),
        f"{comparison.n:,}" + (f" ({comparison.missing:,} missing)" if comparison.missing else ""),
        f"{len(comparison.moved[Move.FIXED]):,}",
        f"{len(comparison.moved[Move.NEWLY_FAILING]):,}",
    )


def changed_cases_table(view: RunResult) -> Table:
    """Return the cases that changed, the newly failing first."""
    columns = (
        Column("case"),
        Column("change"),
        Column("prompt"),
        Column("model"),
        Column("base", numeric=True),
        Column("head", numeric=True),
        Column("result", detail=True),
    )
    return Table(columns, tuple(_changed_cases(view)))


def _changed_cases(view: RunResult) -> Iterator[tuple[Inline, ...]]:
    for move in Move:
        for change in view.changes:
            for case in change.comparison.moved[move]:
                names = Name(change.prompt), Name(change.model)
                scores = score(case.a), score(case.b)
                yield Name(case.case), Status(move.words), *names, *scores, _outcomes(case)


def _outcomes(case: MovedCase) -> str:
    before, after = (_PASSES[passed] for passed in case.passed)
    return before if before == after else f"{before}, then {after}"


def components_table(view: RunResult) -> Table:
    """Return what each check, criterion and grader decided; screens have their own table."""
    columns = (
        Column("component"),
        Column("mean", numeric=True),
        Column("failed", numeric=True),
        Column("graded", numeric=True, detail=True),
        Column("not graded", numeric=True),
    )
    rows = (
        _component_row(component)
        for component in view.components
        if component.kind not in _SCREENS and (component.answers or component.errors)
    )
    return Table(columns, tuple(rows))


def _component_row(component: ComponentTotal) -> tuple[Inline, ...]:
    failed = NOTHING
    if component.failed is not None:
        failed = f"{component.failed:,} of {component.answers:,}"
    return (
        (f"{component.kind} ", Name(component.name)),
        score(component.mean),
        failed,
        f"{component.answers:,}",
        f"{component.errors:,}",
    )


def costs_table(view: RunResult) -> Table:
    """Return the cost of each model in each phase."""
    numbers = ("calls", "unknown outcome", "tokens in", "tokens out", "cost")
    columns = (Column("model"), Column("phase"), *(Column(name, numeric=True) for name in numbers))
    rows = (
        (
            Name(cost.model),
            cost.phase,
            f"{cost.calls:,}",
            f"{cost.unknown:,}",
            f"{cost.tokens_in:,}",
            f"{cost.tokens_out:,}",
            Name(dollars(cost.microusd)),
        )
        for cost in view.costs
    )
    return Table(columns, tuple(rows))
