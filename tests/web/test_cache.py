"""What takes long is worked out once, aside, and nobody waits for it."""

from __future__ import annotations

import sqlite3
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci import utc
from edison_ci.features.datasets import pages as datasets
from edison_ci.web import page_context
from edison_ci.web.cache import REFRESH_S, PageMemory
from edison_ci.web.page_context import Args, Links, Page, PageContext
from edison_ci.web.pages import leaderboard, run_tabs
from tests import showcase
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.web.conftest import Stored


@pytest.fixture
def context(stored: Stored) -> PageContext:
    file = stored.project / ".edison" / "results.db"
    return PageContext(
        connection=None,  # type: ignore[arg-type]  # the work has one of its own
        path={"run": stored.against, "experiment": showcase.EXPERIMENT},
        args=Args({"experiment": [showcase.EXPERIMENT]}),
        links=Links(str, f"results {id(file)}", several=False),
        root=stored.project,
        now=utc.now(),
        file=file,
        synchronous=False,
    )


def test_work_is_done_once_and_shown_when_it_is_ready(context: PageContext) -> None:
    go, asked = threading.Event(), []

    def work(own: PageContext) -> int:
        asked.append(1)
        go.wait(PATIENCE_S)
        return int(own.connection.execute("select count(*) from run").fetchone()[0])

    key, compute = object(), context.memory.in_background
    assert [compute(context, key, work, patience_s=0) for _ in range(3)] == [None] * 3
    go.set()
    runs = compute(context, key, work, patience_s=PATIENCE_S)
    assert runs
    assert compute(context, key, work, patience_s=0) == runs
    assert asked == [1]


def test_work_that_fails_is_told_to_whoever_asks(context: PageContext) -> None:
    def work(own: PageContext) -> int:
        return int(own.connection.execute("select 1 from nowhere").fetchone()[0])

    key = object()
    for _ in range(2):
        with pytest.raises(Exception, match="no such table"):
            context.memory.in_background(context, key, work, patience_s=PATIENCE_S)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("page", "named"),
    [
        (run_tabs.judges, "findings"),
        (leaderboard.leaderboard, "board"),
        (datasets.dataset, "health"),
    ],
)
def test_pages_of_many_answers_do_not_wait(
    context: PageContext,
    stored: Stored,
    monkeypatch: pytest.MonkeyPatch,
    page: Callable[[PageContext], Page],
    named: str,
) -> None:
    hold, begun = threading.Event(), []
    compute = PageMemory.in_background

    def slow(
        memory: PageMemory, own: PageContext, key: Any, work: Callable[[PageContext], Any]
    ) -> Any:
        def held(later: PageContext) -> Any:
            hold.wait(PATIENCE_S)
            return work(later)

        begun.append(key)
        return compute(memory, own, key, held, patience_s=PATIENCE_S if hold.is_set() else 0)

    monkeypatch.setattr(page_context, "INLINE_CELLS", 0)
    monkeypatch.setattr(PageMemory, "in_background", slow)
    connection = sqlite3.connect(stored.project / ".edison" / "results.db")
    context = replace(context, connection=connection)
    first = page(context)
    assert (first.values["waiting"], first.values[named]) == (True, None)
    assert first.refresh_s == REFRESH_S
    hold.set()
    second = page(context)
    assert second.values["waiting"] is False
    assert second.values[named] is not None
    assert second.refresh_s is None
    assert page(replace(context, synchronous=True)).values[named] is not None
    assert len(begun) == 2
    connection.close()
