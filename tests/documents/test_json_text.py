"""JSON is read strictly, and what is wrong with it has a line and a column."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.documents.json_text import json_marks, parse_json, read_json
from edison_ci.documents.marks import Document, Fault


def fault_in(text: str | bytes) -> Fault:
    with pytest.raises(Fault) as raised:
        read_json(text, "f.json")
    return raised.value


def place_of(fault: Fault) -> str:
    return f"{fault.at[0] + 1}:{fault.at[1] + 1}"


def test_a_value_is_read_as_it_is_written() -> None:
    text = '{"a": [1, -2.5, 1e3, true, false, null, "x\\n\\u00e9\\ud83d\\ude00"], "b": {}}'
    wanted = {"a": [1, -2.5, 1000.0, True, False, None, "x\né😀"], "b": {}}
    assert parse_json(text) == wanted


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_whatever_json_can_say_is_read_back(value: object) -> None:
    assert parse_json(json.dumps(value, indent=1)) == value


# --- keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ('{"a": 1, "a": 2}', "1:10", "key 'a' is given twice, first in column 2"),
        ('{"a": 1,\n "b": 2,\n "a": 3}', "3:2", "key 'a' is given twice, first in line 1"),
        ('{"x": {"c": 1, "c": 2}, "x": 3}', "1:16", "key 'c' is given twice, first in column 8"),
        (
            '[{"a": 1}, {"a": 1, "\\u0061": 2}]',
            "1:21",
            "key 'a' is given twice, first in column 13",
        ),
        (
            '{"a": "\\"a\\": 1", "b": 1, "b": 2}',
            "1:27",
            "key 'b' is given twice, first in column 19",
        ),
    ],
)
def test_a_duplicate_key_is_named_with_both_places(text: str, place: str, message: str) -> None:
    fault = fault_in(text)
    assert (fault.code, place_of(fault), fault.message) == ("duplicate-key", place, message)


def test_lines_of_duplicates_count_from_where_the_text_starts_in_its_file() -> None:
    with pytest.raises(Fault, match="first in line 7"):
        parse_json('{"a": 1,\n"a": 2}', first_line=7)


def test_the_same_key_in_two_objects_is_fine() -> None:
    assert parse_json('[{"a": 1}, {"a": 2}]') == [{"a": 1}, {"a": 2}]


def test_a_duplicate_behind_a_thousand_brackets_is_told_as_depth() -> None:
    assert fault_in("[" * 700 + '{"a": 1, "a": 2}' + "]" * 700).code == "depth"


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_json_number_is_refused_where_it_stands(token: str) -> None:
    fault = fault_in(f'{{"{token}": "{token}",\n "b": [{token}]}}')
    assert (fault.code, place_of(fault), fault.message) == (
        "number",
        "2:8",
        f"{token} is not a JSON number",
    )


@pytest.mark.parametrize("token", ["1e999", "-1e999", "1" + "0" * 350 + ".5"])
def test_a_number_beyond_floating_point_is_refused(token: str) -> None:
    fault = fault_in(f'{{"a": "{token}", "b": {token}}}')
    assert fault.code == "number"
    assert fault.at == (0, len(token) + 15)
    assert fault.message == f"number {token[:20]!r} is out of range"


def test_a_whole_number_has_at_most_400_digits() -> None:
    assert parse_json("9" * 400) == int("9" * 400)
    fault = fault_in("[\n" + "9" * 401 + "]")
    assert (fault.code, place_of(fault)) == ("number", "2:1")


# --- characters -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('"\\ud800"', "1:2"),
        ('"\\udc00"', "1:2"),
        ('["\\ud83d\\ude00", "\\ud83d"]', "1:19"),
        ('"\\ud800\\ud83d\\ude00"', "1:2"),
        ('"\\ud83d\\ude00\\ude00"', "1:14"),
        ('{"\\\\ud800": 1,\n"\\udfff": 2}', "2:2"),
        ('"\\ud800x"', "1:2"),
    ],
)
def test_half_a_surrogate_pair_is_refused_where_it_stands(text: str, place: str) -> None:
    fault = fault_in(text)
    assert (fault.code, place_of(fault)) == ("encoding", place)


def test_a_backslash_before_a_u_is_no_surrogate() -> None:
    assert parse_json('"\\\\ud800"') == "\\ud800"


def test_a_byte_order_mark_is_passed_over() -> None:
    assert read_json(b'\xef\xbb\xbf{"a": 1}', "f.json").value == {"a": 1}


def test_bytes_that_are_not_utf8_and_nul_are_refused() -> None:
    assert place_of(fault_in(b'{"a":\n "\xff"}')) == "2:3"
    assert fault_in(b'{"a": "\0"}').code == "nul-byte"


# --- depth ----------------------------------------------------------------------------------------


def test_fifty_levels_are_read_and_fifty_one_are_not() -> None:
    assert parse_json("[" * 50 + "]" * 50)
    fault = fault_in('{"[[": 1,\n"a": ' + "[" * 50 + "]" * 50 + "}")
    assert (fault.code, fault.message, place_of(fault)) == (
        "depth",
        "nested deeper than 50 levels",
        "2:55",
    )


@pytest.mark.parametrize("text", ["[" * 500_000, "[" * 5_000 + "]" * 5_000, '{"a":' * 100_000])
def test_very_deep_texts_are_refused_like_any_other(text: str) -> None:
    fault = fault_in(text)
    assert fault.code == "depth"
    assert fault.at[1] <= 50 * 5


def test_many_values_side_by_side_are_not_deep() -> None:
    assert parse_json("[" + "[], " * 500 + "[]]") == [[]] * 501


# --- syntax ---------------------------------------------------------------------------------------


SYNTAX_ERRORS = [
    ("{'a': 1}", "1:2", "JSON strings take double quotes"),
    ("{\"a\": 'b'}", "1:7", "JSON strings take double quotes"),
    ('{"a": 1,\n}', "1:8", "remove it"),
    ('{"a": [1, ]}', "1:9", "remove it"),
    ('{"a": 1} {"b": 2}', "1:10", "a file, or a line of a .jsonl file, holds one value"),
    ('{"a": 1,\n // no\n "b": 2}', "2:2", "JSON has no comments"),
    ("", "1:1", "write a value; texts need double quotes"),
    ('{"a": 1', "1:8", "check brackets, commas and quotes"),
    ('{"a": "b', "1:7", "end the text with a quote"),
    ('{"a": "\x01"}', "1:8", "write it as an escape, such as \\n or \\t"),
    ('{"a": tru}', "1:7", "write a value; texts need double quotes"),
    ('{"a": 01}', "1:8", "check brackets, commas and quotes"),
    ('{"a" 1}', "1:6", "check brackets, commas and quotes"),
    ("{a: 1}", "1:2", "keys need double quotes"),
    ('{"a": .5}', "1:7", "write a value; texts need double quotes"),
    ('"\\x41"', "1:2", "write a backslash as \\\\"),
]


def test_a_syntax_error_has_its_place_and_a_hint(subtests: pytest.Subtests) -> None:
    for text, place, hint in SYNTAX_ERRORS:
        with subtests.test(text=text):
            fault = fault_in(text)
            assert (fault.code, place_of(fault), fault.hint) == ("syntax", place, hint)
            assert fault.message.startswith("not valid JSON: ")


# --- places ---------------------------------------------------------------------------------------

PLACED = '{\n "a": 1, "é": [true,\n  {"b\\"": "x, ]}"}],\n "c" : {}\n}\n'


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        ((), "1:1", "1:1"),
        (("a",), "2:7", "2:2"),
        (("é", 0), "2:16", "2:16"),
        (("é", 1), "3:3", "3:3"),
        (("é", 1, 'b"'), "3:11", "3:4"),
        (("c",), "4:8", "4:2"),
    ],
)
def test_every_value_and_key_knows_its_place(
    path: tuple[str | int, ...], value: str, key: str
) -> None:
    document = read_json(PLACED, "f.json")
    assert str(document.locate(path)) == f"f.json:{value}"
    assert str(document.locate(path, key=True)) == f"f.json:{key}"


def test_a_row_counts_its_lines_from_where_it_stands() -> None:
    document = Document("f.jsonl", None, json_marks('{"a": [1, 2]}'), 12)
    assert str(document.locate(("a", 1))) == "f.jsonl:12:11"


@given(
    st.recursive(
        st.integers() | st.text() | st.none(),
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
        ),
        max_leaves=12,
    )
)
def test_at_the_place_of_a_value_stands_the_value(value: object) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False)
    document = read_json(text, "f.json")
    lines = text.split("\n")

    def check(part: object, path: tuple[str | int, ...]) -> None:
        where = document.locate(path)
        assert where.line is not None
        assert where.column is not None
        rest = "\n".join([lines[where.line - 1][where.column - 1 :], *lines[where.line :]])
        found, _ = json.JSONDecoder().raw_decode(rest)
        assert found == part
        if isinstance(part, dict):
            for key, item in part.items():
                check(item, (*path, key))
        elif isinstance(part, list):
            for index, item in enumerate(part):
                check(item, (*path, index))

    check(value, ())
