"""Simulated refinement: pruned candidates and prompts, and trials that sample their cases.

These tables have random numbers of their own, so that each can be renewed by itself.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.simulate_batch import capital, flip_p
from benchmarks.simulate_figures import Figures, Setting, percent
from edison_ci.plan.interim_analysis import BATCH
from edison_ci.stats.convergence import ACCEPTED_P, ALPHA, MIN_DELTA, contrasts, shared_level

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Flags = NDArray[np.bool_]

_SEED = 20260820
_SD = 0.2
"""Standard deviation of the difference of two prompts in a case."""
_HELD_OUT = 2 / 3
"""Held-out cases for each training case, as in a split of 60 to 40."""


# --- a trial that samples its cases ---------------------------------------------------------------


class SampledTrials(NamedTuple):
    """Which rows are accepted on the training cases, and how many of these they took."""

    accepted: Flags
    cases: Array


def sampled_trials(d: Array, rng: np.random.Generator) -> SampledTrials:
    """Apply the rule of features/refine/sampling.py to rows of differences."""
    n = d.shape[1]
    looks = np.array([*range(BATCH, n, BATCH), n]) - 1
    target = math.log(2 / ACCEPTED_P)
    means = (np.cumsum(d, axis=1) / np.arange(1, n + 1))[:, looks]
    gained, small = (
        np.maximum.accumulate(capital(d, mean=mean, against=null)[:, looks], axis=1) >= target
        for null, mean in (("at most", 0.0), ("at least", MIN_DELTA))
    )
    shown = gained & (means > 0)
    clear = shown | small
    at = np.where(clear.any(axis=1), clear.argmax(axis=1), len(looks) - 1)
    rows = np.arange(len(d))
    final = 2 * flip_p(-d, rng) <= ACCEPTED_P
    last = at == len(looks) - 1
    accepted = (means[rows, at] > 0) & (gained[rows, at] | (last & final))
    return SampledTrials(accepted, np.asarray(looks[at] + 1, dtype=np.float64))


def _relooked(d: Array, rng: np.random.Generator) -> SampledTrials:
    """Apply the exact test after each batch, as if each were the only one."""
    n = d.shape[1]
    accepted, cases = np.zeros(len(d), dtype=bool), np.full(len(d), float(n))
    for look in (*range(BATCH, n, BATCH), n):
        rows = np.flatnonzero(~accepted)
        now = (d[rows, :look].mean(axis=1) > 0) & (flip_p(-d[rows, :look], rng) <= ACCEPTED_P)
        accepted[rows[now]], cases[rows[now]] = True, look
    return SampledTrials(accepted, cases)


def sampling(setting: Setting) -> Figures:
    """Simulate candidates: accepted on the training cases, and the calls that sampling saves."""
    rng, runs = np.random.default_rng([_SEED, 1]), setting.runs
    rows = []
    for n in (60, 120, 300):
        for gain in (-0.10, -0.05, 0.0, 0.02, 0.05, 0.10):
            d = rng.normal(gain, _SD, (runs, n)).clip(-1, 1)
            at_end = (d.mean(axis=1) > 0) & (flip_p(-d, rng) <= ACCEPTED_P)
            found, naive = sampled_trials(d, rng), _relooked(d, rng)
            used = found.cases + np.where(found.accepted, _HELD_OUT * n, 0.0)
            saved = 1 - used / ((1 + _HELD_OUT) * n)
            rows.append(
                (
                    f"{n} training cases, gain {100 * gain:+.0f}",
                    percent(float(at_end.mean())),
                    percent(float(found.accepted.mean())),
                    percent(float(naive.accepted.mean())),
                    f"{found.cases.mean():.0f}",
                    percent(float(saved.mean())),
                )
            )
    return Figures(
        "Trials of a suggestion with sampled cases: accepted, and calls saved, %",
        "truth, sd 20",
        ("all cases", "sampled", "naive looks", "training cases", "calls saved"),
        tuple(rows),
        "without a gain, all cases and sampled accept at most 10; naive is what not to do",
    )


# --- pruning --------------------------------------------------------------------------------------


def _scores(rng: np.random.Generator, effects: Array, n: int, *, share: float = 1.0) -> Array:
    """Return scores of prompts, (prompts, cases), with a share of the variance `_SD` ** 2."""
    noise = rng.normal(0, _SD * math.sqrt(share / 2), (len(effects), n))
    return np.asarray(rng.normal(0.6, 0.15, n) + effects[:, None] + noise)


def _weak(rng: np.random.Generator, scores: Array, left: list[int], level: float) -> set[int]:
    table = {f"{prompt}": scores[prompt].clip(0, 1) for prompt in left}
    return {int(one.prompt) for one in contrasts(table, rng=rng, level=level) if one.weak}


def _truths(count: int) -> Iterator[tuple[str, Array]]:
    yield "all alike", np.zeros(count)
    for ahead in (0.05, 0.10):
        effects = np.zeros(count)
        effects[1:] = -ahead
        yield f"one ahead by {100 * ahead:.0f}", effects


_PRUNED = ("a best one is dropped", "a worse one is dropped", "calls saved")


class _Pruned(NamedTuple):
    best: bool
    """Whether one that none is better than was dropped."""
    others: float | None
    """Share of the worse ones that was dropped; None if there are none."""
    measured: float
    """Share of all cells that was measured."""

    @classmethod
    def of(cls, effects: Array, left: list[int], measured: float) -> _Pruned:
        dropped = set(range(len(effects))) - set(left)
        worse = set(np.flatnonzero(effects < effects.max()).tolist())
        share = len(dropped & worse) / len(worse) if worse else None
        return cls(bool(dropped - worse), share, measured)


def candidates(setting: Setting) -> Figures:
    """Simulate candidates of one refinement, with looks at half and all of the training cases."""
    rng, runs, n = np.random.default_rng([_SEED, 2]), max(setting.runs // 10, 1), 100

    def once(effects: Array) -> _Pruned:
        scores, left = _scores(rng, effects, n), list(range(len(effects)))
        cells = 0.0
        for look, end in enumerate((n // 2, n)):
            cells += len(left) * (end - look * n // 2)
            weak = _weak(rng, scores[:, :end], left, ALPHA / 2) if len(left) > 1 else set[int]()
            left = [one for one in left if one not in weak]
        cells += len(left) * _HELD_OUT * n
        whole = len(effects) * (1 + _HELD_OUT) * n
        return _Pruned.of(effects, left, cells / whole)

    rows = [
        (f"{count} candidates, {name}", *_shares([once(effects) for _ in range(runs)]))
        for count in (2, 3, 5)
        for name, effects in _truths(count)
    ]
    return Figures(
        "Candidates of one refinement, 100 training cases: dropped, and calls saved, %",
        f"truth, sd 20, {runs:,} runs", _PRUNED,
        tuple(rows), "a best one is dropped in at most 5",
    )  # fmt: skip


def looped(setting: Setting) -> Figures:
    """Simulate a loop of several prompts over 6 iterations, with looks from the second one on.

    Half of the noise of a case stays, the other half is new with each version of a prompt.
    """
    rng, runs, n, iterations = np.random.default_rng([_SEED, 3]), max(setting.runs // 10, 1), 60, 6

    def once(effects: Array) -> _Pruned:
        count, left, cells = len(effects), list(range(len(effects))), 0
        stays = _scores(rng, effects, n, share=0.5)
        for iteration in range(1, iterations + 1):
            cells += len(left)
            scores = stays + rng.normal(0, _SD / 2, (count, n))
            if iteration > 1 and len(left) > 1:
                weak = _weak(rng, scores, left, shared_level(iteration - 1))
                left = [one for one in left if one not in weak]
        return _Pruned.of(effects, left, cells / (count * iterations))

    rows = [
        (f"{count} prompts, {name}", *_shares([once(effects) for _ in range(runs)]))
        for count in (2, 3, 5)
        for name, effects in _truths(count)
    ]
    return Figures(
        "Several prompts in a loop of 6 iterations, 60 training cases: dropped, calls saved, %",
        f"truth, sd 20, {runs:,} runs", _PRUNED,
        tuple(rows), "a best one is dropped in at most 5",
    )  # fmt: skip


def _shares(found: list[_Pruned]) -> tuple[str, str, str]:
    others = [one.others for one in found if one.others is not None]
    worse = percent(float(np.mean(others))) if others else "-"
    best, saved = (np.mean([getattr(one, name) for one in found]) for name in ("best", "measured"))
    return percent(float(best)), worse, percent(1 - float(saved))


TABLES = (sampling, candidates, looped)
