"""Answers are taken apart as their prompts expect, in time that grows with their length."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edison_ci.checks import output as module
from edison_ci.checks import time_limit
from edison_ci.checks.evaluation import Grade
from edison_ci.checks.options import Check
from edison_ci.checks.output import Output, parse_output
from edison_ci.config.screens import TextScreens
from edison_ci.execute.check_grading import CheckGrader, _component
from edison_ci.execute.grading import CellGrader, InputScreen
from edison_ci.providers.budget import StoredAnswer
from edison_ci.records import Case, CaseId, Completion
from tests.checks.answers import answered
from tests.timing import within

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.checks.evaluation import ParsedAnswer
    from edison_ci.store.cells import Component

THINKING = re.compile(r"<thinking>(.*?)</thinking>", re.DOTALL | re.IGNORECASE)
RESPONSE = re.compile(r"<response>(.*?)</response>", re.DOTALL | re.IGNORECASE)
FENCE = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n\s*```\s*\Z", re.DOTALL)
"""What the answer is, in as few words as possible; searching with these takes for ever."""

PIECES = st.sampled_from(
    [
        *("<thinking>", "</thinking>", "<THINKING>", "<response>", "</Response>", "```", "json"),
        *("\n", " ", "\t", "a", "{}", "[1]", "<", "/"),
    ]
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_tags_and_fences_are_found_where_patterns_find_them(raw: str) -> None:
    thought = "\n".join(component.strip() for component in THINKING.findall(raw))
    rest = THINKING.sub("", raw).strip() if thought else raw
    plain = parse_output(raw, "none")
    assert (plain.thinking, plain.text) == (thought, rest)
    sections = RESPONSE.findall(rest)
    taken = parse_output(raw, "response")
    assert (taken.malformed == "") is (len(sections) == 1)
    if len(sections) == 1:
        assert taken.text == sections[0].strip()
    fenced = FENCE.match(rest)
    if fenced and fenced.group(1).strip():
        assert module._strip_json_fence(rest) == fenced.group(1).strip()
    elif not fenced and rest.strip().strip("`json \t\n"):
        assert module._strip_json_fence(rest) == rest.strip()


@pytest.mark.parametrize(
    ("raw", "thinking", "text"),
    [
        ("<think>Hm.</think>\n\nParis", "Hm.", "Paris"),
        ("<THINK>Hm.</THINK>Paris", "Hm.", "Paris"),
        ("Hm, the capital.\n</think>\n\nParis", "Hm, the capital.", "Paris"),
        ("<think>a</think>x<thinking>b</thinking>y", "a\nb", "xy"),
        ("I think so", "", "I think so"),
    ],
)
def test_what_a_local_model_thinks_is_not_its_answer(raw: str, thinking: str, text: str) -> None:
    found = parse_output(raw, "none")
    assert (found.thinking, found.text) == (thinking, text)


@pytest.mark.parametrize("expect", ["none", "response", "json", "response+json"])
@pytest.mark.parametrize(
    "raw",
    [
        "```" + "\n" * 100_000 + "x",
        "```json" + "\n\n```" * 50_000 + "x",
        "<thinking>" * 50_000,
        "<response>" * 50_000,
        "<thinking>" + "</response><response>" * 30_000,
    ],
    ids=["fence", "fences", "thinking", "response", "both"],
)
def test_a_reply_that_hung_a_run_is_read_at_once(raw: str, expect: str) -> None:
    with within(1):
        parse_output(raw, expect)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(time_limit, "LIMIT_S", 0.1)
    monkeypatch.setattr(time_limit, "_TICK_S", 0.05)
    time_limit.stop_clock()
    yield
    time_limit.stop_clock()


class Endless(Check):
    """A check of a plugin that never ends."""

    check = "endless"
    main = None

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Search for ever."""
        re.search(r"(a|aa)+$", "a" * 60 + "b")
        raise AssertionError


class Busy(Check):
    """A check that takes a processor, and notes how many do at once."""

    check = "busy"
    main = None
    blocking: ClassVar[bool] = True
    lock: ClassVar[threading.Lock] = threading.Lock()
    now: ClassVar[int] = 0
    most: ClassVar[int] = 0

    def evaluate(self, answered: ParsedAnswer) -> Grade:
        """Take a moment."""
        with Busy.lock:
            Busy.now += 1
            Busy.most = max(Busy.most, Busy.now)
        time.sleep(0.05)
        with Busy.lock:
            Busy.now -= 1
        return Grade(1.0)


def test_checks_that_block_are_not_more_than_the_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    grader = CheckGrader((("busy", Busy(), 1.0),), {}, None)
    paid = StoredAnswer(Completion("x"), 0, True, 0)

    async def graded() -> list[Component]:
        case, output = Case(CaseId("one"), {}), parse_output("x", "none")
        found = await asyncio.gather(*(grader.components(case, output, paid) for _ in range(6)))
        return [component for one in found for component in one]

    assert [each.score for each in asyncio.run(graded())] == [1.0] * 6
    assert Busy.most == 2


@pytest.mark.usefixtures("short")
def test_a_check_that_never_ends_is_an_error_of_its_cell() -> None:
    component = _component("endless", Endless(), 1.0, answered("x"))
    assert (component.status, component.score) == ("error", None)
    assert component.reason == "the check takes longer than 0.1 s"


async def test_an_answer_that_nobody_can_read_is_an_error_and_not_bad() -> None:
    inputs = InputScreen(TextScreens(), active=False)
    grader = CellGrader(None, CheckGrader((), {}, None), None, (), _unasked, inputs, False, False)  # type: ignore[arg-type]  # not looked at
    output = Output("x", "x", failed="reading the answer takes longer than 5 s")
    grade = await grader.grade(
        Case(CaseId("a"), {}), output, StoredAnswer(Completion("x"), 0, True, 0)
    )
    assert (grade.status, grade.composite, grade.passed) == ("error", None, None)
    assert grade.reason == output.failed


async def _unasked(name: str, request: Any) -> Completion:
    raise AssertionError
