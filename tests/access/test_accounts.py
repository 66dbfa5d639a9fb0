"""Who gets in, how often they may try, and what is kept of it."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
import stat
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.access.accounts import (
    AUTH_FILE,
    LISTED,
    Accounts,
    SignInFailure,
    SignInSuccess,
    hash_password,
    network_key,
    refuse_weak,
    verify_password,
)
from edison_ci.access.site import Role, Site, open_site
from edison_ci.errors import EdisonError, UsageError
from edison_ci.store.audit import verify_audit
from edison_ci.store.database import open_database

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.daily

PASSWORD = "correct horse battery staple"
CHEAP = (2, 8, 1)
"""What takes a quarter of a second is not what is looked at here."""
START = dt.datetime(2026, 11, 15, 12, tzinfo=dt.UTC)
MEMBERS = """members:
  - {github: Ada, email: ada@example.com, role: owner}
  - {github: bob, role: reviewer}
"""


class World:
    """A project with people, and a clock that is moved by hand."""

    def __init__(self, root: Path) -> None:
        self.root, self.now = root, START
        self.members(MEMBERS)
        open_database(root / ".edison" / "results.db").close()

    def members(self, text: str) -> None:
        (self.root / "edison.yaml").write_text(f"version: 1\nproject: notes\n{text}")

    @property
    def accounts(self) -> Accounts:
        """Opened anew, as after a restart."""
        site = Site(self.root, open_site(self.root).file, clock=lambda: self.now)
        return Accounts(site, cost=CHEAP)

    def later(self, **passed: float) -> None:
        self.now += dt.timedelta(**passed)

    def sign_in(
        self, name: str = "bob", password: str = PASSWORD, address: str = "192.0.2.1", **more: Any
    ) -> SignInSuccess | SignInFailure:
        return self.accounts.sign_in(name, password, address=address, **more)

    def entered(self, name: str = "bob", **more: Any) -> SignInSuccess:
        signed = self.sign_in(name, **more)
        assert isinstance(signed, SignInSuccess)
        return signed

    def audit(self) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.root / ".edison" / "results.db")) as connection:
            assert verify_audit(connection).broken is None
            sql = "select actor, known_by, action, entity, after from audit order by seq"
            return connection.execute(sql).fetchall()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_ACTOR", "ada")
    world = World(tmp_path)
    world.accounts.set_password("bob", PASSWORD)
    return world


def test_a_member_signs_in_by_any_name_and_is_known_by_the_session(world: World) -> None:
    world.accounts.set_password("ADA@example.com", PASSWORD)
    for name in ("ada", "Ada", " ada@EXAMPLE.com "):
        signed = world.entered(name)
        actor = world.accounts.by_session(signed.cookie)
        assert actor is not None
        assert (actor.name, actor.role, actor.identity.known_by) == ("Ada", Role.OWNER, "web")
    assert world.accounts.by_session(signed.cookie[:-1]) is None
    assert world.accounts.by_session("") is None


@pytest.mark.parametrize(("remember", "days"), [(False, 7), (True, 30)])
def test_a_session_ends_by_itself(world: World, remember: bool, days: int) -> None:
    signed = world.entered(remember=remember)
    assert signed.lasts == dt.timedelta(days=days)
    world.later(days=days, seconds=-1)
    assert world.accounts.by_session(signed.cookie) is not None
    world.later(seconds=1)
    assert world.accounts.by_session(signed.cookie) is None


def test_a_clock_that_jumps_prolongs_no_session_and_closes_no_account(world: World) -> None:
    before = world.entered()
    world.later(days=400)
    assert world.accounts.by_session(before.cookie) is None
    ahead = world.entered()
    for _ in range(5):
        world.sign_in(password="wrong", address="198.51.100.1")
    _, secret = world.accounts.new_token("bob", label="", days=3)
    world.later(days=-400)  # somebody has set it right
    assert world.accounts.by_session(ahead.cookie) is None
    assert world.accounts.by_token(secret) is not None
    assert world.sign_in() == SignInFailure(wait_s=900)
    world.later(minutes=15)
    after = world.entered()
    world.later(hours=-2)
    assert world.accounts.by_session(after.cookie) is not None
    with closing(sqlite3.connect(world.root / ".edison" / "results.db")) as connection:
        chain = verify_audit(connection)
    assert (chain.broken, len(chain.jumps)) == (None, 1)


def test_whoever_is_no_longer_a_member_is_out_at_once(world: World) -> None:
    signed, (_, token) = world.entered(), world.accounts.new_token("bob", label="", days=None)
    world.members(MEMBERS.replace("reviewer", "viewer"))
    actor = world.accounts.by_session(signed.cookie)
    assert actor is not None
    assert actor.role is Role.VIEWER
    world.members("members: [{github: ada, role: owner}]\n")
    assert world.accounts.by_session(signed.cookie) is None
    assert world.accounts.by_token(token) is None
    assert isinstance(world.sign_in(), SignInFailure)


def test_a_new_password_ends_every_session(world: World) -> None:
    first, second = world.entered(), world.entered()
    assert first.cookie != second.cookie
    assert world.accounts.set_password("bob", "another long password") == 2
    assert world.accounts.by_session(first.cookie) is None
    assert world.accounts.by_session(second.cookie) is None
    assert world.sign_in() == SignInFailure()
    assert isinstance(world.sign_in(password="another long password"), SignInSuccess)


def test_signing_out_ends_one_session_or_all(world: World) -> None:
    cookies = []
    for _ in range(4):
        signed = world.entered()
        cookies.append(signed.cookie)
    assert world.accounts.sign_out(signed.actor, cookies[0]) == 1
    assert world.accounts.by_session(cookies[0]) is None
    assert world.accounts.by_session(cookies[1]) is not None
    assert world.accounts.sign_out(signed.actor, cookies[1], everywhere=True) == 3
    assert [world.accounts.by_session(each) for each in cookies] == [None] * 4
    assert world.accounts.sign_out(signed.actor, cookies[1]) == 0


def test_the_oldest_of_many_sessions_end(world: World) -> None:
    cookies = []
    for _ in range(21):
        world.later(seconds=1)
        signed = world.entered()
        cookies.append(signed.cookie)
    assert world.accounts.by_session(cookies[0]) is None
    assert all(world.accounts.by_session(each) for each in cookies[1:])


# --- attempts -------------------------------------------------------------------------------------


def test_five_failures_close_an_account_for_a_quarter_of_an_hour(world: World) -> None:
    for number in range(5):
        assert world.sign_in(password="wrong", address=f"192.0.2.{number}") == SignInFailure()
        world.later(minutes=1)
    blocked = world.sign_in(address="198.51.100.1")  # the right password does not help
    assert blocked == SignInFailure(wait_s=600)
    world.later(minutes=10)
    assert isinstance(world.sign_in(address="198.51.100.1"), SignInSuccess)


def test_five_failures_close_an_address_for_every_account(world: World) -> None:
    for number in range(5):
        assert world.sign_in(f"nobody-{number}") == SignInFailure()
    assert world.sign_in() == SignInFailure(wait_s=900)
    assert isinstance(world.sign_in(address="192.0.2.2"), SignInSuccess)
    # Success forgets the failures of the account, not those of the address.
    assert world.sign_in() == SignInFailure(wait_s=900)


def test_accounts_that_do_not_exist_are_closed_like_others(world: World) -> None:
    answers = []
    for name in ("bob", "nobody"):
        found = [world.sign_in(name, "wrong", f"10.{len(name)}.0.{n}") for n in range(6)]
        answers.append(found)
    assert answers[0] == answers[1] == [SignInFailure()] * 5 + [SignInFailure(wait_s=900)]


def test_success_forgets_the_failures_of_the_account(world: World) -> None:
    for number in range(4):
        world.sign_in(password="wrong", address=f"192.0.2.{number}")
    assert isinstance(world.sign_in(address="198.51.100.1"), SignInSuccess)
    for number in range(4):
        assert world.sign_in(password="wrong", address=f"203.0.113.{number}") == SignInFailure()
    assert isinstance(world.sign_in(address="198.51.100.1"), SignInSuccess)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("::1", "::/64"),
        ("192.0.2.1:50123", "192.0.2.1"),
        ("[2001:db8:1:2::9]:443", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::9]", "2001:db8:1:2::/64"),
        ("nonsense", "unknown"),
        ("192.0.2.1:", "unknown"),
        ("[nonsense]:443", "unknown"),
    ],
)
def test_attempts_are_counted_for_a_network(address: str, network: str) -> None:
    assert network_key(address) == network


def test_a_flood_of_attempts_is_audited_once(world: World) -> None:
    before = len(world.audit())
    for _ in range(50):
        world.sign_in(password="wrong")
    rows = world.audit()[before:]
    assert len(rows) == 6
    assert {row[2] for row in rows} == {"refused: sign in"}
    assert json.loads(rows[-1][4]) == {"from": "192.0.2.1", "why": "too many attempts"}


def test_a_flood_from_everywhere_is_listed_up_to_a_limit_and_then_counted(world: World) -> None:
    before = len(world.audit())
    for number in range(LISTED + 30):
        world.sign_in(f"n{number}", "wrong", address=f"198.51.100.{number}")
    assert len(world.audit()) - before == LISTED
    world.later(minutes=16)
    world.entered()
    *_, counted, signed = world.audit()
    assert (counted[2], signed[2]) == ("refused: sign in", "sign in")
    told = json.loads(counted[4])
    assert (told["count"], told["since"]) == (30, "2026-11-15T12:00:00.000Z")
    assert told["why"] == "30 more times in the 15 minutes from 2026-11-15T12:00:00.000Z"


def test_a_wrong_token_is_audited_and_a_right_one_is_how_its_actor_is_known(world: World) -> None:
    _, secret = world.accounts.new_token("bob", label="", days=1)
    actor = world.accounts.by_token(secret)
    assert actor is not None
    assert actor.identity.known_by == "token"
    world.later(days=2)
    assert world.accounts.by_token(secret) is None
    assert world.audit()[-1][0] == "bob"
    assert world.accounts.by_token("edison_token_x") is None
    actor_name, _, action, _, after = world.audit()[-1]
    assert (actor_name, action) == ("somebody", "refused: sign in")
    assert json.loads(after)["why"] == "the token is not valid"


# --- tokens ---------------------------------------------------------------------------------------


def test_a_token_lets_in_until_it_runs_out_or_is_revoked(world: World) -> None:
    token, secret = world.accounts.new_token("bob", label="ci", days=3)
    other, kept = world.accounts.new_token("bob", label="", days=None)
    actor = world.accounts.by_token(secret)
    assert actor is not None
    assert (actor.name, actor.role) == ("bob", Role.REVIEWER)
    world.later(days=3)
    assert world.accounts.by_token(secret) is None
    assert world.accounts.by_token(kept) is not None
    assert [each.id for each in world.accounts.revoke(other.id)] == [other.id]
    assert world.accounts.by_token(kept) is None
    with pytest.raises(UsageError, match="no token"):
        world.accounts.revoke(other.id)
    assert [each.id for each in world.accounts.file.tokens()] == [token.id]


def test_revoking_a_name_takes_everything(world: World) -> None:
    signed, (_, secret) = world.entered(), world.accounts.new_token("bob", label="", days=None)
    world.members("members: [{github: ada, role: owner}]\n")  # also of somebody who left
    assert len(world.accounts.revoke("BOB")) == 1
    world.members(MEMBERS)
    assert world.accounts.by_token(secret) is None
    assert world.accounts.by_session(signed.cookie) is None
    assert world.sign_in() == SignInFailure()


# --- who may --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actor", "name", "allowed"),
    [
        ("bob", "bob", True),
        ("bob", "ada", False),
        ("cy", "bob", True),
        ("cy", "ada", False),
        ("ada", "cy", True),
        ("stranger", "bob", False),
    ],
)
def test_everybody_looks_after_themselves_and_admins_after_all_but_owners(
    world: World, monkeypatch: pytest.MonkeyPatch, actor: str, name: str, allowed: bool
) -> None:
    world.members(MEMBERS + "  - {github: cy, role: admin}\n")
    monkeypatch.setenv("GITHUB_ACTOR", actor)
    done = []
    for do in (
        lambda: world.accounts.set_password(name, PASSWORD),
        lambda: world.accounts.new_token(name, label="", days=None),
    ):
        try:
            do()
        except EdisonError as error:
            done.append(error.code)
        else:
            done.append("done")
    assert done == (["done"] * 2 if allowed else ["role"] * 2)
    refused = [row for row in world.audit() if row[2].startswith("refused: roles")]
    assert len(refused) == (0 if allowed else 2)


# --- what is kept ---------------------------------------------------------------------------------


def test_nothing_that_is_kept_lets_anybody_in(world: World) -> None:
    signed, (_, secret) = world.entered(), world.accounts.new_token("bob", label="ci", days=1)
    world.sign_in("Tr0ub4dor-typed-as-name", "wrong")
    path = world.root / AUTH_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    kept = b"".join(each.read_bytes() for each in sorted((world.root / ".edison").iterdir()))
    for canary in (PASSWORD, signed.cookie, secret, "Tr0ub4dor-typed-as-name"):
        assert canary.encode() not in kept
        assert canary.encode().hex().encode() not in kept
    words = [(row[0], row[1], row[2], row[3]) for row in world.audit()]
    assert words == [
        ("ada", "github", "roles passwd", "bob"),
        ("bob", "web", "sign in", ""),
        ("ada", "github", "roles token", "bob"),
        ("somebody", "nobody", "refused: sign in", ""),
    ]


def test_the_file_is_for_its_owner_alone(world: World, tmp_path: Path) -> None:
    path = world.root / AUTH_FILE
    path.chmod(0o644)
    world.sign_in()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    aside = tmp_path / "aside.db"
    path.rename(aside)
    path.symlink_to(aside)
    with pytest.raises(UsageError, match="not a file of yours"):
        world.sign_in()
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table password (name text)")
    with pytest.raises(UsageError, match="not an account file"):
        world.sign_in()


@pytest.mark.parametrize(
    ("password", "reason"),
    [
        ("elevenchars", "at least 12"),
        ("x" * 1_001, "at most 1,000"),
        ("abababababab", "5 different"),
        ("Ada@Example.com", "name of the account"),
        ("ada.lovelace.1", "name of the account"),
    ],
)
def test_weak_passwords_are_refused(password: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        refuse_weak(password, ["ada@example.com", "ada.lovelace.1@example.com"])


@pytest.mark.nightly
def test_passwords_are_hashed_slowly_with_salt_and_their_cost() -> None:
    kept = hash_password("ada", "pässword of twelve", "now")
    assert kept.cost == (2**15, 8, 3)
    assert verify_password("pa\u0308ssword of twelve", kept)  # however the letter is typed
    first, second = (hash_password("ada", PASSWORD, "now", cost=CHEAP) for _ in range(2))
    assert first.hash != second.hash
    assert not verify_password("passwort of twelve", first)
    assert not verify_password("anything", None, cost=CHEAP)


def test_a_file_of_the_version_before_gets_its_new_table(world: World) -> None:
    accounts = world.accounts
    accounts.set_password("ada@example.com", PASSWORD)
    with closing(sqlite3.connect(world.root / AUTH_FILE)) as connection:
        connection.executescript("drop table invitation; pragma user_version = 1")
    member = accounts.member("ada@example.com")
    _, key = accounts.invite(member, days=1)
    assert accounts.invited(key) == member
    assert accounts.access_of(member).password_since is not None, "nothing is lost"


def test_an_invitation_sets_a_password_once_and_in_time(world: World) -> None:
    member = world.accounts.member("bob")
    _, key = world.accounts.invite(member, days=7)
    world.now += dt.timedelta(days=7, minutes=-1)
    with pytest.raises(UsageError, match="at least 12 characters"):
        world.accounts.accept(key, "short")
    assert world.accounts.accept(key, PASSWORD) == member
    assert isinstance(world.accounts.sign_in("bob", PASSWORD, address="127.0.0.1"), SignInSuccess)
    with pytest.raises(UsageError, match="was used"):
        world.accounts.accept(key, f"{PASSWORD} again")
    _, late = world.accounts.invite(member, days=7)
    world.now += dt.timedelta(days=7, minutes=1)
    with pytest.raises(UsageError, match="this invitation was valid until 20"):
        world.accounts.accept(late, PASSWORD)


def test_an_invitation_is_void_for_another_role(world: World) -> None:
    _, key = world.accounts.invite(world.accounts.member("bob"), days=7)
    world.members(MEMBERS.replace("role: reviewer", "role: owner"))
    with pytest.raises(UsageError, match="is not a reviewer of this project"):
        world.accounts.accept(key, PASSWORD)
