"""Files that cannot be written, are held, damaged, foreign or mixed up, by number of the fault.

Nothing here is simulated: real files, real rights, real processes. Root may write anything, so as
root the rights are tried by a child that gave them up.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from docs.sample import build
from edison_ci.errors import EdisonError, ExitCode, StoreError, UsageError
from edison_ci.store.backup import back_up
from edison_ci.store.database import open_database, open_reader, store_error
from edison_ci.store.integrity import check_database
from edison_ci.store.writer import Writer
from tests import forked
from tests.conftest import ROOT
from tests.opened import opened
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOBODY = 65534
EVENT = "insert into event (time, run_id, type, data) values ('t', 'r', 'x', '{}')"


def insert(connection: sqlite3.Connection) -> int:
    return connection.execute(EVENT).rowcount


@pytest.fixture
def results(tmp_path: Path) -> Path:
    build(tmp_path / "results.db")
    return tmp_path / "results.db"


def refusal(action: Callable[[], object]) -> EdisonError:
    with pytest.raises(EdisonError) as refused:
        action()
    assert refused.value.hint, "an error says what to do next"
    return refused.value


# --- 17: read-only --------------------------------------------------------------------------------


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that everybody may enter."""
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    path.chmod(0o755)
    shutil.rmtree(path)


def without_rights(action: Callable[[], object]) -> str:
    """Return how an action ends for somebody who is not root: `done`, or the error's words."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # xdist has threads; the child none
        child = os.fork()
    if child == 0:
        said = "the child broke"
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            action()
            said = "done"
        except EdisonError as error:
            said = f"{type(error).__name__} {int(error.exit_code)}: {error.message}"
        except BaseException as error:
            said = repr(error)
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        said = stream.read()
    os.waitpid(child, 0)
    return said


def start_writer(path: Path) -> None:
    with Writer(path) as writer:
        writer.submit(insert).result()


def test_17_a_file_that_may_not_be_written_is_refused_before_any_call(shared: Path) -> None:
    path = shared / "results.db"
    build(path)
    path.chmod(0o444)
    before = path.read_bytes()
    assert without_rights(lambda: start_writer(path)) == f"StoreError 3: {path} cannot be written"
    assert path.read_bytes() == before


@pytest.mark.parametrize("there", [True, False], ids=["a file", "no file"])
def test_17_a_folder_that_may_not_be_written_is_refused_before_any_call(
    shared: Path, there: bool
) -> None:
    path = shared / "results.db"
    if there:
        build(path)
        path.chmod(0o666)
    shared.chmod(0o555)
    said = without_rights(lambda: start_writer(path))
    assert said == f"StoreError 3: {shared} cannot be written"
    assert [p.name for p in shared.iterdir()] == (["results.db"] if there else [])


def test_17_a_folder_that_cannot_be_made_is_refused_before_any_call(shared: Path) -> None:
    shared.chmod(0o555)
    path = shared / "deeper" / "results.db"
    assert without_rights(lambda: start_writer(path)).startswith("StoreError 3: cannot make ")


def test_17_a_file_that_may_not_be_read_is_a_clear_error(shared: Path) -> None:
    path = shared / "results.db"
    with opened(path) as connection:
        connection.execute("create table t (x)")
    path.chmod(0o000)
    said = without_rights(lambda: open_reader(path))
    assert said == f"StoreError 3: cannot read {path}: Permission denied"


def test_17_a_backup_can_be_read_from_a_read_only_folder(shared: Path, results: Path) -> None:
    made = back_up(results, shared, stamp="1Z", keep=1)
    shared.chmod(0o555)

    def read() -> None:
        connection = open_reader(made.path)
        assert all(found.ok for found in check_database(connection))

    assert without_rights(read) == "done"


# --- 18, 19: held by others -----------------------------------------------------------------------

HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("begin immediate")
print("held", flush=True)
sys.stdin.readline()
connection.execute("rollback")
"""


def hold(path: Path) -> subprocess.Popen[str]:
    """Lock the file in another process, until it gets a line or is killed."""
    words = [sys.executable, "-c", HOLD, str(path)]
    pipe = subprocess.PIPE
    process = forked.Popen(words, stdin=pipe, stdout=pipe, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_18_a_writer_waits_for_a_file_that_is_held(results: Path) -> None:
    with Writer(results) as writer, hold(results) as process:
        inserted = writer.submit(insert)
        with pytest.raises(TimeoutError):
            inserted.result(1)
        process.communicate("let go\n")
        assert inserted.result(PATIENCE_S) == 1


def test_18_a_writer_can_be_opened_while_the_file_is_held(results: Path) -> None:
    with hold(results) as process, Writer(results) as writer:
        inserted = writer.submit(insert)
        process.communicate("let go\n")
        assert inserted.result(PATIENCE_S) == 1


def test_18_a_file_that_is_held_for_longer_is_a_clear_error(results: Path) -> None:
    connection = open_database(results, timeout_s=0.2)
    with hold(results) as process:
        with pytest.raises(sqlite3.OperationalError) as busy:
            connection.execute("begin immediate")
        error = store_error(busy.value, results)
        assert str(error).startswith("results.db: database is locked\n  another program has locked")
        assert error.exit_code is ExitCode.NOT_MEASURED
        with closing(open_reader(results)) as reader:
            assert reader.execute("select count(*) from cell").fetchone() == (8,)
        process.kill()
    connection.execute("begin immediate")
    assert insert(connection) == 1
    connection.execute("commit")
    connection.close()


def test_19_a_reader_that_stays_hinders_no_writer(results: Path) -> None:
    reader = open_reader(results)
    reader.execute("begin")
    before = reader.execute("select count(*) from event").fetchone()
    with Writer(results) as writer:
        for _ in range(5):
            for done in [writer.submit(insert) for _ in range(100)]:
                assert done.result(PATIENCE_S) == 1
    assert reader.execute("select count(*) from event").fetchone() == before
    reader.close()
    connection = open_reader(results)
    assert connection.execute("select count(*) from event").fetchone() == (before[0] + 500,)
    connection.close()


# --- 22: damaged and foreign files ----------------------------------------------------------------


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def overwrite(path: Path, start: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[start : start + len(data)] = data
    path.write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], object], ExitCode, str]] = {
    "empty": (lambda p: cut(p, 0), ExitCode.INVALID, "is empty"),
    "50 bytes": (lambda p: cut(p, 50), ExitCode.INVALID, "is not a database"),
    "only its header": (lambda p: cut(p, 100), ExitCode.NOT_MEASURED, "is cut off"),
    "half": (lambda p: cut(p, p.stat().st_size // 2), ExitCode.NOT_MEASURED, "is cut off"),
    "but one byte": (lambda p: cut(p, p.stat().st_size - 1), ExitCode.NOT_MEASURED, "is cut off"),
    "but one page": (lambda p: cut(p, p.stat().st_size - 4096), ExitCode.NOT_MEASURED, "cut off"),
    "text": (lambda p: p.write_text("hello " * 99), ExitCode.INVALID, "is not a database"),
    "noise": (lambda p: p.write_bytes(b"\x93" * 9999), ExitCode.INVALID, "is not a database"),
    "noise after its header": (
        lambda p: overwrite(p, 100, b"\xff" * 3996),
        ExitCode.NOT_MEASURED,
        "malformed",
    ),
    "an impossible page size": (
        lambda p: overwrite(p, 16, b"\x00\x03"),
        ExitCode.NOT_MEASURED,
        "not a database",
    ),
    "another program's": (
        lambda p: overwrite(p, 68, b"GPKG"),
        ExitCode.INVALID,
        "another program's database",
    ),
    "of the future": (
        lambda p: overwrite(p, 60, (99).to_bytes(4, "big")),
        ExitCode.INVALID,
        "was made by a newer edison",
    ),
}


@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("opening", [open_database, open_reader], ids=["writing", "reading"])
def test_22_a_damaged_or_foreign_file_is_refused_and_not_touched(
    results: Path, kind: str, opening: Callable[[Path], sqlite3.Connection]
) -> None:
    damage, code, words = DAMAGES[kind]
    damage(results)
    before = results.read_bytes()

    def use() -> None:
        # What SQLite notices only while it reads is found by the first question.
        connection = opening(results)
        try:
            connection.execute("select count(*) from run").fetchone()
        except sqlite3.Error as error:
            raise store_error(error, results) from None
        finally:
            connection.close()

    error = refusal(use)
    assert (error.exit_code, words in error.message) == (code, True), error.message
    assert results.read_bytes() == before
    left = {path.name for path in results.parent.iterdir()} - {"results.db"}
    assert not any((results.parent / name).stat().st_size for name in left if "-shm" not in name)


def test_22_a_copy_of_the_future_is_not_even_put_into_wal_mode(results: Path) -> None:
    made = back_up(results, results.parent / "copies", stamp="1Z", keep=1)
    overwrite(made.path, 60, (99).to_bytes(4, "big"))
    before = made.path.read_bytes()
    assert "newer edison" in refusal(lambda: open_database(made.path)).message
    assert made.path.read_bytes() == before


def columns_before_the_first_release(path: Path) -> None:
    """Give the human grades of a file the columns that they had in development versions."""
    with closing(sqlite3.connect(path)) as connection:
        for view in ("human_grades", "counted_grade"):
            connection.execute(f"drop view {view}")
        connection.execute("drop trigger manual_grade_is_kept")
        connection.execute("alter table manual_grade drop column origin")
        connection.commit()


@pytest.mark.parametrize("opening", [open_database, open_reader], ids=["writing", "reading"])
def test_22_a_file_of_a_development_version_is_refused_in_words_and_not_touched(
    results: Path, opening: Callable[[Path], sqlite3.Connection]
) -> None:
    columns_before_the_first_release(results)
    before = results.read_bytes()
    error = refusal(lambda: opening(results).close())
    assert (error.exit_code, error.hint.startswith("move it away")) == (ExitCode.NOT_MEASURED, True)
    assert "development version of edison, before its first release" in error.message
    assert results.read_bytes() == before
    made = back_up(results, results.parent / "copies", stamp="1Z", keep=1)
    assert made.size_bytes > 0, "it can still be saved"


def test_22_a_folder_in_its_place_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "results.db").mkdir()
    assert isinstance(refusal(lambda: open_database(tmp_path / "results.db")), StoreError)
    assert isinstance(refusal(lambda: open_reader(tmp_path / "results.db")), StoreError)


def test_22_damage_inside_is_found_by_the_check_and_not_made_worse(results: Path) -> None:
    overwrite(results, 4096 * 4, b"\xa5" * 4096)
    before = results.read_bytes()
    connection = open_reader(results)
    assert not all(found.ok for found in check_database(connection))
    connection.close()
    assert results.read_bytes() == before


def test_22_no_results_are_no_damage(tmp_path: Path) -> None:
    error = refusal(lambda: open_reader(tmp_path / "results.db"))
    assert isinstance(error, UsageError)
    assert not (tmp_path / "results.db").exists()


# --- 23: a log that belongs to another file -------------------------------------------------------


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """The results of a process that died, with a log that holds its last writes."""
    live, dead = tmp_path / "live", tmp_path / "dead"
    live.mkdir()
    dead.mkdir()
    build(live / "results.db")
    with Writer(live / "results.db") as writer:
        for _ in range(20):
            writer.submit(insert).result()
        for suffix in ("", "-wal"):
            shutil.copy(live / f"results.db{suffix}", dead / f"results.db{suffix}")
    assert (dead / "results.db-wal").stat().st_size > 0
    return dead / "results.db"


def test_23_the_log_of_a_process_that_died_is_taken_over(crashed: Path) -> None:
    connection = open_database(crashed)
    count = "select count(*) from event where type = 'x'"
    assert connection.execute(count).fetchone() == (20,)
    assert all(found.ok for found in check_database(connection))
    connection.close()


@pytest.mark.parametrize("opening", [open_database, open_reader], ids=["writing", "reading"])
def test_23_a_log_beside_a_restored_backup_is_not_mixed_into_it(
    crashed: Path, results: Path, opening: Callable[[Path], sqlite3.Connection]
) -> None:
    made = back_up(results, results.parent / "backups", stamp="1Z", keep=1)
    shutil.copy(made.path, crashed)
    log = crashed.with_name("results.db-wal")
    before = (crashed.read_bytes(), log.read_bytes())
    error = refusal(lambda: opening(crashed))
    assert isinstance(error, StoreError)
    assert error.message == "results.db-wal belongs to another file than the results.db beside it"
    assert error.hint.endswith("remove results.db-wal and results.db-shm")
    assert (crashed.read_bytes(), log.read_bytes()) == before

    log.unlink()
    connection = open_database(crashed)
    assert all(found.ok for found in check_database(connection))
    assert connection.execute("select count(*) from event where type = 'x'").fetchone() == (0,)
    connection.close()


def test_23_without_that_care_sqlite_would_have_mixed_them(crashed: Path, results: Path) -> None:
    made = back_up(results, results.parent / "backups", stamp="1Z", keep=1)
    shutil.copy(made.path, crashed)
    connection = sqlite3.connect(crashed)
    with pytest.raises((sqlite3.DatabaseError, AssertionError)):
        assert connection.execute("select count(*) from event where type = 'x'").fetchone() == (0,)
        # Which pages the log overwrites depends on the layout of the two files.
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
    connection.close()


# --- beginnings -----------------------------------------------------------------------------------

OPEN = """
import sys
from pathlib import Path
from edison_ci.store.database import open_database
sys.stdin.readline()
connection = open_database(Path(sys.argv[1]))
connection.execute("begin immediate")
connection.execute("insert into event (time, run_id, type, data) values ('t', 'r', 'x', '{}')")
connection.execute("commit")
"""


def test_several_processes_that_start_at_once_make_one_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.db"
    words = [sys.executable, "-c", OPEN, str(path)]
    children = [
        forked.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        _, said = child.communicate(timeout=PATIENCE_S)
        assert child.returncode == 0, said
    connection = open_reader(path)
    assert connection.execute("select count(*) from event").fetchone() == (4,)
    connection.close()
    assert [p.name for p in path.parent.iterdir() if p.name.startswith(".")] == []


def test_a_file_is_never_seen_half_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", broken)
    monkeypatch.setattr(Path, "replace", broken)
    with pytest.raises(StoreError, match="No space left"):
        open_database(tmp_path / "results.db")
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_links_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    open_database(tmp_path / "results.db").close()
    assert [p.name for p in tmp_path.iterdir()] == ["results.db"]


def test_looking_again_sees_what_the_file_has_become(results: Path) -> None:
    open_database(results).close()
    overwrite(results, 68, b"GPKG")
    assert "another program's" in refusal(lambda: open_database(results)).message
    results.unlink()
    results.write_bytes(b"a new file, perhaps with the old inode" * 9)
    assert "is not a database" in refusal(lambda: open_database(results)).message


def descriptors() -> int:
    """Return how many files this process has open, where the system tells."""
    listed = Path("/proc/self/fd")
    return len(list(listed.iterdir())) if listed.exists() else 0


@pytest.mark.nightly
def test_many_files_are_looked_into_with_few_descriptors(tmp_path: Path) -> None:
    before = descriptors()
    for number in range(60):
        open_database(tmp_path / f"{number}.db").close()
    assert descriptors() - before <= 32
