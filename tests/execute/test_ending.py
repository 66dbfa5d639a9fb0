"""However a session ends, its run gets there by moves that are allowed."""

from __future__ import annotations

from itertools import pairwise

import pytest

from edison_ci.execute.ending import steps
from edison_ci.store.runs import MOVES


@pytest.mark.parametrize("current", ["EXECUTING", "AGGREGATING"])
@pytest.mark.parametrize("status", ["COMPLETED", "FAILED", "PAUSED", "CANCELLED"])
def test_every_ending_is_reached_by_moves_that_are_allowed(current: str, status: str) -> None:
    found = steps(current, status)
    assert found[-1] == status
    assert all(after in MOVES[before] for before, after in pairwise([current, *found]))
