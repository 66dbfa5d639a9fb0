"""YAML is read as if it were JSON with comments, and every value knows its place."""

from __future__ import annotations

import io
from itertools import product

import pytest

from edison_ci.documents.marks import Document, Fault, Json
from edison_ci.documents.yaml_text import YamlLimits, read_yaml, stream_yaml_list


def value_of(text: str | bytes) -> Json:
    document = read_yaml(text, "f.yaml")
    assert document.problems == []
    return document.value


def fault_in(text: str | bytes, *, limits: YamlLimits | None = None) -> Fault:
    with pytest.raises(Fault) as raised:
        read_yaml(text, "f.yaml", limits=limits)
    return raised.value


def said(text: str | bytes) -> list[str]:
    """Return what is wrong with a text that can be read all the same."""
    return [str(problem) for problem in read_yaml(text, "f.yaml").problems]


def place_of(fault: Fault) -> str:
    return f"{fault.at[0] + 1}:{fault.at[1] + 1}"


# --- scalars --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["true", "false", "null", "~", ""])
def test_only_the_words_of_json_are_constants(text: str) -> None:
    wanted = {"true": True, "false": False}.get(text)
    assert value_of(f"a: {text}\n") == {"a": wanted}


NUMBERS = [
    ("0", 0),
    ("-0", 0),
    ("7", 7),
    ("-42", -42),
    ("9007199254740993", 9007199254740993),
    ("0.5", 0.5),
    ("-2.25", -2.25),
    ("1e3", 1000.0),
    ("1E3", 1000.0),
    ("1e+3", 1000.0),
    ("25e-2", 0.25),
    ("1.5e2", 150.0),
    ("1e-999", 0.0),
]


def test_numbers_are_written_as_in_json(subtests: pytest.Subtests) -> None:
    for text, wanted in NUMBERS:
        with subtests.test(text=text):
            value = value_of(f"a: {text}\n")
            assert value == {"a": wanted}
            assert isinstance(value, dict)
            assert type(value["a"]) is type(wanted)


PLAIN_TEXTS = [
    *("no", "No", "yes", "on", "off", "y", "n", "True", "TRUE", "False", "Null", "NULL"),
    *("010", "0o17", "0x1F", "0b1", "1_000", "1,000", "+1", ".5", "5.", "1.e3", "1e", "e3"),
    *("1:30", "190:20:30", "2026-01-01", "2026-01-01 10:00:00", "1.2.3", "12e03x", "1 2"),
    *(".inf", "-.inf", ".nan", ".NaN", "NaN", "Infinity", "-Infinity", "\u0661", "--1", "none"),
]


def test_everything_else_is_a_text(subtests: pytest.Subtests) -> None:
    for text in PLAIN_TEXTS:
        with subtests.test(text=text):
            assert value_of(f"a: {text}\n") == {"a": text}


@pytest.mark.parametrize("text", ["3", "true", "null", "~", "1e3", ""])
def test_what_is_quoted_is_a_text(text: str) -> None:
    assert value_of(f"a: '{text}'\nb: \"{text}\"\n") == {"a": text, "b": text}


def test_what_stands_in_a_block_is_a_text() -> None:
    assert value_of("a: |\n  3\nb: >-\n  true\n") == {"a": "3\n", "b": "true"}


def test_keys_are_texts_whatever_they_look_like() -> None:
    text = "1: a\n1.5: b\ntrue: c\nnull: d\n2026-01-01: e\nno: f\n"
    wanted = {"1": "a", "1.5": "b", "true": "c", "null": "d", "2026-01-01": "e", "no": "f"}
    assert value_of(text) == wanted


def test_a_number_too_large_for_json_is_named_with_its_place() -> None:
    assert said("a: 1\nb: [2, 1e999]\n") == [
        "f.yaml:2:8: number '1e999' is too large (quote it if it is a text)"
    ]


def test_a_whole_number_has_at_most_400_digits() -> None:
    assert value_of("a: " + "9" * 400) == {"a": int("9" * 400)}
    assert said("a: " + "9" * 401) == [
        "f.yaml:1:4: number has too many digits (quote it if it is a text)"
    ]


# --- keys -----------------------------------------------------------------------------------------


def test_each_duplicate_key_is_named_with_both_lines() -> None:
    text = "a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\na: 2\n'a': 3\n"
    assert said(text) == [
        "f.yaml:5:3: key 'c' is given twice, first in line 3 (remove one of them)",
        "f.yaml:6:1: key 'a' is given twice, first in line 1 (remove one of them)",
        "f.yaml:7:1: key 'a' is given twice, first in line 1 (remove one of them)",
    ]


def test_a_duplicate_on_the_same_line_is_named_with_its_column() -> None:
    assert said("a: {b: 1, b: 2}\n") == [
        "f.yaml:1:11: key 'b' is given twice, first in column 5 (remove one of them)"
    ]


def test_the_first_of_two_equal_keys_counts() -> None:
    assert read_yaml("a: 1\na: 2\n", "f.yaml").value == {"a": 1}


def test_lines_of_duplicates_count_from_where_the_text_starts_in_its_file() -> None:
    document = read_yaml("a: 1\na: 2\n", "f.md", first_line=2)
    assert [str(p) for p in document.problems] == [
        "f.md:3:1: key 'a' is given twice, first in line 2 (remove one of them)"
    ]


def test_a_hundred_duplicates_are_enough() -> None:
    assert len(said("a: 1\n" * 500)) == 100


@pytest.mark.parametrize(
    ("text", "place"), [("? [a]\n: b\n", "1:3"), ("x: 1\n? {a: 1}\n: b\n", "2:3")]
)
def test_a_key_that_is_no_text_is_refused(text: str, place: str) -> None:
    fault = fault_in(text)
    assert (fault.code, place_of(fault)) == ("key", place)


def test_an_alias_is_no_key() -> None:
    fault = fault_in("a: &a b\n*a : c\n")
    assert (fault.code, place_of(fault)) == ("key", "2:1")


def test_merge_keys_are_refused() -> None:
    fault = fault_in("a: &a {x: 1}\nb:\n  <<: *a\n")
    assert (fault.code, fault.message, place_of(fault)) == (
        "merge-key",
        "merge keys (<<) are not allowed",
        "3:3",
    )


def test_a_quoted_merge_key_is_just_a_text() -> None:
    assert value_of("'<<': 1\n") == {"<<": 1}


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: !!python/object/apply:os.system [id]\n", "1:4"),
        ("a: 1\nb: !!str 2\n", "2:4"),
        ("!include x\n", "1:1"),
        ("- ! x\n", "1:3"),
        ("!!map {a: 1}\n", "1:1"),
        ("a: {!x b: 1}\n", "1:5"),
        ("a: !<tag:yaml.org,2002:int> 1\n", "1:4"),
        ("%TAG !e! tag:e.example,2000:\n---\na: !e!x 1\n", "3:4"),
    ],
)
def test_tags_are_refused(text: str, place: str) -> None:
    fault = fault_in(text)
    assert (fault.code, place_of(fault)) == ("tag", place)


def test_a_long_tag_does_not_fill_the_report() -> None:
    assert len(fault_in("!" + "t" * 100_000 + " a\n").message) < 200


def test_a_second_document_is_refused_where_it_starts() -> None:
    fault = fault_in("a: 1\n---\nb: 2\n")
    assert (fault.code, place_of(fault)) == ("documents", "2:1")


def test_the_marks_of_one_document_are_fine() -> None:
    assert value_of("%YAML 1.2\n---\na: 1\n...\n") == {"a": 1}


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "--- # nothing\n...\n"])
def test_an_empty_file_is_null(text: str) -> None:
    assert value_of(text) is None


@pytest.mark.parametrize("width", [1, 3])
def test_fifty_levels_are_read_and_fifty_one_are_not(width: int) -> None:
    item = ", x" * (width - 1)
    assert value_of("[" * 50 + "x" + item + "]" * 50)
    fault = fault_in("[" * 51 + "x" + item + "]" * 51)
    assert (fault.code, fault.message, place_of(fault)) == (
        "depth",
        "nested deeper than 50 levels",
        "1:51",
    )


def test_depth_counts_in_blocks_too() -> None:
    lines = ["  " * level + "a:\n" for level in range(51)]
    assert value_of("".join(lines[:50]))
    fault = fault_in("".join(lines) + "  " * 51 + "a: 1\n")
    assert (fault.code, place_of(fault)) == ("depth", "51:101")


def test_a_document_has_a_limited_number_of_values() -> None:
    limits = YamlLimits(nodes=10)
    assert read_yaml("- a\n" * 9, "f.yaml", limits=limits).value == ["a"] * 9
    fault = fault_in("- a\n" * 10, limits=limits)
    assert (fault.code, place_of(fault)) == ("size", "10:3")


# --- anchors and aliases --------------------------------------------------------------------------


def test_aliases_repeat_what_their_anchor_names() -> None:
    text = "a: &a {x: [1, &t text]}\nb: *a\nc: [*t, *t]\n"
    inner = {"x": [1, "text"]}
    assert value_of(text) == {"a": inner, "b": inner, "c": ["text", "text"]}


def test_an_anchor_may_be_used_again_for_something_else() -> None:
    assert value_of("a: &a 1\nb: *a\nc: &a 2\nd: *a\n") == {"a": 1, "b": 1, "c": 2, "d": 2}


def test_an_anchor_on_a_key_names_its_text() -> None:
    assert value_of("&k key: *k\n") == {"key": "key"}


def test_a_problem_inside_a_repeated_value_is_placed_at_the_alias() -> None:
    document = read_yaml("a: &a {x: 1}\nb:\n  - *a\n", "f.yaml")
    assert str(document.locate(("b", 0, "x"))) == "f.yaml:3:5"


@pytest.mark.parametrize("text", ["a: *nowhere\n", "a: &a [*a]\n", "a: &a {b: *a}\n", "*a\n"])
def test_an_alias_names_something_above_it_or_is_refused(text: str) -> None:
    fault = fault_in(text)
    assert fault.code == "alias"
    assert place_of(fault) == f"1:{text.index('*') + 1}"


def test_a_billion_laughs_are_refused_early() -> None:
    lines = ["a0: &a0 [" + "lol, " * 10 + "]"]
    lines += [f"a{n}: &a{n} [" + f"*a{n - 1}, " * 10 + "]" for n in range(1, 10)]
    fault = fault_in("\n".join(lines))
    assert (fault.code, fault.message) == (
        "alias-budget",
        "aliases expand to more than 50,000 values",
    )
    assert fault.at[0] == 4


def test_aliases_within_the_budget_are_fine() -> None:
    value = value_of("a: &a [" + "x, " * 100 + "]\nb: [" + "*a, " * 400 + "]\n")
    assert isinstance(value, dict)
    assert value["b"] == [["x"] * 100] * 400


def test_a_long_text_may_not_be_repeated_without_end() -> None:
    text = "a: &a '" + "x" * 100_000 + "'\nb: [" + "*a, " * 9 + "]\n"
    assert value_of(text)
    fault = fault_in(text.replace("*a, ", "*a, *a, "))
    assert (fault.code, fault.message) == (
        "alias-budget",
        "aliases expand to more than 1,000,000 characters",
    )


def test_aliases_do_not_lead_around_the_depth() -> None:
    lines = ["k1: &k1 [x]", *(f"k{n}: &k{n} [*k{n - 1}]" for n in range(2, 60))]
    assert value_of("\n".join(lines[:49]))
    fault = fault_in("\n".join(lines))
    assert (fault.code, place_of(fault)) == ("depth", "50:12")


# --- characters -----------------------------------------------------------------------------------


def test_a_byte_order_mark_is_passed_over_and_not_counted() -> None:
    document = read_yaml(b"\xef\xbb\xbfa: 1\nb: 2\n", "f.yaml")
    assert document.value == {"a": 1, "b": 2}
    assert str(document.locate(("a",))) == "f.yaml:1:4"


def test_windows_line_ends_are_fine_and_counted_once() -> None:
    document = read_yaml(b"a: 1\r\nb: |\r\n  x\r\n  y\r\nc: [\r\n  3]\r\n", "f.yaml")
    assert document.value == {"a": 1, "b": "x\ny\n", "c": [3]}
    assert str(document.locate(("c", 0))) == "f.yaml:6:3"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('é: "é\x01"\n', "1:6"),
        ("a: 1\nb: é\x7f\n", "2:5"),
        ("a: \x1b[31m\n", "1:4"),
        ("a: x\x85b: y\n", "1:5"),
        ("a: 'x\u2028y'\n", "1:6"),
        ("a: x\u2029b: 1\n", "1:5"),
        ("a: \ufffe\n", "1:4"),
        ("a: 😀\x0b\n", "1:5"),
    ],
)
def test_control_characters_and_hidden_line_ends_are_refused_with_their_place(
    text: str, place: str
) -> None:
    fault = fault_in(text.encode())
    assert (fault.code, place_of(fault)) == ("syntax", place)
    assert fault.message.startswith("character U+")
    assert fault.hint == "write it as an escape in double quotes"


def test_what_may_not_stand_there_may_be_written_as_an_escape() -> None:
    assert value_of(r'a: "\x01\e\u2028\N\L"') == {"a": "\x01\x1b\u2028\x85\u2028"}


def test_a_lone_carriage_return_is_refused() -> None:
    fault = fault_in(b"a: 1\r\nb: 2\rc: 3\n")
    assert (fault.message, place_of(fault)) == ("a carriage return without a line feed", "2:5")


def test_bytes_that_are_not_utf8_are_named_with_line_and_column() -> None:
    fault = fault_in("a: é\nb: é".encode() + b"\xff\n")
    assert (fault.code, fault.message, place_of(fault)) == (
        "encoding",
        "byte 0xff is not UTF-8",
        "2:5",
    )


def test_a_nul_byte_is_refused() -> None:
    fault = fault_in(b"a: 1\nb: \0\n")
    assert (fault.code, place_of(fault)) == ("nul-byte", "2:4")


def test_half_a_surrogate_pair_is_no_character() -> None:
    assert fault_in(r'a: "\ud800"').code == "syntax"


# --- places ---------------------------------------------------------------------------------------

PLACED = """\
# a comment
name: x
list:
  - 1
  - {a: 2, b:   3}
text: |
  long
"é": { k: v }
"""


@pytest.fixture
def placed() -> Document:
    return read_yaml(PLACED, "f.yaml")


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ((), "2:1"),
        (("name",), "2:7"),
        (("list",), "4:3"),
        (("list", 0), "4:5"),
        (("list", 1), "5:5"),
        (("list", 1, "b"), "5:17"),
        (("text",), "6:7"),
        (("é", "k"), "8:11"),
    ],
)
def test_every_value_knows_its_place(
    placed: Document, path: tuple[str | int, ...], place: str
) -> None:
    assert str(placed.locate(path)) == f"f.yaml:{place}"


def test_every_key_knows_its_place(placed: Document) -> None:
    assert str(placed.locate(("list", 1, "b"), key=True)) == "f.yaml:5:12"
    assert str(placed.locate(("é", "k"), key=True)) == "f.yaml:8:8"


# --- streaming ------------------------------------------------------------------------------------


def streamed(text: str | bytes, *, limits: YamlLimits | None = None) -> list[Json]:
    data = text.encode() if isinstance(text, str) else text
    return [item.value for item in stream_yaml_list(io.BytesIO(data), limits=limits)]


def test_a_list_is_read_entry_by_entry_with_places() -> None:
    items = list(stream_yaml_list(io.BytesIO(b"# x\n- a: 1\n- a: 2\n  b: [3]\n")))
    assert [item.value for item in items] == [{"a": 1}, {"a": 2, "b": [3]}]
    assert [item.mark.line for item in items] == [1, 2]
    assert str(Document("f.yaml", None, items[1].mark).locate(("b", 0))) == "f.yaml:4:7"


def test_entries_before_a_fault_are_still_read() -> None:
    read: list[Json] = []
    with pytest.raises(Fault) as raised:
        read.extend(item.value for item in stream_yaml_list(io.BytesIO(b"- 1\n- 2\n- !x 3\n- 4\n")))
    assert read == [1, 2]
    assert place_of(raised.value) == "3:3"


def test_what_is_wrong_in_one_entry_stays_with_it() -> None:
    items = list(stream_yaml_list(io.BytesIO(b"- {a: 1, a: 2}\n- {b: 1}\n- {c: 1e999}\n")))
    assert [[place_of(fault) for fault in item.faults] for item in items] == [["1:10"], [], ["3:7"]]


def test_each_entry_has_its_own_number_of_values() -> None:
    limits = YamlLimits(nodes=3)
    assert streamed("- [1, 2]\n" * 100, limits=limits) == [[1, 2]] * 100
    with pytest.raises(Fault, match="more than 3 values"):
        streamed("- [1, 2]\n- [1, 2, 3]\n", limits=limits)


def test_all_entries_share_what_aliases_may_repeat() -> None:
    limits = YamlLimits(repeated=1_000)
    text = "- &a '" + "x" * 100 + "'\n"
    assert streamed(text + "- *a\n" * 9, limits=limits) == ["x" * 100] * 10
    with pytest.raises(Fault) as raised:
        streamed(text + "- *a\n" * 10, limits=limits)
    assert place_of(raised.value) == "11:3"


@pytest.mark.parametrize(
    ("text", "place"), [("a: 1\n", "1:1"), ("\n\n'x'\n", "3:1"), ("1\n", "1:1")]
)
def test_a_stream_is_a_list(text: str, place: str) -> None:
    with pytest.raises(Fault) as raised:
        streamed(text)
    assert (raised.value.message, place_of(raised.value)) == (
        "a YAML dataset is a list of cases",
        place,
    )


def test_an_empty_stream_has_no_entries() -> None:
    assert streamed("") == []
    assert streamed("# nothing\n") == []


class Trickle(io.BytesIO):
    """A file that is read a few bytes at a time, whatever is asked for."""

    def __init__(self, data: bytes, step: int) -> None:
        super().__init__(data)
        self._step = step

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(self._step)


@pytest.mark.parametrize("step", [1, 2, 3, 7])
def test_characters_and_line_ends_may_fall_between_two_blocks(step: int) -> None:
    data = "\ufeff- é\r\n- 😀😀\r\n- [a,\r\n  ü]\r\n".encode()
    items = list(stream_yaml_list(Trickle(data, step)))
    assert [item.value for item in items] == ["é", "😀😀", ["a", "ü"]]
    assert [item.mark.line for item in items] == [0, 1, 2]


BROKEN_DATA = [
    ("- é\n- x".encode() + b"\xff\n", "encoding", "2:4"),
    ("- é\n- 😀".encode() + b"\xf0\x9f", "encoding", "2:4"),
    ("- é\n- é\0\n".encode(), "nul-byte", "2:4"),
    ("- é\n- é\x01\n".encode(), "syntax", "2:4"),
    ("- é\n- é\rx\n".encode(), "syntax", "2:4"),
    ("- é\n- é\r".encode(), "syntax", "2:4"),
    (b"\xff\xfe-\0", "encoding", "1:1"),
]


def test_what_is_no_text_is_placed_wherever_blocks_end(subtests: pytest.Subtests) -> None:
    for (data, code, place), step in product(BROKEN_DATA, [1, 2, 3, 100]):
        with subtests.test(data=data, step=step):
            with pytest.raises(Fault) as raised:
                list(stream_yaml_list(Trickle(data, step)))
            assert (raised.value.code, place_of(raised.value)) == (code, place)


@pytest.mark.parametrize("text", ["- [1", "- {a: [", "- 'x\n"])
def test_no_place_in_a_stream_lies_beyond_its_end(text: str) -> None:
    with pytest.raises(Fault) as raised:
        streamed(text)
    assert raised.value.at <= (0, len(text))


@pytest.mark.parametrize("shape", ["[", "{a: ", "- ", "? ", "[a, ", "&a [", "!", "%"])
def test_a_megabyte_of_openings_is_refused_at_once(shape: str) -> None:
    fault = fault_in(shape * (990_000 // len(shape)))
    assert fault.at[0] < 100


def test_merge_keys_are_followed_only_where_they_are_asked_for() -> None:
    text = "a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc:\n  <<: [*a, *b]\n  x: 5\nd: {'<<': 6}\n"
    with pytest.raises(Fault, match="merge keys"):
        read_yaml(text, "f.yaml")
    document = read_yaml(text, "f.yaml", limits=YamlLimits(merge=True))
    assert document.value["c"] == {"x": 5, "y": 2, "z": 4}  # type: ignore[index,call-overload]
    assert document.value["d"] == {"<<": 6}  # type: ignore[index,call-overload]
    assert str(document.locate(("c", "z"), key=True)) == "f.yaml:4:3"
    with pytest.raises(Fault, match="takes a map or a list of maps"):
        read_yaml("<<: 3", "f.yaml", limits=YamlLimits(merge=True))
