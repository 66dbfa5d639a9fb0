"""What takes long is worked out once, aside, and nobody waits for it."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci import formatting
from edison_ci.web.cache import AGAIN_S, aside
from edison_ci.web.page_context import Args, Links, Look, Page
from edison_ci.web.pages import datasets, judges, leaderboard
from tests import showcase
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.web.conftest import Stored


@pytest.fixture
def look(stored: Stored) -> Look:
    file = stored.project / ".edison" / "results.db"
    return Look(
        connection=None,  # type: ignore[arg-type]  # the work has one of its own
        path={"run": stored.against, "experiment": showcase.EXPERIMENT},
        args=Args({"experiment": [showcase.EXPERIMENT]}),
        links=Links(str, f"results {id(file)}", several=False),
        root=stored.project,
        now=formatting.now(),
        file=file,
        patient=False,
    )


def test_work_is_done_once_and_shown_when_it_is_ready(look: Look) -> None:
    go, asked = threading.Event(), []

    def work(own: Look) -> int:
        asked.append(1)
        go.wait(PATIENCE_S)
        return int(own.connection.execute("select count(*) from run").fetchone()[0])

    key = object()
    assert [aside(look, key, work, patience_s=0) for _ in range(3)] == [None] * 3
    go.set()
    runs = aside(look, key, work, patience_s=PATIENCE_S)
    assert runs
    assert aside(look, key, work, patience_s=0) == runs
    assert asked == [1]


def test_work_that_fails_is_told_to_whoever_asks(look: Look) -> None:
    def work(own: Look) -> int:
        return int(own.connection.execute("select 1 from nowhere").fetchone()[0])

    key = object()
    for _ in range(2):
        with pytest.raises(Exception, match="no such table"):
            aside(look, key, work, patience_s=PATIENCE_S)


@pytest.mark.parametrize(
    ("module", "page", "named"),
    [
        (judges, judges.judges, "said"),
        (leaderboard, leaderboard.leaderboard, "board"),
        (datasets, datasets.dataset, "health"),
    ],
)
def test_pages_of_many_answers_do_not_wait(
    look: Look,
    stored: Stored,
    monkeypatch: pytest.MonkeyPatch,
    module: Any,
    page: Callable[[Look], Page],
    named: str,
) -> None:
    hold, begun = threading.Event(), []
    kept = module.aside

    def slow(own: Look, key: Any, work: Callable[[Look], Any]) -> Any:
        def held(later: Look) -> Any:
            hold.wait(PATIENCE_S)
            return work(later)

        begun.append(key)
        return kept(own, key, held, patience_s=PATIENCE_S if hold.is_set() else 0)

    monkeypatch.setattr(module, "AT_ONCE", 0)
    monkeypatch.setattr(module, "aside", slow)
    connection = sqlite3.connect(stored.project / ".edison" / "results.db")
    look = replace(look, connection=connection)
    first = page(look)
    assert (first.shown["waiting"], first.shown[named]) == (True, None)
    assert first.refresh_s == AGAIN_S
    hold.set()
    second = page(look)
    assert second.shown["waiting"] is False
    assert second.shown[named] is not None
    assert second.refresh_s is None
    assert page(replace(look, patient=True)).shown[named] is not None
    assert len(begun) == 2
    connection.close()
