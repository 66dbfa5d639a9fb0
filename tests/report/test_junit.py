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
from edison_ci.records import CellStatus, Move
from edison_ci.report.junit import MOST_LINE, junit, legal
from edison_ci.results.cells import CaseResult, Repeat, cases_of
from edison_ci.results.cells import ComponentResult as Scored
from edison_ci.results.report import Report
from edison_ci.store.cells import Component
from edison_ci.store.database import open_reader
from tests.report.conftest import GATES, SCHEMAS, Half, Plot, everything
from tests.report.test_markdown import kept

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from tests.report.conftest import Shelf

pytestmark = pytest.mark.daily

METRICS = ("composite", "pass_rate", "errors")
XSD = etree.XMLSchema(etree.parse(SCHEMAS / "junit-10.xsd"))


def read(text: str) -> Any:
    """Check against the schema and parse."""
    XSD.assertValid(etree.fromstring(text.encode()))
    return JUnitXml.fromstring(text.encode())


def told(shelf: Shelf, report: Report, *, reasons: bool = True) -> str:
    return junit(report, partial(cases_of, shelf.connection), reasons=reasons)


def cases_in(suite: Any) -> list[Any]:
    """Return the tests of cases, without those of gates."""
    return [test for test in suite if not test.classname.endswith(".(gates)")]


def gates_in(suite: Any) -> dict[str, Any]:
    """Return the results of the tests of gates, None for a pass."""
    gates = (test for test in suite if test.classname.endswith(".(gates)"))
    return {test.name: test.result[0] if test.result else None for test in gates}


def test_the_file_reads_as_before(shelf: Shelf) -> None:
    text = told(shelf, shelf.add(*everything()))
    read(text)
    kept("junit.xml", text)


def test_one_suite_for_an_experiment_and_one_test_for_a_case_with_a_model(shelf: Shelf) -> None:
    report = shelf.add(*everything())
    suites = list(read(told(shelf, report)))
    assert [suite.name for suite in suites] == ["support-reply"]
    names = {(test.classname, test.name) for test in cases_in(suites[0])}
    assert ("support-reply.support-reply.large", "case-0000") in names
    assert len(names) == 38 * 2


def test_failures_and_errors_are_kept_apart(shelf: Shelf) -> None:
    (suite,) = read(told(shelf, shelf.add(Plot(drop=0.3, lost=3, blocked=2))))
    assert isinstance(gates_in(suite)["errors, support-reply with small"], Failure)
    kinds = {test.name: type(test.result[0]) for test in cases_in(suite) if test.result}
    assert [name for name, kind in kinds.items() if kind is Error] == [
        "case-0000",
        "case-0001",
        "case-0002",
    ]
    assert kinds["case-0003"] is kinds["case-0004"] is Failure
    assert suite.errors == 3
    gates = [type(found) for found in gates_in(suite).values()]
    assert suite.failures == len(kinds) - 3 + gates.count(Failure)
    blocked = next(test for test in suite if test.name == "case-0003").result[0]
    assert blocked.type == "blocked"


def test_the_suite_has_verdict_and_labels_as_properties(shelf: Shelf) -> None:
    (suite,) = read(told(shelf, shelf.add(Plot(drop=0.3, simulated=True))))
    found = {one.name: one.value for one in suite.properties()}
    assert found["edison.verdict"] == "fail"
    assert found["edison.simulated"] == "true"
    test = next(iter(suite))
    assert test._elem.find("properties") is None, "Jenkins knows no properties of tests"


def test_scores_are_one_line_of_json(shelf: Shelf) -> None:
    (suite,) = read(told(shelf, shelf.add(Plot())))
    for test in cases_in(suite):
        assert "\n" not in test.system_out
        line = json.loads(test.system_out)
        assert line["outcome"] == ("failed" if line["composite"] < 0.6 else "passed")
        assert line["components"]["check polite"] == pytest.approx(line["composite"])


def test_a_long_line_is_left_out_and_stays_json(shelf: Shelf) -> None:
    view = shelf.add(Plot()).runs[0]
    components = tuple(
        Scored(f"{'x' * 40}{n}", "check", 1.0, True, CellStatus.OK, "") for n in range(200)
    )
    repeat = Repeat(CellStatus.OK, 1.0, True, "", "", 5, components)
    text = junit(Report((view,)), lambda _: [CaseResult("p", "m", "c", (repeat,))])
    (test,) = cases_in(next(iter(read(text))))
    assert len(test.system_out) <= MOST_LINE
    assert json.loads(test.system_out)["components_left_out"] == 200


def test_repeats_of_a_case_are_one_test(shelf: Shelf) -> None:
    plot = Plot(cases=20, against=False, drop=0.9)
    shelf.add(plot)
    results = Results(shelf.writer, plot.id)
    bad = Component("polite", "check", 0.0, False, 1.0, CellStatus.OK, "rude")
    results.add(Graded("case-0000", 0.0, repeat=1, passed=False, components=(bad,)))
    results.add(Graded("case-0001", None, repeat=1, status="error"))
    first, second, *_ = cases_in(next(iter(read(told(shelf, shelf.report(plot.id))))))
    assert isinstance(first.result[0], Failure), "one bad answer is enough"
    assert isinstance(second.result[0], Failure)
    assert json.loads(first.system_out)["repeats"] == 2


def test_a_case_in_quarantine_never_fails(shelf: Shelf) -> None:
    plot = Plot(drop=0.9, cases=20, quarantined=("case-0001",))
    (suite,) = read(told(shelf, shelf.add(plot)))
    kinds = {test.name: type(test.result[0]) for test in cases_in(suite)[:3]}
    assert kinds == {"case-0000": Failure, "case-0001": Skipped, "case-0002": Failure}


def test_a_part_that_broke_is_an_error(shelf: Shelf) -> None:
    plot = Plot(cases=1, against=False, verdict="error")
    shelf.add(plot)
    broken = Component("polite", "grader", None, None, 1.0, CellStatus.ERROR, "no reply")
    Results(shelf.writer, plot.id).add(Graded("odd", None, components=(broken,)))
    (suite,) = read(told(shelf, shelf.report(plot.id)))
    odd = next(test for test in suite if test.name == "odd")
    assert isinstance(odd.result[0], Error)
    assert odd.result[0].type == "NOT_GRADED"
    assert odd.result[0].message == "grader polite could not be graded: no reply"


def results_by_case(shelf: Shelf, plot: Plot) -> dict[str, Any]:
    (suite,) = read(told(shelf, shelf.add(plot)))
    return {test.name: test for test in cases_in(suite)}


def test_a_failing_case_is_no_failure_while_no_gate_that_concerns_it_fails(shelf: Shelf) -> None:
    tests = results_by_case(
        shelf, Plot(drop=0.1, gates=({"metric": "pass_rate", "at_least": "5%"},))
    )
    told = {name: json.loads(test.system_out) for name, test in tests.items()}
    failed = {name: line for name, line in told.items() if line["outcome"] == "failed"}
    assert failed and not any(test.result for test in tests.values())
    assert all("check polite failed with " in line["why"] for line in failed.values())


@pytest.mark.nightly
def test_only_cases_that_became_worse_fail_with_a_gate_on_the_change(shelf: Shelf) -> None:
    plot = Plot(drop=0.15, cases=400, gates=GATES[:1])
    tests = results_by_case(shelf, plot)
    told = {name: json.loads(test.system_out) for name, test in tests.items()}
    red = {name for name, test in tests.items() if test.result}
    (change,) = shelf.report(plot.id).runs[0].changes
    worse = {moved.case for moved in change.comparison.moved[Move.NEWLY_FAILING]}
    failed = {name for name, line in told.items() if line["outcome"] == "failed"}
    assert red == failed & worse
    assert red and failed - red, "some failed at the base already"


def test_a_gate_on_cost_or_errors_blames_no_answer(shelf: Shelf) -> None:
    gates = ({"metric": "errors", "at_most": "1%"}, {"metric": "latency_ms.p95", "at_most": 1})
    plot = Plot(drop=0.3, lost=3, gates=gates)
    tests = results_by_case(shelf, plot)
    red = {name: type(test.result[0]) for name, test in tests.items() if test.result}
    assert red == {"case-0000": Error, "case-0001": Error, "case-0002": Error}


def test_an_answer_that_is_missing_is_skipped_while_that_decides_nothing(shelf: Shelf) -> None:
    plot = Plot(lost=1, gates=({"metric": "errors", "at_most": "50%"},))
    found = results_by_case(shelf, plot)["case-0000"].result[0]
    assert isinstance(found, Skipped)
    assert found.message == "not measured: TIMEOUT"


def test_a_gate_on_one_check_blames_the_cases_that_fail_it(shelf: Shelf) -> None:
    tests = results_by_case(
        shelf, Plot(drop=0.3, gates=({"metric": "check.polite", "at_least": "99%"},))
    )
    told = {name: json.loads(test.system_out)["outcome"] for name, test in tests.items()}
    assert {name for name, test in tests.items() if test.result} == {
        name for name, outcome in told.items() if outcome == "failed"
    }
    assert "failed" in told.values()


@pytest.mark.parametrize(("drop", "red"), [(0.0, False), (0.3, True)])
def test_the_file_is_red_exactly_when_the_verdict_is(shelf: Shelf, drop: float, red: bool) -> None:
    report = shelf.add(Plot(cases=200, drop=drop))
    (suite,) = read(told(shelf, report))
    assert (suite.failures > 0, report.verdict == "fail") == (red, red)
    gates = gates_in(suite)
    assert list(gates) == [f"{name}, support-reply with small" for name in METRICS]
    assert isinstance(gates["composite, support-reply with small"], Failure) == red


def test_gates_of_the_bases_eval_suite_are_tests_as_well(shelf: Shelf) -> None:
    (suite,) = read(told(shelf, shelf.add(*everything())))
    on = ", with the base's eval suite"
    assert isinstance(gates_in(suite)[f"composite, support-reply with small{on}"], Failure)


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
