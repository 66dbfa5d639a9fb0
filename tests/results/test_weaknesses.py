"""A prompt is dropped when it is shown to be worse than the best, and not before."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from docs.gates import Graded
from edison_ci.results.weaknesses import PromptAgainstBest, rivals, rivals_in

if TYPE_CHECKING:
    from docs.gates import Results


def add(results: Results, prompt: str, case: str, score: float, **more: object) -> None:
    results.add(Graded(case, score, prompt=prompt, **more))  # type: ignore[arg-type]  # a few fields


def fill(results: Results, cases: int, seed: int = 3, **drops: float) -> None:
    random = Random(seed)
    for index in range(cases):
        level = random.uniform(0.6, 0.9)
        for prompt, drop in drops.items():
            add(results, prompt, f"c{index:03}", level - drop + random.uniform(-0.05, 0.05))


def test_a_prompt_that_is_clearly_worse_is_weak_and_says_why(results: Results) -> None:
    fill(results, 30, good=0.0, bad=0.2, same=0.0)
    found = {rival.prompt: rival for rival in rivals_in(results.connection, results.run_id)}
    weak = found["bad"]
    assert (weak.weak, weak.n, weak.level) == (True, 30, 0.025)
    assert weak.estimate < -0.15
    assert weak.sentence.startswith(
        f"bad would not be run again in a loop: {-100 * weak.estimate:.1f}"
    )
    assert weak.sentence.endswith(
        f" points below {weak.best} on the same 30 cases. "
        "Chance of seeing this by luck: 1 in 10,000."
    )
    (other,) = [rival for name, rival in found.items() if name != "bad"]
    assert not other.weak
    assert other.as_json()["weak"] is False


def test_the_level_is_that_of_all_prompts_together(results: Results) -> None:
    """Six cases that are all worse: p = 1/64, enough among 2 to 4 prompts and not among 5."""
    for count, weak in ((2, True), (4, True), (5, False)):
        beside = PromptAgainstBest([f"c{i}" for i in range(6)])
        beside.best.extend([0.9] * 6)
        beside.own.extend([0.5 - i / 100 for i in range(6)])
        beside.clusters.extend(f"case c{i}" for i in range(6))
        others = {f"p{index}": beside for index in range(count - 1)}
        assert {rival.weak for rival in rivals("best", others)} == {weak}, count


def test_prompts_are_compared_on_what_both_answered(results: Results) -> None:
    """The hard case that only one prompt answered says nothing about it."""
    for index in range(20):
        add(results, "a", f"c{index}", 0.8, model="small")
        add(results, "b", f"c{index}", 0.8, model="small")
    add(results, "b", "c0", 0.0, model="large")
    add(results, "b", "hard", 0.0)
    (rival,) = rivals_in(results.connection, results.run_id)
    assert (rival.estimate, rival.p, rival.weak) == (0.0, 1.0, False)


def test_quarantined_cases_never_count(results: Results) -> None:
    fill(results, 12, a=0.0, b=0.3)
    aside = {f"c{index:03}" for index in range(12)}
    assert rivals_in(results.connection, results.run_id, aside) == ()


def test_one_prompt_has_no_rival(results: Results) -> None:
    fill(results, 5, only=0.0)
    assert rivals_in(results.connection, results.run_id) == ()


def test_prompts_that_are_alike_are_seldom_dropped(results: Results) -> None:
    """The best of four was picked from the same cases: about 14 of 100 runs drop one."""
    random, dropped, runs = Random(11), 0, 60
    for _ in range(runs):
        results.connection.execute("savepoint trial")
        scores = [
            Graded(f"c{index}", min(1.0, max(0.0, random.gauss(0.7, 0.15))), prompt=prompt,
                   answer=None)
            for index in range(25)
            for prompt in ("a", "b", "c", "d")
        ]  # fmt: skip
        results.add(*scores)
        dropped += any(rival.weak for rival in rivals_in(results.connection, results.run_id))
        results.connection.execute("rollback to trial")
    assert dropped <= 16
