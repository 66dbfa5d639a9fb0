"""Where in a stored cell does the value of a metric stand, and how is the metric called?"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Literal, TypeAlias

from edison_ci.frozen import dataclass

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

Kind: TypeAlias = Literal["score", "pass", "amount", "latency", "share", "wins"]

_PART = "left join part p on p.cell_id = c.id and p.kind = :kind and p.name = :part"
_ANSWER = "left join answer a on a.address = c.address and a.take = c.take"
_ANSWERED = "c.status in ('ok', 'malformed', 'blocked')"
_LOOKED_AT = 20
"""Graded cells that are looked at for the names of criteria: each cell has all of them."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that gates decide on."""

    name: str
    kind: Kind
    said: str
    """What it is called in a sentence."""
    value: str = "null"
    """SQL of its value in a cell; null is missing."""
    join: str = ""
    status: str = "c.status"
    """SQL of the cell's status; `inapplicable` takes the whole case out of this metric."""
    parameters: Mapping[str, str] = field(default_factory=dict)


def metric_of(connection: sqlite3.Connection, run_id: str, name: str) -> Metric:
    """Return a metric of a gate as the cells of a run have it."""
    if name in _PLAIN:
        return _PLAIN[name]
    family, _, rest = name.partition(".")
    if family == "safety":
        return Metric(name, "share", rest)
    part = _criterion(connection, run_id, rest) if family == "criterion" else rest
    return Metric(
        name,
        "score",
        part,
        value=_scored("p.score"),
        join=_PART,
        # A check without what it needs is skipped for the case, which is then not missing.
        status="case when p.status = 'skipped' then 'inapplicable' else c.status end",
        parameters={"kind": family, "part": part},
    )


def _scored(value: str, *, blocked: str = "null") -> str:
    """Return the SQL of a score: a malformed answer is an answer, and is worth nothing."""
    return (
        f"case c.status when 'ok' then {value} when 'malformed' then 0 "
        f"when 'blocked' then {blocked} end"
    )


_PLAIN = {
    "composite": Metric("composite", "score", "Quality", value=_scored("c.composite")),
    # What is blocked does not pass; in a pair it is missing, which the pairing sees to.
    "pass_rate": Metric("pass_rate", "pass", "Pass rate", value=_scored("c.passed", blocked="0")),
    "win_rate": Metric("win_rate", "wins", "Win rate"),
    "errors": Metric("errors", "share", "errors"),
    "cost_usd.mean": Metric(
        "cost_usd.mean",
        "amount",
        "Cost",
        value=f"case when {_ANSWERED} then a.cost_microusd / 1000000.0 end",
        join=_ANSWER,
    ),
    "tokens.mean": Metric(
        "tokens.mean",
        "amount",
        "Tokens",
        value=f"case when {_ANSWERED} then a.tokens_in + a.tokens_out end",
        join=_ANSWER,
    ),
    "latency_ms.p95": Metric("latency_ms.p95", "latency", "Latency (p95)"),
}


def _criterion(connection: sqlite3.Connection, run_id: str, wanted: str) -> str:
    """Return the full name of a criterion that is written by name or by slug."""
    rows = connection.execute(
        "select distinct p.name from (select id from cell where run_id = ? and status = 'ok' "
        "limit ?) c join part p on p.cell_id = c.id and p.kind = 'criterion'",
        (run_id, _LOOKED_AT),
    )
    names = [name for (name,) in rows]
    if wanted in names:
        return wanted
    return next((name for name in names if _slug(name) == _slug(wanted)), wanted)


def _slug(name: str) -> str:
    return "-".join(name.lower().split())
