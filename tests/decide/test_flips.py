"""A gate on flips finds broken cases that the mean hides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from docs.gates import Graded

if TYPE_CHECKING:
    from docs.gates import Results
    from edison_ci.results.decisions import GateRow

FLIPS = {"metric": "flips", "at_most": "2%"}


def flips(results: Results, **background: Any) -> GateRow:
    (row,) = results.decide(FLIPS, **background).rows
    return row


def write(results: Results, cases: int, broken: int, fixed: int = 0, repeats: int = 1) -> None:
    for index in range(cases):
        base, head = index >= fixed, not fixed <= index < fixed + broken
        for repeat in range(repeats):
            for side, passed in (("base", base), ("head", head)):
                results.add(Graded(f"case-{index:03}", 0.5, side, repeat, passed=passed))


def test_broken_cases_fail(results: Results) -> None:
    write(results, 100, broken=10, fixed=1)
    row = flips(results)
    assert (row.verdict, row.estimate, row.n) == ("fail", 0.1, 100)
    assert row.sentence == (
        "10 newly failing, 1 fixed of 100 cases: more than the 2% allowed. One-sided "
        "p = 0.0059 for more newly failing than fixed."
    )


def test_the_mean_does_not_hide_broken_cases(results: Results) -> None:
    write(results, 100, broken=9, fixed=9, repeats=3)
    decided = results.decide(
        FLIPS, {"metric": "pass_rate", "no_worse_than": "base", "margin": "10pp"}
    )
    assert [row.verdict for row in decided.rows] == ["fail", "pass"]
    assert decided.rows[0].sentence.startswith(
        "9 newly failing (none expected by chance), 9 fixed of 100 cases; by answers 9% broke, "
        "0% by noise: more than"
    )


def test_nothing_broken_passes(results: Results) -> None:
    write(results, 160, broken=0)
    row = flips(results)
    assert row.verdict == "pass"
    assert row.sentence == (
        "0 newly failing, 0 fixed of 160 cases: at worst 1.9%, inside the 2% allowed."
    )


def test_lost_answers_of_the_head_do_not_pass(results: Results) -> None:
    for index in range(200):
        lost = index < 9
        results.add(
            Graded(f"case-{index:03}", 1.0, "base", passed=True),
            Graded(f"case-{index:03}", status="error")
            if lost
            else Graded(f"case-{index:03}", 1.0, passed=True),
        )
    row = flips(results)
    assert (row.verdict, row.n, row.detail["missing"]) == ("inconclusive", 191, 9)


@pytest.mark.parametrize(("broken", "verdict"), [(20, "fail"), (3, "inconclusive")])
def test_many_lost_answers_do_not_hide_broken_cases(
    results: Results, broken: int, verdict: str
) -> None:
    for index in range(100):
        head = Graded(f"case-{index:03}", 0.5, passed=index >= broken)
        if index >= 70:
            head = Graded(f"case-{index:03}", status="error")
        results.add(Graded(f"case-{index:03}", 1.0, "base", passed=True), head)
    row = flips(results)
    assert (row.verdict, row.detail["missing"]) == (verdict, 30)


def test_flips_need_a_base(results: Results) -> None:
    results.add(Graded("case-1", 1.0, passed=True))
    assert flips(results, has_base=False).verdict == "skipped"


def test_flips_over_several_models_count_a_case_as_one_unit(results: Results) -> None:
    for index in range(12):
        for model in ("small", "large"):
            for side in ("base", "head"):
                passed = side == "base" or index >= 4
                cell = Graded(f"case-{index:03}", 0.5, side, model=model, passed=passed)
                results.add(cell)
    (row,) = results.decide({**FLIPS, "per": "overall"}).rows
    # 4 cases broke, not 8 answers: 1 in 16 by chance.
    assert (row.p, row.verdict, row.n) == (0.0625, "inconclusive", 24)


def test_flips_join_the_family_of_the_other_gates(results: Results) -> None:
    write(results, 60, broken=5)
    alone = flips(results)
    assert (alone.verdict, alone.p) == ("fail", 0.03125)
    other = {"metric": "composite", "no_worse_than": "base"}
    row = results.decide(FLIPS, other).rows[0]
    assert (row.verdict, row.p_holm) == ("inconclusive", 0.0625)


def test_a_net_gate_takes_fixed_cases_off(results: Results) -> None:
    write(results, 94, broken=13, fixed=11)
    (row,) = results.decide({"metric": "flips", "at_most": "18%", "net": True}).rows
    assert row.verdict == "pass"
    assert row.sentence.startswith(
        "13 newly failing, 11 fixed of 94 cases, net of fixed ones: at worst "
    )
    (row,) = results.decide({"metric": "flips", "at_most": "18%"}).rows
    assert row.verdict == "inconclusive"
