"""Which answers are stored, what did using them again save, and which could go?

An answer that was paid for stays as numbers for ever: its tokens, cost and time. Its text can be
taken away, by a person and on purpose; the call is then made again when somebody needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.frozen import dataclass
from edison_ci.store.answers import SIMULATED, newest_answer
from edison_ci.store.pointers import pointing

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from edison_ci.store.answers import Stored


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
