"""What is simulated of item discrimination: cases of known worth, answered by random models."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.simulate_figures import Figures, Setting, percent
from edison_ci.features.datasets.case_discrimination import CaseVerdict, discriminations
from edison_ci.stats.discrimination import discrimination

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_SEED = 20260107
_CASES = 30
_TRUTH = 40_000
"""Models by which the true correlation of a case is known, to about 0.005."""
_EACH = (0.0, 1.0, 2.0)
"""Slopes of the two-parameter logistic model (Birnbaum 1968): no worth, some, much."""
_NAMES = ("useless", "fair", "good")
_DESIGNS = ((5, 1), (5, 4), (8, 1), (8, 3), (12, 1), (12, 3), (20, 1), (40, 1), (100, 1))


class _Shape(NamedTuple):
    name: str
    passes: bool
    easier: float
    """Added to the logit of every case."""


_SHAPES = (
    _Shape("pass or fail", True, 0.0),
    _Shape("pass or fail, about 90% pass", True, 2.5),
    _Shape("scores, noise 15", False, 0.0),
)


class _Bank(NamedTuple):
    slopes: Array
    levels: Array

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> _Bank:
        slopes = np.array(_EACH)[np.arange(_CASES) % len(_EACH)]
        return cls(slopes, rng.normal(-0.5, 1.0, _CASES))

    def answered(self, shape: _Shape, models: int, repeats: int, rng: np.random.Generator) -> Array:
        """Return a row for each answerer, the repeats of a model one after the other."""
        ability = np.repeat(rng.normal(size=(models, 1)), repeats, axis=0)
        logit = self.slopes * (ability - self.levels) + shape.easier
        chance = 1 / (1 + np.exp(-logit))
        if shape.passes:
            return (rng.random(chance.shape) < chance).astype(np.float64)
        return np.clip(chance + rng.normal(0, 0.15, chance.shape), 0, 1)

    def truth(self, shape: _Shape, rng: np.random.Generator) -> Array:
        table = self.answered(shape, _TRUTH, 1, rng)
        rest = table.sum(axis=1, keepdims=True) - table
        x, y = table - table.mean(axis=0), rest - rest.mean(axis=0)
        found: Array = (x * y).sum(axis=0) / np.sqrt((x * x).sum(axis=0) * (y * y).sum(axis=0))
        return found


def _rounds(setting: Setting) -> tuple[np.random.Generator, int]:
    """Return random numbers that no other table draws from, and how many datasets to answer."""
    return np.random.default_rng(_SEED), max(setting.runs // 100, 1)


def coverage(setting: Setting) -> Figures:
    rng, rounds = _rounds(setting)
    rows = []
    for shape in _SHAPES:
        cells: list[list[str]] = [[] for _ in _NAMES]
        for models, repeats in _DESIGNS:
            hits: list[list[bool]] = [[] for _ in _NAMES]
            names = [f"m{i // repeats}" for i in range(models * repeats)]
            for _ in range(rounds):
                bank = _Bank.drawn(rng)
                true, table = bank.truth(shape, rng), bank.answered(shape, models, repeats, rng)
                for case in range(_CASES):
                    rest = np.delete(table, case, axis=1).mean(axis=1)
                    one = discrimination(table[:, case].tolist(), rest.tolist(), names)
                    if one.interval is not None:
                        low, high = one.interval
                        hits[case % len(_NAMES)].append(bool(low <= true[case] <= high))
            for kind, found in enumerate(hits):
                cells[kind].append(percent(sum(found) / len(found)) if found else "-")
        rows += [(f"{shape.name}: {name}", *cells[kind]) for kind, name in enumerate(_NAMES)]
    return Figures(
        f"Item discrimination: coverage of 95% intervals, % of about {10 * rounds:,} cases",
        "answers and cases", _columns(), tuple(rows), "about 95 or more",
    )  # fmt: skip


def verdicts(setting: Setting) -> Figures:
    rng, rounds = _rounds(setting)
    wanted = (
        ("useless", 0, CaseVerdict.SEPARATES, "said to tell apart"),
        ("useless", 0, CaseVerdict.REVERSED, "said to be reversed"),
        ("useless", 0, CaseVerdict.DEAD, "found dead"),
        ("good", 2, CaseVerdict.SEPARATES, "found to tell apart"),
        ("good", 2, CaseVerdict.REVERSED, "said to be reversed"),
        ("good", 2, CaseVerdict.DEAD, "said to be dead"),
    )
    shapes = [shape for shape in _SHAPES if not shape.easier]
    rows = []
    for shape in shapes:
        shares: list[list[str]] = [[] for _ in wanted]
        for models, repeats in _DESIGNS:
            told: list[list[CaseVerdict]] = [[] for _ in _NAMES]
            for _ in range(rounds):
                table = _Bank.drawn(rng).answered(shape, models, repeats, rng)
                found = discriminations(
                    (str(case), f"m{i // repeats}", i % repeats, float(table[i, case]))
                    for case in range(_CASES)
                    for i in range(models * repeats)
                )
                for each in found.cases:
                    told[int(each.case) % len(_NAMES)].append(each.verdict)
            for place, (_, kind, verdict, _) in enumerate(wanted):
                shares[place].append(percent(told[kind].count(verdict) / len(told[kind])))
        rows += [
            (f"{shape.name}: {name}, {words}", *shares[place])
            for place, (name, _, _, words) in enumerate(wanted)
        ]
    return Figures(
        f"Item discrimination: verdicts, % of {10 * rounds:,} cases", "cases", _columns(),
        tuple(rows), "few useless cases said to tell apart, few good ones said to be dead",
    )  # fmt: skip


def _columns() -> tuple[str, ...]:
    return tuple(
        f"{models} models" + (f", {repeats} repeats" if repeats > 1 else "")
        for models, repeats in _DESIGNS
    )


TABLES = (coverage, verdicts)
