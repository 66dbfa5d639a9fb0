"""Which cases tell models apart: missing answers, sparse answerers, verdicts by interval."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from edison_ci.features.datasets.case_discrimination import DEAD, CaseVerdict, discriminations

if TYPE_CHECKING:
    from collections.abc import Iterator

CASES = 12


def scores(models: int, *, seed: int = 1) -> Iterator[tuple[str, str, int, float]]:
    """Yield scores of models of rising ability; case 0 is a coin, all others are good."""
    rng = random.Random(seed)
    for model in range(models):
        for case in range(CASES):
            able = model / models + rng.gauss(0, 0.1)
            yield f"c{case}", f"m{model}", 0, rng.random() if case == 0 else min(1, max(0, able))


def test_a_coin_among_good_cases_comes_last() -> None:
    found = discriminations(scores(60))
    assert (found.subjects, found.answers, found.family) == (60, 60, CASES)
    assert found.cases[-1].case == "c0"
    coin = found.cases[-1]
    assert coin.verdict in (CaseVerdict.DEAD, CaseVerdict.UNCLEAR)
    assert {each.verdict for each in found.cases[:-1]} == {CaseVerdict.SEPARATES}


def test_a_case_is_dead_when_its_whole_interval_is_low() -> None:
    coin = discriminations(scores(400)).cases[-1]
    assert coin.case == "c0" and coin.found.interval is not None
    assert coin.found.interval.high <= DEAD
    assert coin.verdict is CaseVerdict.DEAD


def test_missing_answers_to_hard_cases_are_no_advantage() -> None:
    # Half of the models never saw the hard cases: their plain mean would look better.
    rows = [
        (f"c{case}", f"m{model}", 0, 0.2 if hard else 0.9)
        for model in range(10)
        for case in range(CASES)
        if not ((hard := case >= 8) and model % 2)
    ]
    rows += [("same", f"m{model}", 0, float(model % 2)) for model in range(10)]
    found = {each.case: each for each in discriminations(rows).cases}
    assert found["same"].found.value is None, "the rest differs by what was asked only"


def test_who_answered_less_than_half_of_the_cases_is_left_out() -> None:
    sparse = [("c1", f"extra{i}", 0, 1.0) for i in range(5)]
    found = discriminations([*scores(20), *sparse])
    assert (found.subjects, found.answers) == (20, 20)
    assert {each.found.n for each in found.cases} == {20}


def test_the_score_of_a_case_is_the_mean_of_its_answers() -> None:
    rows = [("a", f"m{i}", 0, i / 10) for i in range(8)] + [
        ("b", f"m{i}", 0, 1.0) for i in range(8)
    ]
    found = {each.case: each.score for each in discriminations(rows).cases}
    assert found == {"a": pytest.approx(0.35), "b": 1.0}


def test_nothing_is_said_of_nothing() -> None:
    found = discriminations([])
    assert (found.cases, found.subjects, found.enough) == ([], 0, False)
