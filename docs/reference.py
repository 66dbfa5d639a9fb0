"""Writes the parts of the documentation that come from the code; cog calls it.

make docs         write them anew
make docs-check   fail when they are not what the code says
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from docs.check_examples import EXAMPLES, FILES, REFERENCES
from docs.codes import CODES
from edison_ci.checks.options import REGISTRY
from edison_ci.cli import groups
from edison_ci.cli.app import all_commands, edison
from edison_ci.config.provider_options import OPTIONS
from edison_ci.config.schema import schema_of
from edison_ci.config.trust import USUAL
from edison_ci.errors import ExitCode
from edison_ci.extras import EXTRAS, LIBRARIES
from edison_ci.feature import HOOKS
from edison_ci.features.monitor.metrics import OF_PROJECT, OF_SERVER
from edison_ci.resources import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from docs.check_examples import Answer

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "edison_ci"


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    bar = "\\|"
    return "".join(f"| {' | '.join(c.replace('|', bar) for c in line)} |\n" for line in lines)


def _sentence(text: object) -> str:
    return str(text) if str(text).endswith("...") else str(text).removesuffix(".")


def code(text: object) -> str:
    """Return a text as code."""
    return f"`{text}`" if "`" not in str(text) else str(text)


# --- the command line -----------------------------------------------------------------------------


def commands() -> str:
    """Return the everyday commands with what each does, and the others by section."""
    sections = _sections("docs/commands.md")
    listed = groups.commands()
    rows = [(link, listed[name].line) for name, link in sections.pop(groups.EVERYDAY).items()]
    more = [(title, ", ".join(links.values())) for title, links in sections.items()]
    return table(("every day", "does"), rows) + "\n" + table(("more", "commands"), more)


def _sections(page: str = "") -> dict[str, dict[str, str]]:
    """Return the sections of the help, each with links to the help of its commands."""
    found: dict[str, dict[str, str]] = {}
    for name, entry in groups.commands().items():
        found.setdefault(entry.section, {})[name] = f"[`{name}`]({page}#edison-{name})"
    return found


def exit_codes() -> str:
    """Return what the exit codes mean."""
    return table(("code", "meaning"), [(str(int(c)), c.meaning) for c in ExitCode])


def help_pages() -> str:
    """Return links to the commands by section, and the help of every command."""
    top = click.Context(edison, info_name="edison", terminal_width=80)
    listed = [(title, ", ".join(links.values())) for title, links in _sections().items()]
    pages = [table(("section", "commands"), listed), _page("edison", top)]
    parents = {"": top}
    for words, command in all_commands().items():
        above, _, name = words.rpartition(" ")
        ctx = click.Context(command, info_name=name, parent=parents[above], terminal_width=80)
        parents[words] = ctx
        pages.append(_page(f"edison {words}", ctx))
    return "\n".join(pages)


def _page(title: str, ctx: click.Context) -> str:
    return f"## {title}\n\n```text\n{ctx.get_help().rstrip()}\n```\n"


def session(*lines: str) -> str:
    """Return what a terminal shows when these commands are run in an empty folder."""
    shown = []
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top)
        for line in lines:
            shown.append(f"$ {line}")
            word, *args = shlex.split(line)
            if word == "cd":
                folder = folder / args[0]
                continue
            done = subprocess.run(
                [sys.executable, "-P", "-m", "edison_ci", *args],
                cwd=folder,
                env={**_own_environment(), "COLUMNS": "100"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=True,
            )
            shown += [line.rstrip() for line in done.stdout.rstrip().splitlines()]
    text = "\n".join(_timeless(line) for line in shown if not _PROGRESS.match(line))
    return f"```console\n{text}\n```\n"


_PROGRESS = re.compile(r" +[0-9]+%  [0-9,]+ of [0-9,]+ cells")
_RUN_ID = re.compile(r"\b[0-9]{8}T[0-9]{6}-[0-9a-f]{6}\b")
_SECONDS = re.compile(r" in [0-9]+(?:\.[0-9])? s$")


def _timeless(line: str) -> str:
    """Return a line as it would be at any other time."""
    return _SECONDS.sub(" in 1 s", _RUN_ID.sub("20270101T093000-c0ffee", line))


def _own_environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}


_FOREIGN = ("EDISON_", "GITHUB_", "NO_COLOR", "FORCE_COLOR", "PYTHONPATH")


# --- checks ---------------------------------------------------------------------------------------

_FAMILIES = {
    "text occurrences": "What the answer says",
    "limits": "Limits",
    "structure": "Data",
    "tool_calls": "Tools",
    "similarity": "Nearness to a reference",
    "language": "Kind of text",
    "code": "Code of the repository",
    "combined": "Checks made of checks",
}
"""Titles by the modules whose checks stand below them."""
_OWN_TO_ALL = {"name", "weight", "threshold"}


def checks() -> str:
    """Return every check by family: what it says, its options, an example and two answers."""
    written = []
    for modules, title in _FAMILIES.items():
        homes = {f"edison_ci.checks.{module}" for module in modules.split()}
        names = [n for n, place in REGISTRY.built_in.items() if place.split(":")[0] in homes]
        rows = [_check(name) for name in names]
        head = ("check", "says", "options", "example", "passes", "fails")
        written.append(f"## {title}\n\n" + table(head, rows))
    return "\n".join(written)


def _check(name: str) -> tuple[str, ...]:
    kind = REGISTRY.load(name)
    options = []
    for option, field in kind.model_fields.items():
        if option in _OWN_TO_ALL:
            continue
        mark = " (main)" if option == kind.main else ""
        needed = ", required" if field.is_required() else ""
        options.append(f"{code(option)}{mark}{needed}: {_sentence(field.description)}")
    says = str(kind.__doc__).splitlines()[0]
    shown = (_answer(answer) for answer in (EXAMPLES[name].good, EXAMPLES[name].bad))
    return (code(name), says, "<br>".join(options) or "none", code(kind.example), *shown)


def check_references() -> str:
    """Return what each check is held to, and how far it agrees."""
    rows = [
        (code(name), *(part or "none" for part in REFERENCES[name])) for name in REGISTRY.built_in
    ]
    return table(("check", "reference", "agreement"), rows)


def _answer(answer: Answer) -> str:
    return answer.shown or code(answer.text.strip())


def code_checks() -> str:
    """Return the programs that the examples of `python` and `command` name."""
    titled = (
        f'```python title="{path}" run-by="tests/checks/test_table.py"\n{text}```\n'
        for path, text in FILES.items()
    )
    return "\n".join(titled)


# --- files ----------------------------------------------------------------------------------------


class Row(NamedTuple):
    """One key of a file."""

    key: str
    type: str
    allowed: str
    default: str
    meaning: str


def options() -> str:
    """Return the options that each provider takes."""
    rows = []
    for provider, shape in OPTIONS.items():
        for name, field in shape.model_fields.items():
            default = (
                "required"
                if field.is_required()
                else _shown(field.get_default(call_default_factory=True))
            )
            rows.append((code(provider), code(name), default, _sentence(field.description)))
    return table(("provider", "option", "default", "meaning"), rows)


def keys(kind: str) -> str:
    """Return every key of a kind of file with type, range, default and meaning."""
    schema = schema_of(kind)
    rows = list(_Keys(schema.get("definitions", {})).of(schema, ""))
    return table(Row._fields, [tuple(row) for row in rows])


class _Keys:
    """Walks a schema and flattens its keys to dotted paths."""

    def __init__(self, definitions: dict[str, Any]) -> None:
        self._definitions = definitions

    def of(self, schema: dict[str, Any], above: str) -> list[Row]:
        """Return the keys at and below a schema."""
        schema = self._whole(schema)
        rows: list[Row] = []
        for form in (schema, *schema.get("anyOf", [])):
            whole = self._whole(form)
            needed = set(whole.get("required", []))
            for name, value in whole.get("properties", {}).items():
                rows += self._key(f"{above}{name}", value, needed=name in needed)
            for pattern, value in whole.get("patternProperties", {}).items():
                name = "metadata.KEY" if "metadata" in pattern else "NAME"
                rows += self._key(f"{above}{name}", value, needed=False)
            if "items" in whole:
                rows += self.of(whole["items"], f"{above.removesuffix('.')}[]." if above else "")
        return rows

    def _key(self, path: str, value: dict[str, Any], *, needed: bool) -> list[Row]:
        if value.get("$ref", "").endswith("/Check"):
            return []
        whole = self._whole(value)
        default = "required" if needed else _shown(whole.get("default"))
        row = Row(
            code(path),
            self._type(value),
            "; ".join(self._limits(value)),
            default,
            _sentence(whole.get("description", "")),
        )
        items = whole.get("items", {})
        if isinstance(items, dict) and items.get("$ref", "").endswith("/Check"):
            return [row._replace(type="list of checks", allowed=row.allowed)]
        return [row, *self.of(whole, f"{path}.")]

    def _whole(self, schema: dict[str, Any]) -> dict[str, Any]:
        if "$ref" not in schema:
            return schema
        found = self._definitions[schema["$ref"].rpartition("/")[2]]
        return {**found, **{k: v for k, v in schema.items() if k != "$ref"}}

    def _type(self, schema: dict[str, Any]) -> str:
        whole = self._whole(schema)
        if forms := whole.get("anyOf"):
            named = [self._type(form) for form in forms if "required" not in form or "type" in form]
            if named:
                return " or ".join(dict.fromkeys(named))
        kinds = whole.get("type", "string" if "enum" in whole or "const" in whole else "any")
        names = [kinds] if isinstance(kinds, str) else [k for k in kinds if k != "null"]
        words = {"object": "map", "array": "list", "string": "text", "integer": "whole number"}
        if names == ["array"] and isinstance(whole.get("items"), dict):
            return f"list of {self._type(whole['items'])}"
        return " or ".join(words.get(name, name) for name in names)

    def _limits(self, schema: dict[str, Any]) -> list[str]:
        whole = self._whole(schema)
        said = [part for form in whole.get("anyOf", []) for part in self._limits(form)]
        if "const" in whole:
            said.append(code(whole["const"]))
        if "enum" in whole:
            said.append(", ".join(code(value) for value in whole["enum"]))
        said += _range(whole)
        if "items" in whole and "enum" in self._whole(whole["items"]):
            said += self._limits(whole["items"])
        return list(dict.fromkeys(said))


_SIZES = (("Length", "characters"), ("Items", "entries"), ("Properties", "entries"))


def _range(schema: dict[str, Any]) -> list[str]:
    said = []
    low, high = schema.get("minimum"), schema.get("maximum")
    above = schema.get("exclusiveMinimum")
    below = schema.get("exclusiveMaximum")
    start = f"above {_number(above)}" if above is not None else _number(low)
    end = f"below {_number(below)}" if below is not None else _number(high)
    if start and end:
        said.append(f"{start} to {end}")
    elif start or end:
        said.append(f"at least {start}" if start else f"at most {end}")
    for size, unit in _SIZES:
        least, most = schema.get(f"min{size}") or 0, schema.get(f"max{size}")
        if most is not None:
            said.append(f"{least:,} to {most:,} {unit}" if least else f"at most {most:,} {unit}")
        elif least > 1:
            said.append(f"at least {least:,} {unit}")
    return said


_POWERS = {2**32: "2^32", 2**53: "2^53", 2**63 - 1: "2^63 - 1", -(2**63): "-2^63"}


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return _POWERS.get(int(value), f"{value:,}")


def _shown(value: Any) -> str:
    if value is None or value == "" or value == [] or value == {}:
        return ""
    return code(str(value).lower() if isinstance(value, bool) else value)


# --- the house ------------------------------------------------------------------------------------


def layers() -> str:
    """Return the floors of the package, highest first, with what is in each folder or module."""
    rows = []
    for number, names in reversed(list(enumerate(_literal("LAYERS")))):
        modules = []
        for name in sorted(names - {"__init__", "__main__"}):
            if not (PACKAGE / name).is_dir():
                modules.append(_place(name))
                continue
            rows.append((str(number), _place(name), _question(name)))
            folders = sorted(path.parent for path in (PACKAGE / name).glob("*/__init__.py"))
            inside = [f"{name}/{folder.name}" for folder in folders if name == "features"]
            rows += [("", _place(each), _question(each)) for each in inside]
        if modules:
            rows.append((str(number), ", ".join(modules), ""))
    return table(("floor", "module", "what is there"), rows)


def metrics() -> str:
    """Return the metrics of /-/edison/metrics."""
    rows = [
        (code(each.name), each.kind, ", ".join(code(label) for label in each.labels), each.about)
        for each in (*OF_PROJECT, *OF_SERVER)
    ]
    return table(("name", "kind", "labels", "what it is"), rows)


def hooks() -> str:
    """Return the points at which the core calls features."""
    rows = [(code(point), *about.split(": ", 1)) for point, about in sorted(HOOKS.items())]
    return table(("point", "arguments", "what"), [(p, code(a), w) for p, a, w in rows])


def headers() -> str:
    """Return the headers that every http model may set."""
    return ", ".join(map(code, sorted(USUAL)))


def homes() -> str:
    """Return the libraries that may be imported in one place only."""
    told = (
        f"{code(library)} in {', '.join(code(home) for home in sorted(places))}"
        for library, places in sorted(_literal("ONLY_IN").items())
        if places
    )
    return f"{'; '.join(told)}."


def _literal(name: str) -> Any:
    """Return a constant of the architecture test, which is what holds the code to it."""
    source = (ROOT / "tests" / "test_architecture.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return ast.literal_eval(node.value)
    raise LookupError(name)


def _place(name: str) -> str:
    return code(f"{name}/" if (PACKAGE / name).is_dir() else f"{name}.py")


def _question(name: str) -> str:
    path = PACKAGE / name
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not source.is_file():
        return ""
    text = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


# --- problems -------------------------------------------------------------------------------------


def codes() -> str:
    """Return every code that `validate` may report."""
    rows = [(code(name), what, how) for name, (what, how) in sorted(CODES.items())]
    return table(("code", "what is wrong", "how to fix it"), rows)


# --- optional libraries ---------------------------------------------------------------------------


def extras() -> str:
    """Return the extras with their libraries and what each is for."""
    rows = [
        (code(name), ", ".join(code(one.module) for one in LIBRARIES if one.extra == name), what)
        for name, what in EXTRAS.items()
    ]
    return table(("extra", "libraries", "for"), rows)


__all__ = [
    "CODES",
    "KINDS",
    "checks",
    "codes",
    "commands",
    "exit_codes",
    "extras",
    "headers",
    "help_pages",
    "homes",
    "keys",
    "layers",
    "options",
    "session",
]
