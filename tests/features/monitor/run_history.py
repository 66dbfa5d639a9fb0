"""A results file with a history of runs: scores, errors, latency and names of models as given."""

from __future__ import annotations

import datetime as dt
import json
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edison_ci import utc
from edison_ci.store.database import open_database, transaction

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence
    from pathlib import Path

DAY = dt.timedelta(days=1)


@dataclass
class History:
    """Adds runs to a results file, a day apart."""

    path: Path
    experiment: str = "hello"
    at: dt.datetime = dt.datetime(2027, 1, 1, 2, tzinfo=dt.UTC)
    step: dt.timedelta = DAY
    count: int = 0
    clusters: Mapping[str, str] = field(default_factory=dict)

    def add(
        self,
        scores: Mapping[str, float],
        *,
        errors: Mapping[str, str] | None = None,
        latency_ms: int | Mapping[str, int] = 500,
        served: str = "model-1",
        status: str = "COMPLETED",
        reuse: str | None = None,
        regrade: str | None = None,
    ) -> str:
        """Store a run; `reuse` names a run whose answers it has, `regrade` one that it grades."""
        self.count += 1
        self.at += self.step
        now, run_id = utc.timestamp(self.at), f"run-{self.count:03}"
        kept: dict[str, Any] = {"regrade": regrade, "reuse": regrade is None, "selection": {}}
        with closing(open_database(self.path)) as connection, transaction(connection):
            _insert(
                connection, "run", id=run_id, experiment=self.experiment,
                trigger="regrade" if regrade else "schedule", status=status, plan_hash="p",
                snapshot=json.dumps({"command line": kept}), cells_planned=len(scores),
                complete=int(status == "COMPLETED"), created_at=now, finished_at=now,
                models=json.dumps({"answers": {"small": False}}),
            )  # fmt: skip
            for case in {**scores, **(errors or {})}:
                error = (errors or {}).get(case)
                source = reuse or regrade
                number = None if error else self.count
                if source is not None:
                    number = int(source.removeprefix("run-"))
                elif not error:
                    waited = latency_ms if isinstance(latency_ms, int) else latency_ms[case]
                    self._answer(connection, run_id, case, now, waited, served)
                _insert(
                    connection, "cell", id=f"{run_id}-{case}", run_id=run_id, side="head",
                    prompt="hello", version="v", model="small", case_id=case, repeat=0,
                    request_hash=f"hash-{case}", answer_no=number,
                    status="error" if error else "ok",
                    composite=None if error else scores[case], error=error,
                    cluster=self.clusters.get(case),
                )  # fmt: skip
            mean = sum(scores.values()) / max(len(scores), 1)
            zeros = dict.fromkeys(
                ("malformed", "blocked", "skipped", "pass_n", "cost_microusd", "saved_microusd",
                 "tokens_in", "tokens_out"), 0,
            )  # fmt: skip
            _insert(
                connection, "rollup_run", run_id=run_id, side="head", cells=len(scores),
                ok=len(scores), error=len(errors or {}), composite=mean,
                composite_n=len(scores), answers=len(scores), bought=len(scores), **zeros,
            )  # fmt: skip
        return run_id

    def unanswered(self, cases: Sequence[str], error: str) -> None:
        """Store a run that was given up before a cell was done: each call failed twice."""
        run_id = self.add({}, status="FAILED")
        now = utc.timestamp(self.at)
        with closing(open_database(self.path)) as connection, transaction(connection):
            for case in [*cases, *cases]:
                _insert(
                    connection, "attempt", request_hash=f"hash-{case}", run_id=run_id,
                    model="small", phase="generate", state="released", est_microusd=0,
                    cost_microusd=0, est_tokens=0, owner="1-x", sent_at=now, done_at=now,
                    error=error,
                )  # fmt: skip

    def _answer(
        self, connection: sqlite3.Connection, run_id: str, case: str, now: str, ms: int, served: str
    ) -> None:
        attempt = _insert(
            connection, "attempt", request_hash=f"hash-{case}", run_id=run_id, model="small",
            phase="generate", state="settled", est_microusd=0, cost_microusd=0, est_tokens=0,
            owner="1-x", sent_at=now, done_at=now,
        )  # fmt: skip
        _insert(
            connection, "answer", request_hash=f"hash-{case}", answer_no=self.count,
            attempt=attempt, finish_reason="stop", latency_ms=ms, cost_microusd=0,
            cost_kind="billed", served_model=served, created_at=now,
        )  # fmt: skip


def _insert(connection: sqlite3.Connection, table: str, **values: Any) -> int | None:
    places = ", ".join("?" * len(values))
    sql = f"insert into {table} ({', '.join(values)}) values ({places})"
    return connection.execute(sql, [*values.values()]).lastrowid
