"""The sentence of a loop says no more than what unseen cases show."""

from __future__ import annotations

import pytest

from edison_ci.features.refine.loop_report import LoopReport, next_steps
from edison_ci.features.refine.loop_rows import Iteration, Loop, LoopState

pytestmark = pytest.mark.daily


def final(decision: str, n: int, estimate: float, low: float, high: float) -> LoopReport:
    holdout = {
        "n": n,
        "difference": {"estimate": estimate, "low": low, "high": high},
        "decision": decision,
        "newly_failing": [],
    }
    loop = Loop(
        "loop-1", "hello", "hello", "review", LoopState.DONE, 5, 1,
        "2026-11-15", evidence={"holdout": holdout}, stopped_by="converged",
    )  # fmt: skip
    iterations = (
        Iteration(1, "hello", "prompts/hello.md", "a" * 64, "A", "r1", 0.5, 30),
        Iteration(2, "hello", "prompts/hello.md", "b" * 64, "B", "r2", 0.6),
    )
    return LoopReport(loop, iterations, iterations[1], (), 1.0, (), (), "last 3 gained nothing")


@pytest.mark.parametrize(
    ("decision", "n", "estimate", "low", "high", "said"),
    [
        ("better", 20, 0.048, 0.009, 0.087, "is +4.8 (likely +0.9 to +8.7)."),
        (
            "unclear",
            31,
            0.066,
            -0.041,
            0.172,
            "may be chance: more held-out cases are needed to decide.",
        ),
        ("worse", 31, -0.1, -0.2, -0.01, "significantly worse than the first one: do not use it."),
        ("same", 400, 0.001, -0.01, 0.01, "There is no practical difference."),
        ("better", 12, 0.1, 0.05, 0.2, "Improvement not verified: too few cases."),
    ],
)
def test_the_sentence_doubts_what_is_not_shown(
    decision: str, n: int, estimate: float, low: float, high: float, said: str
) -> None:
    found = final(decision, n, estimate, low, high)
    assert found.sentence.startswith("Stopped after 2 iterations: last 3 gained nothing. On ")
    assert found.sentence.endswith(said)
    assert found.proven is (decision == "better" and n >= 16)
    assert any("Add cases" in step for step in next_steps(found)) is (
        n < 16 or decision == "unclear"
    )
