"""The newest test of each model by `edison models test`, and what each model was called for."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edison_ci.store.origins import MADE_HERE

if TYPE_CHECKING:
    import sqlite3


class ModelTest(NamedTuple):
    """The newest short call that tested a model."""

    time: str
    ok: bool
    error: str
    """Kind of the failure; empty if there was none."""
    latency_ms: int | None


class ModelUse(NamedTuple):
    """Calls of a model in finished runs."""

    last_day: str
    calls: int
    cost_microusd: int


def last_tests(connection: sqlite3.Connection) -> dict[str, ModelTest]:
    """Return the newest test of each model that was sent, by its name in models.yaml."""
    rows = connection.execute(
        "select t.model, coalesce(t.done_at, t.sent_at), t.state = 'settled', t.error, "
        "a.latency_ms from attempt t left join answer a on a.attempt = t.id "
        "where t.run_id >= 'test-' and t.run_id < 'test.' order by t.id"
    )
    return {
        model: ModelTest(time, bool(ok), str(error or "").partition(":")[0], latency)
        for model, time, ok, error, latency in rows
    }


def uses_since(connection: sqlite3.Connection, since: str) -> dict[str, ModelUse]:
    """Return what each model was called for in finished runs since a day."""
    rows = connection.execute(
        "select model, max(day), sum(calls), sum(cost_microusd) from rollup_spending "
        f"where day >= ? and {MADE_HERE} group by model",
        (since,),
    )
    return {model: ModelUse(*use) for model, *use in rows}
