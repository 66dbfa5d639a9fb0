"""Copies a run of one results file into another, once and in full.

Rows that belong to a run are carried over under its name there. Calls and answers may be there
already, because both files grew from one, or because another part brought them: an attempt is known
by who made it, when and for what, and its money is booked when it comes in for the first time. An
answer to a call that the file has another answer to becomes a further take.
"""

from __future__ import annotations

import json
from dataclasses import field
from itertools import count
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.store.naming import cell_id
from edison_ci.store.retention import pointing
from edison_ci.store.runs import IMPORT
from edison_ci.store.totals import Totals

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping

    from sqlite_utils import Database

_CONCLUDED = ("decision", "licence")
"""What is made of the cells of a run when it ends, like every table named rollup_..."""
IMPORTED = "imported"
"""How the cost of an answer is known that came in with a file: by what the file says."""
_KNOWN_BY = (
    "address", "model", "phase", "est_microusd", "est_tokens", "owner", "sent_at",
)  # fmt: skip
"""Columns of an attempt that no copy of it changes."""
_ORDINAL = (
    f"row_number() over (partition by {', '.join(f't.{name}' for name in _KNOWN_BY)}, "
    "iif(t.state = 'reserved', 'unknown', t.state) order by t.id) as ordinal"
)
"""Which of several attempts it is that are alike in all these."""
_CALLS = f"""
with used as ({{used}}), numbered as (select t.*, {_ORDINAL} from attempt t)
select t.id, {", ".join(f"t.{name}" for name in _KNOWN_BY)}, t.ordinal, t.run_id, t.loop,
  coalesce(t.experiment, r.experiment) as experiment,
  iif(t.state = 'reserved', 'unknown', t.state) as state,
  iif(t.state = 'settled' and a.take is not null, t.cost_microusd, t.est_microusd) as microusd,
  iif(t.state = 'settled', coalesce(a.tokens_in + a.tokens_out, t.est_tokens), t.est_tokens)
    as tokens,
  a.take, a.cost_kind, a.cost_microusd as answer_microusd, x.sha256
from numbered t left join run r on r.id = t.run_id left join answer a on a.attempt = t.id
left join answer_text x on x.address = a.address and x.take = a.take
where t.run_id = :run or (a.address, a.take) in (select address, take from used) order by t.id
"""
_ARE_NEW = "select value from json_each(:new)"
_TAKE = {"take": "new_take(x.address, x.take)"}


def absorb(
    target: sqlite3.Connection, source: sqlite3.Connection, run_id: str, *, into: str, shard: str
) -> None:
    """Bring what a shard measured into a run that is there already, in the transaction at hand."""
    _Transfer(_tables(target), _tables(source), run_id, into, shard=shard).measured()


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
    transfer = _Transfer(_tables(target), _tables(source), run_id, run_id, foreign=foreign)
    marked = {"trigger": f"'{IMPORT}'"} if foreign else {}
    transfer.carry("run", marked, "where x.id = :run")
    transfer.measured()
    for table in transfer.source.table_names():
        if table in _CONCLUDED or table.startswith("rollup_"):
            transfer.carry(table, {}, "where x.run_id = :run")


def _tables(connection: sqlite3.Connection) -> Database:
    """Return the tables of an open file; nothing of the connection is changed.

    Inside a transaction sqlite-utils makes savepoints and never commits.
    """
    from sqlite_utils import Database

    return Database(connection, recursive_triggers=False, execute_plugins=False)


@dataclass(slots=True)
class _Transfer:
    """One run on its way from one file to another."""

    target: Database
    source: Database
    run_id: str
    into: str
    shard: str = ""
    foreign: bool = False
    attempts: dict[int, int] = field(default_factory=dict)
    """The number here of every attempt that is new here, by its number there."""
    takes: dict[tuple[str, int], int] = field(default_factory=dict)
    """Answers that are another take here than there."""
    values: dict[str, str] = field(default_factory=dict)
    """What queries on the source may name."""

    def __post_init__(self) -> None:
        self.values |= {"run": self.run_id, "shard": self.shard}
        create = self.source.conn.create_function
        create("new_run", 0, lambda: self.into, deterministic=True)
        create("new_attempt", 1, self.attempts.get)
        create("new_take", 2, lambda address, take: self.takes.get((address, take), take))
        create("new_cell", 5, lambda *named: cell_id(self.into, *named), deterministic=True)

    def measured(self) -> None:
        """Carry over calls, answers, cells, grades, comparisons and events."""
        self._match_calls()
        self._carry_calls()
        here = {"run_id": "new_run()"}
        self.carry("cell", {"id": _new("x"), **_TAKE, **here}, "where x.run_id = :run")
        self.carry("run_case", here, "where x.run_id = :run")
        cells = "join cell c on c.id = x.cell_id where c.run_id = :run"
        cell = {"cell_id": _new("c")}
        self.carry("part", cell, cells)
        self.carry("opinion", cell, cells)
        self.carry("judgment", cell | _TAKE, cells)
        self._carry_grades(cell | _TAKE, f"{cells} order by x.id")
        pair = {"a_cell": _new("a"), "b_cell": _new("b"), **here}
        both = "join cell a on a.id = x.a_cell join cell b on b.id = x.b_cell where x.run_id = :run"
        self.carry("comparison", pair, both)
        marked = {"data": "json_set(x.data, '$.shard', :shard)"} if self.shard else {}
        self.carry(
            "event", {"seq": "null", **marked, **here}, "where x.run_id = :run order by x.seq"
        )

    def carry(self, table: str, changes: Mapping[str, str], rest: str) -> None:
        """Insert the rows of a table, some of their columns changed."""
        rows = self.source.execute(self._select(table, changes, rest), self.values)
        names = [column[0] for column in rows.description]
        places = ", ".join("?" * len(names))
        # `insert_all` of sqlite-utils takes twice as long: it looks at the type of every value.
        self.target.conn.executemany(
            f"insert into {table} ({', '.join(names)}) values ({places})", rows
        )

    def _select(self, table: str, changes: Mapping[str, str], rest: str) -> str:
        names = self.source.table(table).columns_dict
        picked = ", ".join(f"{changes.get(name, f'x.{name}')} as {name}" for name in names)
        return f"select {picked} from {table} x {rest}"

    def _carry_grades(self, changes: Mapping[str, str], rest: str) -> None:
        """Carry over what people said, unless it came with an earlier part."""
        grades = self.target.table("manual_grade")
        sql = self._select("manual_grade", {"id": "null", **changes}, rest)
        for row in self.source.query(sql, self.values):
            same = " and ".join(f"{name} is :{name}" for name in row.keys() - {"id", "cell_id"})
            if not grades.count_where(same, row):
                grades.insert(row)

    # --- calls, answers, money --------------------------------------------------------------------

    def _match_calls(self) -> None:
        """Find out which calls are new here, book them, and give their answers the next takes."""
        known = self._known()
        free: dict[str, Iterator[int]] = {}
        numbers = count(self._number("select coalesce(max(id), 0) + 1 from attempt"))
        following = "select coalesce(max(take) + 1, 0) from answer where address = :address"
        totals = Totals(self.target.conn)
        used = pointing(self.source.conn, cells="select id from cell where run_id = :run")
        for call in self.source.query(_CALLS.format(used=used), self.values):
            key = tuple(call[name] for name in (*_KNOWN_BY, "state", "ordinal"))
            address, take = call["address"], known.get(key)
            if key not in known and call["cost_kind"] == "replayed":
                take = self._same_recording(call)
            if key not in known and take is None:
                self.attempts[call["id"]] = next(numbers)
                self._book(totals, call)
                if call["take"] is not None:
                    if address not in free:
                        free[address] = count(self._number(following, call))
                    take = next(free[address])
            if call["take"] is not None and take not in (None, call["take"]):
                self.takes[address, call["take"]] = take
        totals.write()
        self.values["new"] = json.dumps([*self.attempts])

    def _carry_calls(self) -> None:
        """Carry over the calls that are new here, with their answers and texts."""
        gone = "x.state = 'reserved'"  # its maker is gone, or the shard would not be done
        experiment = "(select r.experiment from run r where r.id = x.run_id)"
        changes = {
            "id": "new_attempt(x.id)",
            "run_id": "iif(x.run_id = :run, new_run(), x.run_id)",
            "experiment": f"coalesce(x.experiment, {experiment})",
            "state": f"iif({gone}, 'unknown', x.state)",
            "error": f"iif({gone}, 'the process died', x.error)",
        }
        self.carry("attempt", changes, f"where x.id in ({_ARE_NEW}) order by x.id")
        marked = {"cost_kind": f"'{IMPORTED}'"} if self.foreign else {}
        answer = {"attempt": "new_attempt(x.attempt)", **_TAKE, **marked}
        self.carry("answer", answer, f"where x.attempt in ({_ARE_NEW})")
        theirs = "join answer a on a.address = x.address and a.take = x.take"
        self.carry("answer_text", _TAKE, f"{theirs} where a.attempt in ({_ARE_NEW})")

    def _known(self) -> dict[tuple[Any, ...], int | None]:
        """Return the takes of attempts here that may be among those there, by what they show."""
        owners = self.source.execute("select json_group_array(distinct owner) from attempt")
        rows = self.target.execute(
            f"select {', '.join(f't.{name}' for name in _KNOWN_BY)}, t.state, {_ORDINAL}, a.take "
            "from attempt t left join answer a on a.attempt = t.id "
            "where t.owner in (select value from json_each(?))",
            owners.fetchone(),
        )
        return {tuple(row[:-1]): row[-1] for row in rows}

    def _same_recording(self, call: dict[str, Any]) -> int | None:
        """Return the take here that is from the same recording."""
        row = self.target.execute(
            "select a.take from answer a join answer_text t using (address, take) where "
            "a.address = :address and a.cost_kind = 'replayed' and t.sha256 = :sha256 "
            "and a.cost_microusd = :answer_microusd",
            call,
        ).fetchone()
        return None if row is None else int(row[0])

    def _book(self, totals: Totals, call: dict[str, Any]) -> None:
        """Book what a call cost, or may have cost, in every scope it counts against."""
        if call["state"] == "released" or call["phase"] == "replay":
            return
        run = self.into if call["run_id"] == self.run_id else call["run_id"]
        scopes = ["project", f"run:{run}"]
        scopes += [f"{kind}:{call[kind]}" for kind in ("experiment", "loop") if call[kind]]
        totals.add(tuple(scopes), call["sent_at"][:10], call["microusd"], call["tokens"])

    def _number(self, sql: str, values: dict[str, Any] | None = None) -> int:
        return int(self.target.execute(sql, values).fetchone()[0])


def _new(table: str) -> str:
    names = ("side", "prompt", "model", "case_id", "draw")
    return f"new_cell({', '.join(f'{table}.{name}' for name in names)})"
