"""Regressions that the gates of a run let pass, in sentences.

The headline of such a run begins with them. Its verdict stays: gates decide, and they tolerate what
their limits say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.numeric import counted, fixed
from edison_ci.results.comparison_sample import flip_pairs
from edison_ci.results.metrics import metric_of
from edison_ci.results.samples import TwoSidedSample
from edison_ci.results.slices import cases_by_slice
from edison_ci.results.snapshot import outside_models_of
from edison_ci.stats import regressions
from edison_ci.stats.paired import Pairs
from edison_ci.stats.scores import units_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.results.run_result import RunResult

_LISTED = 3


def regression_notes(result: RunResult) -> Iterator[str]:
    """Yield what is shown to be worse on the head of a run than on its base, in sentences."""
    cells = TwoSidedSample.of_run(result.connection, result.run.id, result.quarantined)
    outside = outside_models_of(result.run)
    variants = [variant for variant in cells.common_variants() if variant.model not in outside]
    if not variants:
        return
    passes, _ = flip_pairs(cells, variants, result.clusters)
    if passes.n and regressions.more_broken(passes):
        _, flips = cells.flips(variants, result.clusters)
        yield f"More cases break than chance gives: {flips.counts} of {counted(flips.n, 'case')}."
    paired = cells.pairs(metric_of(cells, "composite"), variants)
    if paired.same_answers:
        return
    scores = Pairs(tuple(paired.base), tuple(paired.head), units_of(paired.cases, result.clusters))
    places = {case: place for place, case in enumerate(paired.cases)}
    slices: dict[tuple[int, ...], str] = {}
    for (dimension, value), cases in cases_by_slice(result.connection, result.run.id).items():
        inside = tuple(sorted(places[case] for case in cases if case in places))
        if len(inside) < len(places):
            slices.setdefault(inside, f"{dimension} {value}")
    drops = regressions.worse_slices(scores, {name: inside for inside, name in slices.items()})
    worst = sorted(drops.items(), key=lambda drop: drop[1].value)
    for name, drop in worst[:_LISTED]:
        on = f"the same {counted(drop.n, 'case')}"
        yield f"Slice {name} scores {fixed(-100 * drop.value, 1)} points lower on {on}."
    if len(worst) > _LISTED:
        yield f"{counted(len(worst) - _LISTED, 'further slice')} lower as well."
