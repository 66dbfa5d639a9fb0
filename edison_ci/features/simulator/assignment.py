"""Reading of requests by simulated models: task, case and instructions; and their answers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache, lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.features.simulator.tasks import Task, data_pattern, load_data, task_data
from edison_ci.records import canonical_json
from edison_ci.resources import resource_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from random import Random

    from edison_ci.features.simulator.tasks import TaskData
    from edison_ci.records import Json, Message

# A message with material begins with the line `Key of this message: KEY`; each block is between
# `<data:TAG "NAME" KEY>` and `</data:TAG KEY>`.
_KEY = re.compile(r"\AKey of this message: ([0-9a-f]{16,64})\n")
_OPENED = re.compile(
    r'^<data:(\w+)(?: ("(?:[^"\\\n]|\\.)*"))?( json)? ([0-9a-f]{16,64})>\n', re.MULTILINE
)


class Block(NamedTuple):
    """A block of material."""

    tag: str
    name: str
    text: str
    as_json: bool

    @property
    def value(self) -> Json:
        """The value of the block, parsed if it is JSON."""
        if not self.as_json:
            return self.text
        try:
            value: Json = json.loads(self.text)
        except ValueError:
            return self.text
        return value


def parse_blocks(message: str) -> list[Block] | None:
    """Return the blocks of a message in order; None if it has another form."""
    first_line = _KEY.match(message)
    if first_line is None:
        return None
    blocks, at = [], 0
    while (opened := _OPENED.search(message, at)) is not None:
        tag, name, as_json, key = opened.groups()
        closing = f"\n</data:{tag} {key}>"
        end = message.find(f"{closing}\n", opened.end())
        if end < 0 and message.endswith(closing) and len(message) - len(closing) >= opened.end():
            end = len(message) - len(closing)
        if key != first_line[1] or end < 0:
            at = opened.start() + 1
            continue
        text = message[opened.end() : end]
        blocks.append(Block(tag, json.loads(name) if name else "", text, bool(as_json)))
        at = end + len(closing)
    return blocks


_OBJECTIVE = re.compile(r"\n\nThe objective: [^\n]+")
"""The sentence of a judge's instructions about the objective of an experiment."""


def without_objective(messages: tuple[Message, ...], seed: Json) -> tuple[Message, ...]:
    """Return the messages to a judge as they would be without an objective; others unchanged."""
    if len(messages) != 2:
        return messages
    system, user = messages
    blocks = parse_blocks(user.content) or []
    instructions, count = _OBJECTIVE.subn("", system.content, count=1)
    if not count or not blocks or (blocks[0].tag, blocks[0].name) != ("text", "objective"):
        return messages
    old, pieces = user.content.split("\n", 1)[0].split()[-1], blocks[1:]
    # The key depends on everything that is sent, so it is made again from what is left.
    sent = [instructions, [[b.tag, b.text, b.name, b.as_json] for b in pieces], seed]
    new = sha256(b"0:" + canonical_json(sent).encode()).hexdigest()[: len(old)]
    block = f'<data:text "objective" {old}>\n{blocks[0].text}\n</data:text {old}>\n\n'
    material = user.content.replace(block, "", 1).replace(old, new)
    return replace(system, content=instructions), replace(user, content=material)


MAX_CHARS = 100_000
"""The simulator reads this many characters of a text."""
_DISTINCTIVE = 12


@dataclass(frozen=True, slots=True)
class KnownCase:
    """A case of a shipped example, with its expected answer if it has one."""

    id: str
    task: Task
    inputs: Mapping[str, Json]
    expected: Json
    tags: frozenset[str]
    difficulty: int
    adversarial: bool

    @property
    def key(self) -> str:
        """The input that identifies the case."""
        return str(self.inputs[task_data(self.task).key])

    def is_in(self, text: str) -> bool:
        """Whether a message is about this case."""
        if self.key not in text:
            return False
        if self.task is Task.CODE:
            return str(self.inputs["function"]) in text
        if len(self.key) >= _DISTINCTIVE:
            return True
        return all(value in text for value in strings_in(self.inputs))


def strings_in(value: Json | Mapping[str, Json]) -> Iterator[str]:
    """Yield all strings inside a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)
    elif value is not None and not isinstance(value, bool | int | float):
        for item in value.values():
            yield from strings_in(item)


@cache
def known_cases(task: Task) -> tuple[KnownCase, ...]:
    """Return the known cases of a task, longest first; none if the examples are not installed."""
    example = task_data(task).example
    if not example:
        return ()
    folder = resource_folder("examples") / example / "datasets"
    cases = [
        _case(task, json.loads(line), adversarial=path.stem == "adversarial")
        for path in sorted(folder.glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    return tuple(sorted(cases, key=lambda case: -len(case.key)))


def _case(task: Task, row: dict[str, Any], *, adversarial: bool) -> KnownCase:
    return KnownCase(
        id=row["id"],
        task=task,
        inputs=row["input"],
        expected=row.get("expected"),
        tags=frozenset(row.get("tags", ())),
        difficulty=int(row.get("difficulty", 3)),
        adversarial=adversarial,
    )


def find_case(text: str) -> KnownCase | None:
    """Return the known case that a message is about."""
    start = text[:MAX_CHARS]
    for key, case in _by_key():
        if key in start and case.is_in(start):
            return case
    return None


@cache
def _by_key() -> tuple[tuple[str, KnownCase], ...]:
    return tuple((case.key, case) for task in Task for case in known_cases(task))


def case_with_inputs(task: Task, inputs: Mapping[str, Json]) -> KnownCase | None:
    """Return the known case that has these inputs."""
    key, function = inputs.get(task_data(task).key), inputs.get("function", "")
    if not isinstance(key, str) or not isinstance(function, str):
        return None
    return _by_inputs(task).get((key, function))


@cache
def _by_inputs(task: Task) -> dict[tuple[str, str], KnownCase]:
    return {(case.key, str(case.inputs.get("function", ""))): case for case in known_cases(task)}


_WORD = re.compile(r"[^\W\d_]+")
_JAPANESE = re.compile(r"[\u3040-\u30ff]")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_READ_CHARS = 4_000


@lru_cache(maxsize=2_048)
def detect_language(text: str) -> str:
    """Return the two-letter code of a language; English if it is unclear."""
    sample = text[:_READ_CHARS]
    if _JAPANESE.search(sample):
        return "ja"
    if len(_CHINESE.findall(sample)) > 3:
        return "zh"
    words = _WORD.findall(sample.lower())
    counts = {code: sum(map(stop.__contains__, words)) for code, stop in _stop_words().items()}
    best = max(counts, key=lambda code: (counts[code], code == "en"))
    return best if counts[best] > counts["en"] else "en"


@cache
def _stop_words() -> dict[str, frozenset[str]]:
    """Return frequent words of each language."""
    languages = load_data("reading")["stop_words"]
    return {code: frozenset(words.split()) for code, words in languages.items()}


_LABEL = re.compile(r"^[ \t>*-]{0,4}\**([A-Za-z][A-Za-z -]{2,18})\**:\**[ \t]*", re.M)
_INSTRUCTION_CHARS = 20_000
_SHORT_VALUE = 30
_MAX_WORDS = 20


@dataclass(frozen=True, slots=True)
class TaskInputs:
    """A task with the inputs of a case."""

    task: Task
    inputs: Mapping[str, Json]

    def text(self, name: str) -> str:
        """Return an input as text; empty if there is none."""
        value = self.inputs.get(name, "")
        return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class Assignment(TaskInputs):
    """What a message asks for: a task, the inputs that it shows, and instructions."""

    instructions: str
    """The text without the case."""
    message: str
    """The last user message."""
    case: KnownCase | None

    @property
    def key(self) -> str:
        """Identifies the case, independent of the prompt."""
        if self.case is not None:
            return self.case.id
        return str(self.inputs.get(task_data(self.task).key, self.message))

    @property
    def difficulty(self) -> int:
        """From 1 (easy) to 5 (hard)."""
        return self.case.difficulty if self.case else 3

    @property
    def adversarial(self) -> bool:
        """Whether the case is adversarial."""
        return self.case.adversarial if self.case else self.gives_orders

    @property
    def gives_orders(self) -> bool:
        """Whether the data of the case contains instructions to the model."""
        data = str(self.inputs.get(task_data(self.task).key, ""))
        return data_pattern("reading", "injection").search(data[:MAX_CHARS]) is not None

    @property
    def language(self) -> str:
        """The language of the case, as a two-letter code."""
        return detect_language(str(self.inputs.get(task_data(self.task).key, "")))


def read_assignment(messages: Sequence[Message]) -> Assignment:
    """Return the assignment of a chat; earlier turns are examples and do not count."""
    system = "\n".join(message.content for message in messages if message.role == "system")
    users = [message.content for message in messages if message.role == "user"]
    message = (users[-1] if users else "")[:MAX_CHARS]
    system = system[:_INSTRUCTION_CHARS]
    case = find_case(message) or (find_case(system) if system else None)
    if case is not None:
        return _known_assignment(case, system, message)
    text = f"{system}\n{message[:_INSTRUCTION_CHARS]}".lower()
    task = find_task(lambda data: data.message_sign.search(text))
    inputs, rest = _parse_labels(message, task)
    instructions = f"{system}\n{rest}"[:_INSTRUCTION_CHARS]
    return Assignment(task, inputs, instructions, message, None)


def _known_assignment(case: KnownCase, system: str, message: str) -> Assignment:
    everything = f"{system}\n{message}"
    visible_inputs = {
        name: value
        for name, value in case.inputs.items()
        if all(text in everything for text in strings_in(value))
    }
    # The values of a case are not instructions.
    long_values, short_values = _values(case.task, case.id)
    instructions = everything
    for value in long_values:
        instructions = instructions.replace(value, " ")
    instructions = short_values.sub(" ", instructions)[:_INSTRUCTION_CHARS]
    return Assignment(case.task, visible_inputs, instructions, message, case)


@lru_cache(maxsize=1_024)
def _values(task: Task, case_id: str) -> tuple[tuple[str, ...], re.Pattern[str]]:
    """Return the long values of a case, and a pattern for the short ones, the longest first."""
    case = next(case for case in known_cases(task) if case.id == case_id)
    values = sorted(
        {value.strip() for value in strings_in(case.inputs)}, key=lambda v: (-len(v), v)
    )
    long = tuple(value for value in values if len(value) > _SHORT_VALUE)
    words = "|".join(re.escape(value) for value in values if _SHORT_VALUE >= len(value) > 2)
    return long, re.compile(rf"(?<!\w)(?:{words})(?!\w)" if words else r"(?!)")


def find_task(shows: Callable[[TaskData], object]) -> Task:
    """Return the task that a text shows, the one with the plainest signs first."""
    return next((task for task in reversed(Task) if shows(task_data(task))), Task.OTHER)


def _parse_labels(message: str, task: Task) -> tuple[dict[str, Json], str]:
    """Return the labelled inputs of an unknown case, and the text around them."""
    labels = load_data("reading")["labels"]
    marks = [
        (match, labels[match[1].lower()])
        for match in _LABEL.finditer(message)
        if match[1].lower() in labels
    ]
    inputs: dict[str, Json] = {}
    before = message[: marks[0][0].start()] if marks else ""
    for index, (match, name) in enumerate(marks):
        end = marks[index + 1][0].start() if index + 1 < len(marks) else len(message)
        inputs.setdefault(name, message[match.end() : end].strip())
    words = inputs.get("must_include")
    if isinstance(words, str):
        required: list[Json] = [word.strip() for word in words.split(",") if word.strip()]
        inputs["must_include"] = required[:_MAX_WORDS]
    key = task_data(task).key
    if not key or key in inputs:
        return inputs, before if marks else message
    orders, data = _paragraphs(before if marks else message)
    return {**inputs, key: data}, orders


def _paragraphs(message: str) -> tuple[str, str]:
    """Split a message without labels into instructions and material."""
    parts = message.split("\n\n")
    order = data_pattern("reading", "order")
    count = 1
    while count < len(parts) and order.search(parts[count].lower()) and len(parts[count]) < 600:
        count += 1
    if count == len(parts) and count > 1:
        count -= 1
    return "\n\n".join(parts[:count]), "\n\n".join(parts[count:]).strip()


class Observation(NamedTuple):
    """How much of a quality a text has, from 0 to 1, and a remark."""

    value: float
    remark: str

    @classmethod
    def of(cls, good: bool, remark: str, otherwise: str, *, low: float = 0.0) -> Observation:
        """Return all of a quality with the first remark, or `low` with the other."""
        return cls(1.0, remark) if good else cls(low, otherwise)


@dataclass(frozen=True, slots=True)
class AnswerSample(TaskInputs):
    """An answer and the case it answers."""

    output: str

    @property
    def case(self) -> KnownCase | None:
        """The known case with these inputs."""
        return case_with_inputs(self.task, self.inputs)

    @property
    def lowered(self) -> str:
        """The answer in lower case, for which the patterns of the judge are."""
        return self.output.lower()


class Observers(NamedTuple):
    """How the judge looks at the answers to one task."""

    read: Callable[[AnswerSample], Any]
    """Returns what the others look at; None if there is nothing."""
    qualities: Mapping[str, Callable[[Any], Observation]]


def clamp(value: float) -> float:
    """Return the value, limited to 0 to 1."""
    return min(1.0, max(0.0, value))


_SENTENCE = re.compile(r"(?<=[.!?。！？])[\"”'’)]*\s+|(?<=[。！？])|\n+")  # noqa: RUF001  # Japanese
_WRITING_WORD = re.compile(r"\w[\w'’-]*")  # noqa: RUF001  # the apostrophe of typeset text


@dataclass(frozen=True, slots=True)
class AnswerDraft:
    """The inputs of writing one answer."""

    assignment: Assignment
    has: Mapping[str, bool]
    """Whether it has each quality."""
    rng: Random
    courtesy: float
    """Chance of one sentence more than needed."""

    def pick(self, sentences: Sequence[str]) -> str:
        """Return one of the sentences; an empty text if there are none."""
        return self.rng.choice(sentences) if sentences else ""

    def sample(self, sentences: Sequence[str], count: int) -> list[str]:
        """Return `count` different sentences, or all if there are fewer."""
        return self.rng.sample(sentences, min(count, len(sentences)))

    def chance(self, share: float) -> bool:
        """Return True in this share of the answers."""
        return self.rng.random() < share


@lru_cache(maxsize=256)
def split_sentences(text: str) -> tuple[str, ...]:
    """Return the sentences of a text, of which a judge observes several qualities."""
    return tuple(part.strip() for part in _SENTENCE.split(text) if part and part.strip())


def split_words(text: str) -> list[str]:
    """Return the words of a text, in lower case."""
    return _WRITING_WORD.findall(text.lower())


def paragraphs(*parts: Sequence[str]) -> str:
    """Return sentences joined into paragraphs, without empty ones."""
    joined = (" ".join(sentence for sentence in part if sentence) for part in parts)
    return "\n\n".join(text for text in joined if text)
