"""Integrity checks of a results file: its pages, references, costs, sums, texts and audit chain."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.store.answers import answers_in_use, text_hash
from edison_ci.store.audit import verify_audit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    """Run all checks; a table that cannot be read is a problem of its own."""
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
