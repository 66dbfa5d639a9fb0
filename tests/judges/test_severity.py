"""A lenient judge's outage does not move a score."""

from __future__ import annotations

import numpy as np
import pytest

from edison_ci.judges.severity import case_scores, missing_share, strictness

JUDGES = ("a", "b", "c")


def by_least_squares(
    table: list[dict[str, float]], judges: tuple[str, ...]
) -> tuple[list[float], list[float]]:
    """The reference of STATS 3: lstsq on the indicator design with the constraint as a row."""
    rows, right = [], []
    for case, row in enumerate(table):
        for judge, score in row.items():
            design = np.zeros(len(table) + len(judges))
            design[case] = design[len(table) + judges.index(judge)] = 1
            rows.append(design)
            right.append(score)
    constraint = np.zeros(len(table) + len(judges))
    constraint[len(table) :] = 1
    found = np.linalg.lstsq(np.array([*rows, constraint]), np.array([*right, 0.0]), rcond=None)[0]
    return list(found[: len(table)]), list(found[len(table) :])


def random_table(seed: int, *, lost: float) -> list[dict[str, float]]:
    rng = np.random.default_rng(seed)
    bias = dict(zip(JUDGES, rng.normal(0, 0.1, 3), strict=True))
    table: list[dict[str, float]] = []
    for _ in range(30):
        quality = rng.uniform(0.2, 0.8)
        row = {j: float(quality + bias[j] + rng.normal(0, 0.03)) for j in JUDGES}
        kept = {j: s for j, s in row.items() if rng.random() > lost}
        table.append(kept or {"a": row["a"]})
    return table


@pytest.mark.parametrize("seed", range(5))
def test_the_fit_is_that_of_least_squares(seed: int) -> None:
    table = random_table(seed, lost=0.3)
    cases, judges = by_least_squares(table, JUDGES)
    assert list(strictness(table, JUDGES).values()) == pytest.approx(judges, abs=1e-9)
    assert case_scores(table, JUDGES) == pytest.approx(cases, abs=1e-9)


def test_an_outage_of_the_lenient_judge_moves_nothing() -> None:
    # b gives .2 more than a, and is missing in the second half.
    full = [{"a": 0.4, "b": 0.6} for _ in range(10)]
    half = full[:5] + [{"a": 0.4} for _ in range(5)]
    assert strictness(half, ("a", "b")) == pytest.approx({"a": -0.1, "b": 0.1})
    assert case_scores(half, ("a", "b")) == pytest.approx([0.5] * 10)
    assert case_scores(full, ("a", "b")) == pytest.approx([0.5] * 10)


def test_up_to_5_percent_missing_is_averaged_as_it_is() -> None:
    table = [{"a": 0.4, "b": 0.6} for _ in range(9)] + [{"a": 0.4}]
    assert missing_share(table, ("a", "b")) == pytest.approx(0.05)
    assert case_scores(table, ("a", "b"))[-1] == 0.4
    assert case_scores(table[1:], ("a", "b"))[-1] == pytest.approx(0.5)


def test_a_case_nobody_judged_is_missing() -> None:
    assert case_scores([{"a": 0.5}, {}], ("a",)) == [0.5, None]
    assert case_scores([], ("a",)) == []


def test_judges_that_share_no_case_are_left_as_they_are() -> None:
    table = [{"a": 0.4}, {"b": 0.8}]
    assert strictness(table, ("a", "b")) == {"a": 0.0, "b": 0.0}
    assert case_scores(table, ("a", "b")) == [0.4, 0.8]
