"""Hints: every command in a text of the program can be pasted, and every snippet of YAML is valid.

Hints are collected from the source, so that a new one is tested, or fails here.
"""

from __future__ import annotations

import ast
import json
import re
from typing import TYPE_CHECKING

import click

from edison_ci.checks.json_schema import validator
from edison_ci.documents.marks import Fault
from edison_ci.documents.yaml_text import read_yaml
from tests.conftest import ROOT
from tests.pasted import parsed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

PACKAGE = ROOT / "edison_ci"
PLACE = "PLACE"
"""What stands for a value that is only known when a hint is shown."""


def texts_in(source: str) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module, except docstrings, with placeholders for their values."""
    tree = ast.parse(source)
    parts = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in ast.walk(node)
        if part is not node
    }
    parts |= {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if id(node) in parts:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            values = (
                str(part.value) if isinstance(part, ast.Constant) else PLACE for part in node.values
            )
            yield node.lineno, "".join(values)


HINTS = [
    (f"{path.relative_to(PACKAGE)}:{line}", text)
    for path in sorted(PACKAGE.rglob("*.py"))
    for line, text in texts_in(path.read_text(encoding="utf-8"))
]
COMMAND = re.compile(r"\bedison (?P<words>[a-z][^;,()`\n:#|]*(?::[^\s;,()`]+)?)")
END = re.compile(r"  +|\.(?:\s|$)|'|\.\.\.")
"""What ends a command: aligned explanations, the end of a sentence."""
STANDS_FOR = {"USD": "1", "N": "1", "I/N": "1/2", "SHARD.db": "1.db"}
TRIED = (PLACE, "1", "customer-support", "experiment", "failed")
"""What is tried for a value that is only known when a hint is shown."""
VALUES_OF_COMMANDS = "latest main owner none day bundle experiment quarantine labels run japan"
"""Words that are values as they are."""
PROSE = frozenset(
    (
        "admin PLACE is running on the results",
        "are attached",
        "demo --real makes its own project",
        "demo --real needs a model on this machine",
        "demo does not support --json",
        "did not create",
        "for export and import",
        "for the experiment PLACE",
        "here and there",
        "in PLACE",
        "init --template NAME",
        "is not installed",
        "is running",
        "is this one",
        "knows",
        "resume continues from there",
        "review reject PLACE --reason",
        "serve always has actions",
        "serve and other readers",
        "serve has forms",
        "serve has these pages",
        "serve to see the error",
        "suggests a change of PLACE for the experiment PLACE",
    )
)
"""Texts about a command that do not say to type it, and two whose value is a word in quotes."""


def written_commands(text: str) -> Iterator[list[str]]:
    """Yield the commands of a text, as words."""
    for match in COMMAND.finditer(text):
        words = END.split(match["words"])[0].replace(chr(34), "").split()
        yield [STANDS_FOR.get(word, word) for word in words]


def fault_of(words: list[str]) -> str:
    """Return what the terminal would say of a command; empty if it can be pasted."""
    reason = ""
    for value in TRIED:
        try:
            rest = parsed([word.replace(PLACE, value) for word in words])
        except (click.ClickException, click.exceptions.Exit) as error:
            reason = "" if isinstance(error, click.exceptions.Exit) else error.format_message()
            if not reason:
                return ""
            continue
        values = {*TRIED, *VALUES_OF_COMMANDS.split()}
        prose = [word for word in rest if re.fullmatch("[a-z]+", word) and word not in values]
        return f"prose goes on after it: {' '.join(prose)}" if prose else ""
    return reason


def test_every_command_of_a_text_can_be_pasted() -> None:
    faults = [
        f"{place}: edison {' '.join(words)}: {fault}"
        for place, text in HINTS
        for words in written_commands(text)
        if " ".join(words) not in PROSE and (fault := fault_of(words))
    ]
    assert faults == []


def test_prose_about_commands_is_still_there() -> None:
    texts = {" ".join(words) for _, text in HINTS for words in written_commands(text)}
    assert texts >= PROSE


SNIPPET = re.compile(r"\b([A-Za-z_-]+): ?(?=[\[{](?![a-z]*\}))")
"""A key with a list or a map; not a placeholder of a sentence."""
ELSEWHERE = frozenset({"permissions", "branches", "env", "list", "py", "else", "vendor"})
"""Keys of workflows, and words before a bracket that are no key."""
SAMPLES = ("1", "small", "sim, model: small", "ANY_KEY", "flag")
"""What is tried for `...`."""
VALUES = {
    "NAME_OF_VARIABLE": "MY_KEY",
    'host: "PLACE"': 'host: "https://h.example:443"',
    'paths: ["PLACE"]': 'paths: ["/v1"]',
    "HOST:PORT": "h.example:443",
    "labels/NAME": "labels/x",
    "prompts/NAME": "prompts/x",
    "NAME": "small",
    "PATH": "x.txt",
}


def snippets_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the keys of a text that have a list or a map, with that value as it is written."""
    for match in SNIPPET.finditer(text):
        depth = 0
        for at in range(match.end(), len(text)):
            depth += (text[at] in "[{") - (text[at] in "]}")
            if depth == 0:
                yield match[1], text[match.end() : at + 1]
                break


def schemas_of(key: str) -> Iterator[dict[str, Any]]:
    """Yield what the schemas of files say of a key, wherever it is."""
    models = json.loads((ROOT / "schemas/models.schema.json").read_text(encoding="utf-8"))
    if key in ("NAME", "small"):
        yield {"definitions": models["definitions"], "$ref": "#/definitions/ModelEntry"}
    for path in (ROOT / "schemas").glob("*.schema.json"):
        root = json.loads(path.read_text(encoding="utf-8"))
        shared = {name: root[name] for name in ("$defs", "definitions") if name in root}
        nodes = [root]
        while nodes:
            node = nodes.pop()
            if isinstance(node, list):
                nodes += node
            elif isinstance(node, dict):
                nodes += node.values()
                properties = node.get("properties")
                if isinstance(properties, dict) and isinstance(properties.get(key), dict):
                    yield {**shared, **properties[key]}


def yaml_fault_of(key: str, written: str) -> str:
    """Return why no file takes a key with this value; empty if one does."""
    for name, value in VALUES.items():
        written = written.replace(name, value)
    fault = f"no file has the key {key!r}"
    for sample in SAMPLES:
        text = written.replace("...", sample)
        for place in ("x", "pii", "A" * 43 + "="):
            try:
                document = read_yaml(f"{key}: {text.replace(PLACE, place)}\n".encode(), "hint")
            except Fault as syntax:
                fault = syntax.message
                continue
            assert isinstance(document.value, dict)
            for schema in schemas_of(key):
                breach = next(validator(schema).iter_errors(document.value[key]), None)
                if breach is None:
                    return ""
                fault = breach.message
    return fault


def test_every_snippet_of_yaml_in_a_text_is_valid_in_a_file() -> None:
    faults = [
        f"{place}: {key}: {written}: {fault}"
        for place, text in HINTS
        if "\n" not in text and not place.startswith("results/next_step")
        for key, written in snippets_in(text)
        if key not in (*ELSEWHERE, PLACE) and written != "{...}" and "[^" not in written
        if (fault := yaml_fault_of(key, written))
    ]
    assert faults == []
