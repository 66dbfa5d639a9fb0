"""Options of a run, what it is compared with, what it works with, and how it ended."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from edison_ci import formatting
from edison_ci._dataclass import dataclass
from edison_ci.execute.work import HEAD
from edison_ci.plan.selection import EVERYTHING, Selection
from edison_ci.providers.resilience import Clock
from edison_ci.results.snapshot import doubts_in, kept_snapshot
from edison_ci.store.runs import TRIAL

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable

    from edison_ci.config.decisions import Gate
    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from edison_ci.contracts import Provider
    from edison_ci.errors import ExitCode
    from edison_ci.execute.clients import Lanes
    from edison_ci.execute.regrade import KeptAnswers
    from edison_ci.execute.runner import Grading, Progress
    from edison_ci.plan.baseline import Doubt
    from edison_ci.plan.looks import Look
    from edison_ci.plan.plan import Plan
    from edison_ci.store.ledger import Cap
    from edison_ci.store.runs import Run


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line asks of a run."""

    trigger: str = "cli"
    selection: Selection = EVERYTHING
    budget_microusd: int | None = None
    reuse: bool = True
    allow_code: bool = False
    wait: bool = False
    regrade: str | None = None
    """The run whose answers are graded again, instead of asking for answers."""
    elsewhere: bool = False
    """Whether the prompt is on a branch of ours, and not as it is in the working tree."""
    refines: bool = False
    """Whether it is an iteration of a loop, which refines what it measured."""
    doubts: tuple[Doubt, ...] = ()
    """Why its answers prove nothing, so that it is inconclusive at best."""

    @property
    def trial(self) -> bool:
        """Whether a suggestion is tried that is in no file."""
        return self.trigger == TRIAL

    @property
    def nowhere(self) -> bool:
        """Whether no commit that is checked out has what is measured."""
        return self.trial or self.elsewhere


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended."""

    run_id: str
    status: str
    exit_code: ExitCode
    progress: Progress
    kept: KeptAnswers | None = None
    """Whose answers were graded again, where that was asked for."""


@dataclass(frozen=True, slots=True)
class Against:
    """What a run is compared with: other prompts and models on the same material."""

    ref: str
    commit: str
    subject: Experiment | None
    """None when the base has no such experiment: then there is nothing to compare with."""
    gates: tuple[Gate, ...] | None = None
    """The gates of the base, which count; None when it has none to offer."""
    material: str = HEAD
    """Whose material both sides are measured with."""
    changed: tuple[str, ...] = ()
    """What of the material is not as it was at the base."""
    replaced: tuple[str, ...] = ()
    """What is compared with a former self of another name."""
    doubts: tuple[Doubt, ...] = ()
    """Why the run is inconclusive at best."""

    def as_json(self) -> dict[str, Any]:
        """Return what has to be known to go on with the run, and to tell of it."""
        return {
            "ref": self.ref,
            "commit": self.commit,
            "material": self.material,
            "changed": [*self.changed],
            "replaced": [*self.replaced],
            "doubts": [[*doubt] for doubt in self.doubts],
        }


@dataclass(frozen=True, slots=True)
class Tools:
    """What a session needs from outside: providers, graders, time, and somebody to tell."""

    provider_for: Callable[[Model], Provider]
    grading: Callable[[Project, Experiment, Lanes], Grading]
    gated: bool = True
    """Whether the gates decide about the run; nobody asks them about a trial."""
    on_plan: Callable[[Plan], None] = lambda _: None
    """Sees the plan before anything is sent, and may refuse it by raising."""
    on_start: Callable[[Progress], None] = lambda _: None
    """Gets the progress before the first cell is filled; it changes while the run goes on."""
    on_progress: Callable[[Progress], None] = lambda _: None
    on_alert: Callable[[str, float], None] = lambda _budget, _used: None
    """Hears once when a budget is nearly used up."""
    on_look: Callable[[Look, bool], None] = lambda _look, _more: None
    """Hears what was looked at, and whether the run goes on."""
    on_wait: Callable[[str], None] = lambda _run: None
    """Hears which run is waited for before this one can start."""
    on_stop: Callable[[int], None] = lambda _in_flight: None
    """Hears that the run is asked to stop, and how many calls are finished first."""
    now: Callable[[], dt.datetime] = formatting.now
    clock: Clock = field(default_factory=Clock.real)
    advice: str = ""
    """What whoever waits for a model that does not answer can do."""
    loop: Cap | None = None
    """The budget of the loop or search that all calls are made for, scope `loop:ID` or other."""
    job: Cap | None = None
    """The budget of the job that works on a proposal."""

    def scopes(self, run_id: str, experiment: Experiment | None) -> tuple[str, ...]:
        """Return what the calls of a run are booked on."""
        named = () if experiment is None else (f"experiment:{experiment.id}",)
        return (f"run:{run_id}", *named, "project", *(cap.scope for cap in self.caps))

    @property
    def loop_id(self) -> str | None:
        """The loop that runs are made for; None if it is a search, or nothing."""
        kind, _, name = ("" if self.loop is None else self.loop.scope).partition(":")
        return name if kind == "loop" else None

    @property
    def caps(self) -> tuple[Cap, ...]:
        """Limits beside those of the run, the experiment and the project."""
        return tuple(cap for cap in (self.loop, self.job) if cap is not None)


def options_of(run: Run) -> RunOptions:
    """Return the options with which a run was started, for going on with it."""
    kept = kept_snapshot(run).get("command line", {})
    chosen = Selection.from_json(kept.get("selection", {}))
    return RunOptions(
        selection=chosen,
        reuse=bool(kept.get("reuse", True)),
        allow_code=bool(kept.get("allow_code")),
        regrade=kept.get("regrade"),
        budget_microusd=kept.get("budget_microusd"),
        doubts=doubts_in(kept),
    )


def allowing_code(project: Project) -> Project:
    """Return the project as if its settings allowed checks to run code."""
    settings = project.file.settings.model_copy(update={"allow_code": True})
    return replace(project, file=project.file.model_copy(update={"settings": settings}))
