"""Each score level of a component has an answer of the run, if one is near it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edison_ci.results.components import ComponentName
from edison_ci.results.score_levels import level_examples
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.store.runs import Run
    from tests.web.conftest import Stored

EMPATHY = ComponentName("criterion", "Empathy")


def with_scale(run: Run, **changes: Any) -> Run:
    snapshot = json.loads(run.snapshot)
    for criterion in snapshot["rubrics/support-reply.yaml"]["criteria"]:
        criterion["scale"] |= {k: v for k, v in changes.items() if k in criterion["scale"]}
        criterion |= {k: v for k, v in changes.items() if k in criterion}
    return replace(run, snapshot=json.dumps(snapshot))


def test_every_level_of_the_scale_has_the_nearest_answer(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    run = find_run(connection, stored.against)
    found = level_examples(connection, run, EMPATHY)
    assert found.description.startswith("Shows that this customer's situation was understood")
    assert [each.level.label for each in found.levels] == ["5", "4", "3", "2", "1", "0"]
    scores = [
        score
        for (score,) in stored.rows(
            "select p.score from component p join cell c on c.id = p.cell_id where c.run_id = ? "
            "and c.side = 'head' and p.name = 'Empathy' and p.kind = 'criterion'",
            run.id,
        )
    ]
    for each in found.levels:
        near = [score for score in scores if abs(score - each.level.score) < 0.1 - 1e-9]
        assert (each.example is None) <= (not near)
        if each.example is not None:
            best = min(abs(score - each.level.score) for score in scores)
            assert abs(each.example.score - each.level.score) == best
            assert each.text


def test_scales_may_be_labelled_turned_around_or_fine(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    run = find_run(connection, stored.against)
    labelled = with_scale(run, labels={"5": "personal and warm"}, lower_is_better=True)
    levels = [each.level for each in level_examples(connection, labelled, EMPATHY).levels]
    assert [(level.label, level.score) for level in levels[:2]] == [("0", 1.0), ("1", 0.8)]
    assert levels[-1].meaning == "personal and warm"
    fine = level_examples(connection, with_scale(run, max=100), EMPATHY).levels
    assert [each.level.label for each in fine][::4] == ["80 to 100", "0 to 20"]


def test_a_check_has_only_levels_with_an_answer(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    run = find_run(connection, stored.against)
    found = level_examples(connection, run, ComponentName("check", "words max 120"))
    assert found.description == ""
    assert [each.level.label for each in found.levels] == ["80 to 100", "0 to 20"]
    assert all(each.example for each in found.levels)
