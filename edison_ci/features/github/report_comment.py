"""The report as the one comment of a pull request, and reports of untrusted jobs.

The first line of the comment is the marker by which it is found again, the second its data, and the
rest the report, cut to the size limit. The job of a fork can write anything: of its report only a
few bounded values are used, with fixed wording, and it never decides anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.errors import UsageError
from edison_ci.features.github.sticky_comment import ReportMarker, ReportState, hidden_lines
from edison_ci.numeric import NOTHING, change, counted, score
from edison_ci.report.document import Name, Section, Table
from edison_ci.report.markdown import Limit, fit, prose
from edison_ci.report.markdown_report import Place, headline, sections_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.report.change_details import ChangeDetails
    from edison_ci.report.document import Inline
    from edison_ci.results.report import Report
    from edison_ci.store.audit import AuditHead


MOST_BYTES = 10_000_000
MOST_ROWS = 50
_MOST_CHARACTERS = 20_000
_VERDICTS = ("pass", "fail", "inconclusive", "error", "skipped")
_WORSE = ("error", "fail")
NOTICE = (
    "> The job of this pull request has no access to keys. The results below are its own, "
    "unverified "
    "claims and decide nothing. A maintainer who has reviewed the change can evaluate it with a "
    "manually started workflow."
)


class ForeignReport(NamedTuple):
    """A report of an untrusted job, as Markdown with fixed wording."""

    text: str
    verdict: str
    """At best inconclusive, or skipped if no experiment is affected."""


def read_foreign_report(data: bytes) -> ForeignReport:
    """Return the claims of an untrusted report; raises UsageError if it is not a report."""
    if len(data) > MOST_BYTES:
        raise _unusable(f"it has more than {MOST_BYTES:,} bytes")
    try:
        document = parse_json(data.decode())
    except (Fault, UnicodeDecodeError, RecursionError):
        raise _unusable("it is not JSON") from None
    if not isinstance(document, dict) or document.get("schema_version") != 1:
        raise _unusable("it is not a report of edison")
    claimed = _verdict(document.get("verdict"))
    verdict = claimed if claimed in (*_WORSE, "skipped") else "inconclusive"
    return ForeignReport(fit([*_sections(document, verdict)], Limit(_MOST_CHARACTERS)), verdict)


def _sections(document: dict[str, Any], verdict: str) -> Iterator[Section]:
    paragraphs = [NOTICE]
    failure = document.get("failure")
    if isinstance(failure, str) and failure:
        paragraphs.append(f"The evaluation failed: {prose(failure)}")
    yield Section(headline(verdict), tuple(paragraphs), level=2)
    runs, planned = _dicts(document.get("runs")), _dicts(document.get("planned"))
    if runs:
        names = ("experiment", "claimed verdict", "score", "change from base", "cases")
        yield Section("", _more(runs), Table.of(names, map(_run, runs[:MOST_ROWS])))
    if planned:
        text = ("Nothing was evaluated. An evaluation would take:", *_more(planned))
        table = Table.of(("experiment", "cases", "calls"), map(_planned, planned[:MOST_ROWS]))
        yield Section("", text, table)


def _more(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    left = len(rows) - MOST_ROWS
    return (f"{counted(left, 'more row')} left out.",) if left > 0 else ()


def _run(run: dict[str, Any]) -> tuple[Inline, ...]:
    composite, against = _dict(run.get("composite")), _dict(run.get("against"))
    moved = _number(_dict(against.get("difference")).get("estimate"))
    return (
        _name(run),
        _verdict(run.get("verdict")) or NOTHING,
        score(_number(composite.get("estimate"))),
        change(moved, None, None),
        _count(composite.get("n")),
    )


def _planned(plan: dict[str, Any]) -> tuple[Inline, ...]:
    return _name(plan), _count(plan.get("cases")), _count(plan.get("calls"))


def _name(row: dict[str, Any]) -> Inline:
    name = row.get("experiment")
    return Name(name) if isinstance(name, str) else NOTHING


def _verdict(value: Any) -> str | None:
    return value if isinstance(value, str) and value in _VERDICTS else None


def _number(value: Any) -> float | None:
    """Return a score or a change; None for anything else."""
    fits = isinstance(value, int | float) and not isinstance(value, bool) and -1 <= value <= 1
    return float(value) if fits else None


def _count(value: Any) -> str:
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9
    return f"{value:,}" if fits else NOTHING


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _unusable(why: str) -> UsageError:
    return UsageError(
        f"the submitted report cannot be used: {why}",
        hint="submit report.json of `edison github run`",
    )


MOST_CHARACTERS = 60_000
"""GitHub refuses a comment of more than 65,536."""
_RUNS = 100
"""Runs listed in the hidden line."""
_STATE_TEXTS = {
    ReportState.RUNNING: "⏳ edison is running; this comment will be updated.",
    ReportState.PARTIAL: "⏳ Some runs are not done yet; this comment will be updated.",
    ReportState.CANCELLED: "⛔ The run was cancelled; these are the results so far.",
}


@dataclass(frozen=True, slots=True)
class CommentOrigin:
    """The job that writes a comment, so that an older job does not overwrite a newer one."""

    head: str = ""
    """The commit of the pull request."""
    run_id: int = 0
    """GITHUB_RUN_ID."""
    attempt: int = 0
    """GITHUB_RUN_ATTEMPT."""
    elsewhere: str = "the job summary"
    """Where the rest of the report is, as text."""
    run_url: str = ""
    """The page of the job."""
    audit: AuditHead | None = None
    """The newest row of the audit log, which the comment anchors."""


def comment_body(
    report: Report,
    *,
    key: str = "edison",
    state: ReportState = ReportState.FINAL,
    origin: CommentOrigin | None = None,
    details: ChangeDetails | None = None,
) -> str:
    """Return the body of the comment, within the size limit.

    `key` distinguishes the comments of several jobs. While `state` is running, `report` may have no
    runs. Texts of answers are those of `details` only.
    """
    origin = origin or CommentOrigin()
    runs = [[view.run.id, view.run.verdict] for view in report.runs[:_RUNS]]
    more: dict[str, Any] = {"runs": runs}
    if origin.audit is not None:
        rows, newest = origin.audit
        more["audit"] = {"rows": rows, "head": newest}
    first = hidden_lines(key, _stamp(report, state, origin), more) + "\n"
    place = Place(origin.head, origin.run_url, fetched=bool(origin.run_id))
    sections = list(sections_of(report, details, place))
    if state is ReportState.RUNNING and not report.runs and not report.failure:
        sections = [Section("⏳ edison", level=2), sections[-1]]
    if state in _STATE_TEXTS:
        sections.insert(1, Section("", (_STATE_TEXTS[state],)))
    limit = Limit(MOST_CHARACTERS - len(first), len, origin.elsewhere)
    return (first + fit(sections, limit)).rstrip("\n") + "\n"


def _stamp(report: Report, state: ReportState, origin: CommentOrigin) -> ReportMarker:
    return ReportMarker(
        origin.head,
        state,
        origin.run_id,
        origin.attempt,
        None if state is ReportState.RUNNING else report.verdict,
        {
            "runs": len(report.runs),
            "regressions": report.regressions,
            "findings": sum(len(view.findings) for view in report.head_runs),
        },
    )
