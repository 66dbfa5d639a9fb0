"""How did one version of a prompt do against another?"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from edison_ci.frozen import dataclass
from edison_ci.results.comparable import yardstick
from edison_ci.results.complete import MOST_RUNS, complete_runs, measured_experiments
from edison_ci.results.leaderboard import Contrast, Scores, common_cases, contrast_of
from edison_ci.results.measured import newest_places, standing_of
from edison_ci.results.passing import flips, marks, passing, together
from edison_ci.results.samples import Sample
from edison_ci.rounding import mean
from edison_ci.stats.ab import moved

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterator, Sequence

    from edison_ci.results.measured import Place, Standing
    from edison_ci.results.roll import Roll


@dataclass(frozen=True, slots=True)
class Versus:
    """Version B minus version A in one experiment, over the models that both have."""

    experiment: str
    models: tuple[str, ...]
    runs: tuple[str, str]
    contrast: Contrast
    fixed: tuple[str, ...]
    """Cases that B made better by 25 points, or from fail to pass (STATS 15)."""
    broken: tuple[str, ...]
    simulated: bool


def versus(
    connection: sqlite3.Connection,
    prompts: Collection[str],
    versions: tuple[str, str],
    roll: Callable[[str], Roll],
) -> list[Versus]:
    """Compare two versions in every experiment that measured both by the same yardstick.

    A prompt that was renamed has several names in `prompts`.
    """
    found = []
    for experiment in measured_experiments(connection):
        pairs = _pairs(connection, experiment, prompts, versions)
        if pairs:
            one = _compared(connection, experiment, pairs, roll(experiment))
            if one is not None:
                found.append(one)
    return found


def _pairs(
    connection: sqlite3.Connection,
    experiment: str,
    prompts: Collection[str],
    versions: tuple[str, str],
) -> list[tuple[Place, Place]]:
    """Return where both versions were measured with the same model, newest yardstick first."""
    runs = complete_runs(connection, experiment, MOST_RUNS, trials=True)
    for stick in dict.fromkeys(map(yardstick, runs)):
        alike = [run for run in runs if yardstick(run) == stick]
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


def _compared(
    connection: sqlite3.Connection,
    experiment: str,
    pairs: Sequence[tuple[Place, Place]],
    roll: Roll,
) -> Versus | None:
    before, after = (
        _overall([standing_of(connection, pair[side], roll) for pair in pairs]) for side in (0, 1)
    )
    contrast = contrast_of(before, after, roll)
    if contrast is None:
        return None
    changes = dict(_moves(before, after))
    passes = marks(flips(changes, *(_passing(connection, pairs, side) for side in (0, 1))))
    cases, moves, first = [*changes], [*changes.values()], pairs[0]
    return Versus(
        experiment=experiment,
        models=tuple(place.model for place, _ in pairs),
        runs=(first[0].run.id, first[1].run.id),
        contrast=contrast,
        fixed=tuple(cases[i] for i in moved(moves, passes, +1)),
        broken=tuple(cases[i] for i in moved(moves, passes, -1)),
        simulated=any(place.run.simulated for pair in pairs for place in pair),
    )


def _passing(
    connection: sqlite3.Connection, pairs: Sequence[tuple[Place, Place]], side: int
) -> dict[str, bool | None]:
    """Return of each case whether a version passes it with all models."""
    where = "cell where run_id = ? and side = ? and prompt = ? and model = ?"
    places = (pair[side] for pair in pairs)
    return together(
        passing(connection, where, (place.run.id, place.side, place.prompt, place.model))
        for place in places
    )


def _overall(rows: Sequence[Standing]) -> Scores:
    """Return the mean over models of each case that all of them have."""
    tables = [dict(zip(row.scores.cases, row.scores.values, strict=True)) for row in rows]
    cases = [case for case in rows[0].scores.cases if all(case in table for table in tables)]
    means = (mean([table[case] for table in tables]) for case in cases)
    return Scores(Sample(cases=cases, values=array("d", means)), rows[0].contents)


def _moves(before: Scores, after: Scores) -> Iterator[tuple[str, float]]:
    tables = [dict(zip(s.sample.cases, s.sample.values, strict=True)) for s in (before, after)]
    for case in common_cases(before, after):
        yield case, tables[1][case] - tables[0][case]
