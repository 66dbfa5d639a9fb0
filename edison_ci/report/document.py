"""The report as one JSON document, and its cells as JSON Lines.

The document is `edison status RUN --json` plus what only a report has: both sides of every prompt
version, changed cases, a changed eval suite, findings and limitations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.records import Side
from edison_ci.results import report as result_report
from edison_ci.results import scores
from edison_ci.sanitize import json_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.results.cells import CellResult, Cells
    from edison_ci.results.leaderboard import LeaderboardRow
    from edison_ci.results.report import PlannedRun, Report
    from edison_ci.results.run_result import RunResult


def json_lines(report: Report, cells: Cells) -> Iterator[str]:
    """Yield a line of JSON for each cell of every run."""
    for view in report.runs:
        for cell in cells.of(view):
            yield json_text(_record(view, cell), indent=None) + "\n"


def _record(view: RunResult, cell: CellResult) -> dict[str, Any]:
    run = view.run
    return {
        "schema_version": 1,
        "experiment": run.experiment,
        "run_id": run.id,
        "run_started": run.created_at,
        "simulated": run.simulated,
        "side": cell.side,
        "prompt": {
            "id": cell.prompt,
            "hash": cell.version[:8],
            "label": run.labels.get(cell.prompt) if cell.side == Side.HEAD else None,
        },
        "model": cell.model,
        "case": cell.case,
        "repeat": cell.repeat,
        "cell": cell.id[:12],
        "status": cell.status,
        "composite": cell.composite,
        "passed": cell.passed,
        "error": cell.error,
        "reason": cell.reason or None,
        "cost_microusd": cell.cost_microusd,
        "cost_kind": cell.cost_kind,
        "tokens": {"in": cell.tokens_in, "out": cell.tokens_out},
        "latency_ms": cell.latency_ms,
        "finish_reason": cell.finish_reason,
        "served_model": cell.served_model,
        "components": [component._asdict() for component in cell.components],
        "text": cell.text,
    }


SCHEMA_VERSION = 1


def document(report: Report) -> dict[str, Any]:
    """Return the report as a JSON value."""
    return {
        "schema_version": SCHEMA_VERSION,
        "verdict": report.verdict,
        "simulated": report.simulated,
        "failure": report.failure or None,
        "undecided": report.undecided or None,
        "dropped": [*report.dropped],
        "planned": [_planned(one) for one in report.plans],
        "cost_microusd": report.cost_microusd,
        "regressions": report.regressions,
        "runs": [_run(view) for view in report.runs],
    }


def document_text(report: Report) -> str:
    """Return the report as JSON text that is safe to print."""
    return json_text(document(report)) + "\n"


def _planned(one: PlannedRun) -> dict[str, Any]:
    cost = one.cost_microusd
    span = None if cost is None else {"low": cost[0], "high": cost[1]}
    return {**one._asdict(), "cost_microusd": span}


def _run(view: RunResult) -> dict[str, Any]:
    return {
        **result_report.run_document(view),
        "labels": [*view.labels],
        "on": view.on,
        "eval_suite": [change._asdict() for change in view.eval_suite],
        "replaced": [*view.replaced],
        "scores": [_score_json(row) for row in view.variants],
        "changes": [
            {"prompt": one.prompt, "model": one.model, **one.comparison.as_json()}
            for one in view.changes
        ],
        "findings": [finding._asdict() for finding in view.findings],
        "missing": [*view.missing],
    }


def _score_json(row: LeaderboardRow) -> dict[str, Any]:
    place = row.place
    return {
        "side": place.side,
        "prompt": place.prompt,
        "hash": place.version[:8],
        "label": row.label,
        "model": place.model,
        "composite": scores.interval_json(row.composite),
        "pass_rate": scores.interval_json(row.pass_rate),
        "answers": row.answers,
        "cost_microusd": row.cost_microusd,
        "estimated": row.estimated,
        "latency_ms": {"p50": row.p50_ms, "p95": row.p95_ms},
    }
