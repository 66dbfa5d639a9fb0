"""No page goes through a large table: told by the plans of its queries, not by a clock."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import pytest

from edison_ci import utc
from edison_ci.features.datasets import pages as datasets
from edison_ci.results import case_query
from edison_ci.web.databases import ResultsDatabase
from edison_ci.web.page_context import Args, Links, PageContext
from edison_ci.web.pages import experiment, leaderboard, run, run_tabs
from edison_ci.web.responses import all_pages
from edison_ci.web.streams import ProgressFollower
from tests import showcase

if TYPE_CHECKING:
    from tests.web.conftest import Stored

LARGE = {
    *("answer", "answer_text", "attempt", "cell", "comparison", "event", "judgment"),
    *("manual_grade", "judge_score", "component", "question_score", "rollup_case", "rollup_mark"),
    "run_case",
}
"""Tables that have a row for each answer, case or grade."""
GRIDS: tuple[dict[str, Any], ...] = (
    *({"sort": sort} for sort in ("worst", "best", "name", "tokens", "cost", "latency")),
    {"metric": "latency"},
    *({"sort": sort, "page": 2} for sort in ("name", "worst", "best")),
    {"flagged": 1}, {"flagged": 1, "failed": 1, "sort": "worst"},
    {"failed": 1}, {"tag": "returns"}, {"status": "error"}, {"status": "ok"}, {"q": "return"},
    {"failed": 1, "tag": "returns", "sort": "worst"}, {"failed": 1, "q": "return", "sort": "best"},
    {"failed": 1, "component": "criterion:Empathy", "sort": "worst", "tag": "returns"},
    {"side": "base", "sort": "worst", "page": 9},
)  # fmt: skip
WHOLE_RUN = {
    "select distinct prompt, model, version from (": "a look at 2,000 cells of a run that goes on",
    "select coalesce(error, 'ERROR'), model,": "the first 2,000 cells of a run without any answer",
}
"""Beginnings of queries that may read by the run alone, and why they do not read all of it."""


class Traced:
    """A connection that keeps what is asked of it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.asked: dict[str, Any] = {}

    def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        self.asked[sql] = values
        return self._connection.execute(sql, values)


PAGES = [*all_pages()]


def visit(traced: Traced, stored: Stored, address: str) -> None:
    parts = urlsplit(address)
    route, found = next((r, m) for r in PAGES if (m := re.match(r.pattern, parts.path)))
    route.page(
        PageContext(
            connection=traced,  # type: ignore[arg-type]  # as far as pages use it
            path={key: unquote(value) for key, value in found.groupdict().items()},
            args=Args(parse_qs(parts.query)),
            links=Links(str, "results", several=False),
            root=stored.project,
            now=utc.now(),
        )
    )


def scans(connection: sqlite3.Connection, sql: str, values: Any) -> list[str]:
    """Return where a query goes through a large table, or through all that a run has in one."""
    names = {table: table for table in LARGE}
    for table in LARGE:
        names |= dict.fromkeys(re.findall(rf"\b{table} (?:as )?([a-z])\b", sql), table)
    found = []
    for *_, step in connection.execute(f"explain query plan {sql}", values):
        name = re.match(r"(?:SCAN|SEARCH) (\w+)", step)
        if name is None or name[1] not in names:
            continue
        whole = re.search(r"\(run_id=\?\)$", step) and names[name[1]] in ("cell", "comparison")
        if step.startswith("SCAN") or whole:
            found.append(step)
    return found


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the results count as too large for what is only worked out for small ones."""
    for page in (datasets, run, run_tabs, experiment, leaderboard):
        monkeypatch.setattr(page, "MOST_CELLS", 0)
    monkeypatch.setattr(case_query, "MOST_ANSWERS", 10)


@pytest.mark.nightly
@pytest.mark.usefixtures("large")
def test_no_page_goes_through_a_large_table(stored: Stored) -> None:
    runs = [run for (run,) in stored.rows("select id from run")]
    read = re.compile(r"leaderboard|search|datasets?\b")
    pages = [path for path in stored.pages() if "?" not in path or read.search(path)]
    pages += [f"/-/edison/run/{run}?{urlencode(grid)}" for run in runs for grid in GRIDS]
    pages += [f"/-/edison/{name}" for name in ("health", "metrics", "costs?by=day")]
    hostile = urlencode({"case": showcase.HOSTILE[0]["id"]})
    pages.append(f"/-/edison/run/{stored.against}/case?{hostile}")
    with closing(sqlite3.connect(stored.project / ".edison" / "results.db")) as connection:
        wrong, asked = {}, set()
        for page in pages:
            traced = Traced(connection)
            visit(traced, stored, page)
            for sql, values in traced.asked.items():
                asked.add(sql)
                steps = scans(connection, sql, values)
                if steps and not sql.startswith(tuple(WHOLE_RUN)):
                    wrong[sql] = (page, steps)
    assert len(asked) > 100
    assert not wrong


def test_following_a_run_goes_through_no_large_table(stored: Stored) -> None:
    with closing(sqlite3.connect(stored.project / ".edison" / "results.db")) as connection:
        traced = Traced(connection)
        place = ResultsDatabase("results", None, stored.project)
        links = Links(str, "results", several=False)
        found = ProgressFollower(place, stored.against, links).read(traced, 0)  # type: ignore[arg-type]
        assert found is not None
        assert len(traced.asked) > 5
        assert not [
            step for sql, values in traced.asked.items() for step in scans(connection, sql, values)
        ]


@pytest.mark.parametrize(
    "sql",
    [
        "select count(*) from cell",
        "select avg(p.score) from component p",
        "select avg(k.lowest) from rollup_case k",
        "select count(*) from cell where run_id = 'x' and composite > 0.5",
    ],
)
def test_a_query_that_does_would_be_noticed(stored: Stored, sql: str) -> None:
    with closing(sqlite3.connect(stored.project / ".edison" / "results.db")) as connection:
        assert scans(connection, sql, ())
