"""Budgets of a run: every cap on what it may book, from its file, the project and the base."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.config.prices import HOUR
from edison_ci.errors import OutOfBudget, UsageError
from edison_ci.numeric import dollars
from edison_ci.store.ledger import SpendingCap, booked, phase_costs

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping

    from edison_ci.config.experiment import Stop
    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.progress import Progress
    from edison_ci.execute.session import OpenRun
    from edison_ci.plan.estimate import Load
    from edison_ci.store.ledger import PhaseCosts


_OF_BASE = " of the base"
_TOKENS = "stop.max_total_tokens"


def caps_of(
    project: Project, experiment: Experiment | None, run_id: str, budget_microusd: int | None
) -> tuple[SpendingCap, ...]:
    """Return every limit on what a run may book, the narrowest scope first."""
    run, own = f"run:{run_id}", project.file.defaults.budget_usd
    stop = experiment.file.stop if experiment is not None else None
    if stop is not None and stop.budget_usd is not None:
        own = stop.budget_usd
    caps = [SpendingCap(run, None, microusd=_microusd(own), name="stop.budget_usd")]
    if budget_microusd is not None:
        caps.append(SpendingCap(run, None, microusd=budget_microusd, name="--budget"))
    if experiment is not None:
        caps += _of_experiment(run, experiment.id, experiment.file.stop, "")
    caps += _of_month(project.file.settings.monthly_budget_usd, "")
    if (base := project.base_limits) is not None:
        limit = _microusd(base.run_usd)
        caps.append(SpendingCap(run, None, microusd=limit, name="the budget of the base"))
        if experiment is not None and experiment.id in base.stops:
            caps += _of_experiment(run, experiment.id, base.stops[experiment.id], _OF_BASE)
        elif base.run_tokens is not None:
            caps.append(SpendingCap(run, None, tokens=base.run_tokens, name=f"{_TOKENS}{_OF_BASE}"))
        caps += _of_month(base.monthly_usd, _OF_BASE)
    return tuple(caps)


def job_cap(project: Project, environ: Mapping[str, str]) -> SpendingCap | None:
    """Return the cap on all calls of a CI job for a proposal; None outside of such a job."""
    if project.base_limits is None:
        return None
    names = ("GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT", "GITHUB_JOB")
    scope = "job:" + "-".join(environ.get(name, "") for name in names)
    limit = _microusd(project.base_limits.job_usd)
    return SpendingCap(scope, None, microusd=limit, name="the budget of the base for a job")


def _of_experiment(run: str, experiment: str, stop: Stop, whose: str) -> Iterator[SpendingCap]:
    if stop.max_total_tokens is not None:
        yield SpendingCap(run, None, tokens=stop.max_total_tokens, name=f"{_TOKENS}{whose}")
    if stop.daily_budget_usd is not None:
        limit, name = _microusd(stop.daily_budget_usd), f"stop.daily_budget_usd{whose}"
        yield SpendingCap(f"experiment:{experiment}", 1, microusd=limit, name=name)


def _of_month(dollars: float | None, whose: str) -> Iterator[SpendingCap]:
    if dollars is not None:
        name = f"settings.monthly_budget_usd{whose}"
        yield SpendingCap("project", 30, microusd=_microusd(dollars), name=name)


def shard_caps(
    connection: sqlite3.Connection, caps: Iterable[SpendingCap], parts: int, run_id: str, now: str
) -> tuple[SpendingCap, ...]:
    """Return the caps of one shard; the machines of the shards do not see each other's bookings.

    What was booked before the run counts in full; the rest is divided by the number of shards.
    """
    return tuple(_share(connection, cap, parts, run_id, now[:10]) for cap in caps)


def _share(
    connection: sqlite3.Connection, cap: SpendingCap, parts: int, run_id: str, today: str
) -> SpendingCap:
    all_of_it = booked(connection, cap, today)
    own = booked(connection, replace(cap, scope=f"run:{run_id}"), today)
    before = [total - mine for total, mine in zip(all_of_it, own, strict=True)]
    limits = [
        None if most is None else min(most, spent + max(most - spent, 0) // parts)
        for most, spent in zip((cap.microusd, cap.tokens), before, strict=True)
    ]
    return replace(cap, microusd=limits[0], tokens=limits[1])


def run_limit(caps: Iterable[SpendingCap]) -> int | None:
    """Return the most that a run may cost, in micro-dollars; None without such a limit."""
    own = [cap.microusd for cap in caps if cap.days is None and cap.microusd is not None]
    return min(own, default=None)


def token_cap(caps: Iterable[SpendingCap]) -> SpendingCap | None:
    """Return the cap with the fewest tokens that a run may use; None without such a limit."""
    own = [cap for cap in caps if cap.days is None and cap.tokens is not None]
    return min(own, key=lambda cap: cap.tokens or 0, default=None)


def refuse_without_room(
    connection: sqlite3.Connection | None,
    caps: Iterable[SpendingCap],
    microusd: int,
    today: str,
    what: str = "it costs",
) -> None:
    """Raise OutOfBudget if a day or month has less left than what a run costs at least.

    Without a connection nothing is booked yet.
    """
    for cap in caps:
        if cap.days is None or cap.microusd is None:
            continue
        spent = 0 if connection is None else booked(connection, cap, today)[0]
        left = max(cap.microusd - spent, 0)
        if microusd > left or not left:
            raise OutOfBudget(
                f"{what} {dollars(microusd)} or more, and {cap.name} has {dollars(left)} left",
                hint="raise that budget, or wait until it has room again",
            )


def refuse_runs_without_room(
    connection: sqlite3.Connection | None,
    runs: Iterable[tuple[Iterable[SpendingCap], int]],
    budget_microusd: int | None,
    today: str,
) -> None:
    """Raise OutOfBudget if runs together cost more, at least, than what a budget has left.

    Each run comes with its limits and its lowest cost; `budget_microusd` is that of all of them.
    """
    together: dict[SpendingCap, int] = {}
    total = 0
    for caps, lowest in runs:
        total += lowest
        for cap in set(caps) if lowest else ():
            together[cap] = together.get(cap, 0) + lowest
    what = "the runs cost"
    if budget_microusd is not None and total > budget_microusd:
        raise OutOfBudget(
            f"{what} {dollars(total)} or more, and --budget is {dollars(budget_microusd)}",
            hint="raise --budget, or name fewer experiments",
        )
    for cap, lowest in together.items():
        refuse_without_room(connection, [cap], lowest, today, what)


def share_used(connection: sqlite3.Connection, cap: SpendingCap, today: str) -> float:
    """Return how much of a limit is booked, from 0 to 1."""
    microusd, tokens = booked(connection, cap, today)
    if cap.microusd is not None:
        return microusd / cap.microusd if cap.microusd else 1.0
    return tokens / cap.tokens if cap.tokens else 0.0


_BYTES_PER_TOKEN = 8
"""A token of a prompt has fewer bytes, on average; reservations count bytes."""
_SAFETY = 2
"""Calls that are left may cost this many times as much as the most expensive one so far."""
_MAX_TOKENS = 4096


def sufficient_cost(
    loads: Iterable[Load],
    past: Mapping[tuple[str, str], PhaseCosts],
    *,
    done: bool,
    refused_microusd: int = 0,
) -> int:
    """Return micro-dollars for which the calls of a plan, or those that are left, can be made.

    A call counts with twice the highest cost in its phase and model, at most what it reserves;
    one call more must find room at what it reserves. With `done` the past calls are
    calls of this plan, and not counted again. `refused_microusd` is what a call would have
    reserved for which there was no room.
    """
    planned: dict[tuple[str, str], list[Load]] = {}
    for load in loads:
        phase = load.phase if load.phase in ("generate", "pairwise", "embed", "refine") else "judge"
        planned.setdefault((phase, load.model.name), []).append(load)
    total, costliest = 0, 0
    for key, same in planned.items():
        calls, costs = sum(load.calls for load in same), past.get(key)
        per_call = reserves = max(refused_microusd, *(_reservation(load) for load in same))
        if costs is not None:
            reserves = max(reserves, costs.reserves_microusd)
            per_call = min(_SAFETY * costs.most_microusd, reserves) if costs.calls else reserves
            calls -= costs.calls if done else 0
        total += max(calls, 0) * per_call
        costliest = max(costliest, reserves)
    return total + costliest


def _reservation(load: Load) -> int:
    """Return about what a call of a plan reserves, rather more."""
    if load.price is None or not load.calls:
        return 0
    tokens = math.ceil(_BYTES_PER_TOKEN * load.once_in.high / max(load.once_calls, 1))
    most = load.model.params.get("max_tokens", _MAX_TOKENS)
    return math.ceil(load.price.most(tokens, int(most), writes=HOUR))


@dataclass(slots=True)
class RunCaps:
    """The limits on what a run may book, of which its own budget can be changed."""

    run: OpenRun
    microusd: int | None
    """The value of --budget, or the one that replaced it."""
    parts: int
    """Shards that share the limits."""

    @classmethod
    def of(cls, run: OpenRun) -> RunCaps:
        """Return the limits of a run before its first call."""
        shard = run.options.selection.shard
        return cls(run, run.options.budget_microusd, 1 if shard is None else shard.count)

    def current(self) -> tuple[SpendingCap, ...]:
        """Return the limits of this shard at this moment."""
        run = self.run
        return shard_caps(run.reader, self._of_all(self.microusd), self.parts, run.id, run.now())

    def _of_all(self, own: int | None) -> tuple[SpendingCap, ...]:
        """Return every limit of all shards together, given the run's own budget."""
        run = self.run
        return (*caps_of(run.project, run.experiment, run.id, own), *run.context.caps)

    def refuse(self, microusd: int) -> None:
        """Raise UsageError, naming each limit that is in the way, if a budget cannot be given."""
        reader, today = self.run.reader, self.run.now()[:10]
        scope = f"run:{self.run.id}"
        spent = booked(reader, SpendingCap(scope, None), today)[0]
        if microusd < spent:
            raise UsageError(
                f"the run has booked {dollars(spent)} already", hint="stop it: edison runs pause"
            )
        wrong = []
        for cap in self._of_all(None):
            if cap.microusd is None:
                continue
            others = booked(reader, cap, today)[0] - spent
            allowed = cap.microusd if cap.scope == scope else max(cap.microusd - others, spent)
            if microusd > allowed:
                wrong.append(f"{cap.name} allows this run at most {dollars(allowed)}")
        if wrong:
            raise UsageError("; ".join(wrong))

    def find_sufficient(self, progress: Progress) -> None:
        """Find the value of the budget that stopped the run with which it would go through."""
        run, caps = self.run, self._of_all(self.microusd)
        name = str(progress.stopped_by).removeprefix("budget: ")
        cap = next((cap for cap in caps if cap.name == name and cap.microusd is not None), None)
        if cap is None or progress.stopped_by != f"budget: {name}":
            return
        costs = phase_costs(run.reader, run_id=run.id)
        left = sufficient_cost(
            run.plan.loads, costs, done=True, refused_microusd=progress.refused_microusd
        )
        enough = booked(run.reader, cap, run.now()[:10])[0] + self.parts * left
        progress.sufficient_microusd = enough
        for other in caps:
            own = other.days is None and other.microusd is not None and other is not cap
            if own and (other.microusd or 0) < enough and cap.days is None:
                progress.narrower = other.name


def _microusd(dollars: float) -> int:
    return round(dollars * 1_000_000)
