"""However a session ends, its run gets there by moves that are allowed."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from docs.gates import RUN, Graded, Results
from edison_ci.execute.progress import Progress
from edison_ci.execute.run_end import final_status, moves_to
from edison_ci.records import RunStatus
from edison_ci.store.database import open_database
from edison_ci.store.runs import MOVES

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path


@pytest.mark.parametrize("current", [RunStatus.EXECUTING, RunStatus.AGGREGATING])
@pytest.mark.parametrize(
    "status", [RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.PAUSED, RunStatus.CANCELLED]
)
def test_every_ending_is_reached_by_moves_that_are_allowed(
    current: RunStatus, status: RunStatus
) -> None:
    found = moves_to(current, status)
    assert found[-1] == status
    assert all(after in MOVES[before] for before, after in pairwise([current, *found]))


@pytest.mark.parametrize(("errors", "status"), [(29, "COMPLETED"), (30, "FAILED")])
def test_errors_up_to_their_limit_are_allowed(tmp_path: Path, errors: int, status: str) -> None:
    connection = open_database(tmp_path / "results.db")
    progress = Progress(100, cells=Counter(ok=100 - errors, error=errors))
    assert 0.29 * 100 < 29, "so a plain comparison would refuse what is allowed"
    assert final_status(connection, "none", progress, max_errors=0.29)[0] == status
    connection.close()


def ended(
    connection: sqlite3.Connection, errors: dict[tuple[str, str], int], max_errors: float
) -> str:
    """Return why a run of ten cells of each model on each side failed, with so many errors."""
    results = Results.of(connection)
    for (side, model), wrong in errors.items():
        for number in range(10):
            status = "error" if number < wrong else "ok"
            results.add(Graded(f"case-{number}", 0.5, side, model=model, status=status))
    lost = sum(errors.values())
    total = 10 * len(errors)
    progress = Progress(total, cells=Counter(ok=total - lost, error=lost))
    status, code = final_status(connection, RUN, progress, max_errors=max_errors, judged=False)
    assert (status is RunStatus.FAILED) == (code == 3) == bool(progress.closed)
    return progress.closed.get("the run", "")


@pytest.mark.parametrize(
    ("errors", "why"),
    [
        ({("head", "a"): 0, ("head", "b"): 3}, "b: 3 of 10 cells in error, max_errors is 20%"),
        ({("head", "a"): 2, ("head", "b"): 2}, ""),
        ({("base", "a"): 0, ("head", "a"): 3},
         "a on the head: 3 of 10 cells in error, max_errors is 20%"),
        ({("base", "a"): 3, ("head", "a"): 0},
         "a on the base: 3 of 10 cells in error, max_errors is 20%"),
        ({("head", "a"): 0, ("head", "b"): 10, ("head", "c"): 0, ("head", "d"): 3,
          ("head", "e"): 0, ("head", "f"): 0, ("head", "g"): 0},
         "b: 10 of 10 cells in error; d: 3 of 10 cells in error, max_errors is 20%"),
        ({("head", "a"): 5}, "5 of 10 cells in error, max_errors is 20%"),
    ],
)  # fmt: skip
def test_errors_count_for_each_side_and_model(
    tmp_path: Path, errors: dict[tuple[str, str], int], why: str
) -> None:
    connection = open_database(tmp_path / "results.db")
    assert ended(connection, errors, 0.2) == why
    connection.close()


def test_one_cell_in_error_is_too_few_to_tell_unless_it_is_the_only_one(tmp_path: Path) -> None:
    connection = open_database(tmp_path / "results.db")
    assert ended(connection, {("head", "a"): 1, ("head", "b"): 0}, 0.05) == ""
    for total, status in ((1, RunStatus.FAILED), (2, RunStatus.COMPLETED)):
        progress = Progress(total, cells=Counter(ok=total - 1, error=1))
        assert final_status(connection, "x", progress, max_errors=0.2, judged=False)[0] == status
    connection.close()
