"""Many share one writer, and nobody hears of a write before it is durable."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from edison_ci.errors import StoreError, UsageError
from edison_ci.store.database import APPLICATION_ID, migrations, open_database, open_reader
from edison_ci.store.writer import Writer
from tests import forked
from tests.opened import opened
from tests.timing import PATIENCE_S

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable
    from pathlib import Path


def insert(name: str) -> Callable[[sqlite3.Connection], int]:
    def operation(connection: sqlite3.Connection) -> int:
        sql = "insert into event (time, run_id, type, data) values ('t', 'r', ?, '{}')"
        return int(connection.execute(sql, (name,)).lastrowid or 0)

    return operation


def count(path: Path) -> int:
    with opened(path) as connection:
        return int(connection.execute("select count(*) from event").fetchone()[0])


def test_what_was_written_is_there_when_the_future_is_done(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with Writer(path) as writer:
        assert writer.submit(insert("a")).result() == 1
        assert count(path) == 1


def test_writes_that_wait_share_a_commit(tmp_path: Path) -> None:
    gate = threading.Event()

    def block(_: sqlite3.Connection) -> None:
        gate.wait(PATIENCE_S)

    with Writer(tmp_path / "results.db") as writer:
        first = writer.submit(block)
        rest = [writer.submit(insert(str(i))) for i in range(150)]
        gate.set()
        first.result()
        for done in rest:
            done.result()
        assert writer.commits <= 3
    assert count(tmp_path / "results.db") == 150


def test_a_page_that_many_change_stays_in_the_log_for_a_while(tmp_path: Path) -> None:
    def change(letter: str) -> Callable[[sqlite3.Connection], object]:
        return lambda connection: connection.execute("update event set data = ?", (letter * 4_000,))

    path = tmp_path / "results.db"
    with Writer(path) as writer:
        writer.submit(lambda connection: [insert("x")(connection) for _ in range(100)]).result()
        for letter in "abcdefghijklmnopqrst":
            writer.submit(change(letter)).result()
        pages = path.with_name("results.db-wal").stat().st_size // 4_096
    assert 400 < pages < 800, "and a long log would take time to remove"


LONG = 3600.0


def setting(name: str) -> Callable[[sqlite3.Connection], int]:
    return lambda connection: int(connection.execute(f"pragma {name}").fetchone()[0])


def test_a_large_file_has_a_longer_log_and_a_larger_cache(tmp_path: Path) -> None:
    found = []
    for kib in (0, 16_000, 400_000):
        path = tmp_path / f"{kib}.db"
        open_database(path).close()
        if kib:
            os.truncate(path, kib * 1024)
        with Writer(path) as writer:
            names = ("wal_autocheckpoint", "cache_size")
            found.append([writer.submit(setting(name)).result() for name in names])
    assert found == [[500, -500], [2_000, -4_000], [4_000, -8_000]]


def test_who_can_wait_is_written_with_who_comes_next(tmp_path: Path) -> None:
    async def write() -> list[int]:
        patient = [writer.begin(insert(str(i)), within_s=LONG) for i in range(5)]
        last = writer.begin(insert("now"))
        return await asyncio.gather(*patient, last)

    with Writer(tmp_path / "results.db") as writer:
        assert asyncio.run(write()) == [1, 2, 3, 4, 5, 6]
        assert writer.commits == 1


def test_the_least_patient_decides_how_long_is_waited(tmp_path: Path) -> None:
    async def write() -> list[int]:
        waits = [LONG, 0.001, LONG]
        return await asyncio.gather(*(writer.begin(insert("x"), within_s=s) for s in waits))

    with Writer(tmp_path / "results.db") as writer:
        assert asyncio.run(write()) == [1, 2, 3]
        assert writer.commits == 1


def test_who_waits_when_the_loop_ends_is_written_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "results.db"

    async def leave() -> None:
        assert not writer.begin(insert("left"), within_s=LONG).done()

    async def come() -> int:
        return await writer.begin(insert("another loop"), within_s=0.001)

    with Writer(path) as writer:
        asyncio.run(leave())
        assert asyncio.run(come()) == 2  # the timer of the first loop will never ring
        asyncio.run(leave())
    assert count(path) == 3


def test_nobody_waits_for_ever_for_a_writer_that_failed(tmp_path: Path) -> None:
    def fail(_: sqlite3.Connection) -> None:
        raise SystemExit("out of the thread")

    with Writer(tmp_path / "results.db") as writer:
        with pytest.raises(StoreError, match="SystemExit: out of the thread"):
            writer.submit(fail).result(PATIENCE_S)
        with pytest.raises(StoreError):
            writer.submit(insert("later")).result(PATIENCE_S)


def test_an_operation_that_fails_takes_no_other_with_it(tmp_path: Path) -> None:
    gate = threading.Event()

    def block(_: sqlite3.Connection) -> None:
        gate.wait(PATIENCE_S)

    def fail(connection: sqlite3.Connection) -> None:
        insert("half")(connection)
        raise ValueError("no")

    with Writer(tmp_path / "results.db") as writer:
        writer.submit(block)
        before = writer.submit(insert("before"))
        failing = writer.submit(fail)
        after = writer.submit(insert("after"))
        gate.set()
        with pytest.raises(ValueError, match="no"):
            failing.result()
        assert before.result() and after.result()
    assert count(tmp_path / "results.db") == 2


def test_a_file_that_was_replaced_is_not_written_any_more(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with Writer(path) as writer:
        writer.submit(insert("a")).result()
        path.rename(tmp_path / "moved.db")
        with pytest.raises(StoreError, match="deleted or replaced"):
            writer.submit(insert("b")).result()
        assert not path.exists()


def test_a_database_error_is_final(tmp_path: Path) -> None:
    with Writer(tmp_path / "results.db") as writer:
        with pytest.raises(StoreError, match="no such table"):
            writer.submit(lambda c: c.execute("insert into nowhere_at_all values (1)")).result()
        with pytest.raises(StoreError):
            writer.submit(insert("later")).result()
    assert count(tmp_path / "results.db") == 0


def test_a_forked_child_may_not_write(tmp_path: Path) -> None:
    with Writer(tmp_path / "results.db") as writer:
        writer._process = os.getpid() + 1
        with pytest.raises(StoreError, match="forked"):
            writer.submit(insert("a"))
        writer._process = os.getpid()


def test_a_new_file_has_our_mark_and_version(tmp_path: Path) -> None:
    open_database(tmp_path / "results.db").close()
    with opened(tmp_path / "results.db") as connection:
        assert connection.execute("pragma application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("pragma user_version").fetchone() == (len(migrations()),)
        assert connection.execute("pragma journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b"hello" * 50, "is not a database"), (b"SQLite format 3\0", "not a data")],
)
def test_a_file_that_is_not_ours_is_refused_and_untouched(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "results.db"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        open_database(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with opened(path) as connection:
        connection.execute("create table x (y)")
    with pytest.raises(UsageError, match="another program"):
        open_database(path)


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    connection = open_database(path)
    connection.execute("pragma user_version = 999")
    connection.close()
    with pytest.raises(UsageError, match="newer edison"):
        open_database(path)
    with pytest.raises(UsageError, match="newer edison"):
        open_reader(path)


def test_a_damaged_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    open_database(path).close()
    data = bytearray(path.read_bytes())
    data[100:4096] = b"\xff" * (4096 - 100)
    path.write_bytes(data)
    with pytest.raises(StoreError, match=r"malformed|corrupt|database"):
        open_database(path)


def test_what_is_written_stays_after_another_process_came_and_went(tmp_path: Path) -> None:
    """Opening a reader must not take the writer's lock off the file.

    If it did, the other process would take itself for the last one and remove the log that the
    writer goes on writing to: everything after it would be lost.
    """
    path = tmp_path / "results.db"
    look = [sys.executable, "-c", _LOOK, str(path)]
    with Writer(path) as writer:
        writer.submit(lambda c: c.execute("create table t (x int) strict")).result()
        open_reader(path).close()
        reader = open_reader(path)
        assert forked.run(look, capture_output=True, text=True, check=True).stdout == "0\n"
        writer.submit(lambda c: c.execute("insert into t values (1)")).result()
        assert reader.execute("select count(*) from t").fetchone() == (1,)
        assert forked.run(look, capture_output=True, text=True, check=True).stdout == "1\n"
        reader.close()
    assert forked.run(look, capture_output=True, text=True, check=True).stdout == "1\n"


_LOOK = (
    "import sqlite3, sys; connection = sqlite3.connect(sys.argv[1]); "
    "print(connection.execute('select count(*) from t').fetchone()[0]); connection.close()"
)
