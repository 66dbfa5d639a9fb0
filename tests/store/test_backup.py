"""Copies are whole, appear at once, and the oldest make room."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from typing import TYPE_CHECKING

import pytest

from docs.sample import build
from edison_ci.errors import StoreError, UsageError
from edison_ci.store.backup import back_up
from edison_ci.store.database import open_database, open_reader
from edison_ci.store.writer import Writer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def results(tmp_path: Path) -> Path:
    build(tmp_path / "results.db")
    return tmp_path / "results.db"


def contents(path: Path) -> list[str]:
    connection = sqlite3.connect(path)
    lines = sorted(connection.iterdump())
    connection.close()
    return lines


def test_a_copy_says_what_the_original_says(results: Path, tmp_path: Path) -> None:
    made = back_up(results, tmp_path / "backups", stamp="20261115T120000Z", keep=3)
    assert made.path.name == "results-20261115T120000Z.db"
    assert contents(made.path) == contents(results)
    assert made.sha256 == hashlib.sha256(made.path.read_bytes()).hexdigest()
    assert made.size_bytes == made.path.stat().st_size
    open_reader(made.path).close()


def test_a_copy_has_what_is_only_in_the_log_yet(results: Path, tmp_path: Path) -> None:
    with Writer(results) as writer:
        sql = "insert into event (time, run_id, type, data) values ('t', 'new', 'x', '{}')"
        writer.submit(lambda c: c.execute(sql).rowcount).result()
        made = back_up(results, tmp_path / "backups", stamp="1Z", keep=3)
        assert any("'new'" in line for line in contents(made.path))


def test_only_the_newest_are_kept_and_nothing_else_is_touched(
    results: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    (folder / "mine.db").write_bytes(b"x")
    for day in range(10, 15):
        made = back_up(results, folder, stamp=f"202611{day}T000000Z", keep=2)
    assert made.removed == ("results-20261112T000000Z.db",)
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        ".gitignore",
        "mine.db",
        "results-20261113T000000Z.db",
        "results-20261114T000000Z.db",
    ]


@pytest.mark.parametrize("years", [1, 40, -1, -40])
def test_a_clock_that_was_wrong_costs_no_copy_of_after(
    results: Path, tmp_path: Path, years: int
) -> None:
    folder = tmp_path / "backups"
    stamps = [f"{2026 + years}11{day}T000000Z" for day in range(10, 15)]
    stamps += [f"202611{day}T000000Z" for day in range(15, 18)]
    made = [back_up(results, folder, stamp=stamp, keep=3).path for stamp in stamps]
    assert sorted(folder.glob("*.db")) == made[-3:]


def test_copies_are_not_committed(results: Path, tmp_path: Path) -> None:
    back_up(results, tmp_path / "backups", stamp="1Z", keep=1)
    assert "\n*\n" in (tmp_path / "backups/.gitignore").read_text()


def test_what_a_killed_process_left_is_swept_up_after_a_day(results: Path, tmp_path: Path) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()
    for name, mtime in ((".a.db.1.part", 1_000), (".b.db.2.part", None)):
        (folder / name).write_bytes(b"x")
        if mtime is not None:
            os.utime(folder / name, (mtime, mtime))
    back_up(results, folder, stamp="1Z", keep=1)
    assert [p.name for p in folder.glob(".*.part")] == [".b.db.2.part"]


def test_without_results_there_is_nothing_to_copy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no results yet"):
        back_up(tmp_path / "results.db", tmp_path / "backups", stamp="1Z", keep=1)
    assert not (tmp_path / "backups").exists()


def test_a_folder_that_cannot_be_made_is_a_clear_error(results: Path, tmp_path: Path) -> None:
    (tmp_path / "backups").write_text("a file")
    with pytest.raises(StoreError, match="cannot write"):
        back_up(results, tmp_path / "backups", stamp="1Z", keep=1)


def test_a_restored_copy_works(results: Path, tmp_path: Path) -> None:
    made = back_up(results, tmp_path / "backups", stamp="1Z", keep=1)
    results.unlink()
    made.path.replace(results)
    connection = open_database(results)
    assert connection.execute("pragma journal_mode").fetchone() == ("wal",)
    assert connection.execute("select count(*) from cell").fetchone() == (8,)
    connection.close()
