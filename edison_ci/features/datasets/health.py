"""Health of a dataset: duplicate, contradicting, uninformative and flaky cases.

A dataset may have a million cases, so what is remembered of each is a few hashes; only cases that
are reported are kept, up to a limit.
"""

from __future__ import annotations

import hashlib
import statistics
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import field
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.case_facts import NONE, is_unverified, length_of, level_of, words_in
from edison_ci.config.cases import HoldoutCount, Units
from edison_ci.judges.pointwise import OVERALL, QUESTION_CRITERIA, is_statement
from edison_ci.numeric import exceeds, reaches, snap
from edison_ci.records import canonical_json
from edison_ci.results.case_history import APART
from edison_ci.results.snapshot import MOST_RUNS, complete_runs, grading_hash
from edison_ci.stats.scores import mean_interval
from edison_ci.store.judgments import question_scores

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from edison_ci.config.experiment import Split
    from edison_ci.records import Case
    from edison_ci.stats.scores import Interval
    from edison_ci.store.judgments import QuestionScore


# Only scores of a case with its present content count. The judges of a case are averaged before
# cases are.
WEAK = 0.35
"""A question whose `overall` is at most this share of its scale is weak: 4 of 1 to 10."""
_USUAL = [criterion.name for criterion in QUESTION_CRITERIA]


@dataclass(frozen=True, slots=True)
class CriterionQuality:
    """Scores of the questions by one criterion, on its own scale."""

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


class QuestionJudgment(NamedTuple):
    """Score and reason of one judge by one criterion."""

    score: float
    reason: str


@dataclass(frozen=True, slots=True)
class JudgedQuestion:
    """One question: its mean score by each criterion, with each judge's."""

    case: str
    scores: Mapping[str, float]
    """Mean over judges, on the criterion's scale."""
    share: float | None
    """`overall`, or the mean of all criteria where it is not scored, from 0 to 1; None if only
    sentences were judged."""
    judgments: Mapping[str, Mapping[str, QuestionJudgment]]
    """By criterion and judge."""
    disputed: tuple[str, ...]
    """Criteria on which judges are far apart."""
    simulated: bool = False

    @property
    def is_weak(self) -> bool:
        """Whether it should be reviewed."""
        return self.share is not None and not exceeds(self.share, WEAK)


@dataclass(slots=True)
class QuestionQuality:
    """Quality of the questions of a dataset."""

    judges: tuple[str, ...] = ()
    simulated: bool = False
    stale: int = 0
    """Cases that were edited since they were judged."""
    unscored: int = 0
    """Verdicts on a criterion that could not be used."""
    criteria: list[CriterionQuality] = field(default_factory=list)
    statements: list[CriterionQuality] = field(default_factory=list)
    """Sentences to which the questions were held; their names are the sentences."""
    questions: list[JudgedQuestion] = field(default_factory=list)
    """The weakest first."""

    @property
    def rated(self) -> int:
        """Return how many questions were judged by criteria, not by sentences alone."""
        return sum(question.share is not None for question in self.questions)

    @property
    def weak(self) -> list[JudgedQuestion]:
        """Return the questions to review."""
        return [question for question in self.questions if question.is_weak]

    def failing(self, statement: CriterionQuality) -> list[JudgedQuestion]:
        """Return the questions for which a sentence does not hold, the clearest first."""
        most = statement.on_scale(WEAK)
        held = [q for q in self.questions if statement.name in q.scores]
        failing = [q for q in held if not exceeds(q.scores[statement.name], most)]
        return sorted(failing, key=lambda q: (snap(q.scores[statement.name]), q.case))

    @property
    def disputed(self) -> list[JudgedQuestion]:
        """Return the questions on which judges are far apart."""
        return [question for question in self.questions if question.disputed]


class JudgedCases(NamedTuple):
    """How many cases judges have scored as questions, and when they last did."""

    cases: int
    newest_at: str | None


def judged_cases(connection: sqlite3.Connection, experiment: str) -> JudgedCases:
    """Return how far judges have scored the cases of an experiment as questions."""
    row = connection.execute(
        "select count(distinct case_id), max(judged_at) from question_score where experiment = ?",
        (experiment,),
    ).fetchone()
    return JudgedCases(*row)


def _unknown(case: str, content: str) -> bool:
    """Count every score: without the dataset, changes of a case are unknown."""
    del case, content
    return True


def stored_quality(
    connection: sqlite3.Connection,
    experiment: str,
    is_current: Callable[[str, str], bool] = _unknown,
    *,
    cases: Iterable[str] | None = None,
    criteria: Collection[str] | None = None,
) -> QuestionQuality:
    """Return what judges said about the questions; of all cases and criteria by default."""
    scores = question_scores(connection, experiment, None if cases is None else sorted(cases))
    chosen = (score for score in scores if criteria is None or score.criterion in criteria)
    return quality_of(chosen, is_current)


def quality_of(
    scores: Iterable[QuestionScore], is_current: Callable[[str, str], bool]
) -> QuestionQuality:
    """Return what is known of the questions; scores come sorted by case."""
    quality, judges = QuestionQuality(), set[str]()
    by_criterion: defaultdict[tuple[str, float, float], list[float]] = defaultdict(list)
    for case, group in groupby(scores, key=attrgetter("case_id")):
        rows = list(group)
        current = [row for row in rows if is_current(case, row.case_hash)]
        quality.stale += not current
        judges |= {row.judge for row in current}
        quality.simulated = quality.simulated or any(row.simulated for row in current)
        quality.unscored += sum(row.score is None for row in current)
        question = _question(case, [row for row in current if row.score is not None], by_criterion)
        if question is not None:
            quality.questions.append(question)
    quality.judges = tuple(sorted(judges))
    for (name, low, high), shares in sorted(by_criterion.items(), key=lambda k: _order(k[0][0])):
        interval = mean_interval(shares)
        if interval is not None:
            ends = [low + share * (high - low) for share in (min(shares), max(shares))]
            listed = quality.statements if is_statement(name) else quality.criteria
            listed.append(CriterionQuality(name, low, high, interval, *ends))
    quality.questions.sort(key=lambda q: (2.0 if q.share is None else snap(q.share), q.case))
    return quality


def _order(criterion: str) -> tuple[int, str]:
    """Return where a criterion stands: the usual ones first, in their order."""
    return (_USUAL.index(criterion) if criterion in _USUAL else len(_USUAL)), criterion


def _question(
    case: str,
    rows: list[QuestionScore],
    by_criterion: dict[tuple[str, float, float], list[float]],
) -> JudgedQuestion | None:
    shares: defaultdict[tuple[str, float, float], list[float]] = defaultdict(list)
    judgments: defaultdict[str, dict[str, QuestionJudgment]] = defaultdict(dict)
    for row in sorted(rows, key=lambda row: _order(row.criterion)):
        if row.share is not None and row.score is not None:
            shares[row.criterion, row.low, row.high].append(row.share)
            judgments[row.criterion][row.judge] = QuestionJudgment(row.score, row.reason)
    if not shares:
        return None
    means = {key: statistics.fmean(values) for key, values in shares.items()}
    for key, mean in means.items():
        by_criterion[key].append(mean)
    overall = [mean for (name, _, _), mean in means.items() if name.lower() == OVERALL]
    rated = [mean for (name, _, _), mean in means.items() if not is_statement(name)]
    return JudgedQuestion(
        case=case,
        scores={name: low + mean * (high - low) for (name, low, high), mean in means.items()},
        share=overall[0] if overall else statistics.fmean(rated) if rated else None,
        judgments=dict(judgments),
        disputed=tuple(k[0] for k, v in shares.items() if reaches(max(v) - min(v), APART)),
        simulated=any(row.simulated for row in rows),
    )


@dataclass(slots=True)
class Counts:
    """How many cases there are of each kind."""

    cases: int = 0
    expected: int = 0
    """With an expected output."""
    unverified: int = 0
    """With an expected output that a model wrote, and that is not verified."""
    holdout: int = 0
    words: int = 0
    clusters: set[int] = field(default_factory=set)
    """Hashes of the clusters' names."""
    clustered: int = 0
    tags: Counter[str] = field(default_factory=Counter)
    difficulty: Counter[str] = field(default_factory=Counter)
    kind: Counter[str] = field(default_factory=Counter)
    length: Counter[str] = field(default_factory=Counter)

    def add(self, case: Case) -> None:
        """Count a case."""
        self.cases += 1
        self.expected += case.expected is not None
        self.unverified += is_unverified(case)
        words = words_in(case)
        self.words += words
        if case.cluster is not None:
            self.clustered += 1
            self.clusters.add(hash(case.cluster))
        self.tags.update(set(case.tags) or {NONE})
        self.difficulty[level_of(case.difficulty)] += 1
        self.kind[case.kind] += 1
        self.length[length_of(words)] += 1


def count(cases: Iterable[Case], split: Split | None, units: Units) -> Counts:
    """Count the cases of a dataset; `units` has all clusters once they are read."""
    counts, held_out = Counts(), HoldoutCount(split)
    for case in cases:
        counts.add(case)
        held_out.add(case)
    counts.holdout = held_out.of(units)
    return counts


SUBJECTS = 2
"""Prompt versions with models that must have answered a case before it is reported."""
SAME = 0.01
"""Scores that differ by less than a point are the same."""
MOST_GROUPS = 1_000
MOST_CASES = 1_000


class DuplicateCases(NamedTuple):
    """Cases with the same inputs."""

    cases: tuple[str, ...]
    lines: tuple[int, ...]


class CaseHistory(NamedTuple):
    """What the stored results say about a case."""

    case: str
    answers: int
    variants: int
    passed: float | None
    """Share of the answers that passed."""
    low: float | None
    """Lowest and highest score."""
    high: float | None

    @property
    def alike(self) -> bool:
        """Whether all answers have the same pass and the same score."""
        if self.low is None or self.high is None or self.passed not in (0, 1):
            return False
        return self.high - self.low < SAME


@dataclass(slots=True)
class CaseList:
    """Cases of one kind: how many, and the first of them."""

    count: int = 0
    cases: list[CaseHistory] = field(default_factory=list)

    def add(self, case: CaseHistory) -> None:
        """Count a case, and keep it if there is room."""
        self.count += 1
        if len(self.cases) < MOST_CASES:
            self.cases.append(case)


@dataclass(slots=True)
class Health:
    """Health of a dataset."""

    cases: int = 0
    duplicates: list[DuplicateCases] = field(default_factory=list)
    """Same inputs without contradiction."""
    contradictions: list[DuplicateCases] = field(default_factory=list)
    """Same inputs, different expected outputs."""
    more_groups: int = 0
    """Further groups that were not examined."""
    measured: int = 0
    """Cases with results of enough prompt versions and models."""
    saturated: CaseList = field(default_factory=CaseList)
    """Every answer passes."""
    same_for_all: CaseList = field(default_factory=CaseList)
    """Every answer has the same score and the same pass: they tell nothing apart."""

    @property
    def ok(self) -> bool:
        """Whether nothing has to be fixed; a saturated case may be there on purpose."""
        return not self.duplicates and not self.contradictions


@dataclass(slots=True)
class CachedHealth:
    """What is remembered of the cases that were read."""

    health: Health
    known: array[int]
    """Sorted hashes of ids, and of ids with their contents."""

    def has(self, case: str, content: str | None) -> bool:
        """Whether the dataset has this case, as it was when it was answered."""
        key = hash(case if content is None else (case, content))
        place = bisect_left(self.known, key)
        return place < len(self.known) and self.known[place] == key


def examine(
    feed: Callable[[], Iterable[Case]], content_hash: Callable[[Case], str]
) -> CachedHealth:
    """Read the cases twice: first to notice equal inputs, then to name the cases that have them."""
    inputs, hashes = array("q"), array("q")
    for case in feed():
        inputs.append(hash(_inputs(case)))
        hashes.append(hash(case.id))
        hashes.append(hash((case.id, content_hash(case))))
    health = Health(cases=len(inputs))
    hashes = array("q", sorted(hashes))
    repeated = _repeated(inputs)
    health.more_groups = max(0, len(repeated) - MOST_GROUPS)
    examined = frozenset(repeated[:MOST_GROUPS])
    if examined:
        for group, contradicts in _groups(feed(), examined):
            (health.contradictions if contradicts else health.duplicates).append(group)
    return CachedHealth(health, hashes)


def _inputs(case: Case) -> str:
    return canonical_json(dict(case.inputs))


def _repeated(hashes: array[int]) -> list[int]:
    repeated: dict[int, None] = {}
    last: int | None = None
    for key in sorted(hashes):
        if key == last:
            repeated[key] = None
        last = key
    return list(repeated)


def _groups(
    cases: Iterable[Case], examined: frozenset[int]
) -> Iterator[tuple[DuplicateCases, bool]]:
    members: defaultdict[bytes, list[tuple[str, int]]] = defaultdict(list)
    expected: defaultdict[bytes, set[str]] = defaultdict(set)
    for case in cases:
        text = _inputs(case)
        if hash(text) not in examined:
            continue
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        members[key].append((case.id, case.line))
        if case.expected is not None:
            expected[key].add(canonical_json(case.expected))
    for key, group in members.items():
        if len(group) > 1:
            ids, lines = zip(*group, strict=True)
            yield DuplicateCases(ids, lines), len(expected[key]) > 1


def weigh(connection: sqlite3.Connection, experiment: str, examined: CachedHealth) -> Health:
    """Add what the complete runs that were graded alike say about each case."""
    health = examined.health
    runs = complete_runs(connection, experiment, MOST_RUNS)
    if not runs:
        return health
    newest_grading = grading_hash(runs[0])
    ids = [run.id for run in runs if grading_hash(run) == newest_grading]
    for tested, content in _tested(connection, ids):
        if tested.variants < SUBJECTS or not examined.has(tested.case, content):
            continue
        health.measured += 1
        if tested.passed == 1:
            health.saturated.add(tested)
        if tested.alike:
            health.same_for_all.add(tested)
    return health


def _tested(
    connection: sqlite3.Connection, runs: list[str]
) -> Iterator[tuple[CaseHistory, str | None]]:
    places = ", ".join("?" * len(runs))
    rows = connection.execute(
        "select case_id, case_hash, count(distinct request_hash || ':' || answer_no), "
        "count(distinct version || ' ' || model), avg(passed), min(composite), max(composite) "
        f"from cell where run_id in ({places}) and status in ('ok', 'malformed', 'blocked') "
        "group by case_id, case_hash order by case_id",
        runs,
    )
    for case, content, *numbers in rows:
        yield CaseHistory(case, *numbers), content
