"""Filters and orders of the grid find what going through every cell finds."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.results import case_grid
from edison_ci.results.case_grid import CaseQuery, FoundCases, find_cases
from edison_ci.results.scores import ComponentName

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Hashable

    from tests.web.conftest import Stored

COLUMNS = {"grade": ("lowest", "composite"), "tokens": ("tokens", "tokens"),
           "cost": ("cost_microusd", "cost_microusd"),
           "latency": ("latency_ms", "latency_ms")}  # fmt: skip


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
            for order in ({}, {"sort": "worst"}):
                cases = every_page(connection, run, **asked, **order)
                assert len(cases) == len(set(cases)), (asked, order)
                assert set(cases) == expected, (asked, order)
    assert some > 100
    ((run, side, flagged),) = connection.execute(
        "select c.run_id, c.side, c.case_id from manual_grade g join cell c on c.id = g.cell_id "
        "where g.flagged = 1"
    )
    assert brute(connection, run, {"flagged": True, "side": side}) == {flagged}


@pytest.mark.parametrize("metric", COLUMNS)
@pytest.mark.parametrize("sort", ["worst", "best"])
def test_orders_hold_over_all_pages(connection: sqlite3.Connection, metric: str, sort: str) -> None:
    column = COLUMNS[metric][sort == "best"]
    up = (sort == "worst") is (metric == "grade")
    for run, side in runs_and_sides(connection):
        values = dict(
            connection.execute(
                f"select case_id, {column} from rollup_case where run_id = ? and side = ?",
                (run, side),
            ).fetchall()
        )
        for chosen in ({}, {"failed": True}, {"tag": "returns"}):
            cases = every_page(connection, run, side=side, metric=metric, sort=sort, **chosen)
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
    monkeypatch.setattr(case_grid, "MOST_ANSWERS", 20)
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
