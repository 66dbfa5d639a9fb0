"""edison dataset tag, edit and remove: one row changes, and all others stay byte for byte."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.screen import OnTty
from tests.opened import opened

if TYPE_CHECKING:
    from tests.conftest import Edison, Folder

pytestmark = pytest.mark.daily

FILE = "datasets/names.jsonl"
JSONL = (
    b'{"id":"ada","input":{"name":"Ada"},"expected":"Ada"}\r\n'
    b"\r\n"
    b'{ "id": "bo",  "input": {"name": "Bo"}, "tags": ["x"] }\n'
    b'{"id": "zo\\u00eb", "input": {"name": "Zo\\u00eb"}}'
)
CSV = (
    b"\xef\xbb\xbfid,name,expected\r\n"
    b'ada,"Ada\r\nL.",Ada\r\n'
    b'"bo","Bo","Bo"\r\n'
    b"zo\xc3\xab,  Zo ,\r\n"
)
YAML = """\
# people
- id: ada # the first
  input: {name: Ada, note: 'a # b'}
  expected: |
    Ada
    # no comment

# two more
- {id: bo, input: {name: "Bo", note: ''}} # short
-   id: zoë
    input:
        name: Zoë
        note: ''
""".encode()
ARRAY = (
    b'[\n  {"id": "ada", "input": {"name": "Ada"}},\n'
    b'  {"id": "bo", "input": {"name": "Bo"}, "expected": "Bo"}\n]\n'
)


def with_file(folder: Folder, path: str, data: bytes) -> None:
    (folder.path / FILE).unlink()
    folder.write(path, data)
    folder.edit("experiments/hello.yaml", FILE, path)


def bytes_of(folder: Folder, path: str) -> bytes:
    return (folder.path / path).read_bytes()


@pytest.mark.parametrize(
    ("path", "before", "after"),
    [
        (
            "datasets/a.jsonl",
            JSONL,
            JSONL.replace(b'"Ada"}\r\n', b'"Ada","tags":["kept"]}\r\n').replace(
                b'\\u00eb"}}', b'\\u00eb"}, "tags": ["kept"]}'
            ),
        ),
        (
            "datasets/a.csv",
            CSV,
            b"\xef\xbb\xbfid,name,expected,tags\r\n"
            b'ada,"Ada\r\nL.",Ada,kept\r\n'
            b'"bo","Bo","Bo",\r\n'
            b"zo\xc3\xab,  Zo ,,kept\r\n",
        ),
        (
            "datasets/a.yaml",
            YAML,
            YAML.replace(b"no comment\n", b'no comment\n  tags: ["kept"]\n')
            + b'    tags: ["kept"]\n',
        ),
    ],
)
def test_a_tag_is_added_and_removed_again(
    edison: Edison, mini: Folder, path: str, before: bytes, after: bytes
) -> None:
    with_file(mini, path, before)
    mini.edit("prompts/hello.md", "id: hello\n", "id: hello\ninputs: {name: string}\n")
    done = edison(mini, "dataset", "tag", "kept", "--case", "ada", "--case", "zoë")
    assert done.code == 0, done.err
    assert f"  tagged 2 cases in {path}" in done.out
    assert bytes_of(mini, path) == after
    again = edison(mini, "dataset", "tag", "kept", "--case", "ada")
    assert (again.code, "nothing to change" in again.err) == (0, True)
    told = json.loads(edison(mini, "dataset", "tag", "hello", "kept", "--remove", "--json").out)
    assert (told["cases"], told["paths"]) == (["ada", "zoë"], [path])
    shown = json.loads(edison(mini, "dataset", "show", "--json").out)
    cases = shown["experiments"][0]["cases"]
    assert [case["tags"] for case in cases if case["id"] != "bo"] == [[], []]
    with opened(mini.path / ".edison/results.db") as connection:
        rows = connection.execute("select action, entity, after from audit").fetchall()
    assert [row[:2] for row in rows] == [("tag cases", path)] * 2
    assert json.loads(rows[0][2]) == {"tag": "kept", "cases": ["ada", "zoë"], "count": 2}


def test_cases_are_chosen_as_in_show(edison: Edison, mini: Folder) -> None:
    rows = [{"id": f"c{n}", "input": {"name": "word " * n}, "tags": ["even"] if n % 2 == 0 else []}
            for n in range(1, 21)]  # fmt: skip
    mini.write(FILE, "".join(f"{json.dumps(row)}\n" for row in rows))
    words = ("dataset", "tag", "long", "--length", "S", "--with", "even", "--json")
    assert json.loads(edison(mini, *words).out)["cases"] == ["c12", "c14", "c16", "c18", "c20"]


@pytest.mark.parametrize(
    ("path", "before", "change", "after"),
    [
        (
            "datasets/a.jsonl",
            JSONL,
            ("bo", "--set", "name=Bob", "--expected", "Bob", "--tag", "y"),
            JSONL.replace(
                b'{ "id": "bo",  "input": {"name": "Bo"}, "tags": ["x"] }',
                b'{"id": "bo", "input": {"name": "Bob"}, "tags": ["x", "y"], "expected": "Bob"}',
            ),
        ),
        (
            "datasets/a.csv",
            CSV,
            ("bo", "--expected", 'Bo "B", too'),
            CSV.replace(b'"bo","Bo","Bo"', b'"bo","Bo","Bo ""B"", too"'),
        ),
        (
            "datasets/a.yaml",
            YAML,
            ("ada", "--expected", "Hello,\nAda", "--set", "name=A: #1"),
            YAML.replace(b"|\n    Ada\n    # no comment", b"|-\n    Hello,\n    Ada")
            .replace(b"input: {name: Ada, note: 'a # b'}",
                     b'input:\n    name: "A: #1"\n    note: "a # b"'),
        ),
        (
            "datasets/a.yaml",
            YAML,
            ("bo", "--expected", "null"),
            YAML.replace(b"note: ''}} # short", b"note: ''}, \"expected\": \"null\"} # short"),
        ),
        (
            "datasets/a.yaml",
            ARRAY,
            ("ada", "--tag", "first"),
            ARRAY.replace(b'"Ada"}}', b'"Ada"}, "tags": ["first"]}'),
        ),
    ],
)  # fmt: skip
def test_one_case_is_edited(
    edison: Edison, mini: Folder, path: str, before: bytes, change: tuple[str, ...], after: bytes
) -> None:
    with_file(mini, path, before)
    mini.edit("prompts/hello.md", "id: hello\n", "id: hello\ninputs: {name: string}\n")
    done = edison(mini, "dataset", "edit", *change)
    assert done.code == 0, done.err
    assert f"  changed {change[0]} in {path}" in done.out
    assert done.out.startswith(f"{change[0]}\n  ")
    assert bytes_of(mini, path) == after
    assert edison(mini, "validate").code == 0


def test_a_column_that_prompts_rename_is_edited_by_its_new_name(
    edison: Edison, mini: Folder
) -> None:
    with_file(mini, "datasets/a.csv", b"who,expected\nAda,A\nBo,B\n")
    mini.edit(
        "experiments/hello.yaml",
        "dataset: datasets/a.csv",
        "datasets: [{path: datasets/a.csv, map: {who: name}, where: {tags: x}}]",
    )
    project = json.loads(edison(mini, "dataset", "show", "--json").out)
    assert project["experiments"][0]["cases"] == [], "no case has the tag"
    mini.edit("experiments/hello.yaml", ", where: {tags: x}", "")
    shown = json.loads(edison(mini, "dataset", "show", "--json").out)
    case = shown["experiments"][0]["cases"][1]["id"]
    assert edison(mini, "dataset", "edit", case, "--set", "name=Bob").code == 0
    assert mini.read("datasets/a.csv") == "who,expected\nAda,A\nBob,B\n"


def test_a_persons_answer_verifies_a_generated_case(edison: Edison, mini: Folder) -> None:
    written = {"written_by": "small", "seed": 1}
    rows = [{"id": name, "input": {"name": name}, "expected": "?", "metadata": written}
            for name in ("a", "b", "c")]  # fmt: skip
    mini.write(FILE, "".join(f"{json.dumps(row)}\n" for row in rows))
    assert edison(mini, "dataset", "edit", "a", "--expected", "a").code == 0
    assert edison(mini, "dataset", "edit", "b", "--expected", "?").code == 0, "it is confirmed"
    assert edison(mini, "dataset", "edit", "c", "--tag", "t").code == 0
    found = [json.loads(line)["metadata"] for line in mini.read(FILE).splitlines()]
    assert found == [{**written, "verified_by": "person"}] * 2 + [written]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("edit", "ada"), "an editor needs a terminal"),
        (("edit", "adda", "--tag", "x"), "there is no case 'adda'"),
        (("edit", "ada", "--set", "nome=x"), "the case has no input 'nome'"),
        (("edit", "ada", "--set", "nome"), "'nome' is not a value"),
        (("edit", "ada", "--expected", "sk-" + "a1B2" * 12), "this looks like an OpenAI key"),
        (("tag", "t", "--case", "nobody"), "hello has no case 'nobody'"),
        (("tag", " t"), "' t' is not a tag"),
        (("tag", "hello", "t", "u"), "'u' is one word too many"),
        (("tag", "other", "t"), "there is no experiment 'other'"),
        (("remove", "ada"), "removing cases needs a confirmation"),
        (("remove", "ada", "nobody", "--yes"), "there is no case 'nobody'"),
        (("remove", "ada", "bo", "--yes"), "no case would be left in datasets/names.jsonl"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_changes(
    edison: Edison, mini: Folder, words: tuple[str, ...], said: str
) -> None:
    before = mini.read(FILE)
    done = edison(mini, "dataset", *words)
    assert (done.code, said in done.err) == (2, True), done.all
    assert mini.read(FILE) == before


@pytest.mark.parametrize(
    ("path", "before", "gone", "after"),
    [
        ("datasets/a.jsonl", JSONL, ("bo",), JSONL[:56] + JSONL[JSONL.index(b'{"id": "zo'):]),
        ("datasets/a.csv", CSV, ("ada",), CSV.replace(b'ada,"Ada\r\nL.",Ada\r\n', b"")),
        (
            "datasets/a.yaml", YAML, ("bo", "ada"),
            YAML[:9] + b"\n# two more\n" + YAML[YAML.index(b"-   id"):],
        ),
        ("datasets/a.yaml", ARRAY, ("bo",), b'[\n  {"id": "ada", "input": {"name": "Ada"}}\n]\n'),
        ("datasets/a.yaml", ARRAY, ("ada",), b"[\n  " + ARRAY[ARRAY.index(b'{"id": "bo'):]),
    ],
)  # fmt: skip
def test_cases_are_removed(
    edison: Edison, mini: Folder, path: str, before: bytes, gone: tuple[str, ...], after: bytes
) -> None:
    with_file(mini, path, before)
    mini.edit("prompts/hello.md", "id: hello\n", "id: hello\ninputs: {name: string}\n")
    done = edison(mini, "dataset", "remove", *gone, "--yes")
    assert done.code == 0, done.err
    assert bytes_of(mini, path) == after
    assert f"removed {gone[0] if len(gone) == 1 else '2 cases'} from {path}" in done.out
    with opened(mini.path / ".edison/results.db") as connection:
        ((action, told),) = connection.execute("select action, after from audit").fetchall()
    assert (action, json.loads(told)) == ("remove case", {"cases": [*gone], "count": len(gone)})


def test_a_row_that_another_one_repeats_is_not_edited(edison: Edison, mini: Folder) -> None:
    text = b"- {id: a, input: &one {name: Ada}}\n- {id: b, input: *one}\n"
    with_file(mini, "datasets/a.yaml", text)
    done = edison(mini, "dataset", "edit", "a", "--set", "name=Bo")
    assert (done.code, "cannot be edited safely" in done.err) == (2, True)
    assert bytes_of(mini, "datasets/a.yaml") == text


def test_a_case_of_two_files_needs_its_experiment(edison: Edison, mini: Folder) -> None:
    text = mini.read("experiments/hello.yaml")
    text = text.replace("hello\n", "other\n", 1).replace(FILE, "o.csv")
    mini.write("experiments/other.yaml", text)
    mini.write("o.csv", "id,name,expected\nada,Ada,Ada\n")
    done = edison(mini, "dataset", "edit", "ada", "--tag", "t")
    assert (done.code, f"2 files have the case 'ada': {FILE}, o.csv" in done.err) == (2, True)
    done = edison(mini, "dataset", "edit", "ada", "--experiment", "other", "--expected", "A.")
    assert done.code == 0, done.err
    assert mini.read("o.csv") == "id,name,expected\nada,Ada,A.\n"
    mini.write("o.csv", "id,name,expected\nada\n")
    done = edison(mini, "dataset", "remove", "bo", "--yes")
    assert done.code == 0, "a broken file is no hindrance to another"


def test_a_file_that_would_grow_beyond_its_limit_says_so(edison: Edison, mini: Folder) -> None:
    size = len(mini.read(FILE))
    mini.edit(
        "experiments/hello.yaml",
        f"dataset: {FILE}",
        f"datasets: [{{path: {FILE}, limits: {{max_bytes: {size}}}}}]",
    )
    done = edison(mini, "dataset", "edit", "ada", "--tag", "t")
    assert (done.code, "raise limits: {max_bytes: ...}" in done.all) == (2, True), done.all


def test_a_viewer_changes_nothing(edison: Edison, mini: Folder) -> None:
    mini.git("config", "--global", "user.email", "cy@example.org")
    mini.edit(
        "edison.yaml",
        "project: mini\n",
        "project: mini\nmembers:\n  - {email: ada@example.org, role: owner}\n"
        "  - {email: cy@example.org, role: viewer}\n",
    )
    before = mini.read(FILE)
    for words in (("tag", "x"), ("edit", "ada", "--tag", "x"), ("remove", "ada", "--yes")):
        done = edison(mini, "dataset", *words)
        assert (done.code, "editor" in done.err) == (2, True), done.err
    assert mini.read(FILE) == before


def test_a_case_is_edited_in_the_editor_until_it_can_be_read(mini: Folder) -> None:
    mini.write("bad.sh", 'sed "s/Ada/Eve/; s/^expected:.*/expected: [/" "$1" > x; cp x "$1"\n')
    mini.write("good.sh", 'grep -q "Eve" "$1" && sed "s/^expected.*/expected: Eve/" "$1" > x\n'
               'cp x "$1"\n')  # fmt: skip
    mini.write("both.sh", "if [ -e once ]; then sh good.sh $1; else touch once; sh bad.sh $1; fi\n")
    env = {"EDITOR": "sh both.sh", "VISUAL": ""}
    with OnTty(mini.path, "dataset", "edit", "ada", size=(100, 60), env=env) as tty:
        tty.until(lambda text: "Edit it again?" in text)
        tty.press(b"y\n")
        tty.until(lambda text: f"Change {FILE}?" in text)
        tty.press(b"y\n")
        tty.until(lambda text: "changed ada" in text)
        assert tty.end() == 0
    first, second = mini.read(FILE).splitlines()
    assert json.loads(first) == {"id": "ada", "input": {"name": "Eve"}, "expected": "Eve"}
    assert second == '{"id": "bo", "input": {"name": "Bo"}, "expected": "Bo"}'


def test_on_a_terminal_enter_removes_nothing(mini: Folder) -> None:
    before = mini.read(FILE)
    with OnTty(mini.path, "dataset", "remove", "bo", size=(100, 60)) as tty:
        tty.until(lambda text: f"Change {FILE}?" in text)
        assert "bo\n  -id: bo\n  -input:\n  -  name: Bo\n  -expected: Bo" in tty.screen.text
        tty.press(b"\n")
        tty.until(lambda text: "nothing is written" in text)
        assert tty.end() == 0
    assert mini.read(FILE) == before
