"""Options, base, context and outcome of a run."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Protocol

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.plan.selection import EVERYTHING, Selection
from edison_ci.providers.resilience import Clock
from edison_ci.records import Side
from edison_ci.results import snapshot
from edison_ci.store.runs import TRIAL

if TYPE_CHECKING:
    import datetime as dt
    import sqlite3
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import ModuleType

    from edison_ci.config.gates import Gate
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.contracts import Executor, Provider
    from edison_ci.errors import ExitCode
    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.existing_answers import ImportedAnswers, StoredAnswers
    from edison_ci.execute.progress import Progress
    from edison_ci.execute.runner import Grading
    from edison_ci.execute.tasks import RunWork
    from edison_ci.plan.interim_analysis import InterimAnalysis
    from edison_ci.plan.plan import Plan
    from edison_ci.providers.budget import Lease
    from edison_ci.providers.shared_cache import CacheAccess
    from edison_ci.records import BaselineDoubt, Case, RunStatus
    from edison_ci.store.audit import AuditEntry
    from edison_ci.store.ledger import SpendingCap
    from edison_ci.store.liveness import ProcessLock
    from edison_ci.store.runs import FireTime, Run


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run, as given on the command line."""

    trigger: str = "cli"
    run_id: str | None = None
    """Its id, if the process that starts it has chosen one."""
    selection: Selection = EVERYTHING
    budget_microusd: int | None = None
    reuse: bool = True
    allow_code: bool = False
    wait: bool = False
    batch: bool | None = None
    """Whether answers are bought in batches; False gives up batches that are gone."""
    regrade: str | None = None
    """The run whose answers are graded again, instead of asking for answers."""
    outputs: Mapping[str, Any] | None = None
    """Where imported answers come from; None if models are asked."""
    on_branch: bool = False
    """Whether the prompt is on a branch of edison's own, not in the working tree."""
    refines: bool = False
    """Whether it is an iteration of a loop, after which the prompt is refined."""
    doubts: tuple[BaselineDoubt, ...] = ()
    """Reasons for which the run is inconclusive at best."""
    fire: FireTime | None = None
    """The time of a schedule that it is started for."""

    push: int | None = 1
    """Which push of its pull request it measures; 1 outside of one, None if that is unknown."""

    @property
    def trial(self) -> bool:
        """Whether a suggestion is tried, which is in no file."""
        return self.trigger == TRIAL

    @property
    def uncommitted(self) -> bool:
        """Whether the commit that is checked out does not have the prompt that is measured."""
        return self.trial or self.on_branch


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended."""

    run_id: str
    status: RunStatus
    exit_code: ExitCode
    progress: Progress
    stored_answers: StoredAnswers | None = None
    """The answers that were graded again; None unless it was a regrade."""


@dataclass(frozen=True, slots=True)
class BaseReference:
    """The base of a run: other prompts and models on the same eval suite."""

    ref: str
    commit: str
    variant: Experiment | None
    """None when the base has no such valid experiment: then there is nothing to compare with."""
    gates: tuple[Gate, ...] | None = None
    """The gates of the base, which decide; None when it has none."""
    eval_suite: str = Side.HEAD
    """The side whose eval suite both sides are measured with."""
    changed: tuple[str, ...] = ()
    """Files of the eval suite that differ from the base."""
    replaced: tuple[str, ...] = ()
    """Prompts and models that are compared with their predecessors of another name."""
    doubts: tuple[BaselineDoubt, ...] = ()
    """Reasons for which the run is inconclusive at best."""
    invalid: str = ""
    """The first problem of the base's experiment, where it is not valid."""
    held: tuple[str, ...] = ()
    """Forms of answers that both sides are held to, as the text of one asks for them."""

    def as_json(self) -> dict[str, Any]:
        """Return the base as it is stored with the run, for resuming and reporting it."""
        return {
            "ref": self.ref,
            "commit": self.commit,
            "eval_suite": self.eval_suite,
            "changed": [*self.changed],
            "replaced": [*self.replaced],
            "doubts": [[*doubt] for doubt in self.doubts],
            "invalid": self.invalid,
        }


class CaseRounds(Protocol):
    """Chooses the cases of a run batch by batch."""

    def __call__(
        self, reader: sqlite3.Connection, run_id: str, work: RunWork
    ) -> Iterator[Sequence[Case]]:
        """Yield batches; when the next one is asked for, the cells of the last are stored."""
        ...


class ConnectWorkers(Protocol):
    """Connects a run to workers that make its calls and run its code checks."""

    async def __call__(
        self,
        run_id: str,
        models: Sequence[Model],
        programs: Mapping[str, str],
        tell: Callable[[str], None],
    ) -> Executor[Model]:
        """Return the workers; `tell` is called when one joins or leaves. Raises UsageError.

        `programs` are those of code checks, with the hashes of their files.
        """
        ...


@dataclass(frozen=True, slots=True)
class RunContext:
    """Dependencies of a session: providers, graders, clock and callbacks."""

    provider_for: Callable[[Model], Provider]
    grading: Callable[[Project, Experiment, ClientPool], Grading]
    connect: ConnectWorkers | None = None
    """Connects to the workers of a cluster; None if this process makes the calls."""
    answers: ImportedAnswers | None = None
    """Answers from a file that are graded, instead of asking for answers."""
    rounds: CaseRounds | None = None
    """Chooses the cases of a trial batch by batch, by what the batches before it showed."""
    gated: bool = True
    """Whether the gates decide about the run; they do not for a trial."""
    on_plan: Callable[[Plan], None] = lambda _: None
    """Called with the plan before any call is sent; may refuse it by raising."""
    on_check: Callable[[Plan], None] = lambda _: None
    """Called with the plan of each of several runs before the first of them; may refuse it too."""
    on_start: Callable[[Progress], None] = lambda _: None
    """Called before the first cell is filled; the progress changes while the run executes."""
    on_progress: Callable[[Progress], None] = lambda _: None
    on_alert: Callable[[str, float], None] = lambda _budget, _used: None
    """Called once for each budget that is nearly used up, with the share that is used."""
    record_alert: Callable[[sqlite3.Connection, str, SpendingCap, float], None] = (
        lambda _connection, _run, _cap, _used: None
    )
    """Called with a run's id in the transaction that notes such a budget."""
    record_end: Callable[[sqlite3.Connection, str], None] = lambda _connection, _run: None
    """Called with a run's id in the transaction that ends, fails or pauses it."""
    on_interim: Callable[[InterimAnalysis, bool], None] = lambda _interim, _more: None
    """Called after an interim analysis, with whether the run continues."""
    on_wait: Callable[[str], None] = lambda _run: None
    """Called with the run that has to end before this one can start."""
    on_batch: Callable[[str], None] = lambda _said: None
    """Called with news of a batch."""
    on_steer: Callable[[str, str, bool], None] = lambda _by, _said, _done: None
    """Called when a person changed the run or was refused: who, what was said, whether it was."""
    on_stop: Callable[[int], None] = lambda _in_flight: None
    """Called when the run is asked to stop, with the number of calls that are finished first."""
    on_worker: Callable[[str], None] = lambda _said: None
    """Called with news of a worker."""
    now: Callable[[], dt.datetime] = utc.now
    clock: Clock = field(default_factory=Clock.real)
    advice: str = ""
    """Advice to show while a model does not answer."""
    cache: CacheAccess | None = None
    """The shared cache of answers; None if there is none."""
    on_cache: Callable[[str], None] = lambda _said: None
    """Called with what is wrong with the shared cache; the run continues."""
    loop: SpendingCap | None = None
    """The budget of the loop or search that all calls belong to, scope `loop:ID` or other."""
    job: SpendingCap | None = None
    """The budget of the CI job for a proposal."""
    lease: Callable[[sqlite3.Connection, ProcessLock], Lease | None] = lambda _reader, _owner: None
    """Returns the money of a budget that other machines share; None without one."""
    key_used: Callable[[Model, str], None] = lambda _model, _run: None
    """Called with a model whose key is taken for calls, and the run that they are for."""
    ahead: tuple[ModuleType, ...] = ()
    """Modules that are used after the last answer, to be loaded while answers are awaited."""
    audit: Callable[[str, str, Any], AuditEntry] | None = None
    """Returns the entry of the audit for an action, on an experiment, with its details."""

    @property
    def makes_calls(self) -> bool:
        """Whether this process asks models: no worker, shared cache or file of answers does."""
        return self.connect is None and self.cache is None and self.answers is None

    def scopes(self, run_id: str, experiment: Experiment | None) -> tuple[str, ...]:
        """Return the scopes that the calls of a run are booked in."""
        named = () if experiment is None else (f"experiment:{experiment.id}",)
        return (f"run:{run_id}", *named, "project", *(cap.scope for cap in self.caps))

    @property
    def loop_id(self) -> str | None:
        """The loop that the runs belong to; None without a loop, or for a search."""
        kind, _, name = ("" if self.loop is None else self.loop.scope).partition(":")
        return name if kind == "loop" else None

    @property
    def caps(self) -> tuple[SpendingCap, ...]:
        """Caps in addition to those of the run, the experiment and the project."""
        return tuple(cap for cap in (self.loop, self.job) if cap is not None)


def options_of(run: Run) -> RunOptions:
    """Return the options with which a run was started, for resuming it."""
    kept = snapshot.snapshot_of(run).get("command line", {})
    chosen = Selection.from_json(kept.get("selection", {}))
    return RunOptions(
        selection=chosen,
        reuse=bool(kept.get("reuse", True)),
        allow_code=bool(kept.get("allow_code")),
        batch=kept.get("batch"),
        regrade=kept.get("regrade"),
        outputs=snapshot.outputs_of(run),
        budget_microusd=kept.get("budget_microusd"),
        doubts=snapshot.doubts_in(kept),
        push=snapshot.push_of(run),
    )


def allow_code(project: Project) -> Project:
    """Return the project with settings that allow checks to run code."""
    settings = project.file.settings.model_copy(update={"allow_code": True})
    return replace(project, file=project.file.model_copy(update={"settings": settings}))
