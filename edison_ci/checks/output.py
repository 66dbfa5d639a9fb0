"""Parsing of the output of a model: thinking, the response section, and JSON.

It takes time linear in the length of the answer: tags and fences are searched once, from left to
right.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.checks.evaluation import EvaluationError
from edison_ci.checks.time_limit import run_limited
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edison_ci.records import Json

_THINKING = re.compile("</?think(?:ing)?>", re.IGNORECASE)
_RESPONSE = re.compile("</?response>", re.IGNORECASE)
_FENCE = "```"


class AsksForForm(Protocol):
    """A prompt, as far as it decides the form of answers."""

    @property
    def expect(self) -> str:
        """The form that answers must have."""
        ...

    @property
    def output(self) -> Json:
        """Their JSON Schema."""
        ...

    @property
    def mentioned(self) -> str:
        """A form that they need not have."""
        ...


@dataclass(frozen=True, slots=True)
class Output:
    """A parsed answer: `raw` is all of it, `text` is what is graded."""

    raw: str
    text: str
    thinking: str = ""
    value: Json = None
    """The JSON value, if JSON is expected."""
    schema: Json = None
    """The JSON Schema that its prompt declares."""
    malformed: str = ""
    """Why the answer does not have the expected form; empty if it has."""
    mentioned: str = "none"
    """A form that its prompt mentions, and that it need not have."""
    failed: str = ""
    """Why the answer could not be parsed in time; empty otherwise. It is not the answer's fault."""


def parse_answer(raw: str, prompt: AsksForForm) -> Output:
    """Parse an answer as its prompt asks for it, and note what else the prompt mentions."""
    output = parse_output(raw, prompt.expect, prompt.output)
    return output if prompt.mentioned == "none" else replace(output, mentioned=prompt.mentioned)


def parse_output(raw: str, expect: str, schema: Json = None) -> Output:
    """Remove `<thinking>` or `<think>`, and extract the response or JSON, as expected."""
    if expect == "none" and "<" not in raw:
        return Output(raw, raw, schema=schema)
    try:
        output = run_limited("reading the answer", lambda: _parse(raw, expect))
    except EvaluationError as error:
        return Output(raw, raw, failed=str(error))
    return output if schema is None else replace(output, schema=schema)


def _parse(raw: str, expect: str) -> Output:
    thinking, text = _without_thinking(raw)
    if expect in ("response", "response+json"):
        responses = [text[start:end] for start, end in _sections(_RESPONSE, text)]
        if len(responses) != 1:
            what = (
                "no <response> section"
                if not responses
                else f"{len(responses)} <response> sections"
            )
            return Output(raw, text, thinking, malformed=what)
        text = responses[0].strip()
    if expect not in ("json", "response+json"):
        return Output(raw, text, thinking)
    try:
        value = parse_json(_strip_json_fence(text))
    except Fault as fault:
        return Output(raw, text, thinking, malformed=fault.message)
    return Output(raw, text, thinking, value)


def _sections(tag: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of the contents of `<tag>...</tag>`; tags do not nest."""
    start: int | None = None
    for mark in tag.finditer(text):
        is_end = text[mark.start() + 1] == "/"
        if start is None and not is_end:
            start = mark.end()
        elif start is not None and is_end:
            yield start, mark.start()
            start = None


def _without_thinking(raw: str) -> tuple[str, str]:
    """Return the thinking, and the rest."""
    first = _THINKING.search(raw) if "<" in raw else None
    if first is None:
        return "", raw
    if first[0].lower() == "</think>":  # some services put the start of it into the prompt
        return raw[: first.start()].strip(), raw[first.end() :].strip()
    sections = list(_sections(_THINKING, raw))
    thinking = "\n".join(raw[start:end].strip() for start, end in sections)
    if not thinking:
        return "", raw
    rest, at = [], 0
    for start, end in sections:
        rest.append(raw[at : raw.rindex("<", at, start)])
        at = raw.index(">", end) + 1
    return thinking, "".join([*rest, raw[at:]]).strip()


def _strip_json_fence(text: str) -> str:
    """Return the text without a ``` or ```json fence around all of it."""
    text = text.strip()
    if len(text) < 2 * len(_FENCE) or not (text.startswith(_FENCE) and text.endswith(_FENCE)):
        return text
    inner = text[len(_FENCE) : -len(_FENCE)].removeprefix("json")
    before, after = len(inner) - len(inner.lstrip()), len(inner.rstrip())
    has_lines = "\n" in inner[:before] and "\n" in inner[after:]
    return inner.strip() if has_lines else text
