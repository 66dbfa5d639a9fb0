"""What did the calls of a run come to, and on which answers does it rest?

Each call is one row among tens of thousands, so they are read once when a run ends: for what each
day, model and phase cost, for what was tried again, and for which prompt and model paid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import sqlite3

_ANSWERING = frozenset({"generate", "replay"})
"""Phases in which cells get their answers."""
_Row = tuple[Any, ...]

_SPENT = """
select substr(t.sent_at, 1, 10), t.model, t.phase, sum(t.state = 'settled'),
  sum(t.state = 'released'), sum(t.state in ('unknown', 'reserved')),
  sum(case t.state when 'settled' then t.cost_microusd when 'released' then 0
      else t.est_microusd end),
  coalesce(sum(a.tokens_in), 0), coalesce(sum(a.tokens_out), 0),
  count(*), coalesce(sum(a.take = 0), 0), coalesce(sum(a.cost_kind = 'estimated'), 0),
  sum(case t.state when 'released' then 0 else coalesce(t.cost_microusd, t.est_microusd) end)
from attempt t left join answer a on a.attempt = t.id
where t.run_id = ? group by 1, 2, 3
"""
_PHASE, _RELEASED, _TRIES, _FIRST, _ESTIMATED, _PAID = 2, 4, 9, 10, 11, 12

# Calls without a first answer: is there one by the same process to the same question?
_ASKED_BESIDE = """
select count(distinct t.address || t.owner)
from attempt t left join answer a on a.attempt = t.id
where t.run_id = ?1 and a.take is not 0 and not exists (
  select 1 from answer b join attempt u on u.id = b.attempt
  where b.address = t.address and b.take = 0 and u.run_id = ?1 and u.owner = t.owner
)
"""

_RESTS_ON = """
select count(*) - coalesce(sum(own), 0), coalesce(sum(tokens_in), 0), coalesce(sum(tokens_out), 0)
from (
  select attempt, tokens_in, tokens_out, own from temp.used
  union
  select a.attempt, coalesce(a.tokens_in, 0), coalesce(a.tokens_out, 0),
    t.run_id = :run and t.state = 'settled' and t.phase <> 'replay'
  from cell c join judgment j on j.cell_id = c.id
  join answer a on a.address = j.address and a.take = j.take
  join attempt t on t.id = a.attempt where c.run_id = :run
)
"""

# An answer that several prompts or models share was bought for the first of them.
_BOUGHT_FOR = """
select prompt, model, sum(paid), count(*), max(take) from (
  select min(prompt) as prompt, min(model) as model, paid, take from temp.used
  where paid is not null group by attempt
) group by prompt, model
"""


class CallSums(NamedTuple):
    """The calls of a run, and the answers that it rests on."""

    attempts: int
    retried: int
    """What a later session asks again is no retry."""
    estimated: int
    """Answers whose provider did not count their tokens."""
    tokens_in: int
    """Of all answers that it rests on, each once."""
    tokens_out: int
    costs: dict[tuple[str, str], int]
    """What calls cost by the prompt and model they were for; both empty for judges and graders."""


def write_calls(connection: sqlite3.Connection, run_id: str) -> None:
    """Write what calls cost and came to, from the answers at hand and the sums of models."""
    rows = [tuple(row) for row in connection.execute(_SPENT, (run_id,))]
    connection.executemany(
        "insert into rollup_spending (run_id, day, model, phase, calls, released, unknown, "
        f"cost_microusd, tokens_in, tokens_out) values ({', '.join('?' * 10)})",
        [(run_id, *row[:_TRIES]) for row in rows],
    )
    tries, first = (sum(row[at] for row in rows) for at in (_TRIES, _FIRST))
    beside = 0
    if first < tries:
        (beside,) = connection.execute(_ASKED_BESIDE, (run_id,)).fetchone()
    rests_on = connection.execute(_RESTS_ON, {"run": run_id}).fetchone()
    sums = (tries, tries - first - beside, sum(row[_ESTIMATED] for row in rows), *rests_on)
    connection.execute("insert into rollup_calls values (?, ?, ?, ?, ?, ?, ?)", (run_id, *sums))
    connection.executemany(
        "insert into rollup_paid values (?, ?, ?, ?)",
        [(run_id, *who, paid) for who, paid in _paid(connection, run_id, rows).items()],
    )


def _paid(
    connection: sqlite3.Connection, run_id: str, rows: list[_Row]
) -> dict[tuple[str, str], int]:
    """Return what calls cost by the prompt and model they were for."""
    bought = [tuple(row) for row in connection.execute(_BOUGHT_FOR)]
    calls = sum(row[_TRIES] - row[_RELEASED] for row in rows if row[_PHASE] in _ANSWERING)
    if calls != sum(row[3] for row in bought) or not _is_plain(connection, run_id, bought):
        return costs_of(connection, run_id)
    # Every call for an answer is one that cells rest on: nobody has to look for those it was for.
    found = {(prompt, model): paid for prompt, model, paid, *_ in bought}
    others = [row for row in rows if row[_PHASE] not in _ANSWERING]
    if any(row[_TRIES] > row[_RELEASED] for row in others):
        found["", ""] = sum(row[_PAID] for row in others)
    return found


def _is_plain(connection: sqlite3.Connection, run_id: str, bought: list[_Row]) -> bool:
    """Whether all cells of an address share one answer, so that its buyer is known by it."""
    keys = "select distinct prompt, model from rollup_model where run_id = ?"
    if len(connection.execute(keys, (run_id,)).fetchall()) <= 1:
        return True
    (lacking,) = connection.execute(
        "select exists (select 1 from cell where run_id = ? and take is null)", (run_id,)
    ).fetchone()
    return not lacking and all(row[4] == 0 for row in bought)


def costs_of(connection: sqlite3.Connection, run_id: str) -> dict[tuple[str, str], int]:
    """Return what the attempts of a run cost, by prompt and model; empty is everybody else's."""
    rows = connection.execute(
        "select coalesce(c.prompt, ''), coalesce(c.model, ''), "
        "sum(coalesce(t.cost_microusd, t.est_microusd)) from attempt t left join "
        "(select address, min(prompt) as prompt, min(model) as model from cell "
        "where run_id = ?1 group by address) c on c.address = t.address "
        "where t.run_id = ?1 and t.state <> 'released' group by 1, 2",
        (run_id,),
    )
    return {(prompt, model): cost for prompt, model, cost in rows}


def call_sums(connection: sqlite3.Connection, run_id: str) -> CallSums:
    """Return what the calls of a run come to, from each of them."""
    attempts, asked, estimated = connection.execute(
        "select count(*), count(distinct t.address || t.owner), coalesce(sum(a.cost_kind = "
        "'estimated'), 0) from attempt t left join answer a on a.attempt = t.id "
        "where t.run_id = ?",
        (run_id,),
    ).fetchone()
    read, written = connection.execute(
        "select coalesce(sum(a.tokens_in), 0), coalesce(sum(a.tokens_out), 0) from answer a join ("
        "select address, take from cell where run_id = ?1 and take is not null union "
        "select j.address, j.take from judgment j join cell c on c.id = j.cell_id "
        "where c.run_id = ?1) u on u.address = a.address and u.take = a.take",
        (run_id,),
    ).fetchone()
    costs = costs_of(connection, run_id)
    return CallSums(attempts, attempts - asked, estimated, read, written, costs)


def stored_call_sums(connection: sqlite3.Connection, run_id: str) -> CallSums | None:
    """Return the same as it was written when the run ended; None if there were more calls since."""
    row = connection.execute(
        "select attempts, retried, estimated, tokens_in, tokens_out from rollup_calls "
        "where run_id = ?1 and attempts = (select count(*) from attempt where run_id = ?1)",
        (run_id,),
    ).fetchone()
    if row is None:
        return None
    paid = connection.execute(
        "select prompt, model, cost_microusd from rollup_paid where run_id = ?", (run_id,)
    )
    costs = {(prompt, model): cost for prompt, model, cost in paid}
    attempts, retried, estimated, read, written = row
    return CallSums(attempts, retried, estimated, read, written, costs)


def stored_reuse(connection: sqlite3.Connection, run_id: str) -> int:
    """Return how many answers a run rests on that it did not buy, as it was just written."""
    row = connection.execute(
        "select reused from rollup_calls where run_id = ?", (run_id,)
    ).fetchone()
    return int(row[0])
