"""What is simulated of many looks: prompts that are dropped, and planned analyses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from benchmarks.simulate_figures import Figures, Setting, percent
from edison_ci.stats.convergence import contrasts
from edison_ci.stats.sequential import planned_levels

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[np.float64]


def pruning(setting: Setting) -> Figures:
    rng, runs, counts = setting.rng, max(setting.runs // 10, 1), (2, 4, 8)
    rows = []
    for n, documents in ((10, None), (25, None), (50, None), (48, 8)):
        clusters = None if documents is None else [f"d{i % documents}" for i in range(n)]
        shares = []
        for count in counts:
            dropped = 0
            for _ in range(runs):
                scores = rng.normal(0.7, 0.15, (count, n))
                if documents is not None:
                    scores += rng.normal(0, 0.1, (count, documents))[:, np.arange(n) % documents]
                table = {f"p{i}": row for i, row in enumerate(scores.clip(0, 1))}
                found = contrasts(table, rng=rng, clusters=clusters)
                dropped += any(one.weak for one in found)
            shares.append(percent(dropped / runs))
        name = f"{n} cases" + ("" if documents is None else f" from {documents} documents")
        rows.append((name, *shares))
    return Figures(
        f"Prompts that are all alike: any is dropped from a loop, % of {runs:,} runs", "cases",
        tuple(f"{count} prompts" for count in counts), tuple(rows), "at most 5",
    )  # fmt: skip


def planned_family(setting: Setting) -> Figures:
    rng, runs, looks, steps = setting.rng, setting.runs, 3, np.sqrt(np.arange(1, 4))
    counts = (1, 2, 5, 10)
    rows = []
    for name, shared in (("independent", 0.0), ("correlated, r = .5", 0.5)):
        for effects in (False, True):
            divided, graphical = [], []
            for count in counts:
                own = rng.normal(size=(runs, count, looks))
                common = rng.normal(size=(runs, 1, looks))
                walk = (np.sqrt(1 - shared) * own + np.sqrt(shared) * common).cumsum(axis=2)
                if effects:  # half of the comparisons really dropped
                    walk[:, count - count // 2 :] += 2.5 * steps**2
                p = ndtr(-walk / steps)
                null = np.arange(count) < (count - count // 2 if effects else count)
                level = np.array(planned_levels(looks))
                graded = np.array(
                    [planned_levels(looks, alpha=0.05 / m) for m in range(1, count + 1)]
                )
                divided.append(any_false(p, level / np.arange(1, count + 1)[:, None], null))
                graphical.append(any_false(p, graded, null))
            truth = f"{name}, half dropped" if effects else name
            rows.append((f"{truth}: level of the look divided", *map(percent, divided)))
            rows.append((f"{truth}: edison", *map(percent, graphical)))
    return Figures(
        "Several gates at three planned analyses: any unchanged one fails, %", "gates and rule",
        tuple("1 gate" if count == 1 else f"{count} gates" for count in counts), tuple(rows),
        "edison at most 5",
    )  # fmt: skip


def any_false(p: Array, levels: Array, null: NDArray[np.bool_]) -> float:
    """Share of families in which Holm rejects an unchanged gate; a failure ends the analyses.

    `levels` has a row for each number of gates that are not rejected yet, and a column a look.
    """
    families, gates, looks = p.shape
    open_families, false = np.ones(families, dtype=bool), np.zeros(families, dtype=bool)
    for look in range(looks):
        order = np.argsort(p[:, :, look], axis=1)
        values = np.take_along_axis(p[:, :, look], order, axis=1)
        steps = values <= levels[::-1, look][None, :gates]
        rejected = np.logical_and.accumulate(steps, axis=1)
        wrong = (rejected & null[order]).any(axis=1)
        false |= wrong & open_families
        open_families &= ~rejected.any(axis=1)
    return float(false.mean())


TABLES: tuple[Callable[[Setting], Figures], ...] = (
    pruning, planned_family,
)  # fmt: skip
