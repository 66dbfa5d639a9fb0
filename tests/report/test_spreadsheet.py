"""CSV and JSON lines: a row for each cell, that spreadsheets show and do not obey."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.report.spreadsheet import COLUMNS, as_csv, disarm_cell, rows_of
from edison_ci.results.cells import Cells
from edison_ci.results.report import json_lines
from tests.report.conftest import Plot, Shelf, everything

if TYPE_CHECKING:
    from edison_ci.results.report import Report

pytestmark = pytest.mark.daily


def read(lines: list[str]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO("".join(lines), newline="")))


def table(shelf: Shelf, report: Report) -> list[dict[str, str]]:
    return read(list(as_csv(rows_of(report, Cells(shelf.connection)))))


def test_there_is_a_row_for_each_cell_of_every_run(shelf: Shelf) -> None:
    report = shelf.add(*everything())
    rows = table(shelf, report)
    assert len(rows) == 2 * 2 * (38 + 40)
    assert {row["run_id"] for row in rows} == {view.run.id for view in report.runs}
    assert {row["simulated"] for row in rows} == {"1"}
    assert list(rows[0])[: len(COLUMNS)] == [*COLUMNS]
    assert list(rows[0])[-1] == "text"


def test_parts_of_the_grade_have_columns(shelf: Shelf) -> None:
    rows = table(shelf, shelf.add(Plot(cases=5, lost=1)))
    heads = [row for row in rows if row["side"] == "head"]
    assert [row["check.polite"] != "" for row in heads] == [False, True, True, True, True]
    assert heads[0]["status"] == "error"
    assert heads[0]["composite"] == ""
    assert float(heads[1]["composite"]) == pytest.approx(float(heads[1]["check.polite"]))
    assert {heads[1]["passed"], heads[0]["passed"]} <= {"0", "1", ""}


FORMULAS = [
    "=cmd|' /C calc'!A0",
    "+1+1",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    '=HYPERLINK("https://evil.example")',
    "\uff1d1+1",
    "\uff20SUM(1)",
    "-",
    "+",
    "-abc",
    "+49 30 123456",
]


def test_a_formula_becomes_text(subtests: pytest.Subtests) -> None:
    for text in FORMULAS:
        with subtests.test(text=text):
            assert disarm_cell(text) == f"'{text}"


def test_numbers_and_other_texts_stay(subtests: pytest.Subtests) -> None:
    for text in ["-1", "+1.5", "-0.25e-3", ".5", "", "plain", " =1", "1=1", "'=1"]:
        with subtests.test(text=text):
            assert disarm_cell(text) == text


@given(st.text())
def test_no_cell_starts_as_a_formula_does(text: str) -> None:
    shown = disarm_cell(text)
    assert not shown.startswith(("=", "@", "\t", "\r"))
    if shown.startswith(("+", "-")):
        float(shown)


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=("Cc", "Cs"))), min_size=1))
def test_what_is_written_is_what_is_read(texts: list[str]) -> None:
    written = "".join(as_csv([tuple(texts)]))
    (row,) = csv.reader(io.StringIO(written, newline=""))
    assert row == [disarm_cell(text) for text in texts]
    (raw,) = csv.reader(io.StringIO("".join(as_csv([tuple(texts)], raw=True)), newline=""))
    assert raw == texts


def test_names_of_columns_are_harmless_too(shelf: Shelf) -> None:
    (line,) = as_csv([("=1+1", "a")])
    assert line == "'=1+1,a\n"


def test_nul_bytes_do_not_end_a_file() -> None:
    assert disarm_cell("a\x00b\ud800") == "a\\u{0}b\\u{d800}"


def test_json_has_a_line_for_each_cell_with_its_parts(shelf: Shelf) -> None:
    report = shelf.add(Plot(cases=4, blocked=1, names=("a\nb", "::error::x")))
    lines = list(json_lines(report, Cells(shelf.connection)))
    assert all(line.count("\n") == 1 for line in lines)
    found = [json.loads(line) for line in lines]
    assert len(found) == 8
    blocked = next(one for one in found if one["status"] == "blocked")
    assert (blocked["text"], blocked["case"]) == (None, "a\nb")
    graded = next(one for one in found if one["components"] and one["status"] == "ok")
    assert graded["components"][0]["name"] == "polite"
    assert graded["prompt"] == {"id": "support-reply", "hash": "b7c1e290", "label": "v2+b7c1e290"}
