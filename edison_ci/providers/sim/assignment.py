"""What was a model asked to do, about which case, with which instructions?"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from edison_ci.frozen import dataclass
from edison_ci.providers.sim.knowledge import (
    KEY,
    MAX_CHARS,
    KnownCase,
    Task,
    find_case,
    known_cases,
    strings_in,
)
from edison_ci.providers.sim.languages import language_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edison_ci.records import Json, Message

_SIGNS = {
    Task.CODE: re.compile(r"\bdef \w+\(|\bpython\b"),
    Task.EXTRACTION: re.compile(
        r"\b(?:extract|invoice|receipt)\b.*\bjson\b|\bjson\b.*\binvoice", re.S
    ),
    Task.STORY: re.compile(r"\b(?:story|tale|fiction|cuento|histoire|geschichte)\b"),
    Task.SUPPORT: re.compile(r"\b(?:customer|support agent|shop policy|complaint|helpdesk)\b"),
}
_LABELS = {
    "customer": "customer_name",
    "customer name": "customer_name",
    "name": "customer_name",
    "message": "message",
    "customer message": "message",
    "e-mail": "message",
    "shop policy": "policy",
    "policy": "policy",
    "brief": "brief",
    "genre": "genre",
    "tone": "tone",
    "words": "must_include",
    "required words": "must_include",
    "signature": "signature",
    "function": "function",
    "task": "task",
    "examples": "examples",
    "document": "document",
    "invoice": "document",
    "text": "document",
}
_LABEL = re.compile(r"^[ \t>*-]{0,4}\**([A-Za-z][A-Za-z -]{2,18})\**:\**[ \t]*", re.M)
_ORDER = re.compile(
    r"\b(?:extract|answer|return|use|give|write|report|ignore|treat|do not|don't|never|only|keep|"
    r"must|should|json|null|you)\b"
)
_INJECTION = re.compile(
    r"ignore (?:all|any|the|previous|above)|disregard|system (?:notice|override)|new task|"
    r"you are now|override|forget (?:all|any|everything)|vergiss alle|oublie|dimentica|"
    r"assistant[:,]|previous instructions|reveal your|repeat everything",
    re.I,
)
_INSTRUCTION_CHARS = 20_000
_SHORT_VALUE = 30
_MAX_WORDS = 20


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a message asks for."""

    task: Task
    inputs: Mapping[str, Json]
    """What the message says about the case; an input that it does not show is not here."""
    instructions: str
    """The text without the case."""
    said: str
    """The last user message."""
    case: KnownCase | None

    @property
    def key(self) -> str:
        """What tells this case from others, whatever prompt it comes in."""
        if self.case is not None:
            return self.case.id
        return str(self.inputs.get(KEY.get(self.task, ""), self.said))

    @property
    def difficulty(self) -> int:
        """From 1 (easy) to 5 (hard)."""
        return self.case.difficulty if self.case else 3

    @property
    def adversarial(self) -> bool:
        """Whether the case is a nasty one."""
        return self.case.adversarial if self.case else self.gives_orders

    @property
    def gives_orders(self) -> bool:
        """Whether the case itself tries to instruct the model."""
        data = str(self.inputs.get(KEY.get(self.task, ""), ""))
        return _INJECTION.search(data[:MAX_CHARS]) is not None

    @property
    def language(self) -> str:
        """The language of the case, as a two-letter code."""
        return language_of(str(self.inputs.get(KEY.get(self.task, ""), "")))

    def text(self, name: str) -> str:
        """Return an input as text; empty if it is not shown."""
        value = self.inputs.get(name, "")
        return value if isinstance(value, str) else ""


def read(messages: Sequence[Message]) -> Assignment:
    """Return what the messages ask for; earlier turns are examples and do not count."""
    system = "\n".join(message.content for message in messages if message.role == "system")
    users = [message.content for message in messages if message.role == "user"]
    said = (users[-1] if users else "")[:MAX_CHARS]
    system = system[:_INSTRUCTION_CHARS]
    case = find_case(said) or (find_case(system) if system else None)
    if case is not None:
        return _about(case, system, said)
    task = _task(system, said)
    inputs, rest = _labelled(said, task)
    instructions = f"{system}\n{rest}"[:_INSTRUCTION_CHARS]
    return Assignment(task, inputs, instructions, said, None)


def _about(case: KnownCase, system: str, said: str) -> Assignment:
    everything = f"{system}\n{said}"
    shown = {
        name: value
        for name, value in case.inputs.items()
        if all(text in everything for text in strings_in(value))
    }
    instructions = _without_values(everything, *_values(case.task, case.id))
    return Assignment(case.task, shown, instructions[:_INSTRUCTION_CHARS], said, case)


def _without_values(text: str, long: tuple[str, ...], short: re.Pattern[str]) -> str:
    """Return a text without the values of a case, so that they count as no instructions."""
    for value in long:
        text = text.replace(value, " ")
    return short.sub(" ", text)


@lru_cache(maxsize=1_024)
def _values(task: Task, case_id: str) -> tuple[tuple[str, ...], re.Pattern[str]]:
    """Return the long values of a case, and a pattern for the short ones, the longest first."""
    case = next(case for case in known_cases(task) if case.id == case_id)
    values = sorted(
        {value.strip() for value in strings_in(case.inputs)}, key=lambda v: (-len(v), v)
    )
    long = tuple(value for value in values if len(value) > _SHORT_VALUE)
    words = [value for value in values if _SHORT_VALUE >= len(value) > 2]
    return long, any_word(words)


def any_word(words: list[str]) -> re.Pattern[str]:
    """Return a pattern that finds any of these, unless letters or digits go on beside it."""
    found = "|".join(re.escape(word) for word in words)
    return re.compile(rf"(?<!\w)(?:{found})(?!\w)" if found else r"(?!)")


def _task(system: str, said: str) -> Task:
    text = f"{system}\n{said[:_INSTRUCTION_CHARS]}".lower()
    for task, sign in _SIGNS.items():
        if sign.search(text):
            return task
    return Task.OTHER


def _labelled(said: str, task: Task) -> tuple[dict[str, Json], str]:
    """Return the inputs of an unknown case as their labels show them, and the text around."""
    marks = [
        (found, _LABELS[found[1].lower()])
        for found in _LABEL.finditer(said)
        if found[1].lower() in _LABELS
    ]
    inputs: dict[str, Json] = {}
    rest = [said[: marks[0][0].start()] if marks else ""]
    for index, (found, name) in enumerate(marks):
        end = marks[index + 1][0].start() if index + 1 < len(marks) else len(said)
        inputs.setdefault(name, said[found.end() : end].strip())
    words = inputs.get("must_include")
    if isinstance(words, str):
        required: list[Json] = [word.strip() for word in words.split(",") if word.strip()]
        inputs["must_include"] = required[:_MAX_WORDS]
    key = KEY.get(task)
    if key is None or key in inputs:
        return inputs, "\n".join(rest) if marks else said
    orders, data = _paragraphs(rest[0] if marks else said)
    return {**inputs, key: data}, orders


def _paragraphs(said: str) -> tuple[str, str]:
    """Split a message without labels where the orders end and the material begins."""
    parts = said.split("\n\n")
    count = 1
    while count < len(parts) and _ORDER.search(parts[count].lower()) and len(parts[count]) < 600:
        count += 1
    if count == len(parts) and count > 1:
        count -= 1
    return "\n\n".join(parts[:count]), "\n\n".join(parts[count:]).strip()
