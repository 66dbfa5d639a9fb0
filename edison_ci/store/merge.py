"""Runs copied from one results file into another, exported as a file, or split at random.

Rows of a run are copied under its id in the target. Calls and answers may be there already, because
both files grew from one, or because another shard brought them: an attempt is recognised by its
owner, time and request, and its cost is booked when it is copied for the first time. An answer to a
request that has another answer in the target becomes a further answer. Each import is one
transaction. A foreign file can contain anything: imported answers are never reused, their cost is
booked for their run alone, and attempts and human grades name the run that they came with.
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
import time
import uuid
from array import array
from bisect import bisect_left
from contextlib import closing, contextmanager, suppress
from dataclasses import field
from itertools import count, groupby
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.errors import StoreError
from edison_ci.store.answers import answers_in_use
from edison_ci.store.audit import add_audit
from edison_ci.store.cells import cell_id
from edison_ci.store.database import (
    copy_to,
    open_database,
    open_for_change,
    open_reader,
    store_error,
    transaction,
)
from edison_ci.store.integrity import check_database
from edison_ci.store.ledger import Totals
from edison_ci.store.runs import IMPORT, add_origin, run_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sqlite_utils import Database

    from edison_ci.store.audit import AuditEntry
    from edison_ci.store.runs import RunOrigin

_CONCLUDED = ("decision", "judge_approval")
"""Tables that are written when a run ends, like every rollup_... table."""
IMPORTED = "imported"
"""Cost kind of imported answers: the cost is that of the imported file."""
_KNOWN_BY = (
    "request_hash", "model", "phase", "est_microusd", "est_tokens", "owner", "sent_at",
)  # fmt: skip
"""Columns that identify an attempt in every copy of it."""
_ORDINAL = (
    f"row_number() over (partition by {', '.join(f't.{name}' for name in _KNOWN_BY)}, "
    "iif(t.state = 'reserved', 'unknown', t.state) order by t.id) as ordinal"
)
"""Number of an attempt among those that are equal in these columns."""
_CALLS = f"""
with used as ({{used}}), numbered as (select t.*, {_ORDINAL} from attempt t)
select t.id, {", ".join(f"t.{name}" for name in _KNOWN_BY)}, t.ordinal, t.run_id, t.loop,
  coalesce(t.experiment, r.experiment) as experiment,
  iif(t.state = 'reserved', 'unknown', t.state) as state,
  iif(t.state = 'settled' and a.answer_no is not null, t.cost_microusd, t.est_microusd) as microusd,
  iif(t.state = 'settled', coalesce(a.tokens_in + a.tokens_out, t.est_tokens), t.est_tokens)
    as tokens,
  a.answer_no, a.cost_kind, a.cost_microusd as answer_microusd, x.sha256
from numbered t left join run r on r.id = t.run_id left join answer a on a.attempt = t.id
left join answer_text x on x.request_hash = a.request_hash and x.answer_no = a.answer_no
where t.run_id = :run or (a.request_hash, a.answer_no) in (select request_hash, answer_no from
  used) order by t.id
"""
_ANSWER_NO = {"answer_no": "new_answer_no(x.request_hash, x.answer_no)"}


def merge_shard(
    target: sqlite3.Connection, source: sqlite3.Connection, run_id: str, *, into: str, shard: str
) -> None:
    """Copy the cells and calls of a shard into an existing run, in the current transaction."""
    _Transfer(_tables(target), _tables(source), run_id, into, shard=shard).copy_measurements()


def import_run(
    target: sqlite3.Connection,
    source: sqlite3.Connection,
    run_id: str,
    origin: RunOrigin | None = None,
) -> None:
    """Copy a finished run with its decisions and rollups, in the current transaction.

    With an origin, the run, its answers, attempts and human grades are marked as from elsewhere.
    """
    foreign = origin is not None
    transfer = _Transfer(_tables(target), _tables(source), run_id, run_id, foreign=foreign)
    marked = {"trigger": f"'{IMPORT}'", "loop": "null"} if foreign else {}
    transfer.carry("run", marked, "where x.id = :run")
    if origin is not None:
        add_origin(target, origin)
    transfer.copy_measurements()
    for table in transfer.source.table_names():
        if table in _CONCLUDED or table.startswith("rollup_"):
            transfer.carry(table, {}, "where x.run_id = :run")


def _tables(connection: sqlite3.Connection) -> Database:
    """Return the tables of an open file; the connection is not changed.

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
    attempts: array[int] = field(default_factory=lambda: array("q"))
    """The numbers there of the attempts that are new here, in order."""
    first: int = 0
    """The number here of the first of them; the others follow it."""
    renumbered: dict[tuple[str, int], int] = field(default_factory=dict)
    """Answers that have another number here than there."""
    values: dict[str, str] = field(default_factory=dict)
    """What queries on the source may name."""
    runs_here: frozenset[str] = frozenset()
    """The runs of the target; a file from elsewhere adds no call to them."""

    def __post_init__(self) -> None:
        self.values |= {"run": self.run_id, "shard": self.shard}
        if self.foreign:
            self.runs_here = frozenset(run_ids(self.target.conn))
        create = self.source.conn.create_function
        create("new_run", 0, lambda: self.into, deterministic=True)
        create("new_caller", 1, self._caller, deterministic=True)
        create("new_attempt", 1, self._new_attempt)
        create(
            "new_answer_no",
            2,
            lambda request_hash, answer_no: self.renumbered.get(
                (request_hash, answer_no), answer_no
            ),
        )
        create("new_cell", 5, lambda *named: cell_id(self.into, *named), deterministic=True)

    def _new_attempt(self, there: int) -> int | None:
        """Return the number here of an attempt; None if it is not new."""
        index = bisect_left(self.attempts, there)
        is_new = index < len(self.attempts) and self.attempts[index] == there
        return self.first + index if is_new else None

    def _caller(self, run_id: str) -> str:
        """Return the run here that a call is of."""
        return self.into if run_id == self.run_id or run_id in self.runs_here else run_id

    def copy_measurements(self) -> None:
        """Copy calls, answers, cells, grades, comparisons and events."""
        self._match_calls()
        self._carry_calls()
        here = {"run_id": "new_run()"}
        self.carry("cell", {"id": _new("x"), **_ANSWER_NO, **here}, "where x.run_id = :run")
        self.carry("run_case", here, "where x.run_id = :run")
        cells = "join cell c on c.id = x.cell_id where c.run_id = :run"
        cell = {"cell_id": _new("c")}
        self.carry("component", cell, cells)
        self.carry("judge_score", cell, cells)
        self.carry("judgment", cell | _ANSWER_NO, cells)
        self.carry("fallback_answer", cell | _ANSWER_NO, cells)
        self._carry_grades(cell | _ANSWER_NO | self._marked, f"{cells} order by x.id")
        pair = {"a_cell": _new("a"), "b_cell": _new("b"), **here}
        both = "join cell a on a.id = x.a_cell join cell b on b.id = x.b_cell where x.run_id = :run"
        self.carry("comparison", pair, both)
        marked = {"data": "json_set(x.data, '$.shard', :shard)"} if self.shard else {}
        self.carry(
            "event", {"seq": "null", **marked, **here}, "where x.run_id = :run order by x.seq"
        )
        self.carry("steering", {"id": "null", **here}, "where x.run_id = :run order by x.id")

    @property
    def _marked(self) -> dict[str, str]:
        """Column of the origin of attempts and human grades; a file has no say in it."""
        return {"origin": "new_run()" if self.foreign else "null"}

    def carry(self, table: str, changes: Mapping[str, str], rest: str) -> None:
        """Insert the rows of a table, some of their columns changed."""
        rows = self.source.execute(self._select(table, changes, rest), self.values)
        names = [column[0] for column in rows.description]
        places = ", ".join("?" * len(names))
        # `insert_all` of sqlite-utils takes twice as long: it inspects the type of every value.
        self.target.conn.executemany(
            f"insert into {table} ({', '.join(names)}) values ({places})", rows
        )

    def _select(self, table: str, changes: Mapping[str, str], rest: str) -> str:
        names = self.source.table(table).columns_dict
        picked = ", ".join(f"{changes.get(name, f'x.{name}')} as {name}" for name in names)
        return f"select {picked} from {table} x {rest}"

    def _carry_grades(self, changes: Mapping[str, str], rest: str) -> None:
        """Copy human grades, unless an earlier shard brought them."""
        grades = self.target.table("manual_grade")
        sql = self._select("manual_grade", {"id": "null", **changes}, rest)
        for row in self.source.query(sql, self.values):
            same = " and ".join(f"{name} is :{name}" for name in row.keys() - {"id", "cell_id"})
            if not grades.count_where(same, row):
                grades.insert(row)

    def _match_calls(self) -> None:
        """Find the calls that are new in the target, book them, and number their answers."""
        answers, several = self._known(), self._answered_twice()
        free: dict[str, Iterator[int]] = {}
        self.first = self._number("select coalesce(max(id), 0) + 1 from attempt")
        following = (
            "select coalesce(max(answer_no) + 1, 0) from answer where request_hash = :request_hash"
        )
        totals = Totals(self.target.conn)
        used = answers_in_use(self.source.conn, cells="select id from cell where run_id = :run")
        for call in self.source.query(_CALLS.format(used=used), self.values):
            key = tuple(call[name] for name in (*_KNOWN_BY, "state", "ordinal"))
            request_hash, answer_no = call["request_hash"], answers.get(key)
            if key not in answers and call["cost_kind"] == "replayed":
                answer_no = self._same_recording(call)
            if key not in answers and answer_no is None:
                self.attempts.append(call["id"])
                self._book(totals, call)
                if call["answer_no"] is not None:
                    numbers = free.get(request_hash) or count(self._number(following, call))
                    answer_no = next(numbers)
                    if request_hash in several:
                        free[request_hash] = numbers
            if call["answer_no"] is not None and answer_no not in (None, call["answer_no"]):
                self.renumbered[request_hash, call["answer_no"]] = answer_no
        totals.write()

    def _carry_calls(self) -> None:
        """Copy the calls that are new in the target, with their answers and texts."""
        gone = "x.state = 'reserved'"  # its process is gone: the shard is finished
        experiment = "(select r.experiment from run r where r.id = x.run_id)"
        changes = {
            "id": "new_attempt(x.id)",
            **self._marked,
            "run_id": "new_caller(x.run_id)",
            "experiment": f"coalesce(x.experiment, {experiment})",
            "state": f"iif({gone}, 'unknown', x.state)",
            "error": f"iif({gone}, 'the process died', x.error)",
        }
        is_new = "new_attempt({}) is not null"
        self.carry("attempt", changes, f"where {is_new.format('x.id')} order by x.id")
        marked = {"cost_kind": f"'{IMPORTED}'"} if self.foreign else {}
        answer = {"attempt": "new_attempt(x.attempt)", **_ANSWER_NO, **marked}
        self.carry("answer", answer, f"where {is_new.format('x.attempt')}")
        theirs = "join answer a on a.request_hash = x.request_hash and a.answer_no = x.answer_no"
        self.carry("answer_text", _ANSWER_NO, f"{theirs} where {is_new.format('a.attempt')}")

    def _answered_twice(self) -> frozenset[str]:
        """Return the requests with more than one answer in the source."""
        rows = self.source.execute("select distinct request_hash from answer where answer_no > 0")
        return frozenset(request_hash for (request_hash,) in rows)

    def _known(self) -> dict[tuple[Any, ...], int | None]:
        """Return the answer numbers of attempts in the target that may be in the source too."""
        owners = self.source.execute("select json_group_array(distinct owner) from attempt")
        rows = self.target.execute(
            f"select {', '.join(f't.{name}' for name in _KNOWN_BY)}, t.state, {_ORDINAL}, "
            f"a.answer_no "
            "from attempt t left join answer a on a.attempt = t.id "
            "where t.owner in (select value from json_each(?))",
            owners.fetchone(),
        )
        return {tuple(row[:-1]): row[-1] for row in rows}

    def _same_recording(self, call: dict[str, Any]) -> int | None:
        """Return the number of the answer in the target that is from the same recording."""
        row = self.target.execute(
            "select a.answer_no from answer a join answer_text t using (request_hash, answer_no) "
            "where "
            "a.request_hash = :request_hash and a.cost_kind = 'replayed' and t.sha256 = :sha256 "
            "and a.cost_microusd = :answer_microusd",
            call,
        ).fetchone()
        return None if row is None else int(row[0])

    def _book(self, totals: Totals, call: dict[str, Any]) -> None:
        """Book the cost of a call, or its estimate, in every scope."""
        if call["state"] == "released" or call["phase"] == "replay":
            return
        scopes = [f"run:{self._caller(call['run_id'])}"]
        if not self.foreign:  # else it was paid for elsewhere
            scopes += ["project"]
            scopes += [f"{kind}:{call[kind]}" for kind in ("experiment", "loop") if call[kind]]
        totals.add(tuple(scopes), call["sent_at"][:10], call["microusd"], call["tokens"])

    def _number(self, sql: str, values: dict[str, Any] | None = None) -> int:
        return int(self.target.execute(sql, values).fetchone()[0])


def _new(table: str) -> str:
    names = ("side", "prompt", "model", "case_id", "repeat")
    return f"new_cell({', '.join(f'{table}.{name}' for name in names)})"


# A merged run is assembled in a copy beside the results, checked as by `db check`, and then copied
# in one transaction. A killed process leaves the copy behind, and the results unchanged.
_DAY_S = 86_400
_SUFFIXES = ("", "-wal", "-shm", "-journal")


@contextmanager
def stage_beside(results: Path) -> Iterator[Path]:
    """Yield the path of a copy of the results, or of a new file that becomes one."""
    for left in results.parent.glob(f".{results.name}.*.stage"):  # by a process that was killed
        if time.time() - left.stat().st_mtime > _DAY_S:
            _remove(left)
    stage = results.with_name(f".{results.name}.{uuid.uuid4().hex[:12]}.stage")
    try:
        if results.exists():
            with closing(open_reader(results)) as connection:
                connection.execute("pragma query_only = 0")  # or no copy is made
                copy_to(connection, stage)
        yield stage
    except sqlite3.Error as error:
        raise store_error(error, results) from None
    finally:
        _remove(stage)


def publish(results: Path, stage: Path, run_ids: Iterable[str], entry: AuditEntry) -> None:
    """Take finished runs from the stage into the results, in one transaction."""
    with closing(open_reader(stage)) as source:
        wrong = [
            f"{checked.what}: {text}"
            for checked in check_database(source)
            for text in checked.problems
        ]
        if wrong:
            raise StoreError(
                f"the results would not be sound: {wrong[0]}",
                hint="check every shard with `edison admin db check`; nothing was changed",
            )
        with open_for_change(results) as target:
            for run_id in run_ids:
                import_run(target, source, run_id)
            add_audit(target, entry)


def _remove(stage: Path) -> None:
    for suffix in _SUFFIXES:
        with suppress(OSError):
            stage.with_name(stage.name + suffix).unlink(missing_ok=True)


_SAME = "experiment, plan_hash, verdict, cells_planned, created_at, finished_at, commit_id"


def extract(results: Path, run_ids: Iterable[str], target: Path) -> None:
    """Write a results file with these runs, and all that they rest on."""
    making = target.with_name(f"{target.name}.making")
    try:
        with closing(open_reader(results)) as source, closing(open_database(making)) as made:
            with transaction(made):
                for run_id in run_ids:
                    import_run(made, source, run_id)
            copy_to(made, target)
    except sqlite3.Error as error:
        raise store_error(error, results) from None


def known_runs(
    results: Path, source: sqlite3.Connection, run_ids: Iterable[str]
) -> dict[str, bool]:
    """Return the runs that the results have already, and whether they are the same."""
    if not results.exists():
        return {}
    by_run: dict[str, bool] = {}
    with closing(open_reader(results)) as here:
        for run_id in run_ids:
            sql = f"select {_SAME} from run where id = ?"
            ours = here.execute(sql, (run_id,)).fetchone()
            if ours is not None:
                by_run[run_id] = ours == source.execute(sql, (run_id,)).fetchone()
    return by_run


def accept(
    results: Path,
    source: sqlite3.Connection,
    origins: Sequence[RunOrigin],
    entry: AuditEntry,
    add_up: Callable[[sqlite3.Connection, str], None],
) -> None:
    """Bring runs of another file into the results, in one transaction.

    Rollups are computed again: those of a foreign file can contain anything.
    """
    with open_for_change(results) as target:
        for origin in origins:
            import_run(target, source, origin.run_id, origin)
            add_up(target, origin.run_id)
        add_audit(target, entry)


def copy_audit(results: Path, source: sqlite3.Connection) -> None:
    """Let new results continue the audit of another file."""
    with open_for_change(results) as target:
        _Transfer(_tables(target), _tables(source), "", "").carry("audit", {}, "order by x.seq")


@dataclass(frozen=True, slots=True)
class SplitRun:
    """A copy of a run whose cells can be dealt to base and head again and again."""

    connection: sqlite3.Connection
    run_id: str
    chance: random.Random

    def deal(self) -> None:
        """Deal the answers to each case at random, half of them to each side."""
        cells = self.connection.execute(
            "select prompt, model, case_id, id from cell where run_id = ? order by 1, 2, 3, 4",
            (self.run_id,),
        )
        dealt = []
        for _, group in groupby(cells.fetchall(), key=itemgetter(0, 1, 2)):
            ids = [row[3] for row in group]
            self.chance.shuffle(ids)
            dealt += [
                ("head" if place % 2 else "base", place // 2, cell)
                for place, cell in enumerate(ids)
            ]
        self.connection.executemany("update cell set side = ?, repeat = ? where id = ?", dealt)


@contextmanager
def split_run(results: Path, run_id: str) -> Iterator[SplitRun]:
    """Copy a run into a separate file, which is removed at the end."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "split.db")
        extract(results, [run_id], copy)
        with closing(open_database(copy)) as connection:
            yield SplitRun(connection, run_id, random.Random(run_id))
