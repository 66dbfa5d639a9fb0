"""Where in a prompt file do the instructions stand, and what must stay untouched?"""

from __future__ import annotations

import re

from edison_ci.frozen import dataclass

_HEADING = re.compile(r"# (system|user|assistant)\s*$")
_FENCE = re.compile(r" {0,3}(?:```|~~~)")
_TEMPLATE = re.compile(r"\{\{[^{}]{0,500}\}\}|\{%[^{}]{0,500}%\}|\{#[^{}]{0,500}#\}")
_BRACES = re.compile(r"\{[A-Za-z_]\w*\}")


@dataclass(frozen=True, slots=True)
class PromptText:
    """A prompt file as lines, each known for what it is."""

    lines: tuple[str, ...]
    """Without their line ends."""
    body_start: int
    """Index of the first line after the front matter."""
    headings: tuple[int, ...]
    newline: str
    ends_with_newline: bool

    @property
    def main_section(self) -> range:
        """Indexes of the lines of the last user section, or of a body without headings."""
        users = [index for index in self.headings if self.lines[index].startswith("# user")]
        start = users[-1] + 1 if users else self.body_start
        later = [index for index in self.headings if index >= start]
        return range(start, later[0] if later else len(self.lines))

    @property
    def instruction_lines(self) -> tuple[int, ...]:
        """Indexes of lines outside the few-shots that hold words and no variable."""
        sections = [self.main_section]
        systems = [index for index in self.headings if self.lines[index].startswith("# system")]
        for start in systems:
            later = [index for index in self.headings if index > start]
            sections.append(range(start + 1, later[0] if later else len(self.lines)))
        return tuple(
            index
            for section in sections
            for index in section
            if self.lines[index].strip() and not has_template(self.lines[index])
        )

    @property
    def instructions(self) -> str:
        """The text of the body without variables and template marks."""
        body = "\n".join(self.lines[self.body_start :])
        return _BRACES.sub(" ", _TEMPLATE.sub(" ", body))

    def with_lines(self, lines: list[str]) -> str:
        """Return the file with other lines."""
        return self.newline.join(lines) + (self.newline if self.ends_with_newline else "")


def has_template(line: str) -> bool:
    """Return whether a line uses a variable or template logic."""
    return bool(_TEMPLATE.search(line) or _BRACES.search(line) or "{%" in line or "%}" in line)


def parse_prompt(text: str) -> PromptText:
    """Return the parts of a prompt file; any text has them."""
    newline = "\r\n" if 0 < text.count("\n") == text.count("\r\n") else "\n"
    ends_with_newline = text.endswith(newline)
    lines = tuple(text.removesuffix(newline).split(newline))
    body_start = 0
    if lines[0].strip() == "---":
        ends = [index for index in range(1, len(lines)) if lines[index].strip() == "---"]
        body_start = ends[0] + 1 if ends else 0
    headings = []
    fenced = False
    for index in range(body_start, len(lines)):
        if _FENCE.match(lines[index]):
            fenced = not fenced
        elif not fenced and _HEADING.match(lines[index]):
            headings.append(index)
    return PromptText(lines, body_start, tuple(headings), newline, ends_with_newline)


def variables_of(text: str) -> tuple[str, ...]:
    """Return every template expression of a prompt, in order."""
    return tuple(found[0] for found in _TEMPLATE.finditer(text))
