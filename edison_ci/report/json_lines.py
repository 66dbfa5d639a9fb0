"""Cells of runs as lines of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci.sanitize import json_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.results.cells import CellResult, Cells
    from edison_ci.results.report import Report
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
            "label": run.labels.get(cell.prompt) if cell.side == "head" else None,
        },
        "model": cell.model,
        "case": cell.case,
        "draw": cell.draw,
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
        "parts": [part._asdict() for part in cell.parts],
        "text": cell.text,
    }
