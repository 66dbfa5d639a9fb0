"""Who is served, and what happens on databases that are not ours."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from datasette.app import Datasette

from edison_ci.store.database import open_database
from edison_ci.web.serving import is_this_machine

if TYPE_CHECKING:
    from pathlib import Path

    from tests.web.conftest import Stored


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1", "[::1]"])
def test_this_machine_is_known(host: str) -> None:
    assert is_this_machine(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", ""])
def test_other_machines_are_known(host: str) -> None:
    assert not is_this_machine(host)


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
