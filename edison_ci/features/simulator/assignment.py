"""Reading of requests by simulated models: task, case and instructions; and their answers."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from enum import StrEnum
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.records import canonical_json
from edison_ci.resources import resource_folder

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from random import Random

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


def parse_blocks(said: str) -> list[Block] | None:
    """Return the blocks of a message in order; None if it has another form."""
    found = _KEY.match(said)
    if found is None:
        return None
    blocks, at = [], 0
    while (opened := _OPENED.search(said, at)) is not None:
        tag, name, as_json, key = opened.groups()
        closing = f"\n</data:{tag} {key}>"
        end = said.find(f"{closing}\n", opened.end())
        if end < 0 and said.endswith(closing) and len(said) - len(closing) >= opened.end():
            end = len(said) - len(closing)
        if key != found[1] or end < 0:
            at = opened.start() + 1
            continue
        text = said[opened.end() : end]
        blocks.append(Block(tag, json.loads(name) if name else "", text, bool(as_json)))
        at = end + len(closing)
    return blocks


_OBJECTIVE = re.compile(r"\n\nThe objective: [^\n]+")
"""What a judge is told about the objective of an experiment."""


def without_objective(messages: tuple[Message, ...], seed: Json) -> tuple[Message, ...]:
    """Return the messages to a judge as they would be without an objective; others unchanged."""
    if len(messages) != 2:
        return messages
    system, user = messages
    blocks = parse_blocks(user.content) or []
    told, found = _OBJECTIVE.subn("", system.content, count=1)
    if not found or not blocks or (blocks[0].tag, blocks[0].name) != ("text", "objective"):
        return messages
    old, pieces = user.content.split("\n", 1)[0].split()[-1], blocks[1:]
    # The key depends on everything that is sent, so it is made again from what is left.
    sent = [told, [[b.tag, b.text, b.name, b.as_json] for b in pieces], seed]
    new = sha256(b"0:" + canonical_json(sent).encode()).hexdigest()[: len(old)]
    block = f'<data:text "objective" {old}>\n{blocks[0].text}\n</data:text {old}>\n\n'
    said = user.content.replace(block, "", 1).replace(old, new)
    return replace(system, content=told), replace(user, content=said)


MAX_CHARS = 100_000
"""The simulator reads this many characters of a text."""
_DISTINCTIVE = 12
_TEXTS = Path(__file__).parent / "texts"


class Task(StrEnum):
    """The tasks of the simulator."""

    SUPPORT = "support"
    STORY = "story"
    EXTRACTION = "extraction"
    CODE = "code"
    OTHER = "other"


_TEMPLATES = {
    Task.SUPPORT: "customer-support",
    Task.STORY: "creative-writing",
    Task.EXTRACTION: "data-extraction",
    Task.CODE: "code-generation",
}
KEY = {
    Task.SUPPORT: "message",
    Task.STORY: "brief",
    Task.EXTRACTION: "document",
    Task.CODE: "task",
}
"""The input that identifies a case of a task."""


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
        return str(self.inputs[KEY[self.task]])

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
    template = _TEMPLATES.get(task)
    if template is None:
        return ()
    folder = resource_folder("examples") / template / "datasets"
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
    said = text[:MAX_CHARS]
    for key, case in _by_key():
        if key in said and case.is_in(said):
            return case
    return None


@cache
def _by_key() -> tuple[tuple[str, KnownCase], ...]:
    return tuple((case.key, case) for task in _TEMPLATES for case in known_cases(task))


def case_with_inputs(task: Task, inputs: Mapping[str, Json]) -> KnownCase | None:
    """Return the known case that has these inputs."""
    wanted, function = inputs.get(KEY.get(task, "")), inputs.get("function", "")
    if not isinstance(wanted, str) or not isinstance(function, str):
        return None
    return _by_inputs(task).get((wanted, function))


@cache
def _by_inputs(task: Task) -> dict[tuple[str, str], KnownCase]:
    return {(case.key, str(case.inputs.get("function", ""))): case for case in known_cases(task)}


@cache
def load_texts(name: str) -> Any:
    """Return a collection of sentences for answers, by the name of its file."""
    return json.loads((_TEXTS / f"{name}.json").read_text(encoding="utf-8"))


_WORD = re.compile(r"[^\W\d_]+")
_JAPANESE = re.compile(r"[\u3040-\u30ff]")
_CHINESE = re.compile(r"[\u4e00-\u9fff]")
_STOP_WORDS = {
    "en": "the and is are was were to of in it you your for with that this have has be not my on "
    "at from will can do i we they he she a an no their who what which how but or so if by as",
    "de": "der die das und ist sie ich nicht ein eine zu den mit auf für wie dem es im auch noch "
    "wir ihr ihre sich dass bitte von wird",
    "fr": "le la les et est vous je ne pas un une des que dans pour avec votre nous il elle du au "
    "qui sur ce être cette à",
    "es": "el la los las y es que de no un una por para con su tu en lo se del al mi más como "
    "cuánto quiero gracias",
    "pt": "o os as e é que de não um uma por para com seu sua em do da no na se mais os temos uns "
    "esta boa obrigado",
    "it": "il lo la gli e è che di non un una per con suo sua in del della si più come nel mi "
    "ti quello",
    "pl": "i w na nie się że jest to z do o jak po ale tak który która być jej jego mnie",
}
_SETS = {code: frozenset(words.split()) for code, words in _STOP_WORDS.items()}
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
    counts = {code: sum(map(stop.__contains__, words)) for code, stop in _SETS.items()}
    best = max(counts, key=lambda code: (counts[code], code == "en"))
    return best if counts[best] > counts["en"] else "en"


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
    """What a message asks for: a task with its inputs and instructions."""

    task: Task
    inputs: Mapping[str, Json]
    """Inputs of the case that the message shows."""
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
        return str(self.inputs.get(KEY.get(self.task, ""), self.message))

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
        data = str(self.inputs.get(KEY.get(self.task, ""), ""))
        return _INJECTION.search(data[:MAX_CHARS]) is not None

    @property
    def language(self) -> str:
        """The language of the case, as a two-letter code."""
        return detect_language(str(self.inputs.get(KEY.get(self.task, ""), "")))

    def text(self, name: str) -> str:
        """Return an input as text; empty if it is not shown."""
        value = self.inputs.get(name, "")
        return value if isinstance(value, str) else ""


def read_assignment(messages: Sequence[Message]) -> Assignment:
    """Return the assignment of a chat; earlier turns are examples and do not count."""
    system = "\n".join(message.content for message in messages if message.role == "system")
    users = [message.content for message in messages if message.role == "user"]
    said = (users[-1] if users else "")[:MAX_CHARS]
    system = system[:_INSTRUCTION_CHARS]
    case = find_case(said) or (find_case(system) if system else None)
    if case is not None:
        return _known_assignment(case, system, said)
    task = _task(system, said)
    inputs, rest = _parse_labels(said, task)
    instructions = f"{system}\n{rest}"[:_INSTRUCTION_CHARS]
    return Assignment(task, inputs, instructions, said, None)


def _known_assignment(case: KnownCase, system: str, said: str) -> Assignment:
    everything = f"{system}\n{said}"
    shown = {
        name: value
        for name, value in case.inputs.items()
        if all(text in everything for text in strings_in(value))
    }
    instructions = _without_values(everything, *_values(case.task, case.id))
    return Assignment(case.task, shown, instructions[:_INSTRUCTION_CHARS], said, case)


def _without_values(text: str, long: tuple[str, ...], short: re.Pattern[str]) -> str:
    """Return a text without the values of a case, which are not instructions."""
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
    """Return a pattern that finds any of these as whole words."""
    found = "|".join(re.escape(word) for word in words)
    return re.compile(rf"(?<!\w)(?:{found})(?!\w)" if found else r"(?!)")


def _task(system: str, said: str) -> Task:
    text = f"{system}\n{said[:_INSTRUCTION_CHARS]}".lower()
    for task, sign in _SIGNS.items():
        if sign.search(text):
            return task
    return Task.OTHER


def _parse_labels(said: str, task: Task) -> tuple[dict[str, Json], str]:
    """Return the labelled inputs of an unknown case, and the text around them."""
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
    """Split a message without labels into instructions and material."""
    parts = said.split("\n\n")
    count = 1
    while count < len(parts) and _ORDER.search(parts[count].lower()) and len(parts[count]) < 600:
        count += 1
    if count == len(parts) and count > 1:
        count -= 1
    return "\n\n".join(parts[:count]), "\n\n".join(parts[count:]).strip()


class Observation(NamedTuple):
    """How much of a quality a text has, from 0 to 1, and a remark."""

    value: float
    remark: str


@dataclass(frozen=True, slots=True)
class AnswerSample:
    """An answer and the case it answers."""

    task: Task
    inputs: Mapping[str, Json]
    output: str

    @property
    def case(self) -> KnownCase | None:
        """The known case with these inputs."""
        return case_with_inputs(self.task, self.inputs)

    def text(self, name: str) -> str:
        """Return an input as text; empty if there is none."""
        value = self.inputs.get(name, "")
        return value if isinstance(value, str) else ""


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


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [part.strip() for part in _SENTENCE.split(text) if part and part.strip()]


def split_words(text: str) -> list[str]:
    """Return the words of a text, in lower case."""
    return _WRITING_WORD.findall(text.lower())


def paragraphs(*parts: Sequence[str]) -> str:
    """Return sentences joined into paragraphs, without empty ones."""
    joined = (" ".join(sentence for sentence in part if sentence) for part in parts)
    return "\n\n".join(text for text in joined if text)
