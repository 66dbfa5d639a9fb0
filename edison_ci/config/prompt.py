"""What does a prompt file say: its messages, its variables and its version?

A prompt is front matter between `---` lines and a body of role sections. Roles are split before
anything is rendered, so no value of a case can open a section.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from edison_ci.config.problems import problems_of
from edison_ci.config.prompt_header import Expect, Input, PromptHeader
from edison_ci.config.secrets_in_files import secrets_in
from edison_ci.documents.decoding import decode
from edison_ci.documents.marks import Document, Fault, Json, Mark
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.errors import Location, Problem, Severity
from edison_ci.names import did_you_mean
from edison_ci.records import Message, PromptId, Role
from edison_ci.templating import Template, TemplateFaults, compile_template

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MAX_MAIN = 20_000
MIN_BODY = 50
MAX_SYSTEM = 5_000
MAX_FEW_SHOTS = 10
GRADER_VARIABLES = frozenset({"output", "expected"})

_HEADING = re.compile(r"# (system|user|assistant)\s*\Z")
_ESCAPED = re.compile(r"\\# (system|user|assistant)\s*\Z")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


@dataclass(frozen=True, slots=True)
class Section:
    """One message of a prompt, before its variables are filled in."""

    role: Role
    template: Template
    line: int
    """Line of the file on which its text starts."""


@dataclass(frozen=True)
class Prompt:
    """A prompt file."""

    id: PromptId
    path: str
    header: PromptHeader
    sections: tuple[Section, ...]
    inputs: Mapping[str, Input]
    """Every variable, declared or found in the text."""
    expect: Expect
    """What the output must be, `auto` resolved."""
    output: Json = None
    tools: Json = None
    where: Mapping[str, Location] = field(default_factory=dict)
    """Where each variable is first used."""

    @cached_property
    def version(self) -> str:
        """sha256 of everything that reaches the model."""
        return _digest(
            {
                "type": self.header.type,
                "syntax": self.header.syntax,
                "sections": [[s.role, s.template.source] for s in self.sections],
                "params": self.header.params.written(),
                "defaults": {k: v.default for k, v in self.inputs.items() if v.has_default},
                "output": self.output,
                "tools": self.tools,
            }
        )

    @cached_property
    def required(self) -> frozenset[str]:
        """Variables that a case must have."""
        optional = {k for k, v in self.inputs.items() if v.has_default}
        used = {k for s in self.sections for k, use in s.template.uses.items() if not use.optional}
        given = GRADER_VARIABLES if self.header.type == "grader" else frozenset[str]()
        return frozenset(used - optional - given)

    @cached_property
    def plain(self) -> bool:
        """Whether having its variables is all a case needs to be rendered."""
        return all(section.template.plain for section in self.sections)

    def render(self, variables: Mapping[str, Json]) -> tuple[Message, ...]:
        """Return the messages for these values; raises MissingValueError or RenderError."""
        values = {k: v.default for k, v in self.inputs.items() if v.has_default}
        values.update(variables)
        return tuple(Message(s.role, s.template.render(values)) for s in self.sections)


@dataclass(slots=True)
class _Reading:
    """A prompt on its way from bytes to a Prompt, with what was wrong on the way."""

    path: str
    problems: list[Problem]

    def add(self, line: int, column: int, code: str, message: str, hint: str = "") -> None:
        where = Location(self.path, line, column)
        self.problems.append(Problem(where, code, message, hint))

    def fault(self, fault: Fault, first_line: int) -> None:
        self.add(fault.at[0] + first_line, fault.at[1] + 1, fault.code, fault.message, fault.hint)


def read_prompt(
    data: bytes, path: str, resolve: Callable[[str], Json] | None = None
) -> tuple[Prompt | None, list[Problem]]:
    """Return the prompt and everything wrong with it; `resolve` reads a schema file by path."""
    reading = _Reading(path, [])
    try:
        text = decode(data).replace("\r\n", "\n")
    except Fault as fault:
        reading.fault(fault, 1)
        return None, reading.problems
    for secret in secrets_in(text):
        reading.fault(secret, 1)
    header, document, body, body_line = _front_matter(text, reading)
    sections = _sections(body, body_line, header.syntax if header else "jinja", reading)
    if header is None or document is None or sections is None:
        return None, reading.problems
    stem = path.rpartition("/")[2].removesuffix(".md")
    if header.id is not None and header.id != stem:
        reading.problems.append(
            document.problem(
                ("id",),
                "id",
                f"id is {header.id!r}, the file's stem is {stem!r}",
                "rename one of them",
            )
        )
    _lengths(sections, reading)
    inputs, where = _inputs(header, document, sections, reading)
    output = _referenced(header.output, ("output",), document, resolve, reading)
    tools = _referenced(header.tools, ("tools",), document, resolve, reading)
    if any(p.severity is Severity.ERROR for p in reading.problems):
        return None, reading.problems
    prompt = Prompt(
        id=PromptId(stem),
        path=path,
        header=header,
        sections=tuple(sections),
        inputs=inputs,
        expect=_expectation(header.expect, sections),
        output=output,
        tools=tools,
        where=where,
    )
    return prompt, reading.problems


def _front_matter(
    text: str, reading: _Reading
) -> tuple[PromptHeader | None, Document | None, str, int]:
    """Return header, its document, the body, and the line on which the body starts."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        empty = Document(reading.path, {}, Mark(0, 0, 0, 0, None))
        return PromptHeader(), empty, text, 1
    end = next((i for i, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        reading.add(
            1, 1, "front-matter", "the front matter is not closed", "end it with a line ---"
        )
        return None, None, "", 1
    body = "\n".join(lines[end + 1 :])
    try:
        document = read_yaml("\n".join(lines[1:end]) + "\n", reading.path, first_line=2)
    except Fault as fault:
        reading.fault(fault, 2)
        return None, None, body, end + 2
    reading.problems.extend(document.problems)
    if document.value is None:
        document.value = {}
    try:
        return PromptHeader.model_validate(document.value), document, body, end + 2
    except ValidationError as error:
        reading.problems.extend(problems_of(error, document))
        return None, None, body, end + 2


def _split(body: str, first_line: int) -> list[tuple[str | None, int, list[str]]]:
    """Return (role, line of the heading, lines) for the text before and after each heading."""
    parts: list[tuple[str | None, int, list[str]]] = [(None, first_line - 1, [])]
    fence = ""
    for offset, line in enumerate(body.split("\n")):
        opened = _FENCE.match(line)
        if opened and not fence:
            fence = opened.group(1)
        elif opened and opened.group(1).startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
        heading = _HEADING.match(line) if not fence else None
        if heading:
            parts.append((heading.group(1), first_line + offset, []))
        else:
            parts[-1][2].append(line[1:] if not fence and _ESCAPED.match(line) else line)
    return parts


def _sections(body: str, first_line: int, syntax: Any, reading: _Reading) -> list[Section] | None:
    parts = _split(body, first_line)
    before = parts.pop(0)
    if not parts:
        parts = [("user", before[1], before[2])]
    elif "".join(before[2]).strip():
        at = first_line + next(i for i, line in enumerate(before[2]) if line.strip())
        reading.add(
            at, 1, "sections", "text before the first section", "put it under # system or # user"
        )
    _order([(role or "user", line) for role, line, _ in parts], reading)
    sections = [
        _section(role or "user", line, lines, syntax, reading) for role, line, lines in parts
    ]
    whole = [section for section in sections if section is not None]
    return whole if len(whole) == len(sections) else None


def _section(
    role: Any, heading_line: int, lines: list[str], syntax: Any, reading: _Reading
) -> Section | None:
    start = next((i for i, line in enumerate(lines) if line.strip()), None)
    if start is None:
        what = f"the {role} section is empty" if heading_line else "the prompt is empty"
        reading.add(max(heading_line, 1), 1, "sections", what, "write what the model should do")
        return None
    text, first_line = "\n".join(lines[start:]).rstrip(), heading_line + 1 + start
    try:
        return Section(role, compile_template(text, syntax=syntax), first_line)
    except TemplateFaults as error:
        for fault in error.faults:
            reading.fault(fault, first_line)
        return None


def _order(roles: list[tuple[str, int]], reading: _Reading) -> None:
    rest = roles[1:] if roles[0][0] == "system" else roles
    for index, (role, line) in enumerate(rest):
        wanted = ("user", "assistant")[index % 2]
        if role != wanted:
            reading.add(
                line,
                1,
                "sections",
                f"a {role} section where {wanted} is due",
                "the order is system?, (user, assistant)*, user",
            )
            return
    if not rest or rest[-1][0] != "user":
        reading.add(
            roles[-1][1],
            1,
            "sections",
            "the last section is not # user",
            "end with the message the model answers",
        )
    if len(rest) // 2 > MAX_FEW_SHOTS:
        reading.add(
            rest[2 * MAX_FEW_SHOTS][1],
            1,
            "sections",
            f"{len(rest) // 2} few-shot pairs; at most {MAX_FEW_SHOTS}",
        )


def _lengths(sections: list[Section], reading: _Reading) -> None:
    for section in sections:
        limit = MAX_SYSTEM if section.role == "system" else MAX_MAIN
        size = len(section.template.source)
        if size > limit:
            reading.add(
                section.line,
                1,
                "length",
                f"the {section.role} section has {size:,} characters; at most {limit:,}",
            )
    total = sum(len(section.template.source) for section in sections)
    if total < MIN_BODY:
        where = Location(reading.path, sections[0].line, 1)
        reading.problems.append(
            Problem(
                where,
                "short",
                f"the prompt has only {total} characters",
                "say what a good answer is",
                Severity.WARNING,
            )
        )


def _inputs(
    header: PromptHeader, document: Document, sections: list[Section], reading: _Reading
) -> tuple[dict[str, Input], dict[str, Location]]:
    where: dict[str, Location] = {}
    for section in sections:
        for name, use in section.template.uses.items():
            column = use.column + 1
            where.setdefault(name, Location(reading.path, section.line + use.line, column))
    given = GRADER_VARIABLES if header.type == "grader" else frozenset[str]()
    for name in sorted(GRADER_VARIABLES & where.keys() - given):
        reading.problems.append(
            Problem(
                where[name],
                "variable",
                f"a generator may not see {name!r}",
                "only graders and checks know the answer",
            )
        )
    if header.inputs is None:
        return {name: Input() for name in where if name not in given}, where
    for name in header.inputs.keys() - where.keys():
        reading.problems.append(
            document.problem(
                ("inputs", name),
                "variable",
                f"input {name!r} is declared but not used",
                did_you_mean(name, where.keys() - header.inputs.keys()),
            )
        )
    for name in where.keys() - header.inputs.keys() - given - GRADER_VARIABLES:
        reading.problems.append(
            Problem(
                where[name],
                "variable",
                f"variable {name!r} is used but not declared",
                did_you_mean(name, header.inputs) or "add it to inputs",
            )
        )
    return dict(header.inputs), where


def _expectation(expect: Expect, sections: list[Section]) -> Expect:
    if expect != "auto":
        return expect
    text = "\n".join(section.template.source for section in sections)
    response = "<response>" in text and "</response>" in text
    if re.search(r"\bjson\b", text, re.IGNORECASE):
        return "response+json" if response else "json"
    return "response" if response else "none"


def _referenced(
    value: Any,
    path: tuple[str, ...],
    document: Document,
    resolve: Callable[[str], Json] | None,
    reading: _Reading,
) -> Json:
    """Return a schema given inline or by path."""
    if not isinstance(value, str) or resolve is None:
        return value  # type: ignore[no-any-return]  # inline JSON
    try:
        return resolve(value)
    except Fault as fault:
        reading.problems.append(document.problem(path, fault.code, fault.message, fault.hint))
        return None


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
