"""What a page gets while a run goes on."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from datasette.app import Datasette

from docs.sample import Sample
from edison_ci.records import RunStatus
from edison_ci.store.database import open_database
from edison_ci.store.runs import NewRun, add_event, move_run, start_run
from edison_ci.web.databases import ResultsDatabase
from edison_ci.web.page_context import Links
from edison_ci.web.streams import ProgressFollower, stream_progress
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

RUN = "20261115T120000-aaaaaa"


@pytest.fixture
def going_on(tmp_path: Path) -> Path:
    """Results with a run that a process is at work on."""
    path = tmp_path / "results.db"
    with closing(open_database(path)) as connection:
        start_run(
            NewRun(
                RUN,
                "support-reply",
                "cli",
                "0",
                "{}",
                {},
                8,
                False,
                False,
                "1-x",
                "2026-11-15T12:00:00.000Z",
            )
        )(connection)
        move_run(RUN, RunStatus.EXECUTING, "2026-11-15T12:00:01.000Z")(connection)
        connection.commit()
    return path


def told(chunk: bytes) -> Any:
    return json.loads(chunk.decode().partition("data: ")[2])


async def test_each_step_is_told_until_the_run_ends(going_on: Path) -> None:
    datasette = Datasette([str(going_on)])
    await datasette.invoke_startup()
    place = ResultsDatabase("results", going_on, None)
    follower = ProgressFollower(place, RUN, Links(str, "results", several=False))
    chunks = stream_progress(datasette.get_database("results"), follower, 0)
    assert await anext(chunks) == b"retry: 1000\n\n"
    assert told(await anext(chunks))["done"] == 0
    with closing(sqlite3.connect(going_on)) as connection:
        add_event(
            connection, RUN, "run:progress", {"done": 3, "total": 8}, "2026-11-15T12:00:02.000Z"
        )
        connection.commit()
    async with asyncio.timeout(PATIENCE_S):
        after = told(await anext(chunks))
    assert (after["done"], after["total"], after["moving"]) == (3, 8, True)
    assert after["view"]["texts"]["done"] == "3 of 8 cells done"
    assert [phase["name"] for phase in after["view"]["phases"]] == ["executing"]
    with closing(sqlite3.connect(going_on)) as connection:
        move_run(RUN, RunStatus.PAUSED, "2026-11-15T12:00:03.000Z")(connection)
        connection.commit()
    async with asyncio.timeout(PATIENCE_S):
        last = [told(chunk) async for chunk in chunks]
    assert [(each["status"], each["moving"]) for each in last] == [("PAUSED", False)]
    assert last[0]["view"]["phases"][0] == {"name": "executing", "time": "2.0 s", "current": False}


async def test_the_page_shows_what_is_done_and_filters_by_name(going_on: Path) -> None:
    with closing(open_database(going_on)) as connection:
        Sample(connection).run("20261115T110000-bbbbbb", "2026-11-15T11:00:00.000Z")
        connection.commit()
    datasette = Datasette([str(going_on)])
    await datasette.invoke_startup()
    body = (await datasette.client.get(f"/-/edison/run/{RUN}")).text
    assert f'data-follow="/-/edison/run/{RUN}/events' in body
    assert "No cell is done yet" in body
    done = (await datasette.client.get("/-/edison/run/20261115T110000-bbbbbb")).text
    assert "data-follow" not in done
