"""edison roles add, set, remove, transfer and invite."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING

import pytest

from edison_ci.access.accounts import Accounts
from edison_ci.access.site import open_site
from edison_ci.errors import UsageError
from tests.features.monitor.mailbox import mailbox

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder
    from tests.features.github.fake_github import FakeGitHub

pytestmark = pytest.mark.daily

MEMBERS = """members:  # who may do what
  - {github: ada, email: ada@example.org, role: owner}  # founder
  # a reviewer since May
  - github: bob
    role: "reviewer"   # part time
  - {email: cy@example.org, role: admin}
"""


@pytest.fixture
def people(repo: Folder) -> Folder:
    repo.edit("edison.yaml", "project: mini\n", f"project: mini\n{MEMBERS}")
    repo.git("commit", "--all", "--quiet", "--message", "members")
    return repo


def roles(folder: Folder) -> dict[str, str]:
    members = open_site(folder.path).file.members
    return {str(member.github or member.email): member.role for member in members}


def as_(folder: Folder, email: str) -> None:
    folder.git("config", "--global", "user.email", email)


def test_members_are_edited_and_everything_else_stays(edison: Edison, people: Folder) -> None:
    before = people.read("edison.yaml")
    done = edison(people, "roles", "add", "dee", "viewer", "--email", "dee@example.org")
    assert (done.code, done.out) == (0, "dee is a member: viewer\n")
    assert "edison roles sync" in done.err
    done = edison(people, "roles", "set", "BOB", "editor", "--json")
    assert json.loads(done.out)["changed"] == {"github": "bob", "role": "editor",
                                              "before": "reviewer"}  # fmt: skip
    added = "  - github: dee\n    email: dee@example.org\n    role: viewer\n"
    text = before.replace('"reviewer"', "editor").replace(
        "role: admin}\n", f"role: admin}}\n{added}")  # fmt: skip
    assert people.read("edison.yaml") == text
    assert edison(people, "roles", "remove", "dee").code == 0
    assert edison(people, "roles", "set", "bob", "reviewer").code == 0
    assert people.read("edison.yaml") == before.replace('"reviewer"', "reviewer")
    rows = json.loads(edison(people, "admin", "audit", "--json").out)["rows"]
    assert [(row["action"], row["entity"]) for row in reversed(rows)] == [
        ("roles add", "dee"), ("roles set", "bob"), ("roles remove", "dee"), ("roles set", "bob"),
    ]  # fmt: skip


def test_the_last_owner_stays(edison: Edison, people: Folder) -> None:
    for words in (["remove", "ada"], ["set", "ada@example.org", "admin"]):
        done = edison(people, "roles", *words)
        assert done.code == 2
        assert "ada is the last owner" in done.err
        assert "edison roles transfer NAME" in done.err
    assert edison(people, "roles", "set", "ada", "owner").code == 0, "nothing to do"
    done = edison(people, "roles", "transfer", "bob")
    assert done.out == "bob is an owner, and ada an admin\n"
    assert roles(people) == {"ada": "admin", "bob": "owner", "cy@example.org": "admin"}
    assert "# founder" in people.read("edison.yaml")
    again = edison(people, "roles", "transfer", "cy@example.org")
    assert (again.code, "roles transfer needs an owner" in again.err) == (2, True)


@pytest.mark.parametrize(
    "words",
    [["add", "eve", "owner"], ["set", "bob", "owner"], ["remove", "ada"], ["set", "ada", "viewer"],
     ["transfer", "bob"]],
)  # fmt: skip
def test_what_concerns_an_owner_needs_one(edison: Edison, people: Folder, words: list[str]) -> None:
    as_(people, "cy@example.org")
    before = people.read("edison.yaml")
    done = edison(people, "roles", *words)
    assert (done.code, "needs an owner; cy@example.org is an admin" in done.err) == (2, True)
    assert people.read("edison.yaml") == before
    assert edison(people, "roles", "add", "eve", "admin").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["add", "@eve", "viewer"], "cannot name a member"),
        (["add", "e ve", "viewer"], "cannot name a member"),
        (["add", "a@b@c", "viewer"], "cannot name a member"),
        (["add", "ADA", "viewer"], "'ADA' is listed twice"),
        (["add", "7+ada@users.noreply.github.com", "viewer"], "is the account 'ada'"),
        (["add", "eve", "viewer", "--email", "cy@example.org"], "is listed twice"),
        (["add", "eve@x.org", "viewer", "--email", "e@x.org"], "is an e-mail address already"),
        (["set", "bo", "viewer"], "did you mean 'bob'?"),
        (["remove", "zoe"], "'zoe' is not a member"),
        (["add", "eve", "king"], "'king' is not one of"),
    ],
)
def test_what_cannot_be_is_refused(
    edison: Edison, people: Folder, words: list[str], said: str
) -> None:
    before = people.read("edison.yaml")
    done = edison(people, "roles", *words)
    assert (done.code, said in done.err) == (2, True), done.err
    assert people.read("edison.yaml") == before


def test_the_first_member_is_an_owner(edison: Edison, repo: Folder) -> None:
    done = edison(repo, "roles", "add", "bob", "viewer")
    assert (done.code, "the first member has to be an owner" in done.err) == (2, True)
    assert edison(repo, "roles", "add", "ada@example.org", "owner").code == 0
    assert edison(repo, "roles", "add", "bob", "viewer").code == 0
    assert roles(repo) == {"ada@example.org": "owner", "bob": "viewer"}


def test_a_first_member_who_is_somebody_else_takes_a_yes(edison: Edison, repo: Folder) -> None:
    before = repo.read("edison.yaml")
    done = edison(repo, "roles", "add", "bob", "owner")
    assert done.code == 2
    assert (
        "nothing is written: bob would be the only member, and you (ada@example.org) would have no "
        "role; only bob could undo it here"
    ) in " ".join(done.err.split())
    assert "--yes" in done.err
    assert repo.read("edison.yaml") == before
    assert edison(repo, "roles", "add", "bob", "owner", "--yes").code == 0
    assert roles(repo) == {"bob": "owner"}
    assert edison(repo, "roles", "add", "cy", "owner").code == 2, "bob has to do it now"


def test_the_question_before_a_first_member_can_be_denied(
    edison: Edison, repo: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = repo.read("edison.yaml")

    class Keyboard(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Keyboard("n\n"))
    done = edison(repo, "roles", "add", "bob", "owner")
    assert done.code != 0
    assert "Add bob? [y/N]" in done.err
    assert repo.read("edison.yaml") == before


def test_enough_reviewers_stay_for_the_approvals(edison: Edison, people: Folder) -> None:
    people.edit("edison.yaml", "members:", "settings: {approvals: 3}\nmembers:")
    done = edison(people, "roles", "set", "bob", "viewer")
    assert done.code == 2
    assert "3 people have to approve, but 2 of the members may" in done.err


def test_an_invitation_is_a_pull_request(
    edison: Edison, people: Folder, bare: Folder, github: FakeGitHub
) -> None:
    people.git("push", "--quiet", "origin", "main")
    before, head = people.read("edison.yaml"), people.git("rev-parse", "HEAD")
    done = edison(people, "roles", "invite", "eve", "reviewer", "--note", "reviews prompts")
    assert done.code == 0, done.all
    assert "Pull request #1 is open, from the branch edison/invite/eve-" in done.out
    pull = github.state.pulls[1]
    assert (pull.title, pull.base) == ("Add eve as reviewer: reviews prompts", "main")
    assert "A merge makes eve a member with this role." in pull.body
    assert "@" not in pull.body.replace("ada@example.org", ""), "nobody is notified"
    changed = bare.git("diff", "--unified=0", "main", pull.head).splitlines()[5:]
    assert changed == ["+  - github: eve", "+    role: reviewer"]
    assert (people.read("edison.yaml"), people.git("rev-parse", "HEAD")) == (before, head)
    again = edison(people, "roles", "invite", "eve", "reviewer", "--json")
    assert json.loads(again.out)["invited"] == {"github": "eve", "role": "reviewer"}
    assert len(github.state.pulls) == 1
    as_(people, "bob@users.noreply.github.com")
    done = edison(people, "roles", "invite", "mallory", "owner")
    assert (done.code, "roles invite needs an editor" in done.err) == (2, True)


def test_an_invitation_with_a_link_is_printed_where_no_mail_can_be_sent(
    edison: Edison, people: Folder
) -> None:
    site = ("--url", "https://edison.example.org/")
    done = edison(people, "roles", "invite", "eve", "viewer", *site, "--days", "3")
    assert done.code == 0, done.all
    *lines, link = done.out.splitlines()
    assert lines[-1].startswith("pass this link on to eve; it works once, until 20")
    assert link.startswith("https://edison.example.org/-/edison/sign-in/invitation?key=")
    accounts = Accounts(open_site(people.path), cost=(2, 8, 1))
    key = link.partition("=")[2]
    with pytest.raises(UsageError, match="eve is not a viewer of this project"):
        accounts.invited(key)
    people.edit("edison.yaml", MEMBERS, f"{MEMBERS}  - {{github: eve, role: viewer}}\n")
    accounts = Accounts(open_site(people.path), cost=(2, 8, 1))
    assert accounts.invited(key).github == "eve"
    again = json.loads(edison(people, "roles", "invite", "eve", "viewer", *site, "--json").out)
    assert "branch" not in again, "she is a member already"
    with pytest.raises(UsageError, match="was used, or replaced by a newer one"):
        accounts.invited(key)
    newer = again["link"].partition("=")[2]
    assert accounts.invited(newer).github == "eve"
    assert newer not in (people.path / ".edison/auth.db").read_bytes().decode("latin-1")


def test_an_invited_person_with_an_address_gets_a_mail(
    edison: Edison, people: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mailbox() as box:
        monkeypatch.setenv("MAIL_HOST", f"127.0.0.1:{box.port}")
        people.edit(
            "edison.yaml",
            "members:",
            "notifications:\n  - name: mail\n    on: [alert]\n    smtp: {host_env: MAIL_HOST, "
            "from: edison@example.org, to: [ops@example.org], starttls: false}\nmembers:",
        )
        people.edit("edison.yaml", "{email: cy@example.org, role: admin}",
                    "{email: cy@example.org, role: viewer}")  # fmt: skip
        words = ("cy@example.org", "viewer", "--url", "https://edison.example.org")
        done = edison(people, "roles", "invite", *words)
        assert done.code == 0, done.all
        assert "cy@example.org was sent this link; it works once, until 20" in done.out
        (mail,) = box.mails
        assert mail["To"] == "cy@example.org"
        assert done.out.splitlines()[-1] in mail.get_content().replace("\n", " ")
        offline = edison(people, "roles", "invite", *words, "--offline")
        assert "pass this link on to cy@example.org" in offline.out
        assert len(box.mails) == 1


@pytest.mark.parametrize(
    "url", ["http://edison.example.org", "edison.example.org", "https://a@b.org", "https://b.org?x"]
)
def test_a_link_to_an_unsafe_address_is_not_made(edison: Edison, people: Folder, url: str) -> None:
    done = edison(people, "roles", "invite", "eve", "viewer", "--url", url)
    assert (done.code, "is not the address of the pages" in done.err) == (2, True)
    assert not (people.path / ".edison/auth.db").exists()


def test_who_proposes_without_being_an_admin_makes_no_link(edison: Edison, people: Folder) -> None:
    people.edit("edison.yaml", 'role: "reviewer"', "role: editor")
    as_(people, "bob@users.noreply.github.com")
    site = ("--url", "https://edison.example.org")
    done = edison(people, "roles", "invite", "eve", "viewer", *site)
    assert done.code == 2
    assert "roles invite needs an admin" in done.err
    assert not (people.path / ".edison/auth.db").exists()
