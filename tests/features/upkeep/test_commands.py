"""edison admin db: check, upgrade and back up the results."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

import pytest

from docs.sample import build
from edison_ci.store.liveness import ProcessLock

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily


@pytest.fixture
def ran(mini: Folder) -> Folder:
    """A project with results."""
    (mini.path / ".edison").mkdir()
    build(mini.path / ".edison/results.db")
    return mini


def change(folder: Folder, sql: str) -> None:
    connection = sqlite3.connect(folder.path / ".edison/results.db")
    connection.executescript(sql)
    connection.close()


def test_a_sound_file_is_said_to_be(edison: Edison, ran: Folder) -> None:
    done = edison(ran, "admin", "db", "check")
    assert (done.code, done.err) == (0, "")
    assert "ok    ledger      totals against attempts (6)\n" in done.out
    assert done.out.count("ok ") == 7


def test_a_check_is_a_document(edison: Edison, ran: Folder) -> None:
    done = edison(ran, "admin", "db", "check", "--json")
    document = json.loads(done.out)
    assert list(document) == ["schema_version", "ok", "path", "version", "size_bytes", "checks"]
    assert (document["ok"], document["path"], document["version"]) == (
        True,
        ".edison/results.db",
        1,
    )
    assert document["checks"][2] == {
        "check": "ledger",
        "ok": True,
        "count": 6,
        "problems": [],
        "more": 0,
    }


def test_money_that_does_not_add_up_ends_with_3(edison: Edison, ran: Folder) -> None:
    change(ran, "update booked set microusd = microusd - 1 where scope = 'project'")
    done = edison(ran, "admin", "db", "check")
    assert done.code == 3
    assert "fail  ledger" in done.out
    assert "project on 2026-11-14: booked 1,119 micro-dollars" in done.out
    document = json.loads(edison(ran, "admin", "db", "check", "--json").out)
    assert (document["ok"], document["checks"][2]["ok"]) == (False, False)


def test_quiet_says_it_by_its_code_alone(edison: Edison, ran: Folder) -> None:
    assert edison(ran, "admin", "db", "check", "-q").all == ""
    change(ran, "delete from booked")
    done = edison(ran, "admin", "db", "check", "-q")
    assert (done.code, done.all) == (3, "")


@pytest.mark.parametrize("words", [["db", "check"], ["db", "upgrade"], ["db", "backup"], ["gc"],
                                   ["gc", "--dry-run"], ["cache", "stats"], ["audit"],
                                   ["cache", "clear", "--yes"]], ids=" ".join)  # fmt: skip
def test_without_results_every_command_says_so(
    edison: Edison, mini: Folder, words: list[str]
) -> None:
    done = edison(mini, "admin", *words)
    assert done.code == 2
    assert "there are no results yet" in done.err
    assert not (mini.path / ".edison/results.db").exists()
    assert not (mini.path / ".edison/backups").exists()


@pytest.mark.parametrize("words", [["db", "check"], ["db", "backup"], ["gc"], ["cache", "stats"]],
                         ids=" ".join)  # fmt: skip
def test_a_damaged_file_is_one_short_paragraph(mini: Folder, words: list[str]) -> None:
    mini.write(".edison/results.db", b"SQLite format 3\0" + b"\xff" * 400)
    done = mini.edison("admin", *words)
    assert done.code == 2
    assert "Traceback" not in done.all
    assert "another program's database" in done.err


def test_a_backup_is_made_and_named(edison: Edison, ran: Folder) -> None:
    document = json.loads(edison(ran, "admin", "db", "backup", "--json").out)
    assert list(document) == ["schema_version", "path", "size_bytes", "sha256", "removed"]
    copy = ran.path / document["path"]
    assert copy.parent == ran.path / ".edison/backups"
    assert copy.stat().st_size == document["size_bytes"]
    assert "wrote .edison/backups/results-" in edison(ran, "admin", "db", "backup").out


def test_old_backups_are_removed(edison: Edison, ran: Folder) -> None:
    for year in (2020, 2021):
        ran.write(f".edison/backups/results-{year}0101T000000Z.db", "old")
    done = edison(ran, "admin", "db", "backup", "--keep", "2")
    assert "removed 1 older backup\n" in done.out
    assert not (ran.path / ".edison/backups/results-20200101T000000Z.db").exists()


def test_backups_are_ignored_by_git(edison: Edison, ran: Folder) -> None:
    ran.git("init", "-q")
    edison(ran, "admin", "db", "backup")
    assert "backups" not in ran.git("status", "--short", "--untracked-files=all")


def test_an_upgrade_says_that_there_is_none(edison: Edison, ran: Folder) -> None:
    assert (
        edison(ran, "admin", "db", "upgrade").out
        == ".edison/results.db is up to date (version 1)\n"
    )
    document = json.loads(edison(ran, "admin", "db", "upgrade", "--json").out)
    assert document == {
        "schema_version": 1,
        "path": ".edison/results.db",
        "from": 1,
        "to": 1,
        "backup": None,
    }


def test_an_upgrade_is_refused_while_a_run_lives(edison: Edison, ran: Folder) -> None:
    owner = ProcessLock(ran.path / ".edison/locks")
    try:
        done = edison(ran, "admin", "db", "upgrade", "--json")
    finally:
        owner.close()
    document = json.loads(done.out)
    assert (done.code, document["error"]["code"]) == (2, "busy")


def test_a_stranger_is_refused(
    edison: Edison, ran: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran.write("edison.yaml", "version: 1\nproject: mini\nmembers: [{github: ada, role: owner}]\n")
    ran.git("init", "-q")
    ran.git("config", "user.email", "eve@example.com")
    done = edison(ran, "admin", "db", "upgrade", "--json")
    document = json.loads(done.out)
    assert (done.code, document["error"]["code"]) == (2, "role")
    assert document["error"]["message"] == (
        "db upgrade needs an admin; eve@example.com is not a member"
    )
    assert "refused: db upgrade" in edison(ran, "admin", "audit").out
