"""Rows of every format are read one at a time; a bad one is reported and the next one is read."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edison_ci.config.experiment import DatasetEntry
from edison_ci.config.rows import MAX_ROW_BYTES, Columns, RowReader
from edison_ci.documents.files import WorkingTree

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.errors import Problem


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    return Rows(tmp_path)


class Rows:
    """A folder with one dataset, and the ways to read it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.problems: list[Problem] = []

    def read(
        self, name: str, data: str | bytes, types: dict[str, str] | None = None, **entry: Any
    ) -> list[Columns]:
        (self.folder / name).write_bytes(data.encode() if isinstance(data, str) else data)
        self.problems = []
        dataset = DatasetEntry.model_validate({"path": name, **entry})
        self.reader = RowReader(WorkingTree(self.folder), dataset, types or {}, self.problems)
        return list(self.reader)

    @property
    def said(self) -> list[str]:
        return [str(problem) for problem in self.problems]


# --- JSONL ----------------------------------------------------------------------------------------


def test_jsonl_rows_are_objects_one_a_line(rows: Rows) -> None:
    assert rows.read("d.jsonl", '{"a": 1}\n{"b": [true, null]}\n') == [
        {"a": 1},
        {"b": [True, None]},
    ]
    assert (rows.reader.number, rows.reader.line, rows.said) == (2, 2, [])


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": 1}\n{"a": 2}',
        b'{"a": 1}\r\n{"a": 2}\r\n',
        b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n',
        b'\n\n{"a": 1}\n  \t\n{"a": 2}\n\r\n\n',
        b'  {"a": 1}  \n\t{"a": 2}\t\n',
    ],
)
def test_line_ends_byte_order_mark_and_blank_lines_do_not_matter(rows: Rows, data: bytes) -> None:
    assert rows.read("d.jsonl", data) == [{"a": 1}, {"a": 2}]
    assert rows.reader.number == 2


BAD_LINES = [
    ("{", 2, "not valid JSON"),
    ('{"a": 1,}', 8, "nothing follows this comma"),
    ("{'a': 1}", 2, "not valid JSON"),
    ('{"a": 1} {"a": 2}', 10, "not valid JSON"),
    ('{"a": NaN}', 7, "NaN is not a JSON number"),
    ('{"a": -Infinity}', 7, "-Infinity is not a JSON number"),
    ('{"a": 1e999}', 7, "out of range"),
    ('{"a": 1, "a": 2}', 10, "key 'a' is given twice"),
    ('{"i": {"a": 1, "a": 2}}', 16, "key 'a' is given twice"),
    ('{"a": "\\ud800"}', 8, "a lone surrogate"),
    ('{"a": ' + "[" * 60 + "]" * 60 + "}", None, "nested deeper than 50"),
    ("[1, 2]", 1, "the row is not an object"),
    ('"text"', 1, "the row is not an object"),
    ("null", 1, "the row is not an object"),
]


def test_a_bad_jsonl_row_has_its_number_line_and_column(
    subtests: pytest.Subtests, rows: Rows
) -> None:
    for line, column, message in BAD_LINES:
        with subtests.test(line=line):
            found = rows.read("d.jsonl", f'\n{{"a": 0}}\n\n{line}\n{{"a": 9}}\n')
            assert found == [{"a": 0}, {"a": 9}], "the next row is read all the same"
            (problem,) = rows.problems
            assert problem.message.startswith("row 2: ") and message in problem.message
            assert problem.where.line == 4
            assert column is None or problem.where.column == column


@pytest.mark.parametrize(
    ("data", "where", "message"),
    [
        (b'{"a": 1}\n{"a": "\xff"}\n', "d.jsonl:2:8", "row 2: byte 0xff is not UTF-8"),
        (b'{"a": "\xe4\xb8\x80", "b": "\xc3"}\n', "d.jsonl:1:18", "row 1: byte 0xc3 is not UTF-8"),
        (b'{"a": 1}\n{"a": "\0"}\n', "d.jsonl:2:8", "row 2: NUL byte"),
    ],
)
def test_bytes_that_are_no_text_are_placed_in_their_row(
    rows: Rows, data: bytes, where: str, message: str
) -> None:
    rows.read("d.jsonl", data)
    assert len(rows.said) == 1
    assert rows.said[0].startswith(f"{where}: {message}")


def test_a_line_of_a_megabyte_is_read_and_a_longer_one_is_not(rows: Rows) -> None:
    frame = len('{"a": ""}')
    fits = '{"a": "' + "x" * (MAX_ROW_BYTES - frame) + '"}'
    assert len(rows.read("d.jsonl", fits + "\n")) == 1
    started = time.process_time()
    found = rows.read("d.jsonl", '{"a": "' + "x" * 9_000_000 + '"}\n{"a": 2}\n')
    assert time.process_time() - started < 2
    assert "longer than 1,000,000 bytes" in rows.said[0]
    assert found == [{"a": 2}]


def test_places_inside_a_row_are_found(rows: Rows) -> None:
    rows.read("d.jsonl", '\n{"id": "x", "input": {"name":  "Ada"}}\n')
    locate = rows.reader.locate
    assert str(locate(("id",))) == "d.jsonl:2:8"
    assert str(locate(("input", "name"))) == "d.jsonl:2:32"
    assert str(locate(("input", "name"), key=True)) == "d.jsonl:2:23"
    assert str(locate(("input", "gone"))) == "d.jsonl:2:22"
    assert str(locate(())) == "d.jsonl:2:1"


# --- CSV ------------------------------------------------------------------------------------------


def test_csv_columns_are_inputs_except_the_reserved_ones(rows: Rows) -> None:
    found = rows.read(
        "d.csv",
        "id,question,expected,tags,difficulty,cluster,metadata,input\n"
        'a,"What, ""why""?\nand how",yes,x;y|z; ,3,c,m,i\n'
        "b,,,,,,,\n",
    )
    assert found == [
        {
            "id": "a",
            "input": {"question": 'What, "why"?\nand how', "metadata": "m", "input": "i"},
            "expected": "yes",
            "tags": ["x", "y", "z"],
            "difficulty": 3,
            "cluster": "c",
        },
        {"id": "b", "input": {"question": "", "metadata": "", "input": ""}, "tags": []},
    ]
    assert rows.said == []


def test_csv_cells_are_text_unless_inputs_say_otherwise(rows: Rows) -> None:
    types = {"n": "number", "b": "boolean", "l": "list", "o": "object", "s": "string"}
    (row,) = rows.read("d.csv", 'n,b,l,o,s,u\n1.5,true,"[1, 2]","{""k"": 1}",01,02\n', types)
    assert row["input"] == {
        "n": 1.5, "b": True, "l": [1, 2], "o": {"k": 1}, "s": "01", "u": "02",
    }  # fmt: skip
    (empty,) = rows.read("d.csv", "n,b,s\n,,\n", types)
    assert empty["input"] == {"s": ""}, "an empty cell of another type is a value the case lacks"


WRONG_CELLS = [
    ("abc", "number"), ("true", "number"), ("NaN", "number"), ("1e999", "number"),
    ("010", "number"), ("yes", "boolean"), ("1", "boolean"), ("{}", "list"), ("[]", "object"),
    ('"[1,"', "list"), ('"' + "[" * 9999 + '"', "list"), ('"{""a"": 1, ""a"": 2}"', "object"),
]  # fmt: skip


def test_a_csv_cell_of_the_wrong_type_has_its_row_line_and_column(
    subtests: pytest.Subtests, rows: Rows
) -> None:
    for cell, kind in WRONG_CELLS:
        with subtests.test(cell=cell, kind=kind):
            found = rows.read("d.csv", f'a,b\n"x\ny",1\nlong,{cell}\n', {"b": kind})
            assert len(found) <= 1
            assert rows.problems[-1].message.startswith("row 2: b is ")
            assert rows.problems[-1].message.endswith(f"not a {kind}")
            assert str(rows.problems[-1].where) == "d.csv:4:6"


def test_a_csv_difficulty_is_a_number_or_empty(rows: Rows) -> None:
    found = rows.read("d.csv", "q,difficulty\na,2\nb,\nc,hard\n")
    assert [row.get("difficulty") for row in found] == [2, None]
    assert rows.said == [
        "d.csv:4:3: row 3: difficulty is 'hard', not a number (written as in JSON)"
    ]


WRONG_FILES = [
    ("", "the file is empty"),
    ("\n\n", "the file is empty"),
    ("a,,c\n1,2,3\n", "column 2 has no name"),
    ("a,b,a\n1,2,3\n", "column 'a' is named twice"),
    ("a, a\n1,2\n", "column 'a' is named twice"),
    ("a;b\n1;2\n", "one column only"),
    ("a\tb\n1\t2\n", "one column only"),
    ('a,b\n"open,2\n', "not valid CSV"),
    ('a,b\n"x"y,2\n', "not valid CSV"),
]


def test_a_csv_file_that_makes_no_sense_is_refused(subtests: pytest.Subtests, rows: Rows) -> None:
    for data, message in WRONG_FILES:
        with subtests.test(data=data):
            assert rows.read("d.csv", data) == []
            assert len(rows.said) == 1 and message in rows.said[0]


def test_ragged_csv_rows_are_reported_one_by_one(rows: Rows) -> None:
    found = rows.read("d.csv", "a,b\n1,2\n3\n\n4,5,6\n7,8\n")
    assert [row["input"] for row in found] == [{"a": "1", "b": "2"}, {"a": "7", "b": "8"}]
    assert [problem.message.split(":")[0] for problem in rows.problems] == ["row 2", "row 3"]
    assert [problem.where.line for problem in rows.problems] == [3, 5]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_csv_with_byte_order_mark_and_quoted_newlines_is_fine(rows: Rows, end: str) -> None:
    text = f'a,b{end}"one{end}two",x{end}y,z{end}'
    found = rows.read("d.csv", b"\xef\xbb\xbf" + text.encode())
    assert [row["input"] for row in found] == [
        {"a": f"one{end}two", "b": "x"},
        {"a": "y", "b": "z"},
    ]
    assert rows.reader.line == 4


# --- YAML -----------------------------------------------------------------------------------------


def test_yaml_rows_are_maps_in_a_list(rows: Rows) -> None:
    data = (
        "# cases\n- id: a\n  input: {q: 'no', n: 010, d: 2024-01-01}\n\n"
        "- {q: yes, tags: [x]}\n-\n  id: c\n"
    )
    for name in ("d.yaml", "d.yml"):
        assert rows.read(name, data) == [
            {"id": "a", "input": {"q": "no", "n": "010", "d": "2024-01-01"}},
            {"q": "yes", "tags": ["x"]},
            {"id": "c"},
        ]
        assert (rows.reader.number, rows.reader.line) == (3, 7)


@pytest.mark.parametrize(
    ("row", "where", "message"),
    [
        ("- text", "d.yaml:2:3", "row 2: the row is not a map"),
        ("- [1]", "d.yaml:2:3", "row 2: the row is not a map"),
        ("-", "d.yaml:2:", "row 2: the row is not a map"),
        ("- {a: 1, a: 2}", "d.yaml:2:10", "row 2: key 'a' is given twice"),
    ],
)
def test_a_bad_yaml_row_has_its_number_line_and_column(
    rows: Rows, row: str, where: str, message: str
) -> None:
    found = rows.read("d.yaml", f"- {{a: 0}}\n{row}\n- {{a: 9}}\n")
    assert found == [{"a": 0}, {"a": 9}]
    assert len(rows.said) == 1 and rows.said[0].startswith(where) and message in rows.said[0]


def test_a_yaml_file_that_is_no_list_is_refused(rows: Rows) -> None:
    assert rows.read("d.yaml", "a: 1\n") == []
    assert len(rows.said) == 1 and rows.said[0].startswith("d.yaml:1:1: ")
    assert rows.read("d.yaml", "") == []


# --- map ------------------------------------------------------------------------------------------


def test_map_renames_columns_of_every_format(rows: Rows) -> None:
    names = {"Question Text": "question"}
    (flat,) = rows.read("d.jsonl", '{"id": "a", "Question Text": "q", "other": 1}\n', map=names)
    assert flat == {"id": "a", "question": "q", "other": 1}
    (nested,) = rows.read("d.jsonl", '{"input": {"Question Text": "q", "other": 1}}\n', map=names)
    assert nested == {"input": {"question": "q", "other": 1}}
    (cells,) = rows.read("d.csv", "Question Text,other\nq,1\n", map=names)
    assert cells == {"input": {"question": "q", "other": "1"}}
    (yaml,) = rows.read("d.yaml", "- {Question Text: q}\n", map=names)
    assert yaml == {"question": "q"}


def test_map_can_make_a_column_the_id_or_the_expected_output(rows: Rows) -> None:
    (row,) = rows.read("d.csv", "key,a,q\nk1,yes,why\n", map={"key": "id", "a": "expected"})
    assert row == {"id": "k1", "expected": "yes", "input": {"q": "why"}}


def test_map_may_swap_two_columns(rows: Rows) -> None:
    (row,) = rows.read("d.jsonl", '{"a": 1, "b": 2}\n', map={"a": "b", "b": "a"})
    assert row == {"b": 1, "a": 2}


def test_map_may_not_make_two_columns_one(rows: Rows) -> None:
    assert rows.read("d.csv", "a,b\n1,2\n", map={"a": "b"}) == []
    assert rows.said == [
        "d.csv:1:1: map makes two columns 'b' (rename the other column in map too)"
    ]
    found = rows.read("d.jsonl", '{"a": 1, "b": 2}\n{"a": 3}\n{"input": {"b": 1, "a": 2}}\n',
                      map={"a": "b"})  # fmt: skip
    assert found == [{"b": 3}]
    assert [problem.message for problem in rows.problems] == [
        "row 1: map makes two columns 'b'",
        "row 3: map makes two columns 'b'",
    ]


def test_map_names_only_columns_that_a_csv_has(rows: Rows) -> None:
    assert rows.read("d.csv", "a,b\n1,2\n", map={"c": "x"}) == []
    assert rows.said == ["d.csv:1:1: map names a column 'c' that is not there (columns: a, b)"]


# --- limits and problems --------------------------------------------------------------------------

FORMATS = {
    "d.jsonl": ("", '{{"n": {}}}\n'),
    "d.csv": ("n\n", "{}\n"),
    "d.yaml": ("", "- {{n: {}}}\n"),
}


def dataset(name: str, count: int) -> str:
    head, row = FORMATS[name]
    return head + "".join(row.format(number) for number in range(count))


@pytest.mark.parametrize("name", FORMATS)
def test_a_thousand_rows_are_fine_and_one_more_is_not(rows: Rows, name: str) -> None:
    assert len(rows.read(name, dataset(name, 1_000))) == 1_000
    assert rows.said == []
    assert len(rows.read(name, dataset(name, 1_001))) == 1_000
    line = 1_002 if name == "d.csv" else 1_001
    assert rows.said == [
        f"{name}:{line}:1: {name} has more than 1,000 rows "
        "(raise limits: {max_rows: ...} of the dataset in the experiment)"
    ]
    raised = {"max_rows": 1_001}
    assert len(rows.read(name, dataset(name, 1_001), limits=raised)) == 1_001


def test_ten_megabytes_are_fine_and_one_byte_more_is_not(rows: Rows) -> None:
    pad = " " * 99_000 + "\n"
    data = ('{"n": 1}' + pad) * 100
    data += "\n" * (10_000_000 - len(data))
    assert len(rows.read("d.jsonl", data)) == 100
    assert rows.said == []
    assert rows.read("d.jsonl", data + "\n") == []
    assert rows.said == [
        "d.jsonl:1:1: d.jsonl has 10,000,001 bytes; at most 10,000,000 "
        "(raise limits: {max_bytes: ...} of the dataset in the experiment)"
    ]
    assert len(rows.read("d.jsonl", data + "\n", limits={"max_bytes": 10_000_001})) == 100


def test_bad_rows_count_towards_the_limit(rows: Rows) -> None:
    """Otherwise ten megabytes of garbage would be parsed to the end, line by line."""
    for name, data in (
        ("d.jsonl", "x\n" * 2_000_000),
        ("d.csv", "n\n" + "x\n" * 2_000_000),
        ("d.csv", "n,m\n" + "x\n" * 2_000_000),
        ("d.yaml", "- x\n" * 1_000_000),
    ):
        started = time.process_time()
        assert rows.read(name, data, {"n": "number"}) == []
        assert time.process_time() - started < 3
        assert rows.reader.number == 1_001


def test_only_the_first_twenty_problems_of_a_file_are_kept(rows: Rows) -> None:
    rows.read("d.jsonl", "x\n" * 50)
    assert len(rows.problems) == 20
    assert rows.reader.suppressed == 30
    assert rows.problems[-1].message.startswith("row 20: ")


def test_a_dataset_that_is_not_there_is_one_problem(rows: Rows) -> None:
    dataset = DatasetEntry.model_validate({"path": "gone.jsonl"})
    problems: list[Problem] = []
    assert list(RowReader(WorkingTree(rows.folder), dataset, {}, problems)) == []
    assert [str(problem) for problem in problems] == [
        "gone.jsonl: gone.jsonl does not exist (create it, or fix the path)"
    ]


@settings(deadline=None)
@given(
    data=st.binary(max_size=200) | st.text(max_size=200).map(str.encode),
    name=st.sampled_from(["d.jsonl", "d.csv", "d.yaml"]),
)
def test_any_bytes_are_read_or_reported(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, name: str
) -> None:
    reader = Rows(tmp_path_factory.getbasetemp())
    found = reader.read(name, data, {"a": "number"})
    assert all(isinstance(row, dict) for row in found)
    assert len(found) + len(reader.problems) <= data.count(b"\n") + data.count(b"\r") + 30
