"""What does a prompt file say: its messages, its variables and its version?

A prompt is front matter between `---` lines and a body of role sections.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from pydantic import ValidationError

from edison_ci.config.problems import MOST_PROBLEMS, problems_of
from edison_ci.config.prompt_header import Expect, Input, PromptHeader
from edison_ci.config.prompt_sections import Findings, Section, read_sections
from edison_ci.documents.decoding import decode
from edison_ci.documents.marks import Document, Fault, Json, Mark
from edison_ci.documents.secret_text import secrets_in
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.errors import Location, Problem, Severity
from edison_ci.frozen import dataclass
from edison_ci.names import did_you_mean, odd_character
from edison_ci.records import Message, PromptId, canonical_json
from edison_ci.shape import NAME_PATTERN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edison_ci.templating import Syntax

GRADER_VARIABLES = frozenset({"output", "expected"})


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
        constant = all(section.template.is_constant for section in self.sections)
        return _digest(
            {
                "syntax": None if constant else self.header.syntax,
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


def read_prompt(
    data: bytes, path: str, resolve: Callable[[str], Json] | None = None
) -> tuple[Prompt | None, list[Problem]]:
    """Return the prompt and everything wrong with it; `resolve` reads a schema file by path."""
    findings = Findings(path, [])
    try:
        text = decode(data).replace("\r\n", "\n")
    except Fault as fault:
        findings.fault(fault, 1)
        return None, findings.problems
    for secret in secrets_in(text):
        findings.fault(secret, 1)
    front = _front_matter(text, findings)
    sections = None
    if front.body_line:
        sections = read_sections(front.body, front.body_line, front.syntax, findings)
    header, document = front.header, front.document
    if header is None:
        return None, findings.problems
    stem = path.rpartition("/")[2].removesuffix(".md")
    _check_id(header, stem, document, findings)
    output = _referenced(header.output, "output", document, resolve, findings)
    tools = _referenced(header.tools, "tools", document, resolve, findings)
    if sections is None:
        return None, findings.problems
    inputs, where = _inputs(header, document, sections, findings)
    if any(p.severity is Severity.ERROR for p in findings.problems):
        return None, findings.problems
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
    return prompt, findings.problems


class _Front(NamedTuple):
    """What stands before the body, and where the body starts."""

    header: PromptHeader | None
    """None when it is wrong."""
    document: Document
    body: str
    body_line: int
    """0 when there is no telling where the body starts."""

    @property
    def syntax(self) -> Syntax:
        """The syntax of the body, known even if something else in the header is wrong."""
        value = self.document.value
        braces = isinstance(value, dict) and value.get("syntax") == "braces"
        return "braces" if braces else "jinja"


def _front_matter(text: str, findings: Findings) -> _Front:
    document = Document(findings.path, {}, Mark(0, 0, 0, 0, None))
    lines = text.split("\n")
    marks = [number for number, line in enumerate(lines) if line.rstrip() == "---"]
    if not marks or marks[0] > 0:
        if len(marks) > 1 and not "".join(lines[: marks[0]]).strip():
            message = "this is not front matter, because it does not start on line 1"
            findings.warn(marks[0] + 1, "front-matter", message, "remove the lines before it")
        return _Front(PromptHeader(), document, text, 1)
    if len(marks) == 1:
        hint = "end it with a line ---"
        findings.add(1, 1, "front-matter", "the front matter is not closed", hint)
        return _Front(None, document, "", 0)
    end = marks[1]
    body, body_line = "\n".join(lines[end + 1 :]), end + 2
    try:
        document = read_yaml("\n".join(lines[1:end]) + "\n", findings.path, first_line=2)
    except Fault as fault:
        findings.fault(fault, 2)
        return _Front(None, document, body, body_line)
    findings.problems.extend(document.problems)
    if document.value is None:
        document.value = {}
    try:
        header = PromptHeader.model_validate(document.value)
    except ValidationError as error:
        findings.problems.extend(problems_of(error, document))
        header = None
    return _Front(header, document, body, body_line)


def _check_id(header: PromptHeader, stem: str, document: Document, findings: Findings) -> None:
    if header.id is not None and header.id != stem:
        message = f"id is {header.id!r}, the file's stem is {stem!r}"
        findings.problems.append(document.problem(("id",), "id", message, "rename one of them"))
    elif header.id is None and not re.fullmatch(NAME_PATTERN, stem):
        odd = odd_character(stem) or "a character that is not allowed"
        hint = "use letters, digits, '-', '_' and '.'"
        findings.add(1, 1, "name", f"the file's stem {stem!r} contains {odd}", hint)


def _inputs(
    header: PromptHeader, document: Document, sections: list[Section], findings: Findings
) -> tuple[dict[str, Input], dict[str, Location]]:
    where: dict[str, Location] = {}
    for section in sections:
        for name, use in section.template.uses.items():
            column = use.column + 1
            where.setdefault(name, Location(findings.path, section.line + use.line, column))
    given = GRADER_VARIABLES if header.type == "grader" else frozenset[str]()
    for name in sorted(GRADER_VARIABLES & where.keys() - given):
        findings.problems.append(
            Problem(
                where[name],
                "variable",
                f"a generator may not see {name!r}",
                "only graders and checks know the answer",
            )
        )
    if header.inputs is None:
        return {name: Input() for name in where if name not in given}, where
    unused, undeclared = header.inputs.keys() - where.keys(), where.keys() - header.inputs.keys()
    for name in sorted(unused)[:MOST_PROBLEMS]:
        findings.problems.append(
            document.problem(
                ("inputs", name),
                "variable",
                f"input {name!r} is declared but not used",
                did_you_mean(name, undeclared) or "use it in the text, or remove it",
            )
        )
    for name in sorted(undeclared - given - GRADER_VARIABLES)[:MOST_PROBLEMS]:
        findings.problems.append(
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
    key: Literal["output", "tools"],
    document: Document,
    resolve: Callable[[str], Json] | None,
    findings: Findings,
) -> Json:
    """Return a schema or tools, given inline or by path."""
    if isinstance(value, str) and resolve is not None:
        try:
            return resolve(value)
        except Fault as fault:
            problem = document.problem((key,), fault.code, fault.message, fault.hint)
            findings.problems.append(problem)
    return cast("Json", value)


def _digest(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
