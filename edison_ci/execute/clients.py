"""The clients of a run: one for each of its models and phases."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.config.model_entry import OFFLINE
from edison_ci.config.requirements import ALLOW_CODE
from edison_ci.config.tokens import counter_for
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.errors import UsageError
from edison_ci.execute import batches as execute_batches
from edison_ci.providers import command, shared_cache
from edison_ci.providers.budget import Budgeted, ReplayedAnswers, RunBudget
from edison_ci.providers.client import BudgetUsage, ClientLimits, ModelClient, build_client
from edison_ci.providers.resilience import ClientClosed
from edison_ci.safety.redaction import redactor
from edison_ci.store.answers import any_answer, newest_time
from edison_ci.store.judgments import Judgment
from edison_ci.store.ledger import read_total

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.contracts import Executor, Provider
    from edison_ci.execute.batches import BatchClient, RunBatches
    from edison_ci.execute.run_options import RunContext
    from edison_ci.judges.judge import Ask
    from edison_ci.providers.replay import ReplayProvider
    from edison_ci.providers.shared_cache import SharedCache
    from edison_ci.records import Completion, Request
    from edison_ci.store.ledger import SpendingCap
    from edison_ci.store.liveness import ProcessLock
    from edison_ci.store.writer import Writer


@dataclass(frozen=True, slots=True)
class OpenResults:
    """The results file, open in this process, with the lock by which others see it is alive."""

    writer: Writer
    reader: sqlite3.Connection
    owner: ProcessLock


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings that all clients of a run share."""

    project: Project
    context: RunContext
    newer_than: str
    """Time from which stored answers count."""
    parts: int = 1
    """Machines that share what the provider allows in a minute."""
    batch: bool | None = None
    """Whether answers are bought in batches where that costs less."""
    deadline_s: float | None = None
    """Deadline of an answer with all its attempts; default: a multiple of the model's timeout."""
    executor: Executor[Model] | None = None
    """Makes the calls at workers; None if they are made here."""
    reads_cache: bool | None = None
    """Whether answers are taken from the shared cache; None if it is not used at all."""

    def open_cache(self, budget: RunBudget) -> SharedCache | None:
        """Return the shared cache; None if there is none."""
        access, reads = self.context.cache, self.reads_cache
        if access is None or reads is None:
            return None
        if not self.context.gated:  # no verdict would say what a trial rests on
            access = replace(access, replays=False)
        return shared_cache.SharedCache(access, budget, tell=self.context.on_cache, reads=reads)


@dataclass(slots=True)
class PhaseCalls:
    """Calls of one model in a phase other than `generate`, such as judging."""

    per_cell: float = 0.0
    """Planned calls for a cell, on average."""
    answered: int = 0
    failed: int = 0
    error: str = ""
    """The last error."""
    final: bool = False
    """Whether that error would be the same again."""

    @property
    def unproven(self) -> bool:
        """Whether calls to it are planned, and none was answered yet."""
        return self.per_cell > 0 and not self.answered

    def fail(self, error: CallError) -> None:
        """Count a call that was not answered."""
        self.failed += 1
        self.error, self.final = str(error), not error.retried


class ClientState(NamedTuple):
    """A client at one moment."""

    model: str
    phase: str
    concurrency: int
    """Calls that it may make at once."""
    in_flight: int
    paused: bool


class ClientPool:
    """The clients of a run: one for each model and phase, made at first use."""

    def __init__(
        self, settings: ClientSettings, budget: RunBudget, reader: sqlite3.Connection
    ) -> None:
        self._settings, self.budget, self._reader = settings, budget, reader
        self._batches: RunBatches | None = None
        self._cache = settings.open_cache(budget)
        if self._cache is not None:
            budget.on_bought = self._cache.offer
        self.usage = BudgetUsage()
        self.calls: dict[tuple[str, str], PhaseCalls] = {}
        """Calls for anything but answers, by phase and name of the model."""
        self._providers: dict[str, Provider] = {}
        self._clients: dict[tuple[str, str], ModelClient] = {}
        self._models: dict[str, Model] = {}
        self.concurrency: dict[str, int] = {}
        """Calls at once, here or at each worker, of the models whose limit was changed."""
        self.paused: set[str] = set()
        """Models that are paused."""

    def of(self, model: Model, phase: str) -> ModelClient:
        """Return the client of a model in a phase such as `generate` or `judge`."""
        key = (model.key, phase)
        if key not in self._clients:
            self._models[model.key] = model
            self._clients[key] = self._build(model, phase)
            self._pause_or_resume(model.key, self._clients[key])
        return self._clients[key]

    @property
    def batches(self) -> RunBatches:
        """The batches of the run; most runs have none."""
        if self._batches is None:
            self._batches = execute_batches.RunBatches(self._reader, wanted=self._settings.batch)
        return self._batches

    @property
    def executor(self) -> Executor[Model] | None:
        """The workers of the run; None if there are none."""
        return self._settings.executor

    def places(self, model: Model) -> int:
        """Return how many calls a model may make at once: its limit counts for each worker."""
        calls = self.concurrency.get(model.name, model.limits.concurrency)
        executor = self._executor_of(model)
        return calls if executor is None else calls * max(executor.workers(model), 1)

    def at_workers(self, model: str) -> bool:
        """Whether workers call a model."""
        return any(
            called.name == model and self._executor_of(called) is not None
            for called in self._models.values()
        )

    def _executor_of(self, model: Model) -> Executor[Model] | None:
        """Return what calls a model at workers; None if this process calls it."""
        executor = self._settings.executor
        return None if executor is None or executor.provider_for(model) is None else executor

    def follow_workers(self) -> None:
        """Adapt the clients to the workers of the moment; without one they wait."""
        for (key, _), client in self._clients.items():
            client.throttle.resize(self.places(self._models[key]))
            self._pause_or_resume(key, client)

    def _pause_or_resume(self, key: str, client: ModelClient) -> None:
        model = self._models[key]
        executor = self._executor_of(model)
        stranded = executor is not None and not executor.workers(model)
        if stranded or model.name in self.paused:
            client.throttle.pause()
        elif client.throttle.places.paused:
            client.throttle.resume()

    def spent(self) -> int:
        """Return what is booked for the calls of all clients, in micro-dollars."""
        return read_total(self._reader, f"run:{self.budget.run_id}", "")[0]

    def calls_of(self, phase: str, model: str) -> PhaseCalls:
        """Return the count of the calls of a model in a phase other than `generate`."""
        return self.calls.setdefault((phase, model), PhaseCalls())

    def _build(self, model: Model, phase: str) -> ModelClient:
        settings = self._settings
        if model.provider == "command" and not settings.project.file.settings.allow_code:
            raise UsageError(
                f"model {model.name!r} runs a program of the repository", hint=ALLOW_CODE
            )
        provider = self._provider(model)
        price = settings.project.prices.price_of(model)
        budgeted = Budgeted(provider, self.budget, model=model.name, phase=phase, price=price)
        budgeted.count = lambda texts: counter_for(model).of_messages(texts)
        limits = ClientLimits(
            self.places(model),
            self._share(model.limits.rpm),
            self._share(model.limits.tpm),
            model.limits.attempts,
            model.limits.timeout_s,
            settings.deadline_s,
            model.limits.give_up_s,
        )
        # An empty store has no answers to reuse; answers stored meanwhile are found when a call is
        # booked.
        may_have_answers = self._cache is not None or any_answer(self._reader)
        reader = self._reader if may_have_answers else None
        client = build_client(budgeted, limits, settings.context.clock, reader, settings.newer_than)
        client.breaker.advice, client.breaker.address = settings.context.advice, model.address
        if self._cache is not None and model.provider not in OFFLINE:
            client.cached.find_shared = partial(self._cache.find, model.name)
        if getattr(provider, "recorded", False):
            recording = cast("ReplayProvider", provider)
            client = replace(client, top=ReplayedAnswers(recording, self.budget, model=model.name))
        elif self._may_be_skipped(model) and isinstance(provider, command.SkippedProgram):
            client = replace(client, top=provider)
        elif phase == "generate" and (answers := self._batched(model, client)) is not None:
            client = replace(client, top=answers)
        return replace(client, usage=self.usage)

    async def fetch_shared(self, model: Model, request: Request) -> None:
        """Store the answer that the shared cache has to a request, if none is stored here."""
        if self._cache is None:
            return
        time = newest_time(self._reader, request.request_hash)
        if time is None or time < self._settings.newer_than:
            await self.of(model, "generate").cached.shared(request)

    def _provider(self, model: Model) -> Provider:
        if model.key not in self._providers:
            executor = self._settings.executor
            if model.name in self._settings.project.refused:
                executor = None
            provider = None if executor is None else executor.provider_for(model)
            if provider is None:
                provider = self._settings.context.provider_for(model)
            self._providers[model.key] = provider
            if model.keys and not getattr(provider, "recorded", False):
                self._settings.context.key_used(model, self.budget.run_id)
        return self._providers[model.key]

    def _may_be_skipped(self, model: Model) -> bool:
        return model.provider == "command" or model.name in self._settings.project.refused

    def _batched(self, model: Model, client: ModelClient) -> execute_batches.BatchedAnswers | None:
        """Return the answers of a model in batches; None if none are bought or collected here."""
        if self._batches is None and not self._settings.batch:
            return None
        batched = self.batch_client(model)
        if batched is None:
            return None
        newer_than = self._settings.newer_than
        return execute_batches.BatchedAnswers(self.batches, batched, client.cached, newer_than)

    def batch_client(self, model: Model) -> BatchClient | None:
        """Return what submits and collects the batches of a model; None if it has none."""
        prices = self._settings.project.prices
        batch_price, price = prices.batch_price_of(model), prices.price_of(model)
        service = getattr(self._provider(model), "batches", None)
        if batch_price is None or service is None:
            return None
        budgeted = partial(Budgeted, self._provider(model), self.budget, model=model.name)
        return execute_batches.BatchClient(
            service,
            budgeted(phase="generate", price=batch_price),
            budgeted(phase="generate", price=price),
        )

    def _share(self, a_minute: int | None) -> int | None:
        return None if a_minute is None else max(a_minute // self._settings.parts, 1)

    def resize(self, model: str, calls: int) -> None:
        """Change how many calls a model may make at once."""
        self.concurrency[model] = calls
        for (key, _), client in self._clients.items():
            if self._models[key].name == model:
                client.throttle.resize(self.places(self._models[key]))

    def pause(self, model: str) -> int:
        """Send no more calls to a model; return how many are on their way."""
        self.paused.add(model)
        clients = self._of(model)
        for _, client in clients:
            client.throttle.pause()
        return sum(client.throttle.places.taken for _, client in clients)

    def resume(self, model: str) -> None:
        """Send calls to a paused model again."""
        self.paused.discard(model)
        for (key, _), client in self._clients.items():
            if self._models[key].name == model:
                self._pause_or_resume(key, client)

    def unsteerable(self, model: str) -> str | None:
        """Return why no limit of a model applies; None if its calls can be steered."""
        for phase, client in self._of(model):
            if phase == "generate" and client.top is not client.cached:
                batched = isinstance(client.top, execute_batches.BatchedAnswers)
                return "is asked in batches" if batched else "is not called in this run"
        return None

    def states(self) -> list[ClientState]:
        """Return the state of each client that has been used."""
        return [
            ClientState(
                client.breaker.model,
                phase,
                client.throttle.places.cap,
                client.throttle.places.taken,
                client.throttle.places.paused,
            )
            for (_, phase), client in self._clients.items()
        ]

    def _of(self, model: str) -> list[tuple[str, ModelClient]]:
        """Return the clients of a model, with their phases."""
        return [
            (phase, client)
            for (_, phase), client in self._clients.items()
            if client.breaker.model == model
        ]

    def closed_judges(self) -> dict[str, str]:
        """Return the models whose clients for other phases than `generate` are closed, and why."""
        return {
            f"{client.breaker.model} ({phase})": why
            for (_, phase), client in self._clients.items()
            if phase != "generate" and (why := client.breaker.closed_reason)
        }

    def waiting_models(self) -> dict[str, str]:
        """Return the models that are in back-off, and their last error."""
        breakers = (client.breaker for client in self._clients.values())
        return {breaker.model: why for breaker in breakers if (why := breaker.waiting_reason)}

    def drain(self) -> None:
        """Send no more calls; those that wait in a queue are dropped."""
        self.budget.draining = True
        for (_, phase), client in self._clients.items():
            if phase == "generate":
                client.throttle.resume()  # what waits is dropped, instead of waiting to be aborted

    async def close(self) -> None:
        """Close the shared cache and the providers, and return leased money that is not spent."""
        try:
            if self._cache is not None:
                await self._cache.close()
            for provider in self._providers.values():
                close = getattr(provider, "aclose", None)
                if close is not None:
                    await close()
        finally:
            if self.budget.lease is not None:
                await self.budget.lease.close()


def open_clients(
    settings: ClientSettings,
    results: OpenResults,
    run_id: str,
    experiment: Experiment | None,
    caps: tuple[SpendingCap, ...],
) -> ClientPool:
    """Return the clients of a run, or of calls outside of one, that book within caps."""
    context, project, owner = settings.context, settings.project, results.owner
    budget = RunBudget(
        writer=results.writer,
        run_id=run_id,
        owner=owner.id,
        scopes=context.scopes(run_id, experiment),
        caps=caps,
        now=lambda: utc.timestamp(context.now()),
        is_alive=owner.is_alive,
        redact=redactor(
            project.file.settings, None if experiment is None else experiment.file.safety
        ),
        lease=context.lease(results.reader, owner),
    )
    return ClientPool(settings, budget, results.reader)


_judgments: ContextVar[list[Judgment]] = ContextVar("_judgments")
"""Replies of judges on the current cell; every worker has its own list."""


def record_judgments() -> list[Judgment]:
    """Return the list to which every reply of a judge is added from now on, in this task."""
    judgments: list[Judgment] = []
    _judgments.set(judgments)
    return judgments


def judge_caller(project: Project, clients: ClientPool, *, phase: str = "judge") -> Ask:
    """Return the function that calls judges, through the same clients as all other calls.

    What it returns is stored with the cell that is graded.
    """

    async def ask(name: str, request: Request) -> Completion:
        calls = clients.calls_of(phase, name)
        try:
            answer = await clients.of(project.models[name], phase).answer(request)
        except ClientClosed as closed:
            # The answer is stored and may be judged later; only its judgment is missing.
            error = CallError(ErrorKind.PROVIDER_ERROR, closed.reason, charged=False)
            calls.fail(error)
            calls.final = True
            raise error from None
        except CallError as error:
            calls.fail(error)
            raise
        calls.answered += 1
        _judgments.get().append(Judgment(name, request.request_hash, answer.answer_no))
        return answer.completion

    return ask
