"""Every check answers every text with a score from 0 to 1 and a short, readable reason."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edison_ci.checks.evaluation import (
    LONGEST_REASON,
    EvaluationError,
    Grade,
    ParsedAnswer,
    library_errors,
    quote,
    shorten,
    strip_fence,
)
from edison_ci.checks.options import REGISTRY, Check, check_class, parse_check
from edison_ci.documents.marks import Fault
from edison_ci.extras import SACREBLEU, install_command
from edison_ci.records import Case, CaseId, Completion
from edison_ci.templating.templates import MissingValueError, RenderError
from tests.bare import lacking
from tests.checks.answers import HOSTILE, answered, graded
from tests.checks.entries import check
from tests.timing import within

CODE = {"python", "command"}
EVERY = sorted(name for name in REGISTRY.names() if name not in CODE)
SCHEMAS = {"schemas/reply.json": {"type": "object", "required": ["total"]}}
EXPECTED = {"json_path": {"total": 3}, "json_diff": [1, {"a": 2}], "number": 42}


def example(name: str) -> Check:
    kind = check_class(name)
    assert kind is not None
    return check(kind.example)


def outcome(name: str, text: str) -> Grade | None:
    """Return the grade of a text by a check's example, or None if the check cannot say."""
    case = answered(
        text,
        expected=EXPECTED.get(name, "forty-two"),
        must_include=["x"],
        document="x y z",
        schemas=SCHEMAS,
    )
    try:
        return example(name).evaluate(case)
    except EvaluationError as error:
        assert len(str(error)) <= 2 * LONGEST_REASON
        assert str(error).isprintable()
        return None


@pytest.mark.parametrize("name", EVERY)
def test_no_text_breaks_a_check(name: str) -> None:
    outcome(name, "a text")  # loads its library, which takes a while and no text can change
    for text in HOSTILE.values():
        with within(3):
            grade = outcome(name, text)
        if grade is not None:
            assert 0 <= grade.score <= 1
            assert grade.reason
            assert len(grade.reason) <= 2 * LONGEST_REASON
            assert grade.reason.isprintable(), grade.reason


def test_an_empty_answer_has_a_grade(subtests: pytest.Subtests) -> None:
    for name in EVERY:
        with subtests.test(name=name):
            assert outcome(name, "") is not None


@given(st.text(max_size=200))
@settings(max_examples=25, deadline=None)
def test_any_text_has_a_score_from_0_to_1(text: str) -> None:
    for name in set(EVERY) - {"is_sql"}:
        grade = outcome(name, text)
        assert grade is not None
        assert 0 <= grade.score <= 1
        assert grade.reason.isprintable()


@pytest.mark.parametrize("size", [20_000_000])
def test_a_runaway_answer_is_graded_or_refused_soon(size: int) -> None:
    case = answered("word. " * (size // 6), expected="forty-two", schemas=SCHEMAS)
    for name in ("words", "contains", "icontains", "is_json", "sentences", "levenshtein"):
        with within(5):
            try:
                example(name).evaluate(case)
            except (EvaluationError, MissingValueError) as error:
                assert "characters" in str(error)


def test_a_check_without_evaluate_says_which_it_is() -> None:
    class Mute(Check):
        """Says nothing."""

        check = "mute"

    with pytest.raises(NotImplementedError, match="'mute'"):
        Mute().evaluate(answered("x"))


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["equals:", "contains:", "rouge_l:", "overlap:", "number:"])
def test_a_check_that_needs_what_the_case_lacks_is_skipped(line: str) -> None:
    with pytest.raises(MissingValueError, match="expected is missing"):
        graded(line, "an answer")


def test_a_case_with_nothing_to_look_for_is_skipped() -> None:
    with pytest.raises(MissingValueError):
        graded("contains: '{{ word }}'", "an answer", word="")
    with pytest.raises(MissingValueError):
        graded("contains_any: '{{ words }}'", "an answer", words=[])
    with pytest.raises(MissingValueError):
        graded("contains_all: '{{ words }}'", "an answer", words=["an", ""])


def test_a_list_of_texts_comes_from_a_list() -> None:
    with pytest.raises(RenderError, match="words is 'an', not a list"):
        graded("contains_all: '{{ words }}'", "an answer", words="an")
    assert graded("contains_all: '{{ words }}'", "an answer to 4", words=["an", 4]).score == 1


def test_arguments_are_never_templates_over_the_answer() -> None:
    assert graded("contains: '{{ word }}'", "{{ word }}", word="x").score == 0
    assert graded("contains: '{{ word }}'", "{{ secret }}", word="{{ secret }}").score == 1


# --- the pieces -----------------------------------------------------------------------------------


def test_a_quotation_is_short_printable_and_on_one_line() -> None:
    assert quote("a\nb\x1b[31m\u202ec") == "'a b [31m c'"
    assert quote("x" * 100) == "'" + "x" * 80 + "...'"
    assert len(shorten("y\n" * 1_000)) == LONGEST_REASON


FENCES = [
    ("```json\n{}\n```", "{}"),
    ("  ```\n{}\n```  \n", "{}"),
    ("```html title=x\n<p>\n```", "<p>"),
    ("Here:\n```json\n{}\n```", "Here:\n```json\n{}\n```"),
    ("```json\n{}\n```\nDone.", "```json\n{}\n```\nDone."),
    ("```\na\n```\nb\n```\nc\n```", "```\na\n```\nb\n```\nc\n```"),
    ("```json", "```json"),
    (" plain ", "plain"),
]


def test_only_a_fence_around_the_whole_answer_is_taken_off(subtests: pytest.Subtests) -> None:
    for text, inner in FENCES:
        with subtests.test(text=text, inner=inner):
            assert strip_fence(text) == inner


def test_json_is_read_once() -> None:
    case = ParsedAnswer(Case(CaseId("one"), {}), '{"a": [1]}', Completion(""))
    assert case.json() is case.json()
    broken = ParsedAnswer(Case(CaseId("one"), {}), "{", Completion(""))
    with pytest.raises(Fault) as first:
        broken.json()
    with pytest.raises(Fault) as second:
        broken.json()
    assert first.value is second.value


def test_which_checks_may_wait() -> None:
    waits = {"is_sql", "python", "command", "json_schema"}
    for name in REGISTRY.names():
        assert example(name).blocking is (name in waits), name
    assert check("regex: '(a|aa)+$'").blocking
    assert check("regex: '{{ expected }}'").blocking
    assert check("not: {regex: '(a|aa)+$'}").blocking
    assert check("any_of: [{contains: a}, {is_sql: {}}]").blocking
    assert not check("regex: '(?i)as an (ai|assistant)'").blocking
    assert not parse_check({"json_schema": {"value": {"type": "object"}}}).blocking


@pytest.mark.parametrize("error", [RuntimeError("half installed"), ImportError("no module y")])
def test_a_library_that_is_there_and_breaks_is_an_error_of_the_check(error: Exception) -> None:
    said = f"sacrebleu is installed but broken, reinstall it: {type(error).__name__}: "
    with (
        pytest.raises(EvaluationError, match=re.escape(f"{said}{error}")),
        library_errors(SACREBLEU),
    ):
        raise error


def test_a_library_that_is_gone_since_is_an_error_that_says_how_to_install_it() -> None:
    told = re.escape(f"sacrebleu is not installed: {install_command('metrics')}")
    with (
        lacking("sacrebleu"),
        pytest.raises(EvaluationError, match=told),
        library_errors(SACREBLEU),
    ):
        import sacrebleu  # noqa: F401  # it cannot be found
