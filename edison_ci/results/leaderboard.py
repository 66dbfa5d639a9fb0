"""Leaderboard: models and prompt versions ranked by score and by preference of judges.

Ranks follow from differences on the same cases, with p-values corrected for the number of
comparisons, never from two overlapping intervals; a difference that is not significant is a tie
(STATS 6, 8 and 12).
"""

from __future__ import annotations

import math
from array import array
from dataclasses import field, replace
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.numeric import NOISE, snap
from edison_ci.records import Side
from edison_ci.results.metrics import metric_of
from edison_ci.results.pairwise import Key, PreferenceRanking, preferences_of
from edison_ci.results.samples import Sample, TwoSidedSample, Variant
from edison_ci.results.snapshot import MOST_RUNS, complete_runs, grading_hash, has_pairwise_judge
from edison_ci.results.spending import cost_now
from edison_ci.stats.arrays import Range, generator_for, np
from edison_ci.stats.intervals import Interval, interval_of_mean, pass_interval
from edison_ci.stats.other_metrics import tail_latency
from edison_ci.stats.paired import MIN_COMMON, paired_difference
from edison_ci.stats.permutation import sign_flip
from edison_ci.stats.scores import units_of
from edison_ci.stats.verdicts import holm
from edison_ci.store.answers import TIMED

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence

    from edison_ci.config.load import Project
    from edison_ci.config.prices import Price
    from edison_ci.results.spending import CurrentPrices
    from edison_ci.stats.arrays import Array
    from edison_ci.store.runs import Run


@dataclass(frozen=True, slots=True)
class CaseFilter:
    """Which cases count, and the clusters of those that are not independent."""

    clusters: Mapping[str, str] = field(default_factory=dict)
    """Clusters by case, of the cases that have one."""
    quarantined: frozenset[str] = frozenset()
    only: frozenset[str] | None = None
    """The cases that were selected; None for all."""

    def counts(self, case: str) -> bool:
        """Whether a case is selected and not in quarantine."""
        return case not in self.quarantined and (self.only is None or case in self.only)

    def apply(self, sample: Sample) -> Sample:
        """Return a sample without the cases that do not count."""
        if self.only is None:
            return sample  # a sample has no cases in quarantine
        filtered = Sample(missing=sample.missing, single=sample.single)
        values = array("d")
        for case, value in zip(sample.cases, sample.values, strict=True):
            if case in self.only:
                filtered.cases.append(case)
                values.append(value)
        filtered.values = values
        return filtered

    def clusters_of(self, cases: Sequence[str]) -> tuple[str, ...] | None:
        """Return the cluster of each case, every other case its own; None if none has one."""
        return units_of(cases, self.clusters)


def case_filter_of(
    project: Project, name: str, stored: sqlite3.Connection, tags: Sequence[str] = ()
) -> CaseFilter:
    """Return the filter of an experiment: its quarantine and tags of now, its stored clusters."""
    aside = frozenset(entry.case for entry in project.quarantine if entry.experiment == name)
    experiment = project.experiments.get(name)
    tagged: set[str] = set()
    if tags and experiment is not None and experiment.file.data:
        cases = project.cases(experiment)
        tagged = {case.id for case in cases if any(tag in tags for tag in case.tags)}
    return CaseFilter(_clusters(stored, name), aside, frozenset(tagged) if tags else None)


def _clusters(connection: sqlite3.Connection, experiment: str) -> dict[str, str]:
    """Return the cluster that each case has in the newest run with it."""
    # With max() SQLite takes the other columns from the row that has the maximum.
    rows = connection.execute(
        "select case_id, cluster from (select c.case_id, c.cluster, max(r.created_at) from cell c "
        "join run r on r.id = c.run_id where r.experiment = ? group by c.case_id) "
        "where cluster is not null",
        (experiment,),
    )
    return dict(rows.fetchall())


# Each counts once, with its newest complete run, if that was graded as the newest run of all was.
class StoredVariant(NamedTuple):
    """Where the answers of a prompt version with a model are stored."""

    run: Run
    side: Side
    prompt: str
    version: str
    model: str


@dataclass(frozen=True, slots=True)
class LeaderboardRow:
    """Results of a prompt version with a model."""

    place: StoredVariant
    label: str | None
    """Such as v3; None for a version that no run named."""
    scores: Sample
    contents: array[int]
    """What each case of the scores was, as `contents_of` has it."""
    composite: Interval | None
    pass_rate: Interval | None
    answers: int
    cost_microusd: float | None
    """Mean cost of an answer, reused ones included, at current prices where they were asked for;
    None without one."""
    paid_microusd: float | None
    """The same as it was paid."""
    current: bool
    """Whether the cost is that of the current price."""
    estimated: int
    """Answers whose price is an estimate, or from a recording."""
    latencies: array[float]
    p50_ms: float | None
    p95_ms: float | None
    """None under 60 answers."""
    best_rank: int = 0
    worst_rank: int = 0


@dataclass(frozen=True, slots=True)
class Measurements:
    """Everything that is comparable in an experiment."""

    newest: Run
    rows: tuple[LeaderboardRow, ...]
    """In the order of the runs, newest first."""
    graded_otherwise: int
    """Versions with a model that were graded by another eval suite than the newest run."""
    runs: tuple[str, ...] = ()
    """Runs that were graded as the newest was, newest first."""


def places_in(connection: sqlite3.Connection, run: Run) -> Iterator[StoredVariant]:
    """Yield what a finished run has measured, head before base."""
    rows = connection.execute(
        "select side, prompt, version, model from rollup_model where run_id = ? "
        "order by side desc, prompt, model",
        (run.id,),
    )
    for side, prompt, version, model in rows.fetchall():
        yield StoredVariant(run, Side(side), prompt, version, model)


def newest_places(connection: sqlite3.Connection, runs: Sequence[Run]) -> list[StoredVariant]:
    """Return each prompt version with a model where it was measured last, whole runs first."""
    return _newest([place for run in runs for place in places_in(connection, run)])


def _newest(places: Sequence[StoredVariant]) -> list[StoredVariant]:
    newest: dict[tuple[str, str, str], StoredVariant] = {}
    for place in sorted(places, key=lambda place: place.run.partial):
        newest.setdefault((place.prompt, place.version, place.model), place)
    return list(newest.values())


def _labels(places: Sequence[StoredVariant]) -> dict[tuple[str, str], str]:
    """Return the labels of prompt versions, from the newest run that has one."""
    labels: dict[tuple[str, str], str] = {}
    for place in places:
        label = place.run.labels.get(place.prompt)
        if place.side == Side.HEAD and label is not None:
            labels.setdefault((place.prompt, place.version), label)
    return labels


def measurements_of(
    connection: sqlite3.Connection,
    experiment: str,
    case_filter: CaseFilter,
    prices: CurrentPrices | None = None,
) -> Measurements | None:
    """Return what was measured in an experiment; None without a complete run.

    Runs of strangers are ranked among themselves only, where no other run is complete.
    With `prices`, answers count at what they cost now; without, at what was paid for them.
    """
    counted = complete_runs(connection, experiment, MOST_RUNS, strangers=False)
    runs = counted or complete_runs(connection, experiment, MOST_RUNS)
    if not runs:
        return None
    grading = grading_hash(runs[0])
    alike = [run for run in runs if grading_hash(run) == grading]
    ids = {run.id for run in alike}
    every = [place for run in runs for place in places_in(connection, run)]
    places, labels = _newest([placed for placed in every if placed.run.id in ids]), _labels(every)
    variants = {place[2:] for place in places}
    others = {place[2:] for place in every if place.run.id not in ids}
    rows = tuple(
        leaderboard_row(
            connection,
            place,
            case_filter,
            labels.get((place.prompt, place.version)),
            None if prices is None else prices.price_of(place.run, place.side, place.model),
        )
        for place in places
    )
    return Measurements(runs[0], rows, len(others - variants), tuple(run.id for run in alike))


def leaderboard_row(
    connection: sqlite3.Connection,
    place: StoredVariant,
    case_filter: CaseFilter,
    label: str | None = None,
    price: Price | None = None,
) -> LeaderboardRow:
    """Return the numbers of a prompt version with a model."""
    cells = TwoSidedSample.of_run(connection, place.run.id, case_filter.quarantined)
    variant = Variant(place.prompt, place.model)
    named = bool(case_filter.clusters) or case_filter.only is not None
    scores, passes = (
        case_filter.apply(
            cells.sample(metric_of(cells, name), [variant], place.side, named=always or named)
        )
        for name, always in (("composite", True), ("pass_rate", False))
    )
    used = _answers(connection, place, case_filter, price)
    latencies = np.sort(used.latencies)
    return LeaderboardRow(
        place=place,
        label=label,
        scores=scores,
        contents=contents_of(connection, place, scores.cases),
        composite=_mean(scores, case_filter),
        pass_rate=_rate(passes, case_filter),
        answers=used.answers,
        cost_microusd=used.cost / used.answers if used.answers else None,
        paid_microusd=used.paid / used.answers if used.answers else None,
        current=price is not None,
        estimated=used.estimated,
        latencies=used.latencies,
        p50_ms=_median(latencies),
        p95_ms=tail_latency(latencies).value,
    )


def variants_of(
    connection: sqlite3.Connection, run: Run, clusters: Mapping[str, str]
) -> tuple[LeaderboardRow, ...]:
    """Return the results of each prompt with a model of a run, the base before the candidate."""
    case_filter, variants = CaseFilter(clusters), []
    rows = connection.execute(
        "select distinct side, prompt, version, model from cell where run_id = ? "
        "order by prompt, model, side",
        (run.id,),
    )
    for side, prompt, version, model in rows.fetchall():
        label = run.labels.get(prompt) if side == Side.HEAD else None
        place = StoredVariant(run, Side(side), prompt, version, model)
        variants.append(leaderboard_row(connection, place, case_filter, label))
    return tuple(variants)


def contents_of(
    connection: sqlite3.Connection, place: StoredVariant, cases: Sequence[str]
) -> array[int]:
    """Return a number for the content of each case, so that a case that was changed is noticed.

    It is the same for the same content in this process, and takes a small part of the memory of the
    hashes that are stored; 0 where none is. The cases are in order.
    """
    rows = connection.execute(
        "select case_id, max(case_hash) from cell where run_id = ? and side = ? and prompt = ? "
        "and model = ? and case_hash is not null group by case_id",
        (place.run.id, place.side, place.prompt, place.model),
    )
    contents, (name, content) = array("q"), next(rows, _NO_MORE)
    for case in cases:
        while name is not None and name < case:
            name, content = next(rows, _NO_MORE)
        contents.append(hash(content) if name == case else 0)
    return contents


_NO_MORE = (None, "")


def same_content(one: int, other: int) -> bool:
    """Whether a case is the same in two runs, or it is not known to be another."""
    return not one or not other or one == other


class _Used(NamedTuple):
    answers: int
    cost: int
    paid: int
    estimated: int
    latencies: array[float]


def _answers(
    connection: sqlite3.Connection,
    place: StoredVariant,
    case_filter: CaseFilter,
    price: Price | None,
) -> _Used:
    """Sum the distinct answers; latencies of a recording do not count."""
    rows = connection.execute(
        "select distinct c.case_id, a.request_hash, a.answer_no, a.cost_microusd, a.cost_kind, "
        f"{TIMED}, a.latency_ms, a.tokens_in, a.tokens_out, a.cached_in "
        "from cell c join answer a on a.request_hash = c.request_hash and a.answer_no = "
        "c.answer_no "
        "where c.run_id = ? and c.side = ? and c.prompt = ? and c.model = ?",
        (place.run.id, place.side, place.prompt, place.model),
    )
    count = cost = paid = estimated = 0
    latencies = array("d")
    for case, _, _, microusd, kind, timed, latency, *tokens in rows:
        if not case_filter.counts(case):
            continue
        count += 1
        cost += cost_now(price, (tokens[0], tokens[1], tokens[2]), microusd)
        paid += microusd
        estimated += kind != "billed"
        if kind != "replayed" and timed:
            latencies.append(latency)
    return _Used(count, cost, paid, estimated, latencies)


def _mean(sample: Sample, case_filter: CaseFilter) -> Interval | None:
    return interval_of_mean(sample.values, case_filter.clusters_of(sample.cases))


def _rate(sample: Sample, case_filter: CaseFilter) -> Interval | None:
    single = sample.single and case_filter.clusters_of(sample.cases) is None
    if not single:
        return _mean(sample, case_filter)
    return pass_interval(int(sum(sample.values)), len(sample.values))


def _median(ordered: Array) -> float | None:
    """Return the smallest value that half of them do not exceed, as everywhere else."""
    return float(ordered[(len(ordered) + 1) // 2 - 1]) if len(ordered) else None


_LEVEL = 0.95


class Contrast(NamedTuple):
    """Difference of two rows on the cases that both have."""

    better: int
    """Index of the one with the higher mean."""
    worse: int
    difference: float
    interval: Range | None
    n: int
    p: float
    p_holm: float
    significant: bool
    method: str
    sd: float | None
    """Spread of the differences; None with one case."""


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """The ranked rows of one experiment, best first."""

    experiment: str
    rows: tuple[LeaderboardRow, ...]
    contrasts: tuple[Contrast, ...]
    """Pairs with enough cases in common, in the order of the ranks."""
    runs: int
    """Complete runs that the rows come from."""
    graded_otherwise: int
    """Rows left out because they were graded otherwise than the newest run."""
    too_few: int
    """Rows left out because they have fewer cases than `min_cases`."""
    beyond: tuple[LeaderboardRow, ...]
    """Further rows, the best first; only the first `most` are compared and have ranks."""
    quarantined: int
    preferences: PreferenceRanking | None = None
    """The same by what judges prefer; None where nothing was compared."""


@dataclass(frozen=True, slots=True)
class BoardRule:
    """Limits of a leaderboard."""

    min_cases: int = 1
    most: int = 20


def board_of(
    connection: sqlite3.Connection,
    experiment: str,
    case_filter: CaseFilter,
    rule: BoardRule | None = None,
) -> Leaderboard | None:
    """Return how everything measured in an experiment stands; None without a complete run."""
    rule = rule or BoardRule()
    measured = measurements_of(connection, experiment, case_filter)
    if measured is None:
        return None
    scored = [row for row in measured.rows if row.composite is not None]
    scored.sort(key=lambda row: (-_estimate(row), row.cost_microusd or 0.0, row.place[2:]))
    enough = [row for row in scored if len(row.scores.cases) >= rule.min_cases]
    ranked = enough[: rule.most]
    contrasts = _contrasts(ranked, case_filter)
    return Leaderboard(
        experiment=experiment,
        rows=tuple(_ranked(ranked, contrasts)),
        contrasts=tuple(contrasts),
        runs=len({row.place.run.id for row in ranked}),
        graded_otherwise=measured.graded_otherwise,
        too_few=len(measured.rows) - len(enough),
        beyond=tuple(enough[rule.most :]),
        quarantined=len(case_filter.quarantined),
        preferences=_preferences(connection, measured, case_filter),
    )


def _preferences(
    connection: sqlite3.Connection, measured: Measurements, case_filter: CaseFilter
) -> PreferenceRanking | None:
    if not has_pairwise_judge(measured.newest):
        return None  # looking for comparisons would go through every cell of every run
    keys = (Key(*row.place[2:]) for row in measured.rows)
    return preferences_of(
        connection, measured.runs, {key: "\0".join(key) for key in keys}, case_filter
    )


def _estimate(row: LeaderboardRow) -> float:
    return 0.0 if row.composite is None else snap(row.composite.estimate)


def _contrasts(rows: Sequence[LeaderboardRow], case_filter: CaseFilter) -> list[Contrast]:
    contrasts = []
    for better, worse in combinations(range(len(rows)), 2):
        contrast = contrast_of(Scores.of(rows[worse]), Scores.of(rows[better]), case_filter)
        if contrast is not None:
            contrasts.append(_turned(contrast._replace(better=better, worse=worse)))
    adjusted = holm([contrast.p for contrast in contrasts], alpha=round(1 - _LEVEL, 12))
    return [
        contrast._replace(p_holm=p, significant=stands_out)
        for contrast, p, stands_out in zip(
            contrasts, adjusted.value, adjusted.stands_out, strict=True
        )
    ]


def _turned(contrast: Contrast) -> Contrast:
    """Name the one that is better on the common cases first; a mean over others may differ."""
    if contrast.difference >= -NOISE:
        return contrast
    ends = contrast.interval and Range(-contrast.interval.high, -contrast.interval.low)
    return contrast._replace(
        better=contrast.worse,
        worse=contrast.better,
        difference=-contrast.difference,
        interval=ends,
    )


class Scores(NamedTuple):
    """Scores of cases, with what the cases were."""

    sample: Sample
    contents: array[int]

    @classmethod
    def of(cls, row: LeaderboardRow) -> Scores:
        """Return the scores of a row."""
        return cls(row.scores, row.contents)


def common_cases(base: Scores, head: Scores) -> list[str]:
    """Return the cases of both, if they can be compared in pairs (STATS 6).

    A case with the same id and another content counts on neither side. Different datasets are
    compared when at least 20 cases, and half of either side, are common.
    """
    sides = base.sample.cases, head.sample.cases
    before = dict(zip(base.sample.cases, base.contents, strict=True))
    common = [
        case
        for case, content in zip(head.sample.cases, head.contents, strict=True)
        if case in before and same_content(before[case], content)
    ]
    same = all(len(common) == len(side) for side in sides)
    enough = len(common) >= MIN_COMMON and 2 * len(common) >= max(map(len, sides))
    return common if same or enough else []


def contrast_of(base: Scores, head: Scores, case_filter: CaseFilter) -> Contrast | None:
    """Return head minus base on the cases of both; None if too few are common."""
    common = common_cases(base, head)
    if not common:
        return None
    before, after = (dict(zip(s.cases, s.values, strict=True)) for s in (base.sample, head.sample))
    differences = [after[case] - before[case] for case in common]
    clusters = case_filter.clusters_of(common)
    paired = paired_difference(differences, clusters=clusters, level=_LEVEL)
    assert paired is not None, "there is a common case"
    tested = sign_flip(differences, rng=generator_for(common), clusters=clusters)
    p, method = tested.value, f"{paired.method}; {tested.method}"
    return Contrast(
        better=0,
        worse=1,
        difference=paired.value,
        interval=paired.interval,
        n=len(common),
        p=p,
        p_holm=p,
        significant=p <= round(1 - _LEVEL, 12),
        method=method,
        sd=None if paired.se is None else paired.se * math.sqrt(paired.n),
    )


def _ranked(
    rows: Sequence[LeaderboardRow], contrasts: Sequence[Contrast]
) -> Iterator[LeaderboardRow]:
    """Yield the rows with the ranks that they may have: ties share theirs."""
    above, below = [0] * len(rows), [0] * len(rows)
    for contrast in contrasts:
        if contrast.significant:
            above[contrast.worse] += 1
            below[contrast.better] += 1
    for index, row in enumerate(rows):
        yield replace(row, best_rank=1 + above[index], worst_rank=len(rows) - below[index])
