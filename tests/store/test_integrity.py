"""Damage of every kind is found and named."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from docs.sample import Sample, build
from edison_ci.records import Completion
from edison_ci.store.answers import Settlement
from edison_ci.store.database import open_database, open_reader
from edison_ci.store.integrity import MOST, CheckResult, check_database
from edison_ci.store.ledger import Reservation, reserve, settle

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    build(tmp_path / "results.db")
    connection = open_database(tmp_path / "results.db")
    yield connection
    connection.close()


def failed(db: sqlite3.Connection) -> dict[str, CheckResult]:
    return {found.what: found for found in check_database(db) if not found.ok}


def test_a_sound_file_is_sound(db: sqlite3.Connection) -> None:
    assert failed(db) == {}


def test_an_empty_file_is_sound(tmp_path: Path) -> None:
    connection = open_database(tmp_path / "new.db")
    assert failed(connection) == {}
    connection.close()


def test_a_reader_may_check(tmp_path: Path) -> None:
    build(tmp_path / "results.db")
    connection = open_reader(tmp_path / "results.db")
    assert failed(connection) == {}
    connection.close()


@pytest.mark.parametrize(
    "scope", ["project", "run:20261114T090000-aaaaaa", "experiment:support-reply"]
)
@pytest.mark.parametrize("column", ["microusd", "tokens"])
def test_a_total_that_is_off_by_one_is_found(
    db: sqlite3.Connection, scope: str, column: str
) -> None:
    sql = f"update booked set {column} = {column} + 1 where scope = ? and day = '2026-11-14'"
    assert db.execute(sql, (scope,)).rowcount == 1
    found = failed(db)
    assert set(found) == {"ledger"}
    (problem,) = found["ledger"].problems
    assert problem.startswith(f"{scope} on 2026-11-14: booked ")


def test_a_total_that_is_missing_or_too_many_is_found(db: sqlite3.Connection) -> None:
    db.execute("delete from booked where scope = 'project' and day = '2026-11-15'")
    db.execute("insert into booked values ('run:nobody', '2026-11-15', 5, 0)")
    problems = failed(db)["ledger"].problems
    assert problems == (
        "project on 2026-11-15: booked 0 micro-dollars and 0 tokens, attempts say 900 and 300",
        "run:nobody on 2026-11-15: booked 5 micro-dollars and 0 tokens, attempts say 0 and 0",
    )


def test_calls_in_flight_are_counted_at_their_estimate(db: sqlite3.Connection) -> None:
    sample = Sample(db)
    reserve(sample.booking("20261115T090000-bbbbbb", "x", "large", "2026-11-15T23:59:59Z"))(db)
    assert failed(db) == {}


def test_a_call_of_no_run_may_count_for_an_experiment_or_for_none(db: sqlite3.Connection) -> None:
    sample = Sample(db)
    of_one = sample.booking("try-1", "x", "large", "2026-11-15T12:00:00Z")
    sample.bought(of_one, "Yes.")
    of_none = replace(
        of_one, request_hash="f" * 64, run_id="try-2", scopes=("run:try-2", "project")
    )
    sample.bought(of_none, "Yes.")
    assert failed(db) == {}
    db.execute("update booked set microusd = microusd + 500 where scope like 'experiment:%'")
    assert set(failed(db)) == {"ledger"}


def test_a_total_of_something_unknown_is_left_alone(db: sqlite3.Connection) -> None:
    db.execute("insert into booked values ('season:later', '2026-11-15', 5, 5)")
    assert failed(db) == {}


def test_a_call_settled_on_the_next_day_counts_for_the_day_it_was_sent(
    db: sqlite3.Connection,
) -> None:
    booking = Sample(db).booking("20261115T090000-bbbbbb", "x", "large", "2026-11-15T23:59:59Z")
    outcome = reserve(booking)(db)
    assert isinstance(outcome, Reservation)
    late = Settlement(Completion("hm"), 7, "billed", "2026-11-16T00:00:02Z")
    settle(booking, outcome.attempt, late)(db)
    assert failed(db) == {}


def test_a_forged_text_is_found(db: sqlite3.Connection) -> None:
    db.execute("update answer_text set text = 'forged' where text = 'No.'")
    found = failed(db)
    assert set(found) == {"texts"}
    assert "is not what was stored" in found["texts"].problems[0]


def test_texts_that_were_cleared_are_no_damage(db: sqlite3.Connection) -> None:
    db.execute("delete from answer_text")
    assert failed(db) == {}


def test_an_answer_that_is_gone_is_found(db: sqlite3.Connection) -> None:
    db.execute("drop trigger answer_stays")
    db.execute("delete from answer where attempt = 1")
    found = failed(db)
    assert {"answers", "texts"} <= set(found)
    assert "attempt 1 is settled, but its answer is missing" in found["answers"].problems
    assert any("is used, but is not there" in problem for problem in found["answers"].problems)


def test_a_row_that_names_what_is_not_there_is_found(db: sqlite3.Connection) -> None:
    db.execute("pragma foreign_keys = 0")
    db.execute("update cell set run_id = 'nobody' where rowid = 1")
    found = failed(db)
    assert "names a run that is not there" in found["references"].problems[0]


def test_a_broken_audit_is_found(db: sqlite3.Connection) -> None:
    db.execute("drop trigger audit_is_kept")
    db.execute("update audit set actor = 'bo'")
    assert failed(db)["audit"].problems == ("row 1 was changed",)


def test_many_problems_are_counted_not_listed(db: sqlite3.Connection) -> None:
    db.executemany(
        "insert into booked values (?, '2026-11-15', 1, 1)",
        [(f"run:x{i}",) for i in range(MOST + 7)],
    )
    ledger = failed(db)["ledger"]
    assert (len(ledger.problems), ledger.more) == (MOST, 7)


def test_a_page_of_noise_is_found(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    build(path)
    data = bytearray(path.read_bytes())
    data[4096 * 5 : 4096 * 6] = b"\xa5" * 4096
    path.write_bytes(data)
    connection = open_reader(path)
    found = {c.what for c in check_database(connection) if not c.ok}
    connection.close()
    assert "file" in found
