"""Slices, repeats and missing answers, added up by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from docs.sample import Sample
from edison_ci.records import CellStatus, Side
from edison_ci.results.rollups import rollups_of
from edison_ci.results.slices import Breakdown, Slice, breakdown_of
from edison_ci.store.cells import CaseFacts, CellRow, Component
from edison_ci.store.database import open_database

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path


RUN = "20261114T090000-aaaaaa"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A run without cells."""
    connection = open_database(tmp_path / "results.db")
    connection.execute(
        "insert into run (id, experiment, trigger, status, plan_hash, snapshot, cells_planned, "
        "created_at) values (?, 'e', 'cli', 'COMPLETED', 'h', '{}', 0, '2026-11-14T09:00:00Z')",
        (RUN,),
    )
    yield connection
    connection.close()


def put(db: sqlite3.Connection, case: str, score: float | None, **more: Any) -> None:
    """Finish a cell: a case with a score, of a kind."""
    facts = CaseFacts(json.dumps(more.pop("tags", [])), more.pop("difficulty", None), "golden", 7)
    passed = more.pop("passed", None if score is None else score >= 0.5)
    given = {"model": "m", "repeat": 0, "status": "ok", **more}
    number = db.execute("select count(*) from cell").fetchone()[0]
    row = CellRow(
        id=f"{number:024x}",
        run_id=RUN,
        side=Side.HEAD,
        prompt="p",
        version="v",
        case_id=case,
        request_hash="a" * 64,
        answer_no=None,
        composite=score,
        passed=passed,
        facts=facts,
        **given,
    )
    Sample(db).finish(row)


def broken_down(db: sqlite3.Connection) -> Breakdown:
    rollups_of(db, RUN)(db)
    return breakdown_of(db, RUN)


def slice_(found: Breakdown, value: str, model: str = "m") -> Slice:
    (one,) = [f for f in found.slices if (f.value, f.model) == (value, model)]
    return one


# --- slices -------------------------------------------------------------------------------


def test_each_kind_of_case_has_its_mean_over_cases(db: sqlite3.Connection) -> None:
    put(db, "one", 1.0, tags=["a", "b"], difficulty=1)
    put(db, "one", 0.0, repeat=1, tags=["a", "b"], difficulty=1)
    put(db, "two", 0.9, tags=["a"], difficulty=5)
    put(db, "three", 0.3)
    found = broken_down(db)
    a = slice_(found, "a")
    assert (a.cases, a.composite.n, a.pass_rate.n) == (2, 2, 2)
    assert a.composite.estimate == pytest.approx((0.5 + 0.9) / 2), "repeats are averaged first"
    assert a.difference == pytest.approx(0.7 - 0.3)
    assert slice_(found, "b").composite.low is None, "one case has no interval"
    assert {(f.dimension, f.value) for f in found.slices} == {
        ("tag", "a"), ("tag", "b"), ("tag", "(none)"), ("difficulty", "easy"),
        ("difficulty", "hard"), ("difficulty", "(none)"), ("kind", "golden"), ("length", "XS"),
    }  # fmt: skip
    assert slice_(found, "a", model="").composite == a.composite


def test_few_cases_are_shown_without_a_verdict(db: sqlite3.Connection) -> None:
    for index in range(30):
        put(db, f"c{index}", 0.0 if index < 9 else 1.0, tags=["weak"] if index < 9 else [])
    weak = slice_(broken_down(db), "weak")
    assert (weak.p, weak.stands_out) == (None, False)
    assert weak.difference == -1


def test_what_stands_out_is_adjusted_for_how_many_were_compared(db: sqlite3.Connection) -> None:
    for index in range(60):
        tags = ["weak" if index < 12 else "other", f"t{index % 3}"]
        put(db, f"c{index}", (0.2 if index < 12 else 0.8) + (index % 5) / 50, tags=tags)
    found = broken_down(db)
    weak, plain = slice_(found, "weak"), slice_(found, "t0")
    assert weak.stands_out and weak.family == 5, "of tags, weak and other are two comparisons"
    assert weak.p is not None and weak.p_adjusted is not None and weak.p < weak.p_adjusted
    assert plain.p is not None and not plain.stands_out


def test_two_kinds_against_each_other_are_one_comparison(db: sqlite3.Connection) -> None:
    for index in range(40):
        put(db, f"c{index}", 0.4 + (index % 7) / 20, difficulty=1 if index % 2 else 5)
    found = broken_down(db)
    assert slice_(found, "easy").family == 1
    assert slice_(found, "easy").p == slice_(found, "hard").p


def test_cases_of_a_cluster_are_one_unit(db: sqlite3.Connection) -> None:
    for index in range(60):
        group = f"g{index % 6}" if index < 30 else None
        tags = ["together"] if index < 30 else []
        put(db, f"c{index}", 0.5 + (index % 5) / 20, tags=tags, cluster=group)
    found = slice_(broken_down(db), "together")
    assert found.p is None, "thirty cases of six clusters are six"
    assert found.composite.n == 30


def test_several_models_are_told_apart_and_together(db: sqlite3.Connection) -> None:
    for index in range(4):
        put(db, f"c{index}", 1.0, tags=["a"])
        put(db, f"c{index}", 0.5, tags=["a"], model="n")
    found = broken_down(db)
    estimates = [slice_(found, "a", model).composite.estimate for model in ("m", "n", "")]
    assert estimates == [1.0, 0.5, 0.75]


def test_only_the_most_frequent_tags_are_looked_at(db: sqlite3.Connection) -> None:
    for index in range(150):
        put(db, f"c{index}", 1.0, tags=["often", f"once-{index}"])
    found = broken_down(db)
    tags = {f.value for f in found.slices if f.dimension == "tag"}
    assert len(tags) == 100 and "often" in tags


# --- repeats
# ----------------------------------------------------------------------------------------


def test_pass_all_and_any_are_counted_and_never_powers(db: sqlite3.Connection) -> None:
    for case, passes in (("one", (1, 1, 0)), ("two", (1, 1, 1)), ("three", (0, 0, 1))):
        for repeat, passed in enumerate(passes):
            put(db, case, float(passed), repeat=repeat)
    found = {each.k: each for each in broken_down(db).reliability}
    assert set(found) == {2, 3}
    assert found[2].pass_all == pytest.approx((1 / 3 + 1 + 0) / 3), "C(2,2)/C(3,2), not (2/3)^2"
    assert found[2].pass_any == pytest.approx((1 + 1 + 2 / 3) / 3)
    assert found[3].pass_all == pytest.approx(1 / 3)
    assert found[3].pass_any == 1
    assert found[3].n == 3 and found[3].pass_all_low is not None


def test_a_case_without_enough_repeats_is_left_out_and_not_counted(db: sqlite3.Connection) -> None:
    put(db, "one", 1.0)
    put(db, "one", None, repeat=1, status="error")
    put(db, "two", 1.0)
    put(db, "two", 1.0, repeat=1)
    (both,) = broken_down(db).reliability
    assert (both.k, both.n, both.pass_all) == (2, 1, 1)


def test_one_repeat_says_nothing_of_reliability(db: sqlite3.Connection) -> None:
    put(db, "one", 1.0)
    assert broken_down(db).reliability == ()


def test_all_models_together_are_told_only_where_there_are_several(db: sqlite3.Connection) -> None:
    for repeat in (0, 1):
        put(db, "one", 1.0, repeat=repeat)
        put(db, "one", float(repeat), repeat=repeat, model="n")
    told = {(each.model, each.k): each.pass_all for each in broken_down(db).reliability}
    assert told == {("", 2): 0.5, ("m", 2): 1, ("n", 2): 0}


# --- what is missing ------------------------------------------------------------------------------


def test_missing_answers_bound_the_score_from_both_sides(db: sqlite3.Connection) -> None:
    put(db, "one", 1.0)
    put(db, "one", None, repeat=1, status="error")
    put(db, "two", 0.4, passed=False)
    put(db, "three", None, status="error")
    whole = broken_down(db).totals[0]
    assert whole.missing == 2
    assert whole.composite_worst == pytest.approx((0.5 + 0.4 + 0) / 3)
    assert whole.composite_best == pytest.approx((1 + 0.4 + 1) / 3)
    assert whole.pass_worst == pytest.approx(0.5 / 3)
    assert whole.pass_best == pytest.approx(2 / 3)


def test_a_part_that_broke_counts_as_missing_and_a_blocked_answer_does_not(
    db: sqlite3.Connection,
) -> None:
    put(db, "one", 1.0)
    put(
        db,
        "two",
        None,
        components=(Component("odd", "check", None, None, 1.0, CellStatus.ERROR, "boom"),),
    )
    put(db, "three", None, status="blocked", passed=False)
    put(db, "four", None, status="skipped")
    whole = broken_down(db).totals[0]
    assert (whole.missing, whole.composite_worst, whole.composite_best) == (1, 0.5, 1)
    assert whole.pass_worst == pytest.approx(1 / 3)
    assert whole.pass_best == pytest.approx(2 / 3)


def test_without_errors_there_are_no_bounds(db: sqlite3.Connection) -> None:
    put(db, "one", 1.0)
    assert not any(totals.missing for totals in broken_down(db).totals)
