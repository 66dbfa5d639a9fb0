"""What is simulated of alerts: years without a cause, and falls that are found, by three methods.

Each table has random numbers of its own, so it can be renewed by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri, stdtr

from benchmarks.simulate_figures import Figures, Setting
from edison_ci.features.monitor.conditions import OTHER_SHARE, warn_years
from edison_ci.stats.drift import REFERENCE_RUNS, SCORE_SHARE, evidence_of_rate, evidence_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

_SEED = 20260117
_YEARS = 20.0
"""The default of `alerts.false_alarm_years`."""
DAYS = {"weekly": 7.0, "daily": 1.0, "hourly": 1 / 24}
_RUNS = {"weekly": 109, "daily": 190, "hourly": 250}
_SERIES = {"weekly": 60, "daily": 60, "hourly": 10}
"""The number of series is that of the runs of a cell, divided by this."""
_LIMIT = 0.05


class Shape(NamedTuple):
    """The cases of a simulated experiment."""

    cases: int
    documents: int | None = None
    repeats: int = 1
    graded: bool = False

    @property
    def words(self) -> str:
        """What it is, as the name of a row."""
        of = f" from {self.documents} documents" if self.documents else ""
        times = f" x {self.repeats}" if self.repeats > 1 else ""
        return f"{self.cases} cases{of}{times}, {'graded' if self.graded else 'pass or fail'}"


SHAPES = (
    Shape(20),
    Shape(50, repeats=3),
    Shape(50, documents=5),
    Shape(50, documents=8, graded=True),
    Shape(500, graded=True),
)


def series(
    rng: np.random.Generator, shape: Shape, runs: int, fall: Array | None = None
) -> tuple[list[dict[str, float]], dict[str, str]]:
    """Return the scores of each run, and the documents of cases.

    Cases differ in difficulty, and those of a document share noise of 15 points in every run.
    `fall` is by how much each run is lower.
    """
    level = np.tile(rng.beta(6, 2, shape.cases), (runs, 1))
    if fall is not None:
        level -= fall[:, None]
    clusters = {}
    if shape.documents is not None:
        of = np.arange(shape.cases) % shape.documents
        level += rng.normal(0, 0.15, (runs, shape.documents))[:, of]
        clusters = {f"c{i}": f"d{of[i]}" for i in range(shape.cases)}
    size = (shape.repeats, runs, shape.cases)
    if shape.graded:
        draws = (level + rng.normal(0, 0.15, size)).clip(0, 1)
    else:
        draws = (rng.random(size) < level).astype(float)
    rows = draws.mean(axis=0).tolist()
    return [{f"c{i}": x for i, x in enumerate(row)} for row in rows], clusters


def rates(rng: np.random.Generator, shape: Shape, runs: int, rate: float) -> list[list[float]]:
    """Return the share of each case's calls that fail, or are slow."""
    shares = rng.binomial(shape.repeats, rate, (runs, shape.cases)) / shape.repeats
    return [[float(x) for x in row] for row in shares]


def judge_paths(rng: np.random.Generator, runs: int, days: float) -> Array:
    """Return the evidence that a judge changed, falls and rises, with nothing wrong.

    It grades 20 fixed answers as often as there are runs.
    """
    times = [days * i for i in range(runs)]
    judged, _ = series(rng, Shape(20, graded=True), runs)
    mirrored = [{case: 1 - x for case, x in run.items()} for run in judged]
    rows = [evidence_path(times, judged).years, evidence_path(times, mirrored).years]
    return np.array(rows) * OTHER_SHARE / 2


def quiet_paths(rng: np.random.Generator, shape: Shape, runs: int, days: float) -> Array:
    """Return the evidence of scores, errors and latency after each run, with nothing wrong.

    A row is divided by its share, so that all have the same limits: a quarter, and 20 years.
    Errors and latency are exactly at their limits, the hardest case.
    """
    times = [days * i for i in range(runs)]
    scores, clusters = series(rng, shape, runs)
    rows = [np.array(evidence_path(times, scores, clusters=clusters).years) * SCORE_SHARE]
    for _ in ("errors", "latency"):
        found = evidence_of_rate(times, rates(rng, shape, runs, _LIMIT), limit=_LIMIT)
        rows.append(np.array(found) * OTHER_SHARE)
    return np.array(rows)


class FalseAlarms(NamedTuple):
    """False alarms of some series together, by source."""

    warned: Array
    alerted: int

    @classmethod
    def of(cls, paths: list[Array]) -> FalseAlarms:
        """Count how often each path rises above the limits."""
        above = [path >= warn_years(1) for path in paths]
        warned = sum((each[:, 1:] & ~each[:, :-1]).sum(axis=1) for each in above)
        return cls(np.asarray(warned), sum(int((p >= _YEARS).any(axis=1).sum()) for p in paths))


def false_alerts(setting: Setting) -> Figures:
    rows = []
    for place, (schedule, days) in enumerate(DAYS.items()):
        runs, count = _RUNS[schedule], max(setting.runs // _SERIES[schedule], 1)
        years = count * (runs - REFERENCE_RUNS) * days / 365.25
        # The judge grades the same answers whatever the cases are, so one simulation is for all.
        rng = np.random.default_rng([_SEED, 1, place])
        judge = FalseAlarms.of([judge_paths(rng, runs, days) for _ in range(count)])
        every = []
        for shape in SHAPES:
            rng = np.random.default_rng([_SEED, 1, place, shape.cases, shape.documents or 0])
            own = FalseAlarms.of([quiet_paths(rng, shape, runs, days) for _ in range(count)])
            counts = (own.warned[0], judge.warned.sum(), own.warned[1:].sum())
            shares = (f"{found / years:.2f}" for found in (*counts, sum(counts)))
            every.append(own.alerted + judge.alerted)
            alerted = f"{every[-1]} in {years:.0f}"
            rows.append((f"{schedule}, {shape.words}", *shares, alerted))
        alerted = f"{sum(every)} in {len(SHAPES) * years:.0f}"
        rows.append((f"{schedule}, all of these", *("",) * 4, alerted))
    return Figures(
        "Alerts: false alarms of all conditions in quiet years", "runs",
        ("WARN a year: scores", "judge", "errors and latency", "together",
         "ALERT in years simulated"),
        tuple(rows), "WARN at most 4 a year, ALERT at most 1 in 20 years, all together",
    )  # fmt: skip


# --- falls, by three methods ----------------------------------------------------------------------

_WINDOW, _LEAST = 26, 8
_SLACK = 0.5


def cusum_path(means: Array) -> Array:
    """Return the self-starting CUSUM of a series (Hawkins 1987), by runs."""
    found, total = np.zeros(means.size), 0.0
    for n in range(4, means.size + 1):
        before = means[: n - 1]
        spread = max(float(before.std(ddof=1)), 0.005)
        t = np.sqrt((n - 1) / n) * (means[n - 1] - before.mean()) / spread
        u = float(ndtri(np.clip(stdtr(n - 2, t), 1e-12, 1 - 1e-12)))
        total = max(0.0, total - u - _SLACK)
        found[n - 1] = total
    return found


def cusum_limit(runs: float) -> float:
    """Return the limit with this many runs between false alarms (Siegmund 1985)."""
    edge = brentq(lambda b: 2 * (np.exp(b) - b - 1) - runs, 0.1, 30)
    return float(edge - 1.166)


def kendall_path(means: Array) -> Array:
    """Return minus Kendall's z over the last 26 runs, by runs: high for a fall."""
    found = np.zeros(means.size)
    for end in range(_LEAST, means.size + 1):
        x = means[max(0, end - _WINDOW) : end]
        n = x.size
        signs = np.sign(x[None, :] - x[:, None])[np.triu_indices(n, 1)].sum()
        found[end - 1] = -(signs - np.sign(signs)) / np.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    return found


def kendall_limits(between: tuple[float, ...], *, series_: int = 60, length: int = 700) -> Array:
    """Return the limits with these many runs between false alarms, simulated without a fall."""
    rng = np.random.default_rng([_SEED, 2])
    paths = np.array([kendall_path(rng.normal(size=length))[_WINDOW:] for _ in range(series_)])
    edges = np.linspace(0.5, 5.5, 501)
    crossings = np.array(
        [((paths[:, 1:] >= edge) & (paths[:, :-1] < edge)).sum() for edge in edges]
    )
    start = int(np.argmax(crossings))
    per_run = crossings / paths[:, 1:].size
    picked = [edges[start + int(np.argmax(per_run[start:] <= 1 / runs))] for runs in between]
    return np.array(picked)


_FALLS: dict[str, Callable[[Array], Array]] = {
    "-5 at once": lambda weeks: np.where(weeks > 0, 0.05, 0),
    "-10 at once": lambda weeks: np.where(weeks > 0, 0.10, 0),
    "-20 at once": lambda weeks: np.where(weeks > 0, 0.20, 0),
    "-0.5 a week": lambda weeks: 0.005 * weeks.clip(0),
    "-1 a week": lambda weeks: 0.01 * weeks.clip(0),
    "-2 a week": lambda weeks: 0.02 * weeks.clip(0),
}


def falls(setting: Setting) -> Figures:
    count, start, after = max(setting.runs // 250, 1), 15, 52
    week = 7 / 365.25
    between = (warn_years(SCORE_SHARE) / week, _YEARS / SCORE_SHARE / week)
    limits = {
        "e": (warn_years(SCORE_SHARE), _YEARS / SCORE_SHARE),
        "cusum": tuple(cusum_limit(runs) for runs in between),
        "kendall": tuple(kendall_limits(between)),
    }
    rows = []
    for shape in (Shape(50), Shape(200), Shape(50, graded=True), Shape(200, graded=True)):
        for name, fall in _FALLS.items():
            rng = np.random.default_rng([_SEED, 3, shape.cases, int(shape.graded)])
            seen: list[tuple[float, ...]] = []
            for _ in range(count):
                lost = fall(np.arange(start + after, dtype=np.float64) - start + 1)
                scores, _ = series(rng, shape, start + after, lost)
                means = np.array([np.mean([*run.values()]) for run in scores], dtype=np.float64)
                times = [7.0 * i for i in range(start + after)]
                paths = {
                    "e": np.array(evidence_path(times, scores).years),
                    "cusum": cusum_path(means),
                    "kendall": kendall_path(means),
                }
                seen.append(
                    tuple(
                        _first(paths[method][start:], limit)
                        for method, both in limits.items()
                        for limit in both
                    )
                )
            rows.append((f"{name}, {shape.words}", *map(_delay, zip(*seen, strict=True))))
    return Figures(
        f"Alerts: weekly runs until a fall is evident, median (90%) of {count:,} series",
        "fall", ("WARN", "ALERT", "CUSUM, as WARN", "as ALERT", "Mann-Kendall, as WARN",
                 "as ALERT"),
        tuple(rows), "all with the same time between false alarms; - is more than 52",
    )  # fmt: skip


def _first(path: Array, limit: float) -> float:
    hits = np.flatnonzero(path >= limit)
    return float(hits[0] + 1) if hits.size else float("inf")


def _delay(found: tuple[float, ...]) -> str:
    middle, late = np.quantile(found, [0.5, 0.9], method="higher")
    first, last = ("-" if np.isinf(value) else f"{value:.0f}" for value in (middle, late))
    return f"{first} ({last})"


def call_delays(setting: Setting) -> Figures:
    """Runs until a rate above its limit of 5% is evident."""
    count, after = max(setting.runs // 50, 1), 120
    warn, alert = warn_years(OTHER_SHARE), _YEARS / OTHER_SHARE
    rows = []
    for rate in (0.08, 0.12, 0.20, 0.50):
        for cases in (20, 50, 200):
            rng = np.random.default_rng([_SEED, 4, cases])
            cells: list[str] = []
            for days in (7.0, 1.0, 1 / 24):
                seen = []
                for _ in range(count):
                    shares = rates(rng, Shape(cases), after, rate)
                    path = np.array(
                        evidence_of_rate([days * i for i in range(after)], shares, limit=_LIMIT)
                    )
                    seen.append((_first(path, warn), _first(path, alert)))
                cells += map(_delay, zip(*seen, strict=True))
            rows.append((f"{100 * rate:.0f}% of {cases} calls", *cells))
    return Figures(
        f"Alerts: runs until a rate above 5% is evident, median (90%) of {count:,} series",
        "failed or slow", ("weekly WARN", "ALERT", "daily WARN", "ALERT", "hourly WARN", "ALERT"),
        tuple(rows), "the fewer the better; - is more than 120",
    )  # fmt: skip


TABLES: tuple[Callable[[Setting], Figures], ...] = (false_alerts, falls, call_delays)
