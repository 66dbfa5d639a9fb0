"""What is simulated about judges: approval, scores and gates corrected by labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import stdtrit

from benchmarks.simulate_batch import (
    ALPHA,
    MARGIN,
    Verdicts,
    flip_p,
    gates,
    plain_ppi_ends,
    ppi_ends,
    score_ends,
)
from benchmarks.simulate_figures import Figures, Setting, percent
from edison_ci.stats.calibration import LabelCounts, corrected_rate

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from benchmarks.simulate_batch import Array

    Draw = Callable[[np.random.Generator, tuple[int, ...]], tuple[Array, Array]]

FLOOR = 0.6


def agreement_lows(human: Array, judge: Array, level: float = 0.95) -> Array:
    """Lower bounds of kappa over cases; (data sets, cases, answers). nan if nothing varies."""
    both = np.stack((human, judge))
    lowest, highest = both.min(axis=(0, 2, 3)), both.max(axis=(0, 2, 3))
    middle, apart = both.mean(axis=(0, 2, 3)), 0.6 * (highest - lowest)
    start = np.minimum(np.maximum(middle - apart / 2, lowest), highest - apart)
    answers = np.ones((1, 1, human.shape[2]))
    lows = []
    for x, y in ((start, start + apart), (start + apart, start)):
        h = np.concatenate((human, x[:, None, None] * answers), axis=1)
        j = np.concatenate((judge, y[:, None, None] * answers), axis=1)
        lows.append(_low(h, j, level))
    return np.where(highest > lowest, np.minimum(*lows), np.nan)


def _low(human: Array, judge: Array, level: float) -> Array:
    units = human.shape[1]
    mh, mj = human.mean(axis=(1, 2), keepdims=True), judge.mean(axis=(1, 2), keepdims=True)
    squares = human**2 + judge**2
    with np.errstate(divide="ignore", invalid="ignore"):
        chance = squares.mean(axis=(1, 2), keepdims=True) - 2 * mh * mj
        kappa = 1 - ((human - judge) ** 2).mean(axis=(1, 2), keepdims=True) / chance
        moved = (human - judge) ** 2 - (1 - kappa) * (squares - 2 * mj * human - 2 * mh * judge)
        moved = (moved - moved.mean(axis=(1, 2), keepdims=True)).mean(axis=2)
        k, c = kappa[:, 0, 0], chance[:, 0, 0]
        se = np.sqrt((moved**2).sum(axis=1) / (units * (units - 1))) / c
        return np.asarray(np.tanh(np.arctanh(k) - stdtrit(units - 1, level) * se / (1 - k**2)))


def point_kappa(human: Array, judge: Array) -> Array:
    h, j = (x.reshape(len(x), -1) for x in (human, judge))
    chance = (h**2 + j**2).mean(axis=1) - 2 * h.mean(axis=1) * j.mean(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(1 - ((h - j) ** 2).mean(axis=1) / chance)


# --- judges with a known kappa --------------------------------------------------------------------


def _guessing(draw: Callable[[np.random.Generator, tuple[int, ...]], Array], kappa: float) -> Draw:
    """Return a judge that grades like people in a share of the cases, and guesses in the others."""

    def both(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Array, Array]:
        human = draw(rng, shape)
        return human, np.where(rng.random(shape) < kappa, human, draw(rng, shape))

    return both


def _generous(passing: float, kappa: float) -> Draw:
    """Return a judge that finds every pass, and lets a share of the fails pass too."""
    low, high = 0.0, 1.0
    for _ in range(50):
        share = (low + high) / 2
        judged = passing + (1 - passing) * share
        chance = passing * (1 - judged) + judged * (1 - passing)
        if 1 - (1 - passing) * share / chance > kappa:
            low = share
        else:
            high = share

    def both(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Array, Array]:
        human = (rng.random(shape) < passing).astype(float)
        return human, np.maximum(human, rng.random(shape) < share)

    return both


def _steps(weights: tuple[int, ...], kappa: float) -> Draw:
    shares = np.array(weights) / sum(weights)
    values = np.arange(len(weights)) / (len(weights) - 1)
    return _guessing(lambda rng, shape: rng.choice(values, size=shape, p=shares), kappa)


def _passes(passing: float, kappa: float) -> Draw:
    return _guessing(lambda rng, shape: (rng.random(shape) < passing).astype(float), kappa)


def judges_of(kappa: float) -> dict[str, Draw]:
    return {
        "50% pass": _passes(0.5, kappa),
        "70% pass": _passes(0.7, kappa),
        "90% pass": _passes(0.9, kappa),
        "90% pass, always too generous": _generous(0.9, kappa),
        "scores 0-5": _steps((1, 1, 1, 1, 1, 1), kappa),
        "scores 0-5, mostly 5": _steps((1, 1, 2, 6, 30, 60), kappa),
    }


def approval(setting: Setting) -> Figures:
    labels = (20, 30, 50, 100, 200)

    def row(name: str, draw: Draw, answers: int, *, point: bool = False) -> tuple[str, ...]:
        return (name, *(percent(_approved(setting, draw, n, answers, point)) for n in labels))

    rows = []
    for name, draw in judges_of(FLOOR).items():
        rows.append(row(f"kappa 0.6, {name}", draw, 1))
        rows.append(row(f"kappa 0.6, {name}, 3 answers a case", draw, 3))
    for name in ("50% pass", "90% pass", "scores 0-5"):
        draw = judges_of(FLOOR)[name]
        rows.append(row(f"kappa 0.6, {name}: point estimate", draw, 1, point=True))
    rows += [row(f"kappa 0.9, {name}", draw, 1) for name, draw in judges_of(0.9).items()]
    return Figures(
        "Judges that are approved, floor 0.6, %", "judge", tuple(f"{n} cases" for n in labels),
        tuple(rows), "kappa 0.6 at most 5; kappa 0.9 the more the better",
    )  # fmt: skip


def _approved(setting: Setting, draw: Draw, cases: int, answers: int, point: bool) -> float:
    rng = setting.rng
    human, judge = draw(rng, (setting.runs, cases, answers))
    # In every second case all answers are graded alike, so that they are less than 3 answers.
    same = rng.random((setting.runs, cases, 1)) < (0.5 if answers > 1 else 0)
    human, judge = (np.where(same, x[..., :1], x) for x in (human, judge))
    low = point_kappa(human, judge) if point else agreement_lows(human, judge)
    return float(np.mean(low >= FLOOR))


# --- scores corrected by labels -------------------------------------------------------------------


def rare_errors(setting: Setting) -> Figures:
    labels, total = (20, 40, 60, 100), 300
    rows: dict[str, list[str]] = {}
    for passing in (0.9, 0.7):
        for wrong in (0.01, 0.03, 0.05):
            for n in labels:
                human = (setting.rng.random((setting.runs, total)) < passing).astype(float)
                lenient = setting.rng.random(human.shape) < wrong / (1 - passing)
                judge = np.maximum(human, lenient)
                parts = human[:, :n], judge[:, :n], judge[:, n:]
                name = f"{100 * passing:g}% pass, judge wrong in {100 * wrong:g}%"
                for method, ends in (("edison", ppi_ends), ("published", plain_ppi_ends)):
                    figure = percent(ends(*parts).cover(passing))
                    rows.setdefault(f"{name}: {method}", []).append(figure)
                alone, found = score_ends(parts[0]), ppi_ends(*parts)
                narrower = 1 - np.mean(found.high - found.low) / np.mean(alone.high - alone.low)
                rows.setdefault(f"{name}: narrower than labels alone by", []).append(
                    percent(float(narrower))
                )
    for share in (0.01, 0.05):
        name = f"corrected pass rate, 95% of passes and {100 - 100 * share:g}% of fails found"
        rows[name] = [percent(_rate_covers(setting, n, share)) for n in labels]
    return Figures(
        "Coverage where a judge of 300 cases is rarely wrong, and always too generous, %", "judge",
        tuple(f"{n} labels" for n in labels),
        tuple((name, *values) for name, values in rows.items()), "edison at least 92.5",
    )  # fmt: skip


def _rate_covers(setting: Setting, n: int, wrong: float) -> float:
    """Coverage of a pass rate of 90%, corrected by n passes and n fails that people labelled."""
    rng, truth, hits = setting.rng, 0.9, 0
    counts = np.column_stack(
        [
            rng.binomial(n, 0.95, setting.runs),
            rng.binomial(n, 1 - wrong, setting.runs),
            rng.binomial(300, truth * 0.95 + (1 - truth) * wrong, setting.runs),
        ]
    )
    for right, caught, passes in counts.tolist():
        found = corrected_rate(passes, 300, LabelCounts(right, n, caught, n)).interval
        hits += found is None or found.low <= truth <= found.high
    return hits / setting.runs


# --- gates corrected by labels --------------------------------------------------------------------


def corrected_gates(human: Array, judge: Array, rest: Array, rng: np.random.Generator) -> Corrected:
    """The gate on changes that labels of both sides correct; rows with enough labels decide."""
    n, others = human.shape[1], rest.shape[1]
    everything = np.column_stack((judge, rest))
    second = (1 + n / others) * (everything**2).mean(axis=1)
    safe = np.where(second > 1e-12, second, np.inf)
    lam = np.clip((human * judge).mean(axis=1) / safe, 0, 1)[:, None]
    gap, far = human - lam * judge, lam * rest
    middle, variance = far.mean(axis=1), far.var(axis=1, ddof=1) / others
    more = np.column_stack((gap, np.full(len(gap), -1.0)))
    mean = middle + gap.mean(axis=1)
    spread = np.sqrt(variance + more.var(axis=1, ddof=1) / (n + 1))
    low = middle + more.mean(axis=1) - stdtrit(n, 1 - ALPHA) * spread
    spread = np.sqrt(variance + gap.var(axis=1, ddof=1) / n)
    high = mean + stdtrit(n - 1, 1 - ALPHA) * spread
    enough = mean - low < MARGIN
    passes = enough & (low > -MARGIN)
    shown = enough & ~passes & (mean <= -MARGIN) & (high < 0)
    fails = np.zeros(len(human), dtype=bool)
    if shown.any():
        parts = np.column_stack((gap * (n + others) / n, far * (n + others) / others))
        fails[shown] = flip_p(parts[shown], rng) <= ALPHA
    return Corrected(Verdicts(passes, fails), enough)


class Corrected(NamedTuple):
    verdicts: Verdicts
    enough: NDArray[np.bool_]


def judged_gates(setting: Setting) -> Figures:
    labels, total, rng, runs = (60, 100, 150, 200), 400, setting.rng, setting.runs

    def flattered(drop: float, flattery: float) -> tuple[Array, Array]:
        human = rng.normal(-drop, 0.15, (runs, total)).clip(-1, 1)
        return human, (human + flattery + rng.normal(0, 0.1, human.shape)).clip(-1, 1)

    def half_seen() -> tuple[Array, Array]:
        human = -(rng.random((runs, total)) < MARGIN).astype(float)
        return human, np.where(rng.random(human.shape) < 0.5, human, 0.0)

    def never_seen() -> tuple[Array, Array]:
        human = -(rng.random((runs, total)) < MARGIN).astype(float)
        return human, np.zeros(human.shape)

    truths: dict[str, Callable[[], tuple[Array, Array]]] = {
        "dropped by 5, judge adds 5": lambda: flattered(0.05, 0.05),
        "dropped by 10, judge adds 10": lambda: flattered(0.10, 0.10),
        "1 in 20 breaks, judge sees half of it": half_seen,
        "1 in 20 breaks, judge sees nothing": never_seen,
        "unchanged, judge takes 10 off": lambda: flattered(0.0, -0.10),
        "unchanged, judge is fair": lambda: flattered(0.0, 0.0),
    }
    rows = []
    for name, draw in truths.items():
        figures: dict[str, list[str]] = {"PASS": [], "FAIL": [], "labels suffice": []}
        for n in labels:
            human, judge = draw()
            found = corrected_gates(human[:, :n], judge[:, :n], judge[:, n:], rng)
            for what, share in (
                ("PASS", found.verdicts.pass_rate),
                ("FAIL", found.verdicts.fail_rate),
                ("labels suffice", float(found.enough.mean())),
            ):
                figures[what].append(percent(share))
        alone = gates(judge, rng)
        for what, share in (("PASS", alone.pass_rate), ("FAIL", alone.fail_rate)):
            rows.append((f"{name}: {what}", *figures[what], percent(share)))
        rows.append((f"{name}: labels suffice", *figures["labels suffice"], ""))
    return Figures(
        "Gate on a judge's scores of 400 cases, margin 5, corrected by labels of both sides, %",
        "truth and verdict", (*(f"{n} labels" for n in labels), "judge alone"), tuple(rows),
        "a drop of 5 or more: PASS about 5, at most 6.7; unchanged: FAIL at most 5",
    )  # fmt: skip
