"""Sums are right, and are made anew when a run ends again."""

from __future__ import annotations

import json
import math
import random
import sqlite3
import statistics
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from docs.sample import Sample, build
from edison_ci.records import CellStatus, Side
from edison_ci.results.rollups import cost_interval, median_interval, write_rollups
from edison_ci.results.scores import P95_FROM, VariantScore
from edison_ci.stats.scores import Interval
from edison_ci.store.cells import CaseFacts, CellRow, Component
from edison_ci.store.database import open_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST, SECOND = "20261114T090000-aaaaaa", "20261115T090000-bbbbbb"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    build(tmp_path / "results.db")
    connection = open_database(tmp_path / "results.db")
    connection.row_factory = sqlite3.Row
    yield connection
    connection.close()


def one(db: sqlite3.Connection, sql: str, *values: str) -> dict[str, Any]:
    (row,) = db.execute(sql, values).fetchall()
    return dict(row)


def test_a_model_has_its_cells_scores_and_money(db: sqlite3.Connection) -> None:
    row = one(db, "select * from rollup_model where run_id = ? and model = 'small'", FIRST)
    assert (row["cells"], row["ok"], row["composite_n"], row["version"]) == (2, 2, 2, "da045f29")
    assert row["composite"] == pytest.approx(0.55)
    assert row["pass_rate"] == 0.5
    assert (row["answers"], row["bought"], row["cost_microusd"]) == (2, 2, 2 * (49 + 41))
    assert row["composite_low"] is None


def test_what_was_reused_is_saved_and_not_spent(db: sqlite3.Connection) -> None:
    first = one(db, "select * from rollup_run where run_id = ?", FIRST)
    second = one(db, "select * from rollup_run where run_id = ?", SECOND)
    assert second["bought"] == second["cost_microusd"] == 0
    assert second["saved_microusd"] == first["cost_microusd"] > 0


def test_lost_calls_are_in_the_spending_at_their_estimate(db: sqlite3.Connection) -> None:
    row = one(db, "select * from rollup_spending where run_id = ?", SECOND)
    assert (row["calls"], row["released"], row["unknown"], row["cost_microusd"]) == (0, 1, 1, 900)


def test_the_spending_of_all_runs_is_what_was_booked(db: sqlite3.Connection) -> None:
    spent = one(db, "select sum(cost_microusd) as s from rollup_spending")["s"]
    assert spent == one(db, "select sum(microusd) as s from booked where scope = 'project'")["s"]
    assert spent == one(db, "select sum(cost_microusd) as s from spending")["s"]


def test_a_part_has_its_distribution(db: sqlite3.Connection) -> None:
    sql = "select * from rollup_component where run_id = ? and model = 'small' and name = 'polite'"
    row = one(db, sql, FIRST)
    assert (row["n"], row["passed"], row["failed"], row["min"], row["max"]) == (2, 1, 1, 0.2, 0.9)
    assert row["sd"] == pytest.approx(statistics.stdev([0.2, 0.9]))
    assert json.loads(row["bins"]) == [0, 0, 1, 0, 0, 0, 0, 0, 0, 1]


def marks(db: sqlite3.Connection, run: str) -> set[tuple[str, str, str, str]]:
    rows = db.execute("select side, kind, value, case_id from rollup_mark where run_id = ?", (run,))
    return {tuple(row) for row in rows}


def test_cases_are_marked_with_what_they_are_looked_for_by(db: sqlite3.Connection) -> None:
    def component(name: str, score: float | None, passed: bool | None) -> Component:
        return Component(name, "criterion", score, passed, 1.0, CellStatus.OK)

    facts = CaseFacts('["billing", "upset"]', 2, "golden", 7)
    components = (
        component("weak", 0.4, None),
        component("fair", 0.5, None),
        component("floor", 0.9, False),
    )
    sample = Sample(db)
    for status, score in (("ok", 0.2), ("malformed", 0.0)):
        row = replace(cell(len(status), "sad", 0, status, score), facts=facts)
        sample.finish(replace(row, components=components if status == "ok" else ()))
    sample.finish(cell(20, "fine", 0, "ok", 1.0))
    sample.finish(cell(21, "fine", 1, "error", None))
    before = marks(db, SECOND)
    write_rollups(FIRST)(db)
    assert {mark for mark in marks(db, FIRST) if mark[0] == "base"} == {
        ("base", "tag", "billing", "sad"),
        ("base", "tag", "upset", "sad"),
        ("base", "failed", "", "sad"),
        ("base", "failed", "criterion:weak", "sad"),
        ("base", "failed", "criterion:floor", "sad"),
        ("base", "status", "malformed", "sad"),
        ("base", "status", "error", "fine"),
    }
    assert marks(db, SECOND) == before
    counted = db.execute(
        "select side, kind, value, cases from rollup_marked where run_id = ?", (FIRST,)
    )
    found = Counter(mark[:3] for mark in marks(db, FIRST))
    cases = db.execute("select distinct side, case_id from cell where run_id = ?", (FIRST,))
    found.update((side, "all", "") for side, _ in cases.fetchall())
    assert {(row[0], row[1], row[2]): row[3] for row in counted} == found


def test_a_case_that_is_mended_loses_its_marks(db: sqlite3.Connection) -> None:
    sample = Sample(db)
    sample.finish(cell(1, "easy", 0, "error", None))
    write_rollups(FIRST)(db)
    assert ("base", "status", "error", "easy") in marks(db, FIRST)
    sample.finish(cell(1, "easy", 0, "ok", 1.0))
    write_rollups(FIRST)(db)
    assert not {mark for mark in marks(db, FIRST) if mark[3] == "easy"}


def test_intervals_are_taken_from_whoever_made_them(db: sqlite3.Connection) -> None:
    measured = [
        VariantScore("", "", Interval(0.7, 0.6, 0.8, 4, "t"), None),
        VariantScore("support-reply", "small", None, Interval(0.5, 0.1, 0.9, 2, "Wilson")),
    ]
    write_rollups(FIRST, scores=measured)(db)
    row = one(db, "select * from rollup_model where run_id = ? and model = 'small'", FIRST)
    assert (row["pass_low"], row["pass_high"], row["pass_method"]) == (0.1, 0.9, "Wilson")
    assert row["composite_low"] is None
    whole = one(db, "select * from rollup_run where run_id = ?", FIRST)
    assert (whole["composite"], whole["composite_low"], whole["composite_method"]) == (
        0.7,
        0.6,
        "t",
    )


def test_writing_them_again_changes_nothing(db: sqlite3.Connection) -> None:
    names = ("model", "case", "mark", "marked", "component", "spending")
    tables = [f"rollup_{name}" for name in names]
    before = [db.execute(f"select * from {t}").fetchall() for t in tables]
    write_rollups(FIRST)(db)
    assert [db.execute(f"select * from {t}").fetchall() for t in tables] == before


def cell(number: int, case: str, repeat: int, status: str, score: float | None) -> CellRow:
    passed = None if score is None else score >= 0.5
    return CellRow(
        f"{number:012x}",
        FIRST,
        Side.BASE,
        "p",
        "v",
        "m",
        case,
        repeat,
        "f" * 64,
        None,
        CellStatus(status),
        score,
        passed,
    )


def test_repeats_are_averaged_before_cases(db: sqlite3.Connection) -> None:
    sample = Sample(db)
    for repeat, score in enumerate((1.0, 1.0, 1.0)):
        sample.finish(cell(repeat, "easy", repeat, "ok", score))
    sample.finish(cell(9, "hard", 0, "malformed", 0.0))
    sample.finish(cell(10, "none", 0, "error", None))
    write_rollups(FIRST)(db)
    row = one(db, "select * from rollup_run where run_id = ? and side = 'base'", FIRST)
    assert (row["composite"], row["composite_n"], row["pass_rate"]) == (0.5, 2, 0.5)
    assert (row["cells"], row["ok"], row["malformed"], row["error"]) == (5, 3, 1, 1)
    assert (row["answers"], row["latency_p50_ms"]) == (0, None)


def test_a_part_without_scores_has_no_mean(db: sqlite3.Connection) -> None:
    broken = cell(1, "easy", 0, "ok", None)
    component = Component("odd", "check", None, None, 1.0, CellStatus.ERROR, "boom")
    Sample(db).finish(replace(broken, components=(component,)))
    write_rollups(FIRST)(db)
    row = one(db, "select * from rollup_component where name = 'odd'")
    assert (row["n"], row["mean"], row["sd"], row["errors"]) == (0, None, None, 1)


@pytest.mark.parametrize(("count", "p95"), [(P95_FROM - 1, None), (P95_FROM, 57), (100, 95)])
def test_percentiles_are_those_of_the_answers_used(
    db: sqlite3.Connection, count: int, p95: int | None
) -> None:
    sample = Sample(db)
    for number in range(1, count + 1):
        request_hash = f"{number:064x}"
        db.execute(
            "insert into attempt (id, request_hash, run_id, model, phase, state, est_microusd, "
            "cost_microusd, est_tokens, owner, sent_at) "
            "values (?, ?, ?, 'm', 'generate', 'settled', 1, 1, 1, 'o', '2026-11-14')",
            (1000 + number, request_hash, FIRST),
        )
        db.execute(
            "insert into answer values (?, 0, ?, 'stop', 1, 1, 0, ?, 1, 'billed', 'm', '', 't')",
            (request_hash, 1000 + number, number),
        )
        sample.finish(
            CellRow(
                f"x{number:011x}",
                FIRST,
                Side.BASE,
                "p",
                "v",
                "m",
                f"c{number}",
                0,
                request_hash,
                0,
                CellStatus.OK,
            )
        )
    write_rollups(FIRST)(db)
    row = one(db, "select * from rollup_model where run_id = ? and side = 'base'", FIRST)
    assert row["latency_p50_ms"] == (count + 1) // 2
    assert row["latency_p95_ms"] == p95


def test_intervals_of_cost_and_latency_cover_what_they_should() -> None:
    """Answers of a case are alike, so the case is the unit: 95% or somewhat more."""
    draw = random.Random(5)
    rounds, cases, repeats = 400, 40, 3
    middle, mean = math.exp(6.0), 100 * math.exp(0.5**2 / 2)
    hits = {"cost": 0, "latency": 0}
    for _ in range(rounds):
        costs, times = [], []
        for _ in range(cases):
            dear, slow = draw.gauss(0, 0.4), draw.gauss(0, 0.4)
            costs += [100 * math.exp(dear + draw.gauss(0, 0.3)) for _ in range(repeats)]
            times += [round(middle * math.exp(slow + draw.gauss(0, 0.3))) for _ in range(repeats)]
        low, high = cost_interval(sum(costs), sum(c * c for c in costs), len(costs), cases)
        assert low is not None and high is not None
        hits["cost"] += low <= mean <= high
        counted = sorted(Counter(times).items())
        least, most = median_interval(counted, cases)
        assert least is not None and most is not None
        hits["latency"] += least <= middle <= most
    assert hits["cost"] / rounds >= 0.94
    assert hits["latency"] / rounds >= 0.94


def test_equal_costs_and_few_latencies_have_no_interval() -> None:
    assert cost_interval(300.0, 3 * 100.0**2, 3, 3) == (None, None)
    assert cost_interval(100.0, 100.0**2, 1, 1) == (None, None)
    assert median_interval([(5, 2), (6, 3)], 5) == (None, None)
    assert median_interval([(5, 3), (6, 3)], 6) == (5, 6)
    assert median_interval([], 9) == (None, None)


def test_every_view_can_be_read(db: sqlite3.Connection) -> None:
    views = [name for (name,) in db.execute("select name from sqlite_schema where type = 'view'")]
    rows = {view: len(db.execute(f"select * from {view}").fetchall()) for view in views}
    assert rows == {
        "counted_grade": 0,
        "failed_checks": 4,
        "head_to_head": 0,
        "human_grades": 0,
        "judge_scores": 0,
        "latest_runs": 1,
        "own_attempt": 6,
        "results": 8,
        "spending": 3,
    }
    assert one(db, "select run_id from latest_runs") == {"run_id": SECOND}
    text = one(
        db, "select text from results where run_id = ? and model = 'small' and not passed", FIRST
    )
    assert text == {"text": "No."}
