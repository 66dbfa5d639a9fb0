"""What is simulated: shapes of data, and for each promise a table of figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.simulate_batch import (
    MARGIN,
    Ends,
    amounts,
    anytime,
    capital,
    drop_shown,
    flip_p,
    gates,
    holm_fails,
    paired_ends,
    ppi_ends,
    relooked,
    score_ends,
    t_ends,
)
from benchmarks.simulate_figures import Figures, Setting, percent
from benchmarks.simulate_judges import approval, judged_gates, rare_errors
from edison_ci.stats.calibration import LabelCounts, corrected_rate
from edison_ci.stats.paired import Pairs
from edison_ci.stats.permutation import relabel_repeats, sign_flip
from edison_ci.stats.sequential import planned_levels

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[np.float64]
    Shape = Callable[[np.random.Generator, int, int], Array]

SIZES = (5, 10, 20, 50, 100, 200, 400, 1500)


def _by_size(
    name: str, figure: Callable[[int], float], sizes: tuple[int, ...] = SIZES
) -> tuple[str, ...]:
    return (name, *(percent(figure(n)) for n in sizes))


# --- shapes of scores and differences -------------------------------------------------------------

SCORES: dict[str, tuple[float, Shape]] = {
    "ceiling, beta(8, 1)": (8 / 9, lambda rng, runs, n: rng.beta(8, 1, (runs, n))),
    "uniform": (0.5, lambda rng, runs, n: rng.random((runs, n))),
    "five steps, mean 85": (0.85, lambda rng, runs, n: rng.binomial(4, 0.85, (runs, n)) / 4),
    "pass or fail, 90%": (0.9, lambda rng, runs, n: (rng.random((runs, n)) < 0.9).astype(float)),
    "pass or fail, 98%": (0.98, lambda rng, runs, n: (rng.random((runs, n)) < 0.98).astype(float)),
}


def _normal(mean: float) -> Shape:
    return lambda rng, runs, n: rng.normal(mean, 0.2, (runs, n)).clip(-1, 1)


def _steps(rng: np.random.Generator, runs: int, n: int) -> Array:
    ability = rng.beta(6, 1.5, (runs, n))
    return np.asarray((rng.binomial(4, ability) - rng.binomial(4, ability)) / 4)


def _flips(rng: np.random.Generator, runs: int, n: int) -> Array:
    ability = rng.beta(4, 0.5, (runs, n))
    return np.asarray((rng.random((runs, n)) < ability) * 1.0 - (rng.random((runs, n)) < ability))


def _rare(share: float) -> Shape:
    return lambda rng, runs, n: -(rng.random((runs, n)) < share).astype(float)


def _steps_lower(rng: np.random.Generator, runs: int, n: int) -> Array:
    """Five steps, of which one is lost often enough to lower the mean by exactly the margin."""
    ability = rng.beta(6, 1.5, (runs, n))
    base, head = rng.binomial(4, ability), rng.binomial(4, ability)
    # P(head > 0) = 1 - E (1 - a)^4 = 1 - B(6, 5.5) / B(6, 1.5)
    positive = 1 - np.prod([(1.5 + k) / (7.5 + k) for k in range(4)])
    lost = rng.random((runs, n)) < MARGIN / (0.25 * positive)
    return np.asarray((np.maximum(0, head - lost) - base) / 4)


UNCHANGED: dict[str, Shape] = {
    "scores, sd 20": _normal(0.0),
    "five steps, many ties": _steps,
    "pass or fail": _flips,
}
AT_MARGIN: dict[str, Shape] = {
    "scores, sd 20": _normal(-MARGIN),
    "five steps, many ties": _steps_lower,
    "1 case in 20 breaks, else ties": _rare(MARGIN),
}


# --- tables ---------------------------------------------------------------------------------------


def coverage(setting: Setting) -> Figures:
    rows = []
    for name, (truth, shape) in SCORES.items():
        for method, ends in (("edison", score_ends), ("plain t", t_ends)):
            rows.append(_by_size(f"{name}: {method}", _covered(setting, shape, truth, ends)))
    for name, shape in UNCHANGED.items():
        rows.append(_by_size(f"difference, {name}", _covered(setting, shape, 0.0, paired_ends)))
    return Figures("Coverage of 95% intervals, %", "shape", _cases(SIZES), tuple(rows), "about 95")


def _covered(
    setting: Setting, shape: Shape, truth: float, ends: Callable[[Array], Ends]
) -> Callable[[int], float]:
    return lambda n: ends(shape(setting.rng, setting.runs, n)).cover(truth)


def gate_errors(setting: Setting) -> Figures:
    rng, runs = setting.rng, setting.runs
    rows = [
        _by_size(f"FAIL, unchanged: {name}", _fails(setting, shape))
        for name, shape in UNCHANGED.items()
    ]
    rows += [
        _by_size(f"PASS, dropped by 5: {name}", _passes(setting, shape))
        for name, shape in AT_MARGIN.items()
    ]

    def strict_fail(n: int) -> float:
        d = _normal(0.0)(rng, runs, n)
        e = capital(d, mean=0.0, against="at least")[:, -1] >= np.log(20)
        return float(np.mean(e & (d.mean(axis=1) <= -MARGIN)))

    def strict_pass(n: int) -> float:
        d = _rare(MARGIN)(rng, runs, n)
        return float(np.mean(capital(d, mean=-MARGIN, against="at most")[:, -1] >= np.log(20)))

    rows.append(_by_size("strict: FAIL, unchanged: scores, sd 20", strict_fail))
    rows.append(_by_size("strict: PASS, dropped by 5: 1 case in 20 breaks", strict_pass))
    return Figures(
        "Wrong verdicts of a gate, margin 5 points, %", "verdict and truth", _cases(SIZES),
        tuple(rows), "FAIL at most 5, PASS about 5, at most 6.7 (strict: both at most 5)",
    )  # fmt: skip


def power(setting: Setting) -> Figures:
    rng, runs = setting.rng, setting.runs

    def strict_pass(n: int) -> float:
        d = _normal(0.0)(rng, runs, n)
        return float(np.mean(capital(d, mean=-MARGIN, against="at most")[:, -1] >= np.log(20)))

    rows = [_by_size("PASS, unchanged", _passes(setting, _normal(0.0)))]
    rows += [
        _by_size(f"FAIL, dropped by {100 * drop:g}", _fails(setting, _normal(-drop)))
        for drop in (0.02, 0.10, 0.15)
    ]
    beyond = _fails(setting, _normal(-0.10), beyond=-MARGIN)
    rows.append(_by_size("beyond_margin: FAIL, dropped by 10", beyond))
    rows.append(_by_size("strict: PASS, unchanged", strict_pass))
    return Figures(
        "Verdicts when scores differ with sd 20, %", "verdict and truth", _cases(SIZES),
        tuple(rows), "the more the better, except FAIL at a tolerated drop of 2",
    )  # fmt: skip


def _fails(setting: Setting, shape: Shape, *, beyond: float = 0.0) -> Callable[[int], float]:
    rng, runs = setting.rng, setting.runs
    return lambda n: gates(shape(rng, runs, n), rng, beyond=beyond).fail_rate


def _passes(setting: Setting, shape: Shape) -> Callable[[int], float]:
    rng, runs = setting.rng, setting.runs
    return lambda n: gates(shape(rng, runs, n), rng).pass_rate


def stopping(setting: Setting) -> Figures:
    rng, runs, n = setting.rng, setting.runs, 400
    every = np.arange(19, n, 20)
    planned = np.array([99, 199, 299, 399])
    truths: dict[str, Shape] = {
        "unchanged, sd 20": _normal(0.0),
        "dropped by 5, sd 20": _normal(-0.05),
        "dropped by 5, 1 in 20 breaks": _rare(MARGIN),
        "dropped by 10, sd 20": _normal(-0.10),
    }
    rows = []
    for name, shape in truths.items():
        d = shape(rng, runs, n)
        fixed = relooked(d, rng, levels=np.full(every.size, 0.05), looks=every)
        four = relooked(d, rng, levels=np.array(planned_levels(4)), looks=planned)
        for rule, found in (("anytime", anytime(d)), ("4 planned", four), ("naive", fixed)):
            verdicts = found.verdicts
            rows.append(
                (
                    f"{name}: {rule}",
                    percent(verdicts.pass_rate),
                    percent(verdicts.fail_rate),
                    f"{found.cases.mean():.0f}",
                )
            )
    return Figures(
        "Early stopping, at most 400 cases, looks every 20", "truth and rule",
        ("PASS %", "FAIL %", "cases on average"), tuple(rows),
        "anytime and planned: wrong verdicts at most 5 (planned: about); naive is what not to do",
    )  # fmt: skip


def multiplicity(setting: Setting) -> Figures:
    rng, runs, metrics = setting.rng, setting.runs, 10
    sizes = (10, 20, 50, 100)
    rows: dict[str, list[str]] = {"any FAIL without correction": [], "any FAIL with Holm": []}
    for n in sizes:
        shared = rng.normal(0, 0.2 * np.sqrt(0.5), (runs, 1, n))
        own = rng.normal(0, 0.2 * np.sqrt(0.5), (runs, metrics, n))
        flat = (shared + own).clip(-1, 1).reshape(-1, n)
        shown = drop_shown(flat).reshape(runs, metrics)
        # Families without a drop cannot fail, so their p-values are not needed.
        wanted = np.repeat(shown.any(axis=1), metrics)
        p = np.ones(len(flat))
        p[wanted] = flip_p(flat[wanted], rng)
        table = p.reshape(runs, metrics)
        plain = ((table <= 0.05) & shown).any(axis=1)
        rows["any FAIL without correction"].append(percent(float(plain.mean())))
        rows["any FAIL with Holm"].append(percent(float(holm_fails(table, shown).mean())))
    return Figures(
        "Ten related metrics, nothing changed, %", "verdict", _cases(sizes),
        tuple((name, *values) for name, values in rows.items()), "with Holm at most 5",
    )  # fmt: skip


def order_bias(setting: Setting) -> Figures:
    rng, runs = setting.rng, setting.runs

    def winner(n: int, *, both: bool) -> float:
        first = (rng.random((runs, n)) < 0.62).astype(float)
        second = (rng.random((runs, n)) >= 0.62).astype(float) if both else first
        d = (first + second) / 2 - 0.5
        tail = np.minimum(flip_p(d, rng), flip_p(-d, rng))
        return float(np.mean(2 * tail <= 0.05))

    rows = (
        _by_size("one order", lambda n: winner(n, both=False)),
        _by_size("both orders", lambda n: winner(n, both=True)),
    )
    return Figures(
        "Equal systems, judge favours the first by 12 points: a winner is declared, %", "judged in",
        _cases(SIZES), rows, "both orders at most 5",
    )  # fmt: skip


def judge_correction(setting: Setting) -> Figures:
    rng, runs, total = setting.rng, setting.runs, 300
    labels = (20, 40, 60, 100)
    rows: dict[str, list[str]] = {}
    for n in labels:
        truth = rng.beta(4, 2, (runs, total))
        judge = np.clip(truth + 0.03 + rng.normal(0, 0.1, truth.shape), 0, 1)
        human = score_ends(truth[:, :n])
        corrected = ppi_ends(truth[:, :n], judge[:, :n], judge[:, n:])
        narrower = 1 - float(np.mean(corrected.high - corrected.low)) / float(
            np.mean(human.high - human.low)
        )
        for name, figure in (
            ("coverage: judge alone, 300 cases", score_ends(judge).cover(4 / 6)),
            ("coverage: labels alone", human.cover(4 / 6)),
            ("coverage: prediction-powered", corrected.cover(4 / 6)),
            ("narrower than labels alone by", narrower),
            ("coverage: corrected pass rate", _rate_coverage(setting, n)),
        ):
            rows.setdefault(name, []).append(percent(figure))
    return Figures(
        "Correcting a judge that is about 3 points too generous, %", "figure",
        tuple(f"{n} labels" for n in labels),
        tuple((name, *values) for name, values in rows.items()), "coverage about 95",
    )  # fmt: skip


def _rate_coverage(setting: Setting, n: int) -> float:
    """Coverage of the pass rate corrected by n passes and n fails that people labelled."""
    rng, truth, hits = setting.rng, 0.7, 0
    raw = truth * 0.9 + (1 - truth) * 0.2
    counts = np.column_stack(
        [rng.binomial(n, share, setting.runs) for share in (0.9, 0.8)]
        + [rng.binomial(200, raw, setting.runs)]
    )
    for right, wrong, passes in counts.tolist():
        found = corrected_rate(passes, 200, LabelCounts(right, n, wrong, n)).interval
        hits += found is not None and found.low <= truth <= found.high
    return hits / setting.runs


def costs(setting: Setting) -> Figures:
    rng, runs = setting.rng, setting.runs

    def drawn(n: int, ratio: float) -> tuple[Array, Array]:
        base = rng.lognormal(0, 0.6, (runs, n))
        return base, base * ratio * rng.lognormal(-0.045, 0.3, (runs, n))  # its mean is 1

    rows = (
        _by_size("PASS at +10%", lambda n: amounts(*drawn(n, 1.10), rng).pass_rate),
        _by_size("FAIL at +0%", lambda n: amounts(*drawn(n, 1.0), rng).fail_rate),
        _by_size("PASS at +0%", lambda n: amounts(*drawn(n, 1.0), rng).pass_rate),
        _by_size("FAIL at +25%", lambda n: amounts(*drawn(n, 1.25), rng).fail_rate),
    )
    return Figures(
        "Cost gate, margin 10%, lognormal costs, %", "verdict and truth", _cases(SIZES), rows,
        "PASS at +10% about 5, FAIL at +0% at most 5",
    )  # fmt: skip


def unequal_repeats(setting: Setting) -> Figures:
    rng, sizes = setting.rng, (10, 20, 40)
    rows: dict[str, list[str]] = {"sign flip": [], "relabelled repeats": []}
    for n in sizes:
        alarms = np.zeros(2)
        for _ in range(setting.runs):
            base = (rng.random((n, 3)) < 0.1).astype(float)
            head = (rng.random((n, 1)) < 0.1).astype(float)
            pairs = Pairs(tuple(map(tuple, base.tolist())), tuple(map(tuple, head.tolist())))
            alarms += [
                sign_flip(pairs.differences, rng=rng, side="less").value <= 0.05,
                relabel_repeats(pairs, rng=rng, side="less").value <= 0.05,
            ]
        for name, share in zip(rows, alarms / setting.runs, strict=True):
            rows[name].append(percent(float(share)))
    return Figures(
        "Base run 3 times, head once, 10% pass, nothing changed: p <= .05, %", "test",
        _cases(sizes), tuple((name, *values) for name, values in rows.items()),
        "relabelled at most 5; the sign flip is not used here",
    )  # fmt: skip


def _cases(sizes: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"n = {n}" for n in sizes)


TABLES: tuple[Callable[[Setting], Figures], ...] = (
    coverage, gate_errors, power, stopping, multiplicity, unequal_repeats, order_bias,
    judge_correction, rare_errors, judged_gates, approval, costs,
)  # fmt: skip
