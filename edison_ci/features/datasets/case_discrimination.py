"""Discrimination of cases: those that tell prompt versions and models apart, and dead weight.

The answers are those of complete runs that were graded as the newest one was, to the cases as they
are now. A subject is a prompt version with a model; its repeats are further answers of the same
subject, and an answer that several runs reused counts once.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import field
from enum import StrEnum
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.numeric import exceeds, reaches, snap
from edison_ci.results import snapshot
from edison_ci.stats import discrimination as stat_discrimination
from edison_ci.stats import verdicts

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator

DEAD = 0.2
"""A case whose correlation is at most this, with all its interval, is dead weight."""
_SAME = 0.01
"""Scores that differ by less than a point are the same."""
FEWEST_ALIKE = 20
"""Equal answers from which a case is dead weight: at most 1 in 7 would come out otherwise (95%)."""
_LEAST_ANSWERED = 0.5
"""Share of the cases that an answering subject must have in one repeat to be compared with them."""
MOST_CELLS = 3_000_000


class CaseVerdict(StrEnum):
    """What is known about a case."""

    SEPARATES = "separates"
    """Answers that are good elsewhere are good here."""
    REVERSED = "reversed"
    """Answers that are good elsewhere are bad here: its expected answer may be wrong."""
    DEAD = "dead"
    """It tells nothing apart."""
    UNCLEAR = "unclear"
    """The interval has room for both."""
    TOO_FEW = "too few"

    @property
    def words(self) -> str:
        """Return the verdict as people read it."""
        return _WORDS[self]


_WORDS = {
    CaseVerdict.SEPARATES: "tells apart",
    CaseVerdict.REVERSED: "reversed",
    CaseVerdict.DEAD: "dead weight",
    CaseVerdict.UNCLEAR: "unclear",
    CaseVerdict.TOO_FEW: "too few answers to tell",
}


@dataclass(frozen=True, slots=True)
class CaseDiscrimination:
    """How far a case tells apart those who answer it."""

    case: str
    score: float
    """Mean over its answers."""
    found: stat_discrimination.Discrimination
    verdict: CaseVerdict
    p_adjusted: float | None
    """Benjamini and Hochberg over the cases with a p-value."""


@dataclass(slots=True)
class DatasetDiscrimination:
    """The cases of a dataset by how far they tell their answerers apart."""

    subjects: int = 0
    """Prompt versions with models."""
    answers: int = 0
    """Their repeats: the number of answers that a case has at most."""
    simulated: bool = False
    too_large: bool = False
    family: int = 0
    """Cases with a p-value."""
    cases: list[CaseDiscrimination] = field(default_factory=list)
    """The best first, those without a number last."""

    def count(self, verdict: CaseVerdict) -> int:
        """Return how many cases have a verdict."""
        return sum(case.verdict == verdict for case in self.cases)

    @property
    def enough(self) -> bool:
        """Whether there are enough subjects to say anything."""
        return self.subjects >= stat_discrimination.FEWEST_SUBJECTS


class _Answerer(NamedTuple):
    """A subject in one of its repeats."""

    subject: str
    repeat: int


def discrimination_of(
    connection: sqlite3.Connection, experiment: str, is_current: Callable[[str, str | None], bool]
) -> DatasetDiscrimination:
    """Return how far each case tells apart; `is_current` is asked for the content of a case."""
    runs = snapshot.complete_runs(connection, experiment, snapshot.MOST_RUNS)
    if not runs:
        return DatasetDiscrimination()
    newest_grading = snapshot.grading_hash(runs[0])
    alike = [run for run in runs if snapshot.grading_hash(run) == newest_grading]
    ids, simulated = [run.id for run in alike], any(run.simulated for run in alike)
    subjects, cells = _size(connection, ids)
    if subjects < stat_discrimination.FEWEST_SUBJECTS or cells > MOST_CELLS:
        return DatasetDiscrimination(subjects, 0, simulated, too_large=cells > MOST_CELLS)
    return discriminations(_scores(connection, ids, is_current), simulated=simulated)


def discriminations(
    scores: Iterable[tuple[str, str, int, float]], *, simulated: bool = False
) -> DatasetDiscrimination:
    """Return how far each case tells apart, from scores by case, subject and repeat."""
    table: defaultdict[str, dict[_Answerer, float]] = defaultdict(dict)
    for case, subject, repeat, score in scores:
        table[case][_Answerer(subject, repeat)] = score
    number = Counter(answerer for row in table.values() for answerer in row)
    kept = {who for who, count in number.items() if reaches(count / len(table), _LEAST_ANSWERED)}
    rest = _Rest(table, kept)
    unjudged = [
        _case(case, {who: score for who, score in row.items() if who in kept}, rest)
        for case, row in sorted(table.items())
    ]
    tested = {result.case: result.found.p for result in unjudged if result.found.p is not None}
    adjusted = verdicts.benjamini_hochberg(list(tested.values()))
    outcomes = dict(zip(tested, zip(adjusted.value, adjusted.stands_out, strict=True), strict=True))
    judged = [_judged(result, *outcomes.get(result.case, (None, False))) for result in unjudged]
    judged.sort(key=_order)
    return DatasetDiscrimination(
        len({who.subject for who in kept}), len(kept), simulated, False, adjusted.n, judged
    )


def _order(case: CaseDiscrimination) -> tuple[bool, float, str]:
    value = case.found.value
    return value is None, 0.0 if value is None else -snap(value), case.case


class _Rest:
    """Mean of an answerer over all cases but one.

    Each score counts by how far it is from the mean of its case, so that an answerer to whom easy
    cases were not given is not at a disadvantage.
    """

    def __init__(self, table: dict[str, dict[_Answerer, float]], kept: set[_Answerer]) -> None:
        away: defaultdict[_Answerer, list[float]] = defaultdict(list)
        self._means = {}
        for case, row in table.items():
            scores = [score for who, score in row.items() if who in kept]
            self._means[case] = math.fsum(scores) / len(scores) if scores else 0.0
            for who, score in row.items():
                if who in kept:
                    away[who].append(score - self._means[case])
        self._sums = {who: (math.fsum(values), len(values)) for who, values in away.items()}

    def mean_of(self, case: str) -> float:
        return self._means[case]

    def without(self, case: str, who: _Answerer, score: float) -> float:
        total, number = self._sums[who]
        return (total - (score - self._means[case])) / max(number - 1, 1)


def _case(case: str, row: dict[_Answerer, float], rest: _Rest) -> CaseDiscrimination:
    ordered = sorted(row.items())
    correlation = stat_discrimination.discrimination(
        [score for _, score in ordered],
        [rest.without(case, who, score) for who, score in ordered],
        [who.subject for who, _ in ordered],
    )
    enough = (
        len(ordered) >= FEWEST_ALIKE and correlation.subjects >= stat_discrimination.FEWEST_SUBJECTS
    )
    same = enough and max(row.values()) - min(row.values()) < _SAME
    verdict = CaseVerdict.DEAD if same else CaseVerdict.TOO_FEW
    return CaseDiscrimination(case, rest.mean_of(case), correlation, verdict, None)


def _judged(
    case: CaseDiscrimination, p_adjusted: float | None, stands_out: bool
) -> CaseDiscrimination:
    correlation, verdict = case.found, case.verdict
    if correlation.value is None or correlation.interval is None or verdict is CaseVerdict.DEAD:
        return case
    # Where most cases stand out, the correction leaves 10% to the last one; the interval that is
    # shown beside the verdict must agree with it.
    low, high = correlation.interval
    if stands_out and high < 0:
        verdict = CaseVerdict.REVERSED
    elif not exceeds(high, DEAD):
        verdict = CaseVerdict.DEAD
    elif stands_out and low > 0:
        verdict = CaseVerdict.SEPARATES
    else:
        verdict = CaseVerdict.UNCLEAR
    return CaseDiscrimination(case.case, case.score, correlation, verdict, p_adjusted)


def _size(connection: sqlite3.Connection, runs: list[str]) -> tuple[int, int]:
    """Return how many prompt versions with models there are in runs, and how many cells."""
    places = ", ".join("?" * len(runs))
    row = connection.execute(
        "select count(distinct prompt || ' ' || version || ' ' || model), count(*) from cell "
        f"where run_id in ({places})",
        runs,
    ).fetchone()
    return int(row[0]), int(row[1])


def _scores(
    connection: sqlite3.Connection, runs: list[str], is_current: Callable[[str, str | None], bool]
) -> Iterator[tuple[str, str, int, float]]:
    """Yield case, subject, repeat and score of every answer."""
    places = ", ".join("?" * len(runs))
    rows = connection.execute(
        "select case_id, case_hash, prompt || ' ' || version || ' ' || model, avg(composite) "
        f"from cell where run_id in ({places}) and status in ('ok', 'malformed') "
        "and composite is not null and answer_no is not null "
        "group by case_id, case_hash, prompt, version, model, request_hash, answer_no "
        "order by case_id, case_hash, 3, request_hash, answer_no",
        runs,
    )
    for (case, content, subject), group in groupby(rows, key=itemgetter(0, 1, 2)):
        if is_current(case, content):
            for repeat, row in enumerate(group):
                yield case, subject, repeat, row[3]
