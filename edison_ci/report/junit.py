"""The report as JUnit XML.

One suite per experiment, one test per case, prompt and model, over all repeats; gates are
properties of the suite. A failure is an answer that does not pass, an error one that could not be
measured; a failing case in quarantine is skipped.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from junit_xml import TestCase, TestSuite

from edison_ci.numeric import dollars, fixed, points, rate
from edison_ci.sanitize import clean, json_text, without_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from edison_ci.results.cells import CaseResult
    from edison_ci.results.report import Report
    from edison_ci.results.run_result import RunResult

MOST_LINE = 4_000
"""Most characters of the JSON line of a test."""
MOST_MESSAGE = 1_000
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_UNLISTED = ("disabled",)
"""Attributes that junit_xml writes and the Jenkins schema does not allow."""


def junit(
    report: Report, cases: Callable[[RunResult], Iterable[CaseResult]], *, reasons: bool = True
) -> str:
    """Return the report as JUnit XML; without `reasons`, which may quote answers."""
    top = ET.Element("testsuites", {"name": "edison"})
    suites = [_suite(view, cases(view), reasons=reasons) for view in report.head_runs]
    if report.failure:
        suites.append(TestSuite("edison", [_not_run("edison", report.failure)]))
    if report.dropped:
        suites.append(TestSuite("edison", [_not_covered(each) for each in report.dropped]))
    for suite in suites:
        top.append(_tidied(suite.build_xml_doc()))
    for name in ("tests", "failures", "errors"):
        top.set(name, str(sum(int(suite.get(name, "0")) for suite in top)))
    top.set("time", fixed(sum(float(suite.get("time", "0")) for suite in top), 3))
    ET.indent(top)
    return f"<?xml version='1.0' encoding='UTF-8'?>\n{ET.tostring(top, encoding='unicode')}\n"


def _suite(view: RunResult, cases: Iterable[CaseResult], *, reasons: bool) -> Any:
    run = view.run
    tests = [_test(view, result, reasons=reasons) for result in cases]
    if not view.finished:
        tests.append(_not_run(run.experiment, view.missing[0]))
    name = run.experiment if view.on == "head" else f"{run.experiment} with the base's eval suite"
    return TestSuite(
        legal(name),
        tests,
        timestamp=run.created_at,
        properties={legal(key): legal(value) for key, value in _properties(view).items()},
    )


def _properties(view: RunResult) -> Mapping[str, str]:
    run = view.run
    found = {
        "edison.run": run.id,
        "edison.status": run.status,
        "edison.verdict": run.verdict or "",
        "edison.labels": ", ".join(view.labels),
        "edison.simulated": str(run.simulated).lower(),
        "edison.composite": points(view.overall.composite),
        "edison.pass_rate": rate(view.overall.pass_rate),
        "edison.cost": dollars(view.cost_microusd),
        "edison.base": run.base_commit or "",
        "edison.prompts": ", ".join(f"{name}@{version[:8]}" for name, version in view.prompts),
    }
    for number, row in enumerate(view.gates, 1):
        about = f"{row.metric} of {row.prompt} with {row.model}" if row.model else row.metric
        found[f"edison.gate.{number}"] = f"{row.verdict}: {about}: {row.sentence}"
    for number, change in enumerate(view.eval_suite, 1):
        found[f"edison.suite_change.{number}"] = (
            f"{change.place}: {change.before} -> {change.after}"
        )
    for number, text in enumerate(view.missing, 1):
        found[f"edison.missing.{number}"] = text
    return found


def _test(view: RunResult, result: CaseResult, *, reasons: bool) -> Any:
    names = (view.run.experiment, result.prompt, result.model)
    test = TestCase(
        legal(result.case) or "(empty)",
        # Readers treat the part before the last dot as a package.
        classname=".".join(legal(name).replace(".", "_") for name in names),
        elapsed_sec=result.seconds,
        stdout=_line(view, result),
    )
    outcome, why = result.outcome, legal(result.why(reasons=reasons), most=MOST_MESSAGE)
    if result.quarantined and outcome in ("failed", "error"):
        test.add_skipped_info(message=f"in quarantine, {outcome}: {why}")
    elif outcome == "failed":
        test.add_failure_info(message=why or "failed", failure_type=result.kind())
    elif outcome == "error":
        test.add_error_info(message=why or "error", error_type=legal(result.kind()))
    elif outcome == "skipped":
        test.add_skipped_info(message=why or "skipped")
    return test


def _not_run(experiment: str, message: str) -> Any:
    """Return a test that marks an unfinished run."""
    test = TestCase("(run)", classname=legal(experiment).replace(".", "_"))
    test.add_error_info(message=legal(message, most=MOST_MESSAGE), error_type="NOT_FINISHED")
    return test


def _not_covered(message: str) -> Any:
    """Return a test that marks what the base measures and this change does not."""
    test = TestCase("(coverage)", classname="edison")
    test.add_skipped_info(message=legal(message, most=MOST_MESSAGE))
    return test


def _line(view: RunResult, result: CaseResult) -> str:
    """Return the scores of a case as one line of JSON; without components if it is too long."""
    value: dict[str, Any] = {
        "composite": result.composite,
        "outcome": result.outcome,
        "repeats": len(result.repeats),
        "simulated": view.run.simulated,
        "components": result.scores(),
    }
    text = json_text(value, indent=None, ascii_only=True)
    if len(text) > MOST_LINE:
        value["components"], value["components_left_out"] = {}, len(value["components"])
        text = json_text(value, indent=None, ascii_only=True)
    return text


@lru_cache(maxsize=4_096)  # names of prompts and models repeat in every case
def legal(text: str, *, most: int = 500) -> str:
    """Return a text on one line that is valid in XML, with invalid characters spelled out."""
    shown = clean(without_pieces(text)).replace("\n", "\\n").replace("\t", " ")
    shown = _ILLEGAL.sub(lambda found: f"\\u{{{ord(found.group()):x}}}", shown)
    shown = shown.replace("##[", "#\\#[")
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


def _tidied(suite: ET.Element) -> ET.Element:
    """Return a suite that is valid for the Jenkins schema."""
    for name in _UNLISTED:
        suite.attrib.pop(name, None)
    for element in (suite, *suite.iter("testcase")):
        element.set("time", fixed(float(element.get("time", "0")), 3))
    return suite
