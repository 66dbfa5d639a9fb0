"""What was spent, on what, and how sure is that?

Amounts come from the attempts, which are booked before a call is sent: what was billed, what had to
be estimated because a provider named no usage, and what calls of unknown fate may have cost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from edison_ci.frozen import dataclass
from edison_ci.store.answers import SIMULATED
from edison_ci.store.runs import NO_TRIAL

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.results.call_sums import CallSums
    from edison_ci.store.runs import Run

By: TypeAlias = Literal["day", "experiment", "model", "phase"]
_KEYS: dict[By, str] = {
    "day": "substr(t.sent_at, 1, 10)",
    "experiment": "coalesce(t.experiment, r.experiment, '')",
    "model": "t.model",
    "phase": "t.phase",
}


_NOTHING = (0,) * 11


@dataclass(frozen=True, slots=True)
class Spent:
    """What the calls of a day, an experiment, a model or a phase cost."""

    key: str
    """Empty for what belongs to no experiment."""
    calls: int
    """Answered, recordings left out."""
    replayed: int
    failed: int
    """Not charged."""
    unknown: int
    """Perhaps charged, or still on their way: counted at the most they can cost."""
    billed_microusd: int
    estimated_microusd: int
    """Of answers whose provider named no usage."""
    unknown_microusd: int
    tokens_in: int
    tokens_out: int
    simulated: int
    """Of the calls, those that the simulator answered: no evidence, and nobody was paid."""
    simulated_microusd: int
    saved_microusd: int | None = None
    """What answers that were used again would have cost; None where that is not known."""

    @property
    def total_microusd(self) -> int:
        """All that counts against a budget."""
        return self.billed_microusd + self.estimated_microusd + self.unknown_microusd


def spending_by(connection: sqlite3.Connection, by: By, *, since: str = "") -> list[Spent]:
    """Return what was spent since a time, days in their order, all else the dearest first."""
    key = _KEYS[by]
    rows = connection.execute(
        f"select {key}, "
        "sum(t.state = 'settled' and a.cost_kind is not 'replayed'), "
        "sum(t.state = 'settled' and a.cost_kind is 'replayed'), "
        "sum(t.state = 'released'), sum(t.state in ('unknown', 'reserved')), "
        "sum(case when t.state = 'settled' and a.cost_kind is not 'estimated' "
        "then t.cost_microusd else 0 end), "
        "sum(case when t.state = 'settled' and a.cost_kind is 'estimated' "
        "then t.cost_microusd else 0 end), "
        "sum(case when t.state in ('unknown', 'reserved') then t.est_microusd else 0 end), "
        "coalesce(sum(case when t.phase <> 'replay' then a.tokens_in end), 0), "
        "coalesce(sum(case when t.phase <> 'replay' then a.tokens_out end), 0), "
        f"coalesce(sum(t.state = 'settled' and t.phase <> 'replay' and {SIMULATED}), 0), "
        f"coalesce(sum(case when t.state = 'settled' and {SIMULATED} then t.cost_microusd end), 0) "
        "from attempt t left join run r on r.id = t.run_id left join answer a on a.attempt = t.id "
        "where t.sent_at >= ? group by 1 order by 1",
        (since,),
    )
    saved = _saved(connection, by, since)
    found = [Spent(*row) for row in rows.fetchall()]
    if saved is not None:
        found = [replace(one, saved_microusd=saved.pop(one.key, 0)) for one in found]
    # Whoever bought nothing at all may have saved all the same.
    found += [Spent(name, *_NOTHING, rest) for name, rest in (saved or {}).items()]
    if by == "day":
        return sorted(found, key=lambda spent: spent.key)
    return sorted(found, key=lambda spent: (-spent.total_microusd, spent.key))


def _saved(connection: sqlite3.Connection, by: By, since: str) -> dict[str, int] | None:
    """Return what finished runs saved by using stored answers; a phase alone has no runs."""
    if by == "phase":
        return None
    table, key = "rollup_run", {"day": "substr(r.created_at, 1, 10)", "model": "s.model"}.get(by)
    if by == "model":
        table = "rollup_model"
    rows = connection.execute(
        f"select {key or 'r.experiment'}, sum(s.saved_microusd) from {table} s "
        "join run r on r.id = s.run_id where r.created_at >= ? and s.saved_microusd > 0 group by 1",
        (since,),
    )
    return dict(rows.fetchall())


def phase_prices(connection: sqlite3.Connection, experiment: str) -> dict[str, tuple[float, int]]:
    """Return by phase what a call for an experiment cost on average, and was booked at most."""
    rows = connection.execute(
        "select phase, avg(cost_microusd), max(est_microusd) from attempt "
        "where experiment = ? and state = 'settled' and phase <> 'replay' group by phase",
        (experiment,),
    )
    return {phase: (float(mean), int(most)) for phase, mean, most in rows}


def last_run_of(connection: sqlite3.Connection, experiment: str) -> str | None:
    """Return the newest run of an experiment, finished or not, trials of suggestions aside."""
    row = connection.execute(
        f"select id from run where experiment = ? and {NO_TRIAL} "
        "order by created_at desc, rowid desc limit 1",
        (experiment,),
    ).fetchone()
    return None if row is None else str(row[0])


def calls_of(connection: sqlite3.Connection, run: Run, sums: CallSums) -> dict[str, int]:
    """Return how the calls of a run went."""
    states = dict(
        connection.execute(
            "select state, count(*) from attempt where run_id = ? and phase <> 'replay' "
            "group by state",
            (run.id,),
        ).fetchall()
    )
    return {
        "made": states.get("settled", 0),
        "reused": run.reused,
        "retried": sums.retried,
        "unknown": states.get("unknown", 0),
        "estimated": sums.estimated,
    }


def reused_answers(connection: sqlite3.Connection, run_id: str) -> int:
    """Return how many answers a run rests on that it did not buy itself.

    Each counts once: an answer that base and head share was bought, and serves twice.
    """
    (count,) = connection.execute(
        "select count(*) from ("
        "select address, take from cell where run_id = ?1 and take is not null union "
        "select j.address, j.take from judgment j join cell c on c.id = j.cell_id "
        "where c.run_id = ?1 except select a.address, a.take from attempt t "
        "join answer a on a.address = t.address and a.attempt = t.id "
        "where t.run_id = ?1 and t.state = 'settled' and t.phase <> 'replay')",
        (run_id,),
    ).fetchone()
    return int(count)
