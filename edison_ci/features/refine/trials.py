"""Trials: runs that measure a prompt and changes of it, and the budgets of refining and searching.

A trial is a normal run (same calls, cache, budget and store; base and head paired by case and
repeat), except that the prompt it measures is in no file. A trial that stops raises an error; the
same command continues, because answers are stored.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.errors import CallFailed, ExitCode, Interrupted, OutOfBudget
from edison_ci.execute.budgets import caps_of, run_limit, sufficient_cost
from edison_ci.execute.run_options import BaseReference, RunOptions, allow_code
from edison_ci.execute.session import Session
from edison_ci.execute.standalone import standalone_client
from edison_ci.features.refine.evidence import split_cases
from edison_ci.features.refine.sampling import TrialSampling
from edison_ci.features.refine.weaknesses import split_part
from edison_ci.git.repository import Repository
from edison_ci.plan.plan import bare_plan
from edison_ci.plan.selection import Selection
from edison_ci.providers.budget import BudgetExhausted
from edison_ci.records import PromptId, RunStatus
from edison_ci.results.spending import phase_prices
from edison_ci.store.database import open_reader
from edison_ci.store.ledger import SpendingCap, booked, phase_costs
from edison_ci.store.runs import TRIAL, done_trial, move_run
from edison_ci.store.writer import Writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from edison_ci.config.load import Experiment
    from edison_ci.config.prompt import Prompt
    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.run_options import CaseRounds, RunContext, RunOutcome
    from edison_ci.features.refine.evidence import Sampling
    from edison_ci.plan.estimate import Load
    from edison_ci.proposals.candidate import Change, RefineTarget


LAST_REPEATS = 3
"""Most repeats per case in the final check of the winner. The check is made once and decides about
the whole search; more repeats cost little compared with the search and reduce the noise."""
_ANY = 1_000_000
"""Room for versions where calls are free."""
_GROWN = 1.5
"""Safety factor: an answer of the winner may cost more than one of the current prompt."""


@dataclass(slots=True)
class SearchBudget:
    """Budget of all calls of a search, over all its starts."""

    results: Path
    scope: str
    limit: int
    experiment: str
    loads: Sequence[Load]
    """Calls and cost of measuring one version on all cases."""
    cases: int
    """Number of these cases."""
    check_sizes: Mapping[int, float]
    """Calls of the final check as a multiple of one version's calls, by repeats per case."""
    tokens: int | None = None
    reserved: int = 0
    """Micro-dollars reserved for the final check until it starts."""

    @classmethod
    def of(cls, target: RefineTarget, name: str, budget_microusd: int | None) -> SearchBudget:
        """Return the budget of a search, from the command line and the experiment."""
        project, experiment = target.project, target.experiment
        limit = run_limit(caps_of(project, experiment, "", budget_microusd))
        assert limit is not None, "stop.budget_usd has a default"
        tokens = experiment.file.stop.max_total_tokens
        results = project.root / project.file.results
        plan = bare_plan(project, experiment, of="head")
        sizes = final_check_sizes(target, plan.cases)
        budget = cls(
            results, f"search:{name}", limit, experiment.id, plan.loads, plan.cases, sizes, tokens
        )
        budget.reserve()
        return budget

    @property
    def cap(self) -> SpendingCap:
        """The spending cap that applies now."""
        name = "the budget of the search"
        return SpendingCap(self.scope, None, max(self.limit - self.reserved, 0), self.tokens, name)

    def spent(self) -> int:
        """Return the booked amount, including calls that may have been charged."""
        if not self.results.exists():
            return 0
        with closing(open_reader(self.results)) as reader:
            return booked(reader, self.cap, "")[0]

    def reserve(self) -> None:
        """Reserve the cost of the final check, at most half of the budget unless it needs more.

        Prices are those of earlier calls of a phase where there are any; one more call must be
        bookable at its highest price.
        """
        sizes = self.check_sizes
        least, most = (self._need(repeats) for repeats in (min(sizes), max(sizes)))
        self.reserved = min(most, max(least, self.limit // 2), self.limit)

    def final_repeats(self) -> int:
        """Return the repeats per case that the rest of the budget allows for the final check."""
        left, sizes = self.limit - self.spent(), self.check_sizes
        return max((size for size in sizes if self._need(size) <= left), default=min(sizes))

    def _need(self, repeats: int) -> int:
        total, worst = self._price(self.check_sizes[repeats], pairwise=1)
        return round(_GROWN * total) + worst

    def _price(self, share: float, *, pairwise: float = 0) -> tuple[float, int]:
        """Return the cost of a share of all answers, and the highest price of one call."""
        prices: dict[str, tuple[float, int]] = {}
        if self.results.exists():
            with closing(open_reader(self.results)) as reader:
                prices = phase_prices(reader, self.experiment)
        total, worst = 0.0, 0
        for load in self.loads:
            part = pairwise if load.phase == "pairwise" else share
            price = prices.get(load.phase)
            if price is not None:
                total += price[0] * load.once_calls * part
                worst = max(worst, price[1])
            elif load.cost_microusd is not None:
                total += load.cost_microusd.high * part
        return total, worst

    def room(self, cases: int) -> int:
        """Return about how many versions can still be measured on `cases` cases each."""
        total, worst = self._price(1 / max(self.cases, 1))
        per_version = total * cases
        left = self.limit - self.reserved - self.spent() - worst
        return _ANY if not per_version else max(int(left / per_version), 0)

    def release(self) -> None:
        """Release the reserve for the final check."""
        self.reserved = 0


def final_check_sizes(target: RefineTarget, cases: int) -> dict[int, float]:
    """Return the calls of the final check as a multiple of one version's calls, by repeats.

    Both sides count; the first repeats of the training cases are stored by then.
    """
    own, held = target.experiment.file.repeats, len(split_cases(target)[1])
    return {
        repeats: 2 * (cases * repeats - (cases - held) * own) / max(cases * own, 1)
        for repeats in range(own, max(LAST_REPEATS, own) + 1)
    }


CURRENT_PROMPT = "the current prompt"
"""Name of the base side of a trial."""
RESUME_HINT = "repeat the command to continue: answers are stored"
Cases = Literal["train", "holdout", "all"]


@dataclass(slots=True)
class Allowance:
    """What a refinement may still spend."""

    limit_microusd: int | None
    spent_microusd: int = 0

    @property
    def left(self) -> int | None:
        """Micro-dollars left; None without a limit."""
        if self.limit_microusd is None:
            return None
        return max(self.limit_microusd - self.spent_microusd, 0)

    @classmethod
    def of(cls, target: RefineTarget, budget_microusd: int | None) -> Allowance:
        """Return the lower of the limits of the command line and the experiment."""
        caps = caps_of(target.project, target.experiment, "", budget_microusd)
        return cls(run_limit(caps))


class SufficientBudget(NamedTuple):
    """A budget for which a refinement completes, and the limit that the files set."""

    microusd: int
    limit_microusd: int | None


def sufficient_budget(target: RefineTarget, loads: Sequence[Load]) -> SufficientBudget | None:
    """Return the budget for which the planned calls can be made; None if it is not known."""
    project, experiment = target.project, target.experiment
    results = project.root / project.file.results
    if any(load.price is None for load in loads) or not results.exists():
        return None
    with closing(open_reader(results)) as reader:
        past = phase_costs(reader, experiment=experiment.id)
    limit = run_limit(caps_of(project, experiment, "", None))
    return SufficientBudget(sufficient_cost(loads, past, done=False), limit)


@dataclass(frozen=True, slots=True)
class TrialResult:
    """A completed trial."""

    run_id: str
    cost_microusd: int
    sampling: Sampling | None = None
    """What the looks showed, if its cases were sampled."""


@dataclass(frozen=True, slots=True)
class TrialRunner:
    """Measures a prompt and changes of it."""

    target: RefineTarget
    open_context: Callable[[], AbstractContextManager[RunContext]]
    """Opens the dependencies of one session."""
    allowance: Allowance
    allow_code: bool = False
    repeats: int | None = None
    """Repeats per case; those of the experiment by default."""

    def measure(self, cases: Cases = "train") -> TrialResult:
        """Measure the current prompt, without pairwise comparisons of models."""
        experiment = self.target.experiment
        judges = experiment.file.judges.model_copy(update={"pairwise": None})
        file = experiment.file.model_copy(update={"judges": judges})
        return self._run(replace(experiment, file=file), None, self._selection(cases))

    def measure_versions(
        self, versions: Sequence[Prompt], cases: Collection[str] = ()
    ) -> TrialResult:
        """Measure versions of the prompt in one run, on all or some of the training cases.

        In the run each version has its own name. An identical earlier trial is reused.
        """
        experiment = self.target.experiment
        judges = experiment.file.judges.model_copy(update={"pairwise": None})
        named = tuple(
            replace(version, id=trial_name(version), path=f"{version.path}@{version.version}")
            for version in versions
        )
        update = {"judges": judges, "prompts": tuple(version.path for version in named)}
        file = experiment.file.model_copy(update=update)
        several = replace(experiment, file=file, prompts=named)
        selection = replace(self._selection("train"), cases=tuple(sorted(cases)))
        earlier = self._find_trial(several, selection)
        return self._run(several, None, selection) if earlier is None else TrialResult(earlier, 0)

    def try_out(
        self, change: Change, cases: Cases = "all", *, sampled: bool = False
    ) -> TrialResult:
        """Measure a change against the current prompt; `sampled`: on as many cases as it takes."""
        sampling = None
        if sampled and change.prompt is not None:
            sampling = TrialSampling(self.target, change.prompt.version)
        result = self._compare(change, self._selection(cases), rounds=sampling)
        return result if sampling is None else replace(result, sampling=sampling.found)

    def compare_on(self, change: Change, cases: Collection[str]) -> TrialResult:
        """Compare a change with the current prompt on some training cases."""
        selection = replace(self._selection("train"), cases=tuple(sorted(cases)))
        return self._compare(change, selection)

    def _compare(
        self, change: Change, selection: Selection, *, rounds: CaseRounds | None = None
    ) -> TrialResult:
        assert change.experiment is not None  # an invalid change breaks a guardrail
        repository = Repository.find(self.target.project.root)
        commit = (repository.head() if repository is not None else None) or ""
        against = BaseReference(CURRENT_PROMPT, commit, self.target.experiment, gates=())
        return self._run(change.experiment, against, selection, rounds=rounds)

    def _selection(self, cases: Cases) -> Selection:
        return Selection(repeats=self.repeats, part=split_part(self.target, cases))

    def _find_trial(self, experiment: Experiment, selection: Selection) -> str | None:
        """Return the id of an identical completed trial that is not older than `reuse_days`."""
        project = self.target.project
        allowed = allow_code(project) if self.allow_code else project
        plan_hash = bare_plan(allowed, experiment, selection=selection).hash
        if not self.results.exists():
            return None
        with self.open_context() as context, closing(open_reader(self.results)) as reader:
            reuse = dt.timedelta(days=project.file.settings.reuse_days)
            return done_trial(
                reader, experiment.id, plan_hash, utc.timestamp(context.now() - reuse)
            )

    def _run(
        self,
        experiment: Experiment,
        against: BaseReference | None,
        selection: Selection,
        *,
        rounds: CaseRounds | None = None,
    ) -> TrialResult:
        options = RunOptions(
            trigger=TRIAL,
            selection=selection,
            budget_microusd=self.allowance.left,
            allow_code=self.allow_code,
        )
        with self.open_context() as context:
            # Gates do not apply to a trial; its evidence decides.
            ungated = replace(context, gated=False, rounds=rounds)
            session = Session(self.target.project, experiment, ungated, against=against)
            ended = session.run(options)
        cost = self._cost(ended.run_id)
        self.allowance.spent_microusd += cost
        if ended.status is not RunStatus.COMPLETED:
            self._raise_stopped(ended, context)
        return TrialResult(ended.run_id, cost)

    def _cost(self, run_id: str) -> int:
        """Return the cost of a trial, including calls that may have been charged."""
        reader = open_reader(self.results)
        try:
            return booked(reader, SpendingCap(f"run:{run_id}", None), "")[0]
        finally:
            reader.close()

    @property
    def results(self) -> Path:
        """The results file."""
        return self.target.project.root / self.target.project.file.results

    def _raise_stopped(self, ended: RunOutcome, context: RunContext) -> None:
        name = self.target.experiment.id
        if ended.status is RunStatus.FAILED:
            why = "; ".join(f"{who}: {reason}" for who, reason in ended.progress.closed.items())
            raise CallFailed(
                f"{name} could not be measured: {why or 'too many errors'}",
                hint="check the models with edison models test, then repeat the command",
            )
        if ended.status is RunStatus.PAUSED:
            # A trial is not resumed: refining again reuses its stored answers.
            with Writer(self.results) as writer:
                now = utc.timestamp(context.now())
                writer.submit(move_run(ended.run_id, RunStatus.CANCELLED, now)).result()
        if ended.exit_code is ExitCode.BUDGET:
            raise out_of_budget(str(ended.progress.stopped_by))
        raise Interrupted("stopped", hint=RESUME_HINT)


_T = TypeVar("_T")


def run_async(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine in its own event loop; Ctrl-C raises Interrupted."""
    try:
        return asyncio.run(coroutine)
    except KeyboardInterrupt:
        raise Interrupted("stopped", hint=RESUME_HINT) from None


@asynccontextmanager
async def open_clients(trials: TrialRunner) -> AsyncIterator[ClientPool]:
    """Yield clients of every model within the allowance; their cost is added to it."""
    target = trials.target
    reuse = dt.timedelta(days=target.project.file.settings.reuse_days)
    with trials.open_context() as context:
        opened = standalone_client(
            target.project,
            target.experiment,
            context,
            purpose="refine",
            newer_than=utc.timestamp(context.now() - reuse),
        )
        async with opened as clients:
            left = trials.allowance.left
            if left is not None:
                cap = SpendingCap(
                    f"run:{clients.budget.run_id}", None, microusd=left, name="--budget"
                )
                clients.budget.caps = (*clients.budget.caps, cap)
            try:
                yield clients
            except BudgetExhausted as error:
                raise out_of_budget(error.refused.cap.name) from None
            finally:
                trials.allowance.spent_microusd += clients.usage.cost_microusd


def trial_name(prompt: Prompt) -> PromptId:
    """Return the name of a prompt version in a run that measures several."""
    return PromptId(f"{prompt.id}.{prompt.version[:12]}")


def out_of_budget(which: str) -> OutOfBudget:
    """Return the error for an exhausted budget."""
    message = f"{which.removeprefix('budget: ')} has no room for the next call"
    return OutOfBudget(message, hint="raise it and repeat the command: answers are stored")
