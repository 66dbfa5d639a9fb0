"""How good are the questions of a dataset, by what judges said of them?

Only what was said of a case as it is now counts. The judges of a case are averaged before cases
are.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.frozen import dataclass
from edison_ci.judges.questions import CRITERIA, OVERALL
from edison_ci.rounding import exceeds, reaches, snap
from edison_ci.stats.scores import mean_interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from edison_ci.stats.scores import Interval
    from edison_ci.store.questions import QuestionScore

WEAK = 0.35
"""A question whose `overall` is at most this share of its scale is weak: 4 of 1 to 10."""
APART = 0.5
"""Judges who differ by this share of the scale disagree (STATS 3)."""
_USUAL = [criterion.name for criterion in CRITERIA]


@dataclass(frozen=True, slots=True)
class CriterionQuality:
    """How the questions do by one criterion, on its own scale."""

    name: str
    low: float
    high: float
    interval: Interval
    """On 0-1; see `on_scale`."""
    lowest: float
    highest: float

    def on_scale(self, share: float) -> float:
        """Return a share of the scale as a score."""
        return self.low + share * (self.high - self.low)


class Said(NamedTuple):
    """What one judge said by one criterion."""

    score: float
    reason: str


@dataclass(frozen=True, slots=True)
class JudgedQuestion:
    """One question: its mean score by each criterion, and what was said."""

    case: str
    scores: Mapping[str, float]
    """Mean over judges, on the criterion's scale."""
    share: float | None
    """`overall`, or the mean of all criteria where nobody was asked for it, from 0 to 1."""
    said: Mapping[str, Mapping[str, Said]]
    """By criterion and judge."""
    disputed: tuple[str, ...]
    """Criteria on which judges are far apart."""
    simulated: bool = False

    @property
    def is_weak(self) -> bool:
        """Whether it should be looked at."""
        return self.share is not None and not exceeds(self.share, WEAK)


@dataclass(slots=True)
class QuestionQuality:
    """How good the questions are."""

    judges: tuple[str, ...] = ()
    simulated: bool = False
    stale: int = 0
    """Cases that were edited since they were judged."""
    unscored: int = 0
    """Verdicts on a criterion that could not be used."""
    criteria: list[CriterionQuality] = field(default_factory=list)
    questions: list[JudgedQuestion] = field(default_factory=list)
    """The weakest first."""

    @property
    def weak(self) -> list[JudgedQuestion]:
        """Return the questions to look at."""
        return [question for question in self.questions if question.is_weak]

    @property
    def disputed(self) -> list[JudgedQuestion]:
        """Return the questions on which judges are far apart."""
        return [question for question in self.questions if question.disputed]


def quality_of(
    scores: Iterable[QuestionScore], is_current: Callable[[str, str], bool]
) -> QuestionQuality:
    """Return what is known of the questions; scores come sorted by case."""
    found, judges = QuestionQuality(), set[str]()
    by_criterion: defaultdict[tuple[str, float, float], list[float]] = defaultdict(list)
    for case, group in groupby(scores, key=attrgetter("case_id")):
        rows = list(group)
        current = [row for row in rows if is_current(case, row.case_hash)]
        found.stale += not current
        judges |= {row.judge for row in current}
        found.simulated = found.simulated or any(row.simulated for row in current)
        found.unscored += sum(row.score is None for row in current)
        question = _question(case, [row for row in current if row.score is not None], by_criterion)
        if question is not None:
            found.questions.append(question)
    found.judges = tuple(sorted(judges))
    for (name, low, high), shares in sorted(by_criterion.items(), key=lambda k: _order(k[0][0])):
        interval = mean_interval(shares)
        if interval is not None:
            ends = [low + share * (high - low) for share in (min(shares), max(shares))]
            found.criteria.append(CriterionQuality(name, low, high, interval, *ends))
    found.questions.sort(key=lambda q: (2.0 if q.share is None else snap(q.share), q.case))
    return found


def _order(criterion: str) -> tuple[int, str]:
    """Return where a criterion stands: the usual ones first, in their order."""
    return (_USUAL.index(criterion) if criterion in _USUAL else len(_USUAL)), criterion


def _question(
    case: str,
    rows: list[QuestionScore],
    by_criterion: dict[tuple[str, float, float], list[float]],
) -> JudgedQuestion | None:
    shares: defaultdict[tuple[str, float, float], list[float]] = defaultdict(list)
    said: defaultdict[str, dict[str, Said]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: _order(row.criterion)):
        if row.share is not None and row.score is not None:
            shares[row.criterion, row.low, row.high].append(row.share)
            said[row.criterion][row.judge] = Said(row.score, row.reason)
    if not shares:
        return None
    means = {key: statistics.fmean(values) for key, values in shares.items()}
    for key, mean in means.items():
        by_criterion[key].append(mean)
    overall = [mean for (name, _, _), mean in means.items() if name.lower() == OVERALL]
    return JudgedQuestion(
        case=case,
        scores={name: low + mean * (high - low) for (name, low, high), mean in means.items()},
        share=overall[0] if overall else statistics.fmean(means.values()),
        said=dict(said),
        disputed=tuple(k[0] for k, v in shares.items() if reaches(max(v) - min(v), APART)),
        simulated=any(row.simulated for row in rows),
    )
