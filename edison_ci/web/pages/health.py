"""What machines ask for: the health check, and metrics of the newest runs for Prometheus."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from typing import TYPE_CHECKING, Any

from edison_ci import __version__
from edison_ci.results.run_lists import experiments, last_of, last_run_at, runs_by_status
from edison_ci.results.spending import booked, run_cost
from edison_ci.results.totals import totals_of_run
from edison_ci.rounding import significant
from edison_ci.store.database import migrations, version_of
from edison_ci.store.runs import find_run
from edison_ci.store.suggestions import open_suggestions
from edison_ci.web.workspace import project_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.web.page_context import Look

LEAST_FREE_BYTES = 100_000_000
"""With less room than this, the next run may not be stored."""


def health(look: Look) -> dict[str, Any]:
    """Return whether database, schema and disk are fit, and which keys are set."""
    version, known = version_of(look.connection), len(migrations())
    checks: dict[str, Any] = {
        "database": {"ok": True},
        "schema": {"ok": version == known, "version": version, "known": known},
    }
    if version == known:
        checks["database"]["last_run_at"] = last_run_at(look.connection)
    if look.file is not None:
        free = shutil.disk_usage(look.file.parent).free
        checks["disk"] = {"ok": free >= LEAST_FREE_BYTES, "free_bytes": free}
    checks["keys"] = {"ok": True, "present": _keys(look)}
    ok = all(check["ok"] for check in checks.values())
    return {
        "_status": 200 if ok else 503,
        "ok": ok,
        "edison": __version__,
        "checks": checks,
    }


def _keys(look: Look) -> dict[str, bool]:
    """Return which variables with keys are set; never what is in them."""
    project = project_of(look)
    if project is None:
        return {}
    named = {name for model in project.models.values() for name in model.keys.values()}
    return {name: bool(os.environ.get(name)) for name in sorted(named)}


def metrics(look: Look) -> str:
    """Return the numbers of the newest runs in the text format of Prometheus."""
    return "\n".join([*_runs(look), *_newest(look), *_money(look)]) + "\n"


def _runs(look: Look) -> Iterator[str]:
    yield from _about("edison_runs", "gauge", "Runs that are stored, by status.")
    for experiment, status, count in runs_by_status(look.connection):
        yield _line("edison_runs", count, experiment=experiment, status=status.lower())
    yield from _about("edison_open_suggestions", "gauge", "Suggestions that wait for somebody.")
    for experiment, count in sorted(open_suggestions(look.connection).items()):
        yield _line("edison_open_suggestions", count, experiment=experiment)


_NEWEST = (
    ("edison_last_run_score", "Score of the newest run, 0 to 1."),
    ("edison_last_run_pass_rate", "Share of its cases that passed."),
    ("edison_last_run_errors", "Cells of it that ended in an error."),
    ("edison_last_run_cost_usd", "What it cost, judges included."),
    ("edison_last_run_timestamp_seconds", "When it was started."),
    ("edison_last_run_verdict", "1 for its verdict."),
)


def _newest(look: Look) -> Iterator[str]:
    found: dict[str, list[str]] = {name: [] for name, _ in _NEWEST}
    for experiment in experiments(look.connection):
        run = find_run(look.connection, last_of(look.connection, experiment))
        sums = totals_of_run(look.connection, run.id)
        started = dt.datetime.fromisoformat(run.created_at).timestamp()
        values: dict[str, float | None] = {
            "edison_last_run_score": sums.composite.estimate if sums else None,
            "edison_last_run_pass_rate": sums.pass_rate.estimate if sums else None,
            "edison_last_run_errors": sums.error if sums else None,
            "edison_last_run_cost_usd": run_cost(look.connection, run.id) / 1e6,
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


def _money(look: Look) -> Iterator[str]:
    yield from _about("edison_cost_usd_total", "counter", "All that was booked.")
    yield _line("edison_cost_usd_total", booked(look.connection, "project") / 1e6)


def _about(name: str, kind: str, about: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, value: float, **labels: str) -> str:
    escaped = (
        (key, text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n"))
        for key, text in labels.items()
    )
    told = ",".join(f'{key}="{text}"' for key, text in escaped)
    series = f"{name}{{{told}}}" if told else name
    return f"{series} {significant(value, 10)}"
