"""edison roles: passwords and tokens of members."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pty
import signal
import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from edison_ci.access.accounts import Accounts
from edison_ci.access.site import open_site
from edison_ci.store.auth import Token
from edison_ci.store.database import open_database
from tests import forked
from tests.cli.test_secret_keys import command
from tests.opened import opened
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

PASSWORD = "correct horse battery staple"


@pytest.fixture
def people(repo: Folder) -> Folder:
    """A project of Ada, who runs the commands, and Bob."""
    repo.edit("edison.yaml", "project: mini\n", "project: mini\nmembers:\n"
              "  - {email: ada@example.org, role: owner}\n"
              "  - {github: bob, email: bob@example.org, role: viewer}\n")  # fmt: skip
    open_database(repo.path / ".edison" / "results.db").close()
    return repo


def said(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def accounts(folder: Folder) -> Accounts:
    return Accounts(open_site(folder.path))


@pytest.mark.nightly
@pytest.mark.parametrize(
    "words", [("passwd", "bob", "--stdin"), ("token", "bob"), ("revoke", "bob")]
)
def test_a_killed_command_changes_no_access_without_its_row(
    people: Folder, words: tuple[str, ...]
) -> None:
    own = accounts(people)
    own.set_password("ada@example.org", PASSWORD)
    killed = changed = 0
    for at in range(1, 200):
        if words[0] == "revoke":
            own.set_password("bob", PASSWORD)
        known, before = rows(people), what_lets_in(people)
        done = command(people, "roles", *words, at=at)
        assert done.returncode in (-signal.SIGKILL, 0), done.stderr
        assert rows(people) > known or what_lets_in(people) == before, at
        killed += done.returncode != 0
        changed += what_lets_in(people) != before
        if done.returncode == 0:
            break
    assert changed
    assert 3 < killed < 199


def rows(folder: Folder) -> int:
    with opened(folder.path / ".edison/results.db") as connection:
        return int(connection.execute("select count(*) from audit").fetchone()[0])


def what_lets_in(folder: Folder) -> list[object]:
    with closing(sqlite3.connect(folder.path / ".edison/auth.db")) as connection:
        tables = ("password", "token")
        return [connection.execute(f"select * from {table}").fetchall() for table in tables]


@pytest.mark.nightly
def test_a_password_is_read_from_standard_input(
    edison: Edison, people: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(monkeypatch, f"{PASSWORD}\n")
    done = edison(people, "roles", "passwd", "bob", "--stdin", "--json")
    assert json.loads(done.out) == {
        "schema_version": 1, "member": "bob", "role": "viewer", "sessions_ended": 0}  # fmt: skip
    signed = accounts(people).sign_in("bob@example.org", PASSWORD, address="127.0.0.1")
    assert hasattr(signed, "cookie")
    said(monkeypatch, f"{PASSWORD}!\n")
    done = edison(people, "roles", "passwd", "bob", "--stdin")
    assert done.out == "bob (viewer) can sign in with the new password\n"
    assert "1 session ended; tokens stay valid" in done.err
    assert PASSWORD not in done.all


@pytest.mark.parametrize(
    ("given", "name", "reason"),
    [
        ("too short\n", "bob", "at least 12 characters"),
        ("", "bob", "at least 12 characters"),
        (f"{PASSWORD}\n", "bbo", "did you mean 'bob'?"),
        (f"{PASSWORD}\n", "zoe@x.org", "members are: ada@example.org, bob, bob@example.org"),
    ],
)
def test_what_cannot_be_set_is_refused(
    edison: Edison, people: Folder, monkeypatch: pytest.MonkeyPatch,
    given: str, name: str, reason: str,
) -> None:  # fmt: skip
    said(monkeypatch, given)
    done = edison(people, "roles", "passwd", name, "--stdin")
    assert done.code == 2
    assert reason in done.err


@pytest.mark.nightly
def test_a_password_is_asked_for_twice_without_showing_it(people: Folder) -> None:
    command = [sys.executable, "-P", "-m", "edison_ci", "roles", "passwd", "bob"]
    refused = forked.run(
        command, cwd=people.path, input=b"", capture_output=True, check=False, timeout=PATIENCE_S
    )
    assert refused.returncode == 2
    assert b"--stdin" in refused.stderr
    ours, theirs = pty.openpty()
    process = forked.Popen(
        command, cwd=people.path, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    seen = b""
    for prompt in (b"characters: ", b"confirmation: "):
        while not seen.endswith(prompt):
            seen += os.read(ours, 1_000)
        os.write(ours, f"{PASSWORD}\n".encode())
    while b"new password\r\n" not in seen:
        seen += os.read(ours, 1_000)
    assert process.wait(timeout=PATIENCE_S) == 0
    os.close(ours)
    assert PASSWORD.encode() not in seen
    assert accounts(people).access()[1].password_since is not None


def test_a_token_is_shown_once_and_revoked(edison: Edison, people: Folder) -> None:
    made = edison(people, "roles", "token", "bob", "--name", "ci  job", "--expires", "90")
    secret = made.out.strip()
    assert secret.startswith("edison_token_")
    assert "it is not shown again" in made.err
    assert secret not in made.err
    actor = accounts(people).by_token(secret)
    assert actor is not None
    assert actor.name == "bob"
    again = edison(people, "roles", "token", "bob", "--json")
    assert accounts(people).by_token(json.loads(again.out)["token"]) is not None
    listed = edison(people, "roles", "tokens")
    assert "ci job" in listed.out
    assert secret not in listed.out
    tokens = json.loads(edison(people, "roles", "tokens", "--json").out)["tokens"]
    token_id = next(each["id"] for each in tokens if each["name"] == "ci job")
    assert (
        edison(people, "roles", "revoke", token_id).out == f"token {token_id} of bob is revoked\n"
    )
    assert accounts(people).by_token(secret) is None
    gone = edison(people, "roles", "revoke", "bob")
    assert "bob can no longer sign in" in gone.out
    assert edison(people, "roles", "revoke", "bob").code == 2
    assert "no tokens" in edison(people, "roles", "tokens").err
    long = edison(people, "roles", "token", "bob", "--name", "x" * 61)
    assert long.code == 2


def test_members_are_listed_with_how_they_sign_in(edison: Edison, people: Folder) -> None:
    edison(people, "roles", "token", "bob")
    listed = edison(people, "roles", "list")
    assert "ada@example.org        owner   nothing" in listed.out
    assert "bob / bob@example.org  viewer  1 token" in listed.out
    document = json.loads(edison(people, "roles", "list", "--json").out)
    assert [each["role"] for each in document["members"]] == ["owner", "viewer"]
    people.write("edison.yaml", "version: 1\nproject: mini\n")
    assert "everyone with write access to the repository" in edison(people, "roles", "list").err


def test_others_are_refused_and_it_is_audited(
    edison: Edison, people: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.git("config", "--global", "user.email", "bob@example.org")
    said(monkeypatch, f"{PASSWORD}\n")
    done = edison(people, "roles", "passwd", "ada@example.org", "--stdin")
    assert done.code == 2
    assert "roles passwd needs an owner; bob@example.org is a viewer" in done.err
    assert edison(people, "roles", "token", "bob").code == 0  # one's own
    rows = json.loads(edison(people, "admin", "audit", "--json").out)["rows"]
    assert [row["action"] for row in rows] == ["roles token", "refused: roles passwd"]


@pytest.mark.nightly
def test_the_last_owner_who_can_sign_in_is_not_locked_out(
    edison: Edison, people: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(monkeypatch, f"{PASSWORD}\n")
    assert edison(people, "roles", "passwd", "ada@example.org", "--stdin").code == 0
    done = edison(people, "roles", "revoke", "ada@example.org")
    assert (done.code, "is the last owner who can sign in" in done.err) == (2, True), done.all
    assert hasattr(accounts(people).sign_in("ada@example.org", PASSWORD, address="::1"), "cookie")
    people.edit("edison.yaml", "role: viewer", "role: owner")
    assert edison(people, "roles", "revoke", "ada@example.org").code == 2, "Bob has no password"
    said(monkeypatch, f"{PASSWORD}\n")
    assert edison(people, "roles", "passwd", "bob", "--stdin").code == 0
    assert edison(people, "roles", "revoke", "ada@example.org").code == 0


def test_members_without_an_owner_are_warned_of(edison: Edison, people: Folder) -> None:
    assert edison(people, "validate").out == ""
    people.edit("edison.yaml", "role: owner", "role: admin")
    done = edison(people, "validate")
    assert (done.code, "no member is an owner" in done.out) == (0, True), done.all
    assert done.out.startswith("edison.yaml:4:3: warning: ")
    assert edison(people, "validate", "--strict").code == 2


def test_ten_thousand_tokens_are_found_listed_and_revoked(edison: Edison, people: Folder) -> None:
    file, first = accounts(people).file, "edison_token_first"
    file.put_token(
        Token("first", "bob", "mine", "2026-01-01T00:00:00Z", None, None), _hash(first), print
    )
    with closing(sqlite3.connect(file.path)) as connection:
        rows = (
            (
                _hash(str(n)),
                f"{n:08x}",
                "bob",
                "",
                f"2026-02-{n:06}",
                None,
                None,
            )
            for n in range(10_000)
        )
        connection.executemany("insert into token values (?, ?, ?, ?, ?, ?, ?)", rows)
        connection.commit()
        for where in ("sha256 = x'00'", "id = 'x'", "name in ('bob')"):
            plan = connection.execute(f"explain query plan select * from token where {where}")
            assert "SEARCH" in plan.fetchall()[0][3], "no scan, however many there are"
    found = accounts(people).by_token(first)
    assert found is not None
    assert found.name == "bob"
    page = json.loads(edison(people, "roles", "tokens", "--json").out)
    assert (len(page["tokens"]), page["total"], page["pages"]) == (100, 10_001, 101)
    assert page["tokens"][0]["id"] == "first"
    last = json.loads(edison(people, "roles", "tokens", "BOB", "--page", "101", "--json").out)
    assert [each["id"] for each in last["tokens"]] == ["0000270f"]
    beyond = edison(people, "roles", "tokens", "--page", "102")
    assert (beyond.code, "the last one is --page 101" in beyond.err) == (2, True)
    assert "page 1 of 101, 10,001 tokens" in edison(people, "roles", "tokens").err
    assert json.loads(edison(people, "roles", "tokens", "ada", "--json").out)["total"] == 0
    assert "10,001 tokens" in edison(people, "roles", "list").out
    assert edison(people, "roles", "revoke", "first").code == 0
    assert accounts(people).by_token(first) is None
    assert "10,000 tokens are removed" in edison(people, "roles", "revoke", "bob").out
    assert file.count_tokens() == 0
    (row, *_) = json.loads(edison(people, "admin", "audit", "--json").out)["rows"]
    assert (row["before"]["count"], len(row["before"]["tokens"])) == (10_000, 20)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
