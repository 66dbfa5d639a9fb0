"""edison admin audit: who changed what."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from docs.sample import build
from edison_ci.store.audit import AuditEntry, add_audit
from edison_ci.store.database import open_database
from tests.conftest import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily


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
        "host", "nonce", "detail", "sha256",
    ]  # fmt: skip
    assert document["chain"] == {
        "ok": True, "rows": 1, "newest": row["sha256"], "forgotten": 0, "clock_jumps": [],
        "anchors": [],
    }  # fmt: skip
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
    assert done.code == 0
    assert "the audit log is empty" in done.err


# --- anchors --------------------------------------------------------------------------------------


@pytest.fixture
def logged(repo: Folder) -> Folder:
    """A repository whose results have an audit of five rows."""
    build(repo.path / ".edison/results.db")
    for number in range(4):
        note(repo, f"note {number}")
    return repo


def note(project: Folder, action: str) -> None:
    """Write a row."""
    with closing(open_database(project.path / ".edison/results.db")) as connection:
        add_audit(connection, AuditEntry("2026-11-16T09:00:00Z", "ada", "git", action))


def cut_to(project: Folder, rows: int) -> None:
    """Cut off the end of the log, as someone does who knows SQLite."""
    with closing(sqlite3.connect(project.path / ".edison/results.db")) as connection:
        connection.executescript(
            f"drop trigger audit_stays; delete from audit where seq > {rows}; "
            f"update sqlite_sequence set seq = {rows} where name = 'audit'"
        )


def head_of(edison: Edison, project: Folder) -> tuple[str, ...]:
    """Return the options that compare the log with its row of now."""
    done = edison(project, "admin", "audit", "--verify")
    (head,) = re.findall("for --head: ([0-9]+:[0-9a-f]{16})", done.err)
    return ("admin", "audit", "--verify", "--head", head)


def test_a_noted_head_shows_that_the_end_was_cut_off(edison: Edison, logged: Folder) -> None:
    verify = head_of(edison, logged)
    note(logged, "later")
    assert "row 5 is the one that --head 5 holds" in edison(logged, *verify).out
    cut_to(logged, 4)
    done = edison(logged, *verify)
    assert done.code == 3
    assert "the log ends at row 4, but --head 5 holds row 5" in " ".join(done.err.split())


def test_a_noted_head_shows_that_the_log_was_rewritten(edison: Edison, logged: Folder) -> None:
    verify = head_of(edison, logged)
    cut_to(logged, 3)
    for number in range(5):
        note(logged, f"forged {number}")
    done = edison(logged, *verify)
    assert done.code == 3
    assert "row 5 is not the one that --head 5 holds" in " ".join(done.err.split())


def test_a_noted_head_is_compared(edison: Edison, logged: Folder) -> None:
    newest = json.loads(edison(logged, "admin", "audit", "--json").out)["rows"][0]["sha256"]
    verify = ("admin", "audit", "--verify", "--head")
    assert edison(logged, *verify, f"5:{newest[:16]}").code == 0
    assert edison(logged, *verify, f"5:{'0' * 16}").code == 3
    assert edison(logged, *verify, f"6:{newest}").code == 3
    assert edison(logged, *verify, "5").code == 2


def test_a_restored_backup_is_no_cut(edison: Edison, logged: Folder) -> None:
    edison(logged, "admin", "db", "backup")
    note(logged, "later")
    verify = head_of(edison, logged)
    (backup,) = (logged.path / ".edison/backups").glob("results-*.db")
    assert edison(logged, "admin", "db", "restore", str(backup), "--yes").code == 0
    done = edison(logged, *verify)
    assert done.code == 0, done.err
    assert re.search("which --head [0-9]+ holds, is in before-restore-", " ".join(done.out.split()))


# --- export ---------------------------------------------------------------------------------------


def test_an_export_is_verified_without_edison(
    edison: Edison, logged: Folder, tmp_path: Path
) -> None:
    done = edison(logged, "admin", "audit", "--jsonl")
    head, *lines = done.out.splitlines()
    assert json.loads(head) == {"edison_audit": 1}
    assert [json.loads(line)["seq"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert json.loads(lines[-1])["action"] == "export audit"
    page = (ROOT / "docs/database.md").read_text(encoding="utf-8")
    (recipe,) = re.findall(r"```python[^\n]*\n(import hashlib.*?)```", page, re.DOTALL)
    (tmp_path / "verify.py").write_text(recipe)

    def verified(text: str) -> str:
        told = subprocess.run(
            [sys.executable, str(tmp_path / "verify.py")],
            input=text, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return told.stdout + told.stderr

    assert verified(done.out) == f"6 rows, newest {json.loads(lines[-1])['sha256']}\n"
    assert "row 3" in verified(done.out.replace("note 1", "note 9"))
    assert "row 1" in verified(done.out.replace('"after":1', '"after":2', 1))
    assert "row 2" in verified("\n".join([head, lines[0], *lines[2:]]))
