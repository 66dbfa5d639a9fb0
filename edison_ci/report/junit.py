"""The report as JUnit XML.

One suite for an experiment, one test for a case with a prompt and a model, however many draws it
had; what gates said is in the suite's properties. A failure is an answer that is not good enough,
an error is one that could not be measured; a case in quarantine is skipped, whatever became of it.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from junit_xml import TestCase, TestSuite

from edison_ci.formatting import dollars, points, rate
from edison_ci.rounding import fixed
from edison_ci.sanitize import clean, json_text, without_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from edison_ci.results.cells import CaseResult
    from edison_ci.results.report import Report
    from edison_ci.results.run_result import RunResult

MOST_LINE = 4_000
"""Characters of the JSON line of a test."""
MOST_MESSAGE = 1_000
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_UNLISTED = ("disabled",)
"""Attributes that the library writes and the schema of Jenkins does not know."""


def junit(
    report: Report, cases: Callable[[RunResult], Iterable[CaseResult]], *, reasons: bool = True
) -> str:
    """Return the report as JUnit XML; reasons, which may quote an answer, can be left out."""
    top = ET.Element("testsuites", {"name": "edison"})
    suites = [_suite(view, cases(view), reasons=reasons) for view in report.measured]
    if report.failure:
        suites.append(TestSuite("edison", [_unrun("edison", report.failure)]))
    if report.dropped:
        suites.append(TestSuite("edison", [_unmeasured(each) for each in report.dropped]))
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
        tests.append(_unrun(run.experiment, view.missing[0]))
    name = run.experiment if view.on == "head" else f"{run.experiment} on the base's material"
    return TestSuite(
        legal(name),
        tests,
        timestamp=run.created_at,
        properties={legal(key): legal(value) for key, value in _properties(view).items()},
    )


def _properties(view: RunResult) -> Mapping[str, str]:
    run, summary = view.run, view
    told = {
        "edison.run": run.id,
        "edison.status": run.status,
        "edison.verdict": run.verdict or "",
        "edison.labels": ", ".join(view.labels),
        "edison.simulated": str(run.simulated).lower(),
        "edison.composite": points(summary.overall.composite),
        "edison.pass_rate": rate(summary.overall.pass_rate),
        "edison.cost": dollars(summary.cost_microusd),
        "edison.base": run.base_commit or "",
        "edison.prompts": ", ".join(f"{name}@{version[:8]}" for name, version in summary.prompts),
    }
    for number, row in enumerate(view.gates, 1):
        about = f"{row.metric} of {row.prompt} with {row.model}" if row.model else row.metric
        told[f"edison.gate.{number}"] = f"{row.verdict}: {about}: {row.sentence}"
    for number, change in enumerate(view.material, 1):
        told[f"edison.material.{number}"] = f"{change.place}: {change.before} -> {change.after}"
    for number, text in enumerate(view.missing, 1):
        told[f"edison.missing.{number}"] = text
    return told


def _test(view: RunResult, result: CaseResult, *, reasons: bool) -> Any:
    names = (view.run.experiment, result.prompt, result.model)
    test = TestCase(
        legal(result.case) or "(empty)",
        # Readers take what is before the last dot for a package.
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


def _unrun(experiment: str, message: str) -> Any:
    """Return the test that says that there should be others."""
    test = TestCase("(run)", classname=legal(experiment).replace(".", "_"))
    test.add_error_info(message=legal(message, most=MOST_MESSAGE), error_type="NOT_FINISHED")
    return test


def _unmeasured(message: str) -> Any:
    """Return the test that says what the base gates and was not run."""
    test = TestCase("(coverage)", classname="edison")
    test.add_skipped_info(message=legal(message, most=MOST_MESSAGE))
    return test


def _line(view: RunResult, result: CaseResult) -> str:
    """Return the scores of a case as one line of JSON; parts are left out where it is too long."""
    value: dict[str, Any] = {
        "composite": result.composite,
        "outcome": result.outcome,
        "draws": len(result.draws),
        "simulated": view.run.simulated,
        "parts": result.scores(),
    }
    text = json_text(value, indent=None, ascii_only=True)
    if len(text) > MOST_LINE:
        value["parts"], value["parts_left_out"] = {}, len(value["parts"])
        text = json_text(value, indent=None, ascii_only=True)
    return text


@lru_cache(maxsize=4_096)  # names of prompts and models come with every case
def legal(text: str, *, most: int = 500) -> str:
    """Return a text that XML can hold on one line: what it cannot is spelt out."""
    shown = clean(without_pieces(text)).replace("\n", "\\n").replace("\t", " ")
    shown = _ILLEGAL.sub(lambda found: f"\\u{{{ord(found.group()):x}}}", shown)
    shown = shown.replace("##[", "#\\#[")
    return shown if len(shown) <= most else f"{shown[: most - 3]}..."


def _tidied(suite: ET.Element) -> ET.Element:
    """Return a suite as the schema of Jenkins wants it."""
    for name in _UNLISTED:
        suite.attrib.pop(name, None)
    for element in (suite, *suite.iter("testcase")):
        element.set("time", fixed(float(element.get("time", "0")), 3))
    return suite
