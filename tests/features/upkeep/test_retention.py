"""Old texts go, numbers stay, and what somebody needs is spared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from docs.sample import Sample
from edison_ci.features.upkeep.retention import Retention, RetentionResult, collect, collectable
from edison_ci.results.rollups import write_rollups
from edison_ci.store.database import open_database
from edison_ci.store.integrity import check_database
from edison_ci.store.judgments import (
    ComparisonRow,
    JudgeScoreRow,
    store_comparisons,
    write_judge_scores,
)
from edison_ci.store.runs import add_event

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

OLD, MIDDLE, YOUNG = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z", "2026-11-01T00:00:00Z"
RETENTION = Retention("2026-08-01T00:00:00Z")


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """Two old runs, each with answers of its own."""
    connection = open_database(tmp_path / "results.db")
    sample = Sample(connection)
    sample.run("r1", OLD)
    sample.run("r2", MIDDLE, reuse=False)
    yield connection
    connection.close()


def readable(db: sqlite3.Connection) -> set[str]:
    """Return the runs whose answers all have their text."""
    rows = db.execute("select run_id from results group by run_id having count(*) = count(text)")
    return {run for (run,) in rows}


def numbers(db: sqlite3.Connection) -> list[list[tuple[object, ...]]]:
    tables = ("answer", "attempt", "booked", "rollup_run", "rollup_model", "rollup_component")
    scores = "select id, status, composite, passed from cell"
    return [db.execute(f"select * from {t}").fetchall() for t in tables] + [
        db.execute(scores).fetchall()
    ]


def test_old_texts_go_and_numbers_stay(db: sqlite3.Connection) -> None:
    before = numbers(db)
    gone = collect(db, RETENTION)
    assert readable(db) == {"r2"}
    assert (gone.texts, gone.spared_texts) == (4, 4)
    assert gone.size_bytes > 100
    assert numbers(db) == before
    assert all(found.ok for found in check_database(db))


def test_notifications_go_unless_they_are_still_to_be_told(db: sqlite3.Connection) -> None:
    states = [("sent", OLD), ("failed", OLD), ("waiting", OLD), ("sent", YOUNG)]
    for number, (state, at) in enumerate(states):
        db.execute(
            "insert into notification (id, recipient, occasion, message, state, created_at, due_at)"
            " values (?, 'chat', 'alert', '{}', ?, ?, ?)",
            (str(number), state, at, at),
        )
    collect(db, RETENTION)
    left = db.execute("select state, created_at from notification order by id").fetchall()
    assert left == [("waiting", OLD), ("sent", YOUNG)]


def test_reasons_quote_answers_and_go_with_them(db: sqlite3.Connection) -> None:
    gone = collect(db, RETENTION)
    left = "select count(*) from component p join cell c on c.id = p.cell_id "
    left += "where p.reason <> '' and {}"
    assert db.execute(left.format("run_id = 'r1'")).fetchone() == (0,)
    assert db.execute(left.format("run_id = 'r2'")).fetchone() == (gone.reasons,)


def test_reasons_of_judges_go_too_and_what_they_decided_stays(db: sqlite3.Connection) -> None:
    for run in ("r1", "r2"):
        a, b = (
            cell for (cell,) in db.execute("select id from cell where run_id = ? limit 2", [run])
        )
        said = JudgeScoreRow("judge", "Empathy", 4.0, 0.8, None, "it quotes the answer")
        write_judge_scores(db, [(a, said)])
        reasons = ("it quotes one answer", "it quotes the other")
        row = ComparisonRow(a, b, run, "judge", "5e1f", "a", "tie", *reasons, 20, 30, True)
        store_comparisons([row])(db)
    kept = {
        table: f"select {columns} from {table} order by 1"
        for table, columns in (
            ("judge_score", "cell_id, judge, criterion, raw, score"),
            ("comparison", "a_cell, b_cell, ab_winner, ba_winner, chars_a, chars_b"),
        )
    }
    before = [db.execute(sql).fetchall() for sql in kept.values()]
    seen = collectable(db, RETENTION)
    assert collect(db, RETENTION) == seen
    assert [db.execute(sql).fetchall() for sql in kept.values()] == before
    left = "select run_id from {} where {} <> ''"
    assert db.execute(left.format("judge_scores", "reason")).fetchall() == [("r2",)]
    assert db.execute(left.format("comparison", "ab_reason || ba_reason")).fetchall() == [("r2",)]


def test_the_newest_complete_run_of_each_experiment_is_spared(db: sqlite3.Connection) -> None:
    Sample(db).run("r3", "2026-03-01T00:00:00Z", complete=False, reuse=False)
    replace(Sample(db), experiment="other").run("o1", OLD, reuse=False)
    collect(db, RETENTION)
    assert readable(db) == {"r2", "o1"}


@pytest.mark.parametrize("column", ["partial", "simulated"])
def test_a_filtered_or_simulated_run_pushes_no_base_out(
    db: sqlite3.Connection, column: str
) -> None:
    Sample(db).run("r3", "2026-03-01T00:00:00Z", reuse=False)
    db.execute(f"update run set {column} = 1 where id = 'r3'")
    collect(db, RETENTION)
    assert readable(db) == {"r2", "r3"}


def test_an_old_answer_that_a_young_run_uses_is_spared(db: sqlite3.Connection) -> None:
    Sample(db).run("young", YOUNG, reuse=True)
    collect(db, RETENTION)
    assert readable(db) == {"r2", "young"}  # r2's answers are the newest, which `young` reused


@pytest.mark.parametrize("version", ["da045f29", "v2", "da04"])
def test_a_version_in_production_is_spared(db: sqlite3.Connection, version: str) -> None:
    db.execute("update run set labels = '{\"support-reply\": \"v2\"}' where id = 'r1'")
    db.execute("update cell set version = '5e1f0000' where run_id = 'r2'")
    kept = replace(RETENTION, production=(("support-reply", version), ("other", "5e1f0000")))
    assert collectable(db, kept).texts == 0
    collect(db, kept)
    assert readable(db) == {"r1", "r2"}


def test_another_version_than_the_one_in_production_goes(db: sqlite3.Connection) -> None:
    kept = replace(RETENTION, production=(("support-reply", "v3"), ("other", "da045f29")))
    collect(db, kept)
    assert readable(db) == {"r2"}


def test_a_case_in_quarantine_is_spared_in_its_own_experiment(db: sqlite3.Connection) -> None:
    kept = replace(RETENTION, quarantined=(("support-reply", "refund"), ("other", "late-parcel")))
    collect(db, kept)
    rows = db.execute("select distinct case_id from results where run_id = 'r1' and text not null")
    assert rows.fetchall() == [("refund",)]


def test_a_cell_that_a_person_graded_is_spared(db: sqlite3.Connection) -> None:
    db.execute("create table grade (cell_id text, actor text) strict")
    cell = db.execute("select id from cell where run_id = 'r1'").fetchone()[0]
    db.execute("insert into grade values (?, 'ada')", (cell,))
    collect(db, RETENTION)
    rows = db.execute("select cell from results where run_id = 'r1' and text not null").fetchall()
    assert rows == [(cell,)]


def test_progress_of_old_runs_goes_and_changes_of_status_stay(db: sqlite3.Connection) -> None:
    for run in ("r1", "r2"):
        add_event(db, run, "run:progress", {}, OLD)
    assert collect(db, RETENTION).events == 2
    assert db.execute("select count(*) from event where type = 'status:changed'").fetchone()[0] > 4


def test_a_preview_says_the_same_and_changes_nothing(db: sqlite3.Connection) -> None:
    changes = db.total_changes
    preview = collectable(db, RETENTION)
    assert db.total_changes == changes
    assert preview == collect(db, RETENTION)
    assert collectable(db, RETENTION) == RetentionResult(spared_texts=4)


def test_sums_can_be_made_anew_without_the_texts(db: sqlite3.Connection) -> None:
    before = db.execute("select * from rollup_model where run_id = 'r1'").fetchall()
    collect(db, RETENTION)
    write_rollups("r1")(db)
    assert db.execute("select * from rollup_model where run_id = 'r1'").fetchall() == before
