"""Totals that were written when a run ended: of each side, and of each prompt with a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.results.slices import Shown

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

_COLUMNS = (
    "cells, ok, malformed, error, blocked, skipped, composite, composite_low, composite_high, "
    "composite_n, composite_method, pass_rate, pass_low, pass_high, pass_n, pass_method, answers, "
    "bought, cost_microusd, saved_microusd, tokens_in, tokens_out, latency_p50_ms, latency_p95_ms, "
    "missing, composite_worst, composite_best"
)


@dataclass(frozen=True, slots=True)
class Totals:
    """What a side of a run, or a prompt with a model in it, is worth and costs."""

    prompt: str
    """Empty, like `model`, for a whole side."""
    model: str
    version: str
    cells: int
    ok: int
    malformed: int
    error: int
    blocked: int
    skipped: int
    composite: Shown
    pass_rate: Shown
    answers: int
    bought: int
    cost_microusd: int
    """Of the answers that were bought; judges are apart."""
    saved_microusd: int
    tokens_in: int
    tokens_out: int
    p50_ms: int | None
    p95_ms: int | None
    missing: int
    worst: float | None
    best: float | None

    @property
    def answer_cost_microusd(self) -> float | None:
        """What an answer costs on average, whoever paid for it."""
        total = self.cost_microusd + self.saved_microusd
        return total / self.answers if self.answers else None

    @property
    def answer_tokens(self) -> float | None:
        """Tokens of an answer on average, with what was sent."""
        return (self.tokens_in + self.tokens_out) / self.answers if self.answers else None


def _totals(row: Sequence[Any]) -> Totals:
    counts, composite, pass_rate, rest = row[:9], row[9:14], row[14:19], row[19:]
    return Totals(*counts, Shown(*composite), Shown(*pass_rate), *rest)  # type: ignore[call-arg]  # as they were selected


def totals_of_run(connection: sqlite3.Connection, run_id: str, side: str = "head") -> Totals | None:
    """Return the totals of a side of a run; None before it ended."""
    row = connection.execute(
        f"select '', '', '', {_COLUMNS} from rollup_run where run_id = ? and side = ?",
        (run_id, side),
    ).fetchone()
    return None if row is None else _totals(row)


def totals_by_model(
    connection: sqlite3.Connection, run_id: str, side: str = "head"
) -> list[Totals]:
    """Return the totals of each prompt with each model of a side of a run."""
    rows = connection.execute(
        f"select prompt, model, version, {_COLUMNS} from rollup_model "
        "where run_id = ? and side = ? order by prompt, model",
        (run_id, side),
    )
    return [_totals(row) for row in rows]
