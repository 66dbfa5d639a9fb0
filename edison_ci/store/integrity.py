"""Checks of a results file: its integrity, and whether a file of others can be imported."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.errors import StoreError, UsageError
from edison_ci.store.answers import answers_in_use, text_hash
from edison_ci.store.audit import verify_audit
from edison_ci.store.database import (
    BUSY_TIMEOUT_S,
    migrations,
    refuse_what_is_not_ours,
    store_error,
    version_of,
)
from edison_ci.store.runs import find_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from edison_ci.store.runs import Run

MOST = 20
"""Number of problems of one kind that are listed."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check."""

    what: str
    about: str
    count: int
    """Number of things that were checked."""
    problems: tuple[str, ...] = ()
    """The first problems in words."""
    more: int = 0
    """Number of problems that are not listed."""

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def check_database(connection: sqlite3.Connection) -> list[CheckResult]:
    """Run all checks; a table that cannot be read is a separate problem."""
    return [
        _check("file", "pages and indexes", lambda: _file(connection)),
        _check("references", "rows that name others", lambda: _references(connection)),
        _check("ledger", "totals against attempts", lambda: _ledger(connection)),
        _check("answers", "answers against attempts", lambda: _answers(connection)),
        _check("sums", "what runs found against their cells", lambda: _results(connection)),
        _check("texts", "checksums of answers", lambda: _texts(connection)),
        _check("audit", "the chain of changes", lambda: _audit(connection)),
    ]


Found = tuple[int, "Iterator[str]"]


def _check(what: str, about: str, look: Callable[[], Found]) -> CheckResult:
    named: list[str] = []
    count = more = 0
    try:
        count, problems = look()
        for problem in problems:
            if len(named) < MOST:
                named.append(problem)
            else:
                more += 1
    except sqlite3.Error as error:
        named.append(f"cannot be read: {error}")
    return CheckResult(what, about, count, tuple(named), more)


def _file(connection: sqlite3.Connection) -> Found:
    pages = _number(connection, "pragma page_count")
    rows = connection.execute(f"pragma integrity_check({10 * MOST})")
    return pages, (text for (text,) in rows if text != "ok")


def page_problems(connection: sqlite3.Connection) -> list[str]:
    """Return what is wrong with the pages of the file, without the indexes: it takes less long."""
    try:
        rows = connection.execute(f"pragma quick_check({MOST})").fetchall()
    except sqlite3.Error as error:
        return [f"cannot be read: {error}"]
    return [text for (text,) in rows if text != "ok"]


def _references(connection: sqlite3.Connection) -> Found:
    tables = "select count(*) from sqlite_schema where type = 'table' and name not like 'sqlite_%'"
    rows = connection.execute("pragma foreign_key_check")
    broken = (
        f"{table}{'' if rowid is None else f' row {rowid}'} names a {parent} that is not there"
        for table, rowid, parent, _ in rows
    )
    return _number(connection, tables), broken


# What each attempt counts for: its cost once it is settled, nothing if it was not charged, its
# estimate while its fate is open. Tokens that the provider did not report count as estimated.
_COUNTED = """
with counted as (
  select substr(t.sent_at, 1, 10) as day, t.run_id, t.loop, t.origin is null as own,
    coalesce(t.experiment, r.experiment) as experiment,
    case t.state when 'settled' then t.cost_microusd when 'released' then 0
         else t.est_microusd end as microusd,
    case t.state when 'settled' then coalesce(a.tokens_in + a.tokens_out, t.est_tokens)
         when 'released' then 0 else t.est_tokens end as tokens
  from attempt t left join run r on r.id = t.run_id left join answer a on a.attempt = t.id
  where t.phase <> 'replay' -- the recording was paid for elsewhere
)
"""
_DUE = f"""{_COUNTED}
select 'project', day, sum(microusd), sum(tokens) from counted where own group by day
union all
select 'run:' || run_id, day, sum(microusd), sum(tokens) from counted group by run_id, day
union all
select 'experiment:' || experiment, day, sum(microusd), sum(tokens)
from counted where own and experiment is not null group by experiment, day
union all
select 'loop:' || loop, day, sum(microusd), sum(tokens)
from counted where own and loop is not null group by loop, day
"""
# Calls of no run (`try`, `assist`) may count for an experiment without saying for which.
_LOOSE = f"""{_COUNTED}
select day, sum(microusd), sum(tokens) from counted where own and experiment is null group by day
"""

_Sum = tuple[int, int]
"""Micro-dollars and tokens."""


def _results(connection: sqlite3.Connection) -> Found:
    """Compare what was added up when runs ended with their cells."""
    wrong = connection.execute(
        "select s.run_id from (select run_id, sum(cells) as cells from rollup_run group by run_id) "
        "s join run r on r.id = s.run_id and r.status = 'COMPLETED' "
        "where s.cells <> (select count(*) from cell where run_id = s.run_id) order by 1"
    )
    count = _number(connection, "select count(distinct run_id) from rollup_run")
    return count, (f"the sums of run {run_id} are not those of its cells" for (run_id,) in wrong)


def _ledger(connection: sqlite3.Connection) -> Found:
    booked = _sums(connection, "select scope, day, microusd, tokens from booked")
    due = _sums(connection, _DUE)
    loose = {day: (microusd, tokens) for day, microusd, tokens in connection.execute(_LOOSE)}
    return len(booked), _wrong_totals(booked, due, loose)


def _sums(connection: sqlite3.Connection, sql: str) -> dict[tuple[str, str], _Sum]:
    return {(scope, day): (money, tokens) for scope, day, money, tokens in connection.execute(sql)}


def _wrong_totals(
    booked: dict[tuple[str, str], _Sum], due: dict[tuple[str, str], _Sum], loose: dict[str, _Sum]
) -> Iterator[str]:
    left = dict(loose)
    for scope, day in sorted(booked.keys() | due.keys()):
        kind = scope.partition(":")[0]
        if kind not in ("project", "run", "experiment", "loop"):
            continue  # a total of an unknown scope
        has, should = booked.get((scope, day), (0, 0)), due.get((scope, day), (0, 0))
        over = (has[0] - should[0], has[1] - should[1])
        room = left.get(day, (0, 0)) if kind == "experiment" else (0, 0)
        if all(0 <= more <= most for more, most in zip(over, room, strict=True)):
            if any(over):
                left[day] = (room[0] - over[0], room[1] - over[1])
            continue
        yield (
            f"{scope} on {day}: booked {has[0]:,} micro-dollars and {has[1]:,} tokens, "
            f"attempts say {should[0]:,} and {should[1]:,}"
        )


_ANSWERS = """
select 'attempt ' || t.id || ' is settled, but its answer is missing'
from attempt t left join answer a on a.attempt = t.id
where t.state = 'settled' and a.attempt is null
union all
select 'the answer of attempt ' || t.id || ' is there, but the attempt is ' || t.state
from answer a join attempt t on t.id = a.attempt where t.state <> 'settled'
union all
select 'attempt ' || t.id || ' cost ' || t.cost_microusd || ', its answer ' || a.cost_microusd
from answer a join attempt t on t.id = a.attempt
where t.state = 'settled' and t.phase <> 'replay' and a.cost_microusd <> t.cost_microusd
  and (a.cost_kind <> 'estimated' or a.cost_microusd > t.cost_microusd)
"""


def _answers(connection: sqlite3.Connection) -> Found:
    missing = (
        "union all select 'answer_no ' || answer_no || ' of ' || substr(request_hash, 1, 12) || "
        "' is used, but is "
        f"not there' from (select * from ({answers_in_use(connection)}) except "
        "select request_hash, answer_no from answer)"
    )
    rows = connection.execute(_ANSWERS + missing)
    return _number(connection, "select count(*) from answer"), (text for (text,) in rows)


def _texts(connection: sqlite3.Connection) -> Found:
    return _number(connection, "select count(*) from answer_text"), _bad_texts(connection)


def _bad_texts(connection: sqlite3.Connection) -> Iterator[str]:
    rows = connection.execute(
        "select t.request_hash, t.answer_no, t.text, t.tool_calls, t.sha256, a.request_hash, "
        "t.details from answer_text t "
        "left join answer a on a.request_hash = t.request_hash and a.answer_no = t.answer_no"
    )
    for request_hash, answer_no, text, tool_calls, sha256, answer, details in rows:
        name = f"{request_hash[:12]} answer {answer_no}"
        if sha256 != text_hash(text, tool_calls, details):
            yield f"the text of {name} is not what was stored; it will be bought again"
        if answer is None:
            yield f"the text of {name} has no answer"


def _audit(connection: sqlite3.Connection) -> Found:
    chain = verify_audit(connection)
    return chain.rows, iter([chain.problem] if chain.problem else [])


def _number(connection: sqlite3.Connection, sql: str) -> int:
    return int(connection.execute(sql).fetchone()[0])


# It comes from another machine, so it is read as what a stranger wrote.
_HINT = "merge takes the results of `edison run --shard I/N`, or copies of them"


@dataclass(frozen=True, slots=True)
class ShardFile:
    """A results file with runs of shards, open for reading."""

    path: Path
    connection: sqlite3.Connection
    runs: tuple[Run, ...]
    """The newest of each experiment, and of each eval suite that it was measured on."""

    @property
    def name(self) -> str:
        """What people call it."""
        return str(self.path)

    def close(self) -> None:
        """Close the file."""
        self.connection.close()


def open_shard_file(path: Path) -> ShardFile:
    """Open a file that another machine wrote; refuses what is damaged, foreign or no shard."""
    if not path.is_file():
        raise UsageError(f"there is no file {path}", hint=_HINT)
    connection = open_foreign(path, hint=_HINT)
    try:
        runs = tuple(_newest(connection))
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise store_error(error, path) from None
        raise
    if not runs:
        connection.close()
        raise UsageError(f"{path} has no run of a shard", hint=_HINT)
    return ShardFile(path, connection, runs)


def _newest(connection: sqlite3.Connection) -> Iterator[Run]:
    rows = connection.execute(
        "select id from run where shard is not null order by created_at desc, rowid desc"
    )
    seen: set[tuple[str, str]] = set()
    for (run_id,) in rows.fetchall():
        run = find_run(connection, run_id)
        key = (run.experiment, _eval_suite(run))
        if key not in seen:
            seen.add(key)
            yield run


def _eval_suite(run: Run) -> str:
    try:
        return str(json.loads(run.snapshot)["command line"]["against"]["eval_suite"])
    except (ValueError, KeyError, TypeError):
        return "head"


_TABLES = (
    "select type, name, tbl_name, sql from sqlite_schema where name not like 'sqlite_%' "
    "order by type, name"
)
_TIME = "'20[0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:*'"
_RUN = "'20[0-9][0-9][01][0-9][0-3][0-9]T[0-9][0-9][0-9][0-9][0-9][0-9]-[0-9a-f]*'"
_UNFINISHED = "a run has not ended"
_IMPOSSIBLE = (
    ("a run id is not valid", f"select 1 from run where id not glob {_RUN} or length(id) > 40"),
    (
        _UNFINISHED,
        "select 1 from run where status not in ('COMPLETED', 'FAILED', 'CANCELLED', 'PAUSED') "
        "or wanted is not null",
    ),
    ("a time is not valid", f"select 1 from run where created_at not glob {_TIME}"),
    ("a time is not valid", f"select 1 from attempt where sent_at not glob {_TIME}"),
    (
        "an amount is negative",
        "select 1 from attempt where est_microusd < 0 or cost_microusd < 0 or est_tokens < 0",
    ),
    (
        "an amount is negative",
        "select 1 from answer where cost_microusd < 0 or tokens_in < 0 or tokens_out < 0 "
        "or latency_ms < 0 or answer_no < 0",
    ),
    ("a score is not between 0 and 1", "select 1 from cell where composite not between 0 and 1"),
    ("a score is not between 0 and 1", "select 1 from component where score not between 0 and 1"),
    (
        "a score is not between 0 and 1",
        "select 1 from fallback_answer where composite not between 0 and 1",
    ),
    (
        "a JSON value is not valid",
        "select 1 from run where not (json_valid(snapshot) and json_valid(labels))",
    ),
    ("a JSON value is not valid", "select 1 from run_case where not json_valid(tags)"),
    (
        "a JSON value is not valid",
        "select 1 from decision where not (json_valid(gate) and json_valid(detail))",
    ),
    ("a JSON value is not valid", "select 1 from event where not json_valid(data)"),
    ("a JSON value is not valid", "select 1 from steering where not json_valid(what)"),
    ("a JSON value is not valid", "select 1 from rollup_component where not json_valid(bins)"),
    ("a JSON value is not valid", "select 1 from manual_grade where not json_valid(criteria)"),
)
"""What no valid results file has, and SQL that finds it."""


def open_foreign(path: Path, *, hint: str) -> sqlite3.Connection:
    """Open a file that another machine wrote, for reading; refuses what is damaged or foreign."""
    try:
        refuse_what_is_not_ours(path)
    except UsageError as error:
        raise UsageError(error.message, hint=hint) from None
    connection = _opened(path)
    try:
        _refuse_another_version(connection, path, hint)
        _refuse_damage(connection, path)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.Error):
            raise store_error(error, path) from None
        raise
    return connection


def _opened(path: Path) -> sqlite3.Connection:
    """Open a file for reading, in a folder too that cannot be written."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    alone = not path.with_name(f"{path.name}-wal").exists()
    for uri in (address, f"{address}&immutable=1") if alone else (address,):
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S)
        try:
            for setting in ("query_only = 1", "trusted_schema = 0", "cell_size_check = 1"):
                connection.execute(f"pragma {setting}")
            connection.execute("select count(*) from sqlite_schema").fetchone()
        except sqlite3.Error as error:
            connection.close()
            reason = error
        else:
            return connection
    raise store_error(reason, path) from None


def _refuse_another_version(connection: sqlite3.Connection, path: Path, hint: str) -> None:
    version, ours = version_of(connection), len(migrations())
    if version != ours:
        than = "a newer" if version > ours else "an older"
        raise UsageError(
            f"{path} was made by {than} edison",
            hint="use the same version of edison here and there",
        )
    with closing(sqlite3.connect(":memory:")) as fresh:
        for script in migrations():
            fresh.executescript(script)
        expected = fresh.execute(_TABLES).fetchall()
    if connection.execute(_TABLES).fetchall() != expected:
        raise UsageError(f"the tables of {path} are not those of this edison", hint=hint)


def _refuse_damage(connection: sqlite3.Connection, path: Path) -> None:
    result = connection.execute("pragma quick_check(1)").fetchone()[0]
    if result != "ok":
        raise StoreError(f"{path} is damaged: {result}", hint="copy it again, or make it again")


def problems_in(connection: sqlite3.Connection, *, unfinished: bool = False) -> Iterator[str]:
    """Yield what is wrong with the rows of a file that another machine wrote.

    With `unfinished`, runs may not have ended.
    """
    for problem, sql in _IMPOSSIBLE:
        if unfinished and problem == _UNFINISHED:
            continue
        if connection.execute(f"{sql} limit 1").fetchone() is not None:
            yield problem
    for checked in check_database(connection):
        yield from (f"{checked.what}: {text}" for text in checked.problems)
