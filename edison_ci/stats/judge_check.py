"""A judge on answers that people have graded.

Where people said no more than up or down, the judge's pass is set against that; elsewhere its score
against theirs. Both are on 0-1, so one kappa with quadratic weights covers them: for pass and fail
it is Cohen's kappa, for scores it is the agreement in value, not only in order.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.stats.agreement import cohen_of_cases, krippendorff
from edison_ci.stats.arrays import Range, generator_for
from edison_ci.stats.calibration import JudgeTrust, LabelCounts, judge_trust, worst_criteria
from edison_ci.stats.paired import paired_difference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.stats.agreement import Agreement

TOLERANCE = 0.1
"""Scores so close are said to agree."""


class Graded(NamedTuple):
    """An answer as people and a judge grade it, all on 0-1."""

    case: str
    human: float
    judge: float
    human_pass: float
    """Share of the people who would let it pass."""
    judge_pass: bool
    thumbs: bool
    """Whether people said no more than up or down."""

    @property
    def pair(self) -> tuple[float, float]:
        """What is set against each other: human, judge."""
        return (self.human, float(self.judge_pass)) if self.thumbs else (self.human, self.judge)


@dataclass(frozen=True, slots=True)
class JudgeCheck:
    """How far a judge agrees with people."""

    n: int
    """Answers."""
    cases: int
    kappa: Agreement
    """Cohen's kappa with quadratic weights; the licence goes by it."""
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


def check_judge(answers: Sequence[Graded]) -> JudgeCheck:
    """Compare a judge with people on the same answers."""
    pairs = [answer.pair for answer in answers]
    human, judge = [h for h, _ in pairs], [j for _, j in pairs]
    cases = [answer.case for answer in answers]
    seed = sorted(set(cases))
    kappa = cohen_of_cases(human, judge, cases, rng=generator_for(seed))
    alpha = krippendorff([list(pair) for pair in pairs], rng=generator_for(seed))
    trust = judge_trust(human, judge, tolerance=TOLERANCE)
    found = paired_difference(_by_case(answers))
    return JudgeCheck(
        n=len(answers),
        cases=len(seed),
        kappa=kappa,
        alpha=alpha,
        bias=None if found is None else found.value,
        bias_interval=None if found is None else found.interval,
        close=trust.agreement,
        correlation=trust.correlation,
        counts=label_counts(answers),
    )


def label_counts(answers: Sequence[Graded]) -> LabelCounts:
    """Return how passes compare; answers on which people are divided equally are left out."""
    told = [a for a in answers if not math.isclose(a.human_pass, 0.5)]
    passes = [a for a in told if a.human_pass > 0.5]
    fails = [a for a in told if a.human_pass < 0.5]
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
    found = {
        name: judge_trust([h for h, _ in pairs], [j for _, j in pairs], tolerance=TOLERANCE)
        for name, pairs in both.items()
    }
    return {name: found[name] for name in worst_criteria(found)}


def _by_case(answers: Sequence[Graded]) -> list[float]:
    """Return judge minus people of each case: the case is the unit."""
    found: dict[str, list[float]] = defaultdict(list)
    for answer in answers:
        human, judge = answer.pair
        found[answer.case].append(judge - human)
    return [math.fsum(found[case]) / len(found[case]) for case in sorted(found)]
