"""Who is served, and what happens on databases that are not ours."""

from __future__ import annotations

import datetime as dt
import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from datasette.app import Datasette

from edison_ci import utc
from edison_ci.access.site import open_site
from edison_ci.features.monitor.alert_rows import Condition, Finding, Level, open_alert
from edison_ci.features.monitor.health_page import health
from edison_ci.features.monitor.schedule_rows import write_heartbeat
from edison_ci.features.monitor.schedules import schedulers_folder
from edison_ci.store.database import open_database, open_reader
from edison_ci.store.liveness import ProcessLock
from edison_ci.web.databases import ServerSettings
from edison_ci.web.page_context import Args, Links, PageContext
from edison_ci.web.responses import all_pages
from edison_ci.web.security import page_name
from edison_ci.web.serving import is_this_machine
from tests.opened import opened

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Folder
    from tests.web.conftest import Stored


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1", "[::1]"])
def test_this_machine_is_known(host: str) -> None:
    assert is_this_machine(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", ""])
def test_other_machines_are_known(host: str) -> None:
    assert not is_this_machine(host)


@pytest.mark.nightly
async def test_databases_of_others_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table run (id text)")
    datasette = Datasette([str(path)])
    await datasette.invoke_startup()
    answer = await datasette.client.get("/-/edison")
    assert answer.status_code == 404
    home = await datasette.client.get("/")
    assert home.status_code == 200
    assert "edison" not in home.text
    assert "content-security-policy" not in home.headers


async def test_datasette_alone_serves_the_pages_too(project: Path) -> None:
    datasette = Datasette([str(project / ".edison" / "results.db")])
    await datasette.invoke_startup()
    answer = await datasette.client.get("/-/edison")
    assert answer.status_code == 200
    assert "support-reply" in answer.text
    home = await datasette.client.get("/")
    assert "/-/edison" in home.text
    assert "content-security-policy" not in home.headers
    denied = Datasette(
        [str(project / ".edison" / "results.db")],
        metadata={"databases": {"results": {"allow": {"id": "ada"}}}},
    )
    await denied.invoke_startup()
    assert (await denied.client.get("/-/edison")).status_code == 403


@pytest.mark.nightly
async def test_datasette_alone_knows_nobody_and_names_the_commands(
    project: Path, stored: Stored
) -> None:
    datasette = Datasette([str(project / ".edison" / "results.db")])
    await datasette.invoke_startup()
    one = stored.one("select id from suggestion where status = 'proposed'")
    page = (await datasette.client.get(f"/-/edison/suggestion/{one}")).text
    assert f"edison review approve {one}" in page
    for path in (f"/suggestion/{one}", f"/cell/{stored.cell()}", f"/run/{stored.against}/grade"):
        assert 'method="post"' not in (await datasette.client.get(f"/-/edison{path}")).text
    queue = (await datasette.client.get(f"/-/edison/run/{stored.against}/grade")).text
    assert f"edison grade {stored.against}" in queue
    assert (await datasette.client.get(f"/-/edison/suggestion/{one}/edit")).status_code == 404
    for address in (f"suggestion/{one}/approve", f"cell/{stored.cell()}/grade"):
        sent = await datasette.client.post(f"/-/edison/{address}", data={"grade": "3"})
        assert sent.status_code == 403


@pytest.mark.nightly
async def test_a_copy_is_shown_without_its_project(project: Path, tmp_path: Path) -> None:
    copy = tmp_path / "public.db"
    with closing(sqlite3.connect(project / ".edison" / "results.db")) as connection:
        connection.execute("vacuum into ?", (str(copy),))
        (cell,) = connection.execute("select id from cell limit 1").fetchone()
    datasette = Datasette(immutables=[str(copy)])
    await datasette.invoke_startup()
    for path in ("", f"/cell/{cell[:12]}", "/prompt/support-reply", "/dataset/support-reply",
                 "/leaderboard", "/costs", "/run/latest", "/health"):  # fmt: skip
        answer = await datasette.client.get(f"/-/edison{path}")
        assert answer.status_code == 200, path
    body = (await datasette.client.get(f"/-/edison/cell/{cell[:12]}")).text
    assert "are not available here" in body


async def test_a_file_of_another_version_is_not_guessed_at(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with closing(open_database(path)) as connection:
        connection.execute("pragma user_version = 999")
    datasette = Datasette([str(path)])
    await datasette.invoke_startup()
    answer = await datasette.client.get("/-/edison")
    assert "from another version of edison" in answer.text
    health = await datasette.client.get("/-/edison/health")
    assert (health.status_code, health.json()["ok"]) == (503, False)


async def test_several_files_are_told_apart_by_name(project: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.db"
    open_database(empty).close()
    datasette = Datasette([str(project / ".edison" / "results.db"), str(empty)])
    await datasette.invoke_startup()
    assert "support-reply" in (await datasette.client.get("/-/edison")).text
    other = (await datasette.client.get("/-/edison?db=empty")).text
    assert "No runs yet" in other
    assert "/-/edison/leaderboard?db=empty" in other
    for path in ("leaderboard", "costs", "prompts", "datasets", "suggestions", "audit"):
        answer = await datasette.client.get(f"/-/edison/{path}?db=empty")
        assert answer.status_code == 200
        assert 'class="empty"' in answer.text, path


# --- for machines ---------------------------------------------------------------------------------


async def test_readiness_is_whether_pages_can_be_read_now(project: Path, tmp_path: Path) -> None:
    datasette = Datasette([str(project / ".edison" / "results.db")])
    await datasette.invoke_startup()
    ready = await datasette.client.get("/-/edison/ready")
    assert (ready.status_code, ready.json()) == (200, {"ok": True})
    other = tmp_path / "results.db"
    with closing(open_database(other)) as connection:
        connection.execute("pragma user_version = 999")
    datasette = Datasette([str(other)])
    await datasette.invoke_startup()
    ready = await datasette.client.get("/-/edison/ready")
    assert (ready.status_code, ready.json()) == (503, {"ok": False})


def test_every_page_is_counted_under_its_name() -> None:
    for route in all_pages():
        name = re.sub(r"\(\?P<.*", "x", route.pattern).strip("^$").rstrip("/?")
        assert page_name(name) not in ("other", "datasette"), route.pattern
    assert page_name("/-/edison") == page_name("/-/edison/") == "home"
    assert page_name("/-/edison/run/20261115T090000-bbbbbb/case") == "run"
    assert page_name("/-/edison/anything-else") == "other"
    assert page_name("/results/answer") == page_name("/") == "datasette"


def healthy(folder: Folder, *, now: dt.datetime | None = None) -> dict[str, Any]:
    """Return the health of a project that is served."""
    file = folder.path / ".edison" / "results.db"
    with closing(open_reader(file)) as connection:
        context = PageContext(
            connection=connection,
            path={},
            args=Args({}),
            links=Links(str, "results", several=False),
            root=folder.path,
            file=file,
            now=now or dt.datetime.now(dt.UTC),
            server=ServerSettings(folder.path, None),
        )
        return health(context)


@pytest.fixture
def served(mini: Folder) -> Folder:
    """A project with results that were made just now."""
    mini.edison("run", "-q")
    return mini


def change(folder: Folder, *statements: str) -> None:
    with opened(folder.path / ".edison" / "results.db") as connection:
        for sql in statements:
            connection.execute(sql)


def test_a_project_that_was_just_run_is_healthy(served: Folder) -> None:
    found = healthy(served)
    assert (found["_status"], found["ok"]) == (200, True)
    assert set(found["checks"]) >= {"database", "schema", "disk", "keys", "runs", "duties"}
    assert found["checks"]["runs"] == {"ok": True, "oldest_unfinished": None, "stuck": []}


def test_a_stuck_run_is_not_healthy(served: Folder) -> None:
    old = "update event set time = '2026-01-01T00:00:00.000Z'"
    change(served, "update run set status = 'EXECUTING', complete = 0, owner = '1-x'", old)
    found = healthy(served)
    assert (found["_status"], found["checks"]["runs"]["ok"]) == (503, False)
    (run,) = found["checks"]["runs"]["stuck"]
    assert found["checks"]["runs"]["oldest_unfinished"]["run_id"] == run


def test_schedules_without_their_scheduler_are_not_healthy(served: Folder) -> None:
    assert "scheduler" not in healthy(served)["checks"], "there is nothing to start"
    daily = 'schedule: [{name: daily, cron: "0 7 * * *"}]\ngates:'
    served.edit("experiments/hello.yaml", "gates:", daily)
    found = healthy(served)["checks"]["scheduler"]
    assert (found["ok"], found["running"]) == (True, False), "another machine may start them"
    site = open_site(served.path)
    owner = ProcessLock(schedulers_folder(site))
    now = utc.timestamp(dt.datetime.now(dt.UTC))
    with opened(site.results) as connection:
        write_heartbeat(connection, owner.id, now)
    found = healthy(served)
    assert found["checks"]["scheduler"]["running"] is True
    assert found["ok"]
    owner.close()
    found = healthy(served)
    assert (found["_status"], found["checks"]["scheduler"]["ok"]) == (503, False)
    assert "killed" in found["checks"]["scheduler"]["detail"]


def test_a_damaged_file_is_not_healthy_once_it_was_noticed(served: Folder) -> None:
    with opened(served.path / ".edison" / "results.db") as connection:
        open_alert(connection, Finding(Condition.DATABASE, Level.ALERT, "Bad."), "2026-11-15")
    found = healthy(served)
    assert (found["_status"], found["checks"]["database"]["ok"]) == (503, False)


@pytest.mark.parametrize(
    ("due_at", "failures", "ok"),
    [
        ("2026-11-15T11:00:00.000Z", 0, True),
        ("2026-11-14T11:00:00.000Z", 0, False),
        ("2026-11-15T12:05:00.000Z", 2, True),
        ("2026-11-15T12:05:00.000Z", 3, False),
    ],
)
def test_a_duty_that_is_overdue_or_fails_is_not_healthy(
    served: Folder, due_at: str, failures: int, ok: bool
) -> None:
    change(
        served,
        "insert into duty (name, every_s, due_at, started_at, failures) "
        f"values ('backup', 86400, '{due_at}', '2026-11-13T00:00:00.000Z', {failures})",
    )
    found = healthy(served, now=dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC))
    assert found["checks"]["duties"]["ok"] is ok
    assert found["checks"]["duties"]["overdue"] == ([] if ok else ["backup"])
    assert found["_status"] == (200 if ok else 503)
