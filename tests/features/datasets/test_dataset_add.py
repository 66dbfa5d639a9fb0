"""edison dataset add: cases from values, and counterexamples from answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.opened import opened

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

FILE = "datasets/names.jsonl"


@pytest.mark.parametrize(
    ("path", "before", "row"),
    [
        (
            FILE,
            '{"id": "a", "input": {"name": "Ada"}}',
            '\n{"id": "new", "input": {"name": "Bo, \\"B\\""}, "expected": "Bo", "tags": ["t"]}\n',
        ),
        (
            "datasets/names.yaml",
            "# people\n- {id: a, input: {name: Ada}}\n",
            '- {"id": "new", "input": {"name": "Bo, \\"B\\""}, "expected": "Bo", "tags": ["t"]}\n',
        ),
        (
            "datasets/names.csv",
            "id,name,expected,tags\r\na,Ada,,\r\n",
            'new,"Bo, ""B""",Bo,t\r\n',
        ),
    ],
)
def test_a_case_is_added_in_the_format_of_its_file(
    edison: Edison, mini: Folder, path: str, before: str, row: str
) -> None:
    (mini.path / FILE).unlink()
    (mini.path / path).write_bytes(before.encode())
    mini.edit("experiments/hello.yaml", FILE, path)
    words = ("--set", 'name=Bo, "B"', "--expected", "Bo", "--tag", "t", "--id", "new")
    done = edison(mini, "dataset", "add", *words)
    assert done.code == 0, done.err
    assert f"  added new to {path}" in done.out
    assert (mini.path / path).read_bytes() == f"{before}{row}".encode()
    assert "2 cases" in edison(mini, "validate").err
    assert '"name": "Bo, \\"B\\""' in edison(mini, "dataset", "show", "--case", "new", "--json").out
    with opened(mini.path / ".edison/results.db") as connection:
        rows = connection.execute("select action, entity from audit").fetchall()
    assert rows == [("add case", path)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "the input 'name' is missing"),
        (("--set", "name"), "'name' is not a value"),
        (("--set", "name=Bo", "--id", "ada"), "there is a case 'ada'"),
        (
            ("--set", "name=Bo", "--dataset", "datasets/x.jsonl"),
            "has no dataset 'datasets/x",
        ),
        (("--set", "name=sk-" + "a1B2" * 12), "this looks like an OpenAI key"),
        (("--from", "ada", "--set", "nome=Bo"), "the case has no input 'nome'"),
        (("--from", "ada"), "it equals the case 'ada'"),
        (("--from", "nobody"), "has no cell 'nobody'"),
    ],
)
def test_what_cannot_be_added_is_refused_and_nothing_changes(
    edison: Edison, mini: Folder, words: tuple[str, ...], said: str
) -> None:
    mini.write(FILE, '{"id": "ada", "input": {"name": "Ada"}, "expected": "Ada"}\n')
    if "--from" in words:
        edison(mini, "run", "-q")
    before = mini.read(FILE)
    done = edison(mini, "dataset", "add", *words)
    assert (done.code, said in done.err) == (2, True), done.err
    assert mini.read(FILE) == before


def test_an_answer_becomes_a_counterexample(edison: Edison, mini: Folder) -> None:
    row = {"id": "ada", "input": {"name": "Ada"}, "expected": "Ada", "tags": ["short"],
           "difficulty": 2, "cluster": "people"}  # fmt: skip
    mini.write(FILE, json.dumps(row) + "\n")
    edison(mini, "run", "-q")
    words = ("--from", "ada@small", "--set", "name=Ada Ada", "--tag", "mail")
    done = edison(mini, "dataset", "add", *words, "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["paths"], told["cases"]) == ([FILE], ["ada-counterexample"])
    added = json.loads(mini.read(FILE).splitlines()[1])
    assert added == {
        **row,
        "id": "ada-counterexample",
        "input": {"name": "Ada Ada"},
        "tags": ["short", "counterexample", "mail"],
    }
    again = edison(mini, "dataset", "add", *words)
    assert "added ada-counterexample-2 to" in again.out
    assert edison(mini, "run", "-q").code == 0


def test_try_takes_values_and_saves_them_as_a_case(edison: Edison, mini: Folder) -> None:
    mini.write(FILE, '{"id": "ada", "input": {"name": "Ada"}, "expected": "Ada"}\n')
    mini.write("in.yaml", "name: Cy\n")
    shown = edison(mini, "try", "--input", "in.yaml", "--dry-run")
    assert "Say hello to Cy in one" in shown.out
    told = json.loads(edison(mini, "try", "--set", "name=Bo", "--expected", "Bo", "--json").out)
    assert "Bo" in told["text"]
    assert len(mini.read(FILE).splitlines()) == 1, "nothing is saved unless that is asked for"
    words = ("try", "--input", "in.yaml", "--set", "name=Bo", "--expected", "Bo", "--save")
    done = edison(mini, *words)
    assert (done.code, "added ada-counterexample to datasets/names.jsonl" in done.err) == (0, True)
    added = json.loads(mini.read(FILE).splitlines()[1])
    assert (added["input"], added["expected"]) == ({"name": "Bo"}, "Bo"), "--set wins"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--save",), "it equals the case 'ada'"),
        (("--save", "--dry-run"), "--dry-run saves nothing"),
        (("--input", "list.json"), "list.json has no names with values"),
        (("--input", "bad.json"), "bad.json: "),
        (("--input", "other.json"), "hello has no variable 'nome'"),
    ],
)
def test_try_refuses_what_it_cannot_use(
    edison: Edison, mini: Folder, words: tuple[str, ...], said: str
) -> None:
    mini.write(FILE, '{"id": "ada", "input": {"name": "Ada"}, "expected": "Ada"}\n')
    mini.write("list.json", "[1]")
    mini.write("bad.json", '{"name": ')
    mini.write("other.json", '{"nome": "x"}')
    before = mini.read(FILE)
    done = edison(mini, "try", *words)
    assert (done.code, said in done.err) == (2, True), done.err
    assert mini.read(FILE) == before
