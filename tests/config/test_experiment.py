"""Experiments: what goes together in one file."""

from __future__ import annotations

import pytest

from edison_ci.config.experiment import DatasetEntry, ExperimentFile, ModelUse, RubricUse
from edison_ci.documents.yaml_text import read_yaml
from tests.config.said import said

HEAD = (
    "experiment: hello\nobjective: Greet people by their name, kindly.\nprompts: [prompts/a.md]\n"
)


def experiment(text: str) -> ExperimentFile:
    return ExperimentFile.model_validate(read_yaml(HEAD + text, "f").value)


def test_a_check_has_a_short_name() -> None:
    file = experiment(
        "models: [small]\n"
        "checks:\n"
        '  - json_path: {path: $.number, value: "{{ expected.number }}"}\n'
        '  - json_path: {path: $.unit, value: "{{ expected.unit }}"}\n'
        "  - json_path: {path: $.unit, value: m}\n"
        "  - regex: '(?i)^an answer that is quite a bit longer than others'\n"
        "  - contains: {name: names-its-source, value: '{{ expected }}'}\n"
        "  - all_of: [{contains: 'the first of two'}, {contains: 'the second of two'}]\n"
    )
    assert list(file.named_checks()) == [
        'json_path "$.number"',
        'json_path "$.unit" value expected.unit',
        'json_path "$.unit" value "m"',
        'regex "^an answer that is qu..."',
        "names-its-source",
        'all_of contains "the first of two", c...',
    ]


def test_the_example_of_the_contract_is_an_experiment() -> None:
    file = experiment(
        "models: [small, {use: big, params: {temperature: [0.2, 1.0]}}]\n"
        "dataset: datasets/support.jsonl\n"
        "repeats: 1\n"
        "checks:\n"
        '  - contains: "{{ expected }}"\n'
        "  - not: {regex: '(?i)as an ai'}\n"
        "  - words: {max: 120, weight: 0.5}\n"
        "rubric: rubrics/support.yaml\n"
        "judges:\n"
        "  pointwise: [judge-a, judge-b]\n"
        "  combine: mean\n"
        "  pairwise: {by: judge-a}\n"
        "  graders: [{prompt: prompts/tone.md, by: judge-a, weight: 1, threshold: 0.5}]\n"
        "safety: {pii: block, jailbreak: flag, secrets: block,\n"
        "         moderation: {by: mod, action: flag, threshold: 0.7}}\n"
        "gates:\n"
        "  - {metric: composite, no_worse_than: base, margin: 10pp, confidence: 95%,\n"
        "     if_unclear: neutral}\n"
        "  - {metric: pass_rate, at_least: 60%}\n"
        "  - {metric: cost_usd.mean, no_worse_than: base, margin: 10%}\n"
        "max_errors: 20%\n"
        "stop: {max_iterations: 10, min_delta: 0.02, window: 3, budget_usd: 100, alert_at: 0.8}\n"
        "refine: {by: big, examples: 10}\n"
        'schedule: [{name: weekdays, cron: "0 9 * * 1-5", enabled: true}]\n'
        "alerts: {drop: 10%, false_alarm_years: 20, predicted_below: 0.7, error_rate: 5%}\n"
        "tags: [support]\n"
    )
    names = ["contains expected", 'not regex "as an ai"', "words max 120"]
    assert list(file.named_checks()) == names
    assert file.rubric == RubricUse(path="rubrics/support.yaml", weight=1)
    assert (file.models or ())[0] == ModelUse(use="small")
    params = (file.models or ())[1].params
    assert params is not None and params.temperature == (0.2, 1.0)
    assert file.max_errors == pytest.approx(0.2)


def test_data_is_a_list_of_entries_whichever_way_it_is_written() -> None:
    entry = DatasetEntry(path="datasets/a.csv")
    assert experiment("dataset: datasets/a.csv\n").data == (entry,)
    assert experiment("datasets: [datasets/a.csv]\n").data == (entry,)
    assert experiment("datasets: [{path: datasets/a.csv}]\n").data == (entry,)
    assert experiment("").data == ()


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (
            "dataset: datasets/a.csv\ndatasets: [datasets/b.csv]\n",
            ["4:10: dataset and datasets are both given (list every file under datasets)"],
        ),
        (
            "schedule:\n  - {name: a, cron: 0 9 * * *}\n  - {name: a, cron: 0 8 * * *}\n",
            ["6:12: two schedules are named 'a' (give each a distinct name)"],
        ),
        (
            "checks:\n  - contains: {value: x, name: a}\n  - not: {value: {regex: y}, name: a}\n",
            ["6:36: two checks are named 'a' (give each a distinct name)"],
        ),
        (
            "judges: {graders: [prompts/t.md, prompts/t.md]}\n",
            ["4:34: two graders are named 't' (give each a distinct name)"],
        ),
        (
            "gates:\n  - {metric: errors, at_most: 0.5}\n  - {metric: errors, at_most: 50%}\n",
            ["6:5: this gate on 'errors' is listed twice (remove one)"],
        ),
        (
            "checks:\n  - contains: {value: x, weight: 0}\n",
            [
                "5:3: every component of the grade has weight 0, so there is no composite "
                "(give the rubric, a grader or a check a weight above 0)"
            ],
        ),
        (
            "judges: {graders: [{prompt: prompts/t.md, weight: 0}]}\n",
            [
                "4:19: every component of the grade has weight 0, so there is no composite "
                "(give the rubric, a grader or a check a weight above 0)"
            ],
        ),
    ],
)
def test_what_does_not_go_together_is_refused(text: str, messages: list[str]) -> None:
    assert said(ExperimentFile, HEAD + text) == messages


@pytest.mark.parametrize(
    "text",
    [
        "checks:\n  - contains: x\n",
        "checks:\n  - contains: x\nrubric: {path: r.yaml, weight: 0.5}\n",
        "checks:\n  - contains: {value: x, weight: 1}\nrubric: {path: r.yaml, weight: 0}\n",
        "judges: {graders: [prompts/t.md]}\n",
        "",
    ],
)
def test_some_part_of_the_grade_has_weight(text: str) -> None:
    assert said(ExperimentFile, HEAD + text) == []


def test_everything_that_does_not_go_together_is_said_at_once() -> None:
    text = (
        "dataset: a.csv\ndatasets: [b.csv]\n"
        "schedule:\n  - {name: a, cron: 0 9 * * *}\n  - {name: a, cron: 0 8 * * *}\n"
    )
    places = [message.partition(" ")[0] for message in said(ExperimentFile, HEAD + text)]
    assert places == ["4:10:", "8:12:"]


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("prompt", "write prompts: [prompts/NAME.md]"),
        ("model", "write models: [NAME]"),
        ("judge", "write judges: {pointwise: [NAME]}"),
        ("assert", "write checks"),
        ("providers", "write models: [NAME]; providers are in models.yaml"),
        ("tests", "write dataset: datasets/NAME.jsonl"),
        ("graders", "put it under judges"),
        ("budget_usd", "put it under stop"),
        ("name", "write experiment: NAME; it is the name of the file"),
    ],
)
def test_a_key_from_elsewhere_is_answered_with_the_key_from_here(key: str, advice: str) -> None:
    assert said(ExperimentFile, HEAD + f"{key}: x\n") == [f"4:1: unknown key '{key}' ({advice})"]
