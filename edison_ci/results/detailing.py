"""How does the breakdown of a run look in `--json`?"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from edison_ci.stats.slices import Moments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edison_ci.results.slices import (
        Bounds,
        Breakdown,
        CellCounts,
        Facet,
        PartSpread,
        Reliability,
    )

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
