"""What was measured of each prompt version with each model?

Each counts once, with its newest complete run, if that was graded as the newest run of all was.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from edison_ci.frozen import dataclass
from edison_ci.results.comparable import yardstick
from edison_ci.results.complete import MOST_RUNS, complete_runs
from edison_ci.results.metrics import metric_of
from edison_ci.results.samples import Evidence, Subject
from edison_ci.stats.intervals import (
    Interval,
    clustered_interval,
    mean_interval,
    pass_interval,
)
from edison_ci.stats.other_metrics import tail_latency

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Sequence

    from edison_ci.results.roll import Roll
    from edison_ci.results.samples import Sample, Side
    from edison_ci.store.runs import Run


class Place(NamedTuple):
    """Where the answers of a prompt version with a model are stored."""

    run: Run
    side: Side
    prompt: str
    version: str
    model: str


@dataclass(frozen=True, slots=True)
class Standing:
    """How a prompt version does with a model."""

    place: Place
    label: str | None
    """Such as v3; None for a version that no run named."""
    scores: Sample
    contents: dict[str, str]
    """Hashes of the cases' contents, as far as they were stored."""
    composite: Interval | None
    pass_rate: Interval | None
    answers: int
    cost_microusd: float | None
    """Mean of an answer, whoever paid for it; None without one."""
    estimated: int
    """Answers whose price is an estimate, or what a recording says."""
    latencies: array[float]
    p50_ms: float | None
    p95_ms: float | None
    """None under 60 answers."""
    best_rank: int = 0
    worst_rank: int = 0


@dataclass(frozen=True, slots=True)
class Measurements:
    """Everything that can stand side by side in an experiment."""

    newest: Run
    rows: tuple[Standing, ...]
    """In the order of the runs, newest first."""
    other_yardstick: int
    """Versions with a model that were graded otherwise than the newest run."""
    runs: tuple[str, ...] = ()
    """Runs that were graded as the newest was, newest first."""


def places_in(connection: sqlite3.Connection, run: Run) -> Iterator[Place]:
    """Yield what a finished run has measured, head before base."""
    rows = connection.execute(
        "select side, prompt, version, model from rollup_model where run_id = ? "
        "order by side desc, prompt, model",
        (run.id,),
    )
    for side, prompt, version, model in rows.fetchall():
        yield Place(run, side, prompt, version, model)


def newest_places(connection: sqlite3.Connection, runs: Sequence[Run]) -> list[Place]:
    """Return each prompt version with a model where it was measured last, whole runs first."""
    return _newest([place for run in runs for place in places_in(connection, run)])


def _newest(places: Sequence[Place]) -> list[Place]:
    found: dict[tuple[str, str, str], Place] = {}
    for place in sorted(places, key=lambda place: place.run.partial):
        found.setdefault((place.prompt, place.version, place.model), place)
    return list(found.values())


def _labels(places: Sequence[Place]) -> dict[tuple[str, str], str]:
    """Return what versions of prompts are called, by the newest run that names them."""
    found: dict[tuple[str, str], str] = {}
    for place in places:
        label = place.run.labels.get(place.prompt)
        if place.side == "head" and label is not None:
            found.setdefault((place.prompt, place.version), label)
    return found


def measurements_of(
    connection: sqlite3.Connection, experiment: str, roll: Roll
) -> Measurements | None:
    """Return what was measured in an experiment; None without a complete run."""
    runs = complete_runs(connection, experiment, MOST_RUNS)
    if not runs:
        return None
    wanted = yardstick(runs[0])
    alike = [run for run in runs if yardstick(run) == wanted]
    ids = {run.id for run in alike}
    every = [place for run in runs for place in places_in(connection, run)]
    places, labels = _newest([each for each in every if each.run.id in ids]), _labels(every)
    known = {place[2:] for place in places}
    others = {place[2:] for place in every if place.run.id not in ids}
    rows = tuple(
        standing_of(connection, place, roll, labels.get((place.prompt, place.version)))
        for place in places
    )
    return Measurements(runs[0], rows, len(others - known), tuple(run.id for run in alike))


def standing_of(
    connection: sqlite3.Connection, place: Place, roll: Roll, label: str | None = None
) -> Standing:
    """Return the numbers of a prompt version with a model."""
    evidence = Evidence(connection, place.run.id, roll.quarantined)
    subject = Subject(place.prompt, place.model)
    scores, passes = (
        roll.kept(evidence.sample(metric_of(connection, place.run.id, name), [subject], place.side))
        for name in ("composite", "pass_rate")
    )
    used = _answers(connection, place, roll)
    latencies = sorted(used.latencies)
    return Standing(
        place=place,
        label=label,
        scores=scores,
        contents=contents_of(connection, place),
        composite=_mean(scores, roll),
        pass_rate=_rate(passes, roll),
        answers=used.answers,
        cost_microusd=used.cost / used.answers if used.answers else None,
        estimated=used.estimated,
        latencies=used.latencies,
        p50_ms=_median(latencies),
        p95_ms=tail_latency(latencies).value,
    )


def contents_of(connection: sqlite3.Connection, place: Place) -> dict[str, str]:
    """Return the hash of each case's content, so that a case that was changed is noticed."""
    rows = connection.execute(
        "select case_id, max(case_hash) from cell where run_id = ? and side = ? and prompt = ? "
        "and model = ? and case_hash is not null group by case_id",
        (place.run.id, place.side, place.prompt, place.model),
    )
    return dict(rows.fetchall())


class _Used(NamedTuple):
    answers: int
    cost: int
    estimated: int
    latencies: array[float]


def _answers(connection: sqlite3.Connection, place: Place, roll: Roll) -> _Used:
    """Add up the different answers; a recording says nothing about how fast a model is."""
    rows = connection.execute(
        "select distinct c.case_id, a.address, a.take, a.cost_microusd, a.cost_kind, a.latency_ms "
        "from cell c join answer a on a.address = c.address and a.take = c.take "
        "where c.run_id = ? and c.side = ? and c.prompt = ? and c.model = ?",
        (place.run.id, place.side, place.prompt, place.model),
    )
    count = cost = estimated = 0
    latencies = array("d")
    for case, _, _, microusd, kind, latency in rows:
        if not roll.counts(case):
            continue
        count += 1
        cost += microusd
        estimated += kind != "billed"
        if kind != "replayed":
            latencies.append(latency)
    return _Used(count, cost, estimated, latencies)


def _mean(sample: Sample, roll: Roll) -> Interval | None:
    clusters = roll.clusters_of(sample.cases)
    if clusters is None:
        return mean_interval(sample.values)
    return clustered_interval(sample.values, clusters)


def _rate(sample: Sample, roll: Roll) -> Interval | None:
    single = sample.single and roll.clusters_of(sample.cases) is None
    if not single:
        return _mean(sample, roll)
    return pass_interval(int(sum(sample.values)), len(sample.values))


def _median(ordered: Sequence[float]) -> float | None:
    """Return the smallest value that half of them do not exceed, as everywhere else."""
    return ordered[(len(ordered) + 1) // 2 - 1] if ordered else None
