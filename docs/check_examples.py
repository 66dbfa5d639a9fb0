"""Answers that the documented example of each check passes and fails: for docs/checks.md and tests.

Each check has one example, in its class. What stands here makes it run: the case it is about, an
answer that passes, and one that fails.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edison_ci.records import Completion, FinishReason

TONE = """\
def check(output, expected, case):
    return {"score": 1.0 if "please" in output else 0.0, "reason": "wants a please"}
"""
GRADE = """\
import json, sys

whole = json.load(sys.stdin)["output"].endswith(".")
print(json.dumps({"score": 0.9 if whole else 0.1, "reason": "" if whole else "no full stop"}))
"""
FILES = {"checks/tone.py": TONE, "checks/grade.py": GRADE}
"""Code of the repository that examples name."""
SCHEMAS: dict[str, Any] = {"schemas/reply.json": {"type": "object", "required": ["reply"]}}


@dataclass(frozen=True)
class Answer:
    """An answer, what else is known of it, and how it is shown where it is not a text to show."""

    text: str
    shown: str = ""
    completion: dict[str, Any] = field(default_factory=dict)
    cost_microusd: int = 0

    @property
    def made(self) -> Completion:
        """The completion it came in."""
        return Completion(self.text, **self.completion)


@dataclass(frozen=True)
class Example:
    """What the example of a check is run on."""

    good: Answer
    bad: Answer
    case: dict[str, Any] = field(default_factory=dict)
    """Inputs of the case, and `expected`."""


def _texts(good: str, bad: str, **case: Any) -> Example:
    return Example(Answer(good), Answer(bad), case)


def _tools(*names: str, **arguments: Any) -> Answer:
    calls = [{"name": name, "arguments": arguments} for name in names]
    inside = ", ".join(f"{key}: {value}" for key, value in arguments.items())
    shown = ", ".join(f"{name}({inside})" for name in names) or "no call"
    return Answer("", f"calls {shown}" if names else shown, {"tool_calls": calls})


_FRIDAY = "the parcel arrives on Friday"

EXAMPLES: dict[str, Example] = {
    "equals": _texts(" Oslo\n", "Oslo, Norway", expected="Oslo"),
    "contains": _texts("It is Oslo.", "It is Bergen.", expected="Oslo"),
    "contains_any": _texts("We exchange it.", "We repair it."),
    "contains_all": _texts("a lamp, a kettle", "a lamp", must_include=["lamp", "kettle"]),
    "icontains": _texts("Thank You!", "Thanks!"),
    "starts_with": _texts("Dear Ada, ...", "Hello dear ..."),
    "ends_with": _texts("... Kind regards", "Kind regards, Ada"),
    "regex": _texts("Your Order Number is 7", "Your order is 7"),
    "one_of": _texts("no", "maybe"),
    "count": _texts("Is it late?", "Is it late? Is it lost?"),
    "quotes": _texts(
        f"It says \u201c{_FRIDAY}\u201d.",
        "It says \u201cthe parcel arrives on Monday\u201d.",
        document=f"We write to say that {_FRIDAY}, at noon.",
    ),
    "words": Example(Answer("Soon."), Answer("word " * 121, "121 words")),
    "chars": _texts("Your parcel left today.", "Yes."),
    "sentences": _texts("One. Two.", "One. Two. Three. Four."),
    "tokens": Example(
        Answer("Yes.", "12 tokens", {"tokens_out": 12}),
        Answer("Yes.", "501 tokens", {"tokens_out": 501}),
    ),
    "latency": Example(
        Answer("Yes.", "after 350 ms", {"latency_ms": 350}),
        Answer("Yes.", "after 2,500 ms", {"latency_ms": 2_500}),
    ),
    "cost": Example(
        Answer("Yes.", "for $0.0009", cost_microusd=900),
        Answer("Yes.", "for $0.02", cost_microusd=20_000),
    ),
    "finish_reason": Example(
        Answer("Yes.", "stopped by itself", {"finish_reason": FinishReason.STOP}),
        Answer("Yes, b", "cut off at max_tokens", {"finish_reason": FinishReason.LENGTH}),
    ),
    "is_json": _texts('{"total": 3}', "total: 3"),
    "json_schema": _texts('{"reply": "Hi"}', '{"answer": "Hi"}'),
    "json_path": _texts('{"total": 1032.0}', '{"total": 7}', expected={"total": 1032}),
    "is_xml": _texts("<a><b/></a>", "<a><b></a>"),
    "is_html": _texts("<p>Hello</p>", "Hello"),
    "is_sql": _texts("SELECT name FROM people", "SELECT FROM WHERE"),
    "is_yaml": _texts("a: 1", "just text"),
    "number": _texts("That makes 42.005", "That makes 41", expected=42),
    "tool_call": Example(_tools("get_weather", city="Oslo"), _tools("get_weather", city="Rome")),
    "tool_call_f1": Example(_tools("search", "book"), _tools("cancel")),
    "calls": Example(_tools("search", "book"), _tools("book", "search")),
    "json_diff": _texts(
        '{"city": "Oslo", "total": 3}',
        '{"city": "Rome", "total": 4}',
        expected={"city": "Oslo", "total": 3},
    ),
    "levenshtein": _texts("Kind regard", "Best wishes", expected="Kind regards"),
    "rouge_l": _texts(f"Good news: {_FRIDAY}", "We are sorry", expected=_FRIDAY),
    "rouge_n": _texts(f"Good news: {_FRIDAY}", "We are sorry", expected=_FRIDAY),
    "bleu": _texts(_FRIDAY, "We are sorry", expected=_FRIDAY),
    "chrf": _texts(_FRIDAY, "We are sorry", expected=_FRIDAY),
    "token_f1": _texts("In 5 to 7 working days.", "Soon.", expected="5 to 7 working days"),
    "similar": _texts("Your parcel is late.", "I like green tea.", expected="The parcel is late"),
    "overlap": _texts("Within 30 days.", "Soon.", expected="30 days"),
    "refusal": _texts("Here it is.", "I'm sorry, but I can't help with that."),
    "language": _texts("Das ist ein schöner Tag für uns.", "This is a lovely day for us."),
    "readability": _texts(
        "The cat sat on the mat. It was warm.",
        "Notwithstanding organisational complexities, communication necessitates standardisation.",
    ),
    "python": _texts("Write again, please.", "Write again."),
    "command": _texts("It ends well.", "It ends"),
    "not": _texts("Hello.", "As an AI, I cannot say."),
    "any_of": _texts("sure", "no"),
    "all_of": _texts('{"a": 1}', "text"),
    "mean_of": _texts("yes", "no, never ever"),
}

_PYTHON = "Python's own text functions"
_EXACT = "exact: it is the implementation"
_OWN = ("none; the rule below is the definition", "")
_FACTS = json.loads((Path(__file__).parent / "benchmarks/references.json").read_text("utf-8"))


def _measured(check: str) -> tuple[str, str]:
    """Return the reference of a check, and the agreement that is recorded."""
    facts = [fact for fact in _FACTS["checks"] if fact["check"] == check]
    said = [f"{fact['same']:,} of {fact['of']:,} {fact['inputs']}" for fact in facts]
    return facts[0]["reference"], "; ".join(said)


REFERENCES: dict[str, tuple[str, str]] = {
    "equals": (_PYTHON, _EXACT),
    "contains": (_PYTHON, _EXACT),
    "icontains": (_PYTHON, _EXACT),
    "starts_with": (_PYTHON, _EXACT),
    "ends_with": (_PYTHON, _EXACT),
    "contains_any": (_PYTHON, _EXACT),
    "contains_all": (_PYTHON, _EXACT),
    "regex": ("Python's `re`", _EXACT),
    "one_of": (_PYTHON, _EXACT),
    "count": ("Python's `str.count`", _EXACT),
    "quotes": _OWN,
    "words": _measured("words"),
    "chars": ("Python's `len`", _EXACT),
    "sentences": _measured("sentences"),
    "tokens": ("the provider's count", _EXACT),
    "latency": ("the clock of the call", _EXACT),
    "cost": ("the price of the model", _EXACT),
    "finish_reason": ("the provider's reason", _EXACT),
    "is_json": _measured("is_json"),
    "json_schema": _measured("json_schema"),
    "json_path": _OWN,
    "is_xml": _measured("is_xml"),
    "is_html": _OWN,
    "is_sql": ("SQLite", _EXACT),
    "is_yaml": ("the reader of project files", _EXACT),
    "number": _OWN,
    "json_diff": _measured("json_diff"),
    "tool_call": _OWN,
    "tool_call_f1": ("maximum matching (Kuhn 1955)", _EXACT),
    "calls": _measured("calls"),
    "levenshtein": _measured("levenshtein"),
    "rouge_l": _measured("rouge_l"),
    "rouge_n": _measured("rouge_n"),
    "bleu": ("sacrebleu", _EXACT),
    "chrf": ("sacrebleu", _EXACT),
    "token_f1": _measured("token_f1"),
    "similar": ("wordllama's weights, or the model in `by`", _EXACT),
    "overlap": _OWN,
    "refusal": _measured("refusal"),
    "language": ("py3langid", _EXACT),
    "readability": ("the formula of Flesch (1948)", _EXACT),
    "python": ("your code", ""),
    "command": ("your code", ""),
    "not": _OWN,
    "any_of": _OWN,
    "all_of": _OWN,
    "mean_of": _OWN,
}
"""What each check is held to, and how far it agrees."""
