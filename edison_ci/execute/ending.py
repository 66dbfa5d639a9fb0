"""How does a session end, and by which steps does its run get there?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edison_ci.errors import ExitCode
from edison_ci.execute.runner import THE_RUN
from edison_ci.results.judged import (
    last_error_of_judges,
    no_judge_answered,
    why_nothing_is_graded,
)
from edison_ci.rounding import exceeds, fixed

if TYPE_CHECKING:
    import sqlite3

    from edison_ci.execute.runner import Progress


def ending(
    reader: sqlite3.Connection, run_id: str, progress: Progress, *, max_errors: float
) -> tuple[str, ExitCode]:
    """Return the status in which a run ends, and the exit code before gates decide."""
    if progress.stopped_by == "cancel":
        return "CANCELLED", ExitCode.PAUSED
    if progress.stopped_by is not None:
        by_budget = progress.stopped_by.startswith("budget")
        return "PAUSED", ExitCode.BUDGET if by_budget else ExitCode.PAUSED
    errors = progress.cells["error"]
    unfinished = progress.done < progress.total
    if unfinished or exceeds(errors, max_errors * progress.total):
        if not unfinished:
            told = f"{errors:,} of {progress.total:,} cells in error"
            progress.closed[THE_RUN] = f"{told}, max_errors is {fixed(100 * max_errors)}%"
        return "FAILED", ExitCode.NOT_MEASURED
    if no_judge_answered(reader, run_id):
        why = last_error_of_judges(reader, run_id)
        progress.closed["judges"] = f"none answered; {why}" if why else "none answered"
        return "FAILED", ExitCode.NOT_MEASURED
    if why := why_nothing_is_graded(reader, run_id):
        progress.closed[THE_RUN] = f"no answer could be graded; {why}"
        return "FAILED", ExitCode.NOT_MEASURED
    return "COMPLETED", ExitCode.DONE


def verdict_without_gates(status: str, progress: Progress) -> str | None:
    """Return the verdict on a run that no gate decides."""
    if status == "FAILED":
        return "error"
    graded = progress.done - progress.cells["skipped"] - progress.cells["error"]
    return "skipped" if status == "COMPLETED" and graded == 0 else None


def steps(current: str, status: str) -> list[str]:
    """Return the moves from where a run is to where it ends."""
    if status == "COMPLETED":
        return [status] if current == "AGGREGATING" else ["JUDGING", "AGGREGATING", status]
    if current == "AGGREGATING" and status != "FAILED":
        return ["EXECUTING", status]
    return [status]
