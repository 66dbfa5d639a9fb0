"""Scores and changes corrected by human labels: prediction-powered means, and gates on them.

People's labels are scarce and right, the judge's scores plenty and biased. The labelled cases must
be a random sample of all cases: their order is that of hashes of a seed and the case, independent
of the results of a case, so that those from its beginning without a gap are a random sample, at any
point of stopping. A judge that is rarely wrong may show no error in the labels at all; the
intervals allow for errors that were not seen.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.records import Verdict
from edison_ci.stats.arrays import (
    TIE,
    TOLERANCE,
    Range,
    bounded,
    dot,
    grouped,
    mean_of,
    np,
    special,
    sum_of,
    variance_of,
)
from edison_ci.stats.intervals import interval_of_mean
from edison_ci.stats.paired import mean_error, paired_difference
from edison_ci.stats.permutation import sign_flip
from edison_ci.stats.power import unseen_cases
from edison_ci.stats.scores import Estimate, Unseen
from edison_ci.stats.verdicts import GateDecision

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from edison_ci.stats.arrays import Array, Floats
    from edison_ci.stats.permutation import PValue
    from edison_ci.stats.verdicts import GateRule


FEWEST_LABELS = 20
"""Number of labels below which the mean of the labels is used alone."""
MOST_LEFT_OUT = 0.05
"""Share of the cases that may have been passed over, as STATS 7 allows it of missing cases."""


def random_rank(seed: int, name: str) -> str:
    """Return by what a case is sorted in the random order of a seed."""
    return hashlib.sha256(f"{seed}:{name}".encode("utf-8", "surrogatepass")).hexdigest()


def random_order(names: Iterable[str], seed: int = 0) -> list[str]:
    """Return names in the random order of a seed; those that are added later move no others."""
    return sorted(set(names), key=lambda name: random_rank(seed, name))


@dataclass(frozen=True, slots=True)
class RandomSample:
    """The cases that represent all of them."""

    cases: frozenset[str]
    of: int
    """All cases."""
    picked: int
    """Graded cases outside of the sample: they were picked by hand."""
    left_out: int
    """Cases before the end of the sample that were passed over."""

    @property
    def n(self) -> int:
        """Cases in the sample."""
        return len(self.cases)


def random_sample(names: Iterable[str], seen: Collection[str], seed: int = 0) -> RandomSample:
    """Return the graded cases from the start of the order, nearly without a gap."""
    order = random_order(names, seed)
    end = seen_count = 0
    for place, name in enumerate(order, 1):
        if name in seen:
            seen_count += 1
            if place - seen_count <= MOST_LEFT_OUT * place:
                end = place
    cases = frozenset(name for name in order[:end] if name in seen)
    return RandomSample(cases, len(order), seen_count - len(cases), end - len(cases))


FEWEST_SEEN = 5
"""Labelled cases on which judge and people differ, below which an unseen error is allowed for."""
_CLOSE = 0.1
"""Difference up to which two scores agree."""


@dataclass(frozen=True, slots=True)
class LabelledScores:
    """The labels of people beside the judge's scores of the same cases, and of the others."""

    human: Floats
    judge: Floats
    unlabelled: Floats
    """The judge's scores of the cases without a label."""
    clusters: tuple[Sequence[str], Sequence[str]] | None = None
    """The cluster of each case with and without a label; None when cases are independent."""


@dataclass(frozen=True, slots=True)
class CorrectedMean(Estimate):
    """The mean score that people would have given; None without a label. `n` are the labels."""

    judged: int
    """Cases that only the judge has scored."""
    judge_mean: float | None
    """Mean of the judge alone, over all cases."""
    trust: float
    """Lambda: the weight of the judge's scores, 0 for a useless judge."""


def corrected_mean(
    data: LabelledScores, *, differences: bool = False, level: float = 0.95
) -> CorrectedMean:
    """Return the power-tuned prediction-powered mean (Angelopoulos, Duchi and Zrnic 2023).

    With `differences` the values are candidate minus baseline, of people and of the judge. Where
    judge and people differ on fewer than `FEWEST_SEEN` labelled cases, each end of the interval
    counts one more case on which they differ completely, or the labels are used alone if that is
    more precise.
    """
    parts = _Parts.of(data, differences=differences)
    n, others = parts.human.size, parts.unlabelled.size
    everything = np.concatenate((parts.judge, parts.unlabelled))
    says = mean_of(everything) if everything.size else None
    alone, interval = _people_only(parts.human, data.clusters, differences, level)

    def labels_alone(why: str) -> CorrectedMean:
        return CorrectedMean(
            alone, n, f"labels alone: {why}", interval, level, others, says, trust=0.0
        )

    if n < FEWEST_LABELS or others < 2:
        return labels_alone(
            f"fewer than {FEWEST_LABELS} labels" if n < FEWEST_LABELS else "all cases labelled"
        )
    estimate, method = parts.estimate(), "prediction-powered mean"
    if data.clusters is not None:
        method = f"{method}, clustered"
    low = -1.0 if differences else 0.0
    value = min(1.0, max(low, estimate.mean))
    ends = parts.interval(level)
    if ends is None:  # nothing varies, so the judge has no weight
        return CorrectedMean(value, n, method, interval, level, others, says, parts.trust)
    ends = Range(max(low, ends.low), min(1.0, ends.high))
    if not parts.seen:
        if interval is not None and interval.high - interval.low <= ends.high - ends.low:
            return labels_alone("the judge's errors are too rare in them")
        method = f"{method}, one unseen error allowed for"
    return CorrectedMean(value, n, method, ends, level, others, says, parts.trust)


class JudgeDecision(NamedTuple):
    """Decision of a gate on the judge's scores, corrected by labels of both sides."""

    decision: GateDecision
    trust: float
    """Lambda: the weight of the judge's scores."""
    judge: float
    """Change by the judge alone."""


def decide_corrected(
    data: LabelledScores, rule: GateRule, *, rng: np.random.Generator, lost: Sequence[float] = ()
) -> JudgeDecision | None:
    """Decide a gate on changes (head minus base) that are corrected by labels of both sides.

    As in the gate on scores, PASS counts one more labelled case that dropped by the worst. `lost`
    are the base's scores of cases without a head, which count as dropped to 0. None if the labels
    are too few: if not even an unchanged head would pass.
    """
    parts = _Parts.of(data, differences=True)
    n, total = parts.human.size, parts.human.size + parts.unlabelled.size
    if n < FEWEST_LABELS or rule.guarantee == "strict":
        return None
    plain = parts.estimate()
    worst = parts.estimate(-rule.worst_case_drop, number=unseen_cases(rule.alpha))
    low, high = worst.lower(rule.alpha), plain.upper(rule.alpha)
    interval = parts.interval(rule.confidence)
    if interval is None:  # nothing varies
        _, interval = _people_only(parts.human, data.clusters, True, rule.confidence)
    if interval is None or plain.mean - low >= rule.margin - TIE:
        return None
    low = (total * low - math.fsum(lost)) / (total + len(lost))
    p = parts.sign_flip(rng)
    limit = -rule.margin if rule.fail_rule == "beyond_margin" else 0.0
    drop_shown = plain.mean <= -rule.margin + TIE and high < limit - TIE
    verdict = Verdict.INCONCLUSIVE
    if low > TIE - rule.margin:
        verdict = Verdict.PASS
    elif drop_shown and p.value <= rule.alpha:
        verdict = Verdict.FAIL
    decision = GateDecision(
        verdict=verdict,
        value=min(1.0, max(-1.0, plain.mean)),
        n=total,
        method=f"prediction-powered t bound that allows for failures not seen yet; {p.method}",
        interval=Range(max(-1.0, interval.low), min(1.0, interval.high)),
        level=rule.confidence,
        margin=rule.margin,
        alpha=rule.alpha,
        worst_plausible=low,
        best_plausible=high,
        p=p,
        tests="any drop",
        p_adjusted=p.value,
    )
    return JudgeDecision(
        decision, parts.trust, mean_of(np.concatenate((parts.judge, parts.unlabelled)))
    )


class JudgeFavor(NamedTuple):
    """By how much a judge favors the head, compared with people."""

    value: float
    n: int
    p: PValue


def favors_head(
    human: Floats,
    judge: Floats,
    *,
    rng: np.random.Generator,
    clusters: Sequence[str] | None = None,
) -> JudgeFavor:
    """Test whether the judge's changes (head minus base) are higher than those of people."""
    gap = bounded(judge, "changes", low=-1, high=1) - bounded(human, "changes", low=-1, high=1)
    p = sign_flip(gap, rng=rng, side="greater", clusters=clusters)
    return JudgeFavor(mean_of(gap), gap.size, p)


class _Estimate(NamedTuple):
    mean: float
    se: float
    df: float

    def lower(self, alpha: float) -> float:
        return self.mean - float(special.stdtrit(self.df, 1 - alpha)) * self.se

    def upper(self, alpha: float) -> float:
        return self.mean + float(special.stdtrit(self.df, 1 - alpha)) * self.se


@dataclass(frozen=True, slots=True)
class _Parts:
    """The two means of which a corrected mean is the sum."""

    human: Array
    judge: Array
    unlabelled: Array
    clusters: tuple[Sequence[str], Sequence[str]] | None
    trust: float

    @classmethod
    def of(cls, data: LabelledScores, *, differences: bool) -> _Parts:
        low = -1.0 if differences else 0.0
        human = bounded(data.human, "labels", low=low, high=1)
        judge, rest = (
            bounded(values, "judge's scores", low=low, high=1)
            for values in (data.judge, data.unlabelled)
        )
        if human.size != judge.size:
            raise ValueError(
                f"{human.size} labels but {judge.size} scores of the judge beside them"
            )
        trust = _trust(human, judge, rest, centered=not differences)
        return cls(human, judge, rest, data.clusters, trust)

    @property
    def gap(self) -> Array:
        return self.human - self.trust * self.judge

    @property
    def rest(self) -> Array:
        """What the judge says of the other cases, as far as it is trusted."""
        return self.trust * self.unlabelled

    @property
    def seen(self) -> bool:
        """Whether labels show enough of the judge's errors to know their spread."""
        differ = np.abs(self.human - self.judge) > _CLOSE + TOLERANCE
        names = range(differ.size) if self.clusters is None else self.clusters[0]
        return (
            len({name for name, differs in zip(names, differ, strict=True) if differs})
            >= FEWEST_SEEN
        )

    def estimate(self, extra: float | None = None, *, number: float = 1.0) -> _Estimate:
        """Return the mean with its error; `extra` is the gap of some more labelled cases."""
        gap, rest = self.gap, self.rest
        far = mean_of(rest) if rest.size else 0.0
        if self.clusters is not None:
            return self._clustered(extra, far, number)
        error = mean_error(grouped(gap, None), None if extra is None else Unseen(number, extra))
        if error is None:
            raise ValueError("one label has no error")
        variance = error.se**2
        if rest.size > 1:
            variance += variance_of(rest) / rest.size
        return _Estimate(far + error.mean, math.sqrt(variance), error.df)

    def interval(self, level: float) -> Range | None:
        """Return the ends at a two-sided level, with an unseen error if it must be allowed for."""
        alpha = (1 - level) / 2
        if self.seen:
            estimate = self.estimate()
            if estimate.se < TIE or estimate.df < 1:
                return None
            return Range(estimate.lower(alpha), estimate.upper(alpha))
        middle = mean_of(self.gap)
        low, high = self.estimate(middle - 1), self.estimate(middle + 1)
        return Range(low.lower(alpha), high.upper(alpha)) if low.df >= 1 else None

    def sign_flip(self, rng: np.random.Generator) -> PValue:
        """Test that the change is as likely up as down; a case flips with its label.

        The trust of uncentered changes is the same for all signs, so the test is exact.
        """
        gap, rest, total = self.gap, self.rest, self.human.size + self.unlabelled.size
        parts = [gap * (total / gap.size), *([rest * (total / rest.size)] if rest.size else [])]
        names = None if self.clusters is None else [*self.clusters[0], *self.clusters[1]]
        return sign_flip(np.concatenate(parts), rng=rng, side="less", clusters=names)

    def _clustered(self, extra: float | None, far: float, number: float) -> _Estimate:
        """Return the sandwich over clusters: each one's share in the estimate is added up first.

        Cases of a cluster, labelled or not, move together. Additional cases are clusters of the
        size that a case's cluster has on average.
        """
        assert self.clusters is not None
        gap, rest = self.gap, self.rest
        sizes = grouped(gap, self.clusters[0]).sizes
        size = 0.0 if extra is None else number * dot(sizes, sizes) / sum_of(sizes)
        n = gap.size + size
        mean = (sum_of(gap) + size * (extra or 0.0)) / n
        shares: dict[str, list[float]] = defaultdict(list)
        for moved, groups in (
            ((gap - mean) / n, self.clusters[0]),
            ((rest - far) / max(1, rest.size), self.clusters[1]),
        ):
            for group, share in zip(groups, moved.tolist(), strict=True):
                shares[group].append(share)
        sums = [math.fsum(share) for share in shares.values()]
        squares = [share**2 for share in sums]
        if extra is not None:
            squares.append((size * (extra - mean) / n) ** 2 / number)
        count, df = len(squares), sizes.size - (extra is None)
        variance = count / max(1, count - 1) * math.fsum(squares)
        return _Estimate(far + mean, math.sqrt(variance), df)


def _trust(human: Array, judge: Array, rest: Array, *, centered: bool) -> float:
    """Return the weight of the judge's scores with the smallest variance, from 0 to 1."""
    n, others = human.size, rest.size
    if n < 2 or others < 2:
        return 0.0
    everything = np.concatenate((judge, rest))
    if centered:
        variance = variance_of(everything)
        covariance = dot(human - mean_of(human), judge - mean_of(judge)) / (n - 1)
    else:
        variance = dot(everything, everything) / everything.size
        covariance = dot(human, judge) / n
    if variance <= TIE:
        return 0.0
    return min(1.0, max(0.0, covariance / ((1 + n / others) * variance)))


def _people_only(
    human: Array,
    clusters: tuple[Sequence[str], Sequence[str]] | None,
    differences: bool,
    level: float,
) -> tuple[float | None, Range | None]:
    groups = None if clusters is None else clusters[0]
    if differences:
        difference = paired_difference(human, clusters=groups, level=level)
        return (None, None) if difference is None else (difference.value, difference.interval)
    interval = interval_of_mean(human, groups, level=level)
    return (None, None) if interval is None else (interval.estimate, interval.interval)
