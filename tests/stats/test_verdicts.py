"""Several gates together: everything must pass, and failing allows for their number."""

from __future__ import annotations

import numpy as np
import pytest

from edison_ci.records import Verdict
from edison_ci.stats.gates import decide, identical_outputs
from edison_ci.stats.paired import Pairs
from edison_ci.stats.verdicts import GateDecision, decide_family


def gate(d: list[float]) -> GateDecision:
    pairs = Pairs.of([max(0.0, -x) for x in d], [max(0.0, x) for x in d])
    return decide(pairs, rng=np.random.default_rng(1))


PASSING = gate([0.0] * 60)
CLOSE = gate([-0.4] * 5 + [0.0] * 5)  # p = 1/32: fails alone, not among three
CLEAR = gate([-0.4] * 10)
OPEN = gate([0.1, -0.1] * 5)


def test_one_gate_is_its_own_family() -> None:
    assert CLOSE.verdict is Verdict.FAIL
    assert decide_family([CLOSE]).items == (CLOSE,)


def test_everything_must_pass() -> None:
    assert decide_family([PASSING, PASSING]).verdict is Verdict.PASS
    assert decide_family([PASSING, OPEN]).verdict is Verdict.INCONCLUSIVE
    assert decide_family([PASSING, OPEN, CLEAR]).verdict is Verdict.FAIL


def test_a_drop_that_fails_alone_may_be_luck_among_others() -> None:
    found = decide_family([CLOSE, OPEN, PASSING])
    item = found.items[0]
    assert (item.verdict, item.family) == (Verdict.INCONCLUSIVE, 3)
    assert item.p_adjusted == pytest.approx(3 / 32)
    assert item.n_more is not None and "3 comparisons" in item.notes[-1]
    assert found.verdict is Verdict.INCONCLUSIVE


def test_gates_without_a_test_are_not_part_of_the_family() -> None:
    found = decide_family([CLOSE, identical_outputs(10), identical_outputs(10)])
    assert (found.verdict, found.n) == (Verdict.FAIL, 1)


def test_members_that_are_decided_elsewhere_count() -> None:
    found = decide_family([CLOSE], others=[0.5, 1.0])
    assert found.n == 3
    assert found.items[0].p_adjusted == pytest.approx(3 / 32)
    assert found.verdict is Verdict.INCONCLUSIVE


def test_a_family_has_a_member() -> None:
    with pytest.raises(ValueError, match="at least one"):
        decide_family([])


@pytest.mark.nightly
def test_ten_related_metrics_without_change_fail_one_time_in_twenty() -> None:
    repeat, runs, n = np.random.default_rng(6), 60, 12
    fails = {"alone": 0, "together": 0}
    for _ in range(runs):
        shared = repeat.normal(0, 0.15, n)
        rows = [gate((shared + repeat.normal(0, 0.15, n)).clip(-1, 1).tolist()) for _ in range(10)]
        fails["alone"] += any(row.verdict is Verdict.FAIL for row in rows)
        fails["together"] += decide_family(rows).verdict is Verdict.FAIL
    assert fails["together"] / runs <= 0.05 + 2.5 * (0.05 * 0.95 / runs) ** 0.5
    assert fails["alone"] > fails["together"]
