"""The methods of edison_ci.stats on many simulated data sets at once, a row each.

tests/stats/test_simulate.py holds each of them against the package, row by row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, stdtrit

from edison_ci.stats.power import unseen_cases
from edison_ci.stats.sequential import BETS

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

MARGIN, ALPHA = 0.05, 0.05
_REPEATS, _ENUMERATED, _CHUNK = 9_999, 14, 200


class Ends(NamedTuple):
    low: Array
    high: Array

    def cover(self, truth: float) -> float:
        return float(np.mean((self.low <= truth) & (truth <= self.high)))


class Errors(NamedTuple):
    """Means and standard errors, one a row."""

    mean: Array
    se: Array
    df: float | Array

    def lower(self, alpha: float = ALPHA) -> Array:
        return np.asarray(self.mean - stdtrit(self.df, 1 - alpha) * self.se)

    def upper(self, alpha: float = ALPHA) -> Array:
        return np.asarray(self.mean + stdtrit(self.df, 1 - alpha) * self.se)


def errors(x: Array) -> Errors:
    n = x.shape[1]
    return Errors(x.mean(axis=1), x.std(axis=1, ddof=1) / math.sqrt(n), n - 1)


def unseen_errors(x: Array, alpha: float, worst: float = -1.0) -> Errors:
    """Errors with unseen cases at the worst value added."""
    unseen = unseen_cases(alpha)
    n = x.shape[1] + unseen
    mean = (x.sum(axis=1) + unseen * worst) / n
    squares = ((x - mean[:, None]) ** 2).sum(axis=1) + unseen * (worst - mean) ** 2
    return Errors(mean, np.sqrt(squares / (n * (n - 1))), n - 1)


def score_ends(x: Array, level: float = 0.95) -> Ends:
    """Effective-n Wilson intervals of scores (STATS 4.1)."""
    n, alpha = x.shape[1], 1 - level
    mean, variance = x.mean(axis=1), x.var(axis=1, ddof=1)
    equal = variance < 1e-15
    safe = np.where(equal, 1.0, variance)
    ne = np.where(equal, 1.0, mean * (1 - mean) / (safe / n))
    t2 = stdtrit(n - 1, 1 - alpha / 2) ** 2
    center = (mean + t2 / (2 * ne)) / (1 + t2 / ne)
    half = np.sqrt(t2) / (1 + t2 / ne) * np.sqrt(mean * (1 - mean) / ne + t2 / (4 * ne**2))
    q = 1 - (alpha / 2) ** (1 / n)
    low = np.where(equal, mean * (1 - q), center - half)
    high = np.where(equal, mean * (1 - q) + q, center + half)
    return Ends(np.maximum(0, low), np.minimum(1, high))


def t_ends(x: Array, level: float = 0.95) -> Ends:
    """Plain t intervals, for comparison."""
    found = errors(x)
    return Ends(found.lower((1 - level) / 2), found.upper((1 - level) / 2))


def paired_ends(d: Array, level: float = 0.95) -> Ends:
    """Intervals of mean differences (STATS 6)."""
    n, alpha = d.shape[1], 1 - level
    mean, sd = d.mean(axis=1), d.std(axis=1, ddof=1)
    equal, q = sd < 1e-12, 1 - (alpha / 2) ** (1 / n)
    plain = t_ends(d, level)
    low = np.where(equal, (1 - q) * mean - q, np.maximum(-1, plain.low))
    high = np.where(equal, (1 - q) * mean + q, np.minimum(1, plain.high))
    return Ends(low, high)


def flip_p(d: Array, rng: np.random.Generator) -> Array:
    """One-sided sign-flip p-values for "mean < 0"; one set of signs serves all rows."""
    rows, n = d.shape
    p = np.ones(rows)
    sizes = np.unique(np.abs(d[np.abs(d) > 1e-12]))
    if sizes.size == 1:
        # All differences are of one size: the exact binomial (McNemar) tail.
        better, differ = (d > 1e-12).sum(axis=1), (np.abs(d) > 1e-12).sum(axis=1)
        return np.where(differ > 0, bdtr(better, np.maximum(differ, 1), 0.5), 1.0)
    if n <= _ENUMERATED:
        bits = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
        signs, extra = 2.0 * bits - 1, 0
    else:
        signs, extra = 2.0 * rng.integers(0, 2, (_REPEATS, n)) - 1, 1
    for start in range(0, rows, _CHUNK):
        part = d[start : start + _CHUNK]
        totals = np.abs(part) @ signs.T
        count = (totals <= part.sum(axis=1)[:, None] + 1e-9).sum(axis=1)
        p[start : start + _CHUNK] = (extra + count) / (extra + len(signs))
    return p


@dataclass(frozen=True)
class Verdicts:
    """Which rows pass and which fail."""

    passes: Flags
    fails: Flags

    @property
    def pass_rate(self) -> float:
        return float(self.passes.mean())

    @property
    def fail_rate(self) -> float:
        return float(self.fails.mean())


def gates(
    d: Array,
    rng: np.random.Generator,
    *,
    alpha: float = ALPHA,
    margin: float = MARGIN,
    beyond: float = 0.0,
) -> Verdicts:
    """The gate of STATS 7; p-values only where the other two conditions of FAIL hold."""
    passes = unseen_errors(d, alpha).lower(alpha) > -margin
    shown = drop_shown(d, alpha=alpha, margin=margin, beyond=beyond) & ~passes
    fails = np.zeros(len(d), dtype=bool)
    if shown.any():
        fails[shown] = flip_p(d[shown], rng) <= alpha
    return Verdicts(passes, fails)


def drop_shown(
    d: Array, *, alpha: float = ALPHA, margin: float = MARGIN, beyond: float = 0.0
) -> Flags:
    plain = errors(d)
    return np.asarray((plain.mean <= -margin + 1e-12) & (plain.upper(alpha) < beyond))


def capital(d: Array, *, mean: float, against: str) -> Array:
    """Running log e-values, (rows, cases)."""
    stake = (d - mean) / (1 + mean) if against == "at most" else (mean - d) / (1 - mean)
    total = np.full(d.shape, -np.inf)
    for bet in BETS:
        total = np.logaddexp(total, np.cumsum(np.log1p(bet * stake), axis=1))
    return np.asarray(total - math.log(len(BETS)))


class Stopped(NamedTuple):
    verdicts: Verdicts
    cases: Array


def anytime(d: Array, *, batch: int = 20, margin: float = MARGIN) -> Stopped:
    """The anytime rule of STATS 9 with looks after each batch."""
    n, target = d.shape[1], math.log(1 / ALPHA)
    looks = np.arange(batch, n + 1, batch) - 1
    for_pass = capital(d, mean=-margin, against="at most")[:, looks]
    for_fail = capital(d, mean=0.0, against="at least")[:, looks]
    means = (np.cumsum(d, axis=1) / np.arange(1, n + 1))[:, looks]
    passed = np.maximum.accumulate(for_pass, axis=1) >= target
    failed = (np.maximum.accumulate(for_fail, axis=1) >= target) & (means <= -margin + 1e-12)
    return _first(passed, failed & ~passed, looks)


def relooked(
    d: Array, rng: np.random.Generator, *, levels: Array, looks: NDArray[np.intp]
) -> Stopped:
    """The fixed gate applied at several looks, each at its own level, to rows still undecided."""
    passed, failed = (np.zeros((len(d), len(looks)), dtype=bool) for _ in range(2))
    rows = np.arange(len(d))
    for index, (look, level) in enumerate(zip(looks, levels, strict=True)):
        found = gates(d[rows, : look + 1], rng, alpha=level)
        passed[rows, index], failed[rows, index] = found.passes, found.fails
        rows = rows[~(found.passes | found.fails)]
        if not rows.size:
            break
    return _first(passed, failed, looks)


def _first(passed: Flags, failed: Flags, looks: NDArray[np.intp]) -> Stopped:
    decided = passed | failed
    at = np.where(decided.any(axis=1), decided.argmax(axis=1), len(looks) - 1)
    rows = np.arange(len(passed))
    cases = np.asarray(looks[at] + 1, dtype=np.float64)
    return Stopped(Verdicts(passed[rows, at], failed[rows, at]), cases)


def holm_fails(p: Array, shown: Flags, *, alpha: float = ALPHA) -> Flags:
    """Whether any item of each family fails after Holm; (families, items)."""
    order = np.argsort(p, axis=1)
    scaled = np.take_along_axis(p, order, axis=1) * np.arange(p.shape[1], 0, -1)
    adjusted = np.maximum.accumulate(np.minimum(1, scaled), axis=1)
    shown_in_order = np.take_along_axis(shown, order, axis=1)
    return np.asarray(((adjusted <= alpha) & shown_in_order).any(axis=1))


def amounts(
    base: Array, head: Array, rng: np.random.Generator, *, margin: float = 0.10
) -> Verdicts:
    """The cost gate of STATS 7b."""
    passes = errors(head - (1 + margin) * base).upper() < 0
    more = errors(head - base)
    shown = (head.mean(axis=1) > (1 + margin) * base.mean(axis=1)) & (more.lower() > 0) & ~passes
    fails = np.zeros(len(base), dtype=bool)
    if shown.any():
        fails[shown] = flip_p((base - head)[shown], rng) <= ALPHA
    return Verdicts(passes, fails)


def ppi_ends(human: Array, judge: Array, rest: Array) -> Ends:
    """Prediction-powered intervals that allow for unseen errors of the judge (STATS 14)."""
    gap, far = gaps_of(human, judge, rest)
    middle = far.mean(axis=1)
    variance = far.var(axis=1, ddof=1) / far.shape[1]

    def reach(values: Array) -> Array:
        count = values.shape[1]
        se = np.sqrt(variance + values.var(axis=1, ddof=1) / count)
        return np.asarray(stdtrit(count - 1, 0.975) * se)

    mean = gap.mean(axis=1)
    lower, upper = (np.column_stack((gap, mean + sign)) for sign in (-1, 1))
    low = middle + lower.mean(axis=1) - reach(lower)
    high = middle + upper.mean(axis=1) + reach(upper)
    seen = (np.abs(human - judge) > 0.1 + 1e-9).sum(axis=1) >= 5
    low = np.maximum(0, np.where(seen, middle + mean - reach(gap), low))
    high = np.minimum(1, np.where(seen, middle + mean + reach(gap), high))
    alone = score_ends(human)
    narrower = ~seen & (alone.high - alone.low <= high - low)
    return Ends(np.where(narrower, alone.low, low), np.where(narrower, alone.high, high))


def plain_ppi_ends(human: Array, judge: Array, rest: Array) -> Ends:
    """Power-tuned prediction-powered intervals as they are published, for comparison."""
    gap, far = gaps_of(human, judge, rest)
    mean = far.mean(axis=1) + gap.mean(axis=1)
    variance = far.var(axis=1, ddof=1) / far.shape[1] + gap.var(axis=1, ddof=1) / gap.shape[1]
    reach = stdtrit(gap.shape[1] - 1, 0.975) * np.sqrt(variance)
    return Ends(np.maximum(0, mean - reach), np.minimum(1, mean + reach))


def gaps_of(human: Array, judge: Array, rest: Array) -> tuple[Array, Array]:
    """Labels minus the judge's trusted scores, and those scores of the other cases."""
    n, others = human.shape[1], rest.shape[1]
    everything = np.column_stack((judge, rest)).var(axis=1, ddof=1)
    centred = (human - human.mean(axis=1, keepdims=True)) * (
        judge - judge.mean(axis=1, keepdims=True)
    )
    spread = (1 + n / others) * np.where(everything > 1e-12, everything, np.inf)
    lam = np.clip(centred.sum(axis=1) / (n - 1) / spread, 0, 1)[:, None]
    return human - lam * judge, lam * rest
