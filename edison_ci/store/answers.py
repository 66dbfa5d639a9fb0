"""Stored answers: found, checked, counted and saved by reuse.

Answers are append-only: a further answer to the same call is a further answer.
"""

from __future__ import annotations

import hashlib
import json
import logging
from typing import TYPE_CHECKING, Any, Literal

from edison_ci._dataclass import dataclass
from edison_ci.records import Completion, FinishReason, canonical_json

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterator


# The numbers of an answer (tokens, cost, latency) stay for ever. Its text can be removed by a
# person; the call is then made again when its answer is needed.
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
class FreedTexts:
    """Texts that went, or would go."""

    texts: int
    size_bytes: int


def cache_stats(connection: sqlite3.Connection) -> list[ModelCache]:
    """Return what is stored, by model."""
    rows = connection.execute(
        f"""
        with used as (
          select request_hash, answer_no, count(*) as uses
          from ({answers_in_use(connection, remarks=False)}) group by request_hash, answer_no
        )
        select t.model, count(*), count(x.request_hash),
          coalesce(sum(length(cast(x.text as blob))
            + coalesce(length(cast(x.tool_calls as blob)), 0)), 0),
          min(a.created_at), max(a.created_at), sum(a.cost_microusd * (t.origin is null)),
          coalesce(sum(u.uses), 0),
          sum(max(coalesce(u.uses, 0) - 1, 0) * a.cost_microusd * (t.origin is null)),
          sum({SIMULATED})
        from answer a join attempt t on t.id = a.attempt
        left join answer_text x on x.request_hash = a.request_hash and x.answer_no = a.answer_no
        left join used u on u.request_hash = a.request_hash and u.answer_no = a.answer_no
        group by t.model order by t.model
        """
    )
    return [ModelCache(*row) for row in rows]


def clearable(
    connection: sqlite3.Connection, *, everything: bool = False, before: str | None = None
) -> FreedTexts:
    """Return how much `clear_texts` would take away."""
    row = connection.execute(
        "select count(*), coalesce(sum(length(cast(text as blob)) "
        "+ coalesce(length(cast(tool_calls as blob)), 0)), 0) from answer_text "
        f"where (request_hash, answer_no) in ({_chosen(connection, everything=everything)})",
        {"before": before},
    ).fetchone()
    return FreedTexts(int(row[0]), int(row[1]))


def clear_texts(
    connection: sqlite3.Connection, *, everything: bool = False, before: str | None = None
) -> FreedTexts:
    """Take away the texts that nothing points to, or all; only those stored before a time."""
    freed = clearable(connection, everything=everything, before=before)
    connection.execute(
        "delete from answer_text "
        f"where (request_hash, answer_no) in ({_chosen(connection, everything=everything)})",
        {"before": before},
    )
    return freed


def _chosen(connection: sqlite3.Connection, *, everything: bool) -> str:
    # Not `not in`: SQLite would look through all of them for each answer that is not there.
    spared = "" if everything else f" except select * from ({answers_in_use(connection)})"
    return (
        "select request_hash, answer_no from answer "
        f"where (:before is null or created_at < :before){spared}"
    )


def newest_answers(connection: sqlite3.Connection) -> Iterator[tuple[str, CachedAnswer]]:
    """Yield the newest answer of every call whose text is whole, by request hash."""
    request_hashes = connection.execute(
        "select distinct request_hash from answer_text order by request_hash"
    )
    for (request_hash,) in request_hashes:
        stored = newest_answer(connection, request_hash)
        if stored is not None:
            yield request_hash, stored


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """An answer from the store."""

    completion: Completion
    answer_no: int
    cost_microusd: int
    created_at: str


@dataclass(frozen=True, slots=True)
class Settlement:
    """How an attempt that was answered ended."""

    completion: Completion
    cost_microusd: int
    cost_kind: Literal["billed", "estimated", "replayed", "imported"]
    now: str
    http_status: int | None = None
    booked_microusd: int | None = None
    """What counts against budgets, if that is not the cost: of an answer without usage it is what
    was reserved, as its true cost is not known."""

    @property
    def charged_microusd(self) -> int:
        """What counts against budgets."""
        return self.cost_microusd if self.booked_microusd is None else self.booked_microusd


SIMULATED = "substr(a.served_model, 1, 4) = 'sim/'"
"""In a query on `answer a`: whether the simulator gave it."""

REUSABLE = "cost_kind not in ('replayed', 'imported')"
"""In a query on `answer`: whether it may be reused. Answers of a recording, a bundle or an imported
file may not: the file can contain anything."""

TIMED = "(a.latency_ms > 0 or a.cost_kind <> 'imported')"
"""In a query on `answer a`: whether its latency is known. Imported answers may come without."""

_COLUMNS = (
    "select a.answer_no, a.finish_reason, a.tokens_in, a.tokens_out, a.cached_in, a.latency_ms, "
    "a.served_model, a.cost_microusd, a.created_at, t.text, t.tool_calls, t.sha256, "
    "a.left_out, t.details, a.request_hash from "
)
_TEXT = "join answer_text t using (request_hash, answer_no) "
_ANSWER = f"{_COLUMNS} answer a {_TEXT} where a.request_hash = ? "
_NEWEST = f"{_ANSWER} and a.created_at >= ? and a.{REUSABLE} order by a.answer_no desc limit 1"
_FINISH_REASONS = {reason.value: reason for reason in FinishReason}
"""By the text that is stored: a dict is ten times as fast as the call of an enum."""


def newest_answer(
    connection: sqlite3.Connection, request_hash: str, *, since: str = ""
) -> CachedAnswer | None:
    """Return the newest answer of a call for reuse, if it is new enough and its text is whole."""
    row = connection.execute(_NEWEST, (request_hash, since)).fetchone()
    return None if row is None else _stored(row)


def answer_at(
    connection: sqlite3.Connection, request_hash: str, answer_no: int | None
) -> CachedAnswer | None:
    """Return one answer to a call, if it is stored and its text is whole."""
    row = connection.execute(f"{_ANSWER} and a.answer_no = ?", (request_hash, answer_no)).fetchone()
    return None if row is None else _stored(row)


def answers_at(
    connection: sqlite3.Connection, keys: Collection[tuple[str, int]]
) -> dict[tuple[str, int], CachedAnswer]:
    """Return the answers to some calls, by call and number, as far as `answer_at` returns them."""
    rows = connection.execute(
        f"{_COLUMNS} json_each(?) w cross join answer a on a.request_hash = "
        f"json_extract(w.value, '$[0]') and a.answer_no = json_extract(w.value, '$[1]') {_TEXT}",
        (json.dumps([*keys]),),
    )
    answers = {(row[14], row[0]): _stored(row) for row in rows}
    return {key: answer for key, answer in answers.items() if answer is not None}


def _stored(row: tuple[Any, ...]) -> CachedAnswer | None:
    if row[11] != text_hash(row[9], row[10], row[13]):
        logger.warning("a stored answer was tampered with and is not used")
        return None
    completion = Completion(
        text=row[9],
        finish_reason=_FINISH_REASONS[row[1]],
        tokens_in=row[2],
        tokens_out=row[3],
        cached_in=row[4],
        latency_ms=row[5],
        served_model=row[6],
        tool_calls=json.loads(row[10]) if row[10] else None,
        left_out=tuple(row[12].split()) if row[12] else (),
        details=json.loads(row[13]) if row[13] else None,
    )
    return CachedAnswer(completion, row[0], row[7], row[8])


def any_answer(connection: sqlite3.Connection) -> bool:
    """Whether anything is stored at all."""
    return connection.execute("select 1 from answer limit 1").fetchone() is not None


def has_foreign_answers(connection: sqlite3.Connection, run_id: str) -> bool:
    """Whether a run rests on an answer that may not be reused."""
    row = connection.execute(
        "select exists (select 1 from cell c join answer a on a.request_hash = c.request_hash "
        f"and a.answer_no = c.answer_no where c.run_id = ? and not a.{REUSABLE})",
        (run_id,),
    ).fetchone()
    return bool(row[0])


def newest_time(connection: sqlite3.Connection, request_hash: str) -> str | None:
    """Return when the newest answer of a call was stored; one from elsewhere does not count."""
    row = connection.execute(
        f"select max(created_at) from answer where request_hash = ? and {REUSABLE}", (request_hash,)
    ).fetchone()
    return None if row is None else row[0]


def text_hash(text: str, tool_calls: str | None, details: str | None = None) -> str:
    """Return the checksum kept beside a stored text."""
    more = f"\0{details}" if details else ""
    return hashlib.sha256(f"{text}\0{tool_calls or ''}{more}".encode()).hexdigest()


_VALUES = "?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13"


def insert_answer(
    connection: sqlite3.Connection, request_hash: str, attempt: int, settlement: Settlement
) -> int:
    """Store an answer and its text as the next of the call; return its number."""
    completion = settlement.completion
    tools = canonical_json(completion.tool_calls) if completion.tool_calls is not None else None
    details = canonical_json(completion.details) if completion.details is not None else None
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
        " ".join(completion.left_out),
        settlement.now,
    )
    # Nearly always it is the first answer, which saves reading the last number. Otherwise the row
    # gets no request hash, and is ignored for that.
    answer_no = 0
    done = connection.execute(
        "insert or ignore into answer values "
        f"(iif(exists (select 1 from answer where request_hash = ?1), null, ?1), {_VALUES})",
        (request_hash, answer_no, *values),
    )
    if done.rowcount != 1:
        following = "select coalesce(max(answer_no) + 1, 0) from answer where request_hash = ?"
        (answer_no,) = connection.execute(following, (request_hash,)).fetchone()
        connection.execute(
            f"insert into answer values (?1, {_VALUES})", (request_hash, answer_no, *values)
        )
    connection.execute(
        "insert into answer_text values (?, ?, ?, ?, ?, ?)",
        (
            request_hash,
            answer_no,
            completion.text,
            tools,
            text_hash(completion.text, tools, details),
            details,
        ),
    )
    return answer_no


def answers_to_case(
    connection: sqlite3.Connection, experiment: str, case_id: str
) -> list[tuple[str, str, str, str, int]]:
    """Return run, side, version, request hash and number of the answers to a case."""
    return connection.execute(
        "select distinct c.run_id, c.side, c.version, c.request_hash, c.answer_no from cell c "
        "join run r on r.id = c.run_id where c.case_id = ? and r.experiment = ? "
        "and c.answer_no is not null and c.status <> 'blocked'",
        (case_id, experiment),
    ).fetchall()


_OF_RUN = """
select a.request_hash, a.answer_no, t.text, t.tool_calls, a.finish_reason, a.tokens_in,
  a.tokens_out,
  a.latency_ms, a.served_model, a.cost_microusd, t.sha256
from (
  select request_hash, answer_no from cell where run_id = :run and answer_no is not null
  union
  select j.request_hash, j.answer_no from judgment j join cell c on c.id = j.cell_id where
    c.run_id = :run
  union
  select a.request_hash, a.answer_no from attempt b join answer a on a.attempt = b.id where
    b.run_id = :run
) used
join answer a using (request_hash, answer_no)
join answer_text t using (request_hash, answer_no)
order by a.request_hash, a.answer_no
"""


def answers_of_run(connection: sqlite3.Connection, run_id: str) -> Iterator[tuple[Any, ...]]:
    """Yield the answers that the cells of a run point to, and those it bought besides, as rows.

    Request hash, answer number, text, tool calls, finish reason, tokens in and out, latency, served
    model, cost, and the checksum of the text.
    """
    return iter(connection.execute(_OF_RUN, {"run": run_id}))


# A table with the columns `request_hash` and `answer_no` points to answers; one that also has
# `cell_id` does so for a cell. A table that is added later is found here by its columns.
_ANSWERS = ("answer", "answer_text")
_REMARKS = ("manual_grade",)


def columns(connection: sqlite3.Connection) -> dict[str, set[str]]:
    """Return the columns of every table."""
    rows = connection.execute(
        "select t.name, c.name from sqlite_schema t, pragma_table_info(t.name) c "
        "where t.type = 'table' and t.name not like 'sqlite_%'"
    )
    by_table: dict[str, set[str]] = {}
    for table, column in rows:
        by_table.setdefault(table, set()).add(column)
    return by_table


def answers_in_use(
    connection: sqlite3.Connection, *, cells: str | None = None, remarks: bool = True
) -> str:
    """Return SQL for (request_hash, answer_no) of every answer in use.

    `cells` is SQL for a set of cell ids: then only answers of these cells count. Without `remarks`
    human grades of an answer do not count as a use.
    """
    parts = []
    for table, names in sorted(columns(connection).items()):
        if table in _ANSWERS or not {"request_hash", "answer_no"} <= names:
            continue
        if table in _REMARKS and not remarks:
            continue
        key = "id" if table == "cell" else "cell_id"
        if cells is not None and key not in names:
            continue
        where = f" and {key} in ({cells})" if cells is not None else ""
        parts.append(
            f"select request_hash, answer_no from {table} where answer_no is not null{where}"
        )
    return " union all ".join(parts)


_RECENT = (
    "with recent as (select id from run where experiment = ? order by created_at desc limit 5) "
)
_MOST_LENGTHS = 500
_TOKENS_OF_ANSWERS = (
    "c.prompt, c.model",
    "cell c join answer a on a.request_hash = c.request_hash "
    "and a.answer_no = c.answer_no and a.cost_kind <> 'imported'",
)
_TOKENS_OF_REPLIES = (
    "'', j.model",
    "cell c join judgment j on j.cell_id = c.id join answer a "
    "on a.request_hash = j.request_hash and a.answer_no = j.answer_no "
    "and a.cost_kind <> 'imported'",
)


def token_counts(
    connection: sqlite3.Connection, experiment: str, *, judged: bool
) -> Iterator[tuple[str, str, int, int]]:
    """Yield prompt, model, input and output tokens of answers in the last runs of an experiment.

    The prompt is empty for the replies of judges. Where there are none, every cell would be read in
    vain to find them.
    """
    for columns, source in (
        (_TOKENS_OF_ANSWERS, _TOKENS_OF_REPLIES) if judged else (_TOKENS_OF_ANSWERS,)
    ):
        yield from connection.execute(
            f"{_RECENT} select {columns}, a.tokens_in, a.tokens_out from {source} "
            "where c.run_id in (select id from recent) and a.tokens_in + a.tokens_out is not null "
            f"limit {_MOST_LENGTHS}",
            (experiment,),
        )
