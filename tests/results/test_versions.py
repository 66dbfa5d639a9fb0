"""What versions of a prompt scored with each model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.results.run_lists import measured_prompts
from edison_ci.results.versions import model_scores

if TYPE_CHECKING:
    import sqlite3

    from tests.web.conftest import Stored


def test_every_prompt_that_was_run_is_listed_once(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    found = measured_prompts(connection)
    assert [each.last for each in found] == sorted((each.last for each in found), reverse=True)
    counted = stored.rows(
        "select m.prompt, count(distinct m.version) from rollup_model m join run r "
        "on r.id = m.run_id where r.trigger <> 'refine' group by 1"
    )
    assert {each.prompt: each.versions for each in found} == dict(counted)


def test_a_version_has_one_score_with_each_model(connection: sqlite3.Connection) -> None:
    found = model_scores(connection, "support-reply")
    assert found
    for scores in found.values():
        models = [each.model for each in scores]
        assert len(models) == len(set(models))
    assert model_scores(connection, "no such prompt") == {}
