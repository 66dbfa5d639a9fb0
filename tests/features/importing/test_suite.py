"""Tests become cases: their cells of __expected, their variables, and which run together."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from edison_ci.features.importing.suite import parse_assertion
from tests.features.importing.golden import come

if TYPE_CHECKING:
    from pathlib import Path

    from tests.features.importing.golden import Outcome


CELLS = [
    ("Paris", {"type": "equals", "value": "Paris"}),
    ("contains: Paris", {"type": "contains", "value": "Paris"}),
    ("not-contains:Paris", {"type": "not-contains", "value": "Paris"}),
    ("is-json", {"type": "is-json"}),
    (
        "similar(0.8): Hello there",
        {"type": "similar", "value": "Hello there", "threshold": 0.8},
    ),
    ("latency(500)", {"type": "latency", "threshold": 500.0}),
    ("grade: is kind", {"type": "llm-rubric", "value": "is kind"}),
    ("llm-rubric: a: b", {"type": "llm-rubric", "value": "a: b"}),
    ("fn: output > 1", {"type": "javascript", "value": " output > 1"}),
    ("python: x", {"type": "python", "value": " x"}),
    ("Note: this is a text", {"type": "equals", "value": "Note: this is a text"}),
    ("file://check.js", {"type": "javascript", "value": "//check.js"}),
    ("perplexity(5)", {"type": "perplexity", "threshold": 5.0}),
]


def test_a_cell_is_read_as_promptfoo_reads_it(subtests: pytest.Subtests) -> None:
    for cell, assertion in CELLS:
        with subtests.test(cell=cell):
            assert parse_assertion(cell) == assertion


def imported(folder: Path, config: str, **files: str) -> Outcome:
    source = folder / "mine"
    source.mkdir()
    for name, text in {**files, "promptfooconfig.yaml": config}.items():
        (source / name.replace("__", ".")).write_text(text, "utf-8")
    return come(source / "promptfooconfig.yaml", folder / "project")


def test_a_variable_from_a_file_is_the_text_that_promptfoo_makes_of_it(tmp_path: Path) -> None:
    names = ["list.yaml", "map.yml", "text.yaml", "map.json", "text.txt"]
    tests = "".join(f"  - vars: {{v: file://{name}}}\n" for name in names)
    came = imported(
        tmp_path,
        f'prompts: ["v={{{{v}}}}."]\nproviders: [echo]\ntests:\n{tests}',
        list__yaml="- one\n- two\n",
        map__yml="a: 1.0\nb: [x, null]\n",
        text__yaml="plain\n",
        map__json='\n {"a": 1}\n\n',
        text__txt="\n  padded \n\n",
    )
    lines = came.files["datasets/mine.jsonl"].splitlines()
    assert [json.loads(line)["input"]["v"] for line in lines] == [
        '["one","two"]', '{"a":1,"b":["x",null]}', '"plain"', '{"a": 1}', "padded"
    ]  # fmt: skip


def test_tests_without_assertions_pass_in_an_experiment_of_their_own(tmp_path: Path) -> None:
    came = imported(
        tmp_path,
        'prompts: ["Say {{v}}."]\nproviders: [echo]\ntests:\n'
        "  - {vars: {v: a}, assert: [{type: contains, value: a}]}\n"
        "  - {vars: {v: b}, assert: [{type: contains, value: c}]}\n"
        "  - {vars: {v: d}}\n",
    )
    assert len(came.files["datasets/mine.jsonl"].splitlines()) == 2
    assert json.loads(came.files["datasets/mine-2.jsonl"])["input"] == {"v": "d"}
    assert "name: not-empty" in came.files["experiments/mine-2.yaml"]
    assert "not-empty" not in came.files["experiments/mine.yaml"]


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("Say {{v}}.", False),
        ('[{"role": "system", "content": "Be kind."}, {"role": "user", "content": "{{v}}"}]', True),
    ],
)
def test_an_echo_of_a_chat_is_said_to_differ(tmp_path: Path, prompt: str, said: bool) -> None:
    config = f"prompts: [{json.dumps(prompt)}]\nproviders: [echo]\ntests: [{{vars: {{v: a}}}}]\n"
    came = imported(tmp_path, config)
    assert ("it answers with the last message of a chat" in came.told) is said


def test_what_becomes_of_a_metric_is_said(tmp_path: Path) -> None:
    came = imported(
        tmp_path,
        'prompts: ["Say {{v}}."]\nproviders: [echo]\ntests:\n'
        "  - vars: {v: a}\n    assert:\n"
        "      - {type: contains, value: a, metric: right}\n"
        "      - {type: contains, value: b, metric: Tone of Voice}\n"
        '      - {type: contains, value: c, metric: "{{v}}"}\n'
        "  - vars: {v: b}\n    assert:\n"
        "      - {type: contains, value: a, metric: twice}\n"
        "      - {type: contains, value: b, metric: twice}\n"
        "      - {type: assert-set, assert: [{type: contains, value: d, metric: inner}]}\n",
    )
    said = {entry.key: (entry.status.value, entry.note) for entry in came.imported.fidelity.entries}
    assert "tests[0].assert[0].metric" not in said, "it is the name of the check"
    assert said["tests[0].assert[1].metric"] == ("mapped", "called Tone-of-Voice")
    assert said["tests[0].assert[2].metric"][0] == "approximated"
    assert "each has its own score" in said["tests[1].assert[0].metric"][1]
    assert "part of the mean" in said["tests[1].assert[2].assert[0].metric"][1]
    checks = came.files["experiments/mine.yaml"]
    assert "name: right" in checks and "name: Tone-of-Voice" in checks


def test_a_test_whose_variables_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    came = imported(
        tmp_path,
        'prompts: ["Say {{v}}."]\nproviders: [echo]\ntests:\n'
        "  - {vars: {v: a}}\n  - {vars: file://../above.yaml}\n",
    )
    (line,) = came.files["datasets/mine.jsonl"].splitlines()
    assert json.loads(line)["input"] == {"v": "a"}
    assert "tests[1]: the test was left out: its variables could not be read" in came.told
