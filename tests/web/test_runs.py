"""How much a page would have to read is counted by what its question needs."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.results.leaderboard import CaseFilter, board_of
from edison_ci.results.run_lists import cells_of, ranked_cells
from edison_ci.results.snapshot import complete_runs
from edison_ci.store.database import open_database
from tests.planted import Planted, plant

if TYPE_CHECKING:
    import sqlite3

    from tests.conftest import Folder

NIGHTS, CASES = 6, 5


def nightly(folder: Folder, pairwise: dict[str, str] | None) -> sqlite3.Connection:
    """Run two models every night, the second prompt version from the fourth night on."""
    judges: dict[str, Any] = {"pointwise": [], "pairwise": pairwise}
    experiment = {"objective": "o", "checks": [], "judges": judges, "prompts": ["p"]}
    scores = {model: [0.5] * CASES for model in ("small", "large")}
    path = plant(
        folder,
        *(
            Planted(
                f"r{night}",
                f"2026-11-0{night + 1}T03:00:00.000Z",
                scores,
                version=("a" if night < 3 else "c") * 64,
                snapshot=json.dumps({"experiments/hello.yaml": experiment}),
            )
            for night in range(NIGHTS)
        ),
    )
    return open_database(path)


def test_a_board_is_made_of_the_newest_cells_of_each_subject(folder: Folder) -> None:
    with closing(nightly(folder, None)) as connection:
        (newest,) = complete_runs(connection, "hello", 1)
        assert ranked_cells(connection, "hello", newest) == 2 * 2 * CASES
        assert cells_of(connection, "hello") == NIGHTS * 2 * CASES
        asked: list[str] = []
        connection.set_trace_callback(asked.append)
        board = board_of(connection, "hello", CaseFilter())
        connection.set_trace_callback(None)
    assert board is not None and len(board.rows) == 4
    assert not [sql for sql in asked if "comparison" in sql], "no cell is looked through for them"


@pytest.mark.parametrize("pairwise", [{"by": "judge"}, {}])
def test_comparisons_are_looked_for_in_every_run(folder: Folder, pairwise: dict[str, str]) -> None:
    with closing(nightly(folder, pairwise)) as connection:
        (newest,) = complete_runs(connection, "hello", 1)
        assert ranked_cells(connection, "hello", newest) == cells_of(connection, "hello")
