"""Every record of the package is frozen, slotted, says its n and method, and is plain JSON."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pkgutil
from typing import Any

import numpy as np
import pytest

from edison_ci import stats
from edison_ci.stats.ab import compare
from edison_ci.stats.agreement import krippendorff
from edison_ci.stats.calibration import judge_trust
from edison_ci.stats.convergence import accept, converged
from edison_ci.stats.corrected import LabelledScores, corrected_mean
from edison_ci.stats.drift import watch
from edison_ci.stats.gates import Limit, decide_level
from edison_ci.stats.other_metrics import decide_amount, tail_latency
from edison_ci.stats.paired import Pairs, paired_difference
from edison_ci.stats.pairwise import BothOrders, win_rate
from edison_ci.stats.ranking import Comparison, rank
from edison_ci.stats.sequential import decide_look, evidence
from edison_ci.stats.value import Contender, recommend

MODULES = [
    importlib.import_module(f"edison_ci.stats.{found.name}")
    for found in pkgutil.iter_modules(stats.__path__)
]


def results() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    base, head = rng.beta(6, 2, (2, 40))
    pairs = Pairs.of(base, head)
    games = [
        Comparison(a, b, "first" if rng.random() < 0.5 else "second", str(i))
        for i in range(25)
        for a, b in ("xy", "yz", "zx")
    ]
    return {
        "paired": paired_difference(head - base),
        "anytime": decide_look(pairs, looks=[20, 40]),
        "evidence": evidence(head - base, null="at most", mean=-0.05),
        "level": decide_level(base, Limit(0.7)),
        "amount": decide_amount(pairs, rng=rng),
        "tail": tail_latency(rng.exponential(1, 90)),
        "wins": win_rate([BothOrders(1.0, 0.5), BothOrders(0.0, 1.0)] * 9, rng=rng),
        "rank": rank(games, rng=rng),
        "alpha": krippendorff(np.column_stack((base, head)).tolist(), rng=rng),
        "mean": corrected_mean(LabelledScores(base[:25], head[:25], head[25:])),
        "trust": judge_trust(base, head),
        "ab": compare(pairs, rng=rng),
        "loop": converged([0.5, 0.6, 0.61]),
        "accepted": accept(head - base, rng=rng),
        "value": recommend([Contender("a", base, 1.0), Contender("b", head, 2.0)]),
        "drift": watch(range(9), [{"a": 0.5 + 0.01 * i, "b": 0.4} for i in range(9)]),
    }


@pytest.mark.parametrize("name", results())
def test_a_result_is_plain_json(name: str) -> None:
    text = json.dumps(dataclasses.asdict(results()[name]), allow_nan=False)
    assert '"method"' in text and '"n"' in text


def test_records_are_frozen_and_have_slots(subtests: pytest.Subtests) -> None:
    for module in MODULES:
        with subtests.test(module.__name__):
            for _, found in inspect.getmembers(module, dataclasses.is_dataclass):
                if inspect.isclass(found) and found.__module__ == module.__name__:
                    if hasattr(found, "add"):  # it adds up, and is no record
                        continue
                    with pytest.raises(dataclasses.FrozenInstanceError):
                        setattr(object.__new__(found), dataclasses.fields(found)[0].name, 1)
                    assert "__slots__" in vars(found), found


def test_nothing_in_the_package_needs_scipy_stats(subtests: pytest.Subtests) -> None:
    for module in MODULES:
        with subtests.test(module.__name__):
            assert "scipy.stats" not in inspect.getsource(module)
