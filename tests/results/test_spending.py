"""What finished runs cost, from the sums that were written when they ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edison_ci.results.spending import booked, booked_by_day, run_spending_by, saved_since

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.results.spending import By
    from tests.web.conftest import Stored


@pytest.mark.parametrize("by", ["model", "phase", "experiment", "day"])
def test_the_sum_is_the_same_however_it_is_cut(
    connection: sqlite3.Connection, stored: Stored, by: By
) -> None:
    found = run_spending_by(connection, by, "")
    total = stored.one("select sum(cost_microusd) from rollup_spending")
    assert sum(row.cost_microusd for row in found) == total
    order = [row.key if by == "day" else row.cost_microusd for row in found]
    assert order == sorted(order, reverse=True)
    assert run_spending_by(connection, by, "9999") == []


def test_days_add_up_to_what_is_booked(connection: sqlite3.Connection) -> None:
    days = booked_by_day(connection, "project")
    assert sum(days.values()) == booked(connection, "project") > 0
    last = max(days)
    assert booked(connection, "project", last) == days[last]
    assert booked(connection, "no such scope") == 0


def test_what_runs_saved_is_that_of_both_sides(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    assert saved_since(connection, "") == stored.one("select sum(saved_microusd) from rollup_run")
    assert saved_since(connection, "9999") == 0
