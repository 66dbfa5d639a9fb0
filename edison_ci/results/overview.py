"""Models over several experiments, each by its score in the newest complete run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.numeric import mean_or_none, snap
from edison_ci.results.rollups import totals_by_model
from edison_ci.results.snapshot import complete_runs

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from edison_ci.results.rollups import Totals
    from edison_ci.store.runs import Run


@dataclass(frozen=True, slots=True)
class ModelOverview:
    """A model in the newest complete run of each experiment; None where it was not measured."""

    model: str
    totals: tuple[Totals | None, ...]
    """Of its best prompt, in the order of the experiments."""
    score: float | None
    """Mean of its scores, each experiment weighted alike; None unless all have one."""
    pass_rate: float | None
    cost_microusd: float | None
    """Mean cost of an answer, over the experiments that it was measured in."""
    p50_ms: float | None

    @property
    def measured(self) -> int:
        """Number of experiments that it was measured in."""
        return sum(each is not None for each in self.totals)


@dataclass(frozen=True, slots=True)
class Overview:
    """Models by experiments, those that were measured in most first, then the best."""

    runs: tuple[Run, ...]
    """The newest complete run of each experiment."""
    models: tuple[ModelOverview, ...]

    @property
    def simulations(self) -> tuple[str, ...]:
        """Which parts of the runs are simulated, as labels, each once."""
        return tuple(dict.fromkeys(run.simulation for run in self.runs if run.simulated))


def overview_of(connection: sqlite3.Connection, experiments: Sequence[str]) -> Overview:
    """Return the models of the newest complete runs of experiments, side by side."""
    runs = [run for name in experiments for run in complete_runs(connection, name, 1)]
    best: list[dict[str, Totals]] = []
    for run in runs:
        found: dict[str, Totals] = {}
        for row in totals_by_model(connection, run.id):
            known = found.get(row.model)
            if known is None or _score(row) > _score(known):
                found[row.model] = row
        best.append(found)
    names = dict.fromkeys(name for found in best for name in found)
    models = [_overview(name, tuple(found.get(name) for found in best)) for name in names]
    models.sort(key=lambda each: (-each.measured, -snap(each.score or 0.0), each.model))
    return Overview(tuple(runs), tuple(models))


def _score(row: Totals) -> float:
    return -1.0 if row.composite.estimate is None else row.composite.estimate


def _overview(model: str, totals: tuple[Totals | None, ...]) -> ModelOverview:
    known = [each for each in totals if each is not None]
    scores = [each.composite.estimate for each in totals if each is not None]
    rates = [each.pass_rate.estimate for each in totals if each is not None]
    everywhere = len(known) == len(totals)
    return ModelOverview(
        model,
        totals,
        mean_or_none(_whole(scores)) if everywhere else None,
        mean_or_none(_whole(rates)) if everywhere else None,
        mean_or_none([c for each in known if (c := each.answer_cost_microusd) is not None]),
        mean_or_none([float(each.p50_ms) for each in known if each.p50_ms is not None]),
    )


def _whole(values: Sequence[float | None]) -> list[float]:
    """Return values of which none is missing, else none of them."""
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []
