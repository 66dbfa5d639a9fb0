"""SARIF: held to the published schema, at the lines of the prompts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft7Validator, FormatChecker

from edison_ci.report.annotations import Lines, changed_lines
from edison_ci.report.sarif import MOST_RESULTS, RULES, sarif
from edison_ci.results.components import Finding
from edison_ci.results.report import Report
from tests.report.conftest import SCHEMAS, Half, changed, everything
from tests.report.test_markdown import kept

if TYPE_CHECKING:
    from tests.report.conftest import Shelf

pytestmark = pytest.mark.daily

SCHEMA = Draft7Validator(
    json.loads((SCHEMAS / "sarif-2.1.0.json").read_text(encoding="utf-8")),
    format_checker=FormatChecker(),
)
CHANGED = {"prompts/support-reply.md": (Lines(14, 16), Lines(20, 20))}


def read(text: str) -> dict[str, Any]:
    found = json.loads(text)
    SCHEMA.validate(found)
    assert isinstance(found, dict)
    return found


def test_the_file_reads_as_before(failing: Report) -> None:
    text = sarif(failing, CHANGED)
    read(text)
    kept("report.sarif", text)


def test_gates_findings_and_broken_cases_are_results(failing: Report) -> None:
    head, base = read(sarif(failing, CHANGED))["runs"]
    rules = [result["ruleId"].removeprefix("edison/") for result in head["results"]]
    assert set(rules) == set(RULES) - {"judge-flagged"}
    assert rules.count("case-newly-failing") == failing.regressions
    for result in head["results"]:
        name = result["ruleId"].removeprefix("edison/")
        assert result["level"] == RULES[name][0]
        rule = head["tool"]["driver"]["rules"][result["ruleIndex"]]
        assert rule["id"] == result["ruleId"]
        assert "simulated" in result["message"]["text"]
    assert {r["ruleId"] for r in base["results"]} <= {"edison/gate-failed", "edison/gate-unclear"}
    ids = [run["automationDetails"]["id"] for run in (head, base)]
    assert len(set(ids)) == 2, "GitHub wants a category of its own for each"


def test_a_result_is_at_the_first_changed_lines_of_its_prompt(failing: Report) -> None:
    run = read(sarif(failing, CHANGED, folder="sub dir/"))["runs"][0]
    place = run["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "sub%20dir/prompts/support-reply.md"
    assert place["region"] == {"startLine": 14, "endLine": 16}
    unknown = read(sarif(failing, {}))["runs"][0]["results"][0]["locations"][0]
    assert unknown["physicalLocation"]["region"] == {"startLine": 1}


def test_a_finding_keeps_its_fingerprint_from_run_to_run(failing: Report, shelf: Shelf) -> None:
    def prints(report: Report) -> list[str]:
        results = read(sarif(report, {}))["runs"][0]["results"]
        return [result["partialFingerprints"]["edison/v1"] for result in results]

    again = shelf.add(*everything())
    assert prints(again) == prints(failing)
    assert len(set(prints(failing))) == len(prints(failing))


@pytest.mark.nightly
def test_more_than_others_take_is_cut_and_said(failing: Report) -> None:
    view = failing.runs[0]
    many = tuple(
        Finding("pii", "safety", "flag", "p", "m", f"c{n}") for n in range(MOST_RESULTS + 5)
    )
    run = read(sarif(Report((changed(view, findings=many),)), {}))["runs"][0]
    assert len(run["results"]) == MOST_RESULTS
    said = run["invocations"][0]["toolExecutionNotifications"]
    assert "more than 5,000 results" in said[-1]["message"]["text"]


def test_a_run_that_did_not_end_well_says_so(shelf: Shelf) -> None:
    run = read(sarif(shelf.add(Half(status="FAILED")), {}))["runs"][0]
    assert run["invocations"][0]["executionSuccessful"] is False
    assert run["properties"]["verdict"] == "error"


@pytest.mark.parametrize("failure", ["", "no network"])
def test_nothing_run_is_valid_too(failure: str) -> None:
    (run,) = read(sarif(Report(failure=failure), {}))["runs"]
    assert run["results"] == []
    assert run["invocations"][0]["executionSuccessful"] is (not failure)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ("a\nb\nc\n", "a\nb\nc\n", ()),
        ("a\nb\nc\n", "a\nX\nc\n", ((2, 2),)),
        ("a\nb\nc\n", "a\nb\nc\nd\ne\n", ((4, 5),)),
        ("a\nb\nc\n", "a\nc\n", ((2, 2),)),
        ("a\nb\nc\n", "a\nb\n", ((2, 2),)),
        ("", "a\nb\n", ((1, 2),)),
        ("a\n", "", ()),
        ("a\nb\nc\nd\n", "X\nb\nc\nY\n", ((1, 1), (4, 4))),
    ],
)
def test_changed_lines(before: str, after: str, found: tuple[tuple[int, int], ...]) -> None:
    assert changed_lines(before, after) == found


def test_a_file_that_is_too_long_to_compare_has_no_lines() -> None:
    assert changed_lines("a\n" * 21_000, "b\n" * 21_000) == ()


def test_many_equal_lines_are_no_trouble() -> None:
    text = "a\nb\n" * 9_000
    assert changed_lines(text, f"x\n{text}y\n")[0].first == 1
    assert changed_lines(text, f"{text}y\n") == ((18_001, 18_001),)
