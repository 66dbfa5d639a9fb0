"""Nunjucks templates converted to the template language of prompts, and variables of tests.

Both languages descend from Jinja2, so most of a template stays as it is. Differences are rewritten
if the meaning stays the same; the rest is a fault with its line, found by the compiler of prompts.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import field
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.documents.decoding import place
from edison_ci.documents.marks import Fault
from edison_ci.features.importing.fidelity import Node
from edison_ci.features.importing.source import UnusableReference
from edison_ci.templating.templates import (
    MissingValueError,
    RenderError,
    TemplateFaults,
    compile_template,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.documents.marks import Json
    from edison_ci.features.importing.fidelity import Fidelity
    from edison_ci.features.importing.source import Source

RENAMED = {"expected": "expected_value", "output": "output_value", "loop": "loop_value"}
"""Variables whose names are reserved in prompts."""

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
    """Return NAME if a text is {{ env.NAME }} and nothing else."""
    match = _ONLY_ENV.match(text)
    return match.group(1) if match else None


def safe_name(name: str) -> str:
    """Return a name that is allowed in a template."""
    if name in RENAMED:
        return RENAMED[name]
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    if plain.startswith("_"):
        plain = f"{plain.lstrip('_')}_"
    return plain if plain[:1].isalpha() else f"var_{plain}"


@dataclass(frozen=True, slots=True)
class ConvertedTemplate:
    """A converted template, or the faults that prevent it."""

    text: str
    variables: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    """Variables without a default."""
    faults: tuple[Fault, ...] = ()
    renamed: tuple[str, ...] = field(default=())
    """Variables that have a new name."""

    @property
    def text_is_template(self) -> bool:
        """Whether it contains template syntax."""
        return any(mark in self.text for mark in ("{{", "{%", "{#"))

    @property
    def is_variable(self) -> bool:
        """Whether it is a single variable."""
        return self.text_is_template and not self.faults and bool(
            re.fullmatch(r"\s*\{\{-?\s*[A-Za-z]\w*\s*-?\}\}\s*", self.text)
        )  # fmt: skip

    def render(self, values: Mapping[str, Json]) -> str:
        """Return the text for these values; missing ones are empty, as in Nunjucks."""
        filled = {**dict.fromkeys(self.required, ""), **values}
        return compile_template(self.text).render(filled)


def convert(text: str, *, keep: frozenset[str] = frozenset()) -> ConvertedTemplate:
    """Convert a Nunjucks template; names in `keep` are not renamed."""
    if "{{" not in text and "{%" not in text and "{#" not in text:
        return ConvertedTemplate(text)
    text = text.replace("\r\n", "\n")
    variable = _ENV.search(text)
    if variable is not None:
        message = f"{{{{ env.{variable.group(1)} }}}} reads a value from the environment"
        hint = "make it a variable of the cases"
        fault = Fault("template", message, hint, at=place(text, variable.start()))
        return ConvertedTemplate(text, faults=(fault,))
    renamed: dict[str, str] = {}
    text = _TAG.sub(lambda tag: _tag(tag.group(), renamed, keep), text)
    try:
        template = compile_template(text)
    except TemplateFaults as error:
        return ConvertedTemplate(text, faults=tuple(error.faults))
    names = frozenset(template.uses)
    required = frozenset(name for name, use in template.uses.items() if not use.optional)
    return ConvertedTemplate(text, names, required, renamed=tuple(sorted(renamed)))


def render_or_empty(template: ConvertedTemplate, values: Mapping[str, Json]) -> str:
    """Return the rendered template; empty if the values do not fit it."""
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

    def word(match: re.Match[str]) -> str:
        name = match.group()
        if name in ("===", "!=="):
            return name[:2]
        if name[0] in "'\"" or name in _KEYWORDS or name in keep:
            return name
        before = tag[: match.start()].rstrip()
        is_reserved = name in RENAMED or name.startswith("_")
        in_loop = name == "loop" and tag[match.end() :].startswith(".")
        if before.endswith("|") or not is_reserved or in_loop:
            return name
        renamed[name] = safe_name(name)
        return renamed[name]

    return _WORD.sub(word, tag)


def _as_blocks(match: re.Match[str]) -> str:
    """Return {{ a if b else c }} as blocks of if and else."""
    other = match["other"]
    otherwise = f"{{% else %}}{{{{ {other} }}}}" if other else ""
    return f"{{% if {match['test']} %}}{{{{ {match['then']} }}}}{otherwise}{{% endif %}}"


class ConversionError(Exception):
    """Something cannot be converted; `note` says why, `line` and `column` where."""

    def __init__(self, note: str, line: int = 0, column: int | None = None) -> None:
        super().__init__(note)
        self.note, self.line, self.column = note, line, column


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument: data, or a template over the case."""

    value: Json
    template: ConvertedTemplate | None = None
    items: tuple[ConvertedTemplate, ...] = ()
    """For a list, the template of each of its texts."""

    @property
    def is_data(self) -> bool:
        """Whether it is the same for all cases."""
        return self.template is None and not self.items

    @property
    def variables(self) -> frozenset[str]:
        """Variables that it requires."""
        templates = (*self.items, *((self.template,) if self.template is not None else ()))
        return frozenset(name for template in templates for name in template.required)

    def fill(self, values: Mapping[str, Json]) -> Json:
        """Return the argument for a case."""
        if self.items:
            return [render_or_empty(item, values) for item in self.items]
        if self.template is None:
            return self.value
        if self.template.is_variable:
            (name,) = self.template.variables
            return values.get(name, "")
        return render_or_empty(self.template, values)


MOST_CASES = 100_000
_PASSES = 3
"""How deep variables may refer to other variables."""


@dataclass(frozen=True, slots=True)
class Variables:
    """Reads the variables of tests."""

    source: Source

    @property
    def _fidelity(self) -> Fidelity:
        return self.source.fidelity

    def read(self, node: Node | None) -> dict[str, list[Json]]:
        """Return the values of each variable; each value of a list makes a case."""
        if node is None:
            return {}
        if isinstance(node.value, str) and not node.value.startswith("file://"):
            node = Node(node.document, node.path, f"file://{node.value}")
        target = self.source.follow(node)
        if target is None:
            return {}
        if not isinstance(target.value, dict):
            self._fidelity.add_unsupported(target, "vars must be a map of names to values")
            return {}
        values: dict[str, list[Json]] = {}
        renamed = []
        for child in target.children():
            listed = self._values(child)
            if listed is not None:
                name = variable_name(child.name)
                values[name] = listed
                if name != child.name:
                    renamed.append(f"{child.name} was renamed to {name}")
        self._fidelity.add_mapped(target, "@datasets", "; ".join(renamed))
        return values

    def _values(self, child: Node) -> list[Json] | None:
        value = child.value
        try:
            if isinstance(value, str) and value.startswith("file://"):
                return self._from_files(value)
        except UnusableReference as refused:
            self._fidelity.add_unsupported(child, str(refused))
            return None
        except Fault as fault:
            self._fidelity.add_unsupported(child, f"{fault.message} ({fault.hint})")
            return None
        listed = value if isinstance(value, list) and value else [value]
        return ["" if item is None else item for item in listed]

    def _from_files(self, reference: str) -> list[Json]:
        """Return the text of each file, without white space around; YAML becomes JSON."""
        values: list[Json] = []
        for path in self.source.paths(reference):
            if path.endswith((".yaml", ".yml")):
                document = self.source.document(path)
                self._fidelity.cover(document)
                values.append(_javascript_json(document.value))
            else:
                values.append(self.source.text(path).strip())
        return values


def _javascript_json(value: Json) -> str:
    """Return JSON as JavaScript writes it: without spaces, and 1 for 1.0."""

    def plain(part: Json) -> Json:
        if isinstance(part, float) and part.is_integer() and abs(part) < 1e21:
            return int(part)
        if isinstance(part, list):
            return [plain(item) for item in part]
        return {k: plain(v) for k, v in part.items()} if isinstance(part, dict) else part

    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"))


def variable_name(name: str) -> str:
    """Return the name of a variable after the import."""
    odd = not name.isascii() or not name.isidentifier() or name.startswith("_")
    return safe_name(name) if odd or safe_name(name) != name else name


def combinations(
    values: Mapping[str, list[Json]], *, expand: bool = True
) -> Iterator[dict[str, Json]]:
    """Yield the variables of each case: all combinations of the values of all lists."""
    lists: list[list[Json]] = [
        listed if expand else [listed[0] if len(listed) == 1 else listed]
        for listed in values.values()
    ]
    for chosen in itertools.product(*lists):
        yield _fill_variables(dict(zip(values, chosen, strict=True)))


def _fill_variables(values: dict[str, Json]) -> dict[str, Json]:
    """Return variables with the values of other variables filled in."""
    for _ in range(_PASSES):
        templates = {
            name: converted
            for name, value in values.items()
            if isinstance(value, str) and "{{" in value
            if not (converted := convert(value)).faults and converted.variables
        }
        changed = {}
        for name, template in templates.items():
            if template.variables & values.keys() - {name}:
                changed[name] = render_text(template.text, values)
        if not changed:
            break
        values = {**values, **changed}
    return values


def render_text(text: str, values: Mapping[str, Json]) -> str:
    """Return the rendered template, or the text itself if it cannot be converted."""
    converted = convert(text)
    return text if converted.faults else render_or_empty(converted, values)
