"""Spreads of scores are the same from the stored sums as from every cell."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import pytest

from edison_ci.results.components import (
    ComponentName,
    ComponentSpread,
    ScoreSpread,
    by_component,
    combined_spread,
    component_spreads,
    graded_spreads,
    live_spreads,
)
from edison_ci.results.score_levels import examples_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from tests.web.conftest import Stored


def spread(scores: Sequence[float], *, kind: str = "check", model: str = "m") -> ComponentSpread:
    bins = [0] * 10
    for score in scores:
        bins[min(int(score * 10 + 1e-9), 9)] += 1
    return ComponentSpread(
        prompt="p",
        model=model,
        name="polite",
        kind=kind,
        n=len(scores),
        mean=statistics.fmean(scores) if scores else None,
        low=min(scores, default=None),
        high=max(scores, default=None),
        sd=statistics.stdev(scores) if len(scores) > 1 else None,
        passed=0,
        failed=0,
        errors=0,
        bins=tuple(bins),
    )


def test_stored_spreads_are_those_of_the_cells(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    some = 0
    for (run,) in stored.rows("select distinct run_id from rollup_component"):
        found = list(graded_spreads(component_spreads(connection, run)))
        counted = list(live_spreads(connection, run))
        assert [(s.kind, s.name, s.counts) for s in found] == [
            (s.kind, s.name, s.counts) for s in counted
        ]
        assert [s.mean for s in found] == pytest.approx([s.mean for s in counted])
        some += len(found)
    assert some


@pytest.mark.parametrize(
    ("scores", "binary"),
    [
        ((), True),
        ((1.0,), True),
        ((0.4,), False),
        ((0.0, 0.0, 0.0), True),
        ((0.0, 1.0, 1.0), True),
        ((0.0, 0.05, 1.0), False),
        ((0.95, 1.0, 1.0), False),
        ((0.0, 1.0) * 500_000, True),
        ((0.0, 1.0) * 500_000 + (0.95,), False),
    ],
    ids=lambda value: f"{len(value)} scores" if isinstance(value, tuple) else str(value),
)
def test_scores_of_0_and_1_alone_are_told_from_others(
    scores: tuple[float, ...], binary: bool
) -> None:
    assert spread(scores).binary is binary


def test_a_check_that_says_yes_or_no_has_nothing_to_spread() -> None:
    yes_or_no = spread((0.0, 1.0))
    assert list(graded_spreads([yes_or_no])) == []
    partly = spread((0.5, 1.0), model="n")
    (found,) = graded_spreads([yes_or_no, partly])
    assert found == ScoreSpread("check", "polite", (1, 0, 0, 0, 0, 1, 0, 0, 0, 2), 0.625)
    assert list(graded_spreads([spread((), kind="criterion")])) == []
    assert len(list(graded_spreads([spread((0.0, 1.0), kind="criterion")]))) == 1


def test_a_part_without_scores_has_no_mean() -> None:
    empty = spread(())
    assert by_component([empty, empty]) == {ComponentName("check", "polite"): (empty, empty)}
    assert combined_spread(empty.component, [empty]).mean is None
    assert combined_spread(empty.component, [empty]).counts == (0,) * 10


def test_the_worst_and_best_answers_in_a_part_are_found(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    component = ComponentName("criterion", "Empathy")
    scores = [
        score
        for (score,) in stored.rows(
            "select p.score from cell c join component p on p.cell_id = c.id where c.run_id = ? "
            "and "
            "c.side = 'head' and p.kind = ? and p.name = ? and p.score is not null",
            stored.against,
            *component,
        )
    ]
    assert len(scores) > 10
    worst = examples_of(connection, stored.against, component, worst=True, limit=5)
    best = examples_of(connection, stored.against, component, worst=False, limit=5)
    assert [each.score for each in worst] == sorted(scores)[:5]
    assert [each.score for each in best] == sorted(scores, reverse=True)[:5]
