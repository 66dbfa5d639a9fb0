"""Calibration: agreement of a judge with labels, and pass rates corrected by its error rates.

Which correction holds depends on the labels: a random sample of the reported cases calls for
`corrected.corrected_mean`; labels from elsewhere, with believable error rates, for
`corrected_rate`. A judge is approved by the lower bound of its agreement, which is Cohen's kappa
with quadratic weights, 1 - D / C: D is the mean squared distance of judge and people, C that of
their scores paired at random. Answers to one case, and cases of one cluster, move together, so the
unit of the bound is the case or the cluster.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.numeric import TOLERANCE, reaches, snap
from edison_ci.stats.agreement import cohen_of_cases, krippendorff
from edison_ci.stats.arrays import (
    TIE,
    Range,
    bounded,
    dot,
    generator_for,
    grouped,
    np,
    special,
    sum_of,
)
from edison_ci.stats.paired import paired_difference
from edison_ci.stats.permutation import PValue, sign_flip
from edison_ci.stats.power import smallest_count
from edison_ci.stats.scores import Estimate, unit_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.stats.agreement import Agreement
    from edison_ci.stats.arrays import Array, Floats


JUDGE_CHECK_TOLERANCE = 0.1
"""Difference up to which two scores agree."""


class PairedGrade(NamedTuple):
    """An answer as people and a judge grade it, all on 0-1."""

    case: str
    human: float
    judge: float
    human_pass: float
    """Share of the people who would let it pass."""
    judge_pass: bool
    thumbs: bool
    """Whether people graded with thumbs only."""
    cluster: str | None = None
    """Of the case; None if it is independent of the others."""

    @property
    def unit(self) -> str:
        """What is independent of all others: the cluster, or the case."""
        return unit_of(self.case, self.cluster)

    @property
    def pair(self) -> tuple[float, float]:
        """Pairs of scores: human, judge."""
        return (self.human, float(self.judge_pass)) if self.thumbs else (self.human, self.judge)


@dataclass(frozen=True, slots=True)
class JudgeCheck:
    """How far a judge agrees with people."""

    n: int
    """Answers."""
    cases: int
    kappa: Agreement
    """Cohen's kappa with quadratic weights."""
    bound: AgreementBound | None
    """Its lower bound, by which a judge is approved; None if nothing varies."""
    alpha: Agreement
    bias: float | None
    """Mean over cases of judge minus people: above 0 is generous."""
    bias_interval: Range | None
    close: float | None
    """Share of answers on which they differ by at most a tenth."""
    correlation: float | None
    counts: LabelCounts
    """How passes and fails compare; answers on which people are divided equally do not count."""

    @property
    def sensitivity(self) -> float | None:
        """Of what people let pass, the share that the judge lets pass."""
        return self.counts.true_passes / self.counts.passes if self.counts.passes else None

    @property
    def specificity(self) -> float | None:
        """Of what people let fail, the share that the judge lets fail."""
        return self.counts.true_fails / self.counts.fails if self.counts.fails else None


def check_judge(answers: Sequence[PairedGrade]) -> JudgeCheck:
    """Compare a judge with people on the same answers."""
    pairs = [answer.pair for answer in answers]
    human, judge = [h for h, _ in pairs], [j for _, j in pairs]
    cases = [answer.case for answer in answers]
    seed = sorted(set(cases))
    kappa = cohen_of_cases(human, judge, cases, rng=generator_for(seed))
    bound = agreement_bound(human, judge, [answer.unit for answer in answers])
    alpha = krippendorff([list(pair) for pair in pairs], rng=generator_for(seed))
    trust = judge_trust(human, judge, tolerance=JUDGE_CHECK_TOLERANCE)
    bias = paired_difference(_by_case(answers))
    return JudgeCheck(
        n=len(answers),
        cases=len(seed),
        kappa=kappa,
        bound=bound,
        alpha=alpha,
        bias=None if bias is None else bias.value,
        bias_interval=None if bias is None else bias.interval,
        close=trust.agreement,
        correlation=trust.correlation,
        counts=label_counts(answers),
    )


def label_counts(answers: Sequence[PairedGrade]) -> LabelCounts:
    """Return how passes compare; answers on which people are divided equally are left out."""
    decided = [a for a in answers if not math.isclose(a.human_pass, 0.5)]
    passes = [a for a in decided if a.human_pass > 0.5]
    fails = [a for a in decided if a.human_pass < 0.5]
    return LabelCounts(
        true_passes=sum(a.judge_pass for a in passes),
        passes=len(passes),
        true_fails=sum(not a.judge_pass for a in fails),
        fails=len(fails),
    )


def check_criteria(
    human: Sequence[Mapping[str, float]], judge: Sequence[Mapping[str, float]]
) -> dict[str, JudgeTrust]:
    """Compare a judge with people criterion by criterion, worst first."""
    both: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for people, scores in zip(human, judge, strict=True):
        for name in people.keys() & scores.keys():
            both[name].append((people[name], scores[name]))
    trusts = {
        name: judge_trust(
            [h for h, _ in pairs], [j for _, j in pairs], tolerance=JUDGE_CHECK_TOLERANCE
        )
        for name, pairs in both.items()
    }
    return {name: trusts[name] for name in worst_criteria(trusts)}


def _by_case(answers: Sequence[PairedGrade]) -> list[float]:
    """Return judge minus people of each case: the case is the unit."""
    differences: dict[str, list[float]] = defaultdict(list)
    for answer in answers:
        human, judge = answer.pair
        differences[answer.case].append(judge - human)
    return [math.fsum(differences[case]) / len(differences[case]) for case in sorted(differences)]


_FEWEST_OF_A_KIND = 10
_LEAST_YOUDEN = 0.1


@dataclass(frozen=True, slots=True)
class LabelCounts:
    """Counts of right verdicts of a judge on labelled cases."""

    true_passes: int
    passes: int
    """Cases that truly pass."""
    true_fails: int
    fails: int
    """Cases that truly fail."""

    def __post_init__(self) -> None:
        if not (0 <= self.true_passes <= self.passes and 0 <= self.true_fails <= self.fails):
            raise ValueError(f"counts that cannot be: {self}")


@dataclass(frozen=True, slots=True)
class CorrectedRate(Estimate):
    """The pass rate that people would have found; if there is none, `method` says why."""

    raw: float
    """The judge's pass rate."""
    sensitivity: float | None
    specificity: float | None


def corrected_rate(
    passes: int, n: int, labels: LabelCounts, *, level: float = 0.95
) -> CorrectedRate:
    """Correct a judge's pass rate for its error rates (Rogan and Gladen 1978; Lee et al. 2025)."""
    if not 0 <= passes <= n or n < 1:
        raise ValueError(f"{passes} passes of {n} cases cannot be")
    p = passes / n
    q1 = labels.true_passes / labels.passes if labels.passes else None
    q0 = labels.true_fails / labels.fails if labels.fails else None
    if q0 is None or q1 is None or min(labels.passes, labels.fails) < _FEWEST_OF_A_KIND:
        why = f"refused: fewer than {_FEWEST_OF_A_KIND} labels of a kind"
        return CorrectedRate(None, n, why, None, level, p, q1, q0)
    if not reaches(q0 + q1 - 1, _LEAST_YOUDEN):
        why = "refused: the judge hardly distinguishes passes from fails"
        return CorrectedRate(None, n, why, None, level, p, q1, q0)
    value = min(1.0, max(0.0, (p + q0 - 1) / (q0 + q1 - 1)))
    interval = _rate_interval(p, n, labels, level)
    if interval.high <= interval.low:
        # Clipped to a point: no true rate gives this judge such a number of passes.
        why = "refused: the judge's error rates do not fit these cases"
        return CorrectedRate(None, n, why, None, level, p, q1, q0)
    # The interval is built around shrunken rates; it never leaves its own estimate out.
    interval = Range(min(interval.low, value), max(interval.high, value))
    return CorrectedRate(value, n, "sensitivity and specificity", interval, level, p, q1, q0)


@dataclass(frozen=True, slots=True)
class JudgeTrust(Estimate):
    """How a judge compares with people on the same cases.

    The value is the mean signed bias, judge minus people: above 0 is generous.
    """

    agreement: float | None
    """Share of cases on which judge and people differ by at most `tolerance`."""
    correlation: float | None
    """None when one of them never varies."""


def judge_trust(
    human: Floats, judge: Floats, *, tolerance: float = 0.1, level: float = 0.95
) -> JudgeTrust:
    """Return how far the judge can be trusted; for pass or fail labels `tolerance` is 0."""
    people, scores = (bounded(x, "scores", low=0, high=1) for x in (human, judge))
    if people.size != scores.size:
        raise ValueError(f"{people.size} labels but {scores.size} scores")
    bias = paired_difference(scores - people, level=level)
    if bias is None:
        return JudgeTrust(None, 0, "no label", None, level, None, None)
    agreement = float(np.mean(np.abs(scores - people) <= tolerance + TOLERANCE))
    correlation = None
    if bias.n >= 2 and min(people.std(), scores.std()) > TIE:
        correlation = float(np.corrcoef(people, scores)[0, 1])
    return JudgeTrust(bias.value, bias.n, bias.method, bias.interval, level, agreement, correlation)


def worst_criteria(trusts: Mapping[str, JudgeTrust]) -> tuple[str, ...]:
    """Return the criteria from the least to the most trustworthy, by agreement, then bias."""

    def rank(name: str) -> tuple[float, float, str]:
        trust = trusts[name]
        return (snap(trust.agreement or 0.0), -snap(abs(trust.value or 0.0)), name)

    return tuple(sorted((name for name in trusts if trusts[name].n), key=rank))


@dataclass(frozen=True, slots=True)
class SideBias(Estimate):
    """By how much the judge favours the head over the base, compared with people."""

    value: float
    p: PValue

    @property
    def warn(self) -> bool:
        """Whether to print that the judge may favour one side."""
        return self.p.value <= round(1 - self.level, 12)


def side_bias(
    base: Sequence[tuple[float, float]],
    head: Sequence[tuple[float, float]],
    *,
    rng: np.random.Generator,
    level: float = 0.95,
) -> SideBias | None:
    """Test whether the judge's bias differs between the sides; (judge, human) a case and side.

    A gate on judge scores is about the judge's quality, unless its bias is the same on both.
    """
    if len(base) != len(head):
        raise ValueError(f"{len(base)} cases of the base but {len(head)} of the head")
    sides = [np.asarray(side, dtype=np.float64).reshape(-1, 2) for side in (base, head)]
    # A difference of differences reaches from -2 to 2; halved it is a difference like any other.
    half = ((sides[1][:, 0] - sides[1][:, 1]) - (sides[0][:, 0] - sides[0][:, 1])) / 2
    difference = paired_difference(half, level=level)
    if difference is None:
        return None
    p = sign_flip(half, rng=rng)
    interval = difference.interval and Range(
        2 * difference.interval.low, 2 * difference.interval.high
    )
    return SideBias(2 * difference.value, difference.n, difference.method, interval, level, p)


def _rate_interval(p: float, n: int, labels: LabelCounts, level: float) -> Range:
    z = float(special.ndtri(0.5 + level / 2))
    m0, m1, square = labels.fails + 2, labels.passes + 2, z * z
    rate = (n * p + square / 2) / (n + square)
    q0, q1 = (labels.true_fails + 1) / m0, (labels.true_passes + 1) / m1
    youden = q0 + q1 - 1
    theta = (rate + q0 - 1) / youden
    v0, v1 = q0 * (1 - q0) / m0, q1 * (1 - q1) / m1
    shift = 2 * square * (-(1 - theta) * v0 + theta * v1)
    variance = rate * (1 - rate) / (n + square) + (1 - theta) ** 2 * v0 + theta**2 * v1
    se = math.sqrt(variance) / youden
    middle = theta + shift
    low, high = (min(1.0, max(0.0, middle + sign * z * se)) for sign in (-1, 1))
    return Range(low, high)


BOUND_LEVEL = 0.95
_UNSEEN = 0.6
"""Distance of judge and people in the additional unit, as a share of the range of the scores."""


@dataclass(frozen=True, slots=True)
class AgreementBound:
    """How far a judge agrees with people, and how far at least."""

    value: float
    """Kappa of the labels."""
    low: float
    """One-sided lower bound of kappa."""
    units: int
    """Cases, or clusters of cases."""
    level: float
    moments: _Moments

    def units_needed(self, floor: float) -> int | None:
        """Return the units with which the bound reaches a floor if the agreement stays as it is.

        None if no number does.
        """

        def reached(units: int) -> bool:
            return reaches(_low(self.moments, units / self.units, self.level), floor)

        if not self.value > floor and not reached(self.units):
            return None
        return smallest_count(reached, above=0, near=self.units)


def agreement_bound(
    human: Floats, judge: Floats, units: Sequence[str], *, level: float = BOUND_LEVEL
) -> AgreementBound | None:
    """Return kappa with its one-sided lower bound; None if nothing varies or below two units.

    The bound is a t bound of Fisher's z with the linearized standard error over units. One unit on
    which judge and people differ by 60% of the range of the scores is added, in the worse of both
    directions: without it a sample with no disagreement has an error of 0, and one with few of
    them an error that is too small. Like kappa, the bound does not depend on the scale. `units`
    names the unit of each pair of scores.
    """
    a, b = (bounded(x, "scores", low=0, high=1) for x in (human, judge))
    if not a.size == b.size == len(units):
        raise ValueError(f"{a.size} and {b.size} scores of {len(units)} units")
    moments = _Moments.of(a, b, units)
    count = moments.sizes.size
    if count < 2:
        return None
    _, chance, kappa = _kappa(moments, np.ones(count))
    if chance <= TIE:
        return None
    return AgreementBound(kappa, _low(moments, 1.0, level), count, level, moments)


@dataclass(frozen=True, slots=True)
class _Moments:
    """Sums over the answers of each unit."""

    sizes: Array
    human: Array
    judge: Array
    squares: Array
    """Of human and judge."""
    distances: Array
    """Squared, of human and judge."""
    lowest: float
    highest: float

    @classmethod
    def of(cls, a: Array, b: Array, units: Sequence[str]) -> _Moments:
        sizes = grouped(a, units).sizes
        both = np.concatenate((a, b))
        return cls(
            sizes=sizes,
            human=grouped(a, units).sums,
            judge=grouped(b, units).sums,
            squares=grouped(a * a + b * b, units).sums,
            distances=grouped((a - b) ** 2, units).sums,
            lowest=float(both.min(initial=1)),
            highest=float(both.max(initial=0)),
        )

    def with_unit(self, human: float, judge: float) -> _Moments:
        """Add a unit of the size that an answer's unit has on average."""
        size = dot(self.sizes, self.sizes) / sum_of(self.sizes)
        return replace(
            self,
            sizes=np.append(self.sizes, size),
            human=np.append(self.human, size * human),
            judge=np.append(self.judge, size * judge),
            squares=np.append(self.squares, size * (human**2 + judge**2)),
            distances=np.append(self.distances, size * (human - judge) ** 2),
        )


def _kappa(of: _Moments, weights: Array) -> tuple[float, float, float]:
    """Return the number of answers, the distance by chance, and kappa (0 without chance)."""
    n = dot(weights, of.sizes)
    human, judge = dot(weights, of.human) / n, dot(weights, of.judge) / n
    chance = dot(weights, of.squares) / n - 2 * human * judge
    return n, chance, 1 - dot(weights, of.distances) / n / chance if chance > TIE else 0.0


def _low(of: _Moments, times: float, level: float) -> float:
    """Return the lower bound if every unit came `times` as often."""
    n = sum_of(of.sizes)
    middle = (sum_of(of.human) + sum_of(of.judge)) / (2 * n)
    apart = _UNSEEN * (of.highest - of.lowest)
    start = min(max(middle - apart / 2, of.lowest), of.highest - apart)
    ends = (start, start + apart)
    weights = np.append(np.full(of.sizes.size, times), 1.0)
    return min(_low_of(of.with_unit(*pair), weights, level) for pair in (ends, ends[::-1]))


def _low_of(of: _Moments, weights: Array, level: float) -> float:
    n, chance, kappa = _kappa(of, weights)
    human, judge = dot(weights, of.human) / n, dot(weights, of.judge) / n
    # The influence of each unit on D - (1 - kappa) C, which is 0.
    moved = of.distances - (1 - kappa) * (of.squares - 2 * judge * of.human - 2 * human * of.judge)
    moved = moved - of.sizes * dot(weights, moved) / n
    df = sum_of(weights) - 1
    se = math.sqrt((df + 1) / df * dot(weights, moved * moved)) / (n * chance)
    kappa = min(max(kappa, TIE - 1), 1 - TIE)
    reach = float(special.stdtrit(df, level)) * se / (1 - kappa**2)
    return math.tanh(math.atanh(kappa) - reach)
