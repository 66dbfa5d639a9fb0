"""Prompts of promptfoo as ours.

A prompt is a text, a file, a list of messages, or a map that names one of these. What our template
language cannot say keeps a prompt out, with the line that does it.
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
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.importing.drafts import Message, Names, PromptDraft, file_name
from edison_ci.importing.fidelity import Status
from edison_ci.importing.imported import reads_back
from edison_ci.importing.source import CODE_NOTE, Refused, line_of_text
from edison_ci.importing.templates import convert

if TYPE_CHECKING:
    from collections.abc import Callable

    from edison_ci.documents.marks import Json
    from edison_ci.errors import Location
    from edison_ci.importing.fidelity import Fidelity, Node
    from edison_ci.importing.source import Source

_FILES = (".txt", ".md", ".json", ".jsonl", ".yaml", ".yml", ".csv", ".j2", ".njk")
_ELSEWHERE = re.compile(r"(?:https?|langfuse|portkey|helicone|s3|gs|huggingface)://")
_SCRIPT = re.compile(r"\S+\.(?:js|cjs|mjs|ts|py|rb|sh|bash|pl)(?::\w+)?\Z")
_BARE_FILE = re.compile(r"[\w./*-]+\.(?:txt|md|jsonl?|ya?ml|csv|j2|njk)\Z")
_DUMPED = re.compile(
    r'(?<!")\{\{-?\s*([^{}|]+?)\s*\|\s*(?:dump|tojson)(?:\s*\|\s*safe)?\s*-?\}\}(?!")'
)
_ROLES = {"developer": "system", "model": "assistant", "ai": "assistant", "human": "user"}


class Refusal(Exception):
    """A prompt that cannot be ours, and the line that makes it so."""

    def __init__(self, note: str, line: int = 0, column: int | None = None) -> None:
        super().__init__(note)
        self.note, self.line, self.column = note, line, column


class Text(NamedTuple):
    """The text of a prompt and where it stands."""

    text: str
    node: Node
    file: str | None = None
    """The file it is all of; None if it stands in the configuration."""
    label: str = ""
    first_line: int = 0
    """Line of the file, from 0, on which it starts."""


@dataclass(slots=True)
class Prompts:
    """Turns prompts into ours."""

    source: Source
    base: str
    """Name of the import, with which names of prompts start."""
    folder: str = "prompts"
    drafts: list[PromptDraft] = field(default_factory=list)
    _names: Names = field(default_factory=Names)

    @property
    def _fidelity(self) -> Fidelity:
        return self.source.fidelity

    def read(self, node: Node) -> None:
        """Read a prompt, or a list or map of them."""
        if isinstance(node.value, dict) and not _is_prompt(node.value):
            self._fidelity.seen(node)  # {file or text: label}, the oldest form
            for child in node.children():
                self._one(child, child.name, str(child.value))
        elif isinstance(node.value, list) and not _is_chat(node.value):
            self._fidelity.seen(node)
            for child in node.children():
                self.read(child)
        elif isinstance(node.value, dict):
            self._named(node)
        elif isinstance(node.value, str):
            self._one(node, node.value, "")
        else:
            self._add(Text("", node), lambda: messages_of(node.value))

    def pass_through(self) -> None:
        """Add the prompt of a configuration without prompts: a variable of the tests."""
        message = Message("user", "{{ prompt }}")
        names = frozenset({"prompt"})
        self.drafts.append(PromptDraft(self.base, (), [message], {"expect": "none"}, names))

    def _named(self, node: Node) -> None:
        self._fidelity.seen(node)
        label = node.get("label") or node.get("display")
        name = str(label.value) if label is not None else ""
        said = node.get("raw") or node.get("file") or node.get("id")
        config = node.get("config")
        if label is not None:
            self._fidelity.mapped(label, self.folder)
        if config is not None:
            self._fidelity.unsupported(
                config, "parameters of one prompt: write params in its front matter"
            )
        if said is None or not isinstance(said.value, str):
            self._fidelity.unsupported(node, "a prompt is a text, a file or a list of messages")
            return
        for other in (node.get("id"), node.get("file")):
            if other is not None and other.path != said.path:
                self._fidelity.mapped(other, self.folder)
        self._one(said, said.value, name)

    def _one(self, node: Node, text: str, label: str) -> None:
        if text.startswith("exec:") or _SCRIPT.match(text):
            self._fidelity.unsupported(node, CODE_NOTE)
        elif _ELSEWHERE.match(text):
            self._fidelity.unsupported(node, "it is kept elsewhere; importing uses no network")
        elif text.startswith("file://") or (_BARE_FILE.match(text) and "\n" not in text):
            self._files(node, text, label)
        else:
            self._text(Text(text, node, label=label))

    def _files(self, node: Node, reference: str, label: str) -> None:
        try:
            for path in self.source.paths(reference):
                for text in self._in_file(path, node, label):
                    self._text(text)
        except Refused as refused:
            self._fidelity.unsupported(node, str(refused))
        except Fault as fault:
            self._fidelity.unsupported(node, f"{fault.message} ({fault.hint})")

    def _in_file(self, path: str, node: Node, label: str) -> list[Text]:
        if not path.endswith(_FILES):
            raise Refused("only files of text are read")
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
            return _separated(text, node, path, label)
        return [Text(text, node, path, label)]

    # --- one text ---------------------------------------------------------------------------------

    def _text(self, text: Text) -> None:
        structured = (text.file or "").endswith((".yaml", ".yml"))
        self._add(text, lambda: read_messages(text.text, structured=structured))

    def _add(self, text: Text, messages: Callable[[], list[Message]]) -> None:
        node = text.node
        try:
            found = messages()
        except Refusal as refusal:
            self._refused(text, refusal)
            return
        stem = text.label or (text.file or "").rpartition("/")[2].rpartition(".")[0]
        name = file_name(stem, "prompt") if stem else ""
        draft = PromptDraft(
            self._names.free(f"{self.base}-{name}"[:90].strip("-") if name else self.base),
            tuple(label for label in (text.label, text.file, text.text) if label),
            found,
            {"expect": "none"},
            frozenset(name for message in found for name in convert(message.text).required),
        )
        if not reads_back(draft):
            note = "left out: our reader would not find the same messages in it"
            self._fidelity.unsupported(node, note)
            return
        self.drafts.append(draft)
        note = joined_note(text.text, node.value)
        status = Status.APPROXIMATED if note else Status.MAPPED
        self._fidelity.say(status, node, f"{self.folder}/{draft.id}.md", note)

    def _refused(self, text: Text, refusal: Refusal) -> None:
        note = f"the prompt was left out: {refusal.note}"
        if refusal.column is None:
            self._fidelity.unsupported(text.node, note)
        else:
            self._fidelity.seen(text.node)
            where = self._line(text, refusal)
            self._fidelity.at(Status.UNSUPPORTED, where, text.node.key, note)

    def _line(self, text: Text, refusal: Refusal) -> Location:
        line, column = refusal.line, refusal.column or 0
        if text.file is not None:
            return self.source.location(text.file, text.first_line + line, column)
        start = text.node.document.locate(text.node.path)
        down = line_of_text(text.node, self.source)
        file = text.node.document.file.removeprefix(self.source.shown)
        return self.source.location(file, (start.line or 1) - 1 + down + line, column)


def _is_prompt(value: dict[str, Json]) -> bool:
    return bool({"id", "raw", "file", "label", "display"} & value.keys())


def _is_chat(value: Json) -> bool:
    return isinstance(value, list) and bool(value) and all(
        isinstance(each, dict) and "role" in each for each in value
    )  # fmt: skip


def _separated(text: str, node: Node, path: str, label: str) -> list[Text]:
    """Return the prompts of a file that lines of three dashes separate."""
    found, start = [], 0
    for part in re.split(r"(?m)^---$", text):
        if part.strip():
            found.append(Text(part, node, path, label, start))
        start += part.count("\n")
    return found


def _chat_in(text: str, *, structured: bool) -> list[Json] | None:
    """Return the messages that a text is, as JSON or YAML; None for a plain text."""
    stripped = text.strip()
    value: Json = None
    if stripped.startswith("[") and '"role"' in stripped:
        readable = _DUMPED.sub(r'"{{ \1 }}"', stripped)
        try:
            value = parse_json(readable)
        except Fault as fault:
            line = fault.at[0] + text[: len(text) - len(text.lstrip())].count("\n")
            note = f"its list of messages is not valid JSON: {fault.message}"
            raise Refusal(note, line, fault.at[1]) from None
    elif structured or re.match(r"- role:", stripped):
        try:
            value = read_yaml(stripped, "prompt").value
        except Fault as fault:
            raise Refusal(f"its messages are not valid YAML: {fault.message}", *fault.at) from None
    return value if isinstance(value, list) and _is_chat(value) else None


def read_messages(text: str, *, structured: bool = False) -> list[Message]:
    """Return the messages that a text is: a chat in JSON or YAML, or one of the user."""
    chat = _chat_in(text, structured=structured)
    return messages_of(chat) if chat is not None else _converted([Message("user", text)])


def joined_note(text: str, value: Json) -> str:
    """Return what to say of a chat whose messages could not stay as they are."""
    try:
        chat = value if isinstance(value, list) else _chat_in(text, structured=False)
    except Refusal:
        return ""
    roles = [str(each.get("role")) for each in chat or [] if isinstance(each, dict)]
    changed = [f"{role} became {_ROLES[role]}" for role in dict.fromkeys(roles) if role in _ROLES]
    if any(one == other for one, other in itertools.pairwise(roles)):
        changed.append("messages of one role in a row became one")
    return "; ".join(changed)


def messages_of(value: Json, *, keep: frozenset[str] = frozenset()) -> list[Message]:
    """Return the messages of a chat in the order that ours have."""
    found: list[Message] = []
    for each in value if isinstance(value, list) else []:
        if not isinstance(each, dict):
            raise Refusal("a message is a map of role and content")
        role = str(each.get("role"))
        role = _ROLES.get(role, role)
        if role not in ("system", "user", "assistant"):
            raise Refusal(f"a message of role {role!r} has no place in a prompt")
        content = _content(each.get("content"))
        if found and found[-1].role == role:
            found[-1] = Message(role, f"{found[-1].text}\n\n{content}")
        else:
            found.append(Message(role, content))
    rest = found[1:] if found and found[0].role == "system" else found
    if not rest or rest[-1].role != "user" or any(
        message.role != ("user", "assistant")[index % 2] for index, message in enumerate(rest)
    ):  # fmt: skip
        raise Refusal("the order of our messages is system?, (user, assistant)*, user")
    if len(rest) // 2 > MAX_FEW_SHOTS:
        raise Refusal(f"it has more than {MAX_FEW_SHOTS} pairs of user and assistant")
    try:
        return _converted(found, keep)
    except Refusal as refusal:  # its place is one inside a message, not in the file
        raise Refusal(refusal.note) from None


def _content(value: Json) -> str:
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise Refusal("a message holds something else than text")
    return "\n".join(map(str, texts))


def _converted(messages: list[Message], keep: frozenset[str] = frozenset()) -> list[Message]:
    found = []
    for message in messages:
        converted = convert(message.text, keep=keep)
        if "_conversation" in converted.renamed:
            raise Refusal("_conversation (the answers so far) has no counterpart")
        if converted.faults:
            fault = converted.faults[0]
            line, column = fault.at
            raise Refusal(f"{fault.message}; {fault.hint}", line, column)
        limit = MAX_SYSTEM if message.role == "system" else MAX_MAIN
        if not converted.text.strip() or len(converted.text) > limit:
            raise Refusal(f"a {message.role} message is empty or longer than {limit:,} characters")
        found.append(Message(message.role, converted.text))
    return found
