"""A prompt is dropped when it is shown to be worse than the best, and not before."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from docs.gates import Graded
from edison_ci.results.weaknesses import rivals_in

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
    found = {one.found.prompt: one for one in rivals_in(results.connection, results.run_id)}
    said, weak = found["bad"].sentence, found["bad"].found
    assert (weak.weak, weak.n, weak.level) == (True, 30, 0.05)
    assert weak.value < -0.15
    assert said == (
        f"bad would not be run again in a loop: {-100 * weak.value:.1f} points below {weak.best} "
        "on the same 30 cases, two-sided p < 0.001 for any difference."
    )
    (other,) = [rival for name, rival in found.items() if name != "bad"]
    assert not other.weak
    assert other.as_json()["weak"] is False


def test_prompts_are_compared_on_what_both_answered(results: Results) -> None:
    """The hard case that only one prompt answered says nothing about it."""
    for index in range(20):
        add(results, "a", f"c{index}", 0.8, model="small")
        add(results, "b", f"c{index}", 0.8, model="small")
    add(results, "b", "c0", 0.0, model="large")
    add(results, "b", "hard", 0.0)
    (rival,) = rivals_in(results.connection, results.run_id)
    assert (rival.found.value, rival.found.p, rival.weak) == (0.0, 1.0, False)


def test_quarantined_cases_never_count(results: Results) -> None:
    fill(results, 12, a=0.0, b=0.3)
    aside = {f"c{index:03}" for index in range(12)}
    assert rivals_in(results.connection, results.run_id, aside) == ()


def test_a_prompt_without_any_score_hides_no_other(results: Results) -> None:
    fill(results, 12, a=0.0, b=0.3)
    results.add(Graded("c000", None, prompt="broken"))
    (rival,) = rivals_in(results.connection, results.run_id)
    assert rival.weak


def test_clusters_are_permuted_as_a_whole(results: Results) -> None:
    """Four documents can never show anything at 5%, however many cases each of them has."""
    for index in range(40):
        for prompt, score in (("a", 0.9), ("b", 0.5)):
            add(results, prompt, f"c{index:03}", score)
    results.connection.execute("update cell set cluster = 'd' || (substr(case_id, 2) % 4)")
    (rival,) = rivals_in(results.connection, results.run_id)
    assert (rival.weak, rival.found.p) == (False, 0.125)


def test_one_prompt_has_no_rival(results: Results) -> None:
    fill(results, 5, only=0.0)
    assert rivals_in(results.connection, results.run_id) == ()


def test_prompts_that_are_alike_are_seldom_dropped(results: Results) -> None:
    """The best of four was picked from the same cases, which the range allows for."""
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
    assert dropped <= 7
