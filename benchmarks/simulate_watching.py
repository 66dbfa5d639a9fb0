"""What is simulated of many looks: prompts that are dropped, planned analyses, and drift."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from benchmarks.simulate_figures import Figures, Setting, percent
from edison_ci.stats.drift import ALERT_YEARS, REFERENCE_RUNS, WARN_YEARS, evidence_path
from edison_ci.stats.pruning import contrasts
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


DAYS = {"weekly": 7.0, "daily": 1.0, "hourly": 1 / 24}
_RUNS = {"weekly": 57, "daily": 370, "hourly": 500}
"""Runs of a series: a year, and for hourly runs the most that are read."""


def drift_alarms(setting: Setting) -> Figures:
    """Quiet series; the sizes that a WARN and an ALERT need as well are not asked for."""
    rows = []
    for schedule, days in DAYS.items():
        count = max(1, setting.runs // {"weekly": 20, "daily": 200, "hourly": 100}[schedule])
        for shape in _SHAPES:
            for n, documents in ((20, None), (50, 8), (50, 5)):
                if schedule == "hourly" and documents == 8:
                    continue  # a series of hours takes long, and 5 documents are the harder case
                warned = alerted = 0
                for _ in range(count):
                    size = (_RUNS[schedule], n, documents)
                    path = evidence_by_run(setting.rng, shape, size, days)
                    above = path >= WARN_YEARS
                    warned += int((above[1:] & ~above[:-1]).sum())
                    alerted += bool((path >= ALERT_YEARS).any())
                span = count * (_RUNS[schedule] - REFERENCE_RUNS) * days / 365.25
                of = "" if documents is None else f" from {documents} documents"
                rows.append(
                    (
                        f"{schedule}, {n} cases{of}, {shape}",
                        f"{warned / span:.2f}",
                        f"{alerted} in {span:.0f}",
                    )
                )
    return Figures(
        "Drift: false alarms in quiet years", "series",
        ("WARN a year", "ALERT in years simulated"), tuple(rows),
        "WARN at most 4 a year on average, ALERT at most 1 in 20 years",
    )  # fmt: skip


def drift_delay(setting: Setting) -> Figures:
    runs, after = max(setting.runs // 100, 1), 26
    rows = []
    for shape in _SHAPES:
        for n, documents in ((50, None), (200, None), (50, 8)):
            for start in (6, 12, 26):
                for drop in (0.05, 0.10):
                    seen = [
                        _delays(
                            evidence_by_run(
                                setting.rng, shape, (start + after, n, documents), 7.0,
                                lost=(start, drop),
                            )[start:]
                        )
                        for _ in range(runs)
                    ]  # fmt: skip
                    of = "" if documents is None else f" from {documents} documents"
                    what = f"-{100 * drop:g} at run {start + 1}, {n} cases{of}, {shape}"
                    rows.append((what, *map(_delay, zip(*seen, strict=True))))
    return Figures(
        f"Drift: weekly runs until a lasting drop is evident, median (90%) of {runs:,} series",
        "drop", ("WARN", "ALERT"), tuple(rows), "the fewer the better; - is more than 26",
    )  # fmt: skip


def _delays(path: Array) -> tuple[float, float]:
    hits = [np.flatnonzero(path >= level) for level in (WARN_YEARS, ALERT_YEARS)]
    warned, alerted = (float(hit[0] + 1) if hit.size else np.inf for hit in hits)
    return warned, alerted


def _delay(found: tuple[float, ...]) -> str:
    middle, late = np.quantile(found, [0.5, 0.9], method="higher")
    return " ".join(
        form.format("-" if np.isinf(value) else f"{value:.0f}")
        for form, value in (("{}", middle), ("({})", late))
    )


_SHAPES = ("pass or fail", "scores, noise 15")


def evidence_by_run(
    rng: np.random.Generator,
    shape: str,
    size: tuple[int, int, int | None],
    days: float,
    *,
    lost: tuple[int, float] | None = None,
) -> Array:
    """Evidence after each run; cases of a document share noise with sd 15 in every run."""
    runs, n, documents = size
    level = np.tile(rng.beta(6, 2, n), (runs, 1))
    if lost is not None:
        level[lost[0] :] -= lost[1]
    clusters = None
    if documents is not None:
        level += rng.normal(0, 0.15, (runs, documents))[:, np.arange(n) % documents]
        clusters = {f"c{i}": f"d{i % documents}" for i in range(n)}
    if shape == "pass or fail":
        scores = (rng.random((runs, n)) < level).astype(float)
    else:
        scores = (level + rng.normal(0, 0.15, (runs, n))).clip(0, 1)
    series = [{f"c{i}": x for i, x in enumerate(row)} for row in scores.tolist()]
    times = [days * i for i in range(runs)]
    path = evidence_path(times, series, clusters=clusters)
    return np.asarray(path.years, dtype=np.float64)


TABLES: tuple[Callable[[Setting], Figures], ...] = (
    pruning, planned_family, drift_alarms, drift_delay,
)  # fmt: skip
