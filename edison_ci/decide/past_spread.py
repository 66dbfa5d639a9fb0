"""Plans by measurement: how much scores differed from the base's in the newest comparison.

The gate of that comparison and the plan of the next one compute the cases they need by the same
function from the same differences, so they say the same number.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING

from edison_ci.decide import gates
from edison_ci.errors import EdisonError
from edison_ci.numeric import fixed
from edison_ci.plan.plan import RELATIVE, strictest
from edison_ci.records import Side
from edison_ci.results import metrics, samples
from edison_ci.stats.arrays import TIE
from edison_ci.stats.power import smallest_effect
from edison_ci.store import cells as store_cells
from edison_ci.store.database import open_reader
from edison_ci.store.runs import newest_comparisons

if TYPE_CHECKING:
    from edison_ci.config.gates import Gate
    from edison_ci.config.load import Experiment, Project
    from edison_ci.plan.plan import Plan
    from edison_ci.stats.gates import Spread

_FEWEST = 10
"""Cases or clusters below which an sd is too shaky to plan with."""


def with_past_spread(plan: Plan, project: Project, experiment: Experiment) -> Plan:
    """Return the plan with the sd of the newest comparison, where there is one to use."""
    gate = strictest(experiment.file.gates)
    path = project.root / project.file.results
    if gate is None or gate.effective_margin.value <= 0 or not path.exists():
        return plan
    aside = frozenset(e.case for e in project.quarantine if e.experiment == experiment.id)
    # A file that cannot be read is reported by the run; a plan does without it.
    with contextlib.suppress(EdisonError), contextlib.closing(open_reader(path)) as reader:
        for run_id in newest_comparisons(reader, experiment.id, simulated=plan.simulated):
            cells = samples.TwoSidedSample.of_run(reader, run_id)
            widest = _widest(dataclasses.replace(cells, left_out=aside), gate, run_id)
            if widest is not None:
                return _measured(plan, gate, run_id, *widest)
    return plan


def _widest(cells: samples.TwoSidedSample, gate: Gate, run_id: str) -> tuple[Spread, float] | None:
    """Return the spread and margin of the prompt and model that needs most cases."""
    bases = cells.variants(Side.BASE)
    common = tuple(variant for variant in cells.variants(Side.HEAD) if variant in bases)
    clusters, metric = (
        store_cells.clusters_of(cells.connection, run_id),
        metrics.metric_of(cells, gate.metric),
    )
    groups = [(variant,) for variant in common] if gate.per == "model" else [common]
    spreads = [
        gates.Question(gate, metric, cells, group, clusters).spread() for group in groups if group
    ]
    usable = [spread for spread in spreads if spread is not None and spread[0].units >= _FEWEST]
    return max(usable, key=lambda spread: spread[0].sd, default=None)


def _measured(plan: Plan, gate: Gate, run_id: str, spread: Spread, margin: float) -> Plan:
    effect = plan.smallest_effect
    if effect is not None and spread.sd >= TIE:
        alpha = round(1 - gate.confidence, 10)
        effect = smallest_effect(plan.units, sd=spread.sd, alpha=alpha).value
    measured = (
        f"differences vary by {fixed(100 * spread.sd, 1)} points, as measured in run {run_id}"
    )
    return dataclasses.replace(
        plan,
        smallest_effect=effect,
        cases_for_margin=spread.needed,
        margin=margin,
        sd=spread.sd,
        reasons=[*(reason for reason in plan.reasons if reason != RELATIVE), measured],
    )
