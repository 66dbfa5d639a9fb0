"""edison admin audit: who changed what."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
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
def signing(repo: Folder, tmp_path: Path) -> Folder:
    """A repository with results, and a key that Git signs with and knows."""
    key = tmp_path / "key"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", str(key)], check=True
    )
    signers = tmp_path / "signers"
    signers.write_text(f"ada@example.org {key.with_suffix('.pub').read_text()}")
    for name, value in {
        "gpg.format": "ssh",
        "user.signingKey": f"{key}.pub",
        "gpg.ssh.allowedSignersFile": str(signers),
    }.items():
        repo.git("config", "--global", name, value)
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


def test_a_signed_tag_shows_that_the_end_was_cut_off(edison: Edison, signing: Folder) -> None:
    made = edison(signing, "admin", "audit", "--anchor")
    tag = made.out.split(":")[0]
    assert re.fullmatch("edison-audit/5-[0-9a-f]{12}", tag), made.err
    assert f"git push origin {tag}" in made.err
    note(signing, "later")
    whole = edison(signing, "admin", "audit", "--verify")
    assert f"row 5 is the one that {tag} holds" in whole.out
    assert edison(signing, "admin", "audit", "--anchor", "--json").code == 0
    cut_to(signing, 4)
    done = edison(signing, "admin", "audit", "--verify")
    assert done.code == 3
    assert f"the log ends at row 4, but {tag} holds row 5" in " ".join(done.err.split())


def test_a_tag_is_signed_with_gpg_too(
    edison: Edison, signing: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("gpg") is None:
        pytest.skip("gpg is not installed")
    with tempfile.TemporaryDirectory(prefix="gpg") as home:  # its sockets need a short path
        monkeypatch.setenv("GNUPGHOME", home)
        words = ("gpg", "--batch", "--quiet", "--passphrase", "", "--quick-gen-key")
        subprocess.run([*words, "ada@example.org", "ed25519", "sign"], check=True)
        signing.git("config", "--global", "gpg.format", "openpgp")
        signing.git("config", "--global", "user.signingKey", "ada@example.org")
        tag = edison(signing, "admin", "audit", "--anchor").out.split(":")[0]
        assert "BEGIN PGP SIGNATURE" in signing.git("cat-file", "tag", tag)
        whole = edison(signing, "admin", "audit", "--verify")
        assert (whole.code, f"the one that {tag} holds" in whole.out) == (0, True), whole.err
        assert "not known here" not in whole.out
        monkeypatch.setenv("GNUPGHOME", str(signing.path))  # where no key is known
        other = edison(signing, "admin", "audit", "--verify")
        assert "whose signature it is, is not known here" in other.out, other.all
        monkeypatch.setenv("GNUPGHOME", home)
        cut_to(signing, 4)
        done = edison(signing, "admin", "audit", "--verify")
        assert (done.code, f"{tag} holds row 5" in " ".join(done.err.split())) == (3, True)
        subprocess.run(["gpgconf", "--kill", "all"], check=False)


def test_a_signed_tag_shows_that_the_log_was_written_anew(edison: Edison, signing: Folder) -> None:
    tag = edison(signing, "admin", "audit", "--anchor").out.split(":")[0]
    cut_to(signing, 3)
    for number in range(5):
        note(signing, f"forged {number}")
    done = edison(signing, "admin", "audit", "--verify")
    assert done.code == 3
    assert f"row 5 is not the one that {tag} holds" in " ".join(done.err.split())
    (signing.path / ".edison/results.db").unlink()
    build(signing.path / ".edison/results.db")
    anew = edison(signing, "admin", "audit", "--verify")
    assert anew.code == 3


def test_a_forged_tag_is_found(edison: Edison, signing: Folder) -> None:
    tag = edison(signing, "admin", "audit", "--anchor").out.split(":")[0]
    message = signing.git("cat-file", "tag", tag).replace("rows: 5", "rows: 4") + "\n"
    forged = signing.git("hash-object", "-t", "tag", "-w", str(signing.write("tag", message)))
    signing.git("update-ref", f"refs/tags/{tag}", forged)
    done = edison(signing, "admin", "audit", "--verify")
    assert done.code == 3
    assert f"{tag} is not signed, or was changed after it was signed" in " ".join(done.err.split())


def test_an_unknown_signer_is_told(edison: Edison, signing: Folder) -> None:
    edison(signing, "admin", "audit", "--anchor")
    signing.git("config", "--global", "--unset", "gpg.ssh.allowedSignersFile")
    done = edison(signing, "admin", "audit", "--verify")
    assert done.code == 0
    assert "whose signature it is, is not known here" in done.out


def test_a_program_of_the_repository_signs_nothing(edison: Edison, signing: Folder) -> None:
    signing.write("evil.sh", f"#!/bin/sh\ntouch {signing.path}/PWNED\n")
    (signing.path / "evil.sh").chmod(0o755)
    signing.git("config", "gpg.ssh.program", str(signing.path / "evil.sh"))
    assert edison(signing, "admin", "audit", "--anchor").code == 0
    assert edison(signing, "admin", "audit", "--verify").code == 0
    assert not (signing.path / "PWNED").exists()


def test_without_a_key_nothing_is_signed(edison: Edison, repo: Folder) -> None:
    build(repo.path / ".edison/results.db")
    repo.git("config", "--global", "gpg.format", "ssh")
    done = edison(repo, "admin", "audit", "--anchor")
    assert done.code == 2
    assert "Git could not sign the tag" in done.err


def test_a_noted_head_is_compared(edison: Edison, signing: Folder) -> None:
    newest = json.loads(edison(signing, "admin", "audit", "--json").out)["rows"][0]["sha256"]
    verify = ("admin", "audit", "--verify", "--head")
    assert edison(signing, *verify, f"5:{newest[:16]}").code == 0
    assert edison(signing, *verify, f"5:{'0' * 16}").code == 3
    assert edison(signing, *verify, f"6:{newest}").code == 3
    assert edison(signing, *verify, "5").code == 2


def test_a_restored_backup_is_no_cut(edison: Edison, signing: Folder) -> None:
    edison(signing, "admin", "db", "backup")
    note(signing, "later")
    tag = edison(signing, "admin", "audit", "--anchor").out.split(":")[0]
    (backup,) = (signing.path / ".edison/backups").glob("results-*.db")
    assert edison(signing, "admin", "db", "restore", str(backup), "--yes").code == 0
    done = edison(signing, "admin", "audit", "--verify")
    assert done.code == 0, done.err
    assert f"which {tag} holds, is in before-restore-" in " ".join(done.out.split())


# --- export ---------------------------------------------------------------------------------------


def test_an_export_is_verified_without_edison(
    edison: Edison, signing: Folder, tmp_path: Path
) -> None:
    done = edison(signing, "admin", "audit", "--jsonl")
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
