"""Promises at the edges: clusters, floors, levels of confidence, lost answers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import bdtr, betaincinv, ndtri, stdtrit

from benchmarks.simulate_batch import ALPHA, MARGIN, Ends, Errors, gates, unseen_errors
from benchmarks.simulate_figures import Figures, Setting, percent
from edison_ci.stats.power import unseen_cases
from edison_ci.stats.sequential import Units, evidence

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Sizes = Callable[[np.random.Generator, int, int], Array]

CLUSTERS = (8, 12, 20, 40)
BROKEN_CLUSTERS = (20, 60, 100, 200, 400)
FLOOR_SIZES = (10, 30, 60, 200, 1500)


def clustered_errors(
    sums: Array, sizes: Array, unseen: tuple[float, float] | None = None
) -> Errors:
    """CR2 errors of means over cases in clusters, one a row (package: `clustered_mean`)."""
    weights = np.ones_like(sizes)
    if unseen is not None:
        size = (sizes**2).sum(axis=1, keepdims=True) / sizes.sum(axis=1, keepdims=True)
        sums, sizes = np.hstack((sums, unseen[1] * size)), np.hstack((sizes, size))
        weights = np.hstack((weights, np.full_like(size, unseen[0])))
    total = (weights * sizes).sum(axis=1, keepdims=True)
    mean = (weights * sums).sum(axis=1, keepdims=True) / total
    scale = 1 / (1 - sizes / total)
    variance = (weights * scale * (sums - sizes * mean) ** 2).sum(axis=1) / total[:, 0] ** 2
    spread = (weights * sizes**2).sum(axis=1)
    lost = (weights * scale * sizes**2).sum(axis=1) ** 2
    lost -= (weights * (scale * sizes**2) ** 2).sum(axis=1)
    df = total[:, 0] ** 2 / (spread + lost / total[:, 0] ** 2)
    return Errors(mean[:, 0], np.sqrt(variance), df)


def _up_to(most: int) -> Sizes:
    return lambda rng, runs, groups: rng.integers(1, most + 1, (runs, groups)).astype(float)


def _equal(size: int) -> Sizes:
    return lambda _, runs, groups: np.full((runs, groups), float(size))


def _few_large(size: int, share: float) -> Sizes:
    return lambda rng, runs, groups: np.where(rng.random((runs, groups)) < share, float(size), 1.0)


SIZES: dict[str, Sizes] = {
    "1 case each": _equal(1),
    "5 cases each": _equal(5),
    "1 to 11 cases": _up_to(11),
    "1 case, one in 5 has 13": _few_large(13, 0.2),
    "1 case, one in 20 has 60": _few_large(60, 0.05),
}


def clustered_coverage(setting: Setting) -> Figures:
    rng, runs, rows = setting.rng, setting.runs, []
    for name in ("1 case each", "5 cases each", "1 to 11 cases"):
        for share in (0.0, 0.3, 0.9):
            row = []
            for groups in CLUSTERS:
                sizes = SIZES[name](rng, runs, groups)
                noise = rng.normal(0, 0.2 * math.sqrt(1 - share), (runs, groups))
                common = rng.normal(0, 0.2 * math.sqrt(share), (runs, groups))
                found = clustered_errors(sizes * common + np.sqrt(sizes) * noise, sizes)
                ends = Ends(found.lower(0.025), found.upper(0.025))
                row.append(percent(ends.cover(0.0)))
            rows.append((f"{name}, {100 * share:g}% of the variance between clusters", *row))
    return Figures(
        "Coverage of 95% intervals of a difference over clusters, %", "clusters",
        tuple(f"{groups} clusters" for groups in CLUSTERS), tuple(rows), "at least 93",
    )  # fmt: skip


def clustered_gates(setting: Setting) -> Figures:
    rng, runs, rows = setting.rng, setting.runs, []
    unseen = (unseen_cases(ALPHA), -1.0)
    for name, shape in SIZES.items():
        broken, steady = [], []
        for groups in BROKEN_CLUSTERS:
            sizes = shape(rng, runs, groups)
            breaks = -sizes * (rng.random((runs, groups)) < MARGIN)
            broken.append(clustered_errors(breaks, sizes, unseen).lower() > -MARGIN)
            drops = sizes * rng.normal(-MARGIN, 0.1, (runs, groups)).clip(-1, 1)
            steady.append(clustered_errors(drops, sizes, unseen).lower() > -MARGIN)
        for what, found in (("1 cluster in 20 breaks", broken), ("all drop, sd 10", steady)):
            rows.append((f"{name}: {what}", *(percent(float(one.mean())) for one in found)))
    return Figures(
        "PASS of a drop by the margin of 5 points, cases in clusters, %", "clusters",
        tuple(f"{groups} clusters" for groups in BROKEN_CLUSTERS), tuple(rows), "at most 6.7",
    )  # fmt: skip


def levels(_: Setting) -> Figures:
    """Exact: the number of broken cases is binomial, all others are ties."""
    confidences = (0.90, 0.95, 0.99, 0.995, 0.9985)
    rows = []
    for margin in (0.02, 0.05, 0.10):
        row = []
        for confidence in confidences:
            alpha = round(1 - confidence, 12)
            worst = max(passing_chance(n, margin, alpha) for n in range(5, 1501))
            row.append(f"{100 * worst:.2f}")
        rows.append((f"margin {100 * margin:g} points", *row))
    return Figures(
        "PASS of a drop by the margin, some cases break and all others tie: the worst of n = 5 to "
        "1,500, exact, %", "gate", tuple(f"confidence {100 * c:g}%" for c in confidences),
        tuple(rows), "at most 1.4 times what the confidence leaves",
    )  # fmt: skip


def passing_chance(n: int, margin: float, alpha: float) -> float:
    """Chance that a gate passes n cases of which each breaks with a chance of the margin."""
    broken = np.arange(math.floor(margin * n) + 1, dtype=np.float64)
    unseen = unseen_cases(alpha)
    total = n + unseen
    mean = -(broken + unseen) / total
    squares = (broken + unseen) * (1 + mean) ** 2 + (n - broken) * mean**2
    lower = mean - stdtrit(total - 1, 1 - alpha) * np.sqrt(squares / (total * (total - 1)))
    most = int(np.count_nonzero(lower > -margin)) - 1
    return float(bdtr(most, n, margin)) if most >= 0 else 0.0


FLOORS: dict[str, Callable[[np.random.Generator, float, tuple[int, int]], Array]] = {
    "pass or fail": lambda rng, mean, shape: (rng.random(shape) < mean).astype(float),
    "beta, sum 1": lambda rng, mean, shape: rng.beta(mean, 1 - mean, shape),
    "beta, sum 8": lambda rng, mean, shape: rng.beta(8 * mean, 8 * (1 - mean), shape),
    "five steps": lambda rng, mean, shape: rng.binomial(4, mean, shape) / 4,
}


class LevelBounds:
    """One-sided bounds of means, one a row (package: `decide_level`)."""

    def __init__(self, x: Array, alpha: float = ALPHA) -> None:
        n = x.shape[1]
        mean, variance = x.mean(axis=1), x.var(axis=1, ddof=1) / n
        equal = variance < 1e-15
        effective = np.where(equal, n, mean * (1 - mean) / np.where(equal, 1, variance) + 1)
        shrink = (ndtri(1 - alpha) / stdtrit(n - 1, 1 - alpha)) ** 2
        effective = np.where(effective > n, n + (effective - n) * shrink, effective)
        passes, rest = mean * effective, (1 - mean) * effective
        low = betaincinv(np.maximum(passes, 1e-12), rest + 1, alpha)
        self.low = np.where(passes > 1e-12, low, 0)
        self.high = np.where(
            rest > 1e-12, betaincinv(passes + 1, np.maximum(rest, 1e-12), 1 - alpha), 1
        )
        if not np.isin(x, (0.0, 1.0)).all():
            self.low = np.minimum(self.low, unseen_errors(x, alpha, 0.0).lower(alpha))


def floors(setting: Setting) -> Figures:
    rows = []
    for name, shape in FLOORS.items():
        for mean in (0.8, 0.98):
            fails, passes = [], []
            for n in FLOOR_SIZES:
                runs = min(setting.runs, 4_000_000 // n)
                found = LevelBounds(shape(setting.rng, mean, (runs, n)))
                fails.append(percent(float(np.mean(found.high < mean - 1e-9))))
                passes.append(percent(float(np.mean(found.low >= mean - 1e-9))))
            rows.append((f"FAIL, {name}, mean {100 * mean:g}", *fails))
            rows.append((f"PASS, {name}, mean {100 * mean:g}", *passes))
    return Figures(
        "A floor that is exactly the true mean, %", "verdict and scores",
        tuple(f"n = {n}" for n in FLOOR_SIZES), tuple(rows), "each at most about 5",
    )  # fmt: skip


def lost_answers(setting: Setting) -> Figures:
    """A head that fails 1 case in 10, and loses the answers of these."""
    rng, runs, sizes = setting.rng, setting.runs, (50, 100, 200, 400)
    rows: dict[str, list[str]] = {}
    for n in sizes:
        failed = rng.random((runs, n)) < 0.10
        d = rng.normal(0, 0.05, (runs, n)).clip(-1, 1)
        counted = np.where(failed, -0.9, d)
        # Leaving a pair out is near to a difference of 0 in its place.
        left_out = np.where(failed, 0.0, d)
        for name, found in (("left out of the pairing", left_out), ("counted as 0", counted)):
            rows.setdefault(name, []).append(percent(gates(found, rng).pass_rate))
    return Figures(
        "PASS of a head that fails 1 case in 10 and loses these answers, %", "lost answers are",
        tuple(f"n = {n}" for n in sizes), tuple((name, *row) for name, row in rows.items()),
        "counted as 0: at most 5; left out is what not to do",
    )  # fmt: skip


STRICT: dict[str, tuple[int, ...]] = {
    "5 cases each": (5,),
    "1 to 5 cases": (1, 2, 3, 4, 5),
    "1 case, one in 10 has 6": (1,) * 9 + (6,),
}


def strict_clusters(setting: Setting) -> Figures:
    """PASS by e-values where only the larger half of the cases dropped, so that all lost 5."""
    rng, runs, rows = setting.rng, min(setting.runs, 100), []
    for name, pattern in STRICT.items():
        row = []
        for groups in (60, 120, 240):
            passed = {"larger clusters drop": 0, "unchanged": 0}
            for _ in range(runs):
                sizes = rng.permutation(np.resize(pattern, groups))
                clusters = np.repeat(np.arange(groups), sizes)
                names = [str(cluster) for cluster in clusters]
                large = sizes >= np.sort(sizes)[groups - max(1, groups // 10)]
                share = sizes[large].sum() / sizes.sum()
                for what, drop in zip(passed, (MARGIN / share, 0.0), strict=True):
                    changes = rng.normal(-drop * large, 0.1).clip(-1, 1)[clusters]
                    found = evidence(Units.of(changes, names), null="at most", mean=-MARGIN)
                    passed[what] += found.p <= ALPHA
            row.append({what: percent(count / runs) for what, count in passed.items()})
        for what in row[0]:
            rows.append((f"{name}: {what}", *(cell[what] for cell in row)))
    return Figures(
        "PASS by e-values over clusters, margin 5 points, %", "clusters and truth",
        ("60 clusters", "120 clusters", "240 clusters"), tuple(rows),
        "larger clusters drop, by 5 points over all cases: at most 5",
    )  # fmt: skip


TABLES: tuple[Callable[[Setting], Figures], ...] = (
    clustered_coverage, clustered_gates, strict_clusters, levels, floors, lost_answers,
)  # fmt: skip
