"""How are cells of two runs, or two prompts of one run, set side by side?

As if they were the two sides of one run: they are copied into a temporary table that stands before
the stored one, one choice as base, the other as head, and everything that reads cells can then
compare them. The file itself is open for reading only, and stays as it is.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from edison_ci.errors import UsageError
from edison_ci.frozen import dataclass
from edison_ci.names import did_you_mean
from edison_ci.stats.paired import match_cases

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.stats.paired import Matching
    from edison_ci.store.runs import Run

LINEUP = "lineup"
"""The id of the run that the two choices seem to be."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Cells of a run: one side of it, and perhaps one prompt or one version of it."""

    told: str
    """As it was asked for."""
    run: Run
    side: str = "head"
    prompt: str | None = None
    version: str | None = None
    """The first digits of the version's hash."""
    models: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return what was chosen."""
        return {
            "asked": self.told,
            "run_id": self.run.id,
            "experiment": self.run.experiment,
            "side": self.side,
            "prompt": self.prompt,
            "hash": self.version,
            "commit": self.run.commit_id if self.side == "head" else self.run.base_commit,
            "simulated": self.run.simulated,
        }


@dataclass(frozen=True, slots=True)
class Lineup:
    """Which cells stand side by side."""

    matching: Matching
    alone: tuple[str, ...] = field(default=())
    """Prompts and models that only one of the two has."""


def line_up(connection: sqlite3.Connection, a: Choice, b: Choice) -> Lineup:
    """Set two choices side by side: what A has is the base, what B has is the head."""
    connection.execute("pragma query_only = 0")
    connection.execute("drop table if exists temp.cell")
    connection.execute("create temp table cell as select * from main.cell where 0")
    for side, choice in (("base", a), ("head", b)):
        _copy(connection, side, choice)
    alone = [name for what in ("prompt", "model") for name in _alike(connection, what)]
    connection.execute("create index temp.in_order on cell (side, prompt, model, case_id, draw)")
    connection.execute("create index temp.by_id on cell (id)")
    matching = match_cases(_contents(connection, "base"), _contents(connection, "head"))
    if not matching.common:
        raise UsageError(
            f"{a.told} and {b.told} have no case in common",
            hint="a case is the same if its input and expected output are",
        )
    if matching.paired:
        others = {*matching.added, *matching.removed, *matching.changed}
        connection.executemany("delete from temp.cell where case_id = ?", [(c,) for c in others])
    return Lineup(matching, tuple(alone))


def _copy(connection: sqlite3.Connection, side: str, choice: Choice) -> None:
    where, values = ["run_id = ?", "side = ?"], [choice.run.id, choice.side]
    if choice.prompt is not None:
        where.append("prompt = ?")
        values.append(choice.prompt)
    if choice.version is not None:
        where.append("substr(version, 1, ?) = ?")
        values += [str(len(choice.version)), choice.version]
    if choice.models:
        where.append(f"model in ({', '.join('?' * len(choice.models))})")
        values += choice.models
    columns = [row[1] for row in connection.execute("pragma main.table_info(cell)")]
    shown = ", ".join({"run_id": "?", "side": "?"}.get(name, name) for name in columns)
    done = connection.execute(
        f"insert into temp.cell select {shown} from main.cell where {' and '.join(where)}",
        (LINEUP, side, *values),
    )
    if not done.rowcount:
        raise _nothing(connection, choice)


def _nothing(connection: sqlite3.Connection, choice: Choice) -> UsageError:
    rows = connection.execute(
        "select distinct model from main.cell where run_id = ? and side = ?",
        (choice.run.id, choice.side),
    )
    models = [name for (name,) in rows]
    for name in choice.models:
        if name not in models:
            hint = did_you_mean(name, models, label="models")
            return UsageError(f"run {choice.run.id} has no model {name!r}", hint=hint)
    return UsageError(
        f"run {choice.run.id} has no cell of {choice.told}", hint="see: edison status"
    )


def _alike(connection: sqlite3.Connection, what: str) -> list[str]:
    """Keep the prompts or models that both have; a single one on each side is set against it."""
    base, head = (
        {
            name
            for (name,) in connection.execute(
                f"select distinct {what} from temp.cell where side = ?", (side,)
            )
        }
        for side in ("base", "head")
    )
    alone = sorted(base ^ head)
    if base & head:
        connection.executemany(
            f"delete from temp.cell where {what} = ?", [(name,) for name in alone]
        )
        return alone
    if len(base) > 1 or len(head) > 1:
        raise UsageError(
            f"they have no {what} in common: {', '.join(sorted(base))} and "
            f"{', '.join(sorted(head))}",
            hint="choose one of each, as PROMPT@HASH" if what == "prompt" else "choose --model",
        )
    connection.execute(f"update temp.cell set {what} = ?", (" and ".join((*base, *head)),))
    return []


def _contents(connection: sqlite3.Connection, side: str) -> dict[str, str]:
    """Return what each case asks and expects, as a hash."""
    rows = connection.execute(
        "select case_id, min(coalesce(case_hash, '')) from temp.cell where side = ? "
        "group by case_id",
        (side,),
    )
    return dict(rows.fetchall())
