"""What fails in a run, why, and what changed against the base."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest

from docs.gates import Graded
from edison_ci.errors import UsageError
from edison_ci.records import CellStatus, Move
from edison_ci.results.rollups import rollups_of
from edison_ci.results.run_result import FAILING_SHOWN, RunResult
from edison_ci.results.triage import Triage, triage_of
from edison_ci.store.cells import Component, find_cell
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from docs.gates import Results


def triaged(results: Results, *, most: int | None = FAILING_SHOWN) -> Triage:
    return triage_of(ended(results), most=most)


def ended(results: Results) -> RunResult:
    rollups_of(results.connection, results.run_id)(results.connection)
    return RunResult(results.connection, find_run(results.connection, results.run_id))


def check(reason: str, name: str = "words") -> Component:
    return Component(name, "check", 0.0, False, 1.0, CellStatus.OK, reason)


def test_the_worst_cases_come_first_with_their_reason(results: Results) -> None:
    for index in range(15):
        score = index / 20
        results.add(Graded(f"c{index:02}", score, passed=False, components=(check(f"{index}"),)))
    results.add(Graded("good", 1.0, passed=True))
    found = triaged(results)
    assert (found.cases, found.failing, found.flips) == (16, 15, None)
    assert [one.case for one in found.worst] == [f"c{index:02}" for index in range(FAILING_SHOWN)]
    assert found.worst[3].why == "words: 3"
    assert len(triaged(results, most=None).worst) == 15


def test_cases_that_pass_are_counted_and_not_held_in_memory(results: Results) -> None:
    results.add(Graded("bad", 0.2, passed=False, components=(check("wrong"),)))
    found = ended(results)
    results.connection.execute(
        "insert into rollup_case (run_id, side, case_id, cells, ok, malformed, error, blocked, "
        "skipped, passed, failed, composite, lowest, cost_microusd, tokens) "
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000) "
        "select ?, 'head', 'case ' || i, 1, 1, 0, 0, 0, 0, 1, 0, 1.0, 1.0, 0, 0 from n",
        (results.run_id,),
    )
    tracemalloc.start()
    try:
        triage = triage_of(found, most=FAILING_SHOWN)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (triage.cases, triage.failing, [one.case for one in triage.worst]) == (
        20_001,
        1,
        ["bad"],
    )
    assert peak < 300_000, "less than the ids of the cases would take"


def test_an_error_says_what_went_wrong_and_more_than_one_failed_check_is_counted(
    results: Results,
) -> None:
    results.add(Graded("lost", None, status="error", answer=None))
    both = (check("too long"), check("no greeting", "icontains"))
    results.add(Graded("bad", 0.2, passed=False, components=both))
    found = {one.case: one.why for one in triaged(results).worst}
    assert found["bad"] == "icontains: no greeting (and 1 more)"
    assert found["lost"].startswith("error: ")


def test_newly_failing_cases_come_before_worse_ones(results: Results) -> None:
    results.both("always", 0.1, 0.1)
    for index in range(6):
        results.both(f"new-{index}", 0.9, 0.4)
    results.both("fixed", 0.2, 0.9)
    results.both("lower", 0.9, 0.6)
    found = triaged(results)
    assert found.failing == 7
    assert [one.newly for one in found.worst] == [True] * 6 + [False]
    assert found.flips is not None
    assert found.flips.counts == "6 newly failing, 1 fixed"
    moved = [(one.case, one.move) for one in ended(results).changed_cases()]
    assert moved[:1] == [("new-0", Move.NEWLY_FAILING)]
    assert moved[-2:] == [("fixed", Move.FIXED), ("lower", Move.LOWER)]


def test_repeats_show_how_many_flips_chance_gives(results: Results) -> None:
    for index in range(20):
        for repeat in range(2):
            results.both(f"c{index:02}", float(repeat), float((repeat + index) % 2), repeat=repeat)
    flips = triaged(results).flips
    assert flips is not None
    # Every case fails once and passes once on both sides, whichever answer is which.
    assert (flips.newly_failing, flips.fixed, flips.p) == (0, 0, None)
    assert flips.expected == pytest.approx(20 / 6)


def test_a_case_names_its_cell_where_one_model_answered(results: Results) -> None:
    results.add(Graded("greeting", 0.5, model="small"))
    assert find_cell(results.connection, results.run_id, "greeting").model == "small"
    results.add(Graded("greeting", 0.5, model="large"))
    with pytest.raises(UsageError, match="2 models answered greeting; which one") as error:
        find_cell(results.connection, results.run_id, "greeting")
    assert error.value.hint == "name it: greeting@large, greeting@small"
