"""Evaluation of a change, such as a pull request, in a job of a forge.

Holds what such a job does and decides: what the change is compared with, whether models are called,
which experiments it affects, what it no longer measures, which earlier results and recordings
count, and with which exit code it ends. A forge translates its event into a `ChangeRequest`, and
the `ChangeResult` into comments and outputs.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.access import own_results, proposal_terms
from edison_ci.access.events import Situation, find_base
from edison_ci.api import reports
from edison_ci.api.change_coverage import ChangeCoverage, coverage_since
from edison_ci.api.evaluation import RunOrder, evaluate, most_important, select_experiments
from edison_ci.api.recordings import RECORDINGS, Recording, recorded_answers
from edison_ci.api.sessions import SessionFactory, require_editor
from edison_ci.documents.files import make_folder
from edison_ci.errors import EdisonError, ExitCode, UsageError
from edison_ci.execute.run_end import BATCH
from edison_ci.git.repository import Repository
from edison_ci.numeric import counted
from edison_ci.plan.plan import plan_run
from edison_ci.records import Verdict
from edison_ci.results.report import PlannedRun, Report
from edison_ci.store import backup

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from edison_ci.access.events import Event, Mode
    from edison_ci.config.load import Experiment, Project
    from edison_ci.execute.run_options import RunOutcome
    from edison_ci.execute.targets import RunTarget

FailOn = Literal["fail", "inconclusive", "never"]
_WHOSE = {
    Situation.FORK: "a pull request from a fork",
    Situation.DEPENDABOT: "a change by Dependabot",
    Situation.AFTER_WORKFLOW: "a job after another workflow",
}
_BY_HAND = "A maintainer who has read the change can evaluate it with a manually started workflow."
_DECIDED = {int(ExitCode.DONE), int(ExitCode.GATE_FAILED), int(ExitCode.UNCLEAR)}


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """The change that a job evaluates, and how."""

    event: Event
    mode: Mode
    """Whether models are called; see `mode_of`."""
    folder: Path
    """The working folder, by which a project that was moved is found."""
    experiments: tuple[str, ...] = ()
    """Names of the only experiments to evaluate; all that the change affects if empty."""
    budget_microusd: int | None = None
    batch: bool = False
    """Whether answers are bought in batches, which a later job collects."""
    wait: bool = False
    """Whether to wait until batches of earlier jobs have ended."""
    earlier_results: Path | None = None
    """Where the workflow restores the results of an earlier job, if it does."""
    factory: SessionFactory = SessionFactory()


class Comparison(NamedTuple):
    """What is compared with what, and whether models are called."""

    event: Event
    mode: Mode
    base: str | None
    """The commit that the change is compared with; None if everything counts as changed."""


class ChangeObserver(Protocol):
    """What a forge does while a change is evaluated."""

    def compared(self, comparison: Comparison) -> None:
        """Receive what is compared, before anything else is known."""

    def measured(self, coverage: ChangeCoverage, experiments: Sequence[Experiment]) -> None:
        """Receive what is no longer measured, and the experiments that are affected."""

    def starts(self) -> int | None:
        """Announce that experiments are evaluated now.

        Returns which push of its pull request is measured; None if that is unknown.
        """

    def require_keys(self, experiments: Sequence[Experiment]) -> None:
        """Raise UsageError if keys of models that are called are missing."""

    def compares(self, targets: Sequence[RunTarget]) -> None:
        """Receive the runs of one experiment, before the first run of all."""

    def note(self, sentence: str) -> None:
        """Receive a sentence for the log."""


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """What a job found out about a change."""

    comparison: Comparison
    coverage: ChangeCoverage
    """What is not evaluated as the change has it, which makes the report inconclusive at best."""
    undecided: str = ""
    """Why a replay cannot reach a verdict."""
    plans: tuple[PlannedRun, ...] = ()
    """The runs that would have been made, where there are neither keys nor recorded answers."""
    runs: tuple[RunOutcome, ...] = ()
    failure: EdisonError | None = None
    """What stopped the job after these runs."""

    @property
    def run_ids(self) -> list[str]:
        """The ids of the runs."""
        return [run.run_id for run in self.runs]

    @property
    def report(self) -> Report:
        """The report on it, without its runs."""
        failure = "" if self.failure is None else reports.failure_text(self.failure)
        return Report(
            failure=failure,
            undecided=self.undecided,
            plans=self.plans,
            dropped=self.coverage.dropped,
        )

    @property
    def waiting(self) -> bool:
        """Whether answers are on their way in a batch, so that nothing is decided."""
        return any(map(_waits, self.runs))

    @property
    def exit_code(self) -> int:
        """The most important exit code of the runs and of what is no longer measured."""
        codes = (ExitCode.UNCLEAR if _waits(run) else run.exit_code for run in self.runs)
        failed = () if self.failure is None else (self.failure.exit_code,)
        return most_important((self.coverage.exit_code, *codes, *failed))


def _waits(run: RunOutcome) -> bool:
    return run.progress.stopped_by == BATCH


def mode_of(event: Event, choice: str) -> Mode:
    """Return whether models are called; refuse `live` where it could only fail or do harm."""
    if choice == "live" and event.situation in {Situation.FORK, Situation.AFTER_WORKFLOW}:
        raise UsageError(
            f"mode live is not allowed for this event ({event.situation!s}): {event.why}",
            hint="use mode auto",
        )
    if choice == "live":
        return "live"
    return "replay" if choice == "replay" else event.mode


def exit_code_for(
    code: int,
    fail_on: FailOn,
    verdict: str | None = None,
    *,
    undecided: bool = False,
    waiting: bool = False,
) -> int:
    """Return the exit code of a job; `fail_on` applies to verdicts, not to other failures."""
    if code not in _DECIDED or waiting:
        return code
    if code == ExitCode.UNCLEAR and undecided:
        code = 0  # a replay without keys cannot do better
    if fail_on == "never":
        code = 0
    elif fail_on == "inconclusive" and verdict == Verdict.INCONCLUSIVE:
        code = code or int(ExitCode.UNCLEAR)
    return code


def evaluate_change(
    project: Project, request: ChangeRequest, observer: ChangeObserver
) -> ChangeResult:
    """Evaluate the experiments that a change affects.

    In a job for a proposal, the project is on the terms of its base. Raises UsageError or
    ConfigError if the change cannot be evaluated.
    """
    comparison = Comparison(request.event, request.mode, _base_of(project, request.event))
    observer.compared(comparison)
    # Named experiments leave the others out on purpose.
    ref = None if request.experiments else comparison.base
    coverage = coverage_since(project, request.folder, ref)
    experiments = select_experiments(
        project, request.experiments, since=comparison.base, offline=request.factory.offline
    )
    observer.measured(coverage, experiments)
    doubts = tuple(doubt.sentence for doubt in project.doubts)
    coverage = replace(coverage, dropped=(*coverage.dropped, *doubts))
    result = ChangeResult(comparison, coverage)
    if not experiments:
        return result
    push = observer.starts()
    if done := restore_results(project, request.earlier_results):
        observer.note(done)
    recording = None
    if request.mode == "replay":
        recording = recorded_answers(project)
        result = replace(result, undecided=_undecided_reason(request.event, recording))
        if recording is None:
            return replace(result, plans=_plans(project, experiments, result.undecided))
    order = _order(request, experiments, comparison.base, recording)
    runs, failure = _runs(project, request, replace(order, push=push), observer)
    return replace(result, runs=runs, failure=failure)


def _order(
    request: ChangeRequest,
    experiments: Sequence[Experiment],
    base: str | None,
    recording: Recording | None,
) -> RunOrder:
    return RunOrder(
        tuple(experiments),
        base,
        budget_microusd=request.budget_microusd,
        fresh=request.event.situation is Situation.SCHEDULE,
        wait=request.wait,
        batch=request.batch and request.mode == "live",
        recording=recording,
    )


def _base_of(project: Project, event: Event) -> str | None:
    repository = Repository.find(project.root)
    if repository is None:
        raise UsageError(
            "this project is not in a Git repository", hint="check it out with actions/checkout"
        )
    return find_base(event, repository).commit


def _runs(
    project: Project, request: ChangeRequest, order: RunOrder, observer: ChangeObserver
) -> tuple[tuple[RunOutcome, ...], EdisonError | None]:
    """Return the runs that ended, and what stopped the job after them; raises if none has ended."""
    if request.batch and project.file.settings.private:
        raise UsageError(
            "a private project keeps no results, so no later job could collect a batch",
            hint="leave out --batch",
        )
    if request.mode == "live":
        # A replay spends nothing, and the author of a fork has no role.
        require_editor(project, "run")
        observer.require_keys(order.experiments)
    run_request = order.request(request.factory, lambda why: observer.note(f"skipped: {why}"))
    agenda = run_request.targets(project)
    for targets in agenda:
        observer.compares(targets)
    ended: list[RunOutcome] = []
    try:
        ended.extend(evaluate(project, run_request, agenda))
    except EdisonError as error:
        if not ended:
            raise
        observer.note(f"stopped after {counted(len(ended), 'run')}: {error.message}")
        return tuple(ended), error
    return tuple(ended), None


def _undecided_reason(event: Event, recording: Recording | None) -> str:
    """Return why a replay cannot reach a verdict; '' if it can."""
    if event.trusted:
        return ""
    whose = _WHOSE.get(event.situation, f"an event {event.name!r}")
    source = "There are no recorded answers either, so nothing was evaluated."
    if recording is not None:
        answers = counted(len(recording.provider), "answer")
        source = f"The results come from {answers} recorded before."
    return f"No model was called: this is {whose}, which gets no keys. {source} {_BY_HAND}"


def _plans(
    project: Project, experiments: Sequence[Experiment], undecided: str
) -> tuple[PlannedRun, ...]:
    """Return the size and cost of the runs that a replay without any recorded answer leaves out."""
    if not undecided:
        raise UsageError(
            "there are no recorded answers to replay",
            hint=f"record some: edison run --record {RECORDINGS}/NAME.jsonl",
        )
    plans = []
    for experiment in experiments:
        plan = plan_run(project, experiment)
        cost = plan.cost_microusd
        span = None if cost is None else (round(cost.low), round(cost.high))
        plans.append(PlannedRun(experiment.id, plan.cases, plan.cells, plan.calls, span))
    return tuple(plans)


# Results of earlier jobs only save money: what is measured does not depend on them.
def restore_results(project: Project, earlier: Path | None) -> str:
    """Start from the results of an earlier job, as far as they are trusted.

    Unsigned results of a pull request are set aside: a replay may read them, but what it finds is
    inconclusive at best. Returns what was done, for the log; '' if there was nothing to do.
    """
    results = project.root / project.file.results
    if earlier is None or results.exists() or not earlier.exists():
        return ""
    try:
        make_folder(results.parent)
        standing = own_results.standing_of(project, earlier)
        if standing is own_results.Standing.RECORDING:
            shutil.copyfile(earlier, own_results.unsigned_path(results))
            return "the results of an earlier job are not signed: they do not count as evidence"
        if standing is own_results.Standing.REFUSED:
            return "the results of an earlier job are not signed: not used"
        backup.copy_whole(earlier, results)
        if proposal_terms.is_proposed(project.root):
            own_results.claim_file(results)
    except (EdisonError, OSError) as error:
        return f"the results of an earlier job cannot be used: {error}"
    return "starting from the results of an earlier job"


class KeptResults(NamedTuple):
    """Whether the results of a job were copied for later jobs."""

    kept: bool
    reason: str = ""
    """Why they were not copied; empty if there are none."""


def keep_results(project: Project, copy: Path) -> KeptResults:
    """Copy the results for later jobs; raises StoreError if that fails."""
    results = project.root / project.file.results
    if not results.exists():
        return KeptResults(kept=False)
    if project.file.settings.private:
        reason = "the project is private: its results are not copied for later jobs"
        return KeptResults(kept=False, reason=reason)
    # The signature belongs to the earlier results.
    own_results.signature_path(copy).unlink(missing_ok=True)
    backup.copy_whole(results, copy)
    return KeptResults(kept=True)
