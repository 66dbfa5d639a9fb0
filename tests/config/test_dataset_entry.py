"""What an experiment says about its data."""

from __future__ import annotations

from typing import Any

import pytest

from edison_ci.config.experiment import DatasetEntry, parse_where
from tests.config.said import said


@pytest.mark.parametrize(
    ("where", "conditions"),
    [
        ({"tags": "a"}, {"tags": ("a",)}),
        ({"tags": ["a", "b"]}, {"tags": ("a", "b")}),
        ({"id": "x"}, {"id": ("x",)}),
        ({"kind": ["golden", "adversarial"]}, {"kind": ("golden", "adversarial")}),
        ({"difficulty": 3}, {"difficulty": ("=", 3)}),
        ({"difficulty": ">=3"}, {"difficulty": (">=", 3)}),
        ({"difficulty": " < 2"}, {"difficulty": ("<", 2)}),
        ({"difficulty": "== 5"}, {"difficulty": ("=", 5)}),
        ({"metadata.lang": "de"}, {"metadata.lang": ("de",)}),
        ({"metadata.year": [2024, 2025]}, {"metadata.year": (2024, 2025)}),
        ({}, {}),
    ],
)
def test_a_condition_becomes_the_values_it_allows(
    where: dict[str, Any], conditions: dict[str, Any]
) -> None:
    assert parse_where(where) == conditions


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("[a]", "2:8: where is a map (write where: {tags: [billing]})"),
        ("{tag: a}", "2:9: unknown key 'tag' (did you mean 'tags'?)"),
        ("{metadata: a}", "2:9: unknown key 'metadata' (did you mean 'metadata.KEY'?)"),
        ("{metadata.: a}", "2:9: unknown key 'metadata.' (did you mean 'metadata.KEY'?)"),
        (
            "{tags: []}",
            "2:15: tags takes a value or a list of values "
            "(write tags: VALUE or tags: [VALUE, VALUE])",
        ),
        (
            "{tags: {a: b}}",
            "2:15: tags takes a value or a list of values "
            "(write tags: VALUE or tags: [VALUE, VALUE])",
        ),
        ("{id: 3}", "2:13: id takes a text or a list of texts (quote numbers)"),
        ("{kind: gold}", "2:15: unknown kind 'gold' (did you mean 'golden'?)"),
        ("{difficulty: 0}", '2:21: difficulty is 0, not a level from 1 to 5 (write 3 or ">=3")'),
        (
            "{difficulty: '>= 9'}",
            "2:21: difficulty is '>= 9', not a level from 1 to 5 (write 3 or \">=3\")",
        ),
        (
            "{difficulty: true}",
            '2:21: difficulty is True, not a level from 1 to 5 (write 3 or ">=3")',
        ),
        (
            "{difficulty: 2.5}",
            '2:21: difficulty is 2.5, not a level from 1 to 5 (write 3 or ">=3")',
        ),
    ],
)
def test_a_condition_that_is_not_understood_is_refused(where: str, message: str) -> None:
    assert said(DatasetEntry, f"path: a.csv\nwhere: {where}\n") == [message]


@pytest.mark.parametrize("path", ["a.jsonl", "b/c.csv", "d.yaml", "e.yml"])
def test_a_dataset_is_one_of_three_kinds_of_file(path: str) -> None:
    assert said(DatasetEntry, f"path: {path}\n") == []


@pytest.mark.parametrize("path", ["a.json", "a.xlsx", "a", "a.CSV"])
def test_another_kind_of_file_is_no_dataset(path: str) -> None:
    assert said(DatasetEntry, f"path: {path}\n") == [
        f"1:7: '{path}' is not a dataset (datasets end in .jsonl, .csv or .yaml)"
    ]


def test_every_column_has_a_name_of_its_own_that_a_prompt_can_use() -> None:
    assert said(DatasetEntry, "path: a.csv\nmap: {Question: question, Id: id}\n") == []
    assert said(DatasetEntry, "path: a.csv\nmap: {A: x, B: y, C: x, D: y}\n") == [
        "2:22: 'A' and 'C' are both renamed to 'x' (give each column a distinct name)",
        "2:28: 'B' and 'D' are both renamed to 'y' (give each column a distinct name)",
    ]
    assert said(DatasetEntry, "path: a.csv\nmap: {A: my question}\n") == [
        "2:10: 'my question' is not a name of a variable "
        "(use letters, digits and '_', so that a prompt can use {{ name }})"
    ]
