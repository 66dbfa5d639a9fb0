"""Findings and regressions as SARIF 2.1.0.

Each result is located at its prompt, on the changed lines if they are known. Fingerprints identify
the same finding in several runs.
"""

from __future__ import annotations

import hashlib
import json
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from edison_ci import __version__
from edison_ci.numeric import score
from edison_ci.records import Move, RunStatus
from edison_ci.report.annotations import Spots
from edison_ci.sanitize import line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.report.annotations import Changed, FileLines
    from edison_ci.results.report import Report
    from edison_ci.results.run_result import RunResult

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
MOST_RESULTS = 5_000
"""GitHub accepts no more results per run."""
RULES = {
    "gate-failed": ("error", "A gate failed."),
    "gate-unclear": ("note", "A gate is inconclusive."),
    "case-newly-failing": ("warning", "A case that passes in the base fails."),
    "safety-blocked": ("error", "A safety screen blocked an answer."),
    "safety-flagged": ("warning", "A safety screen flagged an answer."),
    "judge-flagged": ("note", "A judge flagged an answer."),
}
"""Level and description of each rule."""


class _Result(NamedTuple):
    rule: str
    message: str
    prompt: str | None
    key: tuple[str, ...]
    """Identity of the finding across runs."""


def sarif(report: Report, changed: Changed, *, folder: str = "") -> str:
    """Return the report as SARIF; paths start in `folder` of the checkout."""
    spots = Spots(changed)
    runs = [_run(view, spots, folder) for view in report.runs]
    if report.failure or not runs:
        runs.append(_without_results(report.failure, report.dropped))
    value = {"$schema": SCHEMA, "version": "2.1.0", "runs": runs}
    return json.dumps(value, indent=2, ensure_ascii=True) + "\n"


def _run(view: RunResult, spots: Spots, folder: str) -> dict[str, Any]:
    results = list(islice(_results(view), MOST_RESULTS + 1))
    notes = [*view.missing, f"verdict: {view.run.verdict or 'not finished'}"]
    if len(results) > MOST_RESULTS:
        notes.append(f"more than {MOST_RESULTS:,} results; the first are listed")
    return {
        "tool": _tool(),
        "automationDetails": {"id": f"edison/{_uri(view.run.experiment)}/{view.on}/"},
        "invocations": [_invocation(notes, successful=view.run.status == RunStatus.COMPLETED)],
        "columnKind": "unicodeCodePoints",
        "results": [_result_json(view, result, spots, folder) for result in results[:MOST_RESULTS]],
        "properties": {
            "run_id": view.run.id,
            "verdict": view.run.verdict,
            "simulated": view.run.simulated,
            "labels": [*view.labels],
        },
    }


def _without_results(failure: str, dropped: tuple[str, ...]) -> dict[str, Any]:
    notes = [failure] if failure else [*dropped]
    notes = notes or ["no experiment is affected, so nothing was run"]
    return {
        "tool": _tool(),
        "automationDetails": {"id": "edison/"},
        "invocations": [_invocation(notes, successful=not failure)],
        "results": [],
    }


def _tool() -> dict[str, Any]:
    rules = [
        {
            "id": f"edison/{name}",
            "name": "".join(word.title() for word in name.split("-")),
            "shortDescription": {"text": text},
            "defaultConfiguration": {"level": level},
        }
        for name, (level, text) in RULES.items()
    ]
    return {"driver": {"name": "edison-ci", "semanticVersion": __version__, "rules": rules}}


def _invocation(notes: list[str], *, successful: bool) -> dict[str, Any]:
    return {
        "executionSuccessful": successful,
        "toolExecutionNotifications": [
            {"level": "note" if successful else "error", "message": {"text": line(text)}}
            for text in notes
        ],
    }


def _results(view: RunResult) -> Iterator[_Result]:
    yield from _gates(view)
    if view.on != "head":
        return
    for finding in view.findings:
        blocked = "safety-blocked" if finding.action == "block" else "safety-flagged"
        rule = blocked if finding.by == "safety" else "judge-flagged"
        message = f"{finding.kind} in the answer to case {finding.case} by {finding.model}"
        yield _Result(rule, message, finding.prompt, (finding.kind, finding.model, finding.case))
    for change in view.changes:
        for moved in change.comparison.moved[Move.NEWLY_FAILING]:
            message = f"case {moved.case} with {change.model}: {score(moved.a)} to {score(moved.b)}"
            yield _Result("case-newly-failing", message, change.prompt, (change.model, moved.case))


def _gates(view: RunResult) -> Iterator[_Result]:
    rules = {"fail": "gate-failed", "inconclusive": "gate-unclear"}
    for row in view.gates:
        if row.verdict in rules:
            about = f"{row.metric} with {row.model}" if row.model else row.metric
            message = f"{about}: {row.sentence}"
            yield _Result(rules[row.verdict], message, row.prompt, (row.metric, row.model or ""))


def _result_json(view: RunResult, result: _Result, spots: Spots, folder: str) -> dict[str, Any]:
    labels = f" ({', '.join(view.labels)})" if view.labels else ""
    identity = json.dumps([result.rule, view.run.experiment, view.on, result.prompt, *result.key])
    document: dict[str, Any] = {
        "ruleId": f"edison/{result.rule}",
        "ruleIndex": list(RULES).index(result.rule),
        "level": RULES[result.rule][0],
        "message": {"text": f"{line(result.message)}{labels}"},
        "partialFingerprints": {"edison/v1": hashlib.sha256(identity.encode()).hexdigest()},
    }
    spot = spots.next(view, result.prompt)
    return {**document, "locations": [_location(spot, folder)]} if spot.path else document


def _location(spot: FileLines, folder: str) -> dict[str, Any]:
    region = {"startLine": 1}
    if spot.lines is not None:
        region = {"startLine": spot.lines.first, "endLine": spot.lines.last}
    uri = _uri(folder + spot.path)
    place = {"artifactLocation": {"uri": uri, "uriBaseId": "%SRCROOT%"}, "region": region}
    return {"physicalLocation": place}


def _uri(path: str) -> str:
    return quote(path, errors="backslashreplace")
