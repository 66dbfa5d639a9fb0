"""The checks of an experiment, tried on its own data: `edison validate --prove`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config.load import load_project
from edison_ci.config.proof import Proof, prove_checks

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

EXPERIMENT = """\
experiment: hello
objective: Greet every person by name, in one short and friendly sentence.
prompts: [prompts/hello.md]
models: [small]
dataset: datasets/names.jsonl
checks:
"""
CAPITALS = [
    ("no", "Norway", "Oslo"),
    ("se", "Sweden", "Stockholm"),
    ("dk", "Denmark", "Copenhagen"),
]


def written(folder: Folder, checks: str, rows: list[tuple[str, str, Any]]) -> None:
    folder.write("experiments/hello.yaml", EXPERIMENT + checks)
    lines = [{"id": id_, "input": {"name": name}, "expected": e} for id_, name, e in rows]
    folder.write("datasets/names.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def proof(folder: Folder, checks: str, rows: list[tuple[str, str, Any]]) -> Proof:
    written(folder, checks, rows)
    project = load_project(folder.path)
    return prove_checks(project, project.experiments["hello"])


def said(found: Proof) -> list[str]:
    return [f"{problem.where.line}: {problem.message}" for problem in found.findings]


@pytest.mark.parametrize(
    "checks",
    [
        '  - contains: "{{ expected }}"\n',
        "  - equals:\n  - chars: {max: 20}\n",
        "  - levenshtein: {threshold: 0.9}\n",
        "  - regex: 'is {{ expected }}'\n",
        '  - any_of: [{equals: "{{ expected }}"}, {contains: "it is {{ expected }}"}]\n',
    ],
)
def test_good_checks_are_proved(mini: Folder, checks: str) -> None:
    found = proof(mini, checks, CAPITALS)
    assert said(found) == []
    assert (found.cases, found.not_tried) == (3, ())
    assert len(found.checks) == 1


def test_an_expected_output_that_fails_a_check_is_named_with_the_reason(mini: Folder) -> None:
    rows = [*CAPITALS, ("is", "Iceland", "Reykjavík, the capital")]
    found = proof(mini, '  - equals:\n  - not: {contains: "{{ expected }}"}\n', rows[:1] + rows[3:])
    assert said(found)[0] == (
        "1: the expected output of case 'no' fails the check not contains expected: "
        "'Oslo' is in the answer"
    )
    assert len(found.findings) == 2


def test_an_answer_of_another_case_that_passes_is_named(mini: Folder) -> None:
    rows = [("a", "Ada", "yes"), ("b", "Bo", "yes, but slowly"), ("c", "Cy", "no")]
    found = proof(mini, '  - contains: "{{ expected }}"\n', rows)
    assert said(found) == [
        "1: the expected output of case 'b' passes the only check of case 'a' too"
    ]


def test_an_empty_answer_that_passes_is_named(mini: Folder) -> None:
    found = proof(mini, "  - levenshtein: {threshold: 0}\n  - chars: {max: 99}\n", CAPITALS)
    empty = [line for line in said(found) if "empty" in line]
    assert empty == [
        f"{number}: an empty answer to case {case!r} passes every check"
        for number, case in enumerate(("no", "se", "dk"), 1)
    ]


def test_structured_outputs_are_proved_whole_or_by_the_part_that_a_check_names(
    mini: Folder,
) -> None:
    rows = [("a", "Ada", {"total": 3, "city": "Oslo"}), ("b", "Bo", {"total": 4, "city": "Bergen"})]
    checks = (
        '  - json_path: {path: $.total, value: "{{ expected.total }}"}\n'
        '  - contains: "{{ expected.city }}"\n'
    )
    assert said(proof(mini, checks, rows)) == []
    assert said(proof(mini, '  - equals: "{{ expected.city }}"\n', rows)) == []
    calls = [("a", "Ada", ["search", "book"]), ("b", "Bo", [{"tool": "cancel", "arguments": {}}])]
    assert said(proof(mini, '  - tool_call_f1: "{{ expected }}"\n', calls)) == []


def test_cases_that_all_expect_the_same_are_not_compared(mini: Folder) -> None:
    rows = [("a", "Ada", "yes"), ("b", "Bo", " YES ")]
    assert said(proof(mini, "  - equals: {ignore_case: true}\n", rows)) == []


def test_code_and_embeddings_of_a_model_are_not_tried(mini: Folder) -> None:
    mini.write("checks/tone.py", "def check(output, expected, case):\n    return 1\n")
    mini.edit("edison.yaml", "project: mini\n", "project: mini\nsettings: {allow_code: true}\n")
    found = proof(mini, "  - equals:\n  - python: checks/tone.py:check\n", CAPITALS)
    assert found.not_tried == ('python "checks/tone.py:check"',)
    assert said(found) == []


def test_the_command_lists_findings_and_exits_as_validate_does(
    mini: Folder, edison: Edison
) -> None:
    written(mini, '  - contains: "{{ expected }}"\n', CAPITALS)
    good = edison(mini, "validate", "--prove")
    assert good.code == 0
    assert "hello: tried 1 check on 3 cases\n" in good.err
    written(mini, '  - contains: "{{ expected }}"\n', [*CAPITALS[:1], ("x", "X", "Oslo and Rome")])
    bad = edison(mini, "validate", "--prove")
    assert bad.code == 2
    assert "datasets/names.jsonl:1:1: error: the expected output of case 'x' passes" in bad.out
    assert edison(mini, "validate").code == 0
    told = json.loads(edison(mini, "validate", "--prove", "--json").out)
    assert not told["ok"]
    (one,) = told["proofs"]
    assert (one["experiment"], one["cases"], len(one["findings"])) == ("hello", 2, 1)


def test_an_experiment_without_such_a_check_has_a_warning(mini: Folder, edison: Edison) -> None:
    written(mini, "  - chars: {min: 1}\n", CAPITALS)
    found = edison(mini, "validate", "--prove")
    assert found.code == 0
    assert "no check refers to the expected output, so there is nothing to prove" in found.out
    assert edison(mini, "validate", "--prove", "--strict").code == 2
