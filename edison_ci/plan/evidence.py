"""What could so many cases show, and how many would the gate need?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.plan.looks import INFERRED
from edison_ci.stats import DEFAULT_SD, cases_for_margin, smallest_effect

if TYPE_CHECKING:
    from edison_ci.config.decisions import Gate
    from edison_ci.config.load import Experiment

_ALPHA = 0.05


class Evidence(NamedTuple):
    """What the cases can show, if differences between two versions vary by `DEFAULT_SD`."""

    smallest_effect: float | None
    """Smallest true change of a score (0-1) that shows with a chance of 80%."""
    cases_for_margin: int | None
    """Cases at which an unchanged prompt passes the gate with a chance of 80%."""
    margin: float | None
    relative: bool = False
    """Whether the margin is a share of the base's score, which may be below 1."""


def evidence_of(experiment: Experiment, cases: int) -> Evidence:
    """Return what so many cases can show, at the confidence and margin of the strictest gate."""
    gate = strictest(experiment.file.gates)
    alpha = _ALPHA if gate is None else round(1 - gate.confidence, 10)
    effect = smallest_effect(cases, sd=DEFAULT_SD, alpha=alpha).value if cases >= 2 else None
    if gate is None:
        return Evidence(effect, None, None)
    margin = gate.effective_margin
    needed = None
    if margin.value > 0:
        needed = cases_for_margin(
            DEFAULT_SD,
            margin=margin.value,
            # The bound is one-sided and has no answer at even odds.
            alpha=min(alpha, 0.4999),
            worst_case_drop=gate.worst_case_drop,
        ).value
    return Evidence(effect, needed, margin.value, margin.relative)


def strictest(gates: tuple[Gate, ...]) -> Gate | None:
    """Return the gate on a score that compares with the base and tolerates least."""
    comparing = [g for g in gates if g.no_worse_than and g.metric.startswith(INFERRED)]
    return min(comparing, key=lambda g: (g.effective_margin.value, -g.confidence), default=None)
