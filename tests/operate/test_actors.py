"""Who acts, and what they may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import pytest

from edison_ci.config import project
from edison_ci.config.project import Member
from edison_ci.errors import ExitCode, RoleError
from edison_ci.operate.actors import (
    Actor,
    Identity,
    Role,
    git_identity,
    identify,
    refuse_below,
    role_of,
)

if TYPE_CHECKING:
    from tests.conftest import Folder

ADA = Member(github="ada", role="owner")
BO = Member(email="bo@example.com", role="reviewer")
CY = Member(github="Cy-99", email="cy@example.com", role="editor")
MEMBERS = (ADA, BO, CY)


def test_the_roles_are_those_of_the_file_in_their_order() -> None:
    assert [role.word for role in Role] == list(get_args(project.Role))
    assert Role.VIEWER < Role.REVIEWER < Role.EDITOR < Role.ADMIN < Role.OWNER


def test_github_says_who_acts_inside_an_action_only() -> None:
    git = Identity("git", email="bo@example.com")
    environment = {"GITHUB_ACTOR": "ada", "GITHUB_ACTIONS": "true"}
    assert identify(environment, git) == Identity("github", login="ada")
    assert identify({"GITHUB_ACTOR": "ada"}, git) == git
    assert identify({"GITHUB_ACTIONS": "true"}, git) == git
    assert identify({}) == Identity("nobody")


@pytest.mark.parametrize(
    ("identity", "role"),
    [
        (Identity("github", login="ada"), Role.OWNER),
        (Identity("github", login="ADA"), Role.OWNER),
        (Identity("git", email="Bo@Example.com"), Role.REVIEWER),
        (Identity("git", email="cy@example.com"), Role.EDITOR),
        (Identity("git", email="12345+cy-99@users.noreply.github.com"), Role.EDITOR),
        (Identity("git", email="ada@users.noreply.github.com"), Role.OWNER),
        (Identity("git", email="ada@users.noreply.github.com.evil.example"), None),
        (Identity("git", email="ada"), None),
        (Identity("git", name="ada"), None),
        (Identity("github", login="bo@example.com"), None),
        (Identity("github", login="stranger"), None),
        (Identity("nobody"), None),
    ],
    ids=lambda value: getattr(value, "shown", str(value)),
)
def test_a_role_goes_to_the_member_it_was_given_to(identity: Identity, role: Role | None) -> None:
    assert role_of(identity, MEMBERS) == role


def test_without_members_whoever_can_write_the_repository_owns_it() -> None:
    assert role_of(Identity("nobody"), ()) is Role.OWNER


@pytest.mark.parametrize("have", Role)
@pytest.mark.parametrize("needed", Role)
def test_each_role_includes_the_former(have: Role, needed: Role) -> None:
    actor = Actor(Identity("git", email="x@example.com"), have)
    assert actor.may(needed) == (have >= needed)
    if have >= needed:
        refuse_below(actor, needed, "gc")
    else:
        with pytest.raises(RoleError):
            refuse_below(actor, needed, "gc")


def test_a_refusal_says_what_is_needed_who_can_and_how_we_know() -> None:
    actor = Actor(Identity("git", email="bo@example.com"), Role.REVIEWER)
    with pytest.raises(RoleError) as refused:
        refuse_below(actor, Role.EDITOR, "run", MEMBERS)
    error = refused.value
    assert error.message == "run needs an editor; bo@example.com is a reviewer"
    assert error.hint == (
        "ask ada, Cy-99, or change members in edison.yaml "
        "(who you are was told by git config user.email)"
    )
    assert error.exit_code is ExitCode.INVALID


def test_a_stranger_has_no_role_at_all() -> None:
    actor = Actor(Identity("nobody"), None)
    with pytest.raises(RoleError, match="db backup needs a viewer; somebody is not a member"):
        refuse_below(actor, Role.VIEWER, "db backup", MEMBERS)


def test_git_says_who_would_commit(folder: Folder) -> None:
    folder.git("init", "-q")
    assert git_identity(folder.path) is None
    folder.git("config", "user.name", "Bo")
    assert git_identity(folder.path) == Identity("git", name="Bo")
    folder.git("config", "user.email", "bo@example.com")
    found = git_identity(folder.path)
    assert found == Identity("git", email="bo@example.com", name="Bo")
    assert found.shown == "bo@example.com"


def test_outside_a_repository_git_knows_only_the_person(folder: Folder) -> None:
    assert git_identity(folder.path) is None


def test_without_git_nobody_is_known(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder.path))
    assert git_identity(folder.path) is None
