"""A run as JSON: what `run`, `resume`, `status RUN` and reports say of it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from edison_ci.results.decisions import looks_json
from edison_ci.results.snapshot import material_of
from edison_ci.stats.slices import Moments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edison_ci.results.part_scores import PartSpread
    from edison_ci.results.run_result import RunResult
    from edison_ci.results.scores import Scored
    from edison_ci.results.slices import (
        Bounds,
        Breakdown,
        CellCounts,
        Facet,
        Reliability,
    )
    from edison_ci.stats.scores import Interval

_NO_JUDGES: dict[str, Any] = {"head_to_head": [], "judge_agreement": None}


def run_document(result: RunResult) -> dict[str, Any]:
    """Return everything that is said of a run, with its breakdown, gates and judges."""
    return {
        **detailed(as_json(result), result.breakdown),
        "looks": looks_json(result.gates),
        "weak_prompts": [rival.as_json() for rival in result.weak_prompts],
        **(_NO_JUDGES if result.judges is None else result.judges.as_json()),
        "quarantined": sorted(result.quarantined),
    }


def as_json(result: RunResult) -> dict[str, Any]:
    """Return a run as it appears in a list, without its breakdown."""
    run = result.run
    return {
        "run_id": run.id,
        "experiment": run.experiment,
        "trigger": run.trigger,
        "status": run.status,
        "verdict": run.verdict,
        "simulated": run.simulated,
        "partial": run.partial,
        "shard": run.shard,
        "stopped_by": run.stopped_by,
        "prompts": [
            {"id": prompt, "hash": version[:8], "label": run.labels.get(prompt)}
            for prompt, version in result.prompts
        ],
        "composite": interval_json(result.overall.composite),
        "pass_rate": interval_json(result.overall.pass_rate),
        "against": _against(result),
        "gates": [row.as_json() for row in result.gates],
        "human": result.people.as_json() if result.people is not None else None,
        "cells": result.cells,
        "errors": result.error_kinds,
        "calls": result.calls,
        "cost_microusd": result.cost_microusd,
        "tokens": {"in": result.tokens_in, "out": result.tokens_out},
        "wall_s": result.wall_s,
        "created_at": run.created_at,
        "finished_at": run.finished_at,
        "models": [_scored(scored) for scored in result.models],
        "parts": [
            {
                "name": part.name,
                "kind": part.kind,
                "graded": part.graded,
                "passed": part.passed,
                "mean": part.mean,
                "errors": part.errors,
                "blocked": part.blocked,
            }
            for part in result.parts
        ],
    }


def _against(result: RunResult) -> dict[str, Any] | None:
    run, found = result.run, result.against
    if run.base_commit is None:
        return None
    return {
        "ref": run.base_ref,
        "commit": run.base_commit,
        "material": material_of(run),
        "composite": interval_json(found.composite) if found else None,
        "difference": found.as_json() if found else None,
    }


def _scored(scored: Scored) -> dict[str, Any]:
    return {
        "prompt": scored.prompt,
        "model": scored.model,
        "composite": interval_json(scored.composite),
        "pass_rate": interval_json(scored.pass_rate),
        "cost_microusd": scored.cost_microusd,
        "latency_ms": {"p50": scored.p50_ms, "p95": scored.p95_ms},
    }


def interval_json(found: Interval | None) -> dict[str, Any] | None:
    """Return an estimate with its interval as it appears in `--json`."""
    if found is None:
        return None
    return {
        "estimate": found.estimate,
        "low": found.low,
        "high": found.high,
        "n": found.n,
        "method": found.method,
    }


_Who = tuple[str, str]
_ALL: _Who = ("", "")
_SPREAD = ("min", "max", "sd")


def detailed(told: dict[str, Any], breakdown: Breakdown) -> dict[str, Any]:
    """Return the document of a run with its breakdown: overall, by model, and by kind of case."""
    parts = _by_model(breakdown.parts)
    overall = _overall(breakdown.parts)
    models = [
        {
            **model,
            **_numbers(breakdown, (model["prompt"], model["model"])),
            "parts": parts.get((model["prompt"], model["model"]), []),
        }
        for model in told["models"]
    ]
    spread = {(part["name"], part["kind"]): part for part in overall}
    return {
        **told,
        **_numbers(breakdown, _ALL if len(models) != 1 else _only(models)),
        "models": models,
        "parts": [
            {
                **part,
                **{key: spread.get((part["name"], part["kind"]), {}).get(key) for key in _SPREAD},
            }
            for part in told["parts"]
        ],
        "facets": [_facet(facet) for facet in breakdown.facets],
    }


def _only(models: list[dict[str, Any]]) -> _Who:
    """Return the only prompt and model: what is said of it is said of all."""
    return models[0]["prompt"], models[0]["model"]


def _numbers(breakdown: Breakdown, who: _Who) -> dict[str, Any]:
    counts = next((each for each in breakdown.counts if each[:2] == who), None)
    bounds = next((b for b in breakdown.bounds if (b.prompt, b.model) == who), None)
    return {
        "rates": None if counts is None else rates(counts),
        "bounds": None if bounds is None else _bounds(bounds),
        "reliability": [
            _reliability(each) for each in breakdown.reliability if (each.prompt, each.model) == who
        ],
    }


def rates(counts: CellCounts) -> dict[str, float | None]:
    """Return which share of the cells ended how; skipped ones were never asked."""
    asked = counts.cells - counts.skipped
    return {
        name: getattr(counts, name) / asked if asked else None
        for name in ("error", "malformed", "blocked")
    }


def _bounds(found: Bounds) -> dict[str, Any]:
    return {
        "missing": found.missing,
        "composite": {"worst": found.composite_worst, "best": found.composite_best},
        "pass_rate": {"worst": found.pass_worst, "best": found.pass_best},
    }


def _reliability(found: Reliability) -> dict[str, Any]:
    same = {"n": found.n, "method": found.method}
    return {
        "k": found.k,
        "pass_all": {
            "estimate": found.pass_all,
            "low": found.pass_all_low,
            "high": found.pass_all_high,
            **same,
        },
        "pass_any": {
            "estimate": found.pass_any,
            "low": found.pass_any_low,
            "high": found.pass_any_high,
            **same,
        },
    }


def _facet(found: Facet) -> dict[str, Any]:
    return {
        **asdict(found),
        "composite": found.composite._asdict(),
        "pass_rate": found.pass_rate._asdict(),
    }


def _by_model(parts: Iterable[PartSpread]) -> dict[_Who, list[dict[str, Any]]]:
    found: defaultdict[_Who, list[dict[str, Any]]] = defaultdict(list)
    for part in parts:
        found[part.prompt, part.model].append(_spread(part))
    return found


def _spread(part: PartSpread) -> dict[str, Any]:
    return {
        "name": part.name,
        "kind": part.kind,
        "graded": part.n,
        "mean": part.mean,
        "min": part.low,
        "max": part.high,
        "sd": part.sd,
    }


def _overall(parts: Iterable[PartSpread]) -> list[dict[str, Any]]:
    """Return the spread of each part over all prompts and models."""
    together: defaultdict[tuple[str, str], list[PartSpread]] = defaultdict(list)
    for part in parts:
        if part.mean is not None:
            together[part.name, part.kind].append(part)
    found = []
    for (name, kind), same in together.items():
        whole = Moments()
        for part in same:
            whole.merge(Moments(part.n, part.mean or 0.0, (part.sd or 0.0) ** 2 * (part.n - 1)))
        lows, highs = ([getattr(p, end) for p in same] for end in ("low", "high"))
        spread = {"min": min(lows), "max": max(highs), "sd": whole.sd}
        found.append({"name": name, "kind": kind, "mean": whole.mean, **spread})
    return found
