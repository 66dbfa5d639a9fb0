"""How does a plan look as JSON?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.plan.estimate import Load, total, total_cost, total_seconds
from edison_ci.plan.looks import both_sides

if TYPE_CHECKING:
    from edison_ci.plan.plan import Plan


def as_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as it appears in `edison plan --json`."""
    return {
        "experiment": plan.experiment,
        "simulated": plan.simulated,
        "cases": plan.cases,
        "cells": plan.cells,
        "skipped": plan.skipped,
        "holdout": plan.holdout,
        "gating_cases": plan.gating,
        "plan_hash": plan.hash,
        "iterations": plan.iterations.rounded(),
        **_sums(plan.loads),
        "calls": {"to_make": plan.calls, "reused": plan.reused},
        "by_phase": _by_phase(plan),
        "by_model": [_load(load) for load in plan.loads],
        "smallest_effect": plan.smallest_effect,
        "cases_for_margin": plan.cases_for_margin,
        "margin": plan.margin,
        "looks": _looks(plan),
        "reasons": plan.reasons,
        "blockers": plan.blockers,
    }


def _looks(plan: Plan) -> dict[str, Any] | None:
    """Return what a comparison with --against would take, where it stops when it is clear."""
    if plan.looks is None or plan.iterations.high > 1:
        return None
    low, high = both_sides(plan.looks, plan.cases, plan.calls + plan.reused)
    return {"kind": plan.looks, "calls": {"low": low, "high": high}}


def matrix(plan: Plan) -> dict[str, Any]:
    """Return the shards of a plan as a matrix of jobs; a shard without cases needs none."""
    count = len(plan.shards)
    rows = [
        {"experiment": plan.experiment, "shard": f"{index}/{count}", "cases": cases}
        for index, cases in enumerate(plan.shards, 1)
        if cases
    ]
    return {"include": rows}


def _by_phase(plan: Plan) -> dict[str, Any]:
    phases = dict.fromkeys(load.phase for load in plan.loads)
    return {phase: _sums([x for x in plan.loads if x.phase == phase]) for phase in phases}


def _sums(loads: list[Load]) -> dict[str, Any]:
    cost = total_cost(loads)
    return {
        "calls": sum(load.calls for load in loads),
        "tokens": total(load.tokens for load in loads).rounded(),
        "cost_microusd": None if cost is None else cost.rounded(),
        "seconds": total_seconds(loads).rounded(),
    }


def _load(load: Load) -> dict[str, Any]:
    return {
        "phase": load.phase,
        "model": load.name,
        "provider": load.model.provider,
        "simulated": load.model.simulated,
        "tokens_exact": load.exact_tokens,
        "price": load.price.model_dump(by_alias=True) if load.price else None,
        **_sums([load]),
    }
