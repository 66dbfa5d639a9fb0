"""edison dataset import: rows of any table become cases, all of them or none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.screen import OnTty
from tests.opened import opened

if TYPE_CHECKING:
    from tests.cli.conftest import Edison
    from tests.conftest import Folder

pytestmark = pytest.mark.daily

FILE = "datasets/names.jsonl"


def told(edison: Edison, folder: Folder, *words: str) -> dict[str, Any]:
    done = edison(folder, "dataset", "import", *words, "--json")
    assert done.code == 0, done.all
    found: dict[str, Any] = json.loads(done.out)
    return found


def added(folder: Folder, path: str = FILE) -> list[dict[str, Any]]:
    return [json.loads(line) for line in folder.read(path).splitlines()[2:]]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("in.csv", b'id,name,expected,tags\nc,"Cy\nC, ""x""",Cy,t;u\nd,Dee,Dee,\n'),
        ("in.csv", b'\xef\xbb\xbfid;Name;Expected;tags\r\nc;"Cy\nC, ""x""";Cy;"t;u"\r\nd;Dee;Dee;'),
        ("in.tsv", b'id\tname\texpected\ttags\nc\t"Cy\nC, ""x"""\tCy\tt|u\nd\tDee\tDee\t\n'),
        (
            "in.json",
            b'[{"id": "c", "name": "Cy\\nC, \\"x\\"", "expected": "Cy", "tags": ["t", "u"]},\n'
            b'\t{"id": "d", "input": {"name": "Dee"}, "expected": "Dee", "other": null}]',
        ),
        (
            "in.json",
            b'{"version": 2, "cases": [{"id": "c", "name": "Cy\\nC, \\"x\\"", "expected": "Cy", '
            b'"tags": "t;u"}, {"id": "d", "name": "Dee", "expected_output": "Dee"}]}',
        ),
        (
            "in.ndjson",
            b'{"id": "c", "name": "Cy\\nC, \\"x\\"", "expected": "Cy", "tags": ["t", "u"]}\r\n\r\n'
            b'{"id": "d", "name": "Dee", "expected": "Dee"}',
        ),
        (
            "in.yml",
            b"- id: c\n  name: |-\n    Cy\n    C, \"x\"\n  expected: Cy\n  tags: [t, u]\n"
            b"- {id: d, name: Dee, expected: Dee}\n",
        ),
    ],
)  # fmt: skip
def test_every_format_is_read_alike(edison: Edison, mini: Folder, name: str, data: bytes) -> None:
    mini.write(name, data)
    before = mini.read(FILE)
    found = told(edison, mini, name)
    assert (found["cases"], found["written"]) == (2, False)
    assert mini.read(FILE) == before, "without --yes nothing is written"
    words = (
        ()
        if "expected_output" not in data.decode()
        else (
            "--map",
            "expected_output=",
        )
    )
    assert told(edison, mini, name, "--yes", *words)["written"]
    assert mini.read(FILE).startswith(before)
    expected = {} if words else {"expected": "Dee"}
    assert added(mini) == [
        {"id": "c", "input": {"name": 'Cy\nC, "x"'}, "expected": "Cy", "tags": ["t", "u"]},
        {"id": "d", "input": {"name": "Dee"}, **expected},
    ]
    assert edison(mini, "validate").code == 0


def test_columns_are_mapped_tagged_and_numbered(edison: Edison, mini: Folder) -> None:
    mini.write(FILE, mini.read(FILE) + '{"id": "q-7", "input": {"name": "Eve"}}\n')
    mini.write("in.csv", "Who,What,Level,Group,From,Note\nCy,Hi,2,g,web,x\nDee,Ho,,,,y\n")
    words = ["--map", "Who=name", "--map", "What=expected", "--map", "Level=difficulty"]
    words += ["--map", "Group=cluster", "--map", "From=metadata.source"]
    words += ["--tag", "new", "--prefix", "q-", "--yes"]
    done = edison(mini, "dataset", "import", "in.csv", *words)
    assert done.code == 0, done.err
    assert "  Note   left out\n" in done.out
    assert "  added 2 cases to datasets/names.jsonl" in done.out
    assert added(mini)[1:] == [
        {"id": "q-8", "input": {"name": "Cy"}, "expected": "Hi", "tags": ["new"], "difficulty": 2,
         "cluster": "g", "metadata": {"source": "web"}},
        {"id": "q-9", "input": {"name": "Dee"}, "expected": "Ho", "tags": ["new"],
         "metadata": {"source": ""}},
    ]  # fmt: skip
    with opened(mini.path / ".edison/results.db") as connection:
        ((action, entity, after),) = connection.execute("select action, entity, after from audit")
    assert (action, entity, json.loads(after)) == (
        "import cases", FILE, {"cases": 2, "file": "in.csv"}
    )  # fmt: skip


def test_ids_are_hashes_and_duplicates_are_named(edison: Edison, mini: Folder) -> None:
    mini.write("in.csv", "name,expected\nCy,Cy\nAda,Ada\nCy,Cy\nAda,Eve\n")
    done = edison(mini, "dataset", "import", "in.csv", "--yes")
    assert done.code == 2
    assert "2 rows are there already: line 3: the same as 'ada'; line 4: the same as" in done.err
    found = told(edison, mini, "in.csv", "--yes", "--skip-duplicates")
    assert [each["line"] for each in found["duplicates"]] == [3, 4]
    first, last = added(mini)
    assert (first["input"], last["expected"]) == ({"name": "Cy"}, "Eve")
    assert len(first["id"]) == 16
    again = told(edison, mini, "in.csv", "--yes", "--skip-duplicates")
    assert (again["cases"], again["written"]) == (0, False)
    mini.write("in.csv", "id,name\nada,Someone else\n")
    done = edison(mini, "dataset", "import", "in.csv", "--yes")
    assert (done.code, "line 2: the id 'ada' is used" in done.err) == (2, True)


@pytest.mark.parametrize("path", ["datasets/new.jsonl", "datasets/new.csv", "datasets/new.yaml"])
def test_a_new_file_is_added_to_the_experiment(edison: Edison, mini: Folder, path: str) -> None:
    mini.write("in.csv", "id,name,expected\nc,Cy,\nd,Dee,Dee\n")
    words = ("in.csv", "--dataset", path, "--kind", "adversarial", "--yes")
    done = edison(mini, "dataset", "import", *words)
    assert done.code == 0, done.err
    assert f"+  - path: {path}\n+    kind: adversarial" in done.out
    assert mini.read("experiments/hello.yaml").count("datasets:\n  - datasets/names.jsonl\n") == 1
    shown = json.loads(edison(mini, "dataset", "show", "--json").out)
    cases = [(case["id"], case["kind"]) for case in shown["experiments"][0]["cases"]]
    assert cases == [
        ("ada", "golden"),
        ("bo", "golden"),
        ("c", "adversarial"),
        ("d", "adversarial"),
    ]
    assert edison(mini, "dataset", "import", *words).code == 2, "the ids are used now"


def test_a_large_file_gets_its_limits(edison: Edison, mini: Folder) -> None:
    rows = "".join(f"n{number},{number}\n" for number in range(1_500))
    mini.write("in.csv", f"name,expected\n{rows}")
    done = edison(mini, "dataset", "import", "in.csv", "--yes")
    assert (done.code, "raise limits: {max_rows" in done.err) == (2, True), "the file that is there"
    words = ("in.csv", "--dataset", "datasets/new.jsonl", "--prefix", "n", "--yes")
    assert edison(mini, "dataset", "import", *words).code == 0
    assert "    limits: {max_rows: 3000}\n" in mini.read("experiments/hello.yaml")
    assert "1,502 cases" in edison(mini, "validate").err


UNREADABLE = [
    ("in.csv", b"id,nome\nc,Cy\n", "no column is the input 'name'"),
    ("in.csv", b"id,name\n", "in.csv has no rows"),
    ("in.csv", b"", "the file is empty"),
    ("in.csv", b"id,name\nc\n", "1 field, the header has 2"),
    ("in.csv", b'id,name\nc,"Cy\n', "a quote is not closed"),
    ("in.csv", b"id,name,name\nc,Cy,x\n", "column 'name' is named twice"),
    ("in.csv", b"id,name\nc,C\xfcy\n", "byte 0xfc is not UTF-8"),
    ("in.csv", b"id,name\nc,C\x00y\n", "NUL byte"),
    ("in.csv", "id,name\nc,Cy\n".encode("utf-16"), "this is UTF-16"),
    ("in.csv", b"id,name\nc,sk-" + b"a1B2" * 12, "this looks like an OpenAI key"),
    ("in.csv", b"id,name\nc," + b"x" * 1_100_000, "longer than 1,000,000"),
    ("in.csv", b"id,name,difficulty\nc,Cy,9\n", "difficulty is 9; allowed: 1 to 5"),
    ("in.json", b'[{"name": "Cy", "name": "Dee"}]', "key 'name' is given twice"),
    ("in.json", b'[{"name": NaN}]', "NaN"),
    ("in.json", b'[{"name": "Cy"}, 3]', "row 2 is not an object"),
    ("in.json", b'"Cy"', "the file is not a list of rows"),
    ("in.json", b'[{"name": "Cy"', "in.json:1:"),
    ("in.json", b"[" * 100_000, "nested"),
    ("in.json", b'[{"id": [1], "name": "Cy"}]', "row 1: id is [1], not a text"),
    ("in.json", b'[{"other": 1}, {"name": "Cy"}]', "row 1: name is missing"),
    ("in.jsonl", b'{"name": "Cy"}\n{"name": \n', "in.jsonl:2:"),
    ("in.yaml", b"- {name: Cy, name: Dee}\n", "key 'name' is given twice"),
    ("in.yaml", b"- !!python/name:os.system x\n", "tag"),
    ("in.yaml", b"name: Cy\n", "a YAML dataset is a list of cases"),
    ("in.txt", b"name\nCy\n", "is not a .csv or .tsv or .json"),
]  # fmt: skip


def test_what_cannot_be_read_is_refused_and_nothing_changes(
    subtests: pytest.Subtests, edison: Edison, mini: Folder
) -> None:
    for name, data, said in UNREADABLE:
        with subtests.test(name=name, data=data):
            mini.write(name, data)
            before = mini.read(FILE)
            done = edison(mini, "dataset", "import", name, "--yes")
            assert (done.code, said in done.all) == (2, True), done.all
            assert "sk-a1B2a1B2" not in done.all
            assert mini.read(FILE) == before


UNFIT_OPTIONS = [
    (("--map", "nme=name"), "there is no column 'nme'"),
    (("--map", "who=nam"), "'nam' is not a part of a case"),
    (("--map", "who"), "--map 'who' is not COLUMN=NAME"),
    (("--map", "who=name", "--map", "id=name"), "'who', 'id' are both 'name'"),
    (("--kind", "synthetic"), "--kind is for a new file"),
    (("--dataset", "../x.jsonl"), "leaves the project"),
    (("--dataset", "datasets/x.txt"), "is not a dataset"),
    (("--dataset", "models.yaml"), "models.yaml is there, and hello does not use it"),
    (("--experiment", "other"), "there is no experiment 'other'"),
]


def test_options_that_do_not_fit_are_refused(
    subtests: pytest.Subtests, edison: Edison, mini: Folder
) -> None:
    for words, said in UNFIT_OPTIONS:
        with subtests.test(words=words):
            mini.write("in.csv", "id,who\nc,Cy\n")
            before = mini.read(FILE), mini.read("experiments/hello.yaml")
            done = edison(mini, "dataset", "import", "in.csv", "--yes", *words)
            assert (done.code, said in done.err) == (2, True), done.all
            assert (mini.read(FILE), mini.read("experiments/hello.yaml")) == before


def test_a_terminal_asks_for_the_columns_and_shows_ten_cases_first(mini: Folder) -> None:
    rows = "".join(f"{n},Person {n},Hello {n},x\n" for n in range(1, 13))
    mini.write("in.csv", f"id,who,said,note\n{rows}")
    before = mini.read(FILE)
    with OnTty(mini.path, "dataset", "import", "in.csv", size=(100, 60)) as tty:
        tty.until(lambda text: "Which column is name? 1 to 3" in text)
        assert "  1  who  Person 1" in tty.screen.text
        tty.press(b"7\n")
        tty.until(lambda text: "'7' is none of these" in text)
        tty.press(b"1\n")
        tty.until(lambda text: "Which column is expected? 1 to 2, Enter for none" in text)
        tty.press(b"1\n")
        tty.until(lambda text: f"Add 12 cases to {FILE}?" in text)
        assert "Person 10" in tty.screen.text
        assert "Person 11" not in tty.screen.text
        assert mini.read(FILE) == before
        tty.press(b"y\n")
        tty.until(lambda text: "added 12 cases" in text)
        assert tty.end() == 0
    assert added(mini)[0] == {"id": "1", "input": {"name": "Person 1"}, "expected": "Hello 1"}


def test_a_file_that_changes_meanwhile_is_not_overwritten(mini: Folder) -> None:
    mini.write("in.csv", "id,name\nc,Cy\n")
    with OnTty(mini.path, "dataset", "import", "in.csv", size=(100, 60)) as tty:
        tty.until(lambda text: "Add 1 case to" in text)
        mini.write(FILE, mini.read(FILE) + '{"id": "new", "input": {"name": "New"}}\n')
        tty.press(b"y\n")
        tty.until(lambda text: "was changed meanwhile" in text)
        assert tty.end() == 2
    assert [row["id"] for row in added(mini)] == ["new"]


@pytest.mark.parametrize("keys", [b"\x03", b"n\n"])
def test_an_import_that_is_stopped_leaves_everything_as_it_was(mini: Folder, keys: bytes) -> None:
    mini.write("in.csv", "id,name\nc,Cy\n")
    before, folder = mini.read(FILE), mini.path / "datasets"
    with OnTty(mini.path, "dataset", "import", "in.csv", size=(100, 60)) as tty:
        tty.until(lambda text: "Add 1 case to" in text)
        tty.press(keys)
        assert tty.end() == (0 if keys == b"n\n" else 130)
    assert mini.read(FILE) == before
    assert [path.name for path in folder.iterdir()] == ["names.jsonl"]


def test_files_of_other_tools_are_recognised(edison: Edison, mini: Folder) -> None:
    golden = {"input": "Cy", "expected_output": "Hi Cy", "actual_output": "Ho", "context": ["c"],
              "additional_metadata": {"area": "x"}, "custom_column_key_values": None}  # fmt: skip
    mini.write("goldens.json", json.dumps([golden]))
    done = edison(mini, "dataset", "import", "goldens.json", "--yes")
    assert done.code == 0, done.err
    assert "1 row, in the format of DeepEval" in done.out
    assert "answers, called tools and costs of 1 golden are not imported" in done.err
    assert "  context        metadata.context\n" in done.out
    (case,) = added(mini)
    del case["id"]
    assert case == {
        "input": {"name": "Cy"}, "expected": "Hi Cy", "metadata": {"context": ["c"], "area": "x"}
    }  # fmt: skip
    found = told(edison, mini, "goldens.json", "--skip-duplicates")
    assert (found["format"], len(found["notes"])) == ("deepeval", 1)
    done = edison(mini, "dataset", "import", "goldens.json", "--format", "vally")
    assert (done.code, "not a file of Vally" in done.err) == (2, True)
    assert "it is one of DeepEval" in done.err
