"""edison admin audit: who changed what."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

import pytest

from docs.sample import build

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder


@pytest.fixture
def ran(mini: Folder) -> Folder:
    """A project with results."""
    (mini.path / ".edison").mkdir()
    build(mini.path / ".edison/results.db")
    return mini


def test_rows_are_shown_newest_first(edison: Edison, ran: Folder) -> None:
    edison(ran, "admin", "cache", "clear", "--all", "--yes")
    lines = edison(ran, "admin", "audit").out.splitlines()
    assert lines[0].split() == ["no", "time", "actor", "known", "by", "action", "entity", "after"]
    assert "cache clear" in lines[1]
    assert lines[2].split()[:4] == ["1", "2026-11-15T09:00:01Z", "ada@example.com", "git"]
    assert len(edison(ran, "admin", "audit", "--limit", "1").out.splitlines()) == 2


def test_rows_are_a_document(edison: Edison, ran: Folder) -> None:
    document = json.loads(edison(ran, "admin", "audit", "--json", "--verify").out)
    (row,) = document["rows"]
    assert list(row) == [
        "seq", "time", "actor", "known_by", "action", "entity", "before", "after", "run_id",
        "host", "sha256",
    ]  # fmt: skip
    assert document["chain"] == {"ok": True, "rows": 1, "newest": row["sha256"]}
    assert json.loads(edison(ran, "admin", "audit", "--json").out)["chain"] is None


def test_a_whole_chain_is_said_to_be(edison: Edison, ran: Folder) -> None:
    assert "1 row, none changed; newest hash " in edison(ran, "admin", "audit", "--verify").out


def test_a_broken_chain_ends_with_3_and_names_the_row(edison: Edison, ran: Folder) -> None:
    connection = sqlite3.connect(ran.path / ".edison/results.db")
    connection.executescript("drop trigger audit_is_kept; update audit set actor = 'eve'")
    connection.close()
    done = edison(ran, "admin", "audit", "--verify")
    assert done.code == 3
    assert "the audit log is broken: row 1 was changed" in done.err
    assert "ada" not in done.out
    document = json.loads(edison(ran, "admin", "audit", "--verify", "--json").out)
    assert document["error"]["code"] == "store"


def test_an_empty_audit_is_no_error(edison: Edison, ran: Folder) -> None:
    connection = sqlite3.connect(ran.path / ".edison/results.db")
    connection.executescript(
        "drop trigger audit_stays; delete from audit; delete from sqlite_sequence"
    )
    connection.close()
    done = edison(ran, "admin", "audit", "--verify")
    assert (done.code, done.err) == (0, "the audit log is empty\n")
