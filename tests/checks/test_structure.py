"""Known answers of the checks of data, markup, numbers and tool calls."""

from __future__ import annotations

import json
import re
import socket
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.checks.evaluation import EvaluationError
from edison_ci.checks.json_schema import FORMATS
from edison_ci.checks.options import parse_check
from edison_ci.checks.structure import is_bounded, json_equal, parse_path
from edison_ci.records import Completion
from tests.checks.answers import answered, graded, score
from tests.conftest import ROOT
from tests.timing import within

if TYPE_CHECKING:
    from pathlib import Path

# --- JSON -----------------------------------------------------------------------------------------


JSON_TEXTS = [
    ('{"a": 1}', 1),
    ("[]", 1),
    ("3", 1),
    ('```json\n{"a": 1}\n```', 1),
    ("", 0),
    ("Sure: {}", 0),
    ('{"a": 1,}', 0),
    ('{"a": NaN}', 0),
    ('{"a": 1, "a": 2}', 0),
    ("[" * 60 + "]" * 60, 0),
    ("9" * 5_000, 0),
]


def test_is_json(subtests: pytest.Subtests) -> None:
    for text, expected in JSON_TEXTS:
        with subtests.test(text=text):
            assert score("is_json:", text) == expected


def test_the_reason_of_bad_json_has_the_place() -> None:
    reason = graded("is_json:", '{"a": 1,\n}').reason
    assert reason.endswith("nothing follows this comma (line 1, column 8)")


SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["total"],
    "properties": {"total": {"type": "number"}},
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [('{"total": 1.5}', 1), ('{"total": "1.5"}', 0), ("{}", 0), ("[]", 0), ("nothing", 0)],
)
def test_json_schema_inline_and_by_path(text: str, expected: float) -> None:
    inline = parse_check({"json_schema": {"value": SCHEMA}})
    assert inline.evaluate(answered(text)).score == expected
    assert score("json_schema: s.json", text, schemas={"s.json": SCHEMA}) == expected


def test_the_reason_of_a_schema_names_path_and_fault() -> None:
    inline = parse_check({"json_schema": {"value": SCHEMA}})
    reason = inline.evaluate(answered('{"total": "1\\u001b"}')).reason
    assert reason == "$.total: '1\\x1b' is not of type 'number'"


def test_a_schema_with_references_is_checked_as_well() -> None:
    schema: Any = {"$ref": "#/definitions/a", "definitions": {"a": {"type": "array"}}}
    assert not is_bounded(schema)
    assert score("json_schema: s.json", "[]", schemas={"s.json": schema}) == 1
    assert score("json_schema: s.json", "{}", schemas={"s.json": schema}) == 0


def test_a_schema_that_was_not_loaded_is_an_error() -> None:
    with pytest.raises(EvaluationError, match=r"s\.json was not loaded"):
        graded("json_schema: s.json", "{}")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string", "pattern": "(a|aa)+$"}, "a" * 60 + "b"),
        ({"type": "object", "patternProperties": {"(a|aa)+$": {}}}, {"a" * 60 + "b": 1}),
        (
            {
                "anyOf": [{"$ref": "#/definitions/d0"}],
                "definitions": {
                    f"d{i}": {"anyOf": [{"$ref": f"#/definitions/d{i + 1}"}] * 3} for i in range(20)
                }
                | {"d20": {"type": "object"}},
            },
            1,
        ),
    ],
)
def test_a_schema_that_would_take_for_ever_is_an_error(
    schema: dict[str, Any], value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edison_ci.checks.structure._LONG_VALIDATION_S", 0.5)
    with pytest.raises(EvaluationError, match=r"JSON Schema takes longer than 0\.5 s"):
        graded("json_schema: s.json", json.dumps(value), schemas={"s.json": schema})


OUTSIDE: list[dict[str, Any]] = [
    {"x": {"allOf": [{"$id": "ADDRESS", "$ref": "#"}]}, "$ref": "#/x"},
    {"x": {"allOf": [{"$id": "ADDRESS", "$ref": "#/y"}]}, "$ref": "#/x"},
    {"$schema": "http://json-schema.org/draft-04/schema#", "allOf": [{"$ref": "#/x"}],
     "x": {"allOf": [{"id": "ADDRESS", "allOf": [{"$ref": "#"}]}]}},
    {"$ref": "ADDRESS"},
    {"$id": "ADDRESS", "$ref": "other#/x"},
    {"$dynamicRef": "ADDRESS"},
]  # fmt: skip


@pytest.mark.parametrize("schema", OUTSIDE, ids=str)
def test_a_validator_reads_no_file_and_asks_no_address(
    schema: dict[str, Any], tmp_path: Path
) -> None:
    """Whatever passed the checks of files: there is one place that makes validators."""
    file = tmp_path / "secret.json"
    file.write_text('{"enum": ["canary"]}')
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        for place in (f"http://127.0.0.1:{server.getsockname()[1]}/x", file.as_uri()):
            text = json.dumps(schema).replace("ADDRESS", place)
            with pytest.raises(EvaluationError, match="failed"):
                graded("json_schema: s.json", '"x"', schemas={"s.json": json.loads(text)})
        with pytest.raises(BlockingIOError):  # nobody has asked
            server.accept()


def test_a_long_enum_is_compared_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edison_ci.checks.structure._LONG_VALIDATION_S", 0.5)
    schema = {"items": {"enum": [[[[n]]] for n in range(2_000)]}}
    text = json.dumps([[[[1_999]]]] * 6_500)
    assert len(text) < 100_000
    with pytest.raises(EvaluationError, match=r"takes longer than 0\.5 s"):
        graded("json_schema: s.json", text, schemas={"s.json": schema})


def test_many_items_are_compared_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edison_ci.checks.structure._LONG_VALIDATION_S", 0.5)
    schema = {"type": "array", "uniqueItems": True}
    text = json.dumps([{"a": i} for i in range(5_000)])
    with pytest.raises(EvaluationError):
        graded("json_schema: s.json", text, schemas={"s.json": schema})


JSON_PATHS = [
    ("$.total", '{"total": 1032.0}', 1032, 1),
    ("$.total", '{"total": 1032}', 1032.0, 1),
    ("$.total", '{"total": 1032}', 1033, 0),
    ("$.total", '{"total": "1032"}', 1032, 1),
    ("$.total", '{"total": 1032}', "1032", 1),
    ("$.total", '{"total": true}', 1, 0),
    ("$.total", '{"total": 1}', True, 0),
    ("$.total", '{"total": true}', True, 1),
    ("$.total", '{"total": null}', "null", 1),
    ("$.total", '{"total": null}', "none", 0),
    ("$.total", '{"total": 12345678901234567890}', 12345678901234567891, 0),
    ("$.total", '{"total": 12345678901234567890}', 12345678901234567890, 1),
    ("$.total", '{"total": [1, 2.0]}', [1, 2], 1),
    ("$.total", '{"total": {"b": 1, "a": 2}}', {"a": 2, "b": 1}, 1),
    ("$.total", '{"total": [1, 2]}', [2, 1], 0),
    ("$.total", '{"total": [true]}', [1], 0),
    ("$.a[1].b", '{"a": [0, {"b": "x"}]}', "x", 1),
    ("$.a[-1]", '{"a": [1, 2]}', 2, 1),
    ("$['a b'][\"c\"]", '{"a b": {"c": "x"}}', "x", 1),
    ("$", '"x"', "x", 1),
    ("$.total", "{}", 1, 0),
    ("$.total", "[]", 1, 0),
    ("$.a[2]", '{"a": [1, 2]}', 1, 0),
    ("$.a[0]", '{"a": {"0": 1}}', 1, 0),
    ("$.total", "no json", 1, 0),
]


def test_json_path(subtests: pytest.Subtests) -> None:
    for path, text, value, expected in JSON_PATHS:
        with subtests.test(path=path, text=text):
            found = parse_check({"json_path": {"path": path, "value": "{{ expected }}"}})
            assert found.evaluate(answered(text, expected=value)).score == expected


def test_json_path_without_a_value_wants_any() -> None:
    assert score("json_path: $.a", '{"a": null}') == 1
    assert score("json_path: $.a", '{"b": 1}') == 0


def test_json_path_says_what_is_there_instead() -> None:
    line = 'json_path: {path: $.total, value: "{{ expected }}"}'
    assert graded(line, '{"total": 3}', expected=4).reason == "$.total is '3', not '4'"
    assert graded(line, '{"sum": 3}', expected=4).reason == "$ has no 'total'"
    assert graded("json_path: $.a[3]", '{"a": [1]}').reason == "$.a has 1 items, so it has no [3]"


def test_steps_of_a_path() -> None:
    assert parse_path("$.a[0]['b c'][\"d\"][-1].e-f") == ("a", 0, "b c", "d", -1, "e-f")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(JSON)
def test_a_value_is_the_same_as_itself_read_again(value: Any) -> None:
    assert json_equal(value, json.loads(json.dumps(value)))


@given(JSON, JSON)
def test_same_is_symmetric(one: Any, other: Any) -> None:
    assert json_equal(one, other) is json_equal(other, one)


# --- markup, SQL, YAML ----------------------------------------------------------------------------


XML_TEXTS = [
    ("<a/>", 1),
    ("<?xml version='1.0' encoding='UTF-16'?><a b='1'>é</a>", 1),
    ("```xml\n<a><b>x</b></a>\n```", 1),
    ("<!DOCTYPE html><html/>", 1),
    ("<a>", 0),
    ("<a></b>", 0),
    ("<a/><b/>", 0),
    ("", 0),
    ("text", 0),
    ("<a>&nbsp;</a>", 0),
    ('<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>', 0),
    ('<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>', 0),
]


def test_is_xml(subtests: pytest.Subtests) -> None:
    for text, expected in XML_TEXTS:
        with subtests.test(text=text):
            assert score("is_xml:", text) == expected


def test_an_xml_bomb_is_refused_at_its_first_entity() -> None:
    entities = '<!ENTITY a "x">' + "".join(
        f'<!ENTITY a{i} "{"&a" + str(i - 1) + ";" if i else "&a;"}' * 10 + '">' for i in range(30)
    )
    with within(1):
        grade = graded("is_xml:", f"<!DOCTYPE a [{entities}]><a>&a29;</a>")
    assert grade.reason == "the XML declares an entity (a), which is not read"


def test_nothing_outside_the_xml_is_opened(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.dtd"
    fifo.write_text("<!ELEMENT a EMPTY>")
    assert score("is_xml:", f'<!DOCTYPE a SYSTEM "{fifo}"><a/>') == 1


HTML_TEXTS = [
    ("<p>Hello</p>", 1),
    ("<P>Hello</P>", 1),
    ("```html\n<p>Hello</p>\n```", 1),
    ("<!DOCTYPE html>\n<html><head><title>a < b</title></head><body>x<br></body></html>", 1),
    ("<ul><li>a<li>b</ul>", 1),
    ("<div><img src='a>b'><svg><path d='x'/></svg></div>", 1),
    ("<script>if (a < b) { '</p>' }</script>", 1),
    ("<!-- <b> --><p>x</p>", 1),
    ("<x-card><b>y</b></x-card>", 1),
    ("Hello", 0),
    ("", 0),
    ("Use <b>this</b>", 0),
    ("<b>Use</b> this", 0),
    ("<div><b>x</div></b>", 0),
    ("<div>", 0),
    ("</div>", 0),
    ("<b><i>x</b></i>", 0),
    ("<p title='x></p>", 0),
    ("<script>x>", 0),
    ("<!-- x >", 0),
    ("<foo></foo>", 0),
    ("<br></br>", 0),
]


def test_is_html(subtests: pytest.Subtests) -> None:
    for text, expected in HTML_TEXTS:
        with subtests.test(text=text):
            assert score("is_html:", text) == expected


@pytest.mark.parametrize("piece", ["<b>", "<b a='", "<!--", "</script ", "<script>", "<", "</b>"])
def test_html_of_many_tags_is_read_once(piece: str) -> None:
    with within(5):
        assert score("is_html:", "<div>" + piece * (490_000 // len(piece)) + ">") == 0
    with pytest.raises(EvaluationError, match="at most 500,000"):
        graded("is_html:", "<" * 500_001)


SQL_TEXTS = [
    ("SELECT a, count(*) FROM t JOIN u USING (id) WHERE x > 1 GROUP BY a", 1),
    ("```sql\nSELECT 1;\n```", 1),
    ("INSERT INTO orders (id) VALUES (1)", 1),
    ("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT)", 1),
    ("WITH a AS (SELECT 1) SELECT * FROM a", 1),
    ("SELECT unknown_function(x) FROM t", 1),
    ("-- first\nSELECT 1 /* one */;", 1),
    ("UPDATE t SET a = ? WHERE b = :name", 1),
    ("", 0),
    ("-- nothing", 0),
    (" ; /* x */", 0),
    ("SELECT FROM WHERE", 0),
    ("SELECT a FROM", 0),
    ("SELECT 'a", 0),
    ("SELECT 1; SELECT 2", 0),
    ("SELECT a FROM t; DROP TABLE t", 0),
    ("SELECT ';' FROM t; -- all", 1),
    ("CREATE TRIGGER g AFTER INSERT ON t BEGIN DELETE FROM t; END;", 1),
    ("Here is the query: SELECT 1", 0),
    ("SELECT a\x00", 0),
]


def test_is_sql(subtests: pytest.Subtests) -> None:
    for text, expected in SQL_TEXTS:
        with subtests.test(text=text):
            assert score("is_sql:", text) == expected


def test_sql_is_parsed_and_never_run(tmp_path: Path) -> None:
    target = tmp_path / "made.db"
    assert score("is_sql:", f"ATTACH '{target}' AS x") == 1
    assert score("is_sql:", f"VACUUM INTO '{target}'") == 1
    assert not target.exists()
    assert score("is_sql:", "PRAGMA hard_heap_limit = 1") == 1
    assert score("is_sql:", f"SELECT '{'x' * 100_000}'") == 1  # the setting had no effect


def test_sql_that_the_parser_never_finishes_is_an_error() -> None:
    tables = ", ".join(f"c{i} AS (SELECT 1 FROM c{i - 1} a, c{i - 1} b)" for i in range(1, 40))
    with pytest.raises(EvaluationError, match="parsing the SQL"):
        graded("is_sql:", f"WITH c0 AS (SELECT 1), {tables} SELECT * FROM c39")


YAML_TEXTS = [
    ("a: 1\nb: [x, y]", 1),
    ("- a\n- b", 1),
    ("```yaml\na: 1\n```", 1),
    ("just a text", 0),
    ("", 0),
    ("a: [", 0),
    ("a: 1\na: 2", 0),
    ("a: !!python/object:os.system x", 0),
    ("a: 1\n---\nb: 2", 0),
]


def test_is_yaml(subtests: pytest.Subtests) -> None:
    for text, expected in YAML_TEXTS:
        with subtests.test(text=text):
            assert score("is_yaml:", text) == expected


def test_a_yaml_bomb_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 20)]
    with within(2):
        assert "aliases expand" in graded("is_yaml:", "\n".join(lines)).reason


# --- numbers --------------------------------------------------------------------------------------


NUMBERS = [
    ("42", 42, 1),
    ("The answer is 42.", 42, 1),
    ("First 7, then 42 euros", 42, 1),
    ("First 42, then 7", 42, 0),
    ("1,234.50", 1234.5, 1),
    ("$1,234", 1234, 1),
    ("-42", -42, 1),
    ("it is \u221242", -42, 1),
    ("-$42.00", -42, 1),
    ("between 3-42", 42, 1),
    (".5", 0.5, 1),
    ("wait...5", 5, 1),
    ("4.2e1", 42, 1),
    ("50%", 50, 1),
    ("none", 42, 0),
    ("", 42, 0),
    ("12345678901234567890", 12345678901234567891, 0),
    ("1" * 400, int("1" * 400), 1),
    ("9e9999", 1, 0),
    ("x" * 3_000 + "42", 42, 1),
    ("1234" + "x" * 1_998, 34, 0),
]


def test_number(subtests: pytest.Subtests) -> None:
    for text, value, expected in NUMBERS:
        with subtests.test(text=text, value=value):
            assert score("number:", text, expected=value) == expected


def test_a_number_may_be_off_by_the_tolerance() -> None:
    line = 'number: {value: "{{ expected }}", tolerance: 0.01}'
    assert score(line, "3.15", expected=3.14) == 1
    assert score(line, "3.151", expected=3.14) == 0
    assert score(line, "0.3", expected=0.1 + 0.2) == 1
    reason = graded(line, "4", expected=3.14).reason
    assert reason == "the answer ends in '4', not in '3.14' within 0.01"


@pytest.mark.parametrize("value", ["forty", True, [1], "1 2"])
def test_an_expected_value_that_is_no_number_is_an_error(value: Any) -> None:
    with pytest.raises(EvaluationError, match="is not a number"):
        graded("number:", "42", expected=value)


# --- tool calls -----------------------------------------------------------------------------------

OPENAI = [
    {"id": "c1", "function": {"name": "weather", "arguments": '{"city": "Oslo", "days": 2}'}},
    {"id": "c2", "function": {"name": "book", "arguments": "not json"}},
]
ANTHROPIC = [{"type": "tool_use", "name": "weather", "input": {"city": "Oslo", "days": 2}}]
PLAIN = [{"name": "weather", "arguments": {"city": "Oslo", "days": 2}}]

TOOL_CALLS = [
    ("tool_call: weather", 1),
    ("tool_call: {tool: weather, arguments: {city: Oslo}}", 1),
    ("tool_call: {tool: weather, arguments: {city: Oslo, days: 2.0}}", 1),
    ("tool_call: {tool: weather, arguments: {city: Rome}}", 0),
    ("tool_call: {tool: weather, arguments: {country: NO}}", 0),
    ("tool_call: search", 0),
    ('tool_call: {tool: weather, arguments: {city: "{{ town }}"}}', 1),
    ('tool_call: {tool: weather, arguments: {days: "{{ n }}"}}', 1),
]


def test_tool_call(subtests: pytest.Subtests) -> None:
    vendors: list[Any] = [OPENAI, ANTHROPIC, PLAIN]
    for (line, expected), calls in product(TOOL_CALLS, vendors):
        with subtests.test(calls=calls, line=line):
            completion = Completion("", tool_calls=calls)
            assert score(line, "", completion=completion, town="Oslo", n=2) == expected


@pytest.mark.parametrize("calls", [None, [], "x", [1, None, {}], {"name": "weather"}])
def test_no_tool_was_called(calls: Any) -> None:
    grade = graded("tool_call: weather", "", completion=Completion("", tool_calls=calls))
    assert (grade.score, grade.reason) == (0, "'weather' was not called; no tool was")


@pytest.mark.parametrize(
    ("wanted", "made", "expected"),
    [
        ("[{tool: a}, {tool: b}]", ["a", "b"], 1.0),
        ("[{tool: a}, {tool: b}]", ["b", "a"], 1.0),
        ("[{tool: a}, {tool: b}]", ["a"], 2 / 3),
        ("[{tool: a}]", ["a", "b", "c"], 0.5),
        ("[{tool: a}, {tool: a}]", ["a"], 2 / 3),
        ("[{tool: a}]", [], 0.0),
        ("[{tool: a}]", ["b"], 0.0),
    ],
)
def test_tool_call_f1(wanted: str, made: list[str], expected: float) -> None:
    calls: Any = [{"name": name, "arguments": {}} for name in made]
    completion = Completion("", tool_calls=calls)
    assert score(f"tool_call_f1: {wanted}", "", completion=completion) == pytest.approx(expected)


def test_a_loose_call_leaves_the_strict_one_its_match() -> None:
    calls: Any = [{"name": "a", "arguments": {"x": 1}}, {"name": "a", "arguments": {}}]
    line = "tool_call_f1: [{tool: a}, {tool: a, arguments: {x: 1}}]"
    assert score(line, "", completion=Completion("", tool_calls=calls)) == 1


def test_wanted_calls_may_come_from_the_case() -> None:
    line, calls = "tool_call_f1: '{{ calls }}'", Completion("", tool_calls=PLAIN)  # type: ignore[arg-type]  # JSON
    wanted = [{"tool": "weather", "arguments": {"city": "Oslo"}}]
    assert score(line, "", completion=calls, calls=wanted) == 1
    assert score(line, "", completion=calls, calls=["weather"]) == 1
    assert score(line, "", completion=calls, calls=[{"tool": "weather"}]) == 1
    assert score(line, "", completion=calls, calls=[]) == 0
    assert score(line, "", calls=[]) == 1
    with pytest.raises(EvaluationError, match="not a list of tool calls"):
        graded(line, "", calls="weather")
    with pytest.raises(EvaluationError, match="not a tool call"):
        graded(line, "", calls=[3])


# --- formats --------------------------------------------------------------------------------------

FORMATS_OF_TEXTS = {
    "date": (
        ["2026-02-28", "2024-02-29"],
        ["2026-02-30", "28.02.2026", "\uff1202-01-01"],
    ),
    "time": (["10:00:00Z", "23:59:60Z", "01:29:60+01:30"], ["10:00:00", "24:00:00Z", "10:00:60Z"]),
    "date-time": (["2026-02-28T10:00:00.5+01:00"], ["2026-02-28 10:00:00Z", "2026-02-28"]),
    "duration": (["P1Y2M3DT4H", "PT5M", "P2W"], ["P", "PT", "P1YT", "P1D2H", "1D", "P1M1Y"]),
    "email": (["ada@example.com", '"a b"@x.org', "a@[127.0.0.1]"], ["ada", "a..b@x.org", "@x.org"]),
    "hostname": (["example.com", "a-b.c"], ["-a.com", "a..b", "under_score.com", "a" * 64, ""]),
    "ipv4": (["127.0.0.1"], ["256.0.0.1", "127.1", "01.2.3.4", "\uff11.2.3.4"]),
    "ipv6": (["::1", "fe80::1:2"], ["1::2::3", "fe80::1%eth0", "12345::"]),
    "json-pointer": (["", "/a/~0b", "/"], ["a", "/~2", "/a~"]),
    "relative-json-pointer": (["0", "1/a", "2#"], ["/a", "-1", "01", "0##"]),
    "uri": (
        ["https://a.b/c?d#e", "mailto:a@b.c", "http://[::1]:80/"],
        ["//a", "a b", "http://[x]/"],
    ),
    "uri-reference": (["/a/b", "//host", "?q", "", "a:b"], ["\\\\a", "%zz", "a b"]),
    "uuid": (["2eb8aa08-aa98-11ea-b4aa-73b441d16380"], ["2eb8aa08aa9811eab4aa73b441d16380", "x"]),
}


def test_every_asserted_format_is_known_here_and_in_the_docs() -> None:
    assert sorted(FORMATS) == sorted(FORMATS_OF_TEXTS)
    said = (ROOT / "docs" / "checks.md").read_text().partition("asserts the formats")[2]
    assert re.findall(r"`([a-z0-9-]+)`", said.partition(";")[0]) == sorted(FORMATS)


def test_a_format_is_asserted(subtests: pytest.Subtests) -> None:
    for by_reference, name in product([False, True], FORMATS_OF_TEXTS):
        with subtests.test(by_reference=by_reference, name=name):
            good, bad = FORMATS_OF_TEXTS[name]
            plain: dict[str, Any] = {"type": "string", "format": name}
            # A schema with a reference is validated in another process.
            schema = {"$ref": "#/$defs/it", "$defs": {"it": plain}} if by_reference else plain
            line = json.dumps({"json_schema": {"value": schema}})
            for text in good:
                assert graded(line, json.dumps(text)).score == 1, text
            for text in bad:
                found = graded(line, json.dumps(text))
                assert found.score == 0, text
                assert f"is not a {name!r}" in found.reason or len(text) > 40


def test_other_formats_and_other_values_are_not_asserted() -> None:
    line = json.dumps({"json_schema": {"value": {"format": "credit-card"}}})
    assert score(line, '"x"') == 1
    line = json.dumps({"json_schema": {"value": {"format": "date"}}})
    assert score(line, "5") == 1


def test_a_long_text_has_a_format_or_not_at_once() -> None:
    long = ("a" * 500_000, "a:" * 250_000, "/" * 500_000, "1" * 500_000, "%41" * 99_999)
    with within(5):
        fitting = {name for name, fits in FORMATS.items() for text in long if fits(text)}
    assert fitting == {"json-pointer", "relative-json-pointer", "uri", "uri-reference"}


# --- sequences of calls, differences of JSON ------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "exact", "in_order", "any_order"),
    [
        ("search book", 1, 1, 1),
        ("search pay book", 0, 1, 1),
        ("book search", 0, 0, 1),
        ("search", 0, 0, 0),
        ("", 0, 0, 0),
        ("search search book", 0, 1, 1),
    ],
)
def test_calls(made: str, exact: int, in_order: int, any_order: int) -> None:
    calls: Any = [{"name": name, "arguments": {}} for name in made.split()]
    done = Completion("", tool_calls=calls)
    for match, expected in (("exact", exact), ("in_order", in_order), ("any_order", any_order)):
        line = f"calls: {{value: [{{tool: search}}, {{tool: book}}], match: {match}}}"
        assert score(line, "", completion=done) == expected, match


def test_calls_compare_arguments_and_take_a_variable() -> None:
    calls: Any = [{"name": "a", "arguments": {"x": 1, "y": 2}}]
    done = Completion("", tool_calls=calls)
    assert score("calls: [{tool: a, arguments: {x: 1}}]", "", completion=done) == 1
    wrong = graded("calls: [{tool: a, arguments: {x: 2}}]", "", completion=done)
    assert (wrong.score, wrong.reason) == (0, "called: 'a'")
    assert score("calls: '{{ wanted }}'", "", completion=done, wanted=["a"]) == 1
    assert score("calls: '{{ wanted }}'", "", completion=done, wanted=["b"]) == 0
    assert graded("calls: [{tool: a}]", "").reason == "called: nothing"


JSON_DIFFS = [
    ({"a": 1, "b": 2}, '{"a": 1, "b": 2.0}', 1),
    ({"a": 1, "b": 2}, '{"b": 2}', 1 / 2),
    ({"a": 1}, '{"a": 1, "b": 2}', 1 / 2),
    ({"a": {"x": 1, "y": 2}, "b": 3}, '{"a": {"x": 1, "y": 0}, "b": 3}', 3 / 4),
    ([1, 2, 3], "[1, 2]", 2 / 3),
    ([1, 2], "[2, 1]", 0),
    ([], "[]", 1),
    ({}, "[]", 0),
    ({"a": None}, "{}", 0),
    ("[1, 2]", "[1, 2]", 1),
    (True, "1", 0),
    ({"a": 1}, "no JSON", 0),
]


def test_json_diff(subtests: pytest.Subtests) -> None:
    for wanted, text, expected in JSON_DIFFS:
        with subtests.test(expected_json=wanted, text=text):
            assert score("json_diff:", text, expected=wanted) == pytest.approx(expected)


def test_json_diff_names_the_first_difference() -> None:
    found = graded("json_diff:", '{"a": [1, 5]}', expected={"a": [1, 2]})
    assert (found.score, found.reason) == (0.5, "$.a[1] differs")
    with pytest.raises(EvaluationError, match="the reference is not JSON"):
        graded("json_diff:", "{}", expected="words")
