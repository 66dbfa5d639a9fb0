"""The page of references is made of its record, and the record is of what the tests hold."""

from __future__ import annotations

import pytest

from benchmarks.agreement import measure_here
from benchmarks.references import FACTS, PAGE, page, read
from tests.features.importing.test_verdicts import ANSWERS, TESTS

pytestmark = pytest.mark.daily


def test_the_page_is_what_the_record_says() -> None:
    assert PAGE.read_text("utf-8") == page(read())


def test_no_verdict_of_a_mapped_assertion_differs() -> None:
    found = read()
    assert found.answers == len(ANSWERS)
    assert sum(each.tests for each in found.verdicts) == len(TESTS), f"measure {FACTS} anew"
    for each in found.verdicts:
        assert each.mapped_same == each.mapped_of == each.mapped * found.answers
        assert each.other_of == (each.tests - each.mapped) * found.answers


def test_what_can_be_measured_here_is_as_recorded() -> None:
    recorded = {each.check: each for each in read().checks}
    found = measure_here(seed=2, count=100)
    assert [each.check for each in found] == ["words", "levenshtein", "token_f1", "is_json"]
    for each in found:
        known = recorded[each.check]
        assert each.same == each.of == 100
        assert (each.reference, known.same) == (known.reference, known.of)


def test_nothing_crashed_on_the_files_of_others() -> None:
    for each in read().files:
        assert each.crashed == 0
        assert each.count > each.refused
