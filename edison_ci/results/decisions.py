"""Decisions on a run: the result of each gate, round by round.

A stored decision is not rewritten. When a run is decided again, after an interim analysis or a
resume, the new rows are a further round beside the old ones.
"""

from __future__ import annotations

import json
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.numeric import fixed
from edison_ci.records import Verdict

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Mapping, Sequence


SHOWN = (
    "metric",
    "prompt",
    "model",
    "verdict",
    "sentence",
    "estimate",
    "low",
    "high",
    "n",
    "n_more",
    "p",
    "p_holm",
)
"""Keys of a gate in `--json`, in their order; they are promises."""


@dataclass(frozen=True, slots=True)
class GateRow:
    """Decision of a gate on a prompt with a model, or on the whole run."""

    metric: str
    prompt: str | None
    """None, like `model`, when the decision is about the whole run."""
    model: str | None
    verdict: Verdict
    sentence: str
    estimate: float | None = None
    """A change in points of 0-1, a relative change, or a level, as `detail["kind"]` says."""
    low: float | None = None
    """With `high`: a two-sided interval for display; the verdict rests on one-sided bounds."""
    high: float | None = None
    n: int = 0
    """Cases; for shares and latencies, answers."""
    n_more: int | None = None
    """Further cases that would decide it; None when it is decided, or if that is out of reach."""
    p: float | None = None
    p_holm: float | None = None
    """After allowing for every other row that has a p."""
    if_unclear: str = "neutral"
    gate: Mapping[str, Any] = field(default_factory=dict)
    """The gate as it was when it decided."""
    detail: Mapping[str, Any] = field(default_factory=dict)
    """How the numbers were found: kind, method, level, bounds, missing, seed, notes."""

    @property
    def word(self) -> str:
        """The verdict as it is shown; gates of judges without an approval are advisory."""
        return "ADVISORY" if "advisory" in self.detail else self.verdict.upper()

    @property
    def fails(self) -> bool:
        """Whether it keeps the run from passing: it fails, or is unclear and must not be."""
        if self.verdict == Verdict.INCONCLUSIVE:
            return self.if_unclear == "fail"
        return self.verdict == Verdict.FAIL

    @property
    def relative(self) -> bool:
        """Whether it compares with the base."""
        return self.metric == "flips" or self.gate.get("no_worse_than") is not None

    @property
    def doubt(self) -> bool:
        """Whether it is not a gate, but a doubt that keeps the run from passing."""
        return bool(self.detail.get("doubt"))

    def as_json(self) -> dict[str, Any]:
        """Return the row as it appears in `--json`."""
        fields = {name: getattr(self, name) for name in SHOWN}
        return {**fields, "if_unclear": self.if_unclear, "detail": dict(self.detail)}


def interim_json(rows: Sequence[GateRow]) -> dict[str, Any] | None:
    """Return the last interim analysis of a run; None if it had none."""
    last = last_of(row.detail["interim"] for row in rows if row.detail.get("interim"))
    if last is None:
        return None
    fields = {name: last[name] for name in ("kind", "number", "of", "at", "most")}
    return {**fields, "sentence": stopped_sentence(rows)}


def last_of(interims: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the last of some interim analyses as they are stored; None without any."""
    return max(interims, key=lambda interim: int(interim["number"]), default=None)


def stopped_sentence(rows: Sequence[GateRow]) -> str | None:
    """Return a sentence on how early sampling stopped; None without interim analyses of cases."""
    sampled = [row for row in rows if row.detail.get("interim", {}).get("kind") == "cases"]
    last = last_of(row.detail["interim"] for row in sampled)
    if last is None:
        return None
    at, most = int(last["at"]), int(last["most"])
    reached = f"{at:,} of {most:,} cases"
    if any(row.verdict is Verdict.INCONCLUSIVE for row in sampled):
        return f"Still not clear after {reached} (early-stopping corrected)."
    if at >= most:
        return f"Clear after all {most:,} cases (early-stopping corrected)."
    saved = f"Saved about {fixed(100 * (1 - at / most))}% of the cost."
    return f"Stopped after {reached}: already clear (early-stopping corrected). {saved}"


_COLUMNS = ", ".join((*SHOWN, "gate", "detail"))
_HISTORY = ("verdict", "estimate", "low", "high", "n", "p", "p_holm")
"""Columns that are kept of each interim analysis."""


def write_decisions(
    run_id: str, rows: Iterable[GateRow], *, now: str
) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that stores the rows of all gates as a new round."""
    stored = tuple(rows)

    def operation(connection: sqlite3.Connection) -> None:
        number = count_rounds(connection, run_id)
        places = ", ".join("?" * (len(SHOWN) + 6))
        connection.executemany(
            f"insert into decision (run_id, round, position, {_COLUMNS}, decided_at) "
            f"values ({places})",
            [
                (
                    run_id,
                    number,
                    position,
                    *(getattr(row, name) for name in SHOWN),
                    json.dumps(row.gate, sort_keys=True),
                    json.dumps(row.detail, sort_keys=True),
                    now,
                )
                for position, row in enumerate(stored)
            ],
        )

    return operation


def count_rounds(connection: sqlite3.Connection, run_id: str) -> int:
    """Return how many times a run was decided."""
    row = connection.execute(
        "select coalesce(max(round) + 1, 0) from decision where run_id = ?", (run_id,)
    ).fetchone()
    return int(row[0])


def decisions_of(
    connection: sqlite3.Connection, run_id: str, *, round: int | None = None
) -> tuple[GateRow, ...]:
    """Return the decisions on a run in one round, or in the last.

    Where there were interim analyses, the last rows have all of them in their `detail`.
    """
    rows = connection.execute(
        f"select {_COLUMNS} from decision where run_id = :run and round = coalesce(:round, "
        "(select max(round) from decision where run_id = :run)) order by position",
        {"run": run_id, "round": round},
    )
    gate_rows = tuple(_row(*row) for row in rows)
    if round is None and any("interim" in row.detail for row in gate_rows):
        return _with_interims(connection, run_id, gate_rows)
    return gate_rows


def _with_interims(
    connection: sqlite3.Connection, run_id: str, rows: tuple[GateRow, ...]
) -> tuple[GateRow, ...]:
    """Return rows with their values at every interim analysis."""
    history: dict[int, dict[int, dict[str, object]]] = {}
    stored = connection.execute(
        f"select position, detail, {', '.join(_HISTORY)} from decision where run_id = ? "
        "order by round",
        (run_id,),
    )
    for position, detail, *values in stored:
        interim = json.loads(detail).get("interim")
        if interim is not None:
            place = {name: interim[name] for name in ("number", "at", "alpha")}
            values_then = dict(zip(_HISTORY, values, strict=True))
            history.setdefault(position, {}).setdefault(interim["number"], {**place, **values_then})
    return tuple(
        replace(row, detail={**row.detail, "interim_history": [*history[position].values()]})
        if position in history
        else row
        for position, row in enumerate(rows)
    )


def _row(*values: object) -> GateRow:
    *columns, gate, detail = values
    gate_file = json.loads(str(gate))
    fields: dict[str, Any] = dict(zip(SHOWN, columns, strict=True))
    fields["verdict"] = Verdict(fields["verdict"])
    return GateRow(
        **fields,
        if_unclear=gate_file.get("if_unclear", "neutral"),
        gate=gate_file,
        detail=json.loads(str(detail)),
    )


def stored_interims(connection: sqlite3.Connection, run_id: str) -> list[dict[str, Any]]:
    """Return every interim analysis of a run as stored with its gates, the last round first."""
    rows = connection.execute(
        "select json_extract(detail, '$.interim') from decision where run_id = ? "
        "and json_extract(detail, '$.interim') is not null order by round desc",
        (run_id,),
    )
    return [json.loads(text) for (text,) in rows]
