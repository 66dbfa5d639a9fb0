"""Spending by purpose with its certainty, and the cost of stored answers at current prices.

Amounts come from the attempts, which are booked before a call is sent: what was billed, what had to
be estimated because a provider named no usage, and what calls of unknown fate may have cost. An
answer keeps the cost that was paid for it, but models are compared by what their calls cost now,
and reuse saves what the call would cost now.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.records import Completion, Side
from edison_ci.results import snapshot
from edison_ci.store import answers
from edison_ci.store.runs import MADE_HERE, NO_TRIAL, find_run

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from edison_ci.config.load import Project
    from edison_ci.config.prices import Price
    from edison_ci.store.runs import Run


# Each call is one row among tens of thousands, so they are read once when a run ends: for what
# each day, model and phase cost, for what was tried again, and for which prompt and model paid.
_ANSWERING = frozenset({"generate", "replay"})
"""Phases in which cells get their answers."""
_Row = tuple[Any, ...]

WITHIN_MS = (100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000)
"""Latencies for which the answers are counted that took no longer."""
_WITHIN = tuple(f"within_{ms}_ms" for ms in WITHIN_MS)

_SPENT = f"""
select substr(t.sent_at, 1, 10), t.model, t.phase, sum(t.state = 'settled'),
  sum(t.state = 'released'), sum(t.state in ('unknown', 'reserved')),
  sum(case t.state when 'settled' then t.cost_microusd when 'released' then 0
      else t.est_microusd end),
  coalesce(sum(a.tokens_in), 0), coalesce(sum(a.tokens_out), 0),
  count(*), coalesce(sum(a.answer_no = 0), 0), coalesce(sum(a.cost_kind = 'estimated'), 0),
  sum(case t.state when 'released' then 0 else coalesce(t.cost_microusd, t.est_microusd) end),
  coalesce(sum(a.latency_ms), 0),
  {", ".join(f"coalesce(sum(a.latency_ms <= {ms}), 0)" for ms in WITHIN_MS)}
from attempt t left join answer a on a.attempt = t.id
where t.run_id = ? group by 1, 2, 3
"""
_PHASE, _RELEASED, _TRIES, _FIRST, _ESTIMATED, _PAID, _LATENCY = 2, 4, 9, 10, 11, 12, 13

# Calls without a first answer: is there one by the same process to the same question?
_ASKED_BESIDE = """
select count(distinct t.request_hash || t.owner)
from attempt t left join answer a on a.attempt = t.id
where t.run_id = ?1 and a.answer_no is not 0 and not exists (
  select 1 from answer b join attempt u on u.id = b.attempt
  where b.request_hash = t.request_hash and b.answer_no = 0 and u.run_id = ?1 and u.owner = t.owner
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
  join answer a on a.request_hash = j.request_hash and a.answer_no = j.answer_no
  join attempt t on t.id = a.attempt where c.run_id = :run
)
"""

# An answer that several prompts or models share was bought for the first of them.
_BOUGHT_FOR = """
select prompt, model, sum(paid), count(*), max(answer_no) from (
  select min(prompt) as prompt, min(model) as model, paid, answer_no from temp.used
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
    """Write the sums of calls and their costs, from answers and the rollups of models."""
    rows = [tuple(row) for row in connection.execute(_SPENT, (run_id,))]
    connection.executemany(
        "insert into rollup_spending (run_id, day, model, phase, calls, released, unknown, "
        f"cost_microusd, tokens_in, tokens_out, latency_ms, {', '.join(_WITHIN)}) "
        f"values ({', '.join('?' * (11 + len(_WITHIN)))})",
        [(run_id, *row[:_TRIES], *row[_LATENCY:]) for row in rows],
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
        [(run_id, *who, paid) for who, paid in _costs_by_variant(connection, run_id, rows).items()],
    )


def _costs_by_variant(
    connection: sqlite3.Connection, run_id: str, rows: list[_Row]
) -> dict[tuple[str, str], int]:
    """Return what calls cost by the prompt and model they were for."""
    bought = [tuple(row) for row in connection.execute(_BOUGHT_FOR)]
    calls = sum(row[_TRIES] - row[_RELEASED] for row in rows if row[_PHASE] in _ANSWERING)
    if calls != sum(row[3] for row in bought) or not _is_plain(connection, run_id, bought):
        return costs_of(connection, run_id)
    # Cells rest on every call for an answer, so the cells themselves need not be searched.
    costs = {(prompt, model): paid for prompt, model, paid, *_ in bought}
    others = [row for row in rows if row[_PHASE] not in _ANSWERING]
    if any(row[_TRIES] > row[_RELEASED] for row in others):
        costs["", ""] = sum(row[_PAID] for row in others)
    return costs


def _is_plain(connection: sqlite3.Connection, run_id: str, bought: list[_Row]) -> bool:
    """Whether all cells of a request hash share one answer, so that its buyer is known by it."""
    keys = "select distinct prompt, model from rollup_model where run_id = ?"
    if len(connection.execute(keys, (run_id,)).fetchall()) <= 1:
        return True
    (lacking,) = connection.execute(
        "select exists (select 1 from cell where run_id = ? and answer_no is null)", (run_id,)
    ).fetchone()
    return not lacking and all(row[4] == 0 for row in bought)


def costs_of(connection: sqlite3.Connection, run_id: str) -> dict[tuple[str, str], int]:
    """Return the cost of attempts by prompt and model; both empty for judges and graders."""
    rows = connection.execute(
        "select coalesce(c.prompt, ''), coalesce(c.model, ''), "
        "sum(coalesce(t.cost_microusd, t.est_microusd)) from attempt t left join "
        "(select request_hash, min(prompt) as prompt, min(model) as model from cell "
        "where run_id = ?1 group by request_hash) c on c.request_hash = t.request_hash "
        "where t.run_id = ?1 and t.state <> 'released' group by 1, 2",
        (run_id,),
    )
    return {(prompt, model): cost for prompt, model, cost in rows}


def call_sums(connection: sqlite3.Connection, run_id: str) -> CallSums:
    """Return the sums of the calls of a run, computed from all attempts."""
    attempts, asked, estimated = connection.execute(
        "select count(*), count(distinct t.request_hash || t.owner), coalesce(sum(a.cost_kind = "
        "'estimated'), 0) from attempt t left join answer a on a.attempt = t.id "
        "where t.run_id = ?",
        (run_id,),
    ).fetchone()
    read, written = connection.execute(
        "select coalesce(sum(a.tokens_in), 0), coalesce(sum(a.tokens_out), 0) from answer a join ("
        "select request_hash, answer_no from cell where run_id = ?1 and answer_no is not null "
        "union "
        "select j.request_hash, j.answer_no from judgment j join cell c on c.id = j.cell_id "
        "where c.run_id = ?1) u on u.request_hash = a.request_hash and u.answer_no = a.answer_no",
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
    """Return the number of reused answers from the rollups that were just written."""
    row = connection.execute(
        "select reused from rollup_calls where run_id = ?", (run_id,)
    ).fetchone()
    return int(row[0])


By: TypeAlias = Literal["day", "month", "experiment", "model", "phase"]
_KEYS: dict[By, str] = {
    "day": "substr(t.sent_at, 1, 10)",
    "month": "substr(t.sent_at, 1, 7)",
    "experiment": "coalesce(t.experiment, r.experiment, '')",
    "model": "t.model",
    "phase": "t.phase",
}

_NOTHING = (0,) * 12


@dataclass(frozen=True, slots=True)
class SpendingRow:
    """What the calls of a day, an experiment, a model or a phase cost."""

    key: str
    """Empty for what belongs to no experiment."""
    calls: int
    """Answered, recordings and imported answers left out."""
    replayed: int
    """Answers of recordings and imported files."""
    failed: int
    """Not charged."""
    unknown: int
    """Perhaps charged, or still on their way: counted at the most they can cost."""
    billed_microusd: int
    estimated_microusd: int
    """Of answers whose provider named no usage: the most that they can have cost."""
    unknown_microusd: int
    tokens_in: int
    tokens_out: int
    simulated: int
    """Calls that the simulator answered: they are no evidence and cost nothing."""
    simulated_microusd: int
    estimated: int
    """Answers whose provider named no usage: their tokens are counted here, from their texts."""
    saved_microusd: int | None = None
    """What answers that were used again would cost now; None where that is not known."""

    @property
    def total_microusd(self) -> int:
        """All that counts against a budget."""
        return self.billed_microusd + self.estimated_microusd + self.unknown_microusd


_SUMMED = tuple(field.name for field in fields(SpendingRow) if field.name != "key")


def sum_rows(key: str, rows: Iterable[SpendingRow]) -> SpendingRow:
    """Return rows as one; what was saved is not known if that of all is not."""
    parts = [*rows]
    values = {name: [getattr(row, name) for row in parts] for name in _SUMMED}
    saved = [value for value in values.pop("saved_microusd") if value is not None]
    sums = {name: sum(numbers) for name, numbers in values.items()}
    return SpendingRow(key=key, **sums, saved_microusd=sum(saved) if saved or not parts else None)


def in_order(by: str, rows: Iterable[SpendingRow]) -> list[SpendingRow]:
    """Return rows of days and months by time, all others by amount, the largest first."""
    if by in ("day", "month"):
        return sorted(rows, key=lambda spent: spent.key)
    return sorted(rows, key=lambda spent: (-spent.total_microusd, spent.key))


def spending_by(
    connection: sqlite3.Connection, by: By, prices: CurrentPrices | None, *, since: str = ""
) -> list[SpendingRow]:
    """Return what was spent since a time; without prices, what was saved is not known."""
    key = _KEYS[by]
    rows = connection.execute(
        f"select {key}, "
        "sum(t.state = 'settled' and t.phase <> 'replay'), "
        "sum(t.state = 'settled' and t.phase = 'replay'), "
        "sum(t.state = 'released'), sum(t.state in ('unknown', 'reserved')), "
        "sum(case when t.state = 'settled' and a.cost_kind is not 'estimated' "
        "then t.cost_microusd else 0 end), "
        "sum(case when t.state = 'settled' and a.cost_kind is 'estimated' "
        "then t.cost_microusd else 0 end), "
        "sum(case when t.state in ('unknown', 'reserved') then t.est_microusd else 0 end), "
        "coalesce(sum(case when t.phase <> 'replay' then a.tokens_in end), 0), "
        "coalesce(sum(case when t.phase <> 'replay' then a.tokens_out end), 0), "
        f"coalesce(sum(t.state = 'settled' and t.phase <> 'replay' and {answers.SIMULATED}), 0), "
        f"coalesce(sum(case when t.state = 'settled' and {answers.SIMULATED} "
        "then t.cost_microusd end), 0), sum(t.state = 'settled' and a.cost_kind is 'estimated') "
        "from own_attempt t left join run r on r.id = t.run_id "
        "left join answer a on a.attempt = t.id where t.sent_at >= ? group by 1 order by 1",
        (since,),
    )
    saved = None
    if by != "phase" and prices is not None:
        saved = saved_now(connection, by, prices, since)
    spent = [SpendingRow(*row) for row in rows.fetchall()]
    if saved is not None:
        spent = [replace(spending, saved_microusd=saved.pop(spending.key, 0)) for spending in spent]
    # Groups without a bought answer may still have saved something.
    spent += [SpendingRow(name, *_NOTHING, rest) for name, rest in (saved or {}).items()]
    return in_order(by, spent)


# Answers of finished runs that the run did not buy, by the tokens that they used: few rows for many
# answers, as those of one length are counted together.
_REUSED = f"""
select run_id, side, model, tokens_in, tokens_out, cached_in, cost_microusd, count(*) from (
  select c.run_id, c.side, {{prompt}} min(c.model) as model, a.tokens_in, a.tokens_out, a.cached_in,
    a.cost_microusd
  from run r join cell c on c.run_id = r.id
  join answer a on a.request_hash = c.request_hash and a.answer_no = c.answer_no
  join attempt t on t.id = a.attempt
  where r.created_at >= ? and t.run_id <> r.id and exists (
    select 1 from rollup_run s where s.run_id = r.id and s.answers > s.bought and s.{MADE_HERE})
  group by c.run_id, c.side, {{prompt}} {{model}} a.attempt
) group by 1, 2, 3, 4, 5, 6, 7
"""


def saved_now(
    connection: sqlite3.Connection, by: By, prices: CurrentPrices, since: str
) -> dict[str, int]:
    """Return what finished runs saved by using stored answers, at the current prices."""
    apart = {"prompt": "c.prompt,", "model": "c.model,"} if by == "model" else {}
    query = _REUSED.format(prompt=apart.get("prompt", ""), model=apart.get("model", ""))
    saved_by_key: Counter[str] = Counter()
    runs: dict[str, Run] = {}
    price_by_model: dict[tuple[str, str, str], Price | None] = {}
    for run_id, side, model, *tokens, paid, count in connection.execute(query, (since,)).fetchall():
        if run_id not in runs:
            runs[run_id] = find_run(connection, run_id)
        run = runs[run_id]
        if (run_id, side, model) not in price_by_model:
            price_by_model[run_id, side, model] = prices.price_of(run, side, model)
        time = run.created_at
        key = {"day": time[:10], "month": time[:7], "model": model}.get(by, run.experiment)
        cost = cost_now(
            price_by_model[run_id, side, model], (tokens[0], tokens[1], tokens[2]), paid
        )
        saved_by_key[key] += count * cost
    return {key: saved for key, saved in saved_by_key.items() if saved}


class RunSpending(NamedTuple):
    """What the calls of finished runs cost, by model, phase, experiment or day."""

    key: str
    calls: int
    failed: int
    unknown: int
    cost_microusd: int
    tokens_in: int
    tokens_out: int
    simulated: int
    """Of the cost, what belongs to simulated models."""


_STORED_KEYS: dict[By, str] = {
    "day": "s.day",
    "month": "substr(s.day, 1, 7)",
    "experiment": "r.experiment",
    "model": "s.model",
    "phase": "s.phase",
}


def run_spending_by(connection: sqlite3.Connection, by: By, since: str) -> list[RunSpending]:
    """Return what finished runs spent since a day, newest day or largest amount first.

    Read from the sums that were written when they ended, and so of any number of calls.
    """
    rows = connection.execute(
        f"select {_STORED_KEYS[by]}, sum(s.calls), sum(s.released), sum(s.unknown), "
        "sum(s.cost_microusd), sum(s.tokens_in), sum(s.tokens_out), "
        "sum(s.cost_microusd * exists (select 1 from json_each(r.models) part, "
        "json_each(part.value) model where model.key = s.model and model.value)) "
        "from rollup_spending s join run r on r.id = s.run_id "
        f"where s.day >= ? and s.{MADE_HERE} group by 1",
        (since,),
    )
    spent = [RunSpending(*row) for row in rows]
    if by in ("day", "month"):
        return sorted(spent, key=lambda row: row.key, reverse=True)
    return sorted(spent, key=lambda row: (-row.cost_microusd, row.key))


def saved_since(connection: sqlite3.Connection, since: str) -> int:
    """Return what answers that runs since a day used again had cost."""
    row = connection.execute(
        "select coalesce(sum(s.saved_microusd), 0) from rollup_run s join run r on r.id = s.run_id "
        f"where r.created_at >= ? and s.{MADE_HERE}",
        (since,),
    ).fetchone()
    return int(row[0])


def phase_prices(connection: sqlite3.Connection, experiment: str) -> dict[str, tuple[float, int]]:
    """Return by phase what a call for an experiment cost on average, and was booked at most."""
    rows = connection.execute(
        "select phase, avg(cost_microusd), max(est_microusd) from own_attempt "
        "where experiment = ? and state = 'settled' and phase <> 'replay' group by phase",
        (experiment,),
    )
    return {phase: (float(mean), int(most)) for phase, mean, most in rows}


def last_run_of(connection: sqlite3.Connection, experiment: str) -> str | None:
    """Return the newest run made here, finished or not, trials of suggestions aside."""
    where = f"experiment = ? and {NO_TRIAL} and id not in (select run_id from run_origin)"
    return next(iter(snapshot.newest_ids(connection, where, (experiment,))), None)


def calls_of(connection: sqlite3.Connection, run: Run, sums: CallSums) -> dict[str, int]:
    """Return the number of calls of a run by outcome."""
    states = dict(
        connection.execute(
            "select state, count(*) from attempt where run_id = ? and phase <> 'replay' "
            "group by state",
            (run.id,),
        ).fetchall()
    )
    (shared,) = connection.execute(
        "select count(*) from attempt t join answer a on a.attempt = t.id where t.run_id = ? "
        f"and t.phase = 'replay' and a.{answers.REUSABLE}",
        (run.id,),
    ).fetchone()
    return {
        "made": states.get("settled", 0),
        "reused": run.reused,
        "shared": shared,
        "retried": sums.retried,
        "unknown": states.get("unknown", 0),
        "estimated": sums.estimated,
    }


def reused_answers(connection: sqlite3.Connection, run_id: str) -> int:
    """Return the number of answers that a run reuses.

    Each counts once: an answer that base and head share was bought, and serves twice.
    """
    (count,) = connection.execute(
        "select count(*) from ("
        "select request_hash, answer_no from cell where run_id = ?1 and answer_no is not null "
        "union "
        "select j.request_hash, j.answer_no from judgment j join cell c on c.id = j.cell_id "
        "where c.run_id = ?1 except select a.request_hash, a.answer_no from attempt t "
        "join answer a on a.request_hash = t.request_hash and a.attempt = t.id "
        "where t.run_id = ?1 and t.state = 'settled' and t.phase <> 'replay')",
        (run_id,),
    ).fetchone()
    return int(count)


def run_cost(connection: sqlite3.Connection, run_id: str) -> int:
    """Return all that a run has booked, judges and calls of unknown fate included."""
    return booked(connection, f"run:{run_id}")


def booked_by_day(connection: sqlite3.Connection, scope: str, since: str = "") -> dict[str, int]:
    """Return what is booked in a scope on each day since one."""
    rows = connection.execute(
        "select day, microusd from booked where scope = ? and day >= ?", (scope, since)
    )
    return dict(rows.fetchall())


def booked(connection: sqlite3.Connection, scope: str, since: str = "") -> int:
    """Return what is booked in a scope since a day."""
    return sum(booked_by_day(connection, scope, since).values())


class Cost(NamedTuple):
    """What a model cost in a phase of the run."""

    model: str
    phase: str
    calls: int
    unknown: int
    microusd: int
    tokens_in: int
    tokens_out: int


def run_costs(connection: sqlite3.Connection, run_id: str) -> tuple[Cost, ...]:
    """Return what each model cost in each phase of a run, the largest amount first."""
    rows = connection.execute(
        "select t.model, t.phase, sum(t.state = 'settled'), sum(t.state in ('unknown', "
        "'reserved')), sum(case t.state when 'settled' then t.cost_microusd when 'released' "
        "then 0 else t.est_microusd end), coalesce(sum(a.tokens_in), 0), "
        "coalesce(sum(a.tokens_out), 0) from attempt t left join answer a on a.attempt = t.id "
        "where t.run_id = ? and t.phase <> 'replay' group by t.model, t.phase "
        "order by 5 desc, t.model, t.phase",
        (run_id,),
    )
    return tuple(Cost(*row) for row in rows.fetchall())


class ModelTest(NamedTuple):
    """The newest short call that tested a model."""

    time: str
    ok: bool
    error: str
    """Kind of the failure; empty if there was none."""
    latency_ms: int | None


class ModelUse(NamedTuple):
    """Calls of a model in finished runs."""

    last_day: str
    calls: int
    cost_microusd: int


def last_tests(connection: sqlite3.Connection) -> dict[str, ModelTest]:
    """Return the newest test of each model that was sent, by its name in models.yaml."""
    rows = connection.execute(
        "select t.model, coalesce(t.done_at, t.sent_at), t.state = 'settled', t.error, "
        "a.latency_ms from attempt t left join answer a on a.attempt = t.id "
        "where t.run_id >= 'test-' and t.run_id < 'test.' order by t.id"
    )
    return {
        model: ModelTest(time, bool(ok), str(error or "").partition(":")[0], latency)
        for model, time, ok, error, latency in rows
    }


def uses_since(connection: sqlite3.Connection, since: str) -> dict[str, ModelUse]:
    """Return what each model was called for in finished runs since a day."""
    rows = connection.execute(
        "select model, max(day), sum(calls), sum(cost_microusd) from rollup_spending "
        f"where day >= ? and {MADE_HERE} group by model",
        (since,),
    )
    return {model: ModelUse(*use) for model, *use in rows}


@dataclass(frozen=True, slots=True)
class CurrentPrices:
    """The prices in models.yaml and the price table of a project."""

    project: Project

    def price_of(self, run: Run, side: str, configuration: str) -> Price | None:
        """Return the current price of a model as it was in a run.

        None if models.yaml has no such model any more, or another one of that name, or no price.
        """
        name = configuration.partition("[")[0]
        model = self.project.models.get(name)
        mark = "" if side == Side.HEAD else f"{side}: "
        kept = snapshot.snapshot_of(run).get(f"{mark}{self.project.file.paths.models}: {name}")
        if model is None or not isinstance(kept, list) or kept[:1] != [model.identity()]:
            return None
        return self.project.prices.price_of(model)


def cost_now(
    price: Price | None, tokens: tuple[int | None, int | None, int], paid_microusd: int
) -> int:
    """Return the cost of an answer at a price, in micro-dollars; what was paid without one.

    `tokens` are input, output, and the input that was read from the cache of the provider.
    """
    read, written, cached = tokens
    if price is None or read is None or written is None:
        return paid_microusd
    return price.charge(Completion("", tokens_in=read, tokens_out=written, cached_in=cached))
