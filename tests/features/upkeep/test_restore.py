"""A backup is restored whole, what was there is kept, and nothing changes if it cannot be."""

from __future__ import annotations

import datetime as dt
import re
import signal
import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from docs.sample import build
from edison_ci.access.own_results import sign
from edison_ci.access.site import Site, open_site
from edison_ci.errors import BusyError, RoleError, StoreError, UsageError
from edison_ci.features.upkeep.maintenance import make_backup, preview_restore, restore
from edison_ci.results.history_words import audit_sentence
from edison_ci.store.audit import read_audit, verify_audit
from edison_ci.store.database import open_reader
from edison_ci.store.integrity import check_database
from edison_ci.store.liveness import ProcessLock
from tests import forked
from tests.fixed_keys import signing_keys
from tests.opened import opened
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

BACKUP = "results-20270601T120000Z.db"


@pytest.fixture
def site(mini: Folder) -> Site:
    """A project with results and a backup, whose results have changed since."""
    (mini.path / ".edison").mkdir(exist_ok=True)
    build(mini.path / ".edison/results.db")
    found = open_site(mini.path)
    site = Site(found.root, found.file, lambda: dt.datetime(2027, 6, 1, 12, tzinfo=dt.UTC))
    assert make_backup(site, 30).path.name == BACKUP
    with opened(site.results) as connection:
        connection.execute("delete from event")
        connection.execute("update run set experiment = 'changed since'")
    return site


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return every row of every table, without those of the audit."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        listed = connection.execute("select name from sqlite_schema where type = 'table'")
        tables = [name for (name,) in listed if name not in ("audit", "sqlite_sequence")]
        return {
            table: sorted(connection.execute(f"select * from {table}"), key=repr)
            for table in tables
        }


def test_a_restored_file_equals_its_backup(site: Site) -> None:
    backup, before = site.backups / BACKUP, rows(site.results)
    assert rows(backup) != before
    done = restore(site, backup)
    assert rows(site.results) == rows(backup)
    assert done.kept is not None
    assert rows(done.kept) == before, "what was there is kept"
    with closing(open_reader(site.results)) as connection:
        assert all(found.ok for found in check_database(connection))
        assert verify_audit(connection).broken is None
        newest, *older = read_audit(connection)
    with closing(open_reader(backup)) as connection:
        assert older == read_audit(connection), "the audit goes on where the backup was"
    assert audit_sentence(newest.entry).endswith(f" restored .edison/results.db from {BACKUP}.")
    assert newest.entry.after["kept"] == done.kept.name
    assert list(site.results.parent.glob(".*.restore*")) == []


def test_readers_see_the_restored_results_at_once(site: Site) -> None:
    with closing(open_reader(site.results)) as reader:
        sql = "select distinct experiment from run"
        assert reader.execute(sql).fetchall() == [("changed since",)]
        restore(site, site.backups / BACKUP)
        assert reader.execute(sql).fetchall() != [("changed since",)]


def test_nothing_is_restored_while_a_run_lives(site: Site) -> None:
    before, living = rows(site.results), ProcessLock(site.locks)
    try:
        with pytest.raises(BusyError):
            restore(site, site.backups / BACKUP)
    finally:
        living.close()
    assert rows(site.results) == before


def test_a_damaged_backup_is_refused(site: Site) -> None:
    backup, before = site.backups / BACKUP, rows(site.results)
    with opened(backup) as connection:
        connection.execute("update answer_text set text = 'another'")
    with pytest.raises(StoreError, match="is damaged: texts: "):
        restore(site, backup)
    backup.write_bytes(backup.read_bytes()[:-4096])
    with pytest.raises(StoreError, match="cut off"):
        restore(site, backup)
    backup.write_bytes(b"no database at all" * 100)
    with pytest.raises(UsageError, match="is not a database"):
        restore(site, backup)
    assert rows(site.results) == before
    assert [path.name for path in site.backups.glob("before-*")] == []


@pytest.mark.parametrize("damage", ["first page", "other page", "not a database", "missing"])
def test_a_damaged_or_missing_file_is_replaced(site: Site, damage: str) -> None:
    with opened(site.results) as connection:
        connection.execute("pragma wal_checkpoint(truncate)")
    raw = bytearray(site.results.read_bytes())
    if damage == "first page":
        raw[100:2000] = b"\xff" * 1900
    elif damage == "other page":
        raw[8192:20480] = b"\xff" * 12288
    else:
        raw = bytearray(b"gone" * 3000)
    site.results.write_bytes(bytes(raw))
    if damage == "missing":
        site.results.unlink()
    assert preview_restore(site, site.backups / BACKUP).backup.runs > 0
    done = restore(site, site.backups / BACKUP)
    assert rows(site.results) == rows(site.backups / BACKUP)
    if damage == "missing":
        assert done.kept is None
    else:
        assert done.kept is not None
        assert done.kept.read_bytes() == bytes(raw), "for whoever can still read it"


def test_only_an_owner_restores(site: Site, mini: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    mini.write("edison.yaml", "version: 1\nproject: mini\nmembers: [{github: ada, role: admin}]\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_ACTOR", "ada")
    before = rows(site.results)
    with pytest.raises(RoleError, match="db restore needs an owner"):
        restore(open_site(mini.path), site.backups / BACKUP)
    assert rows(site.results) == before


KILLED = """
import os, signal, sqlite3, sys
from pathlib import Path
from edison_ci.features.upkeep.maintenance import restore
from edison_ci.access.site import open_site

real = sqlite3.connect

class Dying(sqlite3.Connection):
    def backup(self, target, **options):
        def die(status, remaining, total):
            if remaining:
                os.kill(os.getpid(), signal.SIGKILL)
        super().backup(target, pages=5, progress=die)

sqlite3.connect = lambda *args, **options: real(*args, **{**options, "factory": Dying})
restore(open_site(Path(sys.argv[1])), Path(sys.argv[2]))
"""


def test_a_killed_restore_changes_nothing(site: Site) -> None:
    before = rows(site.results)
    command = [sys.executable, "-c", KILLED, str(site.root), str(site.backups / BACKUP)]
    done = forked.run(command, timeout=PATIENCE_S, check=False)
    assert done.returncode == -signal.SIGKILL
    assert rows(site.results) == before
    restore(site, site.backups / BACKUP)
    assert rows(site.results) == rows(site.backups / BACKUP)
    assert list(site.results.parent.glob(".*.restore*")) == [], "what the other left is gone"


# --- the command ----------------------------------------------------------------------------------


def test_the_command_says_what_it_replaces_and_keeps(
    edison: Edison, mini: Folder, site: Site
) -> None:
    refused = edison(mini, "admin", "db", "restore", BACKUP)
    assert refused.code == 2
    content = r"2 runs, newest 2026-11-15 \d\d:\d\d UTC\n"
    assert re.search(rf"this replaces {content}by {re.escape(BACKUP)}: {content}", refused.err)
    assert "run with --yes" in refused.err
    done = edison(mini, "admin", "db", "restore", BACKUP, "--yes")
    assert done.code == 0
    first, second = done.out.splitlines()
    assert first.startswith("restored .edison/results.db: 2 runs, newest 2026-11-15 ")
    assert second.startswith("what was there is kept: .edison/backups/before-restore-")
    assert rows(site.results) == rows(site.backups / BACKUP)


@pytest.mark.parametrize("signed", ["no", "a stranger", "the team", "the team, changed since"])
def test_a_file_from_elsewhere_is_signed_or_said_to_be_ones_own(
    edison: Edison, mini: Folder, site: Site, signed: str
) -> None:
    keys, file = signing_keys("team"), mini.path.parent / "results-theirs.db"
    (site.backups / BACKUP).rename(file)
    mini.write(".edison/trust.yaml", f"results: {{public_keys: ['{keys.public}']}}\n")
    if signed != "no":
        sign(file, (keys if "team" in signed else signing_keys("stranger")).private)
    if "changed" in signed:
        with opened(file) as connection:
            connection.execute("update run set experiment = 'forged'")
    before = rows(site.results)
    done = edison(mini, "admin", "db", "restore", str(file), "--yes")
    if signed == "the team":
        assert done.code == 0
    else:
        assert done.code == 2
        assert "has no signature that is trusted here" in done.err
        assert rows(site.results) == before
        (mini.path / ".edison/backups/link.db").symlink_to(file)
        assert edison(mini, "admin", "db", "restore", "link.db", "--yes").code == 2
        assert edison(mini, "admin", "db", "restore", str(file), "--as-own", "--yes").code == 0
    assert rows(site.results) == rows(file)


def test_a_backup_that_is_not_there_is_named_with_those_that_are(
    edison: Edison, mini: Folder, site: Site
) -> None:
    done = edison(mini, "admin", "db", "restore", "results-1999.db")
    assert done.code == 2
    assert "there is no backup 'results-1999.db'" in done.err
    assert f"the newest are {BACKUP}" in done.err
