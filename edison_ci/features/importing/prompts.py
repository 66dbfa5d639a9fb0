"""Prompts of promptfoo converted, and grader prompts for its model-graded assertions.

A prompt is a string, a file, a list of messages, or a map that names one of these. A prompt that
uses unsupported template syntax is left out; the report names the line.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.config.prompt import MAX_FEW_SHOTS, MAX_MAIN, MAX_SYSTEM
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.documents.yaml_text import read_beside, read_yaml
from edison_ci.features.importing.drafts import Message, Names, PromptDraft, file_name
from edison_ci.features.importing.fidelity import Status
from edison_ci.features.importing.output import reads_back
from edison_ci.features.importing.source import CODE_NOTE, UnusableReference, line_of_text
from edison_ci.features.importing.templates import ConversionError, convert

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edison_ci.documents.marks import Json
    from edison_ci.errors import Location
    from edison_ci.features.importing.fidelity import Fidelity, Node
    from edison_ci.features.importing.source import Source

_FILES = (".txt", ".md", ".json", ".jsonl", ".yaml", ".yml", ".csv", ".j2", ".njk")
_ELSEWHERE = re.compile(r"(?:https?|langfuse|portkey|helicone|s3|gs|huggingface)://")
_SCRIPT = re.compile(r"\S+\.(?:js|cjs|mjs|ts|py|rb|sh|bash|pl)(?::\w+)?\Z")
_BARE_FILE = re.compile(r"[\w./*-]+\.(?:txt|md|jsonl?|ya?ml|csv|j2|njk)\Z")
_DUMPED = re.compile(
    r'(?<!")\{\{-?\s*([^{}|]+?)\s*\|\s*(?:dump|tojson)(?:\s*\|\s*safe)?\s*-?\}\}(?!")'
)
_ROLES = {"developer": "system", "model": "assistant", "ai": "assistant", "human": "user"}


class Text(NamedTuple):
    """The text of a prompt and its location."""

    text: str
    node: Node
    file: str | None = None
    """The file of the prompt; None if it is part of the configuration."""
    label: str = ""
    first_line: int = 0
    """First line in the file, counted from 0."""


@dataclass(slots=True)
class Prompts:
    """Converts prompts."""

    source: Source
    base: str
    """Name of the import, the prefix of the names of prompts."""
    folder: str = "prompts"
    drafts: list[PromptDraft] = field(default_factory=list)
    _names: Names = field(default_factory=Names)

    @property
    def _fidelity(self) -> Fidelity:
        return self.source.fidelity

    def read(self, node: Node) -> None:
        """Read a prompt, or a list or map of them."""
        if isinstance(node.value, dict) and not _is_prompt(node.value):
            self._fidelity.mark_visited(node)  # {file or text: label}, the oldest form
            for child in node.children():
                self._one(child, child.name, str(child.value))
        elif isinstance(node.value, list) and not _is_chat(node.value):
            self._fidelity.mark_visited(node)
            for child in node.children():
                self.read(child)
        elif isinstance(node.value, dict):
            self._read_map(node)
        elif isinstance(node.value, str):
            self._one(node, node.value, "")
        else:
            self._add(Text("", node), lambda: chat_messages(node.value))

    def pass_through(self) -> None:
        """Add the prompt for a configuration without prompts: the variable `prompt`."""
        message = Message("user", "{{ prompt }}")
        names = frozenset({"prompt"})
        self.drafts.append(PromptDraft(self.base, (), [message], {"expect": "none"}, names))

    def _read_map(self, node: Node) -> None:
        self._fidelity.mark_visited(node)
        label = node.get("label") or node.get("display")
        name = str(label.value) if label is not None else ""
        source = node.get("raw") or node.get("file") or node.get("id")
        config = node.get("config")
        if label is not None:
            self._fidelity.add_mapped(label, self.folder)
        if config is not None:
            self._fidelity.add_unsupported(
                config, "parameters of a single prompt: write params in its front matter"
            )
        if source is None or not isinstance(source.value, str):
            self._fidelity.add_unsupported(
                node, "a prompt must be a string, a file or a list of messages"
            )
            return
        earlier = len(self.drafts)
        for other in (node.get("id"), node.get("file")):
            if other is not None and other.path != source.path:
                self._fidelity.add_mapped(other, self.folder)
        self._one(source, source.value, name)
        if (id := node.get("id")) is not None and id.path != source.path:
            for draft in self.drafts[earlier:]:
                draft.labels = (*draft.labels, str(id.value))

    def _one(self, node: Node, text: str, label: str) -> None:
        if text.startswith("exec:") or _SCRIPT.match(text):
            self._fidelity.add_unsupported(node, CODE_NOTE)
        elif _ELSEWHERE.match(text):
            self._fidelity.add_unsupported(
                node, "it is stored on a server; imports do not use the network"
            )
        elif text.startswith("file://") or (_BARE_FILE.match(text) and "\n" not in text):
            self._files(node, text, label)
        else:
            self._text(Text(text, node, label=label))

    def _files(self, node: Node, reference: str, label: str) -> None:
        try:
            for path in self.source.paths(reference):
                for text in self._read_file(path, node, label):
                    self._text(text)
        except UnusableReference as refused:
            self._fidelity.add_unsupported(node, str(refused))
        except Fault as fault:
            self._fidelity.add_unsupported(node, f"{fault.message} ({fault.hint})")

    def _read_file(self, path: str, node: Node, label: str) -> list[Text]:
        if not path.endswith(_FILES):
            raise UnusableReference("only text files are read")
        if path.endswith(".csv"):
            header, rows = self.source.table(path)
            at = header.index("prompt") if "prompt" in header else 0
            named = header.index("label") if "label" in header else None
            return [
                Text(
                    row.fields[at],
                    node,
                    path,
                    row.fields[named] if named is not None else label,
                    row.line,
                )
                for row in rows
                if row.fault is None
            ]
        text = self.source.text(path)
        if path.endswith(".jsonl"):
            lines = enumerate(text.split("\n"))
            return [Text(line, node, path, label, number) for number, line in lines if line.strip()]
        if path.endswith((".txt", ".md", ".j2", ".njk")) and re.search(r"(?m)^---$", text):
            return _split_prompts(text, node, path, label)
        return [Text(text, node, path, label)]

    def _text(self, text: Text) -> None:
        structured = (text.file or "").endswith((".yaml", ".yml"))
        self._add(text, lambda: read_messages(text.text, structured=structured))

    def _add(self, text: Text, messages: Callable[[], list[Message]]) -> None:
        node = text.node
        try:
            draft_messages = messages()
        except ConversionError as refusal:
            self._report_refusal(text, refusal)
            return
        stem = text.label or (text.file or "").rpartition("/")[2].rpartition(".")[0]
        name = file_name(stem, "prompt") if stem else ""
        draft = PromptDraft(
            self._names.free(f"{self.base}-{name}"[:90].strip("-") if name else self.base),
            tuple(label for label in (text.label, text.file, text.text) if label),
            draft_messages,
            {"expect": "none"},
            frozenset(
                name for message in draft_messages for name in convert(message.text).required
            ),
        )
        if not reads_back(draft):
            note = "left out: read back from a prompt file, its messages would differ"
            self._fidelity.add_unsupported(node, note)
            return
        self.drafts.append(draft)
        note = chat_note(text.text, node.value)
        status = Status.APPROXIMATED if note else Status.MAPPED
        self._fidelity.add(status, node, f"{self.folder}/{draft.id}.md", note)

    def _report_refusal(self, text: Text, refusal: ConversionError) -> None:
        note = f"the prompt was left out: {refusal.note}"
        if refusal.column is None:
            self._fidelity.add_unsupported(text.node, note)
        else:
            self._fidelity.mark_visited(text.node)
            where = self._line(text, refusal)
            self._fidelity.add_at(Status.UNSUPPORTED, where, text.node.key, note)

    def _line(self, text: Text, refusal: ConversionError) -> Location:
        line, column = refusal.line, refusal.column or 0
        if text.file is not None:
            return self.source.location(text.file, text.first_line + line, column)
        start = text.node.document.locate(text.node.path)
        down = line_of_text(text.node, self.source)
        file = text.node.document.file.removeprefix(self.source.display_folder)
        return self.source.location(file, (start.line or 1) - 1 + down + line, column)


def _is_prompt(value: dict[str, Json]) -> bool:
    return bool({"id", "raw", "file", "label", "display"} & value.keys())


def _is_chat(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and all(
        isinstance(message, dict) and "role" in message for message in value
    )  # fmt: skip


def _split_prompts(text: str, node: Node, path: str, label: str) -> list[Text]:
    """Return the prompts of a file, which are separated by lines of three dashes."""
    parts, start = [], 0
    for part in re.split(r"(?m)^---$", text):
        if part.strip():
            parts.append(Text(part, node, path, label, start))
        start += part.count("\n")
    return parts


def _chat_in(text: str, *, structured: bool) -> list[Json] | None:
    """Return the messages of a text in JSON or YAML; None for plain text."""
    stripped = text.strip()
    value: Json = None
    if stripped.startswith("[") and '"role"' in stripped:
        readable = _DUMPED.sub(r'"{{ \1 }}"', stripped)
        try:
            value = parse_json(readable)
        except Fault as fault:
            line = fault.at[0] + text[: len(text) - len(text.lstrip())].count("\n")
            note = f"its list of messages is not valid JSON: {fault.message}"
            raise ConversionError(note, line, fault.at[1]) from None
    elif structured or re.match(r"- role:", stripped):
        try:
            value = read_yaml(stripped, "prompt").value
        except Fault as fault:
            raise ConversionError(
                f"its messages are not valid YAML: {fault.message}", *fault.at
            ) from None
    return value if isinstance(value, list) and _is_chat(value) else None


def read_messages(text: str, *, structured: bool = False) -> list[Message]:
    """Return the messages of a chat in JSON or YAML; plain text is one user message."""
    chat = _chat_in(text, structured=structured)
    return chat_messages(chat) if chat is not None else _convert_messages([Message("user", text)])


def chat_note(text: str, value: Json) -> str:
    """Return a note on the messages of a chat that had to be changed; empty if none had."""
    try:
        chat = value if isinstance(value, list) else _chat_in(text, structured=False)
    except ConversionError:
        return ""
    roles = [str(message.get("role")) for message in chat or [] if isinstance(message, dict)]
    changed = [f"{role} became {_ROLES[role]}" for role in dict.fromkeys(roles) if role in _ROLES]
    if any(role == following for role, following in itertools.pairwise(roles)):
        changed.append("consecutive messages of one role were joined")
    return "; ".join(changed)


def chat_messages(value: Json, *, keep: frozenset[str] = frozenset()) -> list[Message]:
    """Return the messages of a chat; raises ConversionError if their order is not supported."""
    messages: list[Message] = []
    for item in value if isinstance(value, list) else []:
        if not isinstance(item, dict):
            raise ConversionError("a message must be a map with role and content")
        role = str(item.get("role"))
        role = _ROLES.get(role, role)
        if role not in ("system", "user", "assistant"):
            raise ConversionError(f"messages of role {role!r} are not supported")
        content = _content(item.get("content"))
        if messages and messages[-1].role == role:
            messages[-1] = Message(role, f"{messages[-1].text}\n\n{content}")
        else:
            messages.append(Message(role, content))
    rest = messages[1:] if messages and messages[0].role == "system" else messages
    if not rest or rest[-1].role != "user" or any(
        message.role != ("user", "assistant")[index % 2] for index, message in enumerate(rest)
    ):  # fmt: skip
        raise ConversionError("messages must be in the order system?, (user, assistant)*, user")
    if len(rest) // 2 > MAX_FEW_SHOTS:
        raise ConversionError(
            f"it has more than {MAX_FEW_SHOTS} pairs of user and assistant messages"
        )
    try:
        return _convert_messages(messages, keep)
    except ConversionError as refusal:  # its line counts within the message, not the file
        raise ConversionError(refusal.note) from None


def _content(value: Json) -> str:
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ConversionError("a message contains something other than text")
    return "\n".join(map(str, texts))


def _convert_messages(messages: list[Message], keep: frozenset[str] = frozenset()) -> list[Message]:
    converted_messages = []
    for message in messages:
        converted = convert(message.text, keep=keep)
        if "_conversation" in converted.renamed:
            raise ConversionError("_conversation (the earlier answers) is not supported")
        if converted.faults:
            fault = converted.faults[0]
            line, column = fault.at
            raise ConversionError(f"{fault.message}; {fault.hint}", line, column)
        limit = MAX_SYSTEM if message.role == "system" else MAX_MAIN
        if not converted.text.strip() or len(converted.text) > limit:
            raise ConversionError(
                f"a {message.role} message is empty or longer than {limit:,} characters"
            )
        converted_messages.append(Message(message.role, converted.text))
    return converted_messages


HOLE = "{{ HOLE }}"
"""Placeholder of the argument of a grader: a variable of the case, or a text."""

_GRADERS = read_beside(__file__, "graders.yaml")
KINDS = frozenset(_GRADERS["assertions"])
"""Kinds for assertions of promptfoo; the others are for evaluators of GitHub Models."""
NEEDS: Mapping[str, Sequence[str]] = _GRADERS["needs"]
"""Variables that a case must have for a kind of grader."""


def grader_messages(kind: str, *, negate: bool = False) -> tuple[Message, ...]:
    """Return the prompt of a grader; with `negate` the score is inverted."""
    grader = _GRADERS["kinds"][kind]
    against = "\nThen turn it round: your score is 1 minus that." if negate else ""
    score = f"Score: {grader['score']}{against}\n{_GRADERS['reply']}"
    parts = [_GRADERS["intro"], grader["material"], _GRADERS["answer"], score]
    return (Message("user", "\n\n".join(part for part in parts if part)),)


def has_hole(messages: tuple[Message, ...]) -> bool:
    """Whether a grader takes an argument."""
    return any(HOLE in message.text for message in messages)


def choices_message(choices: list[tuple[str, float]]) -> str:
    """Return the request for the score of one of several choices."""
    listed = "\n".join(f"- {choice}: {score:g}" for choice, score in choices)
    return f"Decide for one of these; its number is your score:\n{listed}\n\n{_GRADERS['reply']}"
