"""Who is served, and what happens on databases that are not ours."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from datasette.app import Datasette

from edison_ci.errors import UsageError
from edison_ci.report.datasette_plugin.serving import refuse_beyond_this_machine

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Folder


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "::1"])
def test_this_machine_is_served(host: str) -> None:
    refuse_beyond_this_machine(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", ""])
def test_other_machines_are_not_served(host: str) -> None:
    with pytest.raises(UsageError, match="no sign-in yet"):
        refuse_beyond_this_machine(host)


def test_serve_refuses_before_it_listens(mini: Folder) -> None:
    answer = mini.edison("serve", "--host", "0.0.0.0")
    assert answer.code == 2
    assert "ssh -L" in answer.err
    answer = mini.edison("serve")
    assert answer.code == 2
    assert "edison run" in answer.err


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
