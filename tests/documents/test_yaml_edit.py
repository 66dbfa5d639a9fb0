"""Entries come and go, and everything else in the file stays as its author wrote it."""

from __future__ import annotations

import pytest

from edison_ci.documents.yaml_edit import (
    scalar,
    with_entry,
    with_listed,
    with_members,
    with_value,
    with_values,
    without_entry,
)
from edison_ci.documents.yaml_text import read_yaml

ENTRY = {"case": "new", "reason": "it is: odd"}

FILE = """\
# who looks after these: the support team
version: 1   # the only one

cases:
  # seen in October
  - case: one        # the first
    reason: >-
      a long
      reason

  # the second one
  - {case: two, reason: "# no comment"}

  # nothing more
"""


def cases(text: str) -> list[dict[str, str]]:
    value = read_yaml(text, "").value
    assert isinstance(value, dict)
    return value["cases"]  # type: ignore[return-value]


def test_an_entry_is_added_below_the_last_one() -> None:
    text = with_entry(FILE, "cases", ENTRY)
    assert cases(text) == [*cases(FILE), ENTRY]
    added = '  - case: new\n    reason: "it is: odd"\n'
    assert text == FILE.replace('comment"}\n', f'comment"}}\n{added}')


@pytest.mark.parametrize("index", [0, 1])
def test_an_entry_is_taken_out_with_its_own_lines_only(index: int) -> None:
    text = without_entry(FILE, "cases", index)
    assert cases(text) == [case for place, case in enumerate(cases(FILE)) if place != index]
    kept = [line for line in FILE.splitlines() if line.lstrip().startswith("#")]
    assert all(line in text for line in kept)


def test_what_was_added_and_taken_out_again_leaves_no_trace() -> None:
    assert without_entry(with_entry(FILE, "cases", ENTRY), "cases", 2) == FILE


@pytest.mark.parametrize(
    "text",
    [
        "",
        "version: 1\n",
        "version: 1",
        "version: 1\ncases: []\n",
        "cases: []  # none yet\nversion: 1\n",
        "version: 1\ncases: [{case: one, reason: r}]\n",
        "version: 1\ncases: [{case: one, reason: r},]\n",
        'cases: [{case: one, reason: "a ] b"}, {case: two, reason: "], }"}]  # ]\n',
        "version: 1\ncases: [\n  {case: one, reason: r},\n  {case: two, reason: r}\n]\n",
        "cases:\n- case: one\n  reason: r\nversion: 1\n",
        "cases:\n- case: one\n  reason: r",
        "version: 1\r\ncases:\r\n  - case: one\r\n    reason: r\r\n",
        "cases:\n    -   case: one\n        reason: r\n",
    ],
)
def test_every_way_to_write_a_list_takes_a_further_entry(text: str) -> None:
    before = read_yaml(text, "").value
    known = before.get("cases", []) if isinstance(before, dict) else []
    assert isinstance(known, list)
    after = with_entry(text, "cases", ENTRY)
    assert cases(after) == [*known, ENTRY]
    if isinstance(before, dict):
        whole = read_yaml(after, "").value
        assert isinstance(whole, dict)
        assert {**before, "cases": None} == {**whole, "cases": None}
    if "\r\n" in text:
        assert "\n" not in after.replace("\r\n", "")
    for index in range(len(known), -1, -1):
        after = without_entry(after, "cases", index)
    assert cases(after) == []


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words (2)", "plain words (2)"),
        ("2026-11-15", "2026-11-15"),
        ("true", '"true"'),
        ("12", '"12"'),
        ("", '""'),
        ("a: b", '"a: b"'),
        ("- dash", '"- dash"'),
        ("*star", '"*star"'),
        ('it\'s "so"', '"it\'s \\"so\\""'),
        ("größe", '"größe"'),
    ],
)
def test_a_text_is_quoted_where_it_has_to_be(text: str, shown: str) -> None:
    assert scalar(text) == shown
    assert read_yaml(f"key: {shown}\n", "").value == {"key": text}


SETTINGS = """\
experiment: one
models: [small]   # try another
judges:
  # who scores
  pointwise:
    - judge
  combine: mean   # of all
  # the last comment

stop: {window: 3}  # soon
"""


def test_a_value_takes_the_place_of_the_former_and_its_comment_stays() -> None:
    assert with_value(SETTINGS, "models", ["a", "b"], after="experiment") == SETTINGS.replace(
        "models: [small]   #", "models: [a, b]    #"
    )
    longer = with_value(SETTINGS, "models", ["a long name", "1"], after="experiment")
    assert 'models: [a long name, "1"]  # try another\n' in longer
    assert with_value(SETTINGS, "tags", ["x"], after="models") == SETTINGS.replace(
        "\njudges:", "\ntags: [x]\njudges:"
    )


def test_members_of_a_map_change_and_the_others_stay() -> None:
    changed = with_members(
        SETTINGS,
        "judges",
        {"pairwise": {"by": "c"}, "pointwise": ["a", "b"], "graders": []},
        after="models",
    )
    assert changed == SETTINGS.replace(
        "  pointwise:\n    - judge\n", "  pointwise: [a, b]\n"
    ).replace("# of all\n", "# of all\n  pairwise: {by: c}\n  graders: []\n")
    assert "stop: {window: 2, budget_usd: 1.5}  # soon\n" in with_members(
        SETTINGS, "stop", {"window": 2, "budget_usd": 1.5}, after="models"
    )
    assert with_members(SETTINGS, "split", {"seed": 1}, after="stop").endswith(
        "# soon\nsplit: {seed: 1}\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a: 1\nfile: x.csv # one\nb: 2\n", "a: 1\nfiles:\n  - x.csv # one\n  - path: y\nb: 2\n"),
        ("file:\n  x.csv\n", "files:\n  - x.csv\n  - path: y\n"),
        ("file: 'x.csv'", "files:\n  - 'x.csv'\n  - path: y\n"),
        ("files: [x.csv]\n", "files: [x.csv, {path: y}]\n"),
        ("a: 1\r\nfile: x\r\n", "a: 1\r\nfiles:\r\n  - x\r\n  - path: y\r\n"),
        ("a: 1\n", "a: 1\nfiles:\n  - path: y\n"),
    ],
)
def test_a_single_value_becomes_a_list(before: str, after: str) -> None:
    assert with_listed(before, "file", "files", {"path": "y"}) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a:\n- n: x # c\nb: 1\n", "a:\n- n: x # c\n  on: false\nb: 1\n"),
        ("a:\n- n: x", "a:\n- n: x\n  on: false\n"),
        ("a:\r\n  - n: x\r\n", "a:\r\n  - n: x\r\n    on: false\r\n"),
        ("a:\n  - on: true # c\n    n: x\n", "a:\n  - on: false # c\n    n: x\n"),
        ("a: [{n: x}, {n: y}]\n", "a: [{n: x, on: false}, {n: y}]\n"),
        ("a: [{n: x, on: true}] # c\n", "a: [{n: x, on: false}] # c\n"),
    ],
)
def test_a_flag_of_an_entry_is_set_where_it_is_or_added(before: str, after: str) -> None:
    assert with_values(before, "a", 0, {"on": False}) == after
