"""The marker by which a comment of ours is found again, and what a program reads from it.

The first line is a marker with a key, the second holds data as JSON; both are comments in HTML,
which nobody sees. This is the one place that writes and reads them.
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY = re.compile(r"[A-Za-z0-9._-]{1,100}")
_MARKER = re.compile(rf"<!-- edison-ci:report:v1 key={_KEY.pattern} -->")
_DATA = re.compile(r"<!-- edison-ci:data (\{.*\}) -->")
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class State(StrEnum):
    """How far the run had come."""

    RUNNING = "running"
    PARTIAL = "partial"
    FINAL = "final"
    CANCELLED = "cancelled"

    @property
    def rank(self) -> int:
        """Later states of one run are higher; a finished run cannot be cancelled any more."""
        return {"running": 0, "partial": 1, "cancelled": 2, "final": 3}[self.value]


@dataclass(frozen=True, slots=True)
class Stamp:
    """What we need to know about a report when we meet it again."""

    head_sha: str
    """The commit that was evaluated."""
    state: State = State.FINAL
    run_id: int = 0
    """The workflow run; 0 for a report that a person sent, which anything may replace."""
    attempt: int = 1
    verdict: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def order(self) -> tuple[int, int, int]:
        """Later reports are higher: ids of runs grow, and so do attempts to run them again."""
        return self.run_id, self.attempt, self.state.rank


def marker(key: str) -> str:
    """Return the first line of the comment that is kept under a key."""
    if not _KEY.fullmatch(key):
        raise UsageError(
            f"{key!r} cannot be the key of a comment",
            hint="use letters, digits, '-', '_' and '.'",
        )
    return f"<!-- edison-ci:report:v1 key={key} -->"


def marker_of(body: str) -> str | None:
    """Return the marker that a comment starts with; None if it starts with none."""
    first = body.split("\n", 1)[0].rstrip("\r")
    return first if _MARKER.fullmatch(first) else None


def hidden_lines(key: str, stamp: Stamp, more: Mapping[str, Any] | None = None) -> str:
    """Return the two lines that a comment starts with; `more` is data for other programs."""
    data = {
        "run_id": stamp.run_id,
        "attempt": stamp.attempt,
        "head": stamp.head_sha,
        "state": str(stamp.state),
        "verdict": stamp.verdict,
        "counts": dict(stamp.counts),
        **(more or {}),
    }
    # A comment in HTML ends at the first "-->"; JSON can write all of it otherwise.
    text = json.dumps(data).replace("--", r"-\u002d").replace(">", r"\u003e")
    return f"{marker(key)}\n<!-- edison-ci:data {text.replace('<', chr(92) + 'u003c')} -->\n"


def data_of(body: str) -> dict[str, Any] | None:
    """Return what the second line of a comment says; None if there is nothing to be read."""
    lines = body.split("\n", 2)
    found = _DATA.fullmatch(lines[1].strip()) if len(lines) > 1 else None
    if found is None:
        return None
    try:
        data = json.loads(found[1])
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def stamp_of(body: str) -> Stamp | None:
    """Return the stamp in the second line of a comment; None if it is none that we write."""
    data = data_of(body)
    if data is None:
        return None
    try:
        state = State(data["state"])
        head_sha, run_id, attempt = data["head"], data["run_id"], data["attempt"]
    except (ValueError, KeyError, TypeError):
        return None
    numbers = all(type(number) is int and 0 <= number < 2**63 for number in (run_id, attempt))
    if not numbers or not isinstance(head_sha, str) or not _SHA.fullmatch(head_sha):
        return None
    verdict = data.get("verdict")
    said = verdict if isinstance(verdict, str) else None
    return Stamp(head_sha, state, run_id, attempt, said, _whole_numbers(data.get("counts")))


def _whole_numbers(counts: Any) -> dict[str, int]:
    listed = counts.items() if isinstance(counts, dict) else ()
    return {str(name): count for name, count in listed if type(count) is int}
