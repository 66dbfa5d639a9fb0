"""Prompt files: front matter, messages, variables and version.

A prompt is front matter between `---` lines and a body of role sections.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, cast

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)

from edison_ci._dataclass import dataclass
from edison_ci.config import expected_form, user_schemas
from edison_ci.config import problems as config_problems
from edison_ci.config.project import Version
from edison_ci.config.rubric import ScaleText
from edison_ci.documents.decoding import decode
from edison_ci.documents.marks import Document, Fault, Json, Mark, shortened
from edison_ci.documents.secrets import secrets_in
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.errors import Location, Problem, Severity
from edison_ci.records import Message, PromptId, canonical_json
from edison_ci.shape import (
    NAME_PATTERN,
    PATH_PATTERN,
    Name,
    Shape,
    Shorthand,
    VariableName,
    normal_path,
    report,
    section,
    wrong,
)
from edison_ci.spelling import did_you_mean, odd_character
from edison_ci.templating.templates import Syntax, Template, TemplateFaults, compile_template

if TYPE_CHECKING:
    from edison_ci.config.expected_form import Detected
    from edison_ci.config.params import Params
    from edison_ci.records import Role
else:
    Params = section("edison_ci.config.params", "Params")


# A line `# system`, `# user` or `# assistant` opens a section, unless it is in fenced code or after
# a backslash. Sections are split before rendering, so that no value of a case can open one.
MAX_MAIN = 20_000
MIN_BODY = 50
MAX_SYSTEM = 5_000
MAX_FEW_SHOTS = 10

_HEADING = re.compile(r"# (system|user|assistant)\s*\Z")
_ESCAPED = re.compile(r"\\# (system|user|assistant)\s*\Z")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*\Z)|~{3,})")
_TOOLS: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "description": "Name of the tool."},
            "description": {"type": "string", "description": "What it does, for the model."},
            "parameters": {"type": "object", "description": "JSON Schema of its arguments."},
        },
        "additionalProperties": False,
    },
}
"""JSON Schema of a list of tools, for editors; `user_schemas.tool_faults` decides."""


@dataclass(frozen=True, slots=True)
class Section:
    """One message of a prompt, before rendering."""

    role: "Role"
    template: Template
    line: int
    """First line of its text in the file."""


@dataclass(slots=True)
class Findings:
    """Problems of a prompt file, collected while it is read."""

    path: str
    problems: list[Problem]

    def add(self, line: int, column: int, code: str, message: str, hint: str = "") -> None:
        """Add an error; lines and columns count from 1."""
        where = Location(self.path, line, column)
        self.problems.append(Problem(where, code, shortened(message), shortened(hint)))

    def warn(self, line: int, code: str, message: str, hint: str) -> None:
        """Add a warning about a line."""
        where = Location(self.path, line, 1)
        texts = (shortened(message), shortened(hint))
        self.problems.append(Problem(where, code, *texts, Severity.WARNING))

    def fault(self, fault: Fault, first_line: int) -> None:
        """Add a fault of a part of the file that starts on `first_line`."""
        self.add(fault.at[0] + first_line, fault.at[1] + 1, fault.code, fault.message, fault.hint)


class _RawSection(NamedTuple):
    """Lines of the body under one heading, or before the first one."""

    role: "Role | None"
    line: int
    """Line of the heading; for text before the first one, the line before the body."""
    lines: list[str]


def read_sections(
    body: str, first_line: int, syntax: Syntax, findings: Findings
) -> list[Section] | None:
    """Return the sections of a body that starts on `first_line`; None if one cannot be read."""
    before, *parts = _split(body, first_line, findings)
    if not parts:
        if not body.strip():
            hint = "write what the model should do"
            findings.add(max(before.line, 1), 1, "sections", "the prompt is empty", hint)
            return None
        parts = [_RawSection("user", before.line, before.lines)]
    elif "".join(before.lines).strip():
        at = first_line + next(i for i, line in enumerate(before.lines) if line.strip())
        hint = "put it under # system or # user"
        findings.add(at, 1, "sections", "text before the first section", hint)
    _check_order(parts, findings)
    sections = [_section(part, syntax, findings) for part in parts]
    whole = [section for section in sections if section is not None]
    if len(whole) < len(sections):
        return None
    _check_brevity(whole, findings)
    return whole


def _split(body: str, first_line: int, findings: Findings) -> list[_RawSection]:
    """Return the text before the first heading and the text after each."""
    parts = [_RawSection(None, first_line - 1, [])]
    fence, opened_on, swallowed = "", 0, False
    for number, line in enumerate(body.split("\n"), first_line):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence, opened_on, swallowed = mark.group(1), number, False
        elif mark and mark.group(1).startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
        heading = _HEADING.match(line)
        if heading and not fence:
            parts.append(_RawSection(cast("Role", heading.group(1)), number, []))
        else:
            swallowed = swallowed or heading is not None
            parts[-1].lines.append(line[1:] if not fence and _ESCAPED.match(line) else line)
    if fence and swallowed:
        findings.warn(
            opened_on,
            "fence",
            "this code fence is not closed, and section headings follow",
            f"close it with {fence}",
        )
    return parts


def _section(part: _RawSection, syntax: Syntax, findings: Findings) -> Section | None:
    role = part.role or "user"
    start = next((i for i, line in enumerate(part.lines) if line.strip()), None)
    if start is None:
        hint = "write its text, or remove the heading"
        findings.add(part.line, 1, "sections", f"the {role} section is empty", hint)
        return None
    text, line = "\n".join(part.lines[start:]).rstrip(), part.line + 1 + start
    limit = MAX_SYSTEM if role == "system" else MAX_MAIN
    if len(text) > limit:
        message = f"the {role} section has {len(text):,} characters; at most {limit:,}"
        findings.add(line, 1, "length", message, "move text to the cases, or shorten it")
        return None
    try:
        return Section(role, compile_template(text, syntax=syntax), line)
    except TemplateFaults as error:
        for fault in error.faults:
            findings.fault(fault, line)
        return None


def _check_order(parts: list[_RawSection], findings: Findings) -> None:
    rest = parts[1:] if parts[0].role == "system" else parts
    for index, part in enumerate(rest):
        expected_role = ("user", "assistant")[index % 2]
        if part.role != expected_role:
            message = f"# {part.role} where # {expected_role} is expected"
            hint = "the order is system?, (user, assistant)*, user"
            findings.add(part.line, 1, "sections", message, hint)
            return
    if not rest or rest[-1].role != "user":
        hint = "end with the message that the model answers"
        findings.add(parts[-1].line, 1, "sections", "the last section is not # user", hint)
    pairs = len(rest) // 2
    if pairs > MAX_FEW_SHOTS:
        line = rest[2 * MAX_FEW_SHOTS].line
        message = f"{pairs} few-shot pairs; at most {MAX_FEW_SHOTS}"
        findings.add(line, 1, "sections", message, "keep the best ones")


def _check_brevity(sections: list[Section], findings: Findings) -> None:
    total = sum(len(section.template.source) for section in sections)
    if total < MIN_BODY:
        message = f"the prompt has only {total} character{'' if total == 1 else 's'}"
        findings.warn(sections[0].line, "short", message, "say what a good answer is")


InputType = Literal["string", "number", "boolean", "list", "object"]
Expect = Literal["auto", "mentioned", "none", "response", "json", "response+json"]


_JSON_TYPES = {
    "string": "string",
    "number": "number",
    "boolean": "boolean",
    "list": "array",
    "object": "object",
}


def _default_of(kind: str) -> dict[str, Any]:
    """Return the schema of an input whose default must have its type."""
    condition = {"properties": {"type": {"const": kind}}}
    if kind != "string":  # the default type
        condition["required"] = ["type"]  # type: ignore[assignment]  # JSON
    return {"if": condition, "then": {"properties": {"default": {"type": _JSON_TYPES[kind]}}}}


class Input(Shape):
    """One variable of a prompt."""

    model_config = ConfigDict(json_schema_extra={"allOf": [*map(_default_of, _JSON_TYPES)]})

    type: InputType = Field("string", description="Type of the variable.")
    default: Any = Field(None, description="Value for cases without it.")

    @property
    def has_default(self) -> bool:
        """Whether it has a default value."""
        return "default" in self.model_fields_set

    def broken_rules(self) -> Iterator[Exception]:
        """Yield the error of a default of another type."""
        if self.has_default and not fits(self.default, self.type):
            message, hint = f"default is not a {self.type}", "change the default or the type"
            yield wrong("type", message, hint, at=("default",))


def fits(value: Any, kind: str) -> bool:
    """Whether a value has a declared type."""
    if kind == "number":
        return isinstance(value, int | float) and not isinstance(value, bool)
    types = {"string": str, "boolean": bool, "list": list, "object": dict}
    return isinstance(value, types[kind])


InputEntry = Annotated[Input, Shorthand("type")]


def _output(value: Any) -> Any:
    if isinstance(value, str):
        return normal_path(value)
    if not isinstance(value, dict):
        raise wrong("type", "output is not a JSON Schema", "write {type: object, ...} or a path")
    report(fault.error() for fault in user_schemas.schema_faults(value, "output"))
    return value


def _tools(value: Any) -> Any:
    if isinstance(value, str):
        return normal_path(value)
    report(fault.error() for fault in user_schemas.tool_faults(value))
    return value


_PATH = {"type": "string", "pattern": PATH_PATTERN}


class PromptHeader(Shape):
    """Front matter of prompts/NAME.md."""

    model_config = ConfigDict(
        json_schema_extra={
            "dependencies": {
                "scale": {"required": ["type"], "properties": {"type": {"const": "grader"}}}
            }
        }
    )

    tombstones: ClassVar[dict[str, str]] = {
        "model": "models belong in the experiment",
        "name": "write id; it is the name of the file",
        "variables": "write inputs",
        "temperature": "put it under params",
    }

    version: Version = 1
    id: Name | None = Field(None, description="Id; the name of the file without its suffix.")
    type: Literal["generator", "grader"] = Field("generator", description="What it is for.")
    inputs: dict[VariableName, InputEntry] | None = Field(
        None, description="Variables and their types; default: found in the text."
    )
    params: Params | None = Field(None, description="Sampling parameters.")
    expect: Expect = Field("auto", description="Required form of the output.")
    output: (
        Annotated[
            str | dict[str, Any],
            BeforeValidator(_output),
            WithJsonSchema({"anyOf": [_PATH, {"type": "object"}]}),
        ]
        | None
    ) = Field(None, description="JSON Schema of the output, inline or a path.")
    tools: (
        Annotated[
            str | list[Any],
            BeforeValidator(_tools),
            WithJsonSchema({"anyOf": [_PATH, _TOOLS]}),
        ]
        | None
    ) = Field(None, description="Tools, inline or a path.")
    syntax: Literal["jinja", "braces"] = Field("jinja", description="{{ name }} or {name}.")
    scale: ScaleText | None = Field(
        None, description="Scale of the replies of a grader; default 0-1."
    )
    description: str = Field("", max_length=2_000, description="Description.")
    production: str = Field("", max_length=100, description="Hash of the version in production.")

    def broken_rules(self) -> Iterator[Exception]:
        """Yield the error of a scale without a grader."""
        if self.scale is not None and self.type != "grader":
            message, hint = "only a grader has a scale", "add type: grader, or remove it"
            yield wrong("scale", message, hint, at=("scale",))

    @property
    def written_params(self) -> dict[str, Any]:
        """The parameters that are set."""
        return {} if self.params is None else self.params.written()


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
    output: Json = None
    tools: Json = None
    where: Mapping[str, Location] = field(default_factory=dict)
    """Location of the first use of each variable."""
    held: str | None = None
    """Required form of the output by the other side of a comparison; None for its own."""

    @property
    def expect(self) -> str:
        """Required form of the output, with `auto` resolved."""
        return self.detected.form if self.held is None else self.held

    @cached_property
    def detected(self) -> "Detected":
        """Its own form of the output, and where it was found in the text."""
        parts = [expected_form.Part(s.role, s.template.source, s.line) for s in self.sections]
        return expected_form.detect(self.header.expect, parts, schema=self.output is not None)

    @property
    def mentioned(self) -> str:
        """The form that its text mentions, and that answers need not have."""
        mentioned = {mention.form for mention in self.detected.mentions}
        return expected_form.joined_form(mentioned.difference(self.expect.split("+")))

    @cached_property
    def version(self) -> str:
        """sha256 of everything that is sent to the model."""
        constant = all(section.template.is_constant for section in self.sections)
        return _digest(
            {
                "syntax": None if constant else self.header.syntax,
                "sections": [[s.role, s.template.source] for s in self.sections],
                "params": self.header.written_params,
                "defaults": {k: v.default for k, v in self.inputs.items() if v.has_default},
                "output": self.output,
                "tools": self.tools,
            }
        )

    @cached_property
    def required(self) -> frozenset[str]:
        """Variables without a default."""
        optional = {k for k, v in self.inputs.items() if v.has_default}
        used = {k for s in self.sections for k, use in s.template.uses.items() if not use.optional}
        provided = GRADER_VARIABLES if self.header.type == "grader" else frozenset[str]()
        return frozenset(used - optional - provided)

    @cached_property
    def plain(self) -> bool:
        """Whether a case with all variables can always be rendered."""
        return all(section.template.plain for section in self.sections)

    def render(self, variables: Mapping[str, Json]) -> tuple[Message, ...]:
        """Return the messages for these values; raises MissingValueError or RenderError."""
        # A case is rendered up to three times in a row: to check, to count and to compare it.
        last = self.__dict__.get("_last")
        if last is not None and last[0] is variables:
            return cast("tuple[Message, ...]", last[1])
        values = {k: v.default for k, v in self.inputs.items() if v.has_default}
        values.update(variables)
        messages = tuple(Message(s.role, s.template.render(values)) for s in self.sections)
        self.__dict__["_last"] = (variables, messages)
        return messages


def read_prompt(
    data: bytes, path: str, resolve: Callable[[str], Json] | None = None
) -> tuple[Prompt | None, list[Problem]]:
    """Return the prompt and its problems; `resolve` reads a schema file by path."""
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
        output=output,
        tools=tools,
        where=where,
    )
    if header.type == "generator" and ("json" in text.lower() or "<response>" in text):
        for note in expected_form.notes_on(prompt.detected):
            if not note.requested:
                findings.warn(note.line, "expect", note.sentence, note.hint)
    return prompt, findings.problems


class _Front(NamedTuple):
    """The front matter, and where the body starts."""

    header: PromptHeader | None
    """None if it is invalid."""
    document: Document
    body: str
    body_line: int
    """0 if the start of the body is unknown."""

    @property
    def syntax(self) -> Syntax:
        """The syntax of the body, known even if the rest of the header is invalid."""
        value = self.document.value
        braces = isinstance(value, dict) and value.get("syntax") == "braces"
        return "braces" if braces else "jinja"


def _front_matter(text: str, findings: Findings) -> _Front:
    document = Document(findings.path, {}, Mark(0, 0, 0, 0, None))
    lines = text.split("\n")
    marks = [number for number, line in enumerate(lines) if line.rstrip() == "---"]
    if not marks or marks[0] > 0:
        if len(marks) > 1 and not "".join(lines[: marks[0]]).strip():
            message = "front matter must start on line 1"
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
        findings.problems.extend(config_problems.problems_of(error, document))
        header = None
    return _Front(header, document, body, body_line)


def _check_id(header: PromptHeader, stem: str, document: Document, findings: Findings) -> None:
    if header.id is not None and header.id != stem:
        message = f"id is {header.id!r}, but the file is named {stem!r}"
        findings.problems.append(document.problem(("id",), "id", message, "rename one of them"))
    elif header.id is None and not re.fullmatch(NAME_PATTERN, stem):
        odd = odd_character(stem) or "a character that is not allowed"
        hint = "use letters, digits, '-', '_' and '.'"
        findings.add(1, 1, "name", f"the file name {stem!r} contains {odd}", hint)


def _inputs(
    header: PromptHeader, document: Document, sections: list[Section], findings: Findings
) -> tuple[dict[str, Input], dict[str, Location]]:
    where: dict[str, Location] = {}
    for part in sections:
        for name, use in part.template.uses.items():
            column = use.column + 1
            where.setdefault(name, Location(findings.path, part.line + use.line, column))
    provided = GRADER_VARIABLES if header.type == "grader" else frozenset[str]()
    for name in sorted(GRADER_VARIABLES & where.keys() - provided):
        findings.problems.append(
            Problem(
                where[name],
                "variable",
                f"a generator prompt cannot use {name!r}",
                "only graders and checks get it",
            )
        )
    if header.inputs is None:
        return {name: Input() for name in where if name not in provided}, where
    unused, undeclared = header.inputs.keys() - where.keys(), where.keys() - header.inputs.keys()
    for name in sorted(unused)[: config_problems.MOST_PROBLEMS]:
        findings.problems.append(
            document.problem(
                ("inputs", name),
                "variable",
                f"input {name!r} is declared but not used",
                did_you_mean(name, undeclared) or "use it in the text, or remove it",
            )
        )
    for name in sorted(undeclared - provided - GRADER_VARIABLES)[: config_problems.MOST_PROBLEMS]:
        findings.problems.append(
            Problem(
                where[name],
                "variable",
                f"variable {name!r} is used but not declared",
                did_you_mean(name, header.inputs) or "add it to inputs",
            )
        )
    return dict(header.inputs), where


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
