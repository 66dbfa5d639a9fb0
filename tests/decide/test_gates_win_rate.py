"""A gate on the win rate counts cases, leaves out what is missing, and says who is preferred."""

from __future__ import annotations

from typing import Any

import pytest

from docs.gates import Graded, Results
from edison_ci.results.pairwise import head_to_head, matches_of
from edison_ci.results.samples import TwoSidedSample

BASE: dict[str, Any] = {"metric": "win_rate", "no_worse_than": "base", "margin": "10pp"}
FLOOR: dict[str, Any] = {"metric": "win_rate", "at_least": "50%"}


def play(results: Results, number: int, ab: str | None, ba: str | None, **more: Any) -> str:
    name = f"case-{number:03}"
    results.add(Graded(name, 0.8, "base"), Graded(name, 0.8))
    results.compare(name, ab, ba, **more)
    return name


def test_a_head_that_always_loses_fails_and_one_that_always_wins_passes(results: Results) -> None:
    for number in range(30):
        play(results, number, "b", "b")
    (row,) = results.decide(BASE).rows
    assert (row.verdict, row.estimate, row.n) == ("fail", 0.0, 30)
    assert row.detail["kind"] == "level"
    assert row.detail["margin"] == pytest.approx(0.4)
    assert row.sentence.startswith("base preferred in 100%")


def test_a_head_that_always_wins_passes(results: Results) -> None:
    for number in range(30):
        play(results, number, "a", "a")
    base, floor = results.decide(BASE, FLOOR).rows
    assert (base.verdict, floor.verdict) == ("pass", "pass")
    assert base.detail["worst_plausible"] > 0.9, "one lost case more takes half a win of 31"


def test_a_case_counts_once_however_many_repeats_it_has(results: Results) -> None:
    for number in range(6):
        name = f"case-{number:03}"
        for repeat in range(10):
            head, base = (Graded(name, 0.8, side, repeat) for side in ("head", "base"))
            results.add(base, head)
            results.compare(name, "a", "a" if repeat else "b", a=head, b=base)
    (row,) = results.decide(FLOOR).rows
    assert row.n == 6
    assert row.estimate == pytest.approx(0.95)


def test_a_quarter_without_both_orders_is_too_much_to_decide(results: Results) -> None:
    for number in range(40):
        play(results, number, "a", None if number % 4 == 0 else "a")
    for gate in (BASE, FLOOR):
        (row,) = results.decide(gate).rows
        assert (row.verdict, row.n, row.detail["missing"]) == ("inconclusive", 30, 10)
        assert "too many to decide" in row.sentence


def test_a_pass_must_hold_if_missing_cases_had_been_lost(results: Results) -> None:
    for number in range(100):
        play(results, number, "a" if number % 2 else "b", "a" if number % 2 else "b")
    gate = {**BASE, "margin": "13pp"}
    assert results.decide(gate).verdict == "pass"
    for number in range(100, 112):
        play(results, number, None, "a")
    (row,) = results.decide(gate).rows
    assert (row.verdict, row.detail["missing"]) == ("inconclusive", 12)


def test_cases_in_quarantine_do_not_count(results: Results) -> None:
    aside = {play(results, number, "b", "b") for number in range(20)}
    for number in range(20, 50):
        play(results, number, "a", "a")
    (row,) = results.decide(BASE, quarantined=aside).rows
    assert (row.verdict, row.estimate, row.n) == ("pass", 1.0, 30)


def test_clusters_are_what_is_counted(results: Results) -> None:
    names = [play(results, number, "b", "b") for number in range(30)]
    clusters = {name: f"document {number % 3}" for number, name in enumerate(names)}
    (row,) = results.decide(BASE, clusters=clusters).rows
    assert row.verdict == "inconclusive", "three documents cannot show a loss at 5%"
    assert results.decide(BASE).verdict == "fail"


def test_equal_answers_by_construction_pass_without_statistics(results: Results) -> None:
    for number in range(4):
        play(results, number, "tie", "tie", asked=False)
    (row,) = results.decide(BASE).rows
    assert (row.verdict, row.p) == ("pass", None)
    assert row.sentence.startswith("Nothing to compare: identical outputs (4 cases).")


def test_ties_of_a_judge_are_weak_evidence(results: Results) -> None:
    for number in range(10):
        play(results, number, "tie", "tie")
    (row,) = results.decide(BASE).rows
    assert row.verdict == "inconclusive"
    assert row.n_more is not None


def test_a_relative_margin_is_a_share_of_one_half(results: Results) -> None:
    for number in range(30):
        play(results, number, "a", "b")
    (row,) = results.decide({**BASE, "margin": "10%"}).rows
    assert row.detail["margin"] == pytest.approx(0.45)
    assert "this judge follows position on 10 of 10 cases" in row.detail["notes"]


def test_a_judge_is_not_credited_for_what_it_was_not_asked(results: Results) -> None:
    """Nine unasked ties would make a judge that always says first look steady."""
    for number in range(90):
        play(results, number, "tie", "tie", asked=False)
    for number in range(90, 100):
        play(results, number, "a", "b")
    (match,) = matches_of(TwoSidedSample.of_run(results.connection, results.run_id))
    found = head_to_head(match)
    assert found.rate.n == 100
    assert found.rate.order is not None
    assert (found.rate.order.n, found.rate.order.consistency) == (10, 0.0)
    assert found.rate.order.warn


def test_preferring_its_own_beyond_what_the_scores_say_is_found(results: Results) -> None:
    for number in range(20):
        name = f"case-{number:03}"
        results.add(Graded(name, 0.9, "base"), Graded(name, 0.4))
        results.compare(name, "a", "a", own="a")
    (match,) = matches_of(TwoSidedSample.of_run(results.connection, results.run_id))
    own = head_to_head(match).own
    assert own is not None
    assert (own.win_rate, own.excess, own.n, own.warn) == (1.0, 1.0, 20, True)
    assert "100 points more than the scores say" in head_to_head(match).warnings[-1]
