"""Which messages does the body of a prompt hold?

A line `# system`, `# user` or `# assistant` opens a section, unless it stands in fenced code or
behind a backslash. Roles are split before anything is rendered, so no value of a case can open one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, cast

from edison_ci.documents.marks import shortened
from edison_ci.errors import Location, Problem, Severity
from edison_ci.frozen import dataclass
from edison_ci.templating import Syntax, Template, TemplateFaults, compile_template

if TYPE_CHECKING:
    from edison_ci.documents.marks import Fault
    from edison_ci.records import Role

MAX_MAIN = 20_000
MIN_BODY = 50
MAX_SYSTEM = 5_000
MAX_FEW_SHOTS = 10

_HEADING = re.compile(r"# (system|user|assistant)\s*\Z")
_ESCAPED = re.compile(r"\\# (system|user|assistant)\s*\Z")
_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*\Z)|~{3,})")


@dataclass(frozen=True, slots=True)
class Section:
    """One message of a prompt, before its variables are filled in."""

    role: Role
    template: Template
    line: int
    """Line of the file on which its text starts."""


@dataclass(slots=True)
class Findings:
    """What was wrong with a prompt file on its way from bytes to a prompt."""

    path: str
    problems: list[Problem]

    def add(self, line: int, column: int, code: str, message: str, hint: str = "") -> None:
        """Add an error; lines and columns count from 1."""
        where = Location(self.path, line, column)
        self.problems.append(Problem(where, code, shortened(message), shortened(hint)))

    def warn(self, line: int, code: str, message: str, hint: str) -> None:
        """Add a warning about a line."""
        where = Location(self.path, line, 1)
        said = (shortened(message), shortened(hint))
        self.problems.append(Problem(where, code, *said, Severity.WARNING))

    def fault(self, fault: Fault, first_line: int) -> None:
        """Add what was found in a part of the file that starts on `first_line`."""
        self.add(fault.at[0] + first_line, fault.at[1] + 1, fault.code, fault.message, fault.hint)


class _Part(NamedTuple):
    """Lines of the body under one heading, or before the first."""

    role: Role | None
    line: int
    """Line of the heading; of what stands before the first, the line before the body."""
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
        parts = [_Part("user", before.line, before.lines)]
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


def _split(body: str, first_line: int, findings: Findings) -> list[_Part]:
    """Return the text before the first heading and the text after each."""
    parts = [_Part(None, first_line - 1, [])]
    fence, opened_on, swallowed = "", 0, False
    for number, line in enumerate(body.split("\n"), first_line):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence, opened_on, swallowed = mark.group(1), number, False
        elif mark and mark.group(1).startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""
        heading = _HEADING.match(line)
        if heading and not fence:
            parts.append(_Part(cast("Role", heading.group(1)), number, []))
        else:
            swallowed = swallowed or heading is not None
            parts[-1].lines.append(line[1:] if not fence and _ESCAPED.match(line) else line)
    if fence and swallowed:
        findings.warn(
            opened_on,
            "fence",
            "this code fence is never closed, and there are section headings after it",
            f"close it with {fence}",
        )
    return parts


def _section(part: _Part, syntax: Syntax, findings: Findings) -> Section | None:
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
        findings.add(line, 1, "length", message, "move material into the cases, or shorten it")
        return None
    try:
        return Section(role, compile_template(text, syntax=syntax), line)
    except TemplateFaults as error:
        for fault in error.faults:
            findings.fault(fault, line)
        return None


def _check_order(parts: list[_Part], findings: Findings) -> None:
    rest = parts[1:] if parts[0].role == "system" else parts
    for index, part in enumerate(rest):
        wanted = ("user", "assistant")[index % 2]
        if part.role != wanted:
            message = f"# {part.role} where # {wanted} is due"
            hint = "the order is system?, (user, assistant)*, user"
            findings.add(part.line, 1, "sections", message, hint)
            return
    if not rest or rest[-1].role != "user":
        hint = "end with the message the model answers"
        findings.add(parts[-1].line, 1, "sections", "the last section is not # user", hint)
    pairs = len(rest) // 2
    if pairs > MAX_FEW_SHOTS:
        line = rest[2 * MAX_FEW_SHOTS].line
        message = f"{pairs} few-shot pairs; at most {MAX_FEW_SHOTS}"
        findings.add(line, 1, "sections", message, "keep the best ones")


def _check_brevity(sections: list[Section], findings: Findings) -> None:
    total = sum(len(section.template.source) for section in sections)
    if total < MIN_BODY:
        message = f"the prompt has only {total} characters"
        findings.warn(sections[0].line, "short", message, "say what a good answer is")
