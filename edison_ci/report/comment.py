"""What stands in the one comment of a pull request that is updated in place?

The first line is a marker by which the comment is found again, the second holds what a program has
to know of it, and the rest is the report, cut to what a comment may hold.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from edison_ci.errors import UsageError
from edison_ci.frozen import dataclass
from edison_ci.report.layout import Limit, Section, fitted
from edison_ci.report.safe_markdown import code
from edison_ci.report.sections import sections_of

if TYPE_CHECKING:
    from edison_ci.report.view import Report

State: TypeAlias = Literal["running", "partial", "final", "cancelled"]
MOST_CHARACTERS = 60_000
"""GitHub refuses a comment of more than 65,536."""
_RUNS = 100
"""Runs that the hidden line names."""
_KEY = re.compile(r"[A-Za-z0-9._-]{1,100}")
_DATA = "<!-- edison-ci:data "
_END = " -->"
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

    def as_json(self) -> dict[str, Any]:
        """Return it as the hidden line has it."""
        return {"head": self.head, "run_id": self.run_id, "attempt": self.attempt}


def marker(key: str) -> str:
    """Return the first line of the comment that is kept under a key."""
    if not _KEY.fullmatch(key):
        raise UsageError(
            f"{key!r} cannot be the key of a comment", hint="letters, digits and . _ - only"
        )
    return f"<!-- edison-ci:report:v1 key={key} -->"


def comment_body(
    report: Report, *, key: str = "edison", state: State = "final", origin: Origin | None = None
) -> str:
    """Return the body of the comment: never longer than a forge takes, and without any answer.

    `key` tells the comments of several jobs apart. While `state` is running, `report` may have no
    runs at all.
    """
    origin = origin or Origin()
    first = f"{marker(key)}\n{machine_line(report, state=state, origin=origin)}\n\n"
    found = list(sections_of(report))
    if state == "running" and not report.runs and not report.failure:
        found = [Section("## ⏳ edison")]
    about = [_SAID[state]] if state in _SAID else []
    about += [f"Commit {code(origin.head[:8])}."] if origin.head else []
    found.insert(1, Section("", tuple(about)))
    limit = Limit(MOST_CHARACTERS - len(first), len, origin.elsewhere)
    return (first + fitted(found, limit)).rstrip("\n") + "\n"


def machine_line(report: Report, *, state: State, origin: Origin) -> str:
    """Return the hidden line: what a program wants to know, as JSON inside a comment."""
    value = {
        "state": state,
        **origin.as_json(),
        "verdict": None if state == "running" else report.verdict,
        "runs": [[view.run.id, view.run.verdict] for view in report.runs[:_RUNS]],
        "counts": {
            "runs": len(report.runs),
            "regressions": report.regressions,
            "findings": sum(len(view.findings) for view in report.measured),
        },
    }
    return f"{_DATA}{_hidden(value)}{_END}"


def machine_data(body: str) -> dict[str, Any] | None:
    """Return what the hidden line of a comment says; None if there is none to be read."""
    lines = body.split("\n", 2)
    if len(lines) < 2 or not lines[1].startswith(_DATA) or not lines[1].rstrip().endswith(_END):
        return None
    text = lines[1].rstrip()[len(_DATA) : -len(_END)]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _hidden(value: Any) -> str:
    """Return JSON that cannot end the HTML comment around it."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    return text.replace("-", r"\u002d").replace(">", r"\u003e").replace("<", r"\u003c")
