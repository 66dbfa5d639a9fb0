"""Faults 8, 15, 17, 18 and 22 as a run meets them: files half written, full, shut, held, foreign.

What the file itself does is in tests/store/test_database_faults.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import Folder
from tests.faults.stage import Stage, copied
from tests.loopback.script import rule
from tests.opened import opened
from tests.timing import PATIENCE_S, poll

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.conftest import MakeStage
    from tests.faults.stage import Running

pytestmark = pytest.mark.daily


# --- 8: half a file -------------------------------------------------------------------------------


@pytest.mark.nightly
def test_fault_08_an_export_is_the_old_file_or_the_new_one(stage: Stage) -> None:
    target, fresh = (stage.folder.path / name for name in ("file.jsonl", "fresh.jsonl"))
    assert stage.edison("run", "--limit", "2").code == 0
    assert stage.edison("admin", "cache", "export", str(target)).code == 0
    old = target.read_bytes()
    assert stage.edison("run").code == 0
    assert stage.edison("admin", "cache", "export", str(fresh)).code == 0
    new = fresh.read_bytes()
    assert new != old

    left = set()
    for point in ("fsync", "replace:before", "replace:after"):
        for nth in (1, 2, 3):
            target.write_bytes(old)
            done = stage.edison("admin", "cache", "export", str(target), point=point, nth=nth)
            if done.code == 0:
                break
            assert done.code == -signal.SIGKILL, done.all
            left.add(target.read_bytes())
    assert left == {old, new}


@pytest.mark.nightly
def test_fault_08_a_backup_is_whole_or_not_there(stage: Stage) -> None:
    assert stage.edison("run").code == 0
    folder = stage.folder.path / ".edison/backups"
    for point in ("fsync", "replace:before", "replace:after"):
        done = stage.edison("admin", "db", "backup", point=point)
        assert done.code == -signal.SIGKILL, done.all
        there = list(folder.glob("[!.]*.db"))
        assert bool(there) is (point == "replace:after")
        for made in there:
            connection = sqlite3.connect(made)
            assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
            connection.close()


@pytest.mark.nightly
def test_fault_08_a_document_that_was_not_finished_is_no_document(stage: Stage) -> None:
    """`run --json > file` is one write at the very end; a run killed before leaves nothing."""
    done = stage.edison("run", "--json", point="move_run:done", nth=4)
    assert (done.code, done.out) == (-signal.SIGKILL, "")
    told = stage.run_json("resume")
    assert told["status"] == "COMPLETED"


# --- 15: a full disk ------------------------------------------------------------------------------


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of 4 MB; where it may not be mounted, the test is left to the limit of file sizes."""
    place = Path(tempfile.mkdtemp(prefix="edison-disk-"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        place.rmdir()
        pytest.skip("no right to mount; see the test with a limit on file sizes")
    yield place
    subprocess.run(["umount", str(place)], check=True)
    place.rmdir()


def fill(place: Path, *, leave: int) -> Path:
    """Leave so many bytes on a disk."""
    ballast = place / "ballast"
    free = os.statvfs(place)
    size = free.f_bavail * free.f_frsize - leave
    with ballast.open("wb") as stream:
        stream.write(b"\0" * max(size, 0))
    return ballast


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kilobytes", "on"),
    [(0, ""), (40, ""), (120, ""), (200, "local:2"), (280, ""), (360, ""), (440, ""), (600, "")],
)
def test_fault_15_a_full_disk_is_a_clean_error_and_resumable(
    stage: Stage, small_disk: Path, kilobytes: int, on: str
) -> None:
    expected = stage.undisturbed()
    on_disk = copied(stage, small_disk / "project")
    ballast = fill(small_disk, leave=kilobytes * 1024)
    done = on_disk.edison("run", *(("--on", on) if on else ()))
    assert done.code in (2, 3), done.all
    assert "bug in edison" not in done.err, done.err
    assert "Traceback" not in done.err
    assert len(done.err.strip()) > 0
    ballast.unlink()
    finished(on_disk, expected)


def finished(stage: Stage, expected: list[tuple[Any, ...]]) -> None:
    if stage.database.exists():
        stage.check_file()
    done = stage.edison("resume" if stage.count("run") else "run")
    assert done.code == 0, done.all
    stage.check_settled(lost=4)
    assert stage.results() == expected


@pytest.mark.nightly
@pytest.mark.parametrize("kilobytes", [50, 150, 250, 390])
def test_fault_15_a_limit_on_file_sizes_is_a_clean_error_and_resumable(
    stage: Stage, kilobytes: int
) -> None:
    """The same where nobody may mount a disk: a write beyond the limit fails with EFBIG."""
    expected = stage.undisturbed()
    done = stage.edison("run", file_bytes=kilobytes * 1024)
    assert done.code in (0, 3), done.all
    assert "bug in edison" not in done.err and "rollback" not in done.err, done.err
    if done.code == 3:
        finished(stage, expected)


# --- 17: nothing may be written -------------------------------------------------------------------


@pytest.fixture
def readable(make_stage: MakeStage) -> Iterator[Stage]:
    """A project that everybody may enter."""
    stage = make_stage()
    place = Path(tempfile.mkdtemp())
    shutil.copytree(stage.folder.path, place / "project")
    for path in (place, *place.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    yield Stage(Folder(place / "project"), stage.server, stage.stable, stage.shape, stage.logs)
    for path in (place, *place.rglob("*")):
        path.chmod(0o755)
    shutil.rmtree(place)


@pytest.mark.parametrize("what", ["project", "folder", "locks", "file"])
def test_fault_17_what_may_not_be_written_is_told_before_any_call(
    readable: Stage, what: str
) -> None:
    inner = readable.folder.path / ".edison"
    if what != "project":
        inner.mkdir(mode=0o777)
        inner.chmod(0o777)
    if what == "file":
        assert readable.edison("run", "--limit", "1").code == 0
        for path in inner.rglob("*"):
            path.chmod(0o777 if path.is_dir() else 0o666)
        readable.database.chmod(0o444)
    elif what == "locks":
        (inner / "locks").mkdir(mode=0o555)
    elif what == "folder":
        inner.chmod(0o555)
    before = readable.server.chats
    done = readable.edison("run", without_rights=True)
    assert done.code in (2, 3), done.all
    assert "bug in edison" not in done.err
    assert "cannot" in done.err
    assert readable.server.chats == before


# --- 18: held by another program ------------------------------------------------------------------


@contextmanager
def held(stage: Stage) -> Iterator[None]:
    """Hold the file, as another program might."""
    connection = sqlite3.connect(stage.database, isolation_level=None, timeout=PATIENCE_S)
    try:
        connection.execute("begin immediate")
        yield
        connection.execute("rollback")
    finally:
        connection.close()


def with_answers_on_their_way(stage: Stage, **plan: Any) -> tuple[Running, threading.Event]:
    """Start a run and return when two calls wait for the event that is returned too."""
    go = threading.Event()
    stage.script(rule(model="small-1", until=go))
    running = stage.start("run", **plan)
    poll("calls are in flight", lambda: stage.server.in_flight == 2)
    return running, go


@pytest.mark.nightly
def test_fault_18_a_file_held_for_a_while_is_waited_for(stage: Stage) -> None:
    expected = stage.undisturbed()
    said = "another program has locked the results file"
    running, go = with_answers_on_their_way(stage, busy_s=3.0)
    with held(stage):
        go.set()
        running.until_it_says(said)  # a third of its patience is over
    done = running.wait()
    assert done.code == 0, done.all
    assert set(stage.states()) == {"settled"}
    stage.check_settled(lost=0)
    assert stage.results() == expected


@pytest.mark.nightly
def test_fault_18_a_file_held_too_long_is_a_clean_error(stage: Stage) -> None:
    expected = stage.undisturbed()
    running, go = with_answers_on_their_way(stage, busy_s=0.5)
    with held(stage):
        go.set()
        done = running.wait()
    assert done.code == 3, done.all
    assert "locked" in done.err
    assert "try again" in done.err
    finished(stage, expected)


def test_fault_18_a_file_held_from_the_start_is_a_clean_error_before_any_call(
    stage: Stage,
) -> None:
    assert stage.edison("run", "--limit", "1").code == 0
    calls = stage.server.chats
    with held(stage):
        done = stage.edison("run", busy_s=0.3)
    assert done.code == 3, done.all
    assert "locked" in done.err
    assert stage.server.chats == calls


# --- 22: not our file -----------------------------------------------------------------------------


def foreign(path: Path) -> None:
    path.unlink()
    with opened(path) as connection:
        connection.execute("create table theirs (x)")
    connection.close()


def newer(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("pragma user_version = 999")
    connection.close()


DAMAGE = {
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:5000]),
    "garbage": lambda path: path.write_bytes(b"not a database at all, but a text" * 100),
    "scrambled": lambda path: path.write_bytes(
        path.read_bytes()[:100] + b"\xff" * 4000 + path.read_bytes()[4100:]
    ),
    "foreign": foreign,
    "newer": newer,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_fault_22_a_file_that_is_not_ours_or_not_whole_is_refused_before_any_call(
    stage: Stage, damage: str
) -> None:
    assert stage.edison("run", "--limit", "1").code == 0
    for log in stage.database.parent.glob("results.db-*"):
        log.unlink()
    DAMAGE[damage](stage.database)
    before, calls = stage.database.read_bytes(), stage.server.chats
    for command in ("run", "resume"):
        done = stage.edison(command)
        assert done.code in (2, 3), done.all
        assert "bug in edison" not in done.err, done.err
        assert "Traceback" not in done.err
    assert stage.server.chats == calls
    assert stage.database.read_bytes() == before
