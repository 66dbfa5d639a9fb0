"""How a run ends: its last status, the exit code, and the verdict where no gate decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.errors import ExitCode
from edison_ci.execute.progress import THE_RUN
from edison_ci.numeric import exceeds, fixed
from edison_ci.records import CellStatus, RunStatus, Verdict
from edison_ci.results import judges, scores

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.execute.progress import Progress

BATCH = "batch"
"""What stops a run whose answers are on their way in a batch."""


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
    errors = progress.cells[CellStatus.ERROR]
    unfinished = progress.done < progress.total
    if unfinished or exceeds(errors, max_errors * progress.total):
        if not unfinished:
            failed = f"{errors:,} of {progress.total:,} cells in error"
            progress.closed[THE_RUN] = f"{failed}, max_errors is {fixed(100 * max_errors)}%"
        return RunStatus.FAILED, ExitCode.NOT_MEASURED
    if judged and judges.no_judge_answered(reader, run_id):
        why = judges.last_error_of_judges(reader, run_id)
        progress.closed["judges"] = f"none answered; {why}" if why else "none answered"
        return RunStatus.FAILED, ExitCode.NOT_MEASURED
    if judged and (silent := judges.silent_judges(reader, run_id)):
        said = {f"judge {name}": f"gave no score; {why}" for name, why in silent.items()}
        progress.closed.update(said)
        return RunStatus.FAILED, ExitCode.NOT_MEASURED
    if why := scores.why_nothing_is_graded(reader, run_id):
        progress.closed[THE_RUN] = f"no answer could be graded; {why}"
        return RunStatus.FAILED, ExitCode.NOT_MEASURED
    return RunStatus.COMPLETED, ExitCode.DONE


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


def moves_to(current: RunStatus, status: RunStatus) -> list[RunStatus]:
    """Return the statuses that a run goes through from its current one to its last."""
    if status is RunStatus.COMPLETED:
        before = [RunStatus.JUDGING, RunStatus.AGGREGATING]
        return [status] if current is RunStatus.AGGREGATING else [*before, status]
    if current is RunStatus.AGGREGATING and status is not RunStatus.FAILED:
        return [RunStatus.EXECUTING, status]
    return [status]
