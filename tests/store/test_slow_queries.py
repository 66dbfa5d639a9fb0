"""Slow queries are logged with their text and without a value, quick ones are not."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from edison_ci.store import slow_queries
from edison_ci.store.database import open_database, open_reader

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.daily


@pytest.mark.parametrize(("slow_s", "logged"), [(0.0, True), (60.0, False)])
@pytest.mark.parametrize("opened", ["by edison", "by another"])
def test_a_slow_query_is_logged_without_its_values(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    opened: str,
    slow_s: float,
    logged: bool,
) -> None:
    path = tmp_path / "results.db"
    open_database(path).close()
    monkeypatch.setattr(slow_queries, "SLOW_S", slow_s)
    with caplog.at_level(logging.INFO, "edison_ci"):
        if opened == "by edison":
            connection = open_reader(path)
        else:
            connection = slow_queries.timed(sqlite3.connect(path))
        with closing(connection):
            rows = connection.execute("select  count(*)\nfrom run where id = ?", ("secret",))
            assert rows.fetchall() == [(0,)]
    records = [vars(one) for one in caplog.records if one.getMessage() == "slow query"]
    texts = [record["sql"] for record in records]
    assert ("select count(*) from run where id = ?" in texts) is logged
    assert all(record["took_ms"] >= 0 for record in records)
    assert "secret" not in str(records)
