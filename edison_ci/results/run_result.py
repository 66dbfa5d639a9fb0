"""What did a run find, in numbers?"""

from __future__ import annotations

import datetime as dt
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Protocol

from edison_ci.frozen import dataclass
from edison_ci.plugins import later
from edison_ci.results.rolled_up import STATUSES, sums_of
from edison_ci.results.slices import Breakdown, breakdown_of
from edison_ci.results.snapshot import material_of
from edison_ci.results.spending import calls_of
from edison_ci.store.grades import held_to_people
from edison_ci.store.runs import Run, cell_statuses

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from edison_ci.results.comparing import Compared
    from edison_ci.results.human_grades import People
    from edison_ci.results.rollups import PartTotal
    from edison_ci.results.scores import Scored
    from edison_ci.stats.scores import Interval


class Row(Protocol):
    """What a gate said."""

    def as_json(self) -> dict[str, Any]:
        """Return it with the keys of the contract."""
        ...


# Loaded late: only a comparison needs more of the statistics than intervals.
_compared = later("edison_ci.results.comparing:compared")
_people_of = later("edison_ci.results.human_grades:people_of")
LISTED = 5


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run as reports show it."""

    run: Run
    prompts: tuple[tuple[str, str], ...]
    """Id and version of each prompt."""
    cells: dict[str, int]
    overall: Scored
    by_model: tuple[Scored, ...]
    parts: tuple[PartTotal, ...]
    calls: dict[str, int]
    cost_microusd: int
    tokens_in: int
    tokens_out: int
    error_kinds: dict[str, int]
    skips: tuple[tuple[str, str], ...] = ()
    """The first cells that were left out, as CASE@MODEL, and why."""
    against: Compared | None = None
    """The base, and the change from it, where there is one."""
    breakdown: Breakdown = field(default_factory=Breakdown)
    """Kinds of cases, draws and what is missing, once it has ended."""
    worked_s: float | None = None
    """Seconds that its sessions took, by a clock that nobody sets."""
    judges: Any = None
    """What its judges say beside the scores, where somebody has worked it out."""
    people: People | None = None  # what people said of its answers, if anybody did

    @property
    def wall_s(self) -> float | None:
        """Seconds that were spent on it; None while it runs."""
        if self.run.finished_at is None:
            return None
        if self.worked_s is not None:
            return self.worked_s
        begun, ended = (
            dt.datetime.fromisoformat(time) for time in (self.run.created_at, self.run.finished_at)
        )
        return max((ended - begun).total_seconds(), 0.0)


def summarize(connection: sqlite3.Connection, run: Run) -> RunSummary:
    """Return the numbers of a run from what is stored."""
    counted = cell_statuses(connection, run.id)
    prompts = connection.execute(
        "select distinct prompt, version from cell where run_id = ? and side = 'head' "
        "order by prompt",
        (run.id,),
    )
    sums = sums_of(connection, run, counted)
    calls = sums.calls
    overall, *by_model = (_priced(one, calls.costs) for one in sums.scores)
    return RunSummary(
        run=run,
        prompts=tuple(prompts.fetchall()),
        cells={"total": run.cells_planned, **{s: counted.get(s, 0) for s in STATUSES}},
        overall=overall,
        by_model=tuple(by_model),
        parts=tuple(sums.parts),
        calls=calls_of(connection, run, calls),
        cost_microusd=sum(calls.costs.values()),
        tokens_in=calls.tokens_in,
        tokens_out=calls.tokens_out,
        error_kinds=_error_kinds(connection, run.id) if counted.get("error") else {},
        worked_s=_worked_s(connection, run.id),
        skips=_skips(connection, run.id) if counted.get("skipped") else (),
        against=_compared(connection, run.id) if run.base_commit else None,
        breakdown=breakdown_of(connection, run.id),
        people=_people_of(connection, run) if held_to_people(connection, run) else None,
    )


def _priced(one: Scored, costs: dict[tuple[str, str], int]) -> Scored:
    """Return scores with what the answers cost."""
    cost = costs.get((one.prompt, one.model), 0) if one.model else sum(costs.values())
    return replace(one, cost_microusd=cost)


def _worked_s(connection: sqlite3.Connection, run_id: str) -> float | None:
    """Return the sum over sessions of how long each lasted, as far as it could tell."""
    row = connection.execute(
        "select max(worked) from (select sum(longest) as worked from (select shard, "
        "max(json_extract(data, '$.seconds')) as longest from (select data, "
        "json_extract(data, '$.shard') as shard, "
        "sum(type = 'status:changed' and json_extract(data, '$.to') = 'EXECUTING') "
        "over (order by seq) as session from event where run_id = ?) group by shard, session) "
        "group by shard)",
        (run_id,),
    ).fetchone()
    return None if row[0] is None else float(row[0])


def _skips(connection: sqlite3.Connection, run_id: str) -> tuple[tuple[str, str], ...]:
    rows = connection.execute(
        "select case_id || '@' || model, coalesce(reason, '') from cell where run_id = ? "
        "and status = 'skipped' order by case_id limit ?",
        (run_id, LISTED),
    )
    return tuple(rows.fetchall())


def _error_kinds(connection: sqlite3.Connection, run_id: str) -> dict[str, int]:
    rows = connection.execute(
        "select coalesce(error, 'ERROR'), count(*) from cell where run_id = ? and status = 'error' "
        "group by 1 order by 2 desc",
        (run_id,),
    )
    return dict(rows.fetchall())


# --- as JSON --------------------------------------------------------------------------------------


def as_json(summary: RunSummary, rows: Sequence[Row] = ()) -> dict[str, Any]:
    """Return a run as it appears in `--json`, with what its gates said."""
    run = summary.run
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
            for prompt, version in summary.prompts
        ],
        "composite": interval_json(summary.overall.composite),
        "pass_rate": interval_json(summary.overall.pass_rate),
        "against": _against(summary),
        "gates": [row.as_json() for row in rows],
        "human": summary.people.as_json() if summary.people is not None else None,
        "cells": summary.cells,
        "errors": summary.error_kinds,
        "calls": summary.calls,
        "cost_microusd": summary.cost_microusd,
        "tokens": {"in": summary.tokens_in, "out": summary.tokens_out},
        "wall_s": summary.wall_s,
        "created_at": run.created_at,
        "finished_at": run.finished_at,
        "models": [_scored(scored) for scored in summary.by_model],
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
            for part in summary.parts
        ],
    }


def _against(summary: RunSummary) -> dict[str, Any] | None:
    run, found = summary.run, summary.against
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
