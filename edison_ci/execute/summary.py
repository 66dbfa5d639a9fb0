"""What did a run find, in numbers?"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edison_ci.stats.intervals import Interval, mean_interval, pass_interval
from edison_ci.store.runs import Run, cell_statuses

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.stats.intervals import Interval

STATUSES = ("ok", "malformed", "error", "blocked", "skipped")


@dataclass(frozen=True, slots=True)
class Scored:
    """Composite and pass rate of a prompt with a model, or of everything."""

    prompt: str
    model: str
    composite: Interval | None
    pass_rate: Interval | None
    cost_microusd: int


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run as reports show it."""

    run: Run
    cells: dict[str, int]
    overall: Scored
    by_model: tuple[Scored, ...]
    calls: dict[str, int]
    cost_microusd: int
    tokens_in: int
    tokens_out: int


def summarize(connection: sqlite3.Connection, run: Run) -> RunSummary:
    """Return the numbers of a run from what is stored."""
    counted = cell_statuses(connection, run.id)
    by_case = _by_case(connection, run.id)
    costs = dict(
        connection.execute(
            "select model, sum(coalesce(cost_microusd, est_microusd)) from attempt "
            "where run_id = ? and state <> 'released' group by model",
            (run.id,),
        ).fetchall()
    )
    pairs = sorted({(prompt, model) for prompt, model, _ in by_case})
    by_model = [
        _scored(prompt, model, by_case, costs.get(model.partition("[")[0], 0))
        for prompt, model in pairs
    ]
    used = connection.execute(
        "select coalesce(sum(a.tokens_in), 0), coalesce(sum(a.tokens_out), 0) from cell c "
        "join answer a on a.address = c.address and a.take = c.take where c.run_id = ?",
        (run.id,),
    ).fetchone()
    return RunSummary(
        run=run,
        cells={"total": run.cells_planned, **{s: counted.get(s, 0) for s in STATUSES}},
        overall=_scored("", "", by_case, sum(costs.values())),
        by_model=tuple(by_model),
        calls=_calls(connection, run.id, sum(counted.values())),
        cost_microusd=sum(costs.values()),
        tokens_in=used[0],
        tokens_out=used[1],
    )


Cases = dict[tuple[str, str, str], list[tuple[float | None, int | None]]]


def _by_case(connection: sqlite3.Connection, run_id: str) -> Cases:
    found: Cases = defaultdict(list)
    rows = connection.execute(
        "select prompt, model, case_id, composite, passed from cell "
        "where run_id = ? and status in ('ok', 'malformed', 'blocked') order by case_id, draw",
        (run_id,),
    )
    for prompt, model, case_id, composite, passed in rows:
        found[prompt, model, case_id].append((composite, passed))
    return found


def _scored(prompt: str, model: str, by_case: Cases, cost: int) -> Scored:
    composites: list[float] = []
    passes: list[float] = []
    chosen = [v for k, v in by_case.items() if not model or k[:2] == (prompt, model)]
    for draws in chosen:
        scores = [score for score, _ in draws if score is not None]
        passed = [bool(p) for _, p in draws if p is not None]
        if scores:
            composites.append(sum(scores) / len(scores))
        if passed:
            passes.append(sum(passed) / len(passed))
    single = all(share in (0.0, 1.0) for share in passes)
    rate = pass_interval(int(sum(passes)), len(passes)) if single else mean_interval(passes)
    return Scored(prompt, model, mean_interval(composites), rate, cost)


def _calls(connection: sqlite3.Connection, run_id: str, cells: int) -> dict[str, int]:
    states = dict(
        connection.execute(
            "select state, count(*) from attempt where run_id = ? group by state", (run_id,)
        ).fetchall()
    )
    made = states.get("settled", 0)
    return {
        "made": made,
        "reused": max(0, cells - made),
        "retried": states.get("released", 0),
        "unknown": states.get("unknown", 0),
    }


def as_json(summary: RunSummary) -> dict[str, Any]:
    """Return a run as it appears in `--json`."""
    run = summary.run
    return {
        "run_id": run.id,
        "experiment": run.experiment,
        "trigger": run.trigger,
        "status": run.status,
        "verdict": run.verdict,
        "simulated": run.simulated,
        "partial": run.partial,
        "stopped_by": run.stopped_by,
        "composite": _interval(summary.overall.composite),
        "pass_rate": _interval(summary.overall.pass_rate),
        "cells": summary.cells,
        "calls": summary.calls,
        "cost_microusd": summary.cost_microusd,
        "tokens": {"in": summary.tokens_in, "out": summary.tokens_out},
        "models": [
            {
                "prompt": scored.prompt,
                "model": scored.model,
                "composite": _interval(scored.composite),
                "pass_rate": _interval(scored.pass_rate),
                "cost_microusd": scored.cost_microusd,
            }
            for scored in summary.by_model
        ],
    }


def _interval(found: Interval | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "estimate": found.estimate,
        "low": found.low,
        "high": found.high,
        "n": found.n,
        "method": found.method,
    }
