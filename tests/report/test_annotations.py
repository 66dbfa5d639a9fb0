"""Annotations stand at the lines that a change touched, spread over them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edison_ci.report.annotations import Lines, annotation_commands, annotations_of
from tests.report.runner import Runner

if TYPE_CHECKING:
    from edison_ci.report.annotations import Changed
    from edison_ci.results.report import Report

pytestmark = pytest.mark.daily

PROMPT, EXPERIMENT = "prompts/support-reply.md", "experiments/support-reply.yaml"


def lines_of(report: Report, changed: Changed, path: str = PROMPT) -> list[Lines | None]:
    return [one.spot.lines for one in annotations_of(report, changed) if one.spot.path == path]


def test_results_are_spread_over_the_changes_of_the_prompt(failing: Report) -> None:
    hunks = (Lines(3, 3), Lines(9, 12), Lines(20, 21))
    found = lines_of(failing, {PROMPT: hunks})
    assert len(found) > 3
    assert {*found} == {*hunks}
    assert max(map(found.count, hunks)) - min(map(found.count, hunks)) <= 1


def test_a_single_change_has_one_result_on_each_of_its_lines(failing: Report) -> None:
    found = lines_of(failing, {PROMPT: (Lines(9, 11),)})
    assert sorted({*map(str, found)}) == [str(Lines(n, n)) for n in (10, 11, 9)]


def test_a_change_of_the_eval_suite_stands_in_the_experiment(failing: Report) -> None:
    changed = {PROMPT: (Lines(3, 3),), EXPERIMENT: (Lines(8, 8),)}
    assert lines_of(failing, changed, EXPERIMENT) == [Lines(8, 8)]


def test_without_a_changed_line_the_file_alone_is_named(failing: Report) -> None:
    assert {*lines_of(failing, {})} == {None}
    assert lines_of(failing, {}), "of the prompt"
    commands = Runner().read("\n".join(annotation_commands(annotations_of(failing, {}))))
    assert all("line" not in command.properties for command in commands)
