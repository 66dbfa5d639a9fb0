"""The end of a run: its last status and exit code, and the verdict, by gates or without."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.config import expected_form
from edison_ci.decide import conclusion
from edison_ci.errors import ExitCode
from edison_ci.execute.progress import THE_RUN
from edison_ci.execute.run_options import RunOutcome
from edison_ci.judges import approval as judge_approval
from edison_ci.numeric import exceeds, fixed
from edison_ci.plan import interim_analysis
from edison_ci.plan.plan import ranged
from edison_ci.records import CellStatus, RunStatus, Side, Verdict
from edison_ci.results import judges, rollups, scores, snapshot, spending
from edison_ci.store.audit import add_audit
from edison_ci.store.judgments import write_approval
from edison_ci.store.runs import find_run, move_run
from edison_ci.store.steering import withdraw_requests

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from edison_ci.config.gates import Gate
    from edison_ci.config.load import Experiment
    from edison_ci.config.prompt import Prompt
    from edison_ci.decide.conclusion import Conclusion
    from edison_ci.execute.progress import Progress, ProgressReporter
    from edison_ci.execute.run_options import BaseReference, RunContext
    from edison_ci.execute.session import OpenRun
    from edison_ci.execute.tasks import RunWork
    from edison_ci.plan.interim_analysis import InterimAnalysis, Kind
    from edison_ci.plan.plan import Plan
    from edison_ci.records import BaselineDoubt
    from edison_ci.store.audit import AuditEntry

    Ask = Callable[[InterimAnalysis | None], Conclusion | None]

_FEWEST_ERRORS = 2
BATCH = "batch"
"""What stops a run whose answers are on their way in a batch."""


@dataclass(frozen=True, slots=True)
class RunGates:
    """The gates of a run: those of its base, or of its own experiment."""

    experiment: Experiment
    against: BaseReference | None
    context: RunContext

    @property
    def all(self) -> tuple[Gate, ...]:
        """The gates that decide: those of the base where it has any."""
        of_base = self.against.gates if self.against is not None else None
        return self.experiment.file.gates if of_base is None else of_base

    def doubts(self, run: OpenRun) -> tuple[BaselineDoubt, ...]:
        """Return the reasons for which a run is inconclusive at best; none without gates.

        They are read from the results file: an answer that is not trusted adds one.
        """
        return snapshot.doubts_of(find_run(run.reader, run.id)) if self.all else ()

    def interim_kind(self, work: RunWork) -> Kind | None:
        """Return the kind of interim analyses; None if the gates decide once, at the end.

        A shard sees too few cells to stop early, a regrade can add no cells, and a batch has all
        of them at once.
        """
        apart = work.only is not None or work.selection.shard is not None or work.batch
        if apart or not (self.context.gated and self.all) or Side.BASE not in work.sides:
            return None
        return interim_analysis.interim_kind(self.all, self.experiment.file.stop)

    def forecast(self, plan: Plan, work: RunWork) -> Plan:
        """Return the plan with a range of calls, where interim analyses may end the run early."""
        kind = self.interim_kind(work)
        return replace(plan, interims=None) if kind is None else ranged(plan, kind)

    def ask(self, run: OpenRun, work: RunWork) -> Ask:
        """Return the function that decides the gates, at an interim analysis or at the end.

        It returns None where gates do not decide: trials, shards, experiments without gates.
        """
        quarantined = frozenset(
            entry.case
            for entry in work.project.quarantine
            if entry.experiment == self.experiment.id
        )
        approval = None
        if self.experiment.rubric is not None:
            approval = judge_approval.JudgeApproval.of(work.project, self.experiment)

        def decide(interim: InterimAnalysis | None = None) -> Conclusion | None:
            if not self.context.gated or not self.all or work.selection.shard is not None:
                return None  # a verdict on a shard need not hold for the whole run
            question = conclusion.GateQuestion(
                run.id,
                self.all,
                work.clusters,
                quarantined,
                Side.BASE in work.sides,
                run.now(),
                interim,
                {} if approval is None else approval.unapproved(self.all),
                self.doubts(run),
            )
            return conclusion.conclude(work.project, run.reader, question)

        return decide


def final_status(
    reader: sqlite3.Connection,
    run_id: str,
    progress: Progress,
    *,
    max_errors: float,
    judged: bool = True,
) -> tuple[RunStatus, ExitCode]:
    """Return the status in which a run ends, and the exit code before gates decide."""
    if progress.stopped_by == "cancel":
        return RunStatus.CANCELLED, ExitCode.PAUSED
    if progress.stopped_by == BATCH:
        return RunStatus.PAUSED, ExitCode.DONE
    if progress.stopped_by is not None:
        by_budget = progress.stopped_by.startswith("budget")
        return RunStatus.PAUSED, ExitCode.BUDGET if by_budget else ExitCode.PAUSED
    if progress.done < progress.total:
        return RunStatus.FAILED, ExitCode.NOT_MEASURED
    if lost := too_many_errors(reader, run_id, progress, max_errors):
        progress.closed[THE_RUN] = f"{lost}, max_errors is {fixed(100 * max_errors)}%"
        return RunStatus.FAILED, ExitCode.NOT_MEASURED
    if judged and judges.no_judge_answered(reader, run_id):
        why = judges.last_error_of_judges(reader, run_id)
        progress.closed["judges"] = f"none answered; {why}" if why else "none answered"
        return RunStatus.FAILED, ExitCode.NOT_MEASURED
    if judged and (silent := judges.silent_judges(reader, run_id)):
        failures = {f"judge {name}": f"gave no score; {why}" for name, why in silent.items()}
        progress.closed.update(failures)
        return RunStatus.FAILED, ExitCode.NOT_MEASURED
    if why := scores.why_nothing_is_graded(reader, run_id):
        progress.closed[THE_RUN] = f"no answer could be graded; {why}"
        return RunStatus.FAILED, ExitCode.NOT_MEASURED
    return RunStatus.COMPLETED, ExitCode.DONE


def too_many_errors(
    reader: sqlite3.Connection, run_id: str, progress: Progress, max_errors: float
) -> str:
    """Return where more cells are in error than `max_errors` allows; empty if nowhere.

    They count for the run, and for each prompt with a model on each side: a run of three models
    says nothing about the one that never answered. One cell alone is too few to tell, unless it is
    the only one.
    """
    errors, total = progress.cells[CellStatus.ERROR], progress.total
    if _beyond(errors, total, max_errors):
        return f"{errors:,} of {total:,} cells in error"
    if errors < _FEWEST_ERRORS:
        return ""
    counts = scores.error_counts(reader, run_id)
    lost = [count for count in counts if _beyond(count.errors, count.asked, max_errors)]
    several = len({count.prompt for count in counts}) > 1
    sides = len({count.side for count in counts}) > 1
    return "; ".join(
        f"{f'{count.prompt} with ' if several else ''}{count.model}"
        f"{f' on the {count.side}' if sides else ''}: "
        f"{count.errors:,} of {count.asked:,} cells in error"
        for count in lost
    )


def _beyond(errors: int, cells: int, max_errors: float) -> bool:
    return errors >= min(_FEWEST_ERRORS, cells) and exceeds(errors, max_errors * cells)


def verdict_without_gates(status: RunStatus, progress: Progress) -> Verdict | None:
    """Return the verdict on a run that failed, waits for a batch or has no graded cell.

    None for other runs.
    """
    if status is RunStatus.FAILED:
        return Verdict.ERROR
    if progress.stopped_by == BATCH:
        return Verdict.INCONCLUSIVE
    graded = progress.done - progress.cells[CellStatus.SKIPPED] - progress.cells[CellStatus.ERROR]
    return Verdict.SKIPPED if status is RunStatus.COMPLETED and graded == 0 else None


def misread_form(run: OpenRun) -> str:
    """Return why a run measured nothing: most answers lack a form that only words ask for.

    On every side that was measured, more than half of the answers of a prompt are then malformed
    because its text was read as a request, which is more likely wrong than all of the answers.
    """
    counts = scores.malformed_answers(run.reader, run.id)
    for prompt in run.work.sides[Side.HEAD].prompts:
        sides = [
            (counts[side, same.id], same.detected.by_words(same.expect))
            for side, experiment in run.work.sides.items()
            for same in experiment.prompts
            if same.id == prompt.id and (side, same.id) in counts
        ]
        if sides and all(by_words and 2 * bad > answers for (bad, answers), by_words in sides):
            (bad, answers), _ = sides[0]
            return (
                f"{bad:,} of {answers:,} answers of {prompt.id} are malformed, because "
                f"{_why_required(prompt)}; write `expect: none` in {prompt.path} if they need not "
                f"be, else `expect: {prompt.expect}`"
            )
    return ""


def _why_required(prompt: Prompt) -> str:
    """Return the words by which a form is required."""
    notes = [note for note in expected_form.notes_on(prompt.detected) if note.requested]
    if not notes:
        return f"its text was read as asking for {prompt.expect}"
    return f"line {notes[0].line} was read as asking for {prompt.expect}: {notes[0].words!r}"


def moves_to(current: RunStatus, status: RunStatus) -> list[RunStatus]:
    """Return the statuses that a run goes through from its current one to its last."""
    if status is RunStatus.COMPLETED:
        before = [RunStatus.JUDGING, RunStatus.AGGREGATING]
        return [status] if current is RunStatus.AGGREGATING else [*before, status]
    if current is RunStatus.AGGREGATING and status is not RunStatus.FAILED:
        return [RunStatus.EXECUTING, status]
    return [status]


def modules_at_the_end(run: OpenRun) -> list[ModuleType]:
    """Return the modules that the end of a run needs."""
    modules = [rollups, spending]
    if run.experiment.file.is_judged:
        modules.append(judges)
    if run.context.gated and run.gates.all:
        modules.append(conclusion)
    return modules


def ending(run: OpenRun, progress: Progress) -> tuple[RunStatus, ExitCode]:
    """Return the status in which a run would end now, and the exit code before gates decide."""
    file = run.experiment.file
    return final_status(
        run.reader, run.id, progress, max_errors=file.max_errors, judged=file.is_judged
    )


def has_enough_cells(run: OpenRun, progress: Progress) -> bool:
    """Whether the cells so far are there, and few enough in error."""
    return ending(run, progress)[0] is RunStatus.COMPLETED


async def conclude(
    run: OpenRun,
    reporter: ProgressReporter,
    progress: Progress,
    decide: Callable[[], Conclusion | None],
) -> RunOutcome:
    """Store how a run ended, with its verdict, and return it."""
    status, code = ending(run, progress)
    misread = misread_form(run) if status is RunStatus.COMPLETED else ""
    if misread:
        status, code = RunStatus.FAILED, ExitCode.NOT_MEASURED
        progress.closed[THE_RUN] = misread
    reporter.write_last(progress)
    for step in moves_to(find_run(run.reader, run.id).status, status):
        change: dict[str, Any] = {}
        refusals: list[AuditEntry] = []
        ends = step == status
        if ends:
            change, code = await _last_change(run, progress, decide, status, code)
            if misread:
                change["stopped_by"] = misread
            if status is RunStatus.COMPLETED and run.options.refines:
                step, ends = RunStatus.REFINING, False  # the loop completes it
            else:
                refusals = _refusals(run, progress)
        moved = move_run(run.id, step, run.now(), **change)
        await run.write(partial(_move, run, moved, refusals, ends))
    await reporter.end(status, progress)
    ended = f"the run ended before it was taken: it is {status}"
    await run.write(withdraw_requests(run.id, run.now(), ended))
    return RunOutcome(run.id, status, code, progress, run.stored_answers)


async def _last_change(
    run: OpenRun,
    progress: Progress,
    decide: Callable[[], Conclusion | None],
    status: RunStatus,
    code: ExitCode,
) -> tuple[dict[str, Any], ExitCode]:
    """Store what a run showed; return the columns of its row that its last status changes."""
    change: dict[str, Any] = {}
    summed = status in (RunStatus.COMPLETED, RunStatus.FAILED)
    if summed:
        await run.write(rollups.rollups_of(run.reader, run.id))
    verdict = verdict_without_gates(status, progress)
    if status is RunStatus.COMPLETED:
        await run.write(_approval_note(run))
        change["cells_planned"] = progress.total
        doubts = run.gates.doubts(run)
        decided = decide() if verdict is None or doubts else None
        if decided is not None:
            verdict, code = decided.verdict, decided.exit_code
            await run.write(decided.write)
        if verdict in (None, Verdict.SKIPPED):
            verdict = Verdict.INCONCLUSIVE if doubts else Verdict.SKIPPED
    elif status is RunStatus.FAILED and _decides_the_rest(run, progress):
        decided = decide()
        if decided is not None:
            await run.write(decided.write)
    change |= {"stopped_by": progress.stopped_by, "complete": status is RunStatus.COMPLETED}
    reused = spending.stored_reuse if summed else spending.reused_answers
    return {**change, "verdict": verdict, "reused": reused(run.reader, run.id)}, code


def _decides_the_rest(run: OpenRun, progress: Progress) -> bool:
    """Whether the gates are decided and shown though too many answers are lost.

    The run is an error whatever they are. Rows of an interim analysis are numbered, and no other
    row may stand between them when the run is resumed.
    """
    complete = progress.done >= progress.total and bool(progress.cells[CellStatus.OK])
    allowed = run.experiment.file.max_errors
    lost = complete and too_many_errors(run.reader, run.id, progress, allowed)
    return bool(lost) and run.gates.interim_kind(run.work) is None


def _approval_note(run: OpenRun) -> Callable[[sqlite3.Connection], None]:
    """Return the operation that stores the approval of the judges; none without a rubric."""
    if run.experiment.rubric is None:
        return write_approval(run.id, None)
    return judge_approval.JudgeApproval.of(run.project, run.experiment).note(run.id)


def _move(
    run: OpenRun,
    moved: Callable[[sqlite3.Connection], None],
    refusals: Sequence[AuditEntry],
    ends: bool,
    connection: sqlite3.Connection,
) -> None:
    moved(connection)
    for entry in refusals:
        add_audit(connection, entry)
    if ends:
        run.context.record_end(connection, run.id)


def _refusals(run: OpenRun, progress: Progress) -> list[AuditEntry]:
    """Return rows of the audit: a budget that stopped the run, and answers kept back."""
    audit, experiment = run.context.audit, run.experiment.id
    if audit is None or run.context.answers is not None:
        return []
    entries, stopped_by = [], str(progress.stopped_by)
    if stopped_by.startswith("budget: "):
        reason = f"{stopped_by.removeprefix('budget: ')} is used up"
        entries.append(audit("refused: further calls", experiment, reason))
    if blocked := progress.cells[CellStatus.BLOCKED]:
        entries.append(audit("block answers", experiment, {"cells": blocked}))
    return [replace(entry, run_id=run.id) for entry in entries]
