"""What the judges of a run may decide, and the cells on which they are apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.results.judges import JudgeDisagreement, approval_of, cells_apart
from edison_ci.store.cells import find_cell

if TYPE_CHECKING:
    import sqlite3

    from tests.web.conftest import Stored


def test_the_approval_of_a_run_is_what_was_written_with_it(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    connection.execute(
        "insert or replace into judge_approval (run_id, judges, approved, reason, kappa, n, cases, "
        "floor, passes, true_passes, fails, true_fails) values (?, '[\"a\", \"b\"]', 0, 'too few', "
        "null, 3, 2, 0.6, 2, 1, 1, 0)",
        (stored.against,),
    )  # is never committed
    found = approval_of(connection, stored.against)
    assert found is not None
    assert (found.judges, found.approved, found.n) == (("a", "b"), False, 3)
    assert (found.true_passes, found.passes, found.true_fails, found.fails) == (1, 2, 0, 1)
    assert approval_of(connection, "no such run") is None


def test_cells_on_which_judges_are_apart_are_found(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    cell = find_cell(connection, stored.against, stored.cell())
    key = (cell.case_id, cell.model, cell.side, cell.repeat)
    apart = [JudgeDisagreement(*key, "Empathy", {"a": 0.0, "b": 1.0}, 1.0)]
    gone = JudgeDisagreement("no such case", *key[1:], "Empathy", {}, 0.0)
    found = cells_apart(connection, stored.against, [*apart, gone])
    assert list(found) == [key]
    assert find_cell(connection, stored.against, found[key]).case_id == cell.case_id
