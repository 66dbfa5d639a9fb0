"""Simulated gates on datasets that ask the same question under several ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.simulate_batch import MARGIN
from benchmarks.simulate_figures import Figures, Setting, percent
from edison_ci.stats.gates import worst_plausible_change

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Questions = Callable[[np.random.Generator, float], Array]
    """Changes of the questions, given their mean drop."""

QUESTIONS, IDS = 20, 200
DROPS = (MARGIN, 0.10)


def _broken(rng: np.random.Generator, drop: float) -> Array:
    return -(rng.random(QUESTIONS) < drop).astype(float)


def _halved(rng: np.random.Generator, drop: float) -> Array:
    return np.where(rng.random(QUESTIONS) < 2 * drop, -0.5, 0.0) + rng.normal(0, 0.1, QUESTIONS)


def _shifted(rng: np.random.Generator, drop: float) -> Array:
    return rng.normal(-drop, 0.2, QUESTIONS)


SHAPES: dict[str, Questions] = {
    "some questions break, else ties": _broken,
    "some lose half, sd 10": _halved,
    "all shift, sd 20": _shifted,
}


def repeated_inputs(setting: Setting) -> Figures:
    """Simulate drops on 20 questions under 200 ids; answers to a question are equal, or vary."""
    clusters = [f"input {index % QUESTIONS}" for index in range(IDS)]
    rows: list[tuple[str, ...]] = []
    for name, questions in SHAPES.items():
        for noise in (0.0, 0.2):
            found: dict[bool, list[str]] = {False: [], True: []}
            for drop in DROPS:
                passed = np.zeros(2)
                for _ in range(setting.runs):
                    each = np.tile(questions(setting.rng, drop), IDS // QUESTIONS)
                    d = (each + setting.rng.normal(0, noise, IDS)).clip(-1, 1)
                    passed += [_passes(d, None), _passes(d, clusters)]
                for clustered, share in zip(found, passed / setting.runs, strict=True):
                    found[clustered].append(percent(float(share)))
            answers = "equal answers" if not noise else "answers of sd 20"
            rows.append((f"{name}; {answers}", *found[False], *found[True]))
    return Figures(
        "20 questions under 200 ids, the head is worse: PASS, %",
        "questions",
        tuple(f"{unit}, drop {100 * drop:g}" for unit in ("by id", "by input") for drop in DROPS),
        tuple(rows),
        "by input, as the gate decides, about 5 at most; by id is not used",
    )


def _passes(d: Array, clusters: list[str] | None) -> bool:
    worst = worst_plausible_change(d, clusters=clusters)
    return worst is not None and worst > -MARGIN
