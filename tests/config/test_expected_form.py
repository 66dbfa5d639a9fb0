"""`expect: auto` reads instructions, not words."""

import time

import pytest

from benchmarks.expected_form import form_of, labelled, measure
from edison_ci.config.prompt import Prompt, read_prompt
from edison_ci.errors import Problem, Severity

CUSTOMER = "The customer sends JSON.\nSummarise it in one sentence: {{ payload }}\n"


def read(text: str) -> tuple[Prompt, list[Problem]]:
    prompt, problems = read_prompt(text.encode(), "prompts/hello.md")
    assert prompt is not None
    return prompt, problems


def test_prompts_that_were_set_aside_are_told_apart() -> None:
    prompts = labelled("held_out")
    rates = measure(prompts)
    assert len(prompts) == 50
    assert rates.recall >= 0.95
    assert rates.false_alarms <= 0.02


def test_prompts_at_hand_are_told_apart_in_five_languages_and_more() -> None:
    prompts = labelled("tuning")
    rates = measure(prompts)
    assert len(prompts) >= 100
    assert rates.languages >= 5
    assert rates.recall >= 0.99
    assert rates.alarms == 0


def test_no_prompt_that_was_set_aside_was_at_hand() -> None:
    aside = {each.prompt for each in labelled("held_out")}
    assert aside.isdisjoint(each.prompt for each in labelled("tuning"))


@pytest.mark.parametrize(
    "prompt",
    [
        "Answer in plain text, do not output JSON",
        "The customer sends JSON, summarise it",
        "Antworte nicht als JSON",
    ],
)
def test_a_mention_of_json_does_not_make_answers_malformed(prompt: str) -> None:
    assert form_of(prompt) == "none"


def test_tags_in_code_with_a_json_object_are_both_found() -> None:
    prompt = "Reply inside `<response>` tags with a json object"
    assert form_of(prompt) == "response+json"


def test_the_literal_rule_counts_the_word_anywhere() -> None:
    assert form_of(f"---\nexpect: mentioned\n---\n{CUSTOMER}") == "json"
    assert form_of("---\nexpect: mentioned\n---\nWrite <response> and nothing else") == "none"
    assert form_of("---\nexpect: mentioned\n---\nNever <response></response>") == "response"


def test_a_mention_that_is_not_taken_as_a_request_is_told_with_its_line_and_key() -> None:
    _, problems = read(CUSTOMER + "No more than ten words of the JSON, in English, please.\n")
    (warning,) = [problem for problem in problems if problem.code == "expect"]
    assert warning.severity is Severity.WARNING
    assert str(warning.where) == "prompts/hello.md:1:1"
    assert warning.message == (
        "answers need not be JSON: the prompt mentions it, but does not ask for it: "
        "'The customer sends JSON.' (and on line 3)"
    )
    assert warning.hint == "write `expect: none` if that is right, else `expect: json`"


@pytest.mark.parametrize("key", ["expect: none", "expect: json", "expect: mentioned"])
def test_what_is_written_is_not_doubted(key: str) -> None:
    _, problems = read(f"---\n{key}\n---\n{CUSTOMER}")
    assert not [problem for problem in problems if problem.code == "expect"]


def test_a_request_is_not_doubted() -> None:
    _, problems = read(CUSTOMER + "Answer in JSON.")
    assert not [problem for problem in problems if problem.code == "expect"]


@pytest.mark.parametrize(
    "text",
    [
        "JSON " * 3_900,
        "not as json or json, " * 900,
        "<data>" * 3_000,
        "<response>" * 1_900,
        "'a json " * 2_000,
        '""" json ' * 2_000,
        "text: json\n" * 1_700,
        "```json\n" * 2_400,
    ],
)
def test_a_hostile_prompt_takes_no_time(text: str) -> None:
    start = time.process_time()
    form_of(text)
    assert time.process_time() - start < 2
