"""Decisions on a run: what each gate said, round by round.

A decision that was made is not rewritten. When a run is decided again, because it was graded anew
or went on, the new rows are a further round beside the old ones.
"""

from __future__ import annotations

import json
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.rounding import fixed

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Mapping, Sequence


RowVerdict: TypeAlias = Literal["pass", "fail", "inconclusive", "skipped"]

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
    """What a gate says about a prompt with a model, or about everything."""

    metric: str
    prompt: str | None
    """None, like `model`, when the decision is about the whole run."""
    model: str | None
    verdict: RowVerdict
    sentence: str
    estimate: float | None = None
    """A change in points of 0-1, a relative change, or a level, as `detail["kind"]` says."""
    low: float | None = None
    """With `high`: two-sided, for people; the verdict rests on one-sided bounds."""
    high: float | None = None
    n: int = 0
    """Cases; for shares and latencies, answers."""
    n_more: int | None = None
    """Further cases that would settle it; None when it is settled, or beyond every plan."""
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
        """The verdict as people see it; what judges without a licence say is advice."""
        return "ADVISORY" if "advisory" in self.detail else self.verdict.upper()

    @property
    def doubt(self) -> bool:
        """Whether it is no gate, but what keeps the run from passing."""
        return bool(self.detail.get("doubt"))

    def as_json(self) -> dict[str, Any]:
        """Return the row as it appears in `--json`."""
        shown = {name: getattr(self, name) for name in SHOWN}
        return {**shown, "if_unclear": self.if_unclear, "detail": dict(self.detail)}


def looks_json(rows: Sequence[GateRow]) -> dict[str, Any] | None:
    """Return how far a run with several looks came; None if it was looked at once."""
    looks = [row.detail["look"] for row in rows if row.detail.get("look")]
    if not looks:
        return None
    last = max(looks, key=lambda look: int(look["number"]))
    shown = {name: last[name] for name in ("kind", "number", "of", "at", "most")}
    return {**shown, "sentence": stopped_sentence(rows)}


def stopped_sentence(rows: Sequence[GateRow]) -> str | None:
    """Say how early sampling stopped; None if cases were not taken one after another."""
    sampled = [row for row in rows if row.detail.get("look", {}).get("kind") == "cases"]
    if not sampled:
        return None
    last = max((row.detail["look"] for row in sampled), key=lambda look: int(look["number"]))
    at, most = int(last["at"]), int(last["most"])
    reached = f"{at:,} of {most:,} cases"
    if any(row.verdict == "inconclusive" for row in sampled):
        return f"Still not clear after {reached} (early-stopping corrected)."
    if at >= most:
        return f"Clear after all {most:,} cases (early-stopping corrected)."
    saved = f"Saved about {fixed(100 * (1 - at / most))}% of the cost."
    return f"Stopped after {reached}: already clear (early-stopping corrected). {saved}"


_COLUMNS = ", ".join((*SHOWN, "gate", "detail"))
_TOLD = ("verdict", "estimate", "low", "high", "n", "p", "p_holm")
"""What is told of each of several looks."""


def write_decisions(
    run_id: str, rows: Iterable[GateRow], *, now: str
) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that stores what the gates said, as a new round."""
    kept = tuple(rows)

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
                for position, row in enumerate(kept)
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
    """Return what the gates said of a run, in an earlier round or the last time.

    If they looked several times, the last rows have all looks in their `detail`.
    """
    rows = connection.execute(
        f"select {_COLUMNS} from decision where run_id = :run and round = coalesce(:round, "
        "(select max(round) from decision where run_id = :run)) order by position",
        {"run": run_id, "round": round},
    )
    found = tuple(_row(*row) for row in rows)
    if round is None and any("look" in row.detail for row in found):
        return _with_looks(connection, run_id, found)
    return found


def _with_looks(
    connection: sqlite3.Connection, run_id: str, rows: tuple[GateRow, ...]
) -> tuple[GateRow, ...]:
    """Return rows with what each of them was at every look."""
    taken: dict[int, dict[int, dict[str, object]]] = {}
    stored = connection.execute(
        f"select position, detail, {', '.join(_TOLD)} from decision where run_id = ? "
        "order by round",
        (run_id,),
    )
    for position, detail, *values in stored:
        look = json.loads(detail).get("look")
        if look is not None:
            known = {name: look[name] for name in ("number", "at", "alpha")}
            told = dict(zip(_TOLD, values, strict=True))
            taken.setdefault(position, {}).setdefault(look["number"], {**known, **told})
    return tuple(
        replace(row, detail={**row.detail, "looks": [*taken[position].values()]})
        if position in taken
        else row
        for position, row in enumerate(rows)
    )


def _row(*values: object) -> GateRow:
    *shown, gate, detail = values
    known = json.loads(str(gate))
    return GateRow(
        **dict(zip(SHOWN, shown, strict=True)),  # type: ignore[arg-type]  # as they were written
        if_unclear=known.get("if_unclear", "neutral"),
        gate=known,
        detail=json.loads(str(detail)),
    )


def stored_looks(connection: sqlite3.Connection, run_id: str) -> list[dict[str, Any]]:
    """Return every look that was taken at a run, as the gates kept it, the last round first."""
    rows = connection.execute(
        "select json_extract(detail, '$.look') from decision where run_id = ? "
        "and json_extract(detail, '$.look') is not null order by round desc",
        (run_id,),
    )
    return [json.loads(text) for (text,) in rows]
