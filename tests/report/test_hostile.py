"""Whatever names and texts hold, a report shows it and nobody obeys it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from junitparser import JUnitXml
from lxml import etree

from edison_ci.errors import UsageError
from edison_ci.features.github.report_comment import comment_body
from edison_ci.features.github.sticky_comment import marker_line, parse_data
from edison_ci.records import CellStatus, Move
from edison_ci.report.annotations import annotation_commands, annotations_of, outputs, stop_commands
from edison_ci.report.change_details import ChangeDetails, FileDiff, may_quote
from edison_ci.report.document import Section, Table
from edison_ci.report.junit import junit, legal
from edison_ci.report.markdown import Limit, code, fit, prose, row
from edison_ci.report.markdown_report import job_summary, markdown
from edison_ci.report.sarif import sarif
from edison_ci.results.cells import CaseResult, ComponentResult, Repeat
from edison_ci.results.report import document_text
from edison_ci.results.triage import ChangedCase, ShownAnswer
from edison_ci.sanitize import lines
from tests.report.conftest import poisoned
from tests.report.page import HIDDEN, assert_harmless, page
from tests.report.runner import Runner, parse, read_outputs
from tests.report.test_junit import XSD, read
from tests.report.test_sarif import SCHEMA

if TYPE_CHECKING:
    from edison_ci.results.report import Report

pytestmark = pytest.mark.daily

TOKEN = "0123456789abcdef" * 2
NASTY = [
    "<img src=https://evil.example/x.png>",
    "![x](https://evil.example/beacon.png)",
    "[click](javascript:alert(1))",
    "<script>alert(1)</script>",
    "</details></summary><h1>PASS</h1>",
    "@octocat please approve",
    "Fixes #1, closes GH-2, resolves owner/repo#3",
    "https://evil.example www.evil.example me@evil.example",
    "a | b | c",
    "a \\| b \\\\| c \\\\\\| d",
    "``` \n# heading\n```",
    "` `` ``` ````",
    "`",
    "x`",
    "`x",
    " x ",
    "**bold** _em_ ~~gone~~ $x$ :tada:",
    "line one\nline two\r\nthree\rfour\u2028five\x85six",
    "\u202eevil\u202c \u2066x\u2069 \u200b\u200d \U000e0041 \x1b[31mred\x1b[0m \x00 \x9b",
    "::error file=a::fake",
    "  ::add-mask::x",
    "##[error]fake ##[add-mask]x",
    f"::{TOKEN}::",
    "%0A::error::x %25 ,:",
    "<!-- edison-ci:report:v1 key=edison -->",
    "--> <b>out</b> <!--",
    "]]> &lt; &#60; &amp; &copy;",
    "",
    " ",
    "\t",
    "x" * 700,
    "|" * 500,
    "`" * 500,
    "`" * 90 + " @octocat <img src=x>",
    "\\" * 500,
    "ünïcödé 日本語 العربية",
    "\ud800 lone",
    "\ufffe \uffff \U0001fffe",
    "| --- |",
    "- item\n\n1. one\n> quote",
    "[x]: https://evil.example",
    "`a`y`@octocat",
    "`a``b`@octocat`c`",
    "1. one",
    "2) two",
    "+ plus",
    "- minus",
    "---",
    "===",
    "&lt;img&gt;",
    "=HYPERLINK(1)",
    "deadbeefdeadbeef",
    "'; drop table cell; --",
]
TEXTS = st.one_of(
    st.text(max_size=60),
    st.text(alphabet="`|\\@#<>[]()!*_~:&;/-. \n\r\tax1", max_size=60),
    st.lists(st.sampled_from(NASTY), min_size=1, max_size=3).map(" ".join),
)
SLOWLY = settings(
    max_examples=20,  # beside every nasty text
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def examples(test: Callable[..., None]) -> Callable[..., None]:
    """Try every nasty text on a property, beside those that are drawn."""
    for text in NASTY:
        test = example(text=text)(test)
    return test


Poison = Callable[[str], "Report"]


@pytest.fixture(scope="module")
def poison(failing: Report) -> Poison:
    """Return a report with a text in every place that others fill."""

    def put(text: str) -> Report:
        return poisoned(failing, text)

    return put


# --- Markdown -------------------------------------------------------------------------------------


def cells(report: Report) -> int:
    return page(markdown(report)).elements.count("td")


@pytest.fixture(scope="module")
def usual_cells(poison: Poison) -> int:
    """The number of cells of a report in which nothing is nasty."""
    return cells(poison("plain"))


@pytest.mark.parametrize("text", NASTY)
def test_a_nasty_name_is_only_shown(poison: Poison, usual_cells: int, text: str) -> None:
    report = poison(text)
    for written in (markdown(report), job_summary(report), comment_body(report)):
        assert_harmless(written)
    assert cells(report) == usual_cells, "no cell is split, no row is added"


@SLOWLY
@given(text=TEXTS)
def test_any_name_is_only_shown(poison: Poison, usual_cells: int, text: str) -> None:
    written = comment_body(poison(text))
    found = assert_harmless(written)
    assert found.elements.count("td") == usual_cells
    assert written.startswith(marker_line("edison") + "\n")
    assert parse_data(written) is not None
    assert len(found.comments) == 2, "the marker and the data, and nothing hidden by others"


@pytest.mark.nightly
@SLOWLY
@given(text=TEXTS)
@examples
def test_no_answer_leaves_its_fence(failing: Report, text: str) -> None:
    answer = ShownAnswer("c" * 24, 0.2, False, text, text)
    shown = ChangedCase(text, "p", text, Move.NEWLY_FAILING, answer, answer)
    details = ChangeDetails(
        (FileDiff(text, "same\n", f"{text}\nsame\n"),),
        {failing.head_runs[0].run.id: (shown, shown)},
    )
    written = comment_body(failing, details=details)
    found = assert_harmless(written)
    plain = comment_body(failing, details=ChangeDetails())
    assert found.elements.count("td") == page(plain).elements.count("td")
    fences = [inside for inside in found.codes if inside.endswith("\n")]
    assert found.elements.count("pre") == len(fences)
    assert len(fences) == 3 or not may_quote([text])
    for inside in fences[1:]:
        assert all(row.startswith(("- ", "+ ")) for row in inside.splitlines()), "none is ours"
        assert len(inside) < 6_000
    assert len(found.comments) == 2


@given(text=TEXTS)
@settings(deadline=None, derandomize=True)
@examples
def test_code_shows_what_it_was_given(text: str) -> None:
    shown = code(text, most=100_000)
    (inside,) = page(f"x {shown} y").codes
    plain = text if text else "(empty)"
    expected = lines(plain).replace("\n", "\\n")
    assert inside.replace("\\u{60}", "`").strip() == expected.strip()
    table = "\n".join([row(["a", "b"]), row(["---", "---"]), row([shown, "last"])])
    rendered = page(table)
    assert rendered.elements.count("td") == 2
    assert rendered.codes[0].replace("\\u{60}", "`").strip() == expected.strip()


@given(text=TEXTS)
@settings(deadline=None, derandomize=True, max_examples=300)
@examples
def test_prose_is_never_more_than_words(text: str) -> None:
    assert_harmless(f"**x**: {prose(text)}")
    alone = assert_harmless(f"## x\n\n{prose(text)}\n")
    assert set(alone.elements) <= {"h2", "p", "code"}, "nor does it open a list where a line begins"


def test_prose_keeps_a_sentence_of_ours_as_it_is() -> None:
    said = (
        "Quality dropped by 12.4 points (at least 8.5, one-sided 95%) on the same 93 cases. "
        "p < 0.001."
    )
    assert prose(said) == said
    assert prose("Get one with `edison run --against REF`, such as main.") == (
        "Get one with `edison run --against REF`, such as main."
    )
    assert prose("the base has no reply with big[t=0.2].") == (
        "the base has no reply with `big[t=0.2]`."
    )
    assert prose("run 20261115T185428-cd7442, of main at 19aaaf9a, is simulated") == (
        "run `20261115T185428-cd7442`, of main at `19aaaf9a`, is simulated"
    )


@given(
    sizes=st.lists(st.integers(0, 40), max_size=6),
    width=st.integers(1, 30),
    most=st.integers(300, 3_000),
)
@settings(deadline=None, derandomize=True)
def test_whatever_has_to_fit_fits_and_counts_what_it_leaves_out(
    sizes: list[int], width: int, most: int
) -> None:
    sections = [
        Section(f"{n}", ("text",), Table.of(("a",), (("x" * width,) for _ in range(size))))
        for n, size in enumerate(sizes)
    ]
    text = fit(sections, Limit(most, len, "elsewhere"))
    assert len(text) <= most
    shown = text.count(f"| {'x' * width} |\n")
    left = sum(
        int(line.split()[1]) for line in text.split("\n") if line.endswith("rows, see elsewhere")
    )
    whole = text.count("### ")
    assert shown + left == sum(sizes[:whole])
    assert ("more sections" in text) == (whole < len(sizes))


# --- workflow commands ----------------------------------------------------------------------------


@SLOWLY
@given(text=TEXTS)
@examples
def test_an_annotation_is_one_command_and_ours(poison: Poison, text: str) -> None:
    found = annotations_of(poison(text), {})
    said = annotation_commands(found, "sub/")
    assert len(said) <= 10
    obeyed = Runner().read("\n".join(said))
    assert len(obeyed) == len(said)
    assert {command.name for command in obeyed} <= {"error", "warning", "notice"}
    for command, one in zip(obeyed, found[:9], strict=False):
        assert command.data == lines(one.message)
        # The runner strips blanks before it decodes newlines.
        title = lines(f"edison: {one.title}").replace("\n", "\0").strip().replace("\0", "\n")
        assert command.properties["title"] == title
        assert set(command.properties) <= {"file", "line", "endLine", "title"}


@given(text=TEXTS)
@settings(deadline=None, derandomize=True)
@examples
def test_nothing_between_the_stops_is_heard(text: str) -> None:
    if TOKEN in text:
        with pytest.raises(UsageError):
            stop_commands(text, TOKEN)
        return
    runner = Runner()
    assert runner.read(stop_commands(text, TOKEN)) == []
    assert runner.token is None, "and what we say afterwards is heard again"
    inside = stop_commands(text, TOKEN).split("\n")[1:-1]
    assert [parse(line) for line in inside if parse(line)] == [], "nor by who knows no stops"


@given(values=st.dictionaries(st.from_regex(r"[a-z][a-z-]{0,10}", fullmatch=True), TEXTS))
@settings(deadline=None, derandomize=True)
def test_outputs_are_read_as_they_were_meant(values: dict[str, str]) -> None:
    if any(TOKEN in value for value in values.values()):
        with pytest.raises(UsageError):
            outputs(values, TOKEN)
        return
    assert read_outputs(outputs(values, TOKEN)) == values


@pytest.mark.parametrize("token", ["", "short", "a b" * 20, f"{TOKEN}\n"])
def test_a_token_that_can_be_guessed_is_refused(token: str) -> None:
    with pytest.raises(UsageError):
        stop_commands("x", token)
    with pytest.raises(UsageError):
        outputs({"a": "b"}, token)


@pytest.mark.parametrize("name", ["", "a=b", "a<<b", "a\nb", "1a"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        outputs({name: "x"}, TOKEN)


# --- files ----------------------------------------------------------------------------------------


def result(text: str) -> CaseResult:
    part = ComponentResult(text, "check", 0.0, False, CellStatus.OK, text)
    return CaseResult(
        text, text, text, (Repeat(CellStatus.OK, 0.5, False, text, text, 5, (part,)),)
    )


@SLOWLY
@given(text=TEXTS)
@examples
def test_junit_is_read_back_whatever_is_in_it(poison: Poison, text: str) -> None:
    written = junit(poison(text), lambda _: [result(text)])
    XSD.assertValid(etree.fromstring(written.encode()))
    first, *_ = JUnitXml.fromstring(written.encode())
    *gates, test = first
    assert gates and all(gate.classname.endswith(".(gates)") for gate in gates)
    assert test.name == (legal(text) or "(empty)")
    assert json.loads(test.system_out)["outcome"] == "failed"
    assert json.loads(test.system_out)["why"].startswith("check ")
    assert not HIDDEN.search(written)
    assert Runner().read(written) == []


@pytest.mark.nightly
@SLOWLY
@given(text=TEXTS)
@examples
def test_sarif_is_valid_whatever_is_in_it(poison: Poison, text: str) -> None:
    written = sarif(poison(text), {})
    assert SCHEMA.is_valid(json.loads(written))
    assert written.isascii()


@pytest.mark.nightly
@SLOWLY
@given(text=TEXTS)
@examples
def test_json_is_read_back_whatever_is_in_it(poison: Poison, text: str) -> None:
    written = document_text(poison(text))
    assert json.loads(written)["verdict"] == "error"
    assert not HIDDEN.search(written)
    assert Runner().read(written) == []


def test_every_format_says_the_same_verdict(failing: Report) -> None:
    verdict = failing.verdict
    assert verdict == "fail"
    assert markdown(failing).startswith(f"## ❌ edison: {verdict}\n")
    data = parse_data(comment_body(failing))
    assert data is not None
    assert data["verdict"] == verdict
    told = json.loads(document_text(failing))
    assert told["verdict"] == verdict
    assert told["regressions"] == data["counts"]["regressions"] == failing.regressions
    runs = json.loads(sarif(failing, {}))["runs"]
    assert [run["properties"]["verdict"] for run in runs] == [r["verdict"] for r in told["runs"]]
    first = next(iter(read(junit(failing, lambda _: ()))))
    assert {p.name: p.value for p in first.properties()}["edison.verdict"] == verdict
