"""What was decided about a run, and when?

A decision that was made is not rewritten. When a run is decided again, because it was graded anew
or went on, the new rows are a further round beside the old ones.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci.results.rows import SHOWN, GateRow

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable

_COLUMNS = ", ".join((*SHOWN, "gate", "detail"))
_TOLD = ("verdict", "estimate", "low", "high", "n", "p", "p_holm")
"""What is told of each of several looks."""


def write_decisions(
    run_id: str, rows: Iterable[GateRow], *, now: str
) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that stores what the gates said, as a new round."""
    kept = tuple(rows)

    def operation(connection: sqlite3.Connection) -> None:
        (number,) = connection.execute(
            "select coalesce(max(round) + 1, 0) from decision where run_id = ?", (run_id,)
        ).fetchone()
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
