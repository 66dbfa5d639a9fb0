"""Repeated pushes tighten PASS and never weaken FAIL."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from docs.gates import Change, Graded
from edison_ci.stats.verdicts import push_level

if TYPE_CHECKING:
    from docs.gates import Results
    from edison_ci.results.decisions import GateRow

GATE: dict[str, Any] = {"metric": "composite", "no_worse_than": "base", "margin": "5pp"}


def at(results: Results, push: int | None, gate: dict[str, Any] | None = None) -> GateRow:
    (row,) = results.decide(gate or GATE, push=push).rows
    return row


def test_the_levels_of_all_pushes_add_up_to_a_bound() -> None:
    assert push_level(0.05, 1) == 0.05
    assert push_level(0.05, 2) == pytest.approx(0.05 * 6 / (4 * math.pi**2))
    assert sum(push_level(0.05, push) for push in range(1, 100_000)) < 0.07
    with pytest.raises(ValueError, match="counted from 1"):
        push_level(0.05, 0)


def test_a_later_push_needs_more_to_pass(results: Results) -> None:
    Change(150).write(results)
    first, fourth = at(results, 1), at(results, 4)
    assert (first.verdict, fourth.verdict) == ("pass", "inconclusive")
    assert fourth.sentence.endswith("Push 4 of this pull request: to pass takes 99.81% confidence.")
    assert (first.low, first.high) == (fourth.low, fourth.high)
    assert fourth.n_more is not None


def test_enough_cases_pass_at_any_push(results: Results) -> None:
    Change(600).write(results)
    first, tenth = at(results, 1), at(results, 10)
    assert (first.verdict, tenth.verdict) == ("pass", "pass")
    assert tenth.detail["worst_plausible"] < first.detail["worst_plausible"]


def test_a_failure_is_the_same_at_any_push(results: Results) -> None:
    Change(60, drop=0.1).write(results)
    assert at(results, 1).as_json() == at(results, 50).as_json()
    assert at(results, 50).verdict == "fail"


def test_an_unknown_number_is_said(results: Results) -> None:
    Change(150).write(results)
    row = at(results, None)
    assert row.verdict == "pass"
    assert row.sentence.endswith("Number of earlier pushes unknown: not counted.")


def test_floors_and_flips_are_tightened_and_observed_shares_are_not(results: Results) -> None:
    random = Random(2)
    for index in range(160):
        for side in ("base", "head"):
            results.add(Graded(f"case-{index:03}", random.uniform(0.7, 1), side, passed=True))
    for gate in ({"metric": "flips", "at_most": "2%"}, {"metric": "pass_rate", "at_least": "98%"}):
        assert (at(results, 1, gate).verdict, at(results, 3, gate).verdict) == (
            "pass",
            "inconclusive",
        )
    errors = {"metric": "errors", "at_most": "5%"}
    assert at(results, 9, errors).as_json() == at(results, 1, errors).as_json()
