"""Nunjucks templates in the template language of our prompts.

Both descend from Jinja2, so most of a template stays as it is. What differs is rewritten where the
meaning is the same; the rest is a fault with its line, found by our own compiler.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.documents.decoding import place
from edison_ci.documents.marks import Fault
from edison_ci.templating.templates import (
    MissingValueError,
    RenderError,
    TemplateFaults,
    compile_template,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.documents.marks import Json

RENAMED = {"expected": "expected_value", "output": "output_value", "loop": "loop_value"}
"""Variables that have a meaning of their own here."""

_TAG = re.compile(
    r"\{%-?\s*raw\s*-?%\}.*?\{%-?\s*endraw\s*-?%\}|\{#.*?#\}|\{\{.*?\}\}|\{%.*?%\}", re.DOTALL
)
_WORD = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|(?<![\w.])[A-Za-z_]\w*|===|!==")
_KEYWORDS = frozenset(
    {"if", "elif", "elseif", "else", "endif", "for", "in", "endfor", "and", "or", "not", "is",
     "true", "false", "none", "raw", "endraw", "set"}
)  # fmt: skip
_DROPPED = re.compile(r"\s*\|\s*(?:safe|string)\b(?!\s*\()")
_DUMP = re.compile(r"\|\s*dump\b(?:\s*\([^)]*\))?")
_INLINE_IF = re.compile(
    r"\{\{(-?)\s*(?P<then>[^{}]+?)\s+if\s+(?P<test>[^{}]+?)"
    r"(?:\s+else\s+(?P<other>[^{}]+?))?\s*(-?)\}\}"
)
_ENV = re.compile(r"\{\{-?\s*(?:env|process\.env)\.(\w+)\s*(?:\|[^}]*)?-?\}\}")
_ONLY_ENV = re.compile(rf"\s*{_ENV.pattern}\s*\Z")


def env_name(text: str) -> str | None:
    """Return the variable's name if a text is nothing but {{ env.NAME }}."""
    found = _ONLY_ENV.match(text)
    return found.group(1) if found else None


def safe_name(name: str) -> str:
    """Return a name that a template of ours can use."""
    if name in RENAMED:
        return RENAMED[name]
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    if plain.startswith("_"):
        plain = f"{plain.lstrip('_')}_"
    return plain if plain[:1].isalpha() else f"var_{plain}"


@dataclass(frozen=True, slots=True)
class Converted:
    """A template of ours, or why there is none."""

    text: str
    variables: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    """Variables that the filter default does not stand in for."""
    faults: tuple[Fault, ...] = ()
    renamed: tuple[str, ...] = field(default=())
    """Variables that go by another name now."""

    @property
    def text_is_template(self) -> bool:
        """Whether it is more than a plain text."""
        return any(mark in self.text for mark in ("{{", "{%", "{#"))

    @property
    def is_variable(self) -> bool:
        """Whether it is one variable and nothing else."""
        return self.text_is_template and not self.faults and bool(
            re.fullmatch(r"\s*\{\{-?\s*[A-Za-z]\w*\s*-?\}\}\s*", self.text)
        )  # fmt: skip

    def render(self, values: Mapping[str, Json]) -> str:
        """Return the text for these values; what is missing is empty, as in Nunjucks."""
        filled = {**dict.fromkeys(self.required, ""), **values}
        return compile_template(self.text).render(filled)


def convert(text: str, *, keep: frozenset[str] = frozenset()) -> Converted:
    """Return a Nunjucks template as ours; names in `keep` are not renamed."""
    if "{{" not in text and "{%" not in text and "{#" not in text:
        return Converted(text)
    text = text.replace("\r\n", "\n")
    found = _ENV.search(text)
    if found is not None:
        said = f"{{{{ env.{found.group(1)} }}}} takes a value from the environment"
        hint = "make it a variable of the cases"
        fault = Fault("template", said, hint, at=place(text, found.start()))
        return Converted(text, faults=(fault,))
    renamed: dict[str, str] = {}
    text = _TAG.sub(lambda tag: _tag(tag.group(), renamed, keep), text)
    try:
        template = compile_template(text)
    except TemplateFaults as error:
        return Converted(text, faults=tuple(error.faults))
    names = frozenset(template.uses)
    required = frozenset(name for name, use in template.uses.items() if not use.optional)
    return Converted(text, names, required, renamed=tuple(sorted(renamed)))


def filled_text(template: Converted, values: Mapping[str, Json]) -> str:
    """Return a template filled in; empty if the values do not fit it."""
    try:
        return template.render(values)
    except (RenderError, MissingValueError):
        return ""


def _tag(tag: str, renamed: dict[str, str], keep: frozenset[str]) -> str:
    if tag.startswith("{#") or re.match(r"\{%-?\s*raw\b", tag):
        return tag
    tag = _DUMP.sub("| tojson", _DROPPED.sub("", tag))
    tag = re.sub(r"\A(\{%-?\s*)elseif\b", r"\1elif", tag)
    tag = _INLINE_IF.sub(_as_blocks, tag)

    def word(found: re.Match[str]) -> str:
        name = found.group()
        if name in ("===", "!=="):
            return name[:2]
        if name[0] in "'\"" or name in _KEYWORDS or name in keep:
            return name
        before = tag[: found.start()].rstrip()
        if before.endswith("|") or not _is_odd(name) or (name == "loop" and _in_loop(tag, found)):
            return name
        renamed[name] = safe_name(name)
        return renamed[name]

    return _WORD.sub(word, tag)


def _is_odd(name: str) -> bool:
    return name in RENAMED or name.startswith("_")


def _in_loop(tag: str, found: re.Match[str]) -> bool:
    return tag[found.end() :].startswith(".")


def _as_blocks(found: re.Match[str]) -> str:
    """Return {{ a if b else c }} as if and else, which our language has."""
    other = found["other"]
    otherwise = f"{{% else %}}{{{{ {other} }}}}" if other else ""
    return f"{{% if {found['test']} %}}{{{{ {found['then']} }}}}{otherwise}{{% endif %}}"
