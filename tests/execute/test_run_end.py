"""However a session ends, its run gets there by moves that are allowed."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from edison_ci.execute.progress import Progress
from edison_ci.execute.run_end import final_status, moves_to
from edison_ci.records import RunStatus
from edison_ci.store.database import open_database
from edison_ci.store.runs import MOVES

if TYPE_CHECKING:
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
