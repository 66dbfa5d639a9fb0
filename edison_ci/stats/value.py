"""Value: the cheapest model that is non-inferior to the best."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.numeric import snap
from edison_ci.stats.arrays import TIE, bounded, finite, mean_of, np
from edison_ci.stats.gates import worst_plausible_change
from edison_ci.stats.intervals import interval_of_mean
from edison_ci.stats.other_metrics import tail_latency
from edison_ci.stats.scores import Estimate
from edison_ci.stats.verdicts import GateRule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edison_ci.stats.arrays import Floats


@dataclass(frozen=True, slots=True)
class Contender:
    """A model with its scores on the cases that all models share, in one order."""

    name: str
    case_scores: Floats
    cost: float
    """Mean cost of a case."""
    latencies: Floats = ()


@dataclass(frozen=True, slots=True)
class ValuedModel(Estimate):
    """A model with its mean score, as the recommendation sees it."""

    value: float
    name: str
    cost: float
    latency_median: float | None
    latency_p95: float | None
    """None below 60 calls."""
    on_front: bool
    """Whether no other model is at least as good, cheap and fast, and better in one."""
    worst_plausible: float | None
    """Worst plausible change against the best; 0 for the best itself."""
    as_good: bool
    """Whether it is no worse than the best by the gate's rule."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Which model to use, and why."""

    value: str
    """The recommended model."""
    best: str
    n: int
    method: str
    level: float
    models: tuple[ValuedModel, ...]
    """Best score first."""
    cheapest_on_front: str
    loss: float
    """Score lost by the recommended model against the best; what a saving costs."""
    saving: float
    """Share of the best model's cost that is saved; below 0 never."""

    @property
    def loss_per_saving(self) -> float | None:
        """Score lost per unit of money saved on a case; None when nothing is saved."""
        of = {model.name: model for model in self.models}
        saved = of[self.best].cost - of[self.value].cost
        return self.loss / saved if saved > 0 else None


def pareto_front(points: Sequence[tuple[float, float, float | None]]) -> tuple[bool, ...]:
    """Return which (score, cost, latency) are on the front; equal points do not dominate.

    An unknown latency is compared with none.
    """
    return tuple(
        not any(_dominates(other, point) for j, other in enumerate(points) if j != i)
        for i, point in enumerate(points)
    )


def recommend(
    contenders: Sequence[Contender],
    rule: GateRule | None = None,
    *,
    clusters: Sequence[str] | None = None,
) -> Recommendation:
    """Recommend the cheapest model that is as good as the best (STATS 18)."""
    rule = rule or GateRule()
    if not contenders:
        raise ValueError("there is no model to recommend")
    scores = [bounded(c.case_scores, "scores", low=0, high=1) for c in contenders]
    if {s.size for s in scores} != {scores[0].size} or not scores[0].size:
        raise ValueError("models are compared on the same cases, at least one")
    speeds = [_median(contender.latencies) for contender in contenders]
    means = [snap(mean_of(s)) for s in scores]
    costs = [c.cost for c in contenders]
    front = pareto_front(list(zip(means, costs, speeds, strict=True)))
    # Ties of the best score go to the cheaper, then to the first name.
    best = min(range(len(means)), key=lambda i: (-means[i], costs[i], contenders[i].name))
    # The best was picked on the same cases: the error is divided by the number of others.
    strict = replace(rule, confidence=1 - rule.alpha / max(1, len(contenders) - 1))
    worst = [worst_plausible_change(s - scores[best], strict, clusters=clusters) for s in scores]
    intervals = [interval_of_mean(s, clusters, level=rule.confidence) for s in scores]
    valued = [
        ValuedModel(
            name=contender.name,
            value=means[i],
            n=scores[i].size,
            method="non-inferior by the gate's bound, error divided by the others",
            interval=None if (interval := intervals[i]) is None else interval.interval,
            level=rule.confidence,
            cost=contender.cost,
            latency_median=speeds[i],
            latency_p95=tail_latency(contender.latencies).value,
            on_front=front[i],
            worst_plausible=0.0 if i == best else worst[i],
            as_good=i == best or _inside(worst[i], rule.margin),
        )
        for i, contender in enumerate(contenders)
    ]
    return _recommended(valued, valued[best], rule)


def _recommended(
    valued: Sequence[ValuedModel], best: ValuedModel, rule: GateRule
) -> Recommendation:
    fast = {m.name: np.inf if m.latency_median is None else m.latency_median for m in valued}
    chosen = min(
        (m for m in valued if m.as_good), key=lambda m: (m.cost, fast[m.name], -m.value, m.name)
    )
    if chosen.cost >= best.cost and fast[chosen.name] >= fast[best.name]:
        chosen = best
    front = min((m for m in valued if m.on_front), key=lambda m: (m.cost, -m.value, m.name))
    return Recommendation(
        value=chosen.name,
        best=best.name,
        n=best.n,
        method=best.method,
        level=rule.confidence,
        models=tuple(sorted(valued, key=lambda m: (-m.value, m.cost, m.name))),
        cheapest_on_front=front.name,
        loss=best.value - chosen.value,
        saving=1 - chosen.cost / best.cost if best.cost > 0 else 0.0,
    )


def _inside(worst: float | None, margin: float) -> bool:
    return worst is not None and worst > TIE - margin


def _median(latencies: Floats) -> float | None:
    values = finite(latencies, "latencies")
    return float(np.median(values)) if values.size else None


def _dominates(
    other: tuple[float, float, float | None], point: tuple[float, float, float | None]
) -> bool:
    gaps = [other[0] - point[0], point[1] - other[1]]
    if other[2] is not None and point[2] is not None:
        gaps.append(point[2] - other[2])
    return min(gaps) >= -TIE and max(gaps) > TIE
