"""JUnit: held to the schema of Jenkins, and read back by somebody else's parser."""

from __future__ import annotations

import json
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped
from lxml import etree

from docs.gates import Graded, Results
from edison_ci.records import CellStatus
from edison_ci.report.junit import MOST_LINE, junit, legal
from edison_ci.results.cells import CaseResult, Repeat, cases_of
from edison_ci.results.cells import ComponentResult as Scored
from edison_ci.results.report import Report
from edison_ci.store.cells import Component
from edison_ci.store.database import open_reader
from tests.report.conftest import SCHEMAS, Half, Plot, everything
from tests.report.test_markdown import kept

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tests.report.conftest import Shelf

XSD = etree.XMLSchema(etree.parse(SCHEMAS / "junit-10.xsd"))


def read(text: str) -> Any:
    """Check against the schema and parse."""
    XSD.assertValid(etree.fromstring(text.encode()))
    return JUnitXml.fromstring(text.encode())


def told(shelf: Shelf, report: Report, *, reasons: bool = True) -> str:
    return junit(report, partial(cases_of, shelf.connection), reasons=reasons)


def test_the_file_reads_as_before(shelf: Shelf) -> None:
    text = told(shelf, shelf.add(*everything()))
    read(text)
    kept("junit.xml", text)


def test_one_suite_for_an_experiment_and_one_test_for_a_case_with_a_model(shelf: Shelf) -> None:
    report = shelf.add(*everything())
    suites = list(read(told(shelf, report)))
    assert [suite.name for suite in suites] == ["support-reply"]
    assert suites[0].tests == 38 * 2
    names = {(test.classname, test.name) for test in suites[0]}
    assert ("support-reply.support-reply.large", "case-0000") in names
    assert len(names) == 38 * 2


def test_failures_and_errors_are_kept_apart(shelf: Shelf) -> None:
    (suite,) = read(told(shelf, shelf.add(Plot(drop=0.3, lost=3, blocked=2))))
    kinds = {test.name: type(test.result[0]) for test in suite if test.result}
    assert [name for name, kind in kinds.items() if kind is Error] == [
        "case-0000",
        "case-0001",
        "case-0002",
    ]
    assert kinds["case-0003"] is kinds["case-0004"] is Failure
    assert suite.errors == 3
    assert suite.failures == len(kinds) - 3
    blocked = next(test for test in suite if test.name == "case-0003").result[0]
    assert blocked.type == "blocked"


def test_the_suite_has_verdict_gates_and_labels_as_properties(shelf: Shelf) -> None:
    (suite,) = read(told(shelf, shelf.add(Plot(drop=0.3, simulated=True))))
    found = {one.name: one.value for one in suite.properties()}
    assert found["edison.verdict"] == "fail"
    assert found["edison.simulated"] == "true"
    assert found["edison.gate.1"].startswith("fail: composite of support-reply with small: ")
    test = next(iter(suite))
    assert test._elem.find("properties") is None, "Jenkins knows no properties of tests"


def test_scores_are_one_line_of_json(shelf: Shelf) -> None:
    (suite,) = read(told(shelf, shelf.add(Plot())))
    for test in suite:
        assert "\n" not in test.system_out
        line = json.loads(test.system_out)
        assert line["outcome"] == ("failed" if test.result else "passed")
        assert line["components"]["check polite"] == pytest.approx(line["composite"])


def test_a_long_line_is_left_out_and_stays_json(shelf: Shelf) -> None:
    view = shelf.add(Plot()).runs[0]
    components = tuple(
        Scored(f"{'x' * 40}{n}", "check", 1.0, True, CellStatus.OK, "") for n in range(200)
    )
    repeat = Repeat(CellStatus.OK, 1.0, True, "", "", 5, components)
    text = junit(Report((view,)), lambda _: [CaseResult("p", "m", "c", (repeat,))])
    (test,) = next(iter(read(text)))
    assert len(test.system_out) <= MOST_LINE
    assert json.loads(test.system_out)["components_left_out"] == 200


def test_repeats_of_a_case_are_one_test(shelf: Shelf) -> None:
    plot = Plot(cases=2, against=False)
    shelf.add(plot)
    results = Results(shelf.writer, plot.id)
    bad = Component("polite", "check", 0.0, False, 1.0, CellStatus.OK, "rude")
    results.add(Graded("case-0000", 0.0, repeat=1, passed=False, components=(bad,)))
    results.add(Graded("case-0001", None, repeat=1, status="error"))
    first, second = next(iter(read(told(shelf, shelf.report(plot.id)))))
    assert isinstance(first.result[0], Failure), "one bad answer is enough"
    assert isinstance(second.result[0], Error)
    assert json.loads(first.system_out)["repeats"] == 2


def test_a_case_in_quarantine_never_fails(shelf: Shelf) -> None:
    plot = Plot(drop=0.9, cases=3, quarantined=("case-0001",))
    (suite,) = read(told(shelf, shelf.add(plot)))
    kinds = {test.name: type(test.result[0]) for test in suite}
    assert kinds == {"case-0000": Failure, "case-0001": Skipped, "case-0002": Failure}


def test_a_part_that_broke_is_an_error(shelf: Shelf) -> None:
    plot = Plot(cases=1, against=False)
    shelf.add(plot)
    broken = Component("polite", "grader", None, None, 1.0, CellStatus.ERROR, "no reply")
    Results(shelf.writer, plot.id).add(Graded("odd", None, components=(broken,)))
    (suite,) = read(told(shelf, shelf.report(plot.id)))
    odd = next(test for test in suite if test.name == "odd")
    assert isinstance(odd.result[0], Error)
    assert odd.result[0].type == "NOT_GRADED"
    assert odd.result[0].message == "grader polite could not be graded: no reply"


def test_a_run_that_stopped_is_an_error_of_its_own(shelf: Shelf) -> None:
    (suite,) = read(told(shelf, shelf.add(Half(status="PAUSED", stopped_by="budget"))))
    last = list(suite)[-1]
    assert last.name == "(run)"
    assert "20 of 80 cells are done" in last.result[0].message


def test_reasons_can_be_left_out(shelf: Shelf) -> None:
    report = shelf.add(Plot(drop=0.4))
    assert "'sorry'?" in told(shelf, report)
    assert "'sorry'?" not in told(shelf, report, reasons=False)
    assert "check polite failed" in told(shelf, report, reasons=False)


def test_nothing_run_and_nothing_to_run_are_valid_too() -> None:
    assert read(junit(Report(), lambda _: ())).tests in (0, None)
    (suite,) = read(junit(Report(failure="bad \x00 file"), lambda _: ()))
    assert suite.errors == 1
    assert next(iter(suite)).result[0].message == "bad \\u{0} file"


def test_a_file_without_a_text_column_is_read_alike(shelf: Shelf, tmp_path: Path) -> None:
    report = shelf.add(Plot(cases=2))
    before = told(shelf, report)
    shelf.writer.execute("delete from answer_text")
    with closing(open_reader(tmp_path / "results.db")) as reader:
        assert junit(report, partial(cases_of, reader)) == before


def test_what_looks_like_a_key_is_cut() -> None:
    key = "AKIA" + "ABCD1234EFGH5678"
    assert key not in legal(f"wrong key {key}")
