"""Stored answers: found, checked, counted and saved by reuse.

Answers are append-only: a further answer to the same call is a further take.
"""

from __future__ import annotations

import hashlib
import json
import logging
from typing import TYPE_CHECKING, Any, Literal

from edison_ci._dataclass import dataclass
from edison_ci.records import Completion, FinishReason, canonical_json
from edison_ci.store.retention import pointing

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator


# An answer that was paid for stays as numbers for ever: its tokens, cost and time. Its text can be
# taken away, by a person and on purpose; the call is then made again when somebody needs it.
@dataclass(frozen=True, slots=True)
class ModelCache:
    """The stored answers of one model."""

    model: str
    answers: int
    texts: int
    """Answers whose text is still there."""
    size_bytes: int
    oldest: str
    newest: str
    cost_microusd: int
    uses: int
    """How often something points to one of them."""
    saved_microusd: int
    """What the uses after the first would have cost."""
    simulated: int
    """Answers that the simulator gave."""


@dataclass(frozen=True, slots=True)
class Freed:
    """Texts that went, or would go."""

    texts: int
    size_bytes: int


def cache_stats(connection: sqlite3.Connection) -> list[ModelCache]:
    """Return what is stored, by model."""
    rows = connection.execute(
        f"""
        with used as (
          select address, take, count(*) as uses
          from ({pointing(connection, remarks=False)}) group by address, take
        )
        select t.model, count(*), count(x.address),
          coalesce(sum(length(cast(x.text as blob))
            + coalesce(length(cast(x.tool_calls as blob)), 0)), 0),
          min(a.created_at), max(a.created_at), sum(a.cost_microusd), coalesce(sum(u.uses), 0),
          sum(max(coalesce(u.uses, 0) - 1, 0) * a.cost_microusd), sum({SIMULATED})
        from answer a join attempt t on t.id = a.attempt
        left join answer_text x on x.address = a.address and x.take = a.take
        left join used u on u.address = a.address and u.take = a.take
        group by t.model order by t.model
        """
    )
    return [ModelCache(*row) for row in rows]


def clearable(
    connection: sqlite3.Connection, *, everything: bool = False, before: str | None = None
) -> Freed:
    """Return how much `clear_texts` would take away."""
    row = connection.execute(
        "select count(*), coalesce(sum(length(cast(text as blob)) "
        "+ coalesce(length(cast(tool_calls as blob)), 0)), 0) from answer_text "
        f"where (address, take) in ({_chosen(connection, everything=everything)})",
        {"before": before},
    ).fetchone()
    return Freed(int(row[0]), int(row[1]))


def clear_texts(
    connection: sqlite3.Connection, *, everything: bool = False, before: str | None = None
) -> Freed:
    """Take away the texts that nothing points to, or all; only those stored before a time."""
    freed = clearable(connection, everything=everything, before=before)
    connection.execute(
        "delete from answer_text "
        f"where (address, take) in ({_chosen(connection, everything=everything)})",
        {"before": before},
    )
    return freed


def _chosen(connection: sqlite3.Connection, *, everything: bool) -> str:
    # Not `not in`: SQLite would look through all of them for each answer that is not there.
    spared = "" if everything else f" except select * from ({pointing(connection)})"
    return (
        f"select address, take from answer where (:before is null or created_at < :before){spared}"
    )


def newest_answers(connection: sqlite3.Connection) -> Iterator[tuple[str, Stored]]:
    """Yield the newest answer of every call whose text is whole, by address."""
    addresses = connection.execute("select distinct address from answer_text order by address")
    for (address,) in addresses:
        stored = newest_answer(connection, address)
        if stored is not None:
            yield address, stored


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stored:
    """An answer from the store."""

    completion: Completion
    take: int
    cost_microusd: int
    created_at: str


@dataclass(frozen=True, slots=True)
class Settlement:
    """How an attempt that was answered ended."""

    completion: Completion
    cost_microusd: int
    cost_kind: Literal["billed", "estimated", "replayed"]
    now: str
    http_status: int | None = None


SIMULATED = "substr(a.served_model, 1, 4) = 'sim/'"
"""In a query on `answer a`: whether the simulator gave it."""

REUSABLE = "cost_kind not in ('replayed', 'imported')"
"""In a query on `answer`: whether it may be reused. What comes from a recording or a bundle is not:
whoever wrote it may have written anything."""

_ANSWER = (
    "select a.take, a.finish_reason, a.tokens_in, a.tokens_out, a.cached_in, a.latency_ms, "
    "a.served_model, a.cost_microusd, a.created_at, t.text, t.tool_calls, t.sha256 "
    "from answer a join answer_text t using (address, take) where a.address = ? "
)


def newest_answer(
    connection: sqlite3.Connection, address: str, *, since: str = ""
) -> Stored | None:
    """Return the newest answer of a call for reuse, if it is new enough and its text is whole."""
    row = connection.execute(
        f"{_ANSWER} and a.created_at >= ? and a.{REUSABLE} order by a.take desc limit 1",
        (address, since),
    ).fetchone()
    return None if row is None else _stored(row)


def answer_at(connection: sqlite3.Connection, address: str, take: int | None) -> Stored | None:
    """Return one take of a call, if it is stored and its text is whole."""
    row = connection.execute(f"{_ANSWER} and a.take = ?", (address, take)).fetchone()
    return None if row is None else _stored(row)


def _stored(row: tuple[Any, ...]) -> Stored | None:
    if row[11] != text_hash(row[9], row[10]):
        logger.warning("a stored answer was tampered with and is not used")
        return None
    completion = Completion(
        text=row[9],
        finish_reason=FinishReason(row[1]),
        tokens_in=row[2],
        tokens_out=row[3],
        cached_in=row[4],
        latency_ms=row[5],
        served_model=row[6],
        tool_calls=json.loads(row[10]) if row[10] else None,
    )
    return Stored(completion, row[0], row[7], row[8])


def any_answer(connection: sqlite3.Connection) -> bool:
    """Whether anything is stored at all."""
    return connection.execute("select 1 from answer limit 1").fetchone() is not None


def newest_time(connection: sqlite3.Connection, address: str) -> str | None:
    """Return when the newest answer of a call was stored; one from elsewhere does not count."""
    row = connection.execute(
        f"select max(created_at) from answer where address = ? and {REUSABLE}", (address,)
    ).fetchone()
    return None if row is None else row[0]


def text_hash(text: str, tool_calls: str | None) -> str:
    """Return the checksum kept beside a stored text."""
    return hashlib.sha256(f"{text}\0{tool_calls or ''}".encode()).hexdigest()


_VALUES = "?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12"


def insert_answer(
    connection: sqlite3.Connection, address: str, attempt: int, settlement: Settlement
) -> int:
    """Store an answer and its text as the next take of the call; return the take."""
    completion = settlement.completion
    tools = canonical_json(completion.tool_calls) if completion.tool_calls is not None else None
    values = (
        attempt,
        str(completion.finish_reason),
        completion.tokens_in,
        completion.tokens_out,
        completion.cached_in,
        completion.latency_ms,
        settlement.cost_microusd,
        settlement.cost_kind,
        completion.served_model,
        settlement.now,
    )
    # Nearly always it is the first, and nobody has to ask for the last take. If it is not, its row
    # gets no address, and is ignored for that.
    take = 0
    done = connection.execute(
        "insert or ignore into answer values "
        f"(iif(exists (select 1 from answer where address = ?1), null, ?1), {_VALUES})",
        (address, take, *values),
    )
    if done.rowcount != 1:
        following = "select coalesce(max(take) + 1, 0) from answer where address = ?"
        (take,) = connection.execute(following, (address,)).fetchone()
        connection.execute(f"insert into answer values (?1, {_VALUES})", (address, take, *values))
    connection.execute(
        "insert into answer_text values (?, ?, ?, ?, ?)",
        (address, take, completion.text, tools, text_hash(completion.text, tools)),
    )
    return take


def answers_to_case(
    connection: sqlite3.Connection, experiment: str, case_id: str
) -> list[tuple[str, str, str, str, int]]:
    """Return run, side, version, address and take of every answer to a case that may be shown."""
    return connection.execute(
        "select distinct c.run_id, c.side, c.version, c.address, c.take from cell c "
        "join run r on r.id = c.run_id where c.case_id = ? and r.experiment = ? "
        "and c.take is not null and c.status <> 'blocked'",
        (case_id, experiment),
    ).fetchall()


_OF_RUN = """
select a.address, a.take, t.text, t.tool_calls, a.finish_reason, a.tokens_in, a.tokens_out,
  a.latency_ms, a.served_model, a.cost_microusd, t.sha256
from (
  select address, take from cell where run_id = :run and take is not null
  union
  select j.address, j.take from judgment j join cell c on c.id = j.cell_id where c.run_id = :run
  union
  select a.address, a.take from attempt b join answer a on a.attempt = b.id where b.run_id = :run
) used
join answer a using (address, take)
join answer_text t using (address, take)
order by a.address, a.take
"""


def answers_of_run(connection: sqlite3.Connection, run_id: str) -> Iterator[tuple[Any, ...]]:
    """Yield the answers that the cells of a run point to, and those it bought besides, as rows.

    Address, take, text, tool calls, finish reason, tokens in and out, latency, served model, cost,
    and the checksum of the text.
    """
    return iter(connection.execute(_OF_RUN, {"run": run_id}))
