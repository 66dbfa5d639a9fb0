"""A run that is copied into another results file arrives once, and with the transaction only."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from docs.sample import ANSWERS, Sample
from edison_ci.store.database import open_database
from edison_ci.store.integrity import check_database
from edison_ci.store.merge import import_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

HERE = ("20261114T090000-aaaaaa", "2026-11-14T09:00:00Z")
THERE = ("20261115T090000-bbbbbb", "2026-11-15T09:00:00Z")
LATER = ("20261116T090000-cccccc", "2026-11-16T09:00:00Z")


def made(path: Path, run: tuple[str, str]) -> sqlite3.Connection:
    """Return an open file with one run."""
    connection = open_database(path)
    connection.execute("begin immediate")
    Sample(connection).run(*run)
    connection.execute("commit")
    return connection


@pytest.fixture
def target(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(made(tmp_path / "here.db", HERE)) as connection:
        yield connection


@pytest.fixture
def source(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A file with another run, which bought answers to the same calls."""
    with closing(made(tmp_path / "there.db", THERE)) as connection:
        yield connection


def bring(
    target: sqlite3.Connection, source: sqlite3.Connection, run: tuple[str, str] = THERE
) -> None:
    target.execute("begin immediate")
    import_run(target, source, run[0])
    target.execute("commit")


def replayed(connection: sqlite3.Connection) -> None:
    """Make of every answer what a recording would have given."""
    connection.executescript(
        "begin; drop trigger answer_is_kept; update answer set cost_kind = 'replayed';"
        "update attempt set phase = 'replay', cost_microusd = 0; delete from booked; commit"
    )


def rows(connection: sqlite3.Connection, table: str) -> list[tuple[object, ...]]:
    return connection.execute(f"select * from {table} order by 1, 2").fetchall()


def takes(connection: sqlite3.Connection, run: tuple[str, str]) -> set[int]:
    found = connection.execute("select distinct answer_no from cell where run_id = ?", run[:1])
    return {answer_no for (answer_no,) in found}


def problems(connection: sqlite3.Connection) -> list[str]:
    return [text for one in check_database(connection) for text in one.problems]


def test_nothing_is_committed_before_the_transaction_is(
    target: sqlite3.Connection, source: sqlite3.Connection
) -> None:
    names = [
        name for (name,) in target.execute("select name from sqlite_schema where type='table'")
    ]
    before = {name: rows(target, name) for name in names}
    target.execute("begin immediate")
    import_run(target, source, THERE[0])
    assert target.in_transaction
    assert rows(target, "cell") != before["cell"]
    target.execute("rollback")
    assert {name: rows(target, name) for name in names} == before


def test_the_connections_are_left_as_they_were(
    target: sqlite3.Connection, source: sqlite3.Connection
) -> None:
    settings = [(one, name) for one in (target, source)
                for name in ("recursive_triggers", "foreign_keys", "synchronous")]  # fmt: skip
    before = [one.execute(f"pragma {name}").fetchone() for one, name in settings]
    bring(target, source)
    assert [one.execute(f"pragma {name}").fetchone() for one, name in settings] == before


def test_another_answer_to_a_call_is_a_further_take(
    target: sqlite3.Connection, source: sqlite3.Connection
) -> None:
    bring(target, source)
    assert (takes(target, HERE), takes(target, THERE)) == ({0}, {1})
    assert len(rows(target, "answer")) == len(rows(target, "answer_text")) == 2 * len(ANSWERS)
    assert problems(target) == []


def test_what_is_here_already_is_neither_stored_nor_booked_again(
    target: sqlite3.Connection, source: sqlite3.Connection
) -> None:
    Sample(source).run(*LATER)  # reuses what the run before it bought
    Sample(target).run(*THERE, reuse=False)
    before = {name: rows(target, name) for name in ("attempt", "answer", "answer_text", "booked")}
    bring(target, source, LATER)
    assert {name: rows(target, name) for name in before} == before
    assert takes(source, LATER) == {0}
    assert takes(target, LATER) == {1}, "its cells point to the take that it is here"


def test_the_same_recording_is_stored_once(
    target: sqlite3.Connection, source: sqlite3.Connection
) -> None:
    for connection in (target, source):
        replayed(connection)
    before = rows(target, "answer"), rows(target, "attempt")
    bring(target, source)
    assert (rows(target, "answer"), rows(target, "attempt")) == before
    assert takes(target, THERE) == {0}
    assert problems(target) == []


def test_a_call_whose_process_died_counts_as_estimated(
    target: sqlite3.Connection, source: sqlite3.Connection
) -> None:
    source.execute("begin immediate")
    sample = Sample(source)
    booking = sample.booking(*THERE[:1], "parrot", "small", THERE[1])
    sample.failed(booking, charged=True)
    source.execute("update attempt set state = 'reserved', error = null where state = 'unknown'")
    source.execute("commit")
    bring(target, source)
    lost = target.execute("select state, error from attempt where state <> 'settled'").fetchall()
    assert lost == [("unknown", "the process died")]
    assert problems(target) == [], "the estimate is booked"


def test_sqlite_utils_is_loaded_by_the_first_copy_only() -> None:
    code = "import sys, edison_ci.store.merge; sys.exit('sqlite_utils' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
