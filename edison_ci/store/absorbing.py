"""How does a run of one results file come into another, once and in full?

Rows that belong to a run are carried over under its name there. Calls and answers may be there
already, because both files grew from one, or because another part brought them: an attempt is known
by who made it, when and for what, and its money is booked when it comes in for the first time. An
answer to a call that the file has another answer to becomes a further take.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Any

from edison_ci.frozen import dataclass
from edison_ci.store.naming import cell_id
from edison_ci.store.pointers import pointing
from edison_ci.store.runs import IMPORT
from edison_ci.store.totals import add_to_totals

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping

    _Values = tuple[Any, ...] | dict[str, Any]

_CONCLUDED = ("decision", "licence")
"""What is made of the cells of a run when it ends, like every table named rollup_..."""
IMPORTED = "imported"
"""How the cost of an answer is known that came in with a file: by what the file says."""
_KNOWN_BY = (
    "address", "model", "phase", "est_microusd", "est_tokens", "owner", "sent_at",
)  # fmt: skip
"""Columns of an attempt that no copy of it changes."""
_ORDINAL = (
    f"row_number() over (partition by {', '.join(_KNOWN_BY)}, "
    "iif(state = 'reserved', 'unknown', state) order by id) as ordinal"
)
"""Which of several attempts it is that are alike in all these."""


def absorb(
    target: sqlite3.Connection, source: sqlite3.Connection, run_id: str, *, into: str, shard: str
) -> None:
    """Bring what a shard measured into a run that is there already, in the transaction at hand."""
    _Transfer(target, source, run_id, into).measured(shard)


def take_over(
    target: sqlite3.Connection,
    source: sqlite3.Connection,
    run_id: str,
    *,
    foreign: bool = False,
) -> None:
    """Bring a finished run with all that was concluded, in the transaction at hand.

    One that is `foreign` is marked so, with the answers that come in with it.
    """
    transfer = _Transfer(target, source, run_id, run_id, foreign)
    marked = {"trigger": f"'{IMPORT}'"} if foreign else {}
    transfer.carry("run", marked, "where x.id = ?", (run_id,))
    transfer.measured("")
    tables = [t for t in transfer.columns if t in _CONCLUDED or t.startswith("rollup_")]
    for table in tables:
        transfer.carry(table, {}, "where x.run_id = ?", (run_id,))


@dataclass(slots=True)
class _Transfer:
    """One run on its way from one file to another."""

    target: sqlite3.Connection
    source: sqlite3.Connection
    run_id: str
    into: str
    foreign: bool = False
    columns: dict[str, list[str]] = field(default_factory=dict)
    takes: dict[tuple[str, int], int] = field(default_factory=dict)
    """Answers that are another take here than there."""
    due: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """What is to be booked: by scope, day and kind."""

    def __post_init__(self) -> None:
        rows = self.source.execute(
            "select t.name, c.name from sqlite_schema t, pragma_table_info(t.name) c "
            "where t.type = 'table' and t.name not like 'sqlite_%' order by t.name, c.cid"
        )
        for table, column in rows:
            self.columns.setdefault(table, []).append(column)
        self.source.create_function("new_run", 0, lambda: self.into, deterministic=True)
        self.source.create_function("new_take", 2, self._new_take)
        self.source.create_function(
            "new_cell", 5, lambda *named: cell_id(self.into, *named), deterministic=True
        )

    def measured(self, shard: str) -> None:
        """Carry over calls, answers, cells, grades, comparisons and events."""
        self._answers()
        mine, here = (self.run_id,), {"run_id": "new_run()"}
        named = {"id": _new("x"), "take": "new_take(x.address, x.take)", **here}
        self.carry("cell", named, "where x.run_id = ?", mine)
        self.carry("run_case", here, "where x.run_id = ?", mine)
        cells = "join cell c on c.id = x.cell_id where c.run_id = ?"
        cell = {"cell_id": _new("c")}
        take = {"take": "new_take(x.address, x.take)"}
        self.carry("part", cell, cells, mine)
        self.carry("opinion", cell, cells, mine)
        self.carry("judgment", cell | take, cells, mine)
        self._manual_grades(cell | take, cells)
        pair = {"a_cell": _new("a"), "b_cell": _new("b"), **here}
        both = "join cell a on a.id = x.a_cell join cell b on b.id = x.b_cell where x.run_id = ?"
        self.carry("comparison", pair, both, mine)
        marked = {"data": "json_set(x.data, '$.shard', :shard)"} if shard else {}
        told = {"shard": shard, "run": self.run_id}
        events = "where x.run_id = :run order by x.seq"
        self.carry("event", {"seq": "null", **marked, **here}, events, told)

    def carry(self, table: str, changes: Mapping[str, str], rest: str, values: _Values) -> None:
        """Insert the rows of a table, some of their columns changed."""
        self._insert(table, self._picked(table, changes, rest, values))

    def _picked(
        self, table: str, changes: Mapping[str, str], rest: str, values: _Values
    ) -> Iterable[tuple[Any, ...]]:
        picked = ", ".join(changes.get(name, f"x.{name}") for name in self.columns[table])
        return self.source.execute(f"select {picked} from {table} x {rest}", values)

    def _insert(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        names = self.columns[table]
        places = ", ".join("?" * len(names))
        self.target.executemany(f"insert into {table} ({', '.join(names)}) values ({places})", rows)

    def _new_take(self, address: str, take: int | None) -> int | None:
        return take if take is None else self.takes.get((address, take), take)

    def _manual_grades(self, changes: Mapping[str, str], rest: str) -> None:
        """Carry over what people said, unless it came with an earlier part."""
        names = self.columns["manual_grade"]
        told = [name for name in names if name not in ("id", "cell_id")]
        same = " and ".join(f"{name} is ?" for name in told)
        for row in self._picked("manual_grade", changes, f"{rest} order by x.id", (self.run_id,)):
            found = dict(zip(names, row, strict=True))
            known = self.target.execute(
                f"select 1 from manual_grade where {same}", [found[name] for name in told]
            ).fetchone()
            if known is None:
                self._insert("manual_grade", [(None, *row[1:])])

    # --- calls, answers, money --------------------------------------------------------------------

    def _answers(self) -> None:
        """Carry over every attempt of the run, and those whose answers it reused."""
        known = self._known()
        for attempt, answer in self._attempts():
            if attempt["state"] == "reserved":  # its maker is gone, or the shard would not be done
                attempt |= {"state": "unknown", "error": "the process died"}
            here = known.get(tuple(attempt[name] for name in (*_KNOWN_BY, "state", "ordinal")))
            if here is None and answer is not None and answer["cost_kind"] == "replayed":
                here = self._same_recording(answer)
            if here is not None:
                self._note_take(answer, here)
                continue
            here = self._book(attempt, answer)
            if answer is not None:
                self._store(answer, here)
        self._add_to_totals()

    def _attempts(self) -> Iterator[tuple[dict[str, Any], dict[str, Any] | None]]:
        names = [*self.columns["attempt"], "ordinal", "of_run"]
        answers = self.columns["answer"]
        used = pointing(self.source, cells="select id from cell where run_id = :run")
        rows = self.source.execute(
            f"with used as ({used}), numbered as (select t.*, {_ORDINAL} from attempt t) "
            "select t.*, r.experiment, a.* from numbered t left join run r on r.id = t.run_id "
            "left join answer a on a.attempt = t.id where t.run_id = :run "
            "or (a.address, a.take) in (select address, take from used) order by t.id",
            {"run": self.run_id},
        )
        for row in rows:
            attempt = dict(zip(names, row[: len(names)], strict=True))
            attempt["experiment"] = attempt["experiment"] or attempt["of_run"]
            found = dict(zip(answers, row[len(names) :], strict=True))
            yield attempt, found if found["attempt"] is not None else None

    def _known(self) -> dict[tuple[Any, ...], int]:
        """Return the attempts here that may be among those there, by what they are known by."""
        owners = self.source.execute("select distinct owner from attempt").fetchall()
        known: dict[tuple[Any, ...], int] = {}
        for (owner,) in owners:
            rows = self.target.execute(
                f"select {', '.join(_KNOWN_BY)}, state, {_ORDINAL}, id from attempt t "
                "where owner = ?",
                (owner,),
            )
            known.update((tuple(row[:-1]), row[-1]) for row in rows)
        return known

    def _same_recording(self, answer: Mapping[str, Any]) -> int | None:
        """Return the attempt here whose answer is from the same recording."""
        row = self.source.execute(
            "select sha256 from answer_text where address = ? and take = ?",
            (answer["address"], answer["take"]),
        ).fetchone()
        found = self.target.execute(
            "select a.attempt from answer a join answer_text t using (address, take) "
            "where a.address = ? and a.cost_kind = 'replayed' and t.sha256 = ? "
            "and a.cost_microusd = ?",
            (answer["address"], row[0] if row else None, answer["cost_microusd"]),
        ).fetchone()
        return None if found is None else int(found[0])

    def _book(self, attempt: dict[str, Any], answer: Mapping[str, Any] | None) -> int:
        run = self.into if attempt["run_id"] == self.run_id else attempt["run_id"]
        names = self.columns["attempt"]
        values = [None if name == "id" else attempt[name] for name in names]
        values[names.index("run_id")] = run
        places = ", ".join("?" * len(names))
        row = self.target.execute(
            f"insert into attempt ({', '.join(names)}) values ({places}) returning id", values
        ).fetchone()
        self._count(attempt, answer, run)
        return int(row[0])

    def _count(
        self, attempt: Mapping[str, Any], answer: Mapping[str, Any] | None, run: str
    ) -> None:
        """Count what an attempt cost, or may have cost, in every scope it counts against."""
        if attempt["state"] == "released" or attempt["phase"] == "replay":
            return
        money, tokens = attempt["est_microusd"], attempt["est_tokens"]
        if attempt["state"] == "settled" and answer is not None:
            money = attempt["cost_microusd"]
            if answer["tokens_in"] is not None and answer["tokens_out"] is not None:
                tokens = answer["tokens_in"] + answer["tokens_out"]
        scopes = ["project", f"run:{run}"]
        scopes += [f"{kind}:{attempt[kind]}" for kind in ("experiment", "loop") if attempt[kind]]
        for scope in scopes:
            self.due[scope, attempt["sent_at"][:10], "microusd"] += money
            self.due[scope, attempt["sent_at"][:10], "tokens"] += tokens

    def _add_to_totals(self) -> None:
        places = {(scope, day) for scope, day, _ in self.due}
        add_to_totals(
            self.target,
            [
                (*place, self.due[*place, "microusd"], self.due[*place, "tokens"])
                for place in places
            ],
        )

    def _store(self, answer: Mapping[str, Any], attempt: int) -> None:
        """Store an answer and its text as the next take of its call."""
        row = self.target.execute(
            "select coalesce(max(take) + 1, 0) from answer where address = ?", (answer["address"],)
        ).fetchone()
        here = {**answer, "attempt": attempt, "take": int(row[0])}
        if self.foreign:
            here["cost_kind"] = IMPORTED
        self._insert("answer", [tuple(here[name] for name in self.columns["answer"])])
        self._note_take(answer, attempt)
        self.carry(
            "answer_text",
            {"take": str(here["take"])},
            "where x.address = ? and x.take = ?",
            (answer["address"], answer["take"]),
        )

    def _note_take(self, answer: Mapping[str, Any] | None, attempt: int) -> None:
        if answer is None:
            return
        row = self.target.execute(
            "select take from answer where attempt = ?", (attempt,)
        ).fetchone()
        if row is not None and row[0] != answer["take"]:
            self.takes[answer["address"], answer["take"]] = int(row[0])


def _new(table: str) -> str:
    names = ("side", "prompt", "model", "case_id", "draw")
    return f"new_cell({', '.join(f'{table}.{name}' for name in names)})"
