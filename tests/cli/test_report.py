"""edison report, and the reports that a run writes."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import TYPE_CHECKING

import pytest
from junitparser import JUnitXml
from lxml import etree

from tests.cli.test_against import GOOD, PLAIN, improve, shop, worsen
from tests.opened import opened
from tests.report.page import assert_harmless
from tests.report.test_junit import XSD
from tests.report.test_pdf import browser
from tests.report.test_sarif import SCHEMA

if TYPE_CHECKING:
    from tests.cli.conftest import Edison, Kept
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

__all__ = ["shop"]

FLAGS = ("--junit", "junit.xml", "--markdown", "report.md", "--sarif", "edison.sarif")


def checked(folder: Folder) -> tuple[str, str, str]:
    """Return the three reports of a run, each valid."""
    junit, markdown, sarif = (folder.read(name) for name in FLAGS[1::2])
    XSD.assertValid(etree.fromstring(junit.encode()))
    assert_harmless(markdown)
    SCHEMA.validate(json.loads(sarif))
    left = [path.name for path in folder.path.iterdir() if path.name.startswith(".junit")]
    assert left == [], "nothing half written stays"
    return junit, markdown, sarif


# --- run --junit --markdown --sarif ---------------------------------------------------------------


def test_a_run_writes_the_reports_it_is_asked_for(edison: Edison, mini: Folder) -> None:
    done = edison(mini, "run", *FLAGS)
    assert done.code == 0
    junit, markdown, sarif = checked(mini)
    (suite,) = JUnitXml.fromstring(junit.encode())
    assert (suite.name, suite.tests, suite.skipped) == ("hello", 3, 1)
    assert [test.name for test in suite][1:] == ["ada", "bo"], "after the gate, which has no base"
    assert re.search(r"## 📏 edison: score \d", markdown), "no gate decided"
    assert "cases fail.** (simulated)" in markdown
    assert json.loads(sarif)["runs"][0]["properties"]["simulated"] is True


def test_a_failed_gate_keeps_its_exit_code_and_has_its_reports(
    edison: Edison, shop: Folder
) -> None:
    worsen(shop)
    assert edison(shop, "run", "--against", "main", *FLAGS).code == 1
    _, markdown, sarif = checked(shop)
    assert markdown.startswith("## ❌ edison: fail")
    assert "`prompts/support-reply.md`\n\n```diff\n" in markdown and f"+{PLAIN}" in markdown
    assert "### Cases that changed most" in markdown and "**Newly failing** `" in markdown
    failed = next(
        result
        for result in json.loads(sarif)["runs"][0]["results"]
        if result["ruleId"] == "edison/gate-failed"
    )
    place = failed["locations"][0]["physicalLocation"]
    line = next(
        number
        for number, text in enumerate(shop.read("prompts/support-reply.md").splitlines(), 1)
        if text == PLAIN
    )
    assert place["artifactLocation"]["uri"] == "prompts/support-reply.md"
    assert place["region"] == {"startLine": line, "endLine": line}


def test_material_that_changed_is_told_first(edison: Edison, shop: Folder) -> None:
    worsen(shop)
    shop.edit("experiments/support-reply.yaml", "margin: 5pp", "margin: 90pp")
    shop.edit("datasets/golden.jsonl", '"tags": [', '"tags": ["new", ')
    edison(shop, "run", "--against", "main", "--limit", "20", *FLAGS)
    _, markdown, _ = checked(shop)
    assert "| `datasets/golden.jsonl` | `as it was` | `edited` |" in markdown
    assert "`experiments/support-reply.yaml: gates[0].margin` | `5pp` | `90pp` |" in markdown
    assert markdown.index("Eval suite changed") < markdown.index("| gate |")


def test_an_invalid_file_has_its_reports_too(edison: Edison, mini: Folder) -> None:
    edison(mini, "run", *FLAGS)
    mini.edit("edison.yaml", "version: 1", "version: 7")
    assert edison(mini, "run", *FLAGS).code == 2
    junit, markdown, sarif = checked(mini)
    (suite,) = JUnitXml.fromstring(junit.encode())
    assert (suite.name, suite.errors) == ("edison", 1), "the older report is gone"
    assert "edison: error\n\n**`edison.yaml:1:10`: version is 7. Allowed: 1.**" in markdown
    assert json.loads(sarif)["runs"][0]["invocations"][0]["executionSuccessful"] is False


def test_a_run_that_a_budget_stops_has_its_reports_too(edison: Edison, mini: Folder) -> None:
    mini.edit("models.yaml", "model: small}", "model: small, price: {in: 1, out: 2}}")
    assert edison(mini, "run", "--budget", "0.000001", *FLAGS).code == 4
    junit, markdown, _ = checked(mini)
    assert "edison: not finished" in markdown
    assert "stopped by budget" in junit


def test_nothing_affected_is_a_report_too(edison: Edison, shop: Folder) -> None:
    done = edison(shop, "run", "--changed-since", "HEAD", *FLAGS)
    assert done.code == 0
    _, markdown, _ = checked(shop)
    assert "No experiment is affected" in markdown


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_paid(
    edison: Edison, mini: Folder
) -> None:
    done = edison(mini, "run", "--junit", "nowhere/junit.xml")
    assert done.code == 2
    assert "the report nowhere/junit.xml cannot be written" in done.err
    assert not (mini.path / ".edison/results.db").exists()
    both = edison(mini, "run", "--junit", "a.txt", "--markdown", "a.txt")
    assert (both.code, "two reports" in both.err) == (2, True)


TOO_LONG = "x" * 250
"""A name with which a file can be meant, but not made beside its place."""


def test_a_report_that_cannot_be_written_does_not_hide_the_verdict(
    edison: Edison, shop: Folder
) -> None:
    worsen(shop)
    done = edison(shop, "run", "--against", "main", "--junit", TOO_LONG, "--markdown", "report.md")
    assert done.code == 1, "the gate that failed counts"
    assert "FAIL  composite: " in done.out
    assert f"error: the report {TOO_LONG} cannot be written" in done.err
    assert "edison: fail" in shop.read("report.md"), "the others are written all the same"


def test_a_report_that_cannot_be_written_is_an_error_of_a_good_run(
    edison: Edison, mini: Folder
) -> None:
    done = edison(mini, "run", "--junit", TOO_LONG, "--json")
    assert done.code == 2
    told = json.loads(done.out)
    assert (told["exit_code"], told["verdict"]) == (2, "skipped")
    assert "cannot be written" in done.err


# --- report ---------------------------------------------------------------------------------------


@pytest.fixture
def measured(edison: Edison, shop: Folder, kept: Kept) -> Folder:
    def make() -> None:
        improve(shop)
        assert edison(shop, "run", "--against", "main", "-q").code == 0

    return kept.begin("measured", shop, make)


def test_a_stored_run_is_told_in_every_format(edison: Edison, measured: Folder) -> None:
    texts = {
        kind: edison(measured, "report", "--format", kind).out
        for kind in ("md", "json", "junit", "sarif")
    }
    assert_harmless(texts["md"])
    XSD.assertValid(etree.fromstring(texts["junit"].encode()))
    SCHEMA.validate(json.loads(texts["sarif"]))
    told = json.loads(texts["json"])
    status = json.loads(edison(measured, "status", "latest", "--json").out)
    assert told["runs"][0].items() >= status["runs"][0].items(), "and what only a report knows"
    (change,) = told["runs"][0]["changes"]
    assert change["verdict"] == "b_better"
    assert {row["side"] for row in told["runs"][0]["scores"]} == {"head", "base"}
    assert GOOD.partition(".")[2].strip() in texts["md"], "in the diff of the prompt"


def test_the_ending_of_the_file_says_the_format(edison: Edison, measured: Folder) -> None:
    for name, start in (
        ("a.xml", "<?xml"),
        ("a.sarif", "{"),
        ("a.json", "{"),
        ("a.md", "## "),
        ("a.txt", "## "),
    ):
        done = edison(measured, "report", "--out", name)
        assert (done.code, done.out) == (0, "")
        assert measured.read(name).startswith(start)
    told = edison(measured, "report", "latest", "--out", "a.xml", "--json")
    assert json.loads(told.out)["format"] == "junit"
    assert json.loads(edison(measured, "report", "--json").out)["verdict"] == "pass"


def test_what_was_there_stays_when_a_report_cannot_be_written(
    edison: Edison, measured: Folder
) -> None:
    done = edison(measured, "report", "--out", "nowhere/a.md")
    assert (done.code, "its folder must exist" in done.err) == (2, True)
    long = edison(measured, "report", "--out", TOO_LONG)
    assert (long.code, "File name too long" in long.err) == (2, True)


def test_a_run_that_is_not_there_is_said(edison: Edison, measured: Folder) -> None:
    done = edison(measured, "report", "nothing")
    assert (done.code, "there is no run 'nothing'" in done.err) == (2, True)


def test_a_run_whose_process_died_is_not_taken_for_one_that_goes_on(
    edison: Edison, measured: Folder
) -> None:
    with opened(measured.path / ".edison/results.db") as connection:
        connection.execute("update run set status = 'EXECUTING', verdict = null, owner = '1-dead'")
    text = edison(measured, "report").out
    assert text.startswith("## ⏳ edison: not finished")
    assert "The run is PAUSED, stopped by killed" in text


def test_reasons_stay_in_a_private_project(edison: Edison, measured: Folder) -> None:
    said = "is not in the answer"
    assert said in edison(measured, "report", "--format", "junit").out
    measured.edit("edison.yaml", "defaults:", "settings: {private: true}\ndefaults:")
    text = edison(measured, "report", "--format", "junit").out
    assert said not in text
    assert "check icontains expected failed" in text


# --- pages and tables -----------------------------------------------------------------------------


def answers_of(folder: Folder) -> list[str]:
    with opened(folder.path / ".edison/results.db") as connection:
        rows = connection.execute(
            "select t.text from cell c join answer_text t using (request_hash, answer_no)"
        )
        return [text for (text,) in rows]


def test_a_page_has_everything_in_one_file(edison: Edison, measured: Folder) -> None:
    done = edison(measured, "report", "--out", "report.html")
    assert (done.code, done.out) == (0, "")
    page = measured.read("report.html")
    assert page.startswith("<!doctype html>")
    assert "support-reply: pass" in page
    assert "Simulated." in page
    assert "<script" not in page
    assert ">Input<" in page, "what was asked is still known"
    assert edison(measured, "report", "--format", "html").out.startswith("<!doctype html>")


def test_cells_are_a_table_and_lines(edison: Edison, measured: Folder) -> None:
    rows = list(csv.DictReader(io.StringIO(edison(measured, "report", "--format", "csv").out)))
    lines = edison(measured, "report", "--format", "jsonl").out.splitlines()
    with opened(measured.path / ".edison/results.db") as connection:
        (cells,) = connection.execute("select count(*) from cell").fetchone()
    assert len(rows) == len(lines) == cells
    assert json.loads(lines[0])["cell"] == rows[0]["cell"]
    assert json.loads(lines[0])["text"].split()[0] in rows[0]["text"]
    edison(measured, "report", "--out", "cells.csv")
    told = list(csv.DictReader(io.StringIO(measured.read("cells.csv"))))
    assert [row["cell"] for row in told] == [row["cell"] for row in rows]


def test_a_formula_in_an_answer_is_text_unless_somebody_wants_it_raw(
    edison: Edison, mini: Folder
) -> None:
    mini.edit("models.yaml", "model: small}", "model: echo}")
    mini.edit("prompts/hello.md", "Say hello to {{ name }}", "=1+1 {{ name }}")
    edison(mini, "run", "-q")
    for flags, start in (((), "'=1+1"), (("--raw",), "=1+1")):
        out = edison(mini, "report", "--format", "csv", *flags).out
        assert {row["text"][: len(start)] for row in csv.DictReader(io.StringIO(out))} == {start}
    refused = edison(mini, "report", "--raw")
    assert (refused.code, "--raw needs --format csv" in refused.err) == (2, True)


def test_texts_stay_in_a_private_project(edison: Edison, measured: Folder) -> None:
    measured.edit("edison.yaml", "defaults:", "settings: {private: true}\ndefaults:")
    words = [text[:30] for text in answers_of(measured) if len(text) > 30]
    for kind in ("csv", "jsonl", "html"):
        done = edison(measured, "report", "--format", kind)
        assert (done.code, "texts and reasons are left out" in done.err) == (0, True)
        assert not [text for text in words if text in done.out]
        assert "is not in the answer" not in done.out


def test_strangers_get_no_texts(edison: Edison, measured: Folder) -> None:
    measured.edit(
        "edison.yaml", "defaults:", "members: [{email: a@example.org, role: owner}]\ndefaults:"
    )
    for kind in ("csv", "jsonl", "html", "pdf"):
        done = edison(measured, "report", "--format", kind, "--out", "x")
        assert (done.code, "needs a viewer" in done.err) == (2, True)
    told = edison(measured, "report")
    assert (told.code, "```diff" in told.out) == (0, False)


def test_a_pdf_is_printed_by_a_browser(
    edison: Edison, measured: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = browser(measured.path, "chromium", "open(target, 'w').write('%PDF ' + page)")
    monkeypatch.setenv("EDISON_CHROMIUM", str(made))
    assert edison(measured, "report", "--out", "report.pdf").code == 0
    printed = measured.read("report.pdf")
    assert printed.startswith("%PDF <!doctype html>")
    assert '<details class="case" open>' in printed, "nothing opens on paper"
    without = edison(measured, "report", "--format", "pdf")
    assert (without.code, "--out report.pdf" in without.err) == (2, True)
    monkeypatch.setenv("EDISON_CHROMIUM", "no-such-browser")
    assert edison(measured, "report", "--out", "report.pdf").code == 2
    assert measured.read("report.pdf") == printed
