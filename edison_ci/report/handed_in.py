"""Reports that a stranger's job handed in, as far as they can be believed.

Nothing: whoever proposes a change from a fork can have its job write anything. A few bounded values
are read, the words are ours, and whatever is claimed, it decides nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.errors import UsageError
from edison_ci.formatting import NOTHING, change, counted, score
from edison_ci.report.layout import Limit, Section, Table, fitted
from edison_ci.report.safe_markdown import code, prose
from edison_ci.report.sections import headline

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_BYTES = 10_000_000
MOST_ROWS = 50
_MOST_CHARACTERS = 20_000
_VERDICTS = ("pass", "fail", "inconclusive", "error", "skipped")
_WORSE = ("error", "fail")
NOTICE = (
    "> The job of this pull request had no keys. What it handed in is shown here as it claims it; "
    "nobody has checked it, and it decides nothing. A maintainer who has read the change can "
    "evaluate it with a workflow that is started by hand."
)


class HandedIn(NamedTuple):
    """A report of a stranger's job, in our words."""

    text: str
    verdict: str
    """At best inconclusive, or skipped where nothing was affected."""


def handed_in(data: bytes) -> HandedIn:
    """Return what a report claims; raises UsageError if it is none."""
    if len(data) > MOST_BYTES:
        raise _unusable(f"it has more than {MOST_BYTES:,} bytes")
    try:
        found = parse_json(data.decode())
    except (Fault, UnicodeDecodeError, RecursionError):
        raise _unusable("it is not JSON") from None
    if not isinstance(found, dict) or found.get("schema_version") != 1:
        raise _unusable("it is not a report of ours")
    claimed = _verdict(found.get("verdict"))
    verdict = claimed if claimed in (*_WORSE, "skipped") else "inconclusive"
    return HandedIn(fitted([*_sections(found, verdict)], Limit(_MOST_CHARACTERS)), verdict)


def _sections(found: dict[str, Any], verdict: str) -> Iterator[Section]:
    paragraphs = [NOTICE]
    failure = found.get("failure")
    if isinstance(failure, str) and failure:
        paragraphs.append(f"It could not evaluate anything: {prose(failure)}")
    yield Section(headline(verdict), tuple(paragraphs))
    runs, planned = _dicts(found.get("runs")), _dicts(found.get("planned"))
    if runs:
        head = ("experiment", "claimed verdict", "score", "against the base", "cases")
        rows = tuple(_run(run) for run in runs[:MOST_ROWS])
        yield Section("", _more(runs), Table(head, rows))
    if planned:
        rows = tuple(_planned(one) for one in planned[:MOST_ROWS])
        told = ("Nothing was evaluated. What evaluating it would take:", *_more(planned))
        yield Section("", told, Table(("experiment", "cases", "calls"), rows))


def _more(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    left = len(rows) - MOST_ROWS
    return (f"{counted(left, 'more row')} left out.",) if left > 0 else ()


def _run(run: dict[str, Any]) -> tuple[str, ...]:
    composite, against = _dict(run.get("composite")), _dict(run.get("against"))
    moved = _number(_dict(against.get("difference")).get("estimate"))
    return (
        _name(run),
        _verdict(run.get("verdict")) or NOTHING,
        score(_number(composite.get("estimate"))),
        change(moved, None, None),
        _count(composite.get("n")),
    )


def _planned(one: dict[str, Any]) -> tuple[str, ...]:
    return _name(one), _count(one.get("cases")), _count(one.get("calls"))


def _name(row: dict[str, Any]) -> str:
    name = row.get("experiment")
    return code(name) if isinstance(name, str) else NOTHING


def _verdict(value: Any) -> str | None:
    return value if isinstance(value, str) and value in _VERDICTS else None


def _number(value: Any) -> float | None:
    """Return a score or a change; whatever is no such number is none."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and -1 <= value <= 1
    return float(value) if fits else None


def _count(value: Any) -> str:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9
    return f"{value:,}" if fits else NOTHING


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _unusable(why: str) -> UsageError:
    return UsageError(
        f"the report that was handed in cannot be used: {why}",
        hint="it is report.json of `edison github run`",
    )
