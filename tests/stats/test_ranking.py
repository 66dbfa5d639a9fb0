"""Rankings against closed forms and planted strengths, and where data set no limit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edison_ci.stats.ranking import Comparison, Model, RankingRule, fit, rank

if TYPE_CHECKING:
    from typing import Literal

    from edison_ci.stats.ranking import RankedSystem, Ranking

    Outcome = Literal["first", "second", "tie"]


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def games(
    first: str, second: str, *, wins: int = 0, losses: int = 0, ties: int = 0
) -> list[Comparison]:
    counts: dict[Outcome, int] = {"first": wins, "second": losses, "tie": ties}
    outcomes = [outcome for outcome, count in counts.items() for _ in range(count)]
    return [
        Comparison(first, second, outcome, f"{first}{second}{index}")
        for index, outcome in enumerate(outcomes)
    ]


def of(ranking: Ranking, system: str) -> RankedSystem:
    return next(placed for placed in ranking.placed if placed.system == system)


def planted(theta: dict[str, float], cases: int, seed: int, g: float = 1.0) -> list[Comparison]:
    draw, found = np.random.default_rng(seed), []
    outcomes: list[Outcome] = ["first", "second", "tie"]
    for case in range(cases):
        for i, a in theta.items():
            for j, b in theta.items():
                if i != j:
                    odds = np.array([math.exp(a), g * math.exp(b), 0.6 * math.exp((a + b) / 2)])
                    pick = outcomes[int(draw.choice(3, p=odds / odds.sum()))]
                    found.append(Comparison(i, j, pick, str(case)))
    return found


def test_two_systems_have_the_closed_form() -> None:
    found = rank(games("a", "b", wins=12, losses=5, ties=8), rng=rng())
    assert of(found, "a").theta - of(found, "b").theta == pytest.approx(math.log(12 / 5))
    assert found.tie_weight == pytest.approx(8 / math.sqrt(60))


def test_without_ties_it_is_bradley_terry() -> None:
    found = rank(games("a", "b", wins=12, losses=5), rng=rng())
    assert found.tie_weight is None
    assert of(found, "a").theta == pytest.approx(math.log(12 / 5) / 2)


def test_three_systems_meet_the_likelihood_equations() -> None:
    played = [
        *games("a", "b", wins=7, losses=4, ties=3),
        *games("b", "c", wins=6, losses=5, ties=1),
        *games("a", "c", wins=9, losses=2, ties=2),
    ]
    found = rank(played, rng=rng())
    pi = {name: math.exp(of(found, name).theta) for name in "abc"}
    v = found.tie_weight or 0.0
    wins, expected = dict.fromkeys("abc", 0.0), dict.fromkeys("abc", 0.0)
    for game in played:
        i, j = game.first, game.second
        tie = v * math.sqrt(pi[i] * pi[j])
        total = pi[i] + pi[j] + tie
        for name, rival in ((i, j), (j, i)):
            expected[name] += (pi[name] + tie / 2) / total
            won = game.outcome == ("first" if name == i else "second")
            wins[name] += 1.0 if won else 0.5 if game.outcome == "tie" else 0.0
            assert rival != name
    for name in "abc":
        assert wins[name] == pytest.approx(expected[name], abs=1e-7)


def test_planted_strengths_and_order_effect_are_recovered() -> None:
    theta = {"a": 0.6, "b": 0.1, "c": -0.7}
    found = rank(planted(theta, 300, 3, g=0.7), RankingRule(order_effect=True), rng=rng())
    for name, value in theta.items():
        assert of(found, name).theta == pytest.approx(value, abs=0.12)
    assert found.second_shown == pytest.approx(0.7, abs=0.1)
    assert [placed.system for placed in found.placed] == ["a", "b", "c"]
    assert [(p.best_rank, p.worst_rank) for p in found.placed] == [(1, 1), (2, 2), (3, 3)]


def test_systems_that_are_alike_share_their_ranks() -> None:
    found = rank(planted({"a": 0.0, "b": 0.02, "c": 0.0}, 40, 5), rng=rng())
    assert all((p.best_rank, p.worst_rank) == (1, 3) for p in found.placed)


def test_swapping_names_mirrors_the_strengths() -> None:
    played = planted({"a": 0.4, "b": -0.4}, 30, 6)
    other = {"a": "b", "b": "a"}
    turned = [Comparison(other[g.first], other[g.second], g.outcome, g.case) for g in played]
    there, back = rank(played, rng=rng()), rank(turned, rng=rng())
    assert of(there, "a").theta == pytest.approx(of(back, "b").theta)


def test_the_scale_is_elo_like_and_wins_against_the_baseline_are_a_chance() -> None:
    found = rank(games("a", "b", wins=10, losses=1), RankingRule(baseline="b"), rng=rng())
    assert of(found, "a").value - of(found, "b").value == pytest.approx(400)
    assert of(found, "a").beats_baseline == pytest.approx(10 / 11)
    assert of(found, "b").beats_baseline == pytest.approx(0.5)


def test_islands_are_listed_and_not_ranked() -> None:
    found = rank(
        [*games("a", "b", wins=3, losses=2), *games("c", "d", wins=1, losses=1)], rng=rng()
    )
    assert (found.placed, found.islands) == ((), (("a", "b"), ("c", "d")))
    assert rank([], rng=rng()).placed == ()


@pytest.mark.parametrize(
    "played",
    [
        games("a", "b", wins=25),
        games("a", "b", wins=25, ties=5),  # likeliest at infinite strength, despite the ties
        games("a", "b", ties=25),
        [*games("a", "b", wins=12, losses=9), *games("a", "c", wins=9), *games("b", "c", wins=8)],
    ],
)
def test_where_data_set_no_limit_half_wins_do_and_it_is_said(played: list[Comparison]) -> None:
    found = rank(played, rng=rng())
    assert "not enough losses" in found.notes[0]
    for placed in found.placed:
        assert math.isfinite(placed.value)
        assert placed.interval is not None
        assert placed.interval.high - placed.interval.low > 20


def test_a_judge_that_always_prefers_the_first_has_a_finite_order_effect() -> None:
    played = [*games("a", "b", wins=20), *games("b", "a", wins=20)]
    found = rank(played, RankingRule(order_effect=True), rng=rng())
    assert found.second_shown is not None and 0 < found.second_shown < 0.1
    assert of(found, "a").theta == pytest.approx(0, abs=1e-6)


def test_few_cases_are_bootstrapped_with_a_warning_and_one_has_no_error_bar() -> None:
    few = rank(planted({"a": 0.5, "b": -0.5}, 12, 7), rng=rng())
    assert "bootstrap" in few.method and "only 12 cases" in few.notes
    assert all(p.interval and p.interval.low <= p.value <= p.interval.high for p in few.placed)
    one = rank([Comparison("a", "b", "first", "x"), Comparison("b", "a", "first", "x")], rng=rng())
    assert all(p.interval is None for p in one.placed)


def test_cases_that_all_say_the_same_still_have_width() -> None:
    played = [
        Comparison(pair[0], pair[1], "first", str(i)) for i in range(30) for pair in ("ab", "ba")
    ]
    found = rank(played, rng=rng())
    assert all(p.interval and p.interval.high - p.interval.low > 50 for p in found.placed)


def test_a_system_is_not_compared_with_itself() -> None:
    with pytest.raises(ValueError, match="itself"):
        rank(games("a", "a", wins=1), rng=rng())


def test_intervals_cover_the_planted_strength_with_cases_that_repeat_themselves() -> None:
    """Both orders of a case share its luck: judgments are not independent, cases are."""
    draw, hits, runs = np.random.default_rng(9), 0, 200
    outcomes: list[Outcome] = ["first", "second"]
    for _ in range(runs):
        played = []
        for case in range(40):
            a_wins = draw.random() < 0.6
            for first, second in ("ab", "ba") * 2:
                same = a_wins if draw.random() < 0.8 else draw.random() < 0.6
                played.append(
                    Comparison(first, second, outcomes[same != (first == "a")], str(case))
                )
        interval = of(rank(played, rng=draw), "a").interval
        assert interval is not None
        truth = 1000 + 400 / math.log(10) * math.log(0.6 / 0.4) / 2
        hits += interval.low <= truth <= interval.high
    assert hits / runs >= 0.90


def test_many_fits_side_by_side_are_each_fit_alone() -> None:
    pairs = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 2.0], [0.0, 2.0]])
    model = Model.of(pairs, systems=3, ties=True, order_effect=False)
    counts = np.random.default_rng(2).integers(1, 9, (5, 4, 3)).astype(float)
    together = fit(model, counts)
    assert together.settled
    for row, alone in zip(together.parameters, counts, strict=True):
        assert row == pytest.approx(fit(model, alone).parameters, abs=1e-7)
