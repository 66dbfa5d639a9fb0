"""The one comment of a pull request, updated in place.

The first line is a marker by which the comment is found again, the second holds what a program has
to know of it, and the rest is the report, cut to what a comment may hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from edison_ci._dataclass import dataclass
from edison_ci.forge.marker import Stamp, hidden_lines
from edison_ci.forge.marker import State as Progress
from edison_ci.report.layout import Limit, Section, fitted
from edison_ci.report.safe_markdown import code
from edison_ci.report.sections import sections_of

if TYPE_CHECKING:
    from edison_ci.results.report import Report

State: TypeAlias = Literal["running", "partial", "final", "cancelled"]
MOST_CHARACTERS = 60_000
"""GitHub refuses a comment of more than 65,536."""
_RUNS = 100
"""Runs that the hidden line names."""
_SAID = {
    "running": "⏳ edison is running; this comment will be updated.",
    "partial": "⏳ Some runs are done, others are not; this comment will be updated.",
    "cancelled": "⛔ The run was cancelled; what is here is what was done by then.",
}


@dataclass(frozen=True, slots=True)
class Origin:
    """The job that writes a comment, so that an older one does not overwrite a newer."""

    head: str = ""
    """The commit of the pull request."""
    run_id: int = 0
    """GITHUB_RUN_ID."""
    attempt: int = 0
    """GITHUB_RUN_ATTEMPT."""
    elsewhere: str = "the job summary"
    """Where the rest of the report is, in words."""


def comment_body(
    report: Report, *, key: str = "edison", state: State = "final", origin: Origin | None = None
) -> str:
    """Return the body of the comment: never longer than a forge takes, and without any answer.

    `key` tells the comments of several jobs apart. While `state` is running, `report` may have no
    runs at all.
    """
    origin = origin or Origin()
    runs = [[view.run.id, view.run.verdict] for view in report.runs[:_RUNS]]
    first = hidden_lines(key, _stamp(report, state, origin), {"runs": runs}) + "\n"
    found = list(sections_of(report))
    if state == "running" and not report.runs and not report.failure:
        found = [Section("## ⏳ edison")]
    about = [_SAID[state]] if state in _SAID else []
    about += [f"Commit {code(origin.head[:8])}."] if origin.head else []
    found.insert(1, Section("", tuple(about)))
    limit = Limit(MOST_CHARACTERS - len(first), len, origin.elsewhere)
    return (first + fitted(found, limit)).rstrip("\n") + "\n"


def _stamp(report: Report, state: State, origin: Origin) -> Stamp:
    return Stamp(
        origin.head,
        Progress(state),
        origin.run_id,
        origin.attempt,
        None if state == "running" else report.verdict,
        {
            "runs": len(report.runs),
            "regressions": report.regressions,
            "findings": sum(len(view.findings) for view in report.measured),
        },
    )
