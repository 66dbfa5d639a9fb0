"""The health check, and Prometheus metrics of the newest runs."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from typing import TYPE_CHECKING, Any

from edison_ci import __version__
from edison_ci.numeric import significant
from edison_ci.results.rollups import totals_of_run
from edison_ci.results.run_lists import experiments, last_of, last_run_at, runs_by_status
from edison_ci.results.spending import booked, run_cost
from edison_ci.store.database import migrations, version_of
from edison_ci.store.runs import find_run
from edison_ci.store.suggestions import open_suggestions
from edison_ci.web.workspace import project_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.web.page_context import PageContext

LEAST_FREE_BYTES = 100_000_000
"""Minimum free disk space to store another run."""


def health(context: PageContext) -> dict[str, Any]:
    """Return the status of database, schema and disk, and which keys are set."""
    version, known = version_of(context.connection), len(migrations())
    checks: dict[str, Any] = {
        "database": {"ok": True},
        "schema": {"ok": version == known, "version": version, "known": known},
    }
    if version == known:
        checks["database"]["last_run_at"] = last_run_at(context.connection)
    if context.file is not None:
        free = shutil.disk_usage(context.file.parent).free
        checks["disk"] = {"ok": free >= LEAST_FREE_BYTES, "free_bytes": free}
    checks["keys"] = {"ok": True, "present": _keys(context)}
    ok = all(check["ok"] for check in checks.values())
    return {
        "_status": 200 if ok else 503,
        "ok": ok,
        "edison": __version__,
        "checks": checks,
    }


def _keys(context: PageContext) -> dict[str, bool]:
    """Return which environment variables with keys are set, without their values."""
    project = project_of(context)
    if project is None:
        return {}
    named = {name for model in project.models.values() for name in model.keys.values()}
    return {name: bool(os.environ.get(name)) for name in sorted(named)}


def metrics(context: PageContext) -> str:
    """Return metrics of the newest runs in the Prometheus text format."""
    return "\n".join([*_runs(context), *_newest(context), *_money(context)]) + "\n"


def _runs(context: PageContext) -> Iterator[str]:
    yield from _about("edison_runs", "gauge", "Stored runs by status.")
    for experiment, status, count in runs_by_status(context.connection):
        yield _line("edison_runs", count, experiment=experiment, status=status.lower())
    yield from _about("edison_open_suggestions", "gauge", "Suggestions that wait for a decision.")
    for experiment, count in sorted(open_suggestions(context.connection).items()):
        yield _line("edison_open_suggestions", count, experiment=experiment)


_NEWEST = (
    ("edison_last_run_score", "Score of the newest run, 0 to 1."),
    ("edison_last_run_pass_rate", "Pass rate of the newest run, 0 to 1."),
    ("edison_last_run_errors", "Cells of the newest run that ended in an error."),
    ("edison_last_run_cost_usd", "Cost of the newest run, including judges."),
    ("edison_last_run_timestamp_seconds", "Start time of the newest run."),
    ("edison_last_run_verdict", "1 for the verdict of the newest run."),
)


def _newest(context: PageContext) -> Iterator[str]:
    found: dict[str, list[str]] = {name: [] for name, _ in _NEWEST}
    for experiment in experiments(context.connection):
        run = find_run(context.connection, last_of(context.connection, experiment))
        sums = totals_of_run(context.connection, run.id)
        started = dt.datetime.fromisoformat(run.created_at).timestamp()
        values: dict[str, float | None] = {
            "edison_last_run_score": sums.composite.estimate if sums else None,
            "edison_last_run_pass_rate": sums.pass_rate.estimate if sums else None,
            "edison_last_run_errors": sums.error if sums else None,
            "edison_last_run_cost_usd": run_cost(context.connection, run.id) / 1e6,
            "edison_last_run_timestamp_seconds": started,
        }
        simulated = "true" if run.simulated else "false"
        for name, value in values.items():
            if value is not None:
                found[name].append(_line(name, value, experiment=experiment, simulated=simulated))
        found["edison_last_run_verdict"].append(
            _line(
                "edison_last_run_verdict", 1, experiment=experiment, verdict=run.verdict or "none"
            )
        )
    for name, about in _NEWEST:
        yield from _about(name, "gauge", about)
        yield from found[name]


def _money(context: PageContext) -> Iterator[str]:
    yield from _about("edison_cost_usd_total", "counter", "Total booked cost.")
    yield _line("edison_cost_usd_total", booked(context.connection, "project") / 1e6)


def _about(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, value: float, **labels: str) -> str:
    escaped = (
        (key, text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
        for key, text in labels.items()
    )
    listed = ",".join(f'{key}="{text}"' for key, text in escaped)
    series = f"{name}{{{listed}}}" if listed else name
    return f"{series} {significant(value, 10)}"
