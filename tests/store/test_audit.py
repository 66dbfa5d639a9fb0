"""The record of changes only grows, and whoever touches it is noticed."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from edison_ci.store.audit import (
    FORGET,
    START,
    AuditEntry,
    ClockJump,
    add_audit,
    count_audit,
    read_audit,
    verify_audit,
)
from edison_ci.store.database import open_database
from edison_ci.store.writer import Writer
from tests.opened import opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENTRY = AuditEntry(
    "2026-11-15T12:00:00Z", "ada", "github", "gc", "results", {"texts": 2}, {"texts": 0}, host="h"
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_database(tmp_path / "results.db")
    yield connection
    connection.close()


@pytest.fixture
def five(db: sqlite3.Connection) -> sqlite3.Connection:
    for _ in range(5):
        add_audit(db, ENTRY)
    return db


def test_rows_are_numbered_and_read_back_newest_first(five: sqlite3.Connection) -> None:
    rows = read_audit(five)
    assert [row.seq for row in rows] == [5, 4, 3, 2, 1]
    assert rows[0].entry == ENTRY
    assert len(read_audit(five, limit=2)) == 2
    assert [row.seq for row in read_audit(five, limit=2, offset=3)] == [2, 1]
    assert count_audit(five) == 5


def test_an_untouched_chain_is_whole(five: sqlite3.Connection) -> None:
    chain = verify_audit(five)
    assert (chain.rows, chain.broken) == (5, None)
    assert chain.newest == read_audit(five, limit=1)[0].sha256


def test_an_empty_chain_is_whole(db: sqlite3.Connection) -> None:
    chain = verify_audit(db)
    assert (chain.rows, chain.newest, chain.broken) == (0, START, None)


@pytest.mark.parametrize(
    "sql", ["update audit set actor = 'bo'", "delete from audit where seq = 2"], ids=str.split
)
def test_rows_can_be_neither_changed_nor_deleted(five: sqlite3.Connection, sql: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        five.execute(sql)


COLUMNS = [
    "time", "actor", "known_by", "action", "entity", "before", "after", "run_id", "host", "nonce",
    "detail",
]  # fmt: skip


@pytest.mark.parametrize("column", COLUMNS)
def test_a_changed_value_is_found(five: sqlite3.Connection, column: str) -> None:
    five.execute("drop trigger audit_is_kept")
    five.execute(f"update audit set {column} = 'forged' where seq = 3")
    chain = verify_audit(five)
    assert (chain.broken, chain.problem, chain.rows) == (3, "row 3 was changed", 2)


@pytest.mark.parametrize("seq", [1, 3, 5])
def test_a_missing_row_is_found_at_the_end_too(five: sqlite3.Connection, seq: int) -> None:
    five.execute("drop trigger audit_stays")
    five.execute("delete from audit where seq = ?", (seq,))
    chain = verify_audit(five)
    assert (chain.broken, chain.problem) == (seq, f"row {seq} is missing")


def test_two_rows_that_changed_places_are_found(five: sqlite3.Connection) -> None:
    five.execute("drop trigger audit_is_kept")
    add_audit(five, AuditEntry("t", "bo", "git", "clear", host="h"))
    for old, new in ((5, 99), (6, 5), (99, 6)):
        five.execute("update audit set seq = ? where seq = ?", (new, old))
    assert verify_audit(five).broken == 5


def test_a_replaced_row_is_found_though_no_trigger_fires(five: sqlite3.Connection) -> None:
    five.execute("insert or replace into audit select 2, time, 'bo', known_by, action, entity, "
                 "before, after, nonce, run_id, host, detail, sha256 from audit "
                 "where seq = 2")  # fmt: skip
    assert verify_audit(five).broken == 2


def test_a_row_put_in_between_is_found(five: sqlite3.Connection) -> None:
    five.executescript("drop trigger audit_is_kept; update audit set seq = seq + 10 where seq > 2")
    five.execute("insert into audit select 3, time, actor, known_by, action, entity, before, after,"
                 " nonce, run_id, host, detail, sha256 from audit where seq = 2")  # fmt: skip
    five.execute("update audit set seq = seq - 9 where seq > 10")
    assert verify_audit(five).problem == "row 3 was changed"


def forget(connection: sqlite3.Connection, seq: int) -> None:
    sql = "update audit set before = null, after = null, nonce = null where seq = ?"
    connection.execute(sql, (seq,))


def test_details_can_be_forgotten_and_the_chain_stays_whole(five: sqlite3.Connection) -> None:
    forget(five, 2)
    forget(five, 4)
    assert verify_audit(five).problem == "the details of row 2 are missing"
    add_audit(five, AuditEntry("t", "bo", "git", FORGET, after={"audit_rows": [2, 4]}, host="h"))
    chain = verify_audit(five)
    assert (chain.broken, chain.rows, chain.forgotten) == (None, 6, 2)
    second = read_audit(five)[4]
    assert (second.entry.before, second.entry.after, second.nonce) == (None, None, None)
    assert second.entry.action == "gc"


def test_details_that_no_later_row_names_are_missing(five: sqlite3.Connection) -> None:
    add_audit(five, AuditEntry("t", "bo", "git", FORGET, after={"audit_rows": [2, 7]}, host="h"))
    add_audit(five, ENTRY)
    forget(five, 7)
    chain = verify_audit(five)
    assert (chain.broken, chain.problem) == (7, "the details of row 7 are missing")


def test_equal_details_have_different_hashes(five: sqlite3.Connection) -> None:
    assert len({row.detail for row in read_audit(five)}) == 5


def test_a_clock_that_goes_back_breaks_nothing_and_is_told(db: sqlite3.Connection) -> None:
    times = ["2026-11-15T12:00:00Z", "2026-11-15T11:59:30Z", "2026-11-15T09:00:00Z",
             "2026-11-16T09:00:00Z"]  # fmt: skip
    for time in times:
        add_audit(db, AuditEntry(time, "ada", "git", "gc", host="h"))
    chain = verify_audit(db)
    assert chain.broken is None
    assert chain.jumps == (ClockJump(3, times[1], times[2]),)


def test_secrets_are_cut_out(db: sqlite3.Connection) -> None:
    key = "sk-ant-" + "a" * 40
    add_audit(db, AuditEntry("t", "ada", "git", "set", key, {"key": key}, [key], host="h"))
    (row,) = read_audit(db)
    assert key not in str(row)
    assert row.entry.before == {"key": "sk-a..."}
    assert verify_audit(db).broken is None


def test_a_name_that_is_no_text_is_stored(db: sqlite3.Connection) -> None:
    add_audit(db, AuditEntry("t", "Andr\udce9", "git", "gc", host="h"))
    assert read_audit(db)[0].entry.actor == "Andr\\udce9"
    assert verify_audit(db).broken is None


def test_a_row_is_added_through_the_writer_and_a_failure_leaves_no_gap(tmp_path: Path) -> None:
    path = tmp_path / "results.db"

    def add(connection: sqlite3.Connection) -> int:
        return add_audit(connection, ENTRY)

    def fail(connection: sqlite3.Connection) -> None:
        add_audit(connection, ENTRY)
        raise ValueError("no")

    with Writer(path) as writer:
        assert writer.submit(add).result() == 1
        with pytest.raises(ValueError, match="no"):
            writer.submit(fail).result()
        assert writer.submit(add).result() == 2
    with opened(path) as connection:
        assert verify_audit(connection).broken is None
