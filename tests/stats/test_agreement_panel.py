"""Several judges: ensembles, disagreement, and severity when judgments are missing."""

from __future__ import annotations

import numpy as np
import pytest

from edison_ci.stats.agreement import panel_score, severity_of


def test_ensembles_by_hand() -> None:
    row = [0.0, 0.6, 0.7, 0.8, 1.0]
    assert panel_score(row).value == pytest.approx(0.62)
    assert panel_score(row, method="median").value == 0.7
    assert panel_score(row, method="trimmed").value == pytest.approx(0.7)
    assert panel_score(row[:4], method="trimmed").value == panel_score(row[:4]).value


def test_disagreement_is_flagged() -> None:
    apart = panel_score([0.2, 0.7])
    assert apart.flagged and apart.spread == pytest.approx(0.5)
    assert panel_score([0.1, 0.1, 0.59]).flagged  # sd .28
    assert not panel_score([0.5, 0.7, 0.6]).flagged


def test_one_judge_has_no_disagreement_and_none_no_score() -> None:
    one = panel_score([None, 0.4])
    assert (one.value, one.n, one.sd, one.flagged) == (0.4, 1, None, False)
    assert panel_score([None, None]).value is None
    with pytest.raises(ValueError, match="scores"):
        panel_score([0.5, float("nan")])


@pytest.mark.parametrize("seed", range(5))
def test_severity_is_that_of_least_squares(seed: int) -> None:
    """The reference of STATS 3: the indicator design, with the constraint as a further row."""
    rng, cases, judges = np.random.default_rng(seed), 30, 3
    bias = rng.normal(0, 0.1, judges)
    rows: list[list[float | None]] = []
    design, scores = [], []
    for case in range(cases):
        row: list[float | None] = [None] * judges
        for judge in sorted({int(rng.integers(judges)), int(rng.integers(judges)), case % judges}):
            row[judge] = score = float(rng.uniform(0.3, 0.6) + bias[judge])
            indicators = np.zeros(cases + judges)
            indicators[[case, cases + judge]] = 1
            design.append(indicators)
            scores.append(score)
        rows.append(row)
    together = np.concatenate([np.zeros(cases), np.ones(judges)])
    solved = np.linalg.lstsq(np.array([*design, together]), np.array([*scores, 0.0]), rcond=None)
    assert severity_of(rows, judges) == pytest.approx(tuple(solved[0][cases:]), abs=1e-9)


def test_severity_of_a_large_table_with_holes_is_that_of_least_squares() -> None:
    random = np.random.default_rng(3)
    bias = np.array([0.1, -0.06, -0.04])
    table = [
        [None if random.uniform() < 0.2 else float(level + b) for b in bias]
        for level in random.uniform(0.2, 0.8, 4_000)
    ]
    assert severity_of(table, 3) == pytest.approx(tuple(bias), abs=1e-9)
    assert severity_of([[0.5, None], [None, 0.7]], 2) == (None, None)
    assert severity_of([], 2) == (None, None)


def test_severity_of_a_complete_table_is_the_judges_mean() -> None:
    assert severity_of([[0.5, 0.7], [0.6, 0.9], [0.1, 0.2]], 2) == pytest.approx((-0.1, 0.1))
