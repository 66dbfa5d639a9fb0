"""The report as one JSON document.

It is what `status RUN --json` prints, and what only a report knows: both sides of every prompt
version, the cases that moved, changed material, findings, and what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.results.run_document import interval_json, run_document
from edison_ci.sanitize import json_text

if TYPE_CHECKING:
    from edison_ci.results.leaderboard import Standing as Measured
    from edison_ci.results.report import Planned, Report
    from edison_ci.results.run_result import RunResult

SCHEMA_VERSION = 1


def document(report: Report) -> dict[str, Any]:
    """Return the report as a value for JSON."""
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": report.verdict,
        "simulated": report.simulated,
        "failure": report.failure or None,
        "undecided": report.undecided or None,
        "dropped": [*report.dropped],
        "planned": [_planned(one) for one in report.planned],
        "cost_microusd": report.cost_microusd,
        "regressions": report.regressions,
        "runs": [_run(view) for view in report.runs],
    }


def document_text(report: Report) -> str:
    """Return the report as JSON, harmless for whoever prints it."""
    return json_text(document(report)) + "\n"


def _planned(one: Planned) -> dict[str, Any]:
    cost = one.cost_microusd
    span = None if cost is None else {"low": cost[0], "high": cost[1]}
    return {**one._asdict(), "cost_microusd": span}


def _run(view: RunResult) -> dict[str, Any]:
    return {
        **run_document(view),
        "labels": [*view.labels],
        "on": view.on,
        "material": [change._asdict() for change in view.material],
        "replaced": [*view.replaced],
        "scores": [_scored(measured) for measured in view.variants],
        "changes": [
            {"prompt": one.prompt, "model": one.model, **one.standing.as_json()}
            for one in view.changes
        ],
        "findings": [finding._asdict() for finding in view.findings],
        "missing": [*view.missing],
    }


def _scored(measured: Measured) -> dict[str, Any]:
    place = measured.place
    return {
        "side": place.side,
        "prompt": place.prompt,
        "hash": place.version[:8],
        "label": measured.label,
        "model": place.model,
        "composite": interval_json(measured.composite),
        "pass_rate": interval_json(measured.pass_rate),
        "answers": measured.answers,
        "cost_microusd": measured.cost_microusd,
        "estimated": measured.estimated,
        "latency_ms": {"p50": measured.p50_ms, "p95": measured.p95_ms},
    }
