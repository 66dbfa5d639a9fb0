"""Decisions are kept as they were made; a second deciding is a further round."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

from docs.gates import TIME
from edison_ci.decide.verdict import RunDecision
from edison_ci.results.decisions import decisions_of, write_decisions

if TYPE_CHECKING:
    from docs.gates import Results

GATES = (
    {"metric": "composite", "no_worse_than": "base", "margin": "10%"},
    {"metric": "pass_rate", "at_least": "80%", "if_unclear": "fail"},
    {"metric": "composite", "no_worse_than": "base", "per": "overall"},
)


@pytest.fixture
def decided(results: Results) -> RunDecision:
    for index in range(12):
        results.both(f"case-{index:02}", 0.9, 0.8)
    return results.decide(*GATES)


def test_rows_come_back_as_they_were_decided(results: Results, decided: RunDecision) -> None:
    write_decisions(results.run_id, decided.rows, now=TIME)(results.connection)
    assert RunDecision.of(decisions_of(results.connection, results.run_id)) == decided


def test_a_second_deciding_keeps_the_first(results: Results, decided: RunDecision) -> None:
    write_decisions(results.run_id, decided.rows, now=TIME)(results.connection)
    write_decisions(results.run_id, decided.rows[:1], now=TIME)(results.connection)
    assert decisions_of(results.connection, results.run_id) == decided.rows[:1]
    assert decisions_of(results.connection, results.run_id, round=0) == decided.rows


def test_a_run_that_nobody_decided_has_no_rows(results: Results) -> None:
    assert decisions_of(results.connection, results.run_id) == ()


def test_decisions_are_not_rewritten(results: Results, decided: RunDecision) -> None:
    write_decisions(results.run_id, decided.rows, now=TIME)(results.connection)
    with pytest.raises(sqlite3.IntegrityError, match="not rewritten"):
        results.connection.execute("update decision set verdict = 'pass'")
