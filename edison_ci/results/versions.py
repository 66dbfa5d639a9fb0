"""Versions of a prompt in results: where they were measured, what they scored, and comparisons."""

from __future__ import annotations

import json
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents.files import read
from edison_ci.documents.json_text import read_json
from edison_ci.numeric import mean
from edison_ci.plan.versions import History, Version, short
from edison_ci.records import OPEN_STATUSES, Move, Side, SuggestionStatus
from edison_ci.results.leaderboard import (
    Contrast,
    Scores,
    common_cases,
    contrast_of,
    leaderboard_row,
    newest_places,
)
from edison_ci.results.metrics import flips_between, pass_counts
from edison_ci.results.samples import Sample
from edison_ci.results.scores import EstimateWithInterval
from edison_ci.results.snapshot import MOST_RUNS, complete_runs, grading_hash, measured_experiments
from edison_ci.stats.ab import moves_of
from edison_ci.stats.intervals import interval_of_mean
from edison_ci.stats.scores import units_of
from edison_ci.store.runs import NO_OUTPUTS, NO_TRIAL, find_run
from edison_ci.store.suggestions import Suggestion, list_suggestions

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from edison_ci.documents.files import Tree
    from edison_ci.documents.marks import Json
    from edison_ci.results.leaderboard import CaseFilter, LeaderboardRow, StoredVariant
    from edison_ci.results.metrics import PassCounts
    from edison_ci.stats.intervals import Interval
    from edison_ci.store.runs import Run


@dataclass(frozen=True, slots=True)
class VersionComparison:
    """Version B minus version A in one experiment, over the models that both have."""

    experiment: str
    models: tuple[str, ...]
    runs: tuple[str, str]
    contrast: Contrast
    moved: dict[Move, tuple[str, ...]]
    """The cases that changed."""
    simulated: bool


def versus(
    connection: sqlite3.Connection,
    prompts: Collection[str],
    versions: tuple[str, str],
    case_filter: Callable[[str], CaseFilter],
) -> list[VersionComparison]:
    """Compare two versions in every experiment that graded both with the same eval suite.

    A prompt that was renamed has several names in `prompts`.
    """
    comparisons = []
    for experiment in measured_experiments(connection):
        pairs = _pairs(connection, experiment, prompts, versions)
        if pairs:
            comparison = _compare(connection, experiment, pairs, case_filter(experiment))
            if comparison is not None:
                comparisons.append(comparison)
    return comparisons


def _pairs(
    connection: sqlite3.Connection,
    experiment: str,
    prompts: Collection[str],
    versions: tuple[str, str],
) -> list[tuple[StoredVariant, StoredVariant]]:
    """Return where both versions were measured with one model, newest grading first."""
    runs = complete_runs(connection, experiment, MOST_RUNS, trials=True)
    for grading in dict.fromkeys(map(grading_hash, runs)):
        alike = [run for run in runs if grading_hash(run) == grading]
        places = {
            (place.version, place.model): place
            for place in newest_places(connection, alike)
            if place.prompt in prompts and place.version in versions
        }
        models = sorted({model for _, model in places})
        both = [
            (places[versions[0], model], places[versions[1], model])
            for model in models
            if all((version, model) in places for version in versions)
        ]
        if both:
            return both
    return []


def _compare(
    connection: sqlite3.Connection,
    experiment: str,
    pairs: Sequence[tuple[StoredVariant, StoredVariant]],
    case_filter: CaseFilter,
) -> VersionComparison | None:
    before, after = (
        _overall([leaderboard_row(connection, pair[side], case_filter) for pair in pairs])
        for side in (0, 1)
    )
    contrast = contrast_of(before, after, case_filter)
    if contrast is None:
        return None
    changes = dict(_moves(before, after))
    counts = [[_pass_counts(connection, pair[side]) for pair in pairs] for side in (0, 1)]
    passed, _ = flips_between(counts[0], counts[1])
    passes = [passed.get(case, (True, True)) for case in changes]
    cases, moves, first = [*changes], [*changes.values()], pairs[0]
    return VersionComparison(
        experiment=experiment,
        models=tuple(place.model for place, _ in pairs),
        runs=(first[0].run.id, first[1].run.id),
        contrast=contrast,
        moved={
            move: tuple(cases[i] for i in positions)
            for move, positions in moves_of(moves, passes).items()
        },
        simulated=any(place.run.simulated for pair in pairs for place in pair),
    )


def _pass_counts(connection: sqlite3.Connection, place: StoredVariant) -> PassCounts:
    where = "cell c where c.run_id = ? and c.side = ? and c.prompt = ? and c.model = ?"
    return pass_counts(connection, where, (place.run.id, place.side, place.prompt, place.model))


def _overall(rows: Sequence[LeaderboardRow]) -> Scores:
    """Return the mean over models of each case that all of them have."""
    tables = [dict(zip(row.scores.cases, row.scores.values, strict=True)) for row in rows]
    cases = [case for case in rows[0].scores.cases if all(case in table for table in tables)]
    means = (mean([table[case] for table in tables]) for case in cases)
    contents_by_case = dict(zip(rows[0].scores.cases, rows[0].contents, strict=True))
    contents = array("q", (contents_by_case[case] for case in cases))
    return Scores(Sample(cases=cases, values=array("d", means)), contents)


def _moves(before: Scores, after: Scores) -> Iterator[tuple[str, float]]:
    tables = [dict(zip(s.sample.cases, s.sample.values, strict=True)) for s in (before, after)]
    for case in common_cases(before, after):
        yield case, tables[1][case] - tables[0][case]


class VersionHistory(NamedTuple):
    """A version with what is known of it."""

    version: Version
    result: Result | None = None
    suggestion: Suggestion | None = None
    """The suggestion that made it."""
    in_production: bool = False


class Lineage(NamedTuple):
    """All versions of a prompt, newest first, and what is suggested for it."""

    lives: list[VersionHistory]
    open: list[Suggestion]


def lineage_of(history: History, connection: sqlite3.Connection | None) -> Lineage:
    """Return the versions of a prompt; without results, those that Git has."""
    prompt, versions, former = history.prompt, history.versions(), history.former()
    results: dict[tuple[str, str], Result] = {}
    suggestions: list[Suggestion] = []
    if connection is not None:
        own_results = results_by_version(
            connection, prompt.id, [version.hash for version in reversed(versions)]
        )
        versions = with_measured(versions, own_results, prompt.id)
        results = {("", version): result for version, result in own_results.items()}
        results |= _of_former(connection, former, next(iter(own_results.values()), None))
        _add_renamed(connection, prompt.id, versions, results)
        names = dict.fromkeys([str(prompt.id), *(item.former for item in former if item.former)])
        for name in names:
            suggestions += list_suggestions(connection, prompt=name)
    made = {item.new_hash: item for item in suggestions if item.status is SuggestionStatus.APPLIED}
    # What was only suggested is no version that the prompt ever had.
    only_tried = {item.new_hash for item in suggestions if item.new_hash not in made}
    versions = [item for item in versions if item.data is not None or item.hash not in only_tried]
    promoted = promoted_version(versions, prompt.header.production)
    lives = [
        VersionHistory(
            version,
            results.get((version.former or "", version.hash)),
            made.get(version.hash),
            promoted is not None and version is promoted,
        )
        for version in [*former, *versions][::-1]
    ]
    return Lineage(lives, [item for item in suggestions if item.status in OPEN_STATUSES])


def promoted_version(versions: Sequence[Version], promoted: str) -> Version | None:
    """Return the version that a prompt names as in production; None if it is not among these."""
    for version in versions:
        if promoted and (promoted == version.label or version.hash.startswith(promoted)):
            return version
    return None


def _of_former(
    connection: sqlite3.Connection, former: Sequence[Version], newest: Result | None
) -> dict[tuple[str, str], Result]:
    former_results: dict[tuple[str, str], Result] = {}
    for name in dict.fromkeys(version.former for version in former if version.former):
        hashes = [version.hash for version in former[::-1] if version.former == name]
        results = results_by_version(connection, name, hashes, newest)
        former_results |= {(name, version): result for version, result in results.items()}
    return former_results


def _add_renamed(
    connection: sqlite3.Connection,
    prompt: str,
    versions: Sequence[Version],
    results: dict[tuple[str, str], Result],
) -> None:
    """Add results of the same text under another name."""
    newest = next(iter(results.values()), None)
    for version in versions[::-1]:
        if ("", version.hash) in results:
            continue
        for name in measured_as(connection, version.hash, prompt)[:1]:
            renamed = results_by_version(connection, name, [version.hash], newest)
            if version.hash in renamed:
                results["", version.hash] = renamed[version.hash]


# A score is comparable with another one if the experiment, the models, the cases and what grades
# the answers are the same. Each version is represented by a run that is like that of the newest
# version, where there is one, and otherwise by its newest run, with a note of what differs.
_MOST_TRIED = 20
"""Runs of a version that are searched for one that is like the newest version's."""


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a version in one complete run, over its models."""

    run: Run
    side: str
    composite: Interval | None
    models: tuple[str, ...]
    answers: int
    answer_cost_microusd: float | None
    cases: frozenset[tuple[str, str | None]]
    """Its cases, each with the hash of its content."""
    differs: tuple[str, ...] = ()
    """In what it was not measured like the newest version."""
    prompt: str = ""
    """The id under which it was measured."""


class _VersionRun(NamedTuple):
    """Where a version was measured."""

    run_id: str
    side: str
    experiment: str
    models: tuple[str, ...]
    answers: int
    cost_microusd: int


def results_by_version(
    connection: sqlite3.Connection,
    prompt: str,
    newest_first: Sequence[str],
    newest: Result | None = None,
) -> dict[str, Result]:
    """Return a complete result of each version of a prompt, whole runs before partial ones.

    `newest` is the result that they are compared with, if it is not one of them.
    """
    places = _places(connection, prompt)
    by_version: dict[str, Result] = {}
    for version in dict.fromkeys([*newest_first, *places]):
        if version not in places:
            continue
        by_version[version] = _result(connection, prompt, version, places[version], newest)
        newest = newest or by_version[version]
    return by_version


class ModelScore(NamedTuple):
    """Score of a version with a model, in its newest complete run."""

    model: str
    run_id: str
    experiment: str
    created_at: str
    composite: EstimateWithInterval
    simulated: bool
    partial: bool


def model_scores(connection: sqlite3.Connection, prompt: str) -> dict[str, list[ModelScore]]:
    """Return the newest complete score of each version of a prompt with each model, by version.

    Whole runs come first, and a version's own before those in which it was the base, which have no
    intervals.
    """
    rows = connection.execute(
        "select m.version, m.model, m.run_id, r.experiment, r.created_at, m.composite, "
        "m.composite_low, m.composite_high, m.composite_n, m.composite_method, r.simulated, "
        "r.partial from rollup_model m join run r on r.id = m.run_id "
        f"where m.prompt = ? and r.complete = 1 and {NO_TRIAL} "
        f"and {NO_OUTPUTS} order by r.partial, m.side desc, r.created_at desc, m.model",
        (prompt,),
    )
    by_version: dict[str, list[ModelScore]] = {}
    for version, model, run_id, experiment, created_at, *rest in rows:
        scores = by_version.setdefault(version, [])
        if model not in {score.model for score in scores}:
            where = (model, run_id, experiment, created_at)
            scores.append(ModelScore(*where, EstimateWithInterval(*rest[:5]), *map(bool, rest[5:])))
    return by_version


def measured_as(connection: sqlite3.Connection, version: str, prompt: str) -> list[str]:
    """Return the other prompts under whose names the very same version was measured."""
    rows = connection.execute(
        "select distinct m.prompt from rollup_model m join run r on r.id = m.run_id "
        "where m.version = ? and m.prompt <> ? and r.complete = 1 and r.status = 'COMPLETED' "
        f"and {NO_OUTPUTS} order by m.prompt",
        (version, prompt),
    )
    return [name for (name,) in rows]


def _places(connection: sqlite3.Connection, prompt: str) -> dict[str, list[_VersionRun]]:
    rows = connection.execute(
        "select m.version, m.run_id, m.side, r.experiment, json_group_array(m.model), "
        "sum(m.answers), sum(m.cost_microusd + m.saved_microusd) "
        "from rollup_model m join run r on r.id = m.run_id "
        f"where m.prompt = ? and r.complete = 1 and r.status = 'COMPLETED' and {NO_OUTPUTS} "
        "group by m.version, m.run_id, m.side "
        "order by r.partial, r.created_at desc, r.rowid desc, m.side desc",
        (prompt,),
    )
    places: dict[str, list[_VersionRun]] = {}
    for version, run_id, side, experiment, models, answers, cost in rows:
        names = tuple(sorted(json.loads(models)))
        place = _VersionRun(run_id, side, experiment, names, answers or 0, cost or 0)
        places.setdefault(version, []).append(place)
    return places


def _result(
    connection: sqlite3.Connection,
    prompt: str,
    version: str,
    places: Sequence[_VersionRun],
    newest: Result | None,
) -> Result:
    first = _read(connection, prompt, version, places[0])
    if newest is None:
        return first
    same = (newest.run.experiment, newest.models)
    alike = (place for place in places if (place.experiment, place.models) == same)
    for place, _ in zip(alike, range(_MOST_TRIED), strict=False):
        other = _read(connection, prompt, version, place)
        if not _differences(other, newest):
            return other
    return replace(first, differs=_differences(first, newest))


def _read(connection: sqlite3.Connection, prompt: str, version: str, place: _VersionRun) -> Result:
    rows = connection.execute(
        "select case_id, max(case_hash), avg(composite), max(cluster) from cell "
        "where run_id = ? and side = ? and prompt = ? and version = ? "
        "and status in ('ok', 'malformed') and composite is not null group by case_id",
        (place.run_id, place.side, prompt, version),
    ).fetchall()
    cases = [case for case, *_ in rows]
    clusters = {case: cluster for case, _, _, cluster in rows if cluster is not None}
    return Result(
        run=find_run(connection, place.run_id),
        side=place.side,
        composite=interval_of_mean([score for _, _, score, _ in rows], units_of(cases, clusters)),
        models=place.models,
        answers=place.answers,
        answer_cost_microusd=place.cost_microusd / place.answers if place.answers else None,
        cases=frozenset((case, content) for case, content, _, _ in rows),
        prompt=prompt,
    )


def _differences(result: Result, newest: Result) -> tuple[str, ...]:
    differences = {
        "experiment": result.run.experiment != newest.run.experiment,
        "models": result.models != newest.models,
        "grading": grading_hash(result.run) != grading_hash(newest.run),
        "cases": result.cases != newest.cases,
    }
    return tuple(what for what, differs in differences.items() if differs)


def with_measured(
    versions: Iterable[Version], results: dict[str, Result], prompt: str
) -> list[Version]:
    """Add the versions that are only in results, oldest first, before the others."""
    versions = list(versions)
    hashes = {version.hash for version in versions}
    alone = [
        Version(version, _label_of(result, prompt, version), None, date=result.run.created_at)
        for version, result in results.items()
        if version not in hashes
    ]
    return [*sorted(alone, key=lambda version: version.date or ""), *versions]


def _label_of(result: Result, prompt: str, version: str) -> str:
    label = result.run.labels.get(prompt) if result.side == Side.HEAD else None
    # A label from before a merge may by now be that of another text.
    return label if label and short(version) in label else f"?+{short(version)}"


def _json(tree: Tree, file: str) -> Json:
    return read_json(read(tree, file), file).value
