"""Lists of runs and experiments cost as much as they show, not as much as there is."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from edison_ci.results.run_lists import RunPage, last_whole, runs_page
from edison_ci.store.database import open_database
from tests.planted import Planted, plant

if TYPE_CHECKING:
    from collections.abc import Callable
    from sqlite3 import Connection

    from tests.conftest import Folder

pytestmark = pytest.mark.daily


def steps(connection: Connection, work: Callable[[], object]) -> int:
    """Return how many steps SQLite makes for something."""
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        return 0

    connection.set_progress_handler(step, 1)
    work()
    connection.set_progress_handler(None, 1)
    return count


def test_the_last_run_of_an_experiment_is_found_beside_many_others(mini: Folder) -> None:
    scores = {"small": [0.5]}
    plant(mini, Planted("r", "2026-11-14T09:00:00Z", scores, experiment="hello"))
    with closing(open_database(mini.path / ".edison/results.db")) as connection:
        assert last_whole(connection, "hello") == "r"
        alone = steps(connection, lambda: last_whole(connection, "hello"))
    others = [
        Planted(f"o{n}", f"2026-11-15T09:{n:02}:00Z", scores, experiment=f"other-{n}")
        for n in range(40)
    ]
    plant(mini, *others)
    with closing(open_database(mini.path / ".edison/results.db")) as connection:
        assert last_whole(connection, "hello") == "r"
        assert steps(connection, lambda: last_whole(connection, "hello")) <= alone + 5
        page = runs_page(connection, RunPage(after="o39", most=2))
        assert [run.id for run in page] == ["o38", "o37"]
