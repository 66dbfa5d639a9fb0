"""Rules between the grading of an experiment, its gates, its checks and its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.config.broken import EXPERIMENT, add, said

if TYPE_CHECKING:
    from tests.conftest import Folder

# --- judges ---------------------------------------------------------------------------------------


def test_a_rubric_needs_a_judge(mini: Folder) -> None:
    mini.edit(EXPERIMENT, "judges: {pointwise: [judge]}\n", "")
    assert said(mini) == [
        f"{EXPERIMENT}:8:9: the rubric has no judge "
        "(add judges: {pointwise: [NAME]} here, or defaults: {judge: NAME} to edison.yaml)"
    ]
    mini.write("edison.yaml", "version: 1\nproject: mini\ndefaults: {judge: judge}\n")
    assert said(mini) == []


def test_judges_need_a_rubric(mini: Folder) -> None:
    mini.edit(EXPERIMENT, "rubric: rubrics/tone.yaml\n", "")
    assert said(mini) == [
        f"{EXPERIMENT}:8:21: judges need a rubric to score "
        "(add rubric: rubrics/NAME.yaml, or remove them)"
    ]


def test_something_has_to_grade(mini: Folder) -> None:
    mini.edit(EXPERIMENT, "rubric: rubrics/tone.yaml\njudges: {pointwise: [judge]}\n", "")
    mini.edit(EXPERIMENT, 'checks:\n  - contains: "{{ expected }}"\n', "")
    assert said(mini) == [
        f"{EXPERIMENT}:1:1: nothing grades the answers (add checks, a rubric or a grader)"
    ]


# --- gates ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("criterion.Warmht", "there is no criterion 'Warmht' (did you mean 'warmth'?)"),
        ("check.contian", "there is no check 'contian' (did you mean 'contains'?)"),
        ("check.regex", "there is no check 'regex' (there are: contains)"),
        ("grader.tone", "there is no grader 'tone' (add judges: {graders: [...]})"),
        (
            "safety.pii",
            "the safety screen pii is off (switch it on under safety: {pii: ...})",
        ),
        ("win_rate", "win_rate needs a pairwise judge (add judges: {pairwise: {by: NAME}})"),
    ],
)
def test_a_gate_names_something_that_is_graded(mini: Folder, metric: str, message: str) -> None:
    add(mini, EXPERIMENT, f"  - {{metric: {metric}, at_least: 0.5}}\n")
    assert said(mini) == [f"{EXPERIMENT}:12:14: {message}"]


@pytest.mark.parametrize("metric", ["criterion.Warmth", "criterion.warmth", "check.contains"])
def test_a_gate_may_use_a_name_or_a_slug(mini: Folder, metric: str) -> None:
    add(mini, EXPERIMENT, f"  - {{metric: {metric}, at_least: 0.5}}\n")
    assert said(mini) == []


def test_a_gate_on_a_criterion_waits_for_a_rubric_that_can_be_read(mini: Folder) -> None:
    add(mini, EXPERIMENT, "  - {metric: criterion.Nothing, at_least: 0.5}\n")
    mini.edit("rubrics/tone.yaml", "weight: 0.5", "weight: 5")
    assert said(mini) == ["rubrics/tone.yaml:3:68: weight is 5; at most 1"]


def test_a_gate_on_a_criterion_needs_a_rubric(mini: Folder) -> None:
    mini.edit(EXPERIMENT, "rubric: rubrics/tone.yaml\njudges: {pointwise: [judge]}\n", "")
    add(mini, EXPERIMENT, "  - {metric: criterion.Warmth, at_least: 0.5}\n")
    assert said(mini) == [f"{EXPERIMENT}:10:14: there is no criterion 'Warmth' (add a rubric)"]


@pytest.mark.parametrize("metric", ["composite", "pass_rate"])
def test_comparing_alone_gives_no_score_to_gate_on(mini: Folder, metric: str) -> None:
    mini.edit(
        EXPERIMENT, 'checks:\n  - contains: "{{ expected }}"\nrubric: rubrics/tone.yaml\n', ""
    )
    mini.edit(EXPERIMENT, "{pointwise: [judge]}", "{pairwise: {by: judge}}")
    mini.edit(EXPERIMENT, "metric: composite", f"metric: {metric}")
    assert said(mini) == [
        f"{EXPERIMENT}:8:14: {metric} needs a check, a rubric or a grader "
        "(add one, or gate on win_rate)"
    ]


def test_a_pass_rate_that_cannot_fall_is_pointed_out(mini: Folder) -> None:
    mini.edit(EXPERIMENT, 'checks:\n  - contains: "{{ expected }}"\n', "")
    mini.edit(EXPERIMENT, "metric: composite", "metric: pass_rate")
    assert said(mini) == [
        f"{EXPERIMENT}:9:14: warning: nothing can fail: there is no check, no grader and no "
        "pass_at (set pass_at in the rubric, or gate on composite)"
    ]
    mini.write("rubrics/tone.yaml", mini.read("rubrics/tone.yaml") + "pass_at: 0.7\n")
    assert said(mini) == []


# --- checks ---------------------------------------------------------------------------------------


def with_check(folder: Folder, line: str) -> None:
    folder.edit(EXPERIMENT, 'contains: "{{ expected }}"', line)


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ("json_schema: schemas/reply.json", 18),
        ("json_schema: {value: schemas/reply.json}", 26),
        ("not: {json_schema: schemas/reply.json}", 24),
        ("not: {value: {json_schema: schemas/reply.json}}", 32),
        ("any_of: [{is_json: {}}, {json_schema: schemas/reply.json}]", 43),
        ("all_of: {value: [{json_schema: {value: schemas/reply.json}}]}", 44),
    ],
)
def test_a_schema_of_a_check_is_missed_at_its_own_place(
    mini: Folder, line: str, column: int
) -> None:
    with_check(mini, line)
    assert said(mini) == [
        f"{EXPERIMENT}:7:{column}: schemas/reply.json does not exist "
        "(the folder 'schemas' is missing or empty)"
    ]


def test_a_schema_of_a_check_is_wrong_where_it_is_wrong(mini: Folder) -> None:
    with_check(mini, "json_schema: schemas/reply.json")
    mini.write("schemas/reply.json", '{\n  "type": "objekt"\n}')
    assert said(mini) == [
        "schemas/reply.json:2:11: the schema is not a JSON Schema: 'objekt' is not a type "
        "(types are array, boolean, integer, null, number, object and string)"
    ]
    mini.write("schemas/reply.json", '{\n  "type": object\n}')
    (message,) = said(mini)
    assert message.startswith(f"{EXPERIMENT}:7:18: ")
    assert "schemas/reply.json:2:11" in message


def test_a_schema_inside_a_check_is_wrong_where_it_is_wrong(mini: Folder) -> None:
    with_check(mini, "json_schema: {value: {properties: {a: {type: 3}}}}")
    assert said(mini) == [
        f"{EXPERIMENT}:7:50: the schema is not a JSON Schema: 3 is not a type "
        "(types are array, boolean, integer, null, number, object and string)"
    ]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (None, "checks/tone.py does not exist (the folder 'checks' is missing or empty)"),
        (
            "def chek(output, expected, case): return 1\n",
            "checks/tone.py has no function 'check' (did you mean 'chek'?)",
        ),
        (
            "x = [y for y in ()]\n",
            "checks/tone.py has no function 'check' (add def check(output, expected, case))",
        ),
        (
            "def check(:\n",
            "checks/tone.py is not valid Python in line 1: invalid syntax (fix it)",
        ),
        (
            "def check(): return 1\n\0",
            "checks/tone.py is not valid Python: source code string cannot contain null bytes "
            "(fix it)",
        ),
    ],
)
def test_the_function_of_a_check_exists(mini: Folder, code: str | None, message: str) -> None:
    with_check(mini, "python: checks/tone.py:check")
    if code is not None:
        mini.write("checks/tone.py", code)
    assert said(mini) == [f"{EXPERIMENT}:7:13: {message}"]


@pytest.mark.parametrize(
    "code",
    [
        "def check(output, expected, case): return 1\n",
        "async def check(output, expected, case): return 1\n",
        "from tones import check\n",
        "from tones import grade as check\n",
        "from tones import *\n",
        "try:\n    from tones import f as check\nexcept ImportError:\n    check = None\n",
        "check: object = lambda *_: 1\n",
        "raise SystemExit('never run')\ndef check(*_): return '\\d'\n",
    ],
)
def test_the_function_of_a_check_is_looked_for_and_never_run(mini: Folder, code: str) -> None:
    with_check(mini, "python: checks/tone.py:check")
    mini.write("checks/tone.py", code)
    assert said(mini) == []


@pytest.mark.parametrize(
    ("line", "column", "name", "outer"),
    [
        ("not: {regex: {value: a, weight: 2}}", 37, "weight", "not"),
        ("any_of: [{regex: {value: a, threshold: 0}}]", 44, "threshold", "any_of"),
        ("all_of: [{not: {value: {regex: a}, name: b}}]", 46, "name", "all_of"),
    ],
)
def test_what_has_no_effect_inside_another_check_is_pointed_out(
    mini: Folder, line: str, column: int, name: str, outer: str
) -> None:
    with_check(mini, line)
    assert said(mini) == [
        f"{EXPERIMENT}:7:{column}: warning: {name} has no effect inside {outer} "
        f"(write {outer}: {{value: ..., {name}: ...}})"
    ]


# --- data -----------------------------------------------------------------------------------------


def test_a_dataset_that_is_not_there_is_missed(mini: Folder) -> None:
    mini.edit(EXPERIMENT, "datasets/names.jsonl", "datasets/name.jsonl")
    assert said(mini) == [
        f"{EXPERIMENT}:5:10: datasets/name.jsonl does not exist "
        "(did you mean 'datasets/names.jsonl'?)"
    ]


@pytest.mark.parametrize(
    ("entry", "column"), [("datasets/x.csv", 5), ("{path: datasets/x.csv, take: 3}", 12)]
)
def test_one_of_several_datasets_is_missed_at_its_place(
    mini: Folder, entry: str, column: int
) -> None:
    mini.edit(
        EXPERIMENT,
        "dataset: datasets/names.jsonl",
        f"datasets:\n  - datasets/names.jsonl\n  - {entry}",
    )
    assert said(mini) == [
        f"{EXPERIMENT}:7:{column}: datasets/x.csv does not exist (write it, or see datasets/)"
    ]


def test_synthetic_data_can_be_forbidden(mini: Folder) -> None:
    mini.edit(
        EXPERIMENT,
        "dataset: datasets/names.jsonl",
        "datasets:\n  - {path: datasets/names.jsonl, kind: synthetic}",
    )
    assert said(mini) == []
    settings = "settings: {allow_synthetic_datasets: false}\n"
    mini.write("edison.yaml", f"version: 1\nproject: mini\n{settings}")
    assert said(mini) == [
        f"{EXPERIMENT}:6:40: synthetic data is not allowed in this project "
        "(leave it out, or set settings: {allow_synthetic_datasets: true})"
    ]
