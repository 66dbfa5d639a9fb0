"""CSV is read row by row, with the line and column of every cell."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.documents.csv_text import CsvRow, CsvTable
from edison_ci.documents.decoding import text_lines
from edison_ci.documents.marks import Fault


def table(text: str | bytes) -> CsvTable:
    data = text.encode() if isinstance(text, str) else text
    return CsvTable(text_lines(io.BytesIO(data), longest=1_000_000))


def rows(text: str | bytes) -> list[CsvRow]:
    return list(table(text).rows())


def fault_in(text: str | bytes) -> Fault:
    with pytest.raises(Fault) as raised:
        rows(text)
    return raised.value


def place_of(fault: Fault) -> str:
    return f"{fault.at[0] + 1}:{fault.at[1] + 1}"


def test_the_first_line_names_the_columns() -> None:
    read = table("id, name ,expected\na,b,c\n")
    assert read.header == ["id", "name", "expected"]
    assert [(row.number, row.line, row.fields) for row in read.rows()] == [(1, 1, ["a", "b", "c"])]


def test_cells_are_texts_just_as_they_stand() -> None:
    (row,) = rows('a,b,c,d\n 1 ,"x, ""y""",,=1+1\n')
    assert row.fields == [" 1 ", 'x, "y"', "", "=1+1"]


def test_empty_lines_are_passed_over_but_counted() -> None:
    read = rows("\na,b\n\n1,2\n\n\n3,4\n")
    assert [(row.number, row.line) for row in read] == [(1, 3), (2, 6)]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_quoted_cell_may_have_lines_and_the_next_row_keeps_its_number(end: str) -> None:
    text = end.join(["id,text", 'a,"one', "two", '"', "b,three", ""])
    first, second = rows(text)
    assert (first.line, first.fields) == (1, ["a", f"one{end}two{end}"])
    assert (second.number, second.line, second.fields) == (2, 4, ["b", "three"])


def test_a_byte_order_mark_is_no_part_of_the_first_column() -> None:
    assert table(b"\xef\xbb\xbfid,name\n").header == ["id", "name"]


def test_a_last_line_without_an_end_is_read() -> None:
    assert [row.fields for row in rows("a,b\n1,2")] == [["1", "2"]]


# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "message", "hint"),
    [
        ("1", "1 field, the header has 2", "an empty field needs a separator too"),
        ("1,2,3", "3 fields, the header has 2", "quote fields that contain the separator"),
    ],
)
def test_a_ragged_row_is_told_and_the_next_is_read(row: str, message: str, hint: str) -> None:
    first, ragged, last = rows(f"a,b\n0,0\n{row}\n5,6\n")
    assert first.fault is None
    assert ragged.fault is not None
    assert (ragged.fault.code, ragged.fault.message, ragged.fault.hint) == (
        "ragged-row",
        message,
        hint,
    )
    assert place_of(ragged.fault) == "3:1"
    assert (last.number, last.fields, last.fault) == (3, ["5", "6"], None)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ('a,b\n1,"x\n2,3\n', "2:1", "unexpected end of data"),
        ('a,b\n1,2\n3,"x"y\n', "3:1", "',' expected after '\"'"),
        ('"a\n', "1:1", "unexpected end of data"),
        ("a,b\n1,2\r3,4\n", "2:1", "new-line character seen in unquoted field"),
    ],
)
def test_broken_quotes_are_placed_where_their_row_starts(
    text: str, place: str, message: str
) -> None:
    fault = fault_in(text)
    assert (fault.code, place_of(fault)) == ("syntax", place)
    assert message in fault.message
    assert fault.hint


def test_rows_before_a_broken_one_are_still_read() -> None:
    read = table('a,b\n1,2\n3,"\n').rows()
    assert next(read).fields == ["1", "2"]
    with pytest.raises(Fault):
        next(read)


def test_an_open_quote_is_noticed_before_the_whole_file_is_in_memory() -> None:
    fault = fault_in('a,b\n1,"' + "x\n" * 600_000)
    assert (fault.code, place_of(fault), fault.hint) == ("size", "2:1", "is a quote left open?")


def test_bad_bytes_are_told_with_line_and_column() -> None:
    fault = fault_in("a,b\né,".encode() + b"\xff\n")
    assert (fault.code, place_of(fault)) == ("encoding", "2:3")
    fault = fault_in(b'a,b\n1,"x\ny\0"\n')
    assert (fault.code, place_of(fault)) == ("nul-byte", "3:2")


# --- headers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", "1:1", "the file is empty"),
        ("\n\n", "1:1", "the file is empty"),
        ("a,,b\n", "1:3", "column 2 has no name"),
        ("a, ,b\n", "1:3", "column 2 has no name"),
        ("a,b,\n", "1:5", "column 3 has no name"),
        (",,\n", "1:1", "column 1 has no name"),
        ("\nid,b,id\n", "2:6", "column 'id' is named twice"),
        ('"a, b",x,x\n', "1:10", "column 'x' is named twice"),
        ("a," + "x" * 201 + "\n", "1:3", "column 2 has a name of more than 200 characters"),
        ("id;name;expected\n1;2;3\n", "1:1", "one column only"),
        ("id\tname\n", "1:1", "one column only"),
    ],
)
def test_a_header_that_names_no_columns_is_refused(text: str, place: str, message: str) -> None:
    fault = fault_in(text)
    assert (place_of(fault), fault.message) == (place, message)


def test_semicolons_between_columns_get_a_hint() -> None:
    assert fault_in("id;name\n").hint == "separate columns with commas"


def test_one_column_is_a_table_too() -> None:
    assert [row.fields for row in rows("question\nwhy?\n")] == [["why?"]]


def test_a_thousand_columns_are_enough() -> None:
    assert len(table(",".join(f"c{n}" for n in range(1_000)) + "\n").header) == 1_000
    fault = fault_in(",".join(f"c{n}" for n in range(100_000)) + "\n")
    assert fault.message == "100,000 columns; at most 1,000"


# --- places ---------------------------------------------------------------------------------------


def test_every_cell_knows_its_place() -> None:
    (_, row, last) = rows('a,b,c\n1,2,3\n"x, ""y""",é,z\n"1\n,2",3,"4\n"\n')
    assert [row.place(n) for n in range(3)] == [(2, 0), (2, 11), (2, 13)]
    assert [last.place(n) for n in range(3)] == [(3, 0), (4, 4), (4, 6)]


def test_an_empty_last_cell_has_a_place_too() -> None:
    (row,) = rows("a,b\n1,")
    assert row.place(1) == (1, 2)


CELLS = st.lists(
    st.lists(st.text(alphabet='ab,"\né ', max_size=5), min_size=3, max_size=3),
    min_size=1,
    max_size=4,
)


@given(CELLS)
def test_what_is_written_is_read_back_and_found_again(cells: list[list[str]]) -> None:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([["x", "y", "z"], *cells])
    text = buffer.getvalue()
    lines = text.split("\n")
    read = rows(text)
    assert [row.fields for row in read] == cells
    for row in read:
        for index, cell in enumerate(row.fields):
            line, column = row.place(index)
            written = '"' + cell.replace('"', '""') + '"'
            rest = "\n".join([lines[line][column:], *lines[line + 1 :]])
            assert rest.startswith(written)
