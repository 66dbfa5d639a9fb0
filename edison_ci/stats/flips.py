"""Pass-to-fail flips: cases that pass on the base and fail on the head, beyond what noise gives.

A mean hides them: nine broken cases and nine repaired ones leave the pass rate as it was. A flip is
a pass of the base beside a fail of the head, so a case that does not always give the same result
flips now and then although nothing changed. Repeats show how often: two answers of the same side
flip by noise alone.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.numeric import exceeds
from edison_ci.records import Verdict
from edison_ci.stats.arrays import Range, mean_of, np, special, sum_of
from edison_ci.stats.gates import worst_plausible_change
from edison_ci.stats.intervals import pass_interval
from edison_ci.stats.paired import Pairs, paired_difference
from edison_ci.stats.permutation import PValue
from edison_ci.stats.power import cases_for_margin, smallest_count
from edison_ci.stats.verdicts import GateDecision, GateRule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edison_ci.stats.arrays import Array

_STEPS = 5_040
"""Most steps of the grid between no flip and one flip of a case."""
_GRID = 1 << 22
_DIGITS = 10
"""Decimals of a p-value that the convolution is exact to."""
_FEW = 10
ONE_ANSWER = "one answer a case: noise is not taken off, which two or more repeats would do"


@dataclass(frozen=True, slots=True)
class Flips:
    """Flips of the same cases, in cases; with repeats they are shares of a case."""

    n: int
    broken: float
    """Passes of the base beside a fail of the head."""
    fixed: float
    """The other way round."""
    noise: float | None
    """Flips between the repeats of one side, of the side with fewer; None without repeats."""

    @property
    def excess(self) -> float:
        """Share of cases that broke, less noise where it is known."""
        return (self.broken - (self.noise or 0.0)) / self.n if self.n else 0.0

    @property
    def shown(self) -> float:
        """Share of cases that broke for certain: repaired cases count as noise without repeats."""
        noise = self.fixed if self.noise is None else self.noise
        return (self.broken - noise) / self.n if self.n else 0.0


def flips_of(pairs: Pairs) -> Flips:
    """Count the flips of pairs of passes (1) and fails (0)."""
    base, head = pairs.sides
    noise = None
    if all(any(len(case) > 1 for case in side) for side in (pairs.base, pairs.head)):
        noise = min(sum_of(_noise(side)) for side in (pairs.base, pairs.head))
    return Flips(pairs.n, sum_of(base * (1 - head)), sum_of(head * (1 - base)), noise)


def flip_p(pairs: Pairs) -> PValue:
    """Test that head and base are alike: one-sided, for "more cases broke than noise breaks".

    Without repeats it is the exact binomial test of broken against repaired cases (McNemar 1947).
    With repeats the labels of both sides are exchanged inside each case, and the flips under every
    exchange are counted by convolution, so no random numbers are used. Declared clusters exchange
    the sides as a whole; with unequal repeats as well, the larger of the two p-values counts.
    """
    p_values = [_by_case(pairs)]
    if pairs.clusters is not None:
        by_cluster = _by_cluster(pairs, pairs.clusters)
        p_values = [by_cluster] if pairs.equal_repeats else [*p_values, by_cluster]
    return max(p_values, key=lambda p: p.value)


def decide_flips(
    pairs: Pairs,
    limit: float,
    *,
    confidence: float = 0.95,
    lost: Sequence[float] = (),
    net: bool = False,
) -> GateDecision:
    """Decide a ceiling of the share of cases that break.

    PASS if the upper bound of the share, less noise, keeps the ceiling. FAIL if the share that
    broke for certain is above it and chance is ruled out. `lost` are the pass shares of the base
    where the head has no answer: for PASS they broke, for FAIL they do not count.

    With one answer a case no noise is seen. All broken cases then count against PASS, or with
    `net` those beyond the repaired ones: chance alone breaks and repairs equally many.
    """
    rule = GateRule(margin=limit, confidence=confidence)
    net = net and not _repeated(pairs)
    flips, n = flips_of(pairs), pairs.n + len(lost)
    value = flips.shown if net else flips.excess
    if pairs.n < 2:
        return _decision(value, flips, rule, method="none: too few cases")
    p, bounds, method = flip_p(pairs), *_bounds(pairs, rule, lost, net=net)
    if bounds is None:
        return _decision(value, flips, rule, method="none: too few clusters")
    drop_shown = exceeds(flips.shown, limit)
    verdict = Verdict.INCONCLUSIVE
    if not exceeds(bounds.high, limit):
        verdict = Verdict.PASS
    elif drop_shown and p.value <= rule.alpha:
        verdict = Verdict.FAIL
    unclear = verdict is Verdict.INCONCLUSIVE
    needed = _needed(pairs, value, rule, net=net)
    notes = [] if pairs.n >= _FEW else ["very few cases"]
    if unclear and not net and flips.noise is None and flips.fixed:
        notes.append(ONE_ANSWER)
    return _decision(
        value,
        flips,
        rule,
        verdict=verdict,
        method=f"{method}; {p.method}",
        interval=_interval(pairs, flips, rule, net=net),
        worst_plausible=bounds.high,
        best_plausible=bounds.low,
        p=p,
        tests="more newly failing than fixed"
        if flips.noise is None
        else "more newly failing than by noise",
        p_adjusted=p.value,
        n_needed=needed,
        n_more=max(1, needed - n) if unclear and needed is not None else None,
        notes=tuple(notes),
    )


def _decision(
    value: float,
    flips: Flips,
    rule: GateRule,
    *,
    method: str,
    verdict: Verdict = Verdict.INCONCLUSIVE,
    **more: object,
) -> GateDecision:
    return GateDecision(
        verdict=verdict,
        value=value if flips.n else None,
        n=flips.n,
        method=method,
        level=rule.confidence,
        **more,  # type: ignore[arg-type]  # further fields of the decision
        margin=rule.margin,
        alpha=rule.alpha,
        kind="level",
    )


class PassCount(NamedTuple):
    """Answers to a case with one prompt and model that pass, of those that were graded."""

    passed: int
    of: int


@dataclass(frozen=True, slots=True)
class CaseFlips:
    """Cases that began to fail or to pass. A case passes if all its answers do."""

    n: int
    newly_failing: int
    fixed: int
    expected: float | None
    """Newly failing cases that chance alone gives; None without repeats, which show no noise."""
    p: float | None
    """One-sided, for "more cases broke than were repaired"; None where noise is known."""

    @property
    def counts(self) -> str:
        """How many flip, beside the number that chance alone gives where it is known."""
        words = f"{self.newly_failing:,} newly failing"
        if self.newly_failing and self.expected is not None:
            near = f"about {round(self.expected):,}" if self.expected >= 0.5 else "none"
            words += f" ({near} expected by chance)"
        return f"{words}, {self.fixed:,} fixed"


def passes_all(counts: Iterable[PassCount]) -> bool:
    """Whether all answers to a case pass."""
    return all(count.passed == count.of for count in counts)


def case_flips(
    base: Sequence[Sequence[PassCount]],
    head: Sequence[Sequence[PassCount]],
    clusters: Sequence[str] | None = None,
) -> CaseFlips:
    """Count the cases that flip, and what chance alone gives.

    A case has a count for each prompt and model of both sides. With repeats, the labels of both
    sides are exchanged inside the cases of mixed results, which are the noise that was seen; the
    expected number of newly failing cases is the mean over all exchanges. Other cases flip for a
    reason. Without repeats, broken and repaired cases are compared by the test of the gate.
    """
    before, after = ([passes_all(case) for case in side] for side in (base, head))
    newly = sum(a and not b for a, b in zip(before, after, strict=True))
    fixed = sum(b and not a for a, b in zip(before, after, strict=True))
    n = len(base)
    if any(count.of > 1 for side in (base, head) for case in side for count in case):
        return CaseFlips(n, newly, fixed, math.fsum(map(_expected, base, head)), None)
    if not newly:
        return CaseFlips(n, newly, fixed, None, None)
    fail, one = (0.0,), (1.0,)  # each in memory once
    sides = [tuple(one if passes else fail for passes in side) for side in (before, after)]
    groups = None if clusters is None else tuple(clusters)
    return CaseFlips(n, newly, fixed, None, flip_p(Pairs(sides[0], sides[1], groups)).value)


def _expected(base: Sequence[PassCount], head: Sequence[PassCount]) -> float:
    """Return the chance that a case of mixed results passes on the base and fails on the head."""
    if not any(0 < count.passed < count.of for side in (base, head) for count in side):
        return 0.0
    passes = everywhere = 1.0
    for b, h in zip(base, head, strict=True):
        total, of = b.passed + h.passed, b.of + h.of
        passes *= math.comb(total, b.of) / math.comb(of, b.of)
        everywhere *= total == of
    return passes - everywhere


def _repeated(pairs: Pairs) -> bool:
    """Whether a case has more than one answer on a side."""
    return any(len(case) > 1 for side in (pairs.base, pairs.head) for case in side)


def _noise(side: Iterable[Sequence[float]]) -> Array:
    """Return the share of pairs of different repeats that flip, 0 for a single repeat."""
    shares = []
    for case in side:
        k, passes = len(case), math.fsum(case)
        shares.append(passes * (k - passes) / (k * (k - 1)) if k > 1 else 0.0)
    return np.array(shares, dtype=np.float64)


def _excesses(pairs: Pairs, *, net: bool = False) -> list[Array]:
    """Return the flips of each case less noise: the noise of the base, and that of the head.

    Both are wanted, because a head that steadies cases of mixed results must not pay with them for
    others that it breaks.
    """
    base, head = pairs.sides
    broken = base * (1 - head)
    if not _repeated(pairs):
        return [base - head if net else broken]
    return [broken - _noise(side) for side in (pairs.base, pairs.head)]


def _bounds(
    pairs: Pairs, rule: GateRule, lost: Sequence[float], *, net: bool
) -> tuple[Range | None, str]:
    """Return one-sided bounds of the share that breaks; lost heads count in the upper one."""
    if not _repeated(pairs) and pairs.clusters is None and not net:
        broken = round(flips_of(pairs).broken)
        n, gone = pairs.n + len(lost), round(math.fsum(lost))
        low = float(special.betaincinv(broken, n - broken + 1, rule.alpha)) if broken else 0.0
        bad = broken + gone
        high = float(special.betaincinv(bad + 1, n - bad, 1 - rule.alpha)) if bad < n else 1.0
        return Range(low, high), "exact binomial bound (Clopper-Pearson)"
    clusters = pairs.clusters
    if clusters is not None:
        clusters = (*clusters, *(f"\0missing {index}" for index in range(len(lost))))
    ends = []
    for excess in _excesses(pairs, net=net):
        worse = -np.concatenate((excess, np.array(lost, dtype=np.float64)))
        end = worst_plausible_change(worse, rule, clusters=clusters)
        if end is None:
            return None, ""
        ends.append(-end)
    interval = _interval(pairs, flips_of(pairs), rule, net=net)
    low_end = interval.low if interval is not None else 0.0
    return Range(low_end, max(ends)), "t bound that allows for failures not seen yet"


def _interval(pairs: Pairs, flips: Flips, rule: GateRule, *, net: bool) -> Range | None:
    if not _repeated(pairs) and pairs.clusters is None and not net:
        interval = pass_interval(round(flips.broken), pairs.n, level=rule.confidence)
        return None if interval is None else interval.interval
    excess = max(_excesses(pairs, net=net), key=mean_of)
    difference = paired_difference(excess, clusters=pairs.clusters, level=rule.confidence)
    return None if difference is None else difference.interval


def _needed(pairs: Pairs, share: float, rule: GateRule, *, net: bool) -> int | None:
    """Return the cases at which the ceiling is kept if the share stays; None if it is too large."""
    if share >= rule.margin or pairs.clusters is not None:
        return None
    if net or _repeated(pairs):
        spread = float(max(_excesses(pairs, net=net), key=mean_of).std(ddof=1))
        return cases_for_margin(
            spread, margin=rule.margin - max(share, 0.0), alpha=rule.alpha
        ).value
    return smallest_count(
        lambda n: special.betaincinv(share * n + 1, (1 - share) * n, rule.confidence) <= rule.margin
    )


def _by_case(pairs: Pairs) -> PValue:
    """Exchange the labels of answers inside each case."""
    if not _repeated(pairs):
        flips = flips_of(pairs)
        broken, differing = round(flips.broken), round(flips.broken + flips.fixed)
        p = float(special.betainc(broken, differing - broken + 1, 0.5)) if broken else 1.0
        return PValue(p, pairs.n, "exact McNemar test", "greater", differing, None)
    kinds: Counter[tuple[int, int, int]] = Counter()
    observed = 0.0
    for base, head in zip(pairs.base, pairs.head, strict=True):
        passes = round(math.fsum(base) + math.fsum(head))
        if 0 < passes < len(base) + len(head):
            kinds[len(base), len(head), passes] += 1
            observed += _flipped(math.fsum(base), math.fsum(head), len(base), len(head))
    units = [(_relabelled(*kind), count) for kind, count in kinds.items()]
    return _convolved(units, observed, pairs.n, "exact permutation test of repeats")


def _by_cluster(pairs: Pairs, clusters: Sequence[str]) -> PValue:
    """Exchange the two sides of each cluster."""
    base, head = pairs.sides
    sums: dict[str, list[float]] = {}
    for cluster, broken, fixed in zip(clusters, base * (1 - head), head * (1 - base), strict=True):
        both = sums.setdefault(cluster, [0.0, 0.0])
        both[0] += float(broken)
        both[1] += float(fixed)
    differing = [(b, f) for b, f in sums.values() if abs(b - f) > 1e-12]
    units = [([(b, 0.5), (f, 0.5)], count) for (b, f), count in Counter(differing).items()]
    observed = math.fsum(b for b, _ in differing)
    return _convolved(units, observed, pairs.n, "exact permutation test of clusters")


def _flipped(base: float, head: float, k_base: int, k_head: int) -> float:
    return base / k_base * (1 - head / k_head)


def _relabelled(k_base: int, k_head: int, passes: int) -> list[tuple[float, float]]:
    """Return the flips of a case under every exchange of its labels, with their chances."""
    ways = math.comb(k_base + k_head, k_base)
    return [
        (
            _flipped(b, passes - b, k_base, k_head),
            math.comb(passes, b) * math.comb(k_base + k_head - passes, k_base - b) / ways,
        )
        for b in range(max(0, passes - k_head), min(k_base, passes) + 1)
    ]


def _convolved(
    units: list[tuple[list[tuple[float, float]], int]], observed: float, n: int, method: str
) -> PValue:
    """Return the chance of a sum at least as large as observed, of independent units.

    Values are whole steps of a grid; where the grid is too coarse for them they are rounded up, and
    the observed sum down, so that the p-value is never too small.
    """
    differing = sum(count for _, count in units)
    if not units:
        return PValue(1.0, n, f"{method}: no case differs", "greater", 0, None)
    steps = _steps([value for values, _ in units for value, _ in values], units)
    grids = [
        ([(math.ceil(value * steps - 1e-6), chance) for value, chance in values], count)
        for values, count in units
    ]
    length = 1 + sum(count * max(value for value, _ in values) for values, count in grids)
    size = 1 << (length - 1).bit_length()
    product = np.ones(size // 2 + 1, dtype=np.complex128)
    for values, count in grids:
        kernel = np.zeros(size)
        for value, chance in values:
            kernel[value] += chance
        product = product * np.fft.rfft(kernel) ** count
    chances = np.fft.irfft(product, size)
    start = math.floor(observed * steps + 1e-6)
    # Rounded, because a Fourier transform differs in its last digits from machine to machine.
    p = min(1.0, max(10.0**-_DIGITS, round(sum_of(chances[start:]), _DIGITS)))
    return PValue(p, n, method, "greater", differing, None)


def _steps(
    values: Iterable[float], units: Sequence[tuple[Sequence[tuple[float, float]], int]]
) -> int:
    """Return the fewest steps a flip in which all values are whole, or as many as fit."""
    most = sum(count * max(value for value, _ in part) for part, count in units)
    room = max(1, min(_STEPS, int(_GRID / max(most, 1.0)) - 1))
    steps = 1
    for value in sorted(set(values)):
        part = next((k for k in range(1, 145) if abs(value * k - round(value * k)) < 1e-9), 0)
        steps = math.lcm(steps, part) if part else room + 1
        if steps > room:
            return room
    return steps
