"""A case that is looked up is the case that reading the whole dataset finds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from edison_ci.config.cases import CaseFeed, look_up_cases, supports_lookup
from edison_ci.config.experiment import DatasetEntry
from edison_ci.documents.files import WorkingTree

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [
    {"id": "first", "input": {"text": "about \"second\" and 'third'"}, "tags": ["a"]},
    {"id": "second", "input": {"text": 'says "third" itself'}, "tags": ["third"]},
    {"text": "no id"},
    {"id": "third", "input": {"text": "x"}, "difficulty": 3, "cluster": "c"},
    {"id": "thir", "input": {"text": "y"}},
    {"id": "a b/c", "input": {"text": "z"}},
]


@pytest.fixture
def entries(tmp_path: Path) -> tuple[DatasetEntry, ...]:
    lines = [json.dumps(row) for row in ROWS]
    lines[3] = lines[3].replace('"id": "third"', '"id"  :"third"')
    (tmp_path / "a.jsonl").write_text("\n".join(lines[:4]) + "\r\n", "utf-8")
    (tmp_path / "b.jsonl").write_text("\n" + "\n".join(lines[4:]), "utf-8")  # ends in no newline
    (tmp_path / "c.jsonl").write_bytes(b"")
    return tuple(DatasetEntry(path=f"{name}.jsonl") for name in "abc")


@pytest.mark.parametrize("wanted", ["first", "second", "third", "thir", "nobody"])
def test_it_is_the_same_case(
    tmp_path: Path, entries: tuple[DatasetEntry, ...], wanted: str
) -> None:
    tree = WorkingTree(tmp_path)
    assert supports_lookup([wanted], entries)
    every = [case for case in CaseFeed(tree, entries) if case.id == wanted]
    found = [case for case in look_up_cases(CaseFeed(tree, entries), [wanted]) if case.id == wanted]
    for case in (*every, *found):
        case.line = 0
    assert found == every
    assert bool(found) is (wanted != "nobody")


def test_only_lines_with_the_id_are_read(tmp_path: Path, entries: tuple[DatasetEntry, ...]) -> None:
    feed = look_up_cases(CaseFeed(WorkingTree(tmp_path), entries), ["third"])
    assert [case.id for case in feed] == ["second", "third"]
    assert not feed.problems


def test_what_has_several_spellings_is_not_looked_up(entries: tuple[DatasetEntry, ...]) -> None:
    for odd in ("caf\u00e9", 'a"b', "a\\b", "a/b", "0123456789abcdef"):
        assert not supports_lookup([odd], entries), odd
    assert not supports_lookup(["plain"], [DatasetEntry(path="cases.csv")])
    assert not supports_lookup(["plain"], [DatasetEntry(path="a.jsonl", map={"x": "id"})])
