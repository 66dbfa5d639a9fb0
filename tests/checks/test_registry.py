"""Every check there is: its name, its example, and the ways to write it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from edison_ci.checks.options import REGISTRY, Check, parse_check
from tests.checks.entries import check, in_schema

CONTRACT = [
    "equals", "contains", "contains_any", "contains_all", "icontains", "starts_with", "ends_with",
    "regex", "one_of", "words", "chars", "sentences", "tokens", "is_json", "json_schema",
    "json_path", "is_xml", "is_html", "is_sql", "is_yaml", "number", "levenshtein", "rouge_l",
    "rouge_n", "bleu", "chrf", "token_f1", "similar", "overlap", "latency", "cost",
    "finish_reason", "tool_call", "tool_call_f1", "refusal", "language", "readability", "python",
    "command",
]  # fmt: skip
"""The list of SPEC.md, section 6, word by word."""
ADDED = ["count", "quotes", "calls", "json_diff"]

COMBINATORS = ["not", "any_of", "all_of", "mean_of"]

GRADED = [
    "levenshtein", "rouge_l", "rouge_n", "bleu", "chrf", "token_f1", "similar", "overlap",
    "tool_call_f1", "json_diff", "python", "command",
]  # fmt: skip
"""Checks whose score has values between 0 and 1, so that half of it passes."""

ARGUMENT: dict[str, Any] = {
    "equals": "hello",
    "contains": "hello",
    "contains_any": ["hello", "hi"],
    "contains_all": ["hello", "hi"],
    "icontains": "hello",
    "starts_with": "hello",
    "ends_with": "hello",
    "regex": "hel+o",
    "one_of": ["yes", "no"],
    "json_schema": "schemas/reply.json",
    "json_path": "$.order.items[0].id",
    "number": 42,
    "levenshtein": "hello",
    "rouge_l": "hello",
    "rouge_n": "hello",
    "bleu": "hello",
    "chrf": "hello",
    "token_f1": "hello",
    "similar": "hello",
    "overlap": "hello",
    "latency": 2000,
    "cost": 0.01,
    "finish_reason": "length",
    "tool_call": "search",
    "tool_call_f1": [{"tool": "search"}],
    "calls": [{"tool": "search"}],
    "json_diff": "[1]",
    "quotes": "{{ document }}",
    "language": "de",
    "python": "checks/tone.py:check",
    "command": ["node", "checks/grade.js"],
    "any_of": [{"is_json": {}}],
    "all_of": [{"is_json": {}}],
    "mean_of": [{"is_json": {}}],
}
"""A main argument for each check that takes one."""

OPTIONS: dict[str, dict[str, Any]] = {
    "count": {"value": "a", "max": 3},
    "words": {"max": 3},
    "chars": {"min": 1, "max": 3},
    "sentences": {"min": 1},
    "tokens": {"max": 3},
    "is_json": {},
    "is_xml": {},
    "is_html": {},
    "is_sql": {},
    "is_yaml": {},
    "refusal": {},
    "readability": {"min": 50},
}
"""Options for each check that takes no main argument."""

MAY_BE_EMPTY = [
    "equals", "contains", "icontains", "is_json", "is_xml", "is_html", "is_sql", "is_yaml",
    "number", "levenshtein", "rouge_l", "rouge_n", "bleu", "chrf", "token_f1", "similar",
    "overlap", "finish_reason", "refusal", "json_diff",
]  # fmt: skip
"""Checks that mean something without any argument: usually the expected output."""

EVERY = sorted(REGISTRY.built_in)


def kind(name: str) -> type[Check]:
    found: type[Check] = REGISTRY.load(name)
    return found


def test_the_checks_are_those_of_the_contract() -> None:
    assert sorted([*CONTRACT, *ADDED, *COMBINATORS]) == EVERY
    assert len(CONTRACT) == 39


def test_a_check_knows_its_name_and_says_what_it_does(subtests: pytest.Subtests) -> None:
    for name in EVERY:
        with subtests.test(name=name):
            assert kind(name).check == name
            assert (kind(name).__doc__ or "").endswith(".")


def test_the_example_of_a_check_is_that_check(subtests: pytest.Subtests) -> None:
    for name in EVERY:
        with subtests.test(name=name):
            example = kind(name).example
            found = [check(example), *check(example).inner_checks()]
            assert name in [part.check for part in found]
            assert in_schema(example)


def test_every_check_has_a_row_in_one_of_the_tables() -> None:
    assert sorted([*ARGUMENT, *OPTIONS, "not"]) == EVERY


def test_a_bare_argument_is_the_main_option(subtests: pytest.Subtests) -> None:
    for name in ARGUMENT:
        with subtests.test(name=name):
            main = kind(name).main
            assert main is not None
            bare = parse_check({name: ARGUMENT[name]})
            spelled = parse_check({name: {main: ARGUMENT[name]}})
            assert json.dumps(bare.model_dump(), default=repr) == json.dumps(
                spelled.model_dump(), default=repr
            )
            assert in_schema(json.dumps({name: ARGUMENT[name]}))
            assert in_schema(json.dumps({name: {main: ARGUMENT[name]}}))


def test_a_check_without_a_main_option_takes_a_map_only(subtests: pytest.Subtests) -> None:
    for name in OPTIONS:
        with subtests.test(name=name):
            assert parse_check({name: OPTIONS[name]}).check == name
            assert in_schema(json.dumps({name: OPTIONS[name]}))
            with pytest.raises(ValueError, match=f"{name} takes options, not 'x'"):
                parse_check({name: "x"})
            assert not in_schema(f"{name}: x")


def test_an_empty_argument_stands_for_the_defaults_where_there_are_some(
    subtests: pytest.Subtests,
) -> None:
    for name in EVERY:
        with subtests.test(name=name):
            assert in_schema(f"{name}:") is (name in MAY_BE_EMPTY)
            if name in MAY_BE_EMPTY:
                assert parse_check({name: None}) == parse_check({name: {}})
            else:
                with pytest.raises(ValueError):
                    parse_check({name: None})


def test_every_check_takes_name_weight_and_threshold_and_nothing_unknown(
    subtests: pytest.Subtests,
) -> None:
    for name in EVERY:
        with subtests.test(name=name):
            options: dict[str, Any] = {"value": {"is_json": {}}}
            if name in OPTIONS:
                options = {**OPTIONS[name]}
            elif name in ARGUMENT:
                options = {str(kind(name).main): ARGUMENT[name]}
            extended = {**options, "name": "mine", "weight": 0.5, "threshold": 0.25}
            found = parse_check({name: extended})
            assert (found.name, found.weight) == ("mine", 0.5)
            assert (found.threshold, found.passes_at) == (0.25, 0.25)
            assert in_schema(json.dumps({name: extended}))
            with pytest.raises(ValidationError, match="unknown key 'wieght'"):
                parse_check({name: {**options, "wieght": 1}})
            assert not in_schema(json.dumps({name: {**options, "wieght": 1}}))


def test_a_graded_check_passes_at_a_half_and_any_other_at_one(subtests: pytest.Subtests) -> None:
    for name in EVERY:
        with subtests.test(name=name):
            argument = {**ARGUMENT, **OPTIONS, "not": {"is_json": {}}}[name]
            assert parse_check({name: argument}).passes_at == (0.5 if name in GRADED else 1.0)
