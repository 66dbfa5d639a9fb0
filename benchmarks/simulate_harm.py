"""Harm that a mean hides: flips, the worst slice, slow erosion, and repeated pushes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.simulate_batch import ALPHA, MARGIN, drop_shown, flip_p, gates, holm_fails
from benchmarks.simulate_figures import Figures, percent
from edison_ci.records import Verdict
from edison_ci.stats.flips import decide_flips
from edison_ci.stats.paired import Pairs
from edison_ci.stats.verdicts import push_level

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from benchmarks.simulate_batch import Flags
    from benchmarks.simulate_figures import Setting

    Array = NDArray[np.float64]
    Drawn = tuple[Array, Array]

LIMIT = 0.02
_RUNS = 2_000
"""Most data sets of a figure that the package decides one by one."""


class _Change(NamedTuple):
    broken: float
    fixed: float = 0.0
    size: int = 1
    """Cases of a document, which break together."""


# --- flips ----------------------------------------------------------------------------------------


def flips(setting: Setting) -> Figures:
    """Wrong and right verdicts of a gate on flips."""
    rng, runs, sizes = setting.rng, min(setting.runs, 500), (50, 150, 400)
    mixed, steady = _mixed, _steady
    rows: list[tuple[str, Callable[[int], Drawn], Verdict, int]] = [
        ("1 answer: FAIL, nothing changed, mixed results", lambda n: _same(mixed(rng, n), rng, 1),
         Verdict.FAIL, 1),
        ("3 answers: FAIL, nothing changed, mixed results", lambda n: _same(mixed(rng, n), rng, 3),
         Verdict.FAIL, 1),
        ("3 answers, documents of 5: FAIL, nothing changed",
         lambda n: _same(mixed(rng, n), rng, 3), Verdict.FAIL, 5),
        ("1 answer: PASS, 2% break", lambda n: _changed(steady(rng, n), rng, 1, _Change(LIMIT)),
         Verdict.PASS, 1),
        ("3 answers: PASS, 2% break, else steady",
         lambda n: _changed(steady(rng, n), rng, 3, _Change(LIMIT)), Verdict.PASS, 1),
        ("3 answers: PASS, 2% break, mixed results",
         lambda n: _changed(mixed(rng, n), rng, 3, _Change(LIMIT)), Verdict.PASS, 1),
        ("3 answers, documents of 5: PASS, 2% of the documents break",
         lambda n: _changed(steady(rng, n), rng, 3, _Change(LIMIT, size=5)), Verdict.PASS, 5),
        ("1 answer: PASS, nothing changed, steady", lambda n: _same(steady(rng, n), rng, 1),
         Verdict.PASS, 1),
        ("3 answers: PASS, nothing changed, mixed results", lambda n: _same(mixed(rng, n), rng, 3),
         Verdict.PASS, 1),
        ("1 answer: FAIL, 8% break", lambda n: _changed(steady(rng, n), rng, 1, _Change(0.08)),
         Verdict.FAIL, 1),
        ("3 answers: FAIL, 8% break and 8% are repaired",
         lambda n: _changed(steady(rng, n), rng, 3, _Change(0.08, 0.08)), Verdict.FAIL, 1),
    ]  # fmt: skip
    found = []
    for name, draw, verdict, size in rows:
        shares = []
        for n in sizes:
            hits = sum(_flip_verdict(draw(n), size) is verdict for _ in range(runs))
            shares.append(percent(hits / runs))
        found.append((name, *shares))
    return Figures(
        "Gate on flips, at most 2%, %", "verdict and truth", tuple(f"n = {n}" for n in sizes),
        tuple(found), "FAIL of an unchanged head at most 5, PASS at 2% at most 5 (mixed: about 5)",
    )  # fmt: skip


def _mixed(rng: np.random.Generator, n: int) -> Array:
    """Chances to pass, near 0 or 1 for most cases and between for some."""
    return rng.beta(4, 0.5, n)


def _steady(rng: np.random.Generator, n: int) -> Array:
    return (rng.random(n) < 0.9).astype(float)


def _same(chance: Array, rng: np.random.Generator, k: int) -> Drawn:
    return _answers(chance, rng, k), _answers(chance, rng, k)


def _changed(chance: Array, rng: np.random.Generator, k: int, what: _Change) -> Drawn:
    """Draw a head that breaks and repairs shares of the cases, or of documents of cases."""
    n = chance.size
    fate = np.repeat(rng.random(-(-n // what.size)), what.size)[:n]
    broken, fixed = fate < what.broken, fate > 1 - what.fixed
    base = np.where(broken, 1.0, np.where(fixed, 0.0, chance))
    head = np.where(broken, 0.0, np.where(fixed, 1.0, chance))
    return _answers(base, rng, k), _answers(head, rng, k)


def _answers(chance: Array, rng: np.random.Generator, k: int) -> Array:
    return (rng.random((chance.size, k)) < chance[:, None]).astype(float)


def _flip_verdict(drawn: Drawn, size: int) -> Verdict:
    base, head = (tuple(map(tuple, side.tolist())) for side in drawn)
    clusters = None if size == 1 else tuple(f"{index // size:03}" for index in range(len(base)))
    return decide_flips(Pairs(base, head, clusters), LIMIT).verdict


# --- the worst slice ------------------------------------------------------------------------------


def worst_slice(setting: Setting) -> Figures:
    """A gate on eight slices, one of which may drop, beside a gate on the mean."""
    rng, runs, slices = setting.rng, setting.runs, 8
    sizes = (12, 25, 50, 100)
    margin = 0.10
    rows: dict[str, list[str]] = {}
    for n in sizes:
        for name, drop in (("nothing changed", 0.0), ("one of 8 drops by 10", 0.10),
                           ("one of 8 drops by 30", 0.30)):  # fmt: skip
            d = rng.normal(0, 0.2, (runs, slices, n))
            d[:, 0] -= drop
            flat = d.clip(-1, 1).reshape(-1, n)
            shown = drop_shown(flat, margin=margin).reshape(runs, slices)
            p = np.ones(len(flat))
            wanted = np.repeat(shown.any(axis=1), slices)
            p[wanted] = flip_p(flat[wanted], rng)
            fails = holm_fails(p.reshape(runs, slices), shown)
            passes = _passes(flat, rng, margin=margin).reshape(runs, slices).all(axis=1)
            whole = d.clip(-1, 1).reshape(runs, -1)
            mean = _passes(whole, rng, margin=margin)
            for verdict, share in (("FAIL", fails), ("PASS", passes & ~fails)):
                rows.setdefault(f"worst slice: {verdict}, {name}", []).append(
                    percent(float(share.mean()))
                )
            rows.setdefault(f"mean of all: PASS, {name}", []).append(percent(float(mean.mean())))
    return Figures(
        "Eight slices, margin 10 points, sd 20, %", "verdict and truth",
        tuple(f"n = {n} each" for n in sizes),
        tuple((name, *values) for name, values in rows.items()),
        "worst slice: FAIL of an unchanged head at most 5, PASS if one drops by 10 at most 5",
    )  # fmt: skip


def _passes(
    d: Array, rng: np.random.Generator, *, alpha: float = ALPHA, margin: float = MARGIN
) -> Flags:
    # Beyond -2 nothing fails, so that no p-values are drawn.
    return gates(d, rng, alpha=alpha, margin=margin, beyond=-2.0).passes


# --- erosion --------------------------------------------------------------------------------------


def erosion(setting: Setting) -> Figures:
    """Ten pull requests that each lose a little, with and without an anchor."""
    rng, runs, n, pulls = setting.rng, min(setting.runs, _RUNS), 400, 10
    rows = []
    for drop in (0.0, 0.02, 0.04):
        merged, anchored = np.zeros(runs), np.zeros(runs)
        for share, anchor in ((merged, False), (anchored, True)):
            truth = np.zeros(runs)  # of the default branch, against the anchor
            for _ in range(pulls):
                head = truth - drop
                passes = _passes(rng.normal(-drop, 0.2, (runs, n)).clip(-1, 1), rng)
                if anchor:
                    to_anchor = rng.normal(head[:, None], 0.2, (runs, n)).clip(-1, 1)
                    passes &= _passes(to_anchor, rng)
                truth = np.where(passes, head, truth)
            share += truth
        worst = [f"{100 * np.mean(share):.1f}" for share in (merged, anchored)]
        beyond = percent(float(np.mean(anchored <= -MARGIN - 1e-9)))
        rows.append((f"each loses {100 * drop:g}", *worst, beyond))
    return Figures(
        "Ten pull requests in a row, margin 5 points, 400 cases, sd 20", "pull requests",
        ("total change, base only", "total change, base and anchor", "beyond the margin, anchor %"),
        tuple(rows), "with an anchor, the total stays inside the margin",
    )  # fmt: skip


# --- pushes ---------------------------------------------------------------------------------------


def pushes(setting: Setting) -> Figures:
    """A head that dropped by the margin, pushed up to ten times with new answers."""
    rng, runs, count = setting.rng, min(setting.runs, _RUNS), 10
    sizes = (50, 150, 400)
    rows: dict[str, list[str]] = {}
    for n in sizes:
        for shape in ("scores, sd 20", "1 case in 20 breaks, others each time"):
            ever = np.zeros((2, runs), dtype=bool)
            for push in range(1, count + 1):
                d = -(rng.random((runs, n)) < MARGIN).astype(float)
                if shape.startswith("scores"):
                    d = rng.normal(-MARGIN, 0.2, (runs, n)).clip(-1, 1)
                ever[0] |= _passes(d, rng)
                ever[1] |= _passes(d, rng, alpha=push_level(ALPHA, push))
            for rule, share in zip(("not counted", "counted"), ever, strict=True):
                name = f"{rule}: ever PASS, dropped by 5, {shape}"
                rows.setdefault(name, []).append(percent(float(share.mean())))
        for push in (1, 2, 5, 10):
            d = rng.normal(0, 0.2, (runs, n)).clip(-1, 1)
            passed = _passes(d, rng, alpha=push_level(ALPHA, push))
            name = f"counted: PASS at push {push}, unchanged, sd 20"
            rows.setdefault(name, []).append(percent(float(passed.mean())))
    return Figures(
        "Ten pushes of one pull request, margin 5 points, %", "rule, verdict and truth",
        tuple(f"n = {n}" for n in sizes), tuple((name, *values) for name, values in rows.items()),
        "counted: at most 1.4 times the error of a single gate (5, at worst 6.7)",
    )  # fmt: skip


TABLES: tuple[Callable[[Setting], Figures], ...] = (flips, worst_slice, erosion, pushes)
