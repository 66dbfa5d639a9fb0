"""What is stored is counted, what is not needed can go, what was paid stays known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from docs.sample import Sample, build
from edison_ci.store.answers import answers_in_use, cache_stats, clear_texts, clearable
from edison_ci.store.database import open_database
from edison_ci.store.integrity import check_database

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


def buy(db: sqlite3.Connection, case: str, text: str, time: str = "2026-11-15T10:00:00Z") -> str:
    """Buy an answer that no cell points to; return its request hash."""
    sample = Sample(db)
    booking = sample.booking("20261115T090000-bbbbbb", case, "small", time, reuse=False)
    sample.bought(booking, text)
    return booking.request_hash


def texts(db: sqlite3.Connection) -> set[str]:
    return {text for (text,) in db.execute("select text from answer_text")}


def test_uses_after_the_first_are_saved(db: sqlite3.Connection) -> None:
    large, small = cache_stats(db)
    assert (large.model, large.answers, large.texts, large.uses) == ("large", 2, 2, 4)
    assert large.saved_microusd == large.cost_microusd == 940
    assert (small.oldest, small.newest) == ("2026-11-14T09:00:00Z", "2026-11-14T09:00:00Z")
    sizes = db.execute("select sum(length(text)) from answer_text").fetchone()[0]
    assert large.size_bytes + small.size_bytes == sizes


def test_an_answer_nobody_uses_saves_nothing(db: sqlite3.Connection) -> None:
    buy(db, "parrot", "x")
    small = cache_stats(db)[1]
    assert (small.answers, small.uses, small.saved_microusd) == (3, 4, 180)


def test_only_texts_that_nothing_points_to_are_cleared(db: sqlite3.Connection) -> None:
    before = texts(db)
    buy(db, "parrot", "squawk")
    assert clearable(db) == clear_texts(db)
    assert texts(db) == before
    assert clearable(db).texts == 0


def test_what_was_paid_stays_known(db: sqlite3.Connection) -> None:
    spent = cache_stats(db)
    freed = clear_texts(db, everything=True)
    assert (freed.texts, texts(db)) == (4, set())
    assert [one.cost_microusd for one in cache_stats(db)] == [one.cost_microusd for one in spent]
    assert all(found.ok for found in check_database(db))


def test_a_cleared_text_is_bought_again(db: sqlite3.Connection) -> None:
    clear_texts(db, everything=True)
    sample = Sample(db)
    booking = sample.booking("20261115T090000-bbbbbb", "refund", "small", "2026-11-15T10:00:00Z")
    assert sample.bought(booking, "Yes.") == 1


def test_only_what_is_old_enough_is_cleared(db: sqlite3.Connection) -> None:
    buy(db, "old", "old", "2026-11-14T10:00:00Z")
    buy(db, "new", "new", "2026-11-15T10:00:00Z")
    assert clear_texts(db, before="2026-11-15T00:00:00Z").texts == 1
    assert "new" in texts(db) and "old" not in texts(db)


def test_a_table_that_points_to_answers_is_found_by_its_columns(db: sqlite3.Connection) -> None:
    request_hash = buy(db, "judge", "a verdict")
    db.execute("create table verdict (cell_id text, request_hash text, answer_no integer) strict")
    cell = db.execute("select id from cell limit 1").fetchone()[0]
    db.execute("insert into verdict values (?, ?, 0)", (cell, request_hash))
    assert clear_texts(db).texts == 0
    for_cell = f"select '{cell}'"
    used = db.execute(answers_in_use(db, cells=for_cell)).fetchall()
    assert (request_hash, 0) in used and len(used) == 2


def test_a_call_of_another_model_has_its_own_answers(db: sqlite3.Connection) -> None:
    sample = replace(Sample(db), experiment="other")
    sample.run("20261115T100000-cccccc", "2026-11-15T10:00:00Z")
    assert [one.uses for one in cache_stats(db)] == [6, 6]
