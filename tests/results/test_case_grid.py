"""Filters and orders of the grid find what going through every cell finds."""

from __future__ import annotations

import sqlite3
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.results import case_grid, case_query
from edison_ci.results.case_grid import RepeatResult, worst_of
from edison_ci.results.case_query import (
    CaseQuery,
    FoundCases,
    ListedCase,
    ListPlace,
    find_cases,
    place_in_list,
)
from edison_ci.results.components import ComponentName
from edison_ci.results.explanation import failure_of
from edison_ci.store.answers import text_hash
from edison_ci.store.cells import find_cell

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from tests.web.conftest import Stored

COLUMNS = {"worst": "lowest", "best": "composite", "tokens": "tokens", "cost": "cost_microusd",
           "latency": "latency_ms"}  # fmt: skip


def found(connection: sqlite3.Connection, run: str, **asked: Any) -> FoundCases:
    return find_cases(connection, run, CaseQuery(**asked))


def every_page(connection: sqlite3.Connection, run: str, **asked: Any) -> list[str]:
    first = found(connection, run, **asked)
    cases = list(first.cases)
    while len(cases) < first.total:
        more = found(connection, run, offset=len(cases), **asked).cases
        assert more
        cases += more
    return cases


def brute(connection: sqlite3.Connection, run: str, asked: dict[str, Any]) -> set[str]:
    """Return the cases that fit, by looking at every cell."""
    sql = "select distinct c.case_id from cell c where c.run_id = :run and c.side = :side"
    within = " and c.case_id in (select x.case_id from cell x {} where x.run_id = :run and "
    within += "x.side = :side and {})"
    values = {"run": run, "side": asked.get("side", "head"), **asked}
    if "tag" in asked:
        sql += (
            " and exists (select 1 from run_case f, json_each(f.tags) t where f.run_id = :run "
            "and f.case_id = c.case_id and t.value = :tag)"
        )
    if "status" in asked:
        sql += within.format("", "x.status = :status")
    if "component" in asked and "failed" in asked:
        values["kind"], values["name"] = values.pop("component")
        sql += within.format(
            "join component p on p.cell_id = x.id",
            "p.kind = :kind and p.name = :name and (p.passed = 0 or "
            "(p.passed is null and p.score < 0.5))",
        )
    elif "failed" in asked:
        sql += within.format("", "x.passed = 0")
    if "flagged" in asked:
        sql += within.format(
            "join run r on r.id = x.run_id join human_grades h on h.experiment = r.experiment and "
            "h.case_id = x.case_id and h.request_hash = x.request_hash and h.answer_no = "
            "x.answer_no",
            "h.flagged = 1",
        )
    if "text" in asked:
        texts = within.format(
            "join answer_text a on a.request_hash = x.request_hash and a.answer_no = x.answer_no",
            "x.status <> 'blocked' and instr(lower(a.text), lower(:text))",
        ).removeprefix(" and ")
        sql += f" and (instr(lower(c.case_id), lower(:text)) or {texts})"
    return {case for (case,) in connection.execute(sql, values)}


def runs_and_sides(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    return connection.execute("select run_id, side from rollup_run").fetchall()


@pytest.mark.nightly
def test_filters_find_what_every_cell_says(connection: sqlite3.Connection) -> None:
    names = ("tag", "failed", "status", "text")
    every = (("", "hostile", "returns"), (False, True), ("", "ok", "error", "malformed"),
             ("", "THANK", "return"))  # fmt: skip
    filters: list[dict[str, Any]] = [
        {key: value for key, value in zip(names, chosen, strict=True) if value}
        for chosen in product(*every)
    ]
    components = connection.execute("select distinct kind, name from rollup_component").fetchall()
    filters += [
        {"failed": True, "component": ComponentName(kind, name)} for kind, name in components
    ]
    filters += [{"flagged": True}, {"flagged": True, "failed": True}]
    filters += [{"flagged": True, "text": "e"}]
    filters += [
        {"failed": True, "component": ComponentName(k, n), "tag": "returns"} for k, n in components
    ]
    some = 0
    for run, side in runs_and_sides(connection):
        for chosen in filters:
            asked = {"side": side, **chosen}
            expected = brute(connection, run, asked)
            some += bool(expected)
            for order in ({}, {"sort": "name"}):
                cases = every_page(connection, run, **asked, **order)
                assert len(cases) == len(set(cases)), (asked, order)
                assert set(cases) == expected, (asked, order)
    assert some > 100
    ((run, side, flagged),) = connection.execute(
        "select c.run_id, c.side, c.case_id from manual_grade g join cell c on c.id = g.cell_id "
        "where g.flagged = 1"
    )
    assert brute(connection, run, {"flagged": True, "side": side}) == {flagged}


@pytest.mark.parametrize("sort", COLUMNS)
def test_orders_hold_over_all_pages(connection: sqlite3.Connection, sort: str) -> None:
    column, up = COLUMNS[sort], sort == "worst"
    for run, side in runs_and_sides(connection):
        values = dict(
            connection.execute(
                f"select case_id, {column} from rollup_case where run_id = ? and side = ?",
                (run, side),
            ).fetchall()
        )
        for chosen in ({}, {"failed": True}, {"tag": "returns"}):
            cases = every_page(connection, run, side=side, sort=sort, **chosen)
            got = [values[case] for case in cases]
            known = [value for value in got if value is not None]
            assert known == sorted(known, reverse=not up)
            assert got == known + [None] * (len(got) - len(known)), "what has none comes last"


def test_a_text_is_looked_for_in_as_many_answers_as_there_is_time_for(
    connection: sqlite3.Connection, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = "thank"
    whole = every_page(connection, stored.against, text=word)
    assert found(connection, stored.against, text=word).searched is None
    monkeypatch.setattr(case_query, "MOST_ANSWERS", 20)
    first = found(connection, stored.against, text=word)
    assert first.searched is not None
    assert first.searched < found(connection, stored.against).total
    few = every_page(connection, stored.against, text=word)
    assert set(few) < set(whole), "the others are in answers that were not looked at"
    assert every_page(connection, stored.against, text=word, deep=True) == whole
    (last,) = connection.execute(
        "select max(case_id) from rollup_case where run_id = ?", (stored.against,)
    ).fetchone()
    assert last in every_page(connection, stored.against, text=last), "names are all looked at"


def test_an_offset_beyond_the_end_gives_the_last_page(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    whole = every_page(connection, stored.against, limit=7)
    last = found(connection, stored.against, offset=7_000, limit=7)
    assert last.cases == whole[(len(whole) - 1) // 7 * 7 :]
    assert last.total == len(whole)
    nothing = found(connection, stored.against, tag="no such tag", offset=40)
    assert nothing == FoundCases([], 0)


def test_counts_of_several_filters_are_remembered(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    kept: dict[Hashable, int] = {}

    def remember(key: Hashable, work: Callable[[], int]) -> int:
        return kept[key] if key in kept else kept.setdefault(key, work())

    query = CaseQuery(tag="returns", failed=True)
    first = find_cases(connection, stored.against, query, remember)
    assert list(kept.values()) == [first.total]
    kept = dict.fromkeys(kept, 17)
    assert find_cases(connection, stored.against, query, remember).total == 17
    find_cases(connection, stored.against, CaseQuery(tag="returns"), remember)
    assert len(kept) == 1, "of one filter the count is stored"


def test_cases_of_a_run_that_has_not_ended_come_by_name(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    paused = stored.one("select id from run where status = 'PAUSED'")
    grid = case_grid.case_grid(connection, paused, CaseQuery(sort="worst", limit=3))
    names = [row.case for row in grid.rows]
    assert not grid.settled
    assert names == sorted(names)
    assert grid.total == stored.one("select count(*) from run_case where run_id = ?", paused)


@pytest.mark.parametrize(
    "asked",
    [{}, {"sort": "name"}, {"sort": "cost", "failed": True}, {"tag": "returns"}, {"text": "re"}],
)
def test_a_list_leads_from_its_first_case_to_its_last(
    connection: sqlite3.Connection, stored: Stored, asked: dict[str, Any]
) -> None:
    limit = 5
    whole = every_page(connection, stored.against, limit=limit, **asked)
    listed = [ListedCase(case, at // limit + 1) for at, case in enumerate(whole)]
    assert len({each.page for each in listed}) > 1
    for at, each in enumerate(listed):
        query = CaseQuery(offset=(each.page - 1) * limit, limit=limit, **asked)
        place = place_in_list(connection, stored.against, query, each.case)
        before = listed[at - 1] if at else None
        after = listed[at + 1] if at + 1 < len(listed) else None
        assert place == ListPlace(at + 1, len(whole), before, after)


def test_a_case_that_has_left_a_list_is_followed_by_the_first_of_its_page(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    (passing,) = connection.execute(
        "select case_id from rollup_case where run_id = ? and side = 'head' and failed = 0 limit 1",
        (stored.against,),
    ).fetchone()
    query = CaseQuery(failed=True)
    first = find_cases(connection, stored.against, query)
    place = place_in_list(connection, stored.against, query, passing)
    assert place == ListPlace(0, first.total, None, ListedCase(first.cases[0], 1))
    nothing = place_in_list(connection, stored.against, CaseQuery(tag="no such tag"), passing)
    assert nothing == ListPlace(0, 0, None, None)


def test_the_grid_has_the_worst_answer_with_its_text_and_why_it_fails(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    grid = case_grid.case_grid(connection, stored.against, CaseQuery())
    boxes = [box for row in grid.rows for box in row.boxes if box is not None]
    assert any(len(box.repeats) > 1 for box in boxes)
    for box in boxes:
        composite, text = connection.execute(
            "select c.composite, x.text from cell c join answer_text x on x.request_hash = "
            "c.request_hash and x.answer_no = c.answer_no where c.id = ?",
            (box.worst.id,),
        ).fetchone()
        assert box.text == text[: case_grid.MOST_READ]
        failed = [repeat for repeat in box.repeats if repeat.passed == 0] or box.repeats
        assert composite == min(repeat.composite or 0.0 for repeat in failed)
        assert bool(box.reason) is (box.worst.passed == 0)
    assert any("words" in box.reason for box in boxes)


def test_a_blocked_answer_is_withheld_and_thinking_is_left_out(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    memory = sqlite3.connect(":memory:")
    connection.backup(memory)
    cell = find_cell(memory, stored.against, stored.cell())
    text = "<thinking>hm</thinking><response>Yes</response>"
    memory.execute(
        "update answer_text set text = ?, sha256 = ? where request_hash = ? and answer_no = ?",
        (text, text_hash(text, None), cell.request_hash, cell.answer_no),
    )
    begins = partial(case_grid.answer_beginning, memory, cell.id)
    assert begins("none") == "<response>Yes</response>"
    assert begins("response") == begins("response+json") == "Yes"
    memory.execute("update cell set status = 'blocked', reason = 'blocked: pii' where id = ?",
                   (cell.id,))  # fmt: skip
    assert begins("response") is None
    assert failure_of(find_cell(memory, stored.against, cell.id)) == "blocked: pii"
    memory.close()


def repeat(number: int, status: str, composite: float | None, passed: int | None) -> RepeatResult:
    return RepeatResult(
        str(number), number, status, composite, passed, None, None, None, None, None
    )


def test_the_worst_repeat_is_in_error_or_failed_or_has_the_lowest_score() -> None:
    fine, low = repeat(0, "ok", 0.9, 1), repeat(1, "ok", 0.7, 1)
    failed, error = repeat(2, "ok", 0.8, 0), repeat(3, "error", None, None)
    assert worst_of([fine, low]) == low
    assert worst_of([fine, low, failed]) == failed
    assert worst_of([fine, low, failed, error]) == error


def test_a_failed_rubric_is_explained_by_its_weakest_criterion(
    connection: sqlite3.Connection, stored: Stored
) -> None:
    memory = sqlite3.connect(":memory:")
    connection.backup(memory)
    cell_id = find_cell(memory, stored.against, stored.cell()).id
    memory.execute("update component set passed = 1 where cell_id = ?", (cell_id,))
    memory.execute(
        "update component set passed = 0 where cell_id = ? and kind = 'rubric'", (cell_id,)
    )
    memory.execute(
        "update component set score = 0, reason = 'cold' where cell_id = ? and name = 'Empathy'",
        (cell_id,),
    )
    assert failure_of(find_cell(memory, stored.against, cell_id)) == "Empathy: cold"
    memory.close()
