"""edison dataset: show, stats and health."""

from __future__ import annotations

import json
import sqlite3
import tracemalloc
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config.case_facts import content_hash
from edison_ci.features.datasets.health import examine
from edison_ci.records import Case, CaseId
from tests.planted import Planted, plant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

ROWS: list[dict[str, Any]] = [
    {"id": "c0", "input": {"name": "Ada"}, "expected": "Ada", "tags": ["short", "a"]},
    {"id": "c1", "input": {"name": "Bo"}, "expected": "Bo", "difficulty": 1, "cluster": "x"},
    {"id": "c2", "input": {"name": "Ada"}, "expected": "Ada", "difficulty": 3, "cluster": "x"},
    {"id": "c3", "input": {"name": "Bo"}, "expected": "Bob", "difficulty": 5, "tags": ["a"]},
    {"id": "c4", "input": {"name": "Cy " * 11}, "expected": "Cy"},
    {"id": "c5", "input": {"name": "Di " * 1001}},
]


@pytest.fixture
def data(mini: Folder) -> Folder:
    write(mini, ROWS)
    return mini


def write(folder: Folder, rows: list[dict[str, Any]]) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    folder.write("datasets/names.jsonl", text)


def told(edison: Edison, folder: Folder, *args: str) -> dict[str, Any]:
    done = edison(folder, "dataset", *args, "--json")
    assert (done.code, done.err) == (0, ""), done.all
    (found,) = json.loads(done.out)["experiments"]
    assert isinstance(found, dict)
    assert found["experiment"] == "hello"
    return found


# --- show -----------------------------------------------------------------------------------------


def test_the_first_cases_are_shown_in_short(edison: Edison, data: Folder) -> None:
    done = edison(data, "dataset", "show", "hello", "--limit", "2")
    lines = done.out.splitlines()
    assert lines[0] == "hello  datasets/names.jsonl"
    assert lines[1].split() == ["case", "kind", "tags", "difficulty", "input", "expected"]
    assert lines[2].split() == ["c0", "golden", "short,", "a", "-", "name:", "Ada", "Ada"]
    assert lines[3].split() == ["c1", "golden", "-", "1", "easy", "name:", "Bo", "Bo"]
    assert done.err == "there are more cases: raise --limit\n"


@pytest.mark.parametrize(
    ("flags", "ids"),
    [
        ([], ["c0", "c1", "c2", "c3", "c4", "c5"]),
        (["--tag", "a"], ["c0", "c3"]),
        (["--tag", "short", "--tag", "nothing"], ["c0"]),
        (["--difficulty", "easy"], ["c1"]),
        (["--difficulty", "hard"], ["c3"]),
        (["--length", "S"], ["c4"]),
        (["--length", "XL"], ["c5"]),
        (["--kind", "adversarial"], []),
        (["--case", "c2", "--case", "c4"], ["c2", "c4"]),
        (["--tag", "a", "--difficulty", "hard"], ["c3"]),
    ],
)
def test_cases_can_be_filtered(
    edison: Edison, data: Folder, flags: list[str], ids: list[str]
) -> None:
    found = told(edison, data, "show", *flags)
    assert [case["id"] for case in found["cases"]] == ids
    assert found["more"] is False


def test_whole_texts_keep_their_lines(edison: Edison, data: Folder) -> None:
    write(data, [{"id": "a", "input": {"name": "one\ntwo"}, "expected": {"k": [1]}}])
    out = edison(data, "dataset", "show", "--full").out
    assert "name: one\n    two\n" in out
    assert 'expected: {"k":[1]}\n' in out


def test_a_dataset_cannot_write_to_the_terminal(edison: Edison, data: Folder) -> None:
    evil = "x\x1b]0;owned\x07\u202e\n::error::no"
    write(data, [{"id": "a", "input": {"name": evil}, "expected": evil, "tags": [evil]}])
    for words in (["show"], ["show", "--full"], ["stats"], ["health"]):
        done = edison(data, "dataset", *words)
        assert done.code == 0
        assert not {"\x1b", "\x07", "\u202e"} & set(done.all)


def test_rows_that_cannot_be_read_are_named(edison: Edison, data: Folder) -> None:
    data.write("datasets/names.jsonl", '{"id": "a", "input": {"name": "x"}}\n{"id": 7}\n')
    for words in (["show"], ["stats"], ["health"]):
        done = edison(data, "dataset", *words)
        assert done.code == 2
        assert "datasets/names.jsonl:2" in done.err


def test_no_such_experiment_and_no_such_case(edison: Edison, data: Folder) -> None:
    assert "did you mean 'hello'?" in edison(data, "dataset", "show", "helo").err
    assert "no case matches" in edison(data, "dataset", "show", "--tag", "zzz").err


# --- stats ----------------------------------------------------------------------------------------


def test_cases_are_counted(edison: Edison, data: Folder) -> None:
    found = told(edison, data, "stats")
    assert (found["cases"], found["with_expected"]) == (6, 5)
    assert (found["clustered"], found["clusters"]) == (2, 1)
    assert found["difficulty"] == {"(none)": 3, "easy": 1, "medium": 1, "hard": 1}
    assert found["length"] == {"XS": 4, "S": 1, "XL": 1}
    assert found["kind"] == {"golden": 6}
    assert found["tags"] == {"(none)": 4, "a": 2, "short": 1}
    out = edison(data, "dataset", "stats").out
    assert "5 with an expected output, 0 held out, 2 in 1 cluster" in out
    assert "tag         a       2   33%  #######" in out


# --- health ---------------------------------------------------------------------------------------


def test_duplicates_and_contradictions_need_no_results(edison: Edison, data: Folder) -> None:
    found = told(edison, data, "health")
    assert found["duplicates"] == [{"cases": ["c0", "c2"], "lines": [1, 3]}]
    assert found["contradictions"] == [{"cases": ["c1", "c3"], "lines": [2, 4]}]
    assert (found["ok"], found["measured"]) == (False, 0)
    done = edison(data, "dataset", "health")
    assert "  1 contradiction\n    c1, c3 (lines 2, 4)\n" in done.out
    assert "  1 duplicate\n    c0, c2 (lines 1, 3)\n" in done.out
    assert "no case has results of 2 prompt versions or models" in done.err


@pytest.fixture
def measured(data: Folder) -> Folder:
    """Two models: c0 always perfect, c1 passes with other scores, c2 fails alike, c3 differs."""
    scores = {"small": [1.0, 0.6, 0.2, 0.2], "large": [1.0, 0.9, 0.2, 0.9]}
    path = plant(data, Planted("r1", "2026-11-14T09:00:00Z", scores))
    with closing(sqlite3.connect(path)) as connection:
        for row in ROWS:
            case = Case(CaseId(row["id"]), row["input"], row.get("expected"))
            values = (content_hash(case), row["id"])
            connection.execute("update cell set case_hash = ? where case_id = ?", values)
        connection.commit()
    return data


def test_results_tell_what_cases_are_good_for(edison: Edison, measured: Folder) -> None:
    found = told(edison, measured, "health")
    assert found["measured"] == 4
    assert [case["case"] for case in found["saturated"]["cases"]] == ["c0", "c1"]
    assert [case["case"] for case in found["same_for_all"]["cases"]] == ["c0", "c2"]
    assert found["saturated"]["cases"][0] == {
        "case": "c0", "answers": 2, "variants": 2, "passed": 1.0, "low": 1.0, "high": 1.0,
    }  # fmt: skip
    done = edison(measured, "dataset", "health")
    assert "  2 cases saturated: every answer passes (50% of 4 measured)\n    c0, c1\n" in done.out
    assert "2 cases not discriminating: every answer scores the same" in done.out
    assert "2 cases without enough results" in done.err


def test_results_from_before_an_edit_say_nothing(edison: Edison, measured: Folder) -> None:
    write(measured, [{**ROWS[0], "expected": "Augusta"}, *ROWS[1:3]])
    found = told(edison, measured, "health")
    assert (found["measured"], found["cases"]) == (2, 3)
    assert [case["case"] for case in found["saturated"]["cases"]] == ["c1"]


def test_one_model_is_not_enough_to_judge_a_case(edison: Edison, data: Folder) -> None:
    assert edison(data, "run", "-q").code == 0
    assert told(edison, data, "health")["measured"] == 0


def test_real_runs_of_two_versions_are_enough(edison: Edison, data: Folder) -> None:
    edison(data, "run", "-q")
    data.edit("prompts/hello.md", "friendly", "kind")
    edison(data, "run", "-q")
    assert told(edison, data, "health")["measured"] == len(ROWS)


@pytest.mark.nightly
def test_many_cases_take_little_memory() -> None:
    count = 5_000

    def feed() -> Iterator[Case]:
        for number in range(count):
            yield Case(CaseId(f"c{number}"), {"text": f"{number // 2} " + "word " * 200})

    tracemalloc.start()
    found = examine(feed, content_hash)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.health.cases == count
    assert (len(found.health.duplicates), found.health.more_groups) == (1_000, 1_500)
    assert peak < 2_500_000, "the texts alone are 5 MB"


def test_what_is_said_about_a_dataset_is_shown(edison: Edison, mini: Folder) -> None:
    mini.write(
        "datasets/names.about.yaml", "description: Guests.\ntags: [hotel]\nowner: front-desk\n"
    )
    line = "  datasets/names.jsonl: Guests.; owner front-desk; tags hotel\n"
    assert line in edison(mini, "dataset", "show").out
    assert line in edison(mini, "dataset", "stats").out
    for command in ("show", "stats"):
        told = json.loads(edison(mini, "dataset", command, "--json").out)["experiments"][0]
        assert told["files"] == [
            {"path": "datasets/names.jsonl", "kind": "golden", "description": "Guests.",
             "tags": ["hotel"], "owner": "front-desk"}
        ]  # fmt: skip


def test_an_about_file_is_no_dataset_and_needs_one(edison: Edison, mini: Folder) -> None:
    mini.write("datasets/names.about.yaml", "description: Guests.\n")
    assert "ok: " in edison(mini, "validate").err
    mini.write("datasets/nmes.about.yaml", "description: Guests.\n")
    done = edison(mini, "validate")
    assert done.code == 0
    assert "datasets/nmes.about.yaml: warning: there is no dataset 'datasets/nmes'" in done.all
    mini.write("datasets/names.about.yaml", "owner: [a]\n")
    done = edison(mini, "validate")
    assert (done.code, "names.about.yaml:1:8: error: owner is ['a'], not a text" in done.all) == (
        2, True
    )  # fmt: skip
