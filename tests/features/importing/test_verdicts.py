"""What is said to be mapped has the verdicts of promptfoo, on every recorded answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edison_ci.checks.options import parse_check
from edison_ci.config.project import Paths
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.execute.grading import passes
from edison_ci.features.importing.fidelity import Status
from edison_ci.features.importing.output import TargetProject
from edison_ci.features.importing.promptfoo import import_promptfoo
from edison_ci.numeric import reaches
from edison_ci.records import CellStatus
from edison_ci.store.cells import Component
from edison_ci.templating.templates import MissingValueError
from tests.checks.answers import answered
from tests.features.importing.verdicts import STORED, answers, asked_tests

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from edison_ci.checks.options import Check

TESTS, ANSWERS = asked_tests(), answers()
RECORDED: list[str] = json.loads(STORED.read_text("utf-8"))["verdicts"]
_FEWEST_MAPPED = 200
"""So many of the tests have to be mapped."""


class Imported:
    """A test after its import: its checks, its case, and whether all of it is mapped."""

    def __init__(self, test: dict[str, Any], folder: Path) -> None:
        config = {"prompts": ["{{x}}"], "providers": ["echo"], "tests": [{"vars": {}, **test}]}
        file = folder / "promptfooconfig.json"
        file.write_text(json.dumps(config), "utf-8")
        setting = TargetProject(Paths.model_construct())
        found = import_promptfoo(file, display_folder="", name="one", setting=setting)
        self.told = [
            entry
            for entry in found.fidelity.entries
            if entry.key.startswith("tests") or entry.key == "(not graded)"
        ]
        self.mapped = all(entry.status is Status.MAPPED for entry in self.told)
        experiment: Any = read_yaml(found.files["experiments/one.yaml"], "one.yaml").value
        self.gates = experiment.get("gates")
        self.checks: list[Check] = [parse_check(entry) for entry in experiment["checks"]]
        self.row = json.loads(found.files["datasets/one.jsonl"])

    def passes(self, text: str) -> bool | None:
        case = {**self.row["input"], "expected": self.row.get("expected")}
        return passes([_graded(check, text, case) for check in self.checks])


def _graded(check: Check, text: str, case: dict[str, Any]) -> Component:
    try:
        grade = check.evaluate(answered(text, **case))
    except MissingValueError as error:
        return Component("x", "check", None, None, 1.0, CellStatus.SKIPPED, str(error))
    good = reaches(grade.score, check.passes_at) if grade.passed is None else grade.passed
    return Component("x", "check", grade.score, good, 1.0, CellStatus.OK)


def test_the_record_is_that_of_these_tests_and_answers() -> None:
    assert len(RECORDED) == len(TESTS)
    assert {len(line) for line in RECORDED} == {len(ANSWERS)}


def test_mapped_means_the_same_verdicts(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for test, verdicts in zip(TESTS, RECORDED, strict=True):
        with subtests.test(json.dumps(test)):
            imported = Imported(test, tmp_path)
            if not imported.mapped:
                unmapped = [entry for entry in imported.told if entry.status is not Status.MAPPED]
                assert all(entry.note for entry in unmapped)
                continue
            against, alone = imported.gates
            assert (against["metric"], against["net"]) == ("flips", True)
            assert alone == {"metric": "pass_rate", "at_least": "100%"}
            different = [
                text
                for text, verdict in zip(ANSWERS, verdicts, strict=True)
                if imported.passes(text) is not (verdict == "1")
            ]
            assert different == []


def test_most_of_them_are_mapped(tmp_path: Path) -> None:
    assert sum(Imported(test, tmp_path).mapped for test in TESTS) >= _FEWEST_MAPPED
