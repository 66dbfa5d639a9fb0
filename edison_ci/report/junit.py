"""The report as JUnit XML.

One suite per experiment, one test per gate, and one per case, prompt and model, over all repeats.
The file is red only if the verdict is: a case that does not pass is a failure only if a gate that
concerns it fails, and a case that could not be measured is an error only if that decides; otherwise
its output has the outcome. A failing case in quarantine is skipped.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from junit_xml import TestCase, TestSuite

from edison_ci.config.experiment import AMOUNT_METRICS
from edison_ci.numeric import dollars, fixed, points, rate
from edison_ci.records import Move, Verdict
from edison_ci.results.run_sentences import suite_words
from edison_ci.sanitize import clean, json_text, without_pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from edison_ci.results.cells import CaseResult
    from edison_ci.results.decisions import GateRow
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
    suites = [
        _suite(view, cases(view), report.companions_of(view), reasons=reasons)
        for view in report.head_runs
    ]
    if report.failure:
        suites.append(TestSuite("edison", [_not_run("edison", report.failure)]))
    if report.dropped:
        suites.append(TestSuite("edison", [_not_covered(sentence) for sentence in report.dropped]))
    for suite in suites:
        top.append(_tidied(suite.build_xml_doc()))
    for name in ("tests", "failures", "errors"):
        top.set(name, str(sum(int(suite.get(name, "0")) for suite in top)))
    top.set("time", fixed(sum(float(suite.get("time", "0")) for suite in top), 3))
    ET.indent(top)
    return f"<?xml version='1.0' encoding='UTF-8'?>\n{ET.tostring(top, encoding='unicode')}\n"


def _suite(
    view: RunResult, cases: Iterable[CaseResult], companions: Iterable[RunResult], *, reasons: bool
) -> Any:
    run, runs = view.run, (view, *companions)
    tests = [_gate(run.experiment, measured, row) for measured in runs for row in measured.gates]
    blame = _Blame(view)
    tests += [_test(view, result, blame, reasons=reasons) for result in cases]
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
    properties = {
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
    for number, change in enumerate(view.eval_suite, 1):
        properties[f"edison.suite_change.{number}"] = (
            f"{change.place}: {change.before} -> {change.after}"
        )
    for number, text in enumerate(view.missing, 1):
        properties[f"edison.missing.{number}"] = text
    return properties


def _gate(experiment: str, view: RunResult, row: GateRow) -> Any:
    about = f"{row.metric}, {row.prompt} with {row.model}" if row.model else row.metric
    test = TestCase(
        legal(f"{about}{suite_words(view)}"), classname=f"{_class_name(experiment)}.(gates)"
    )
    sentence = legal(row.sentence, most=MOST_MESSAGE)
    if row.fails:
        test.add_failure_info(message=sentence, failure_type=row.verdict)
    elif row.verdict == Verdict.ERROR:
        test.add_error_info(message=sentence, error_type=row.verdict)
    elif row.verdict != Verdict.PASS:
        test.add_skipped_info(message=f"{row.word.lower()}: {sentence}")
    return test


class _Blame:
    """Which cases the failing gates of a run concern."""

    def __init__(self, view: RunResult) -> None:
        self._rows = [row for row in view.gates if row.fails]
        self._error = view.run.verdict == Verdict.ERROR
        self._worse = {
            (change.prompt, change.model): {
                moved.case for moved in change.comparison.moved.get(Move.NEWLY_FAILING, ())
            }
            for change in view.changes
        }

    def concerns(self, result: CaseResult) -> bool:
        """Whether a case that failed, or is in error, is one that a failing gate is about."""
        if result.outcome == "error":
            return self._error or any(row.metric == "errors" for row in self._about(result))
        return any(self._is_about(row, result) for row in self._about(result))

    def _about(self, result: CaseResult) -> Iterator[GateRow]:
        for row in self._rows:
            if row.prompt in (None, result.prompt) and row.model in (None, result.model):
                yield row

    def _is_about(self, row: GateRow, result: CaseResult) -> bool:
        if row.relative:
            worse = self._worse.get((result.prompt, result.model), ())
            return row.metric not in AMOUNT_METRICS and result.case in worse
        kind, _, name = row.metric.partition(".")
        if kind in ("check", "grader", "safety"):
            return any(
                (component.kind, component.name) == (kind, name) and component.passed is not True
                for repeat in result.repeats
                for component in repeat.components
            )
        return kind in ("composite", "pass_rate", "criterion", "win_rate")


def _test(view: RunResult, result: CaseResult, blame: _Blame, *, reasons: bool) -> Any:
    outcome, why = result.outcome, legal(result.why(reasons=reasons), most=MOST_MESSAGE)
    test = TestCase(
        legal(result.case) or "(empty)",
        classname=".".join(map(_class_name, (view.run.experiment, result.prompt, result.model))),
        elapsed_sec=result.seconds,
        stdout=_line(view, result, why if outcome in ("failed", "error") else ""),
    )
    if outcome == "skipped":
        test.add_skipped_info(message=why or "skipped")
    elif outcome not in ("failed", "error"):
        return test
    elif result.quarantined:
        test.add_skipped_info(message=f"in quarantine, {outcome}: {why}")
    elif not blame.concerns(result):
        if outcome == "error":
            test.add_skipped_info(message=f"not measured: {why}")
    elif outcome == "failed":
        test.add_failure_info(message=why or "failed", failure_type=result.kind())
    else:
        test.add_error_info(message=why or "error", error_type=legal(result.kind()))
    return test


def _class_name(name: str) -> str:
    """Return a name as part of a class name; readers take what is before a dot for a package."""
    return legal(name).replace(".", "_")


def _not_run(experiment: str, message: str) -> Any:
    """Return a test that marks an unfinished run."""
    test = TestCase("(run)", classname=_class_name(experiment))
    test.add_error_info(message=legal(message, most=MOST_MESSAGE), error_type="NOT_FINISHED")
    return test


def _not_covered(message: str) -> Any:
    """Return a test that marks what the base measures and this change does not."""
    test = TestCase("(coverage)", classname="edison")
    test.add_skipped_info(message=legal(message, most=MOST_MESSAGE))
    return test


def _line(view: RunResult, result: CaseResult, why: str) -> str:
    """Return the scores of a case as one line of JSON; without components if it is too long."""
    value: dict[str, Any] = {
        "composite": result.composite,
        "outcome": result.outcome,
        "repeats": len(result.repeats),
        "simulated": view.run.simulated,
        **({"why": why} if why else {}),
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
    spelled = clean(without_pieces(text)).replace("\n", "\\n").replace("\t", " ")
    spelled = _ILLEGAL.sub(lambda illegal: f"\\u{{{ord(illegal.group()):x}}}", spelled)
    spelled = spelled.replace("##[", "#\\#[")
    return spelled if len(spelled) <= most else f"{spelled[: most - 3]}..."


def _tidied(suite: ET.Element) -> ET.Element:
    """Return a suite that is valid for the Jenkins schema."""
    for name in _UNLISTED:
        suite.attrib.pop(name, None)
    for element in (suite, *suite.iter("testcase")):
        element.set("time", fixed(float(element.get("time", "0")), 3))
    return suite
