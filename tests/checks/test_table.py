"""Every check of the contract in a table: pass, fail, edges, `not`, thresholds and weights.

The first rows are the documented examples with the answers that docs/checks.md shows beside them.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from docs.check_examples import EXAMPLES, FILES, REFERENCES, SCHEMAS, Answer
from edison_ci.checks.options import REGISTRY
from edison_ci.checks.output import parse_output
from edison_ci.execute.check_grading import CheckGrader
from edison_ci.execute.grading import composite_of, passes
from edison_ci.providers.budget import StoredAnswer
from edison_ci.records import Case, CaseId, FinishReason
from tests.checks.entries import check, experiment, from_yaml

if TYPE_CHECKING:
    from pathlib import Path

    from edison_ci.checks.options import Check
    from edison_ci.store.cells import Component

SPEC = [
    "equals",
    "contains",
    "contains_any",
    "contains_all",
    "icontains",
    "starts_with",
    "ends_with",
    "regex",
    "one_of",
    "count",
    "quotes",
    "words",
    "chars",
    "sentences",
    "tokens",
    "is_json",
    "json_schema",
    "json_path",
    "is_xml",
    "is_html",
    "is_sql",
    "is_yaml",
    "number",
    "levenshtein",
    "rouge_l",
    "rouge_n",
    "bleu",
    "chrf",
    "token_f1",
    "similar",
    "overlap",
    "latency",
    "cost",
    "finish_reason",
    "tool_call",
    "tool_call_f1",
    "calls",
    "json_diff",
    "refusal",
    "language",
    "readability",
    "python",
    "command",
    "not",
    "any_of",
    "all_of",
    "mean_of",
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the code that examples name."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "checks").mkdir()
    for path, text in FILES.items():
        (folder / path).write_text(text)
    return folder


def components(
    checks: dict[str, Check], answer: Answer, case: dict[str, Any], root: Path | None = None
) -> list[Component]:
    """Grade an answer as a run does."""
    inputs = {name: value for name, value in case.items() if name != "expected"}
    about = Case(CaseId("one"), inputs, expected=case.get("expected"))
    weighed = (
        (name, each, 1.0 if each.weight is None else each.weight) for name, each in checks.items()
    )
    grader = CheckGrader(tuple(weighed), SCHEMAS, root)
    paid = StoredAnswer(answer.made, 0, True, answer.cost_microusd)
    return asyncio.run(grader.components(about, parse_output(answer.text, "none"), paid))


def one(
    line: str, answer: Answer | str, case: dict[str, Any], root: Path | None = None
) -> Component:
    answer = Answer(answer) if isinstance(answer, str) else answer
    (found,) = components({"it": check(line)}, answer, case, root)
    return found


def inverted(line: str) -> str:
    return json.dumps({"not": from_yaml(line)})


# --- the documented examples ----------------------------------------------------------------------


def test_the_table_has_every_check_of_the_contract() -> None:
    assert sorted(EXAMPLES) == sorted(REGISTRY.built_in) == sorted(SPEC)


def test_the_documented_example_passes_one_answer_and_fails_the_other(
    subtests: pytest.Subtests, root: Path
) -> None:
    for name in SPEC:
        with subtests.test(name=name):
            example, line = EXAMPLES[name], REGISTRY.load(name).example
            good, bad = (
                one(line, answer, example.case, root) for answer in (example.good, example.bad)
            )
            assert (good.status, good.passed) == ("ok", True), good.reason
            assert (bad.status, bad.passed) == ("ok", False), bad.score
            assert bad.score is not None and good.score is not None and bad.score < good.score
            assert bad.reason, "who fails is told why"


@pytest.mark.parametrize("name", SPEC)
def test_not_turns_every_check_round(name: str, root: Path) -> None:
    example, line = EXAMPLES[name], REGISTRY.load(name).example
    for answer in (example.good, example.bad):
        plain, turned = (one(text, answer, example.case, root) for text in (line, inverted(line)))
        assert turned.status == "ok" and plain.score is not None
        assert turned.score == pytest.approx(1 - plain.score)
    assert one(inverted(line), example.bad, example.case, root).passed is True


# --- edges ----------------------------------------------------------------------------------------

SKIPPED, BROKEN = "skipped", "error"

EDGES: list[tuple[str, str | Answer, dict[str, Any], float | str]] = [
    # line, answer, case, score or status
    ("equals: Oslo", "oslo", {}, 0),
    ("equals: {value: STRASSE, ignore_case: true}", "straße", {}, 1),
    ("equals:", "", {"expected": ""}, 1),
    ("equals:", "x", {}, SKIPPED),
    ("equals:", "3", {"expected": 3}, 1),
    ("contains: '{{ city }}'", "x", {"city": ""}, SKIPPED),
    ("contains: a.c", "abc", {}, 0),
    ("contains:", "x", {}, SKIPPED),
    ("contains_any: '{{ all }}'", "b", {"all": ["a", "b"]}, 1),
    ("contains_any: '{{ all }}'", "b", {"all": []}, SKIPPED),
    ("contains_any: '{{ all }}'", "b", {"all": "b"}, BROKEN),
    ("contains_any: {value: [A], ignore_case: true}", "a", {}, 1),
    ("contains_all: [a, a]", "a", {}, 1),
    ("contains_all: [a, b]", "", {}, 0),
    ("icontains: İ", "i̇", {}, 1),
    ("icontains:", "x", {}, SKIPPED),
    ("starts_with: a", "  \n a", {}, 1),
    ("starts_with: a", "", {}, 0),
    ("ends_with: a", "a  \n", {}, 1),
    ("ends_with: a", "", {}, 0),
    ("regex: '^b$'", "a\nb", {}, 0),
    ("regex: '(?m)^b$'", "a\nb", {}, 1),
    ("regex: '.'", "", {}, 0),
    ("regex: '(a+)+$'", "a" * 5_000 + "b", {}, BROKEN),
    ("one_of: [a]", " a ", {}, 1),
    ("one_of: {value: [A], ignore_case: true}", "a", {}, 1),
    ("words: {min: 0, max: 0}", "", {}, 1),
    ("words: {max: 2}", "a b c", {}, 0),
    ("words: {min: 3, max: 3}", "a b c", {}, 1),
    ("chars: {max: 3}", "  abc \n", {}, 1),
    ("chars: {max: 1}", "ä", {}, 1),
    ("sentences: {max: 1}", "Dr. Who comes at 3.5 p.m. today", {}, 1),
    ("sentences: {min: 1}", "", {}, 0),
    ("tokens: {max: 1}", Answer("abcd", completion={"tokens_out": None}), {}, 1),
    ("tokens: {max: 0}", Answer("abcd", completion={"tokens_out": 1}), {}, 0),
    ("latency: 350", Answer("x", completion={"latency_ms": 350}), {}, 1),
    ("latency: 350", Answer("x", completion={"latency_ms": 351}), {}, 0),
    ("cost: 0.001", Answer("x", cost_microusd=1_000), {}, 1),
    ("cost: 0.001", Answer("x", cost_microusd=1_001), {}, 0),
    ("cost: 0", "x", {}, 1),
    ("finish_reason:", "x", {}, 1),
    ("finish_reason: length", "x", {}, 0),
    ("is_json:", "```json\n[1]\n```", {}, 1),
    ("is_json:", '{"a": 1, "a": 2}', {}, 0),
    ("is_json:", "NaN", {}, 0),
    ("is_json:", "", {}, 0),
    ("is_json:", "null", {}, 1),
    ("json_schema: {value: {type: array, maxItems: 1}}", "[1]", {}, 1),
    ("json_schema: {value: {type: array, maxItems: 1}}", "[1, 2]", {}, 0),
    ("json_schema: {value: {type: array}}", "no json", {}, 0),
    ("json_path: $.a[-1]", '{"a": [1, 2]}', {}, 1),
    ("json_path: $.a[5]", '{"a": [1, 2]}', {}, 0),
    ("json_path: {path: $.a, value: 1}", '{"a": true}', {}, 0),
    ("json_path: {path: $.a, value: 'null'}", '{"a": null}', {}, 1),
    ("json_path: $.a", "no json", {}, 0),
    ("is_xml:", "<a>&amp;</a>", {}, 1),
    ("is_xml:", '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', {}, 0),
    ("is_xml:", "<a/><b/>", {}, 0),
    ("is_html:", "<ul><li>a<li>b</ul>", {}, 1),
    ("is_html:", "<b>open", {}, 0),
    ("is_html:", "", {}, 0),
    ("is_sql:", "SELECT 1; SELECT 2", {}, 0),
    ("is_sql:", "```sql\nSELECT a FROM b\n```", {}, 1),
    ("is_sql:", "", {}, 0),
    ("is_yaml:", "- a\n- b", {}, 1),
    ("is_yaml:", "a: &a [*a]", {}, 0),
    ("is_yaml:", "", {}, 0),
    ("number: 1234.5", "about 1,234.50 euros", {}, 1),
    ("number: {value: 10, tolerance: 0.5}", "10.5", {}, 1),
    ("number: {value: 10, tolerance: 0.5}", "10.51", {}, 0),
    ("number: 3", "none", {}, 0),
    ("number:", "3", {}, SKIPPED),
    ("tool_call: search", Answer("", completion={"tool_calls": None}), {}, 0),
    ("tool_call: search", Answer("", completion={"tool_calls": "junk"}), {}, 0),
    ("tool_call: search", Answer("", completion={"tool_calls": [{"name": "search"}]}), {}, 1),
    ("calls: [{tool: a}]", Answer("", completion={"tool_calls": []}), {}, 0),
    ("json_diff:", Answer("[1, 2]"), {"expected": [1]}, 0.5),
    ("count: {value: a, max: 0}", Answer(""), {}, 1),
    ("quotes: '{{ document }}'", Answer('"a b c"'), {"document": "a b d"}, 0),
    ("tool_call_f1: [{tool: a}]", Answer("", completion={"tool_calls": []}), {}, 0),
    (
        "tool_call_f1: [{tool: a}, {tool: b}]",
        Answer("", completion={"tool_calls": [{"name": "a"}, {"name": "c"}]}),
        {},
        0.5,
    ),
    ("levenshtein:", "", {"expected": ""}, 1),
    ("levenshtein:", "abcd", {"expected": "abc"}, 0.75),
    ("levenshtein:", "x", {}, SKIPPED),
    ("rouge_l:", "", {"expected": "a"}, 0),
    ("rouge_l:", "b a", {"expected": "a b"}, 0.5),
    ("rouge_n: {n: 2}", "a", {"expected": "a"}, 0),
    ("rouge_n:", "a a a", {"expected": "a"}, 0.5),
    ("bleu:", "", {"expected": "a b"}, 0),
    ("bleu:", "the cat sat on the mat", {"expected": "the cat is on the mat"}, 0.3799178),
    ("chrf:", "", {"expected": "a b"}, 0),
    ("chrf:", "the cat sat on the mat", {"expected": "the cat is on the mat"}, 0.6457794),
    ("token_f1:", "The a an", {"expected": "the"}, 1),
    ("token_f1:", "in the year 1066", {"expected": "1066"}, 0.5),
    ("similar:", "", {"expected": "a"}, 0),
    ("similar:", "the same text", {"expected": "the same text"}, 1),
    ("overlap:", "Oslo is it", {"expected": "oslo"}, 0.95),
    ("overlap:", "a b c", {"expected": "b d"}, 0.3 / 4 + 0.7 / 2),
    ("overlap:", "", {"expected": ""}, 0),
    ("refusal:", "Sorry to hear that! Here is how it works.", {}, 0),
    ("refusal:", Answer("", completion={"finish_reason": FinishReason.CONTENT_FILTER}), {}, 1),
    ("language: '{{ code }}'", "Das ist ein schöner Tag.", {"code": "de"}, 1),
    ("language: de", "123", {}, 0),
    ("language: qqq", "text", {}, BROKEN),
    ("readability: {max: 100}", "", {}, 0),
    ("readability: {max: 30}", "Go. Run. Sit.", {}, 0),
    ("python: checks/none.py:check", "x", {}, BROKEN),
    ("python: checks/tone.py:nothing", "x", {}, BROKEN),
    ("command: [no-such-program]", "x", {}, BROKEN),
    ("command: [python3, checks/grade.py]", "", {}, 0.1),
    ("not: {equals: {}}", "x", {}, SKIPPED),
    ("not: {regex: '(a+)+$'}", "a" * 5_000 + "b", {}, BROKEN),
    ("not: {not: {contains: a}}", "a", {}, 1),
    ("any_of: [{equals: {}}, {contains: a}]", "a", {}, 1),
    ("any_of: [{equals: {}}]", "a", {}, SKIPPED),
    ("any_of: [{overlap: b d}, {contains: x}]", "a b c", {}, 0.425),
    ("all_of: [{equals: {}}, {contains: a}]", "b", {}, 0),
    ("all_of: [{equals: {}}]", "a", {}, SKIPPED),
    ("all_of: [{overlap: b d}, {contains: a}]", "a b c", {}, 0.425),
    ("all_of: [{any_of: [{contains: a}, {contains: b}]}, {not: {contains: c}}]", "b", {}, 1),
    ("all_of: [{any_of: [{contains: a}, {contains: b}]}, {not: {contains: c}}]", "bc", {}, 0),
    ("mean_of: [{contains: a}, {contains: z}]", "a", {}, 0.5),
    ("mean_of: [{contains: {value: a, weight: 3}}, {contains: z}]", "a", {}, 0.75),
    ("mean_of: [{contains: {value: a, weight: 0}}]", "a", {}, 0),
    ("mean_of: [{equals: {}}, {contains: a}]", "a", {}, 1),
    ("mean_of: [{equals: {}}]", "a", {}, SKIPPED),
    ("equals: {value: a, exact: true}", "a ", {}, 0),
    ("equals: {value: 'a ', exact: true}", "a ", {}, 1),
    ("starts_with: {value: a, exact: true}", " a", {}, 0),
    ("ends_with: {value: a, exact: true}", "a\n", {}, 0),
    ("starts_with: {value: Dear, ignore_case: true}", " DEAR all", {}, 1),
    ("starts_with: Dear", "DEAR all", {}, 0),
    ("ends_with: {value: Bye, ignore_case: true}", "good BYE\n", {}, 1),
    ("ends_with: Bye", "good BYE", {}, 0),
    ("chars: {max: 1, exact: true}", "a ", {}, 0),
    ("is_json: {exact: true}", "```json\n{}\n```", {}, 0),
    ("is_json: {exact: true}", " {}\n", {}, 1),
    ("is_json: {anywhere: true}", 'See {no} {"a": {"b": 1}} there', {}, 1),
    ("is_json: {anywhere: true}", "See {no} and [1] there", {}, 0),
    ("json_schema: {value: {required: [b]}, anywhere: true}", 'x {"a": 1} {"b": 2}', {}, 1),
    ("json_schema: {value: {required: [c]}, anywhere: true}", 'x {"a": 1} {"b": 2}', {}, 0),
    ("json_schema: {value: {type: object}, exact: true}", "```\n{}\n```", {}, 0),
    ("json_path: {path: $.a, exact: true}", '```\n{"a": 1}\n```', {}, 0),
    ("is_xml: {exact: true}", "```\n<a/>\n```", {}, 0),
    ("is_html: {exact: true}", "```\n<p>a</p>\n```", {}, 0),
    ("is_sql: {exact: true}", "```\nSELECT 1\n```", {}, 0),
    ("levenshtein: {value: kitten, max_edits: 3}", "sitting", {}, 1),
    ("levenshtein: {value: kitten, max_edits: 2}", "sitting", {}, 0),
    ("levenshtein: {value: a, max_edits: 0}", " a", {}, 1),
    ("levenshtein: {value: a, max_edits: 0, exact: true}", " a", {}, 0),
    ("levenshtein: {value: a, max_edits: 1}", "a\U0001f600", {}, 0),
    ("levenshtein: {value: a, max_edits: 2}", "a\U0001f600", {}, 1),
]


def status_of(expected: float | str) -> str:
    return expected if isinstance(expected, str) else "ok"


@pytest.mark.parametrize("status", sorted({status_of(expected) for *_, expected in EDGES}))
def test_edges(subtests: pytest.Subtests, status: str, root: Path) -> None:
    for line, answer, case, expected in EDGES:
        if status_of(expected) != status:
            continue
        with subtests.test(line=line, answer=answer):
            found = one(line, answer, case, root)
            if isinstance(expected, str):
                assert (found.status, found.score, found.passed) == (expected, None, None)
                assert found.reason, "what is missing or broken is told"
            else:
                assert found.status == "ok", found.reason
                assert found.score == pytest.approx(expected, abs=1e-6)


def test_every_check_has_an_edge(subtests: pytest.Subtests) -> None:
    for name in SPEC:
        with subtests.test(name=name):
            assert [line for line, *_ in EDGES if line.startswith((f"{name}:", f"{name} :"))]


# --- thresholds, weights, names -------------------------------------------------------------------

THREE_QUARTERS: tuple[str, dict[str, Any]] = ("abcd", {"expected": "abc"})
"""Levenshtein gives 0.75."""

THRESHOLDS = [
    ("levenshtein:", True),
    ("levenshtein: {threshold: 0.75}", True),
    ("levenshtein: {threshold: 0.76}", False),
    ("not: {value: {levenshtein: {}}}", False),
    ("not: {value: {levenshtein: {}}, threshold: 0.25}", True),
    ("any_of: {value: [{levenshtein: {}}], threshold: 0.8}", False),
    ("all_of: [{levenshtein: {}}, {contains: a}]", True),
    ("all_of: [{contains: a}, {contains: z}]", False),
    ("contains: {value: z, threshold: 0}", True),
    ("mean_of: [{levenshtein: {}}, {contains: a}]", True),
    ("mean_of: [{levenshtein: {threshold: 0.8}}, {contains: a}]", False),
    ("mean_of: [{levenshtein: {}}, {contains: {value: z, weight: 0}}]", True),
    ("mean_of: {value: [{contains: a}, {contains: z}], threshold: 0.5}", True),
    ("mean_of: {value: [{contains: a}, {contains: z}], threshold: 0.51}", False),
]


def test_a_check_passes_from_its_threshold_on(subtests: pytest.Subtests) -> None:
    for line, passed in THRESHOLDS:
        with subtests.test(line=line):
            answer, case = THREE_QUARTERS
            assert one(line, answer, case).passed is passed


def test_yes_or_no_needs_1_and_a_graded_score_one_half(subtests: pytest.Subtests) -> None:
    for name in SPEC:
        with subtests.test(name=name):
            kind = REGISTRY.load(name)
            if name not in ("not", "any_of", "all_of", "mean_of"):
                plain = check(kind.example.replace("threshold", "weight"))
                assert plain.passes_at == (0.5 if kind.graded else 1.0) or name == "refusal"
            assert check("any_of: [{contains: a}, {contains: b}]").passes_at == 1
            assert check("any_of: [{contains: a}, {rouge_l: {}}]").passes_at == 0.5


def weighed(*lines: str, text: str = "abcd", **case: Any) -> tuple[float | None, bool | None]:
    given = {"expected": "abc", **case}
    found = components(experiment(*lines).named_checks(), Answer(text), given)
    return composite_of(found), passes(found)


def test_the_composite_is_the_weighted_mean_and_everything_has_to_pass() -> None:
    assert weighed("levenshtein: {}", "contains: z") == (0.375, False)
    assert weighed("levenshtein: {weight: 3}", "contains: {value: z, weight: 1}") == (0.5625, False)
    assert weighed("levenshtein: {weight: 1}", "contains: {value: z, weight: 0}") == (0.75, False)
    assert weighed("levenshtein: {}", "contains: a") == (0.875, True)


def test_a_skipped_check_leaves_score_and_pass() -> None:
    assert weighed("levenshtein: {}", "contains: '{{ nothing }}'", nothing="") == (0.75, True)


def test_a_broken_check_makes_both_missing() -> None:
    assert weighed("levenshtein: {}", "regex: '(a+)+$'", text="a" * 5_000 + "b") == (None, None)


def test_arguments_are_templates_over_the_case_and_never_over_the_answer() -> None:
    assert one("contains: '{{ expected }}'", "{{ expected }}", {"expected": "Oslo"}).passed is False
    assert one("contains: '{{ city }}'", "{{ city }}", {"city": "{{ city }}"}).passed is True


def test_every_check_names_what_it_is_held_to() -> None:
    assert list(REFERENCES) == sorted(REFERENCES, key=[*REGISTRY.built_in].index)
    assert REFERENCES.keys() == REGISTRY.built_in.keys()
    assert all(reference for reference, _ in REFERENCES.values())
