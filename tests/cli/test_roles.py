"""edison roles: passwords and tokens of members."""

from __future__ import annotations

import io
import json
import os
import pty
import sys
from typing import TYPE_CHECKING

import pytest

from edison_ci.operate.accounts import Accounts
from edison_ci.operate.site import open_site
from edison_ci.store.database import open_database
from tests import forked
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

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
