"""Answers to a case, and the way to the next one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from edison_ci.results.case_grid import (
    CaseAnswer,
    Neighbours,
    answers_to,
    case_kind,
    neighbouring_cases,
    sibling_cell,
)
from edison_ci.store.cells import find_cell

if TYPE_CHECKING:
    import sqlite3

    from tests.web.conftest import Stored


def test_every_answer_to_a_case_is_there_the_base_first(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    found = answers_to(connection, stored.against, "return-how")
    cells = stored.rows(
        "select id from cell where run_id = ? and case_id = 'return-how'", stored.against
    )
    assert {each.id for each in found} == {cell for (cell,) in cells}
    order = [(each.prompt, each.model, each.side) for each in found]
    assert order == sorted(order), "base, then head"
    assert answers_to(connection, stored.against, "no such case") == []


@pytest.mark.parametrize(
    ("status", "passed", "word"),
    [("ok", 1, "pass"), ("ok", 0, "fail"), ("ok", None, "ungraded"), ("error", 0, "error")],
)
def test_how_an_answer_went_is_said_in_a_word(status: str, passed: int | None, word: str) -> None:
    assert CaseAnswer("x", "c", "head", "p", "v", "m", 0, status, None, passed).word == word


def test_the_kind_of_a_case_is_what_was_stored(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    found = case_kind(connection, stored.against, "return-how")
    assert found is not None
    assert "returns" in found.tags
    assert found.words > 0
    assert case_kind(connection, stored.against, "no such case") is None


def test_neighbours_lead_through_all_cases_and_back(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    run = stored.against
    names = [n for (n,) in stored.rows("select case_id from run_case where run_id = ?", run)]
    names.sort()
    for before, case, after in zip([None, *names], names, [*names[1:], None], strict=False):
        assert neighbouring_cases(connection, run, case) == Neighbours(before, after)


def test_a_sibling_has_the_same_prompt_and_model_where_there_is_one(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    cell = find_cell(connection, stored.against, stored.cell())
    case = neighbouring_cases(connection, stored.against, cell.case_id).after
    assert case is not None
    found = sibling_cell(connection, cell, case)
    assert found is not None
    other = find_cell(connection, stored.against, found)
    assert (other.case_id, other.model, other.prompt) == (case, cell.model, cell.prompt)
    elsewhere = sibling_cell(connection, replace(cell, model="gone"), case)
    assert elsewhere is not None
    assert find_cell(connection, stored.against, elsewhere).case_id == case
    assert sibling_cell(connection, cell, "no such case") is None
