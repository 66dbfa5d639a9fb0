"""Roles are asked for, refusals are written down, and housekeeping has the file for itself."""

from __future__ import annotations

import datetime as dt
import os
import sqlite3
import subprocess
import sys
from itertools import product
from typing import TYPE_CHECKING, get_args

import pytest

from docs.sample import build
from edison_ci.access.site import (
    Actor,
    Identity,
    Role,
    Site,
    find_role,
    git_identity,
    identify,
    open_site,
    require_role,
)
from edison_ci.config import project
from edison_ci.config.project import Member
from edison_ci.errors import BusyError, ConfigError, ExitCode, RoleError, StoreError, UsageError
from edison_ci.features.upkeep.maintenance import (
    CacheSelection,
    clear,
    preview_clear,
    upgrade,
)
from edison_ci.features.upkeep.retention import gc, preview_gc
from edison_ci.store import database
from edison_ci.store.audit import AuditRow, read_audit, verify_audit
from edison_ci.store.database import migrations, stored_version
from edison_ci.store.liveness import ProcessLock, exclusive_access
from tests import forked
from tests.opened import opened
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

MEMBERS = "members:\n  - {github: ada, role: owner}\n  - {email: bo@example.com, role: reviewer}\n"


@pytest.fixture
def site(mini: Folder) -> Site:
    """A project with results, in the middle of 2027."""
    (mini.path / ".edison").mkdir(exist_ok=True)
    build(mini.path / ".edison/results.db")
    return at(mini)


def at(folder: Folder) -> Site:
    found = open_site(folder.path)
    return Site(found.root, found.file, lambda: dt.datetime(2027, 6, 1, tzinfo=dt.UTC))


def as_member(folder: Folder, monkeypatch: pytest.MonkeyPatch, login: str) -> Site:
    folder.write("edison.yaml", f"version: 1\nproject: mini\n{MEMBERS}")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_ACTOR", login)
    return at(folder)


def audit(site: Site) -> list[AuditRow]:
    with opened(site.results) as connection:
        assert verify_audit(connection).broken is None
        return read_audit(connection)


def test_other_files_need_not_be_valid(mini: Folder) -> None:
    mini.write("experiments/hello.yaml", "nonsense: [")
    assert open_site(mini.path).results == mini.path / ".edison/results.db"


def test_edison_yaml_must_be(mini: Folder) -> None:
    mini.write("edison.yaml", "version: 2\n")
    with pytest.raises(ConfigError):
        open_site(mini.path)


def test_a_refusal_is_written_down(
    site: Site, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = as_member(mini, monkeypatch, "eve")
    with pytest.raises(RoleError, match="gc needs an admin; eve is not a member"):
        gc(stranger)
    entry = audit(site)[0].entry
    assert (entry.actor, entry.known_by, entry.action) == ("eve", "github", "refused: gc")
    assert entry.after == "gc needs an admin; eve is not a member"
    assert entry.time == "2027-06-01T00:00:00.000Z"


def test_a_refusal_without_results_makes_none(
    mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = as_member(mini, monkeypatch, "eve")
    with pytest.raises(RoleError):
        stranger.require(Role.EDITOR, "run")
    assert not stranger.results.exists()


def test_a_refusal_stands_though_it_cannot_be_written_down(
    mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    mini.write(".edison/results.db", "not a database" * 20)
    with pytest.raises(RoleError):
        as_member(mini, monkeypatch, "eve").require(Role.EDITOR, "run")


def test_a_role_that_is_enough_is_let_through(
    site: Site, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    actor = as_member(mini, monkeypatch, "Ada").require(Role.OWNER, "cache clear")
    assert (actor.name, actor.role) == ("Ada", Role.OWNER)
    assert len(audit(site)) == 1


# --- gc, clear, export ----------------------------------------------------------------------------


def test_gc_follows_the_settings_and_is_written_down(site: Site) -> None:
    preview = preview_gc(site)
    with opened(site.results) as connection:
        connection.execute("update run set complete = 0")
    gone = gc(site)
    assert preview.texts == 0 and preview.spared_texts == 4
    assert gone.texts == 4
    entry = audit(site)[0].entry
    assert entry.action == "gc"
    assert entry.after["texts"] == 4 and entry.after["cutoff"] == "2027-03-03T00:00:00.000Z"


def test_gc_that_finds_nothing_writes_nothing(site: Site) -> None:
    first = gc(site)
    rows = len(audit(site))
    assert first.texts == 0
    gc(site)
    assert len(audit(site)) == rows


def test_retention_of_zero_days_is_for_ever(site: Site, mini: Folder) -> None:
    mini.write("edison.yaml", "version: 1\nproject: mini\nsettings: {retention_days: 0}\n")
    with opened(site.results) as connection:
        connection.execute("update run set complete = 0")
    assert gc(at(mini)).texts == preview_gc(at(mini)).texts == 0


def test_cases_in_quarantine_are_read_from_their_file(site: Site, mini: Folder) -> None:
    mini.write(
        "quarantine.yaml",
        "cases:\n  - {experiment: support-reply, case: refund, reason: flaky, since: 2026-11-01,"
        " until: 2027-11-01, owner: ada}\n",
    )
    with opened(site.results) as connection:
        connection.execute("update run set complete = 0")
    assert gc(at(mini)).texts == 2


def test_a_quarantine_that_cannot_be_read_stops_gc(site: Site, mini: Folder) -> None:
    mini.write("quarantine.yaml", "cases: [")
    with pytest.raises(ConfigError):
        gc(at(mini))


def test_vacuum_gives_the_room_back(site: Site) -> None:
    connection = sqlite3.connect(site.results, isolation_level=None)
    connection.execute("update run set complete = 0")
    connection.execute("create table ballast as select zeroblob(2000000) as x")
    connection.execute("drop table ballast")
    connection.close()
    before = site.results.stat().st_size
    gc(site, vacuum=True)
    assert site.results.stat().st_size < before - 1_000_000


def test_clearing_is_an_owners_act_and_is_written_down(
    site: Site, mini: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = CacheSelection(everything=True, older_than_days=30)
    assert preview_clear(site, wanted).texts == 4
    assert clear(as_member(mini, monkeypatch, "ada"), wanted).texts == 4
    entry = audit(site)[0].entry
    assert (entry.actor, entry.action) == ("ada", "cache clear")
    assert entry.after == {
        "everything": True,
        "older_than_days": 30,
        "texts": 4,
        "size_bytes": entry.after["size_bytes"],
    }


# --- having the file for oneself ------------------------------------------------------------------


def test_nothing_is_taken_away_while_a_run_lives(site: Site) -> None:
    owner = ProcessLock(site.locks)
    try:
        with pytest.raises(BusyError, match=f"running here, by process {os.getpid()}"):
            gc(site)
    finally:
        owner.close()
    gc(site)


def test_a_lock_that_was_left_by_the_dead_hinders_nobody(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edison_ci.store.liveness._YOUNG_S", PATIENCE_S)
    site.locks.mkdir(exist_ok=True)
    left = site.locks / "owner-1-abc.lock"
    left.touch()
    with pytest.raises(BusyError):
        gc(site)  # it is a moment old: its owner may be about to lock it
    os.utime(left, (1_000, 1_000))
    gc(site)
    assert not left.exists()


def test_a_run_of_another_process_is_seen(site: Site) -> None:
    code = (
        "import sys; from pathlib import Path; from edison_ci.store.liveness import ProcessLock\n"
        "ProcessLock(Path(sys.argv[1])); print('ready', flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", code, str(site.locks)]
    pipe = subprocess.PIPE
    with forked.Popen(words, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for path in site.locks.glob("owner-*.lock"):
            os.utime(path, (1_000, 1_000))
        with pytest.raises(BusyError, match=str(process.pid)):
            clear(site, CacheSelection(everything=True))
        process.kill()
        process.wait(PATIENCE_S)
    assert clear(site, CacheSelection(everything=True)).texts == 4


def test_housekeeping_is_done_by_one_at_a_time(site: Site) -> None:
    with (
        exclusive_access(site.results, site.locks, "db upgrade"),
        pytest.raises(BusyError, match="edison admin db upgrade is running"),
    ):
        gc(site)


def test_locks_that_cannot_be_made_are_a_clear_error(site: Site) -> None:
    site.locks.write_text("a file")
    with pytest.raises(StoreError, match="cannot make"):
        gc(site)


def test_what_fails_half_way_changes_nothing(site: Site) -> None:
    with (
        pytest.raises(ValueError, match="no"),
        exclusive_access(site.results, site.locks, "x") as db,
    ):
        db.execute("delete from answer_text")
        raise ValueError("no")
    assert preview_clear(site, CacheSelection(everything=True)).texts == 4


# --- upgrading ------------------------------------------------------------------------------------


def test_a_file_that_is_up_to_date_stays_as_it_is(site: Site) -> None:
    before = site.results.read_bytes()
    done = upgrade(site)
    assert (done.before, done.after, done.copy) == (1, 1, None)
    assert site.results.read_bytes() == before


def test_an_older_file_is_copied_and_brought_up_to_date(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [*migrations(), "create table later (x integer) strict;\n"]
    monkeypatch.setattr(database, "migrations", lambda: steps)  # a version that is not there yet
    with pytest.raises(UsageError, match="older edison"):
        preview_gc(site)
    done = upgrade(site)
    assert (done.before, done.after) == (1, 2)
    assert done.copy is not None and stored_version(done.copy) == 1
    assert stored_version(site.results) == 2
    assert audit(site)[0].entry.action == "db upgrade"


def test_an_upgrade_that_fails_leaves_the_file_as_it_was(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [*migrations(), "create table later (x integer) strict;\ncreate table run (x);\n"]
    monkeypatch.setattr(database, "migrations", lambda: steps)
    with pytest.raises(Exception, match="already exists"):
        upgrade(site)
    assert stored_version(site.results) == 1
    with opened(site.results) as connection:
        tables = connection.execute("select count(*) from sqlite_schema where name = 'later'")
        assert tables.fetchone() == (0,)


ADA = Member(github="ada", role="owner")
BO = Member(email="bo@example.com", role="reviewer")
CY = Member(github="Cy-99", email="cy@example.com", role="editor")
TEAM = (ADA, BO, CY)


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
    assert find_role(identity, TEAM) == role


def test_without_members_whoever_can_write_the_repository_owns_it() -> None:
    assert find_role(Identity("nobody"), ()) is Role.OWNER


def test_each_role_includes_the_former(subtests: pytest.Subtests) -> None:
    for needed, have in product(Role, repeat=2):
        with subtests.test(have=have, needed=needed):
            actor = Actor(Identity("git", email="x@example.com"), have)
            assert actor.may(needed) == (have >= needed)
            if have >= needed:
                require_role(actor, needed, "gc")
            else:
                with pytest.raises(RoleError):
                    require_role(actor, needed, "gc")


def test_a_refusal_says_what_is_needed_who_can_and_how_we_know() -> None:
    actor = Actor(Identity("git", email="bo@example.com"), Role.REVIEWER)
    with pytest.raises(RoleError) as refused:
        require_role(actor, Role.EDITOR, "run", TEAM)
    error = refused.value
    assert error.message == "run needs an editor; bo@example.com is a reviewer"
    assert error.hint == (
        "ask ada, Cy-99, or change members in edison.yaml "
        "(your identity comes from git config user.email)"
    )
    assert error.exit_code is ExitCode.INVALID


def test_a_stranger_has_no_role_at_all() -> None:
    actor = Actor(Identity("nobody"), None)
    with pytest.raises(RoleError, match="db backup needs a viewer; somebody is not a member"):
        require_role(actor, Role.VIEWER, "db backup", TEAM)


def test_git_says_who_would_commit(folder: Folder) -> None:
    folder.git("init", "-q")
    assert git_identity(folder.path) is None
    folder.git("config", "user.name", "Bo")
    assert git_identity(folder.path) == Identity("git", name="Bo")
    folder.git("config", "user.email", "bo@example.com")
    found = git_identity(folder.path)
    assert found == Identity("git", email="bo@example.com", name="Bo")
    assert found.display_name == "bo@example.com"


def test_outside_a_repository_git_knows_only_the_person(folder: Folder) -> None:
    assert git_identity(folder.path) is None


def test_without_git_nobody_is_known(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder.path))
    assert git_identity(folder.path) is None
