"""Hostile files that are too large to keep: made when a test needs them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

MB = 1_000_000
FRONT = b"---\nid: hello\n---\n"

DATASETS = ("datasets/rows.jsonl", "datasets/table.csv", "datasets/list.yaml")
PROMPT = ("prompts/hello.md",)
ANYWHERE = ("models.yaml", *PROMPT, *DATASETS, ".edison/prices.json", "schemas/reply.json")
YAML = ("experiments/hello.yaml", "datasets/list.yaml")
JSON = ("datasets/rows.jsonl", ".edison/prices.json", "schemas/reply.json")


class Bomb(NamedTuple):
    """A file that would be expensive to read, and the places to put it, all at once."""

    name: str
    places: tuple[str, ...]
    make: Callable[[], bytes]


def _laughs(levels: int, width: int) -> bytes:
    lines = ["a0: &a0 [" + ", ".join(["lol"] * width) + "]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [" + ", ".join([f"*a{level - 1}"] * width) + "]")
    return "\n".join(lines).encode()


def _numbered(template: str, count: int) -> bytes:
    return "".join(template.replace("#", str(n)) for n in range(count)).encode()


def _jsonl(count: int, pad: int, ids: int) -> bytes:
    text = "x" * pad
    rows = ({"id": f"c{min(n, ids)}", "input": {"name": text}} for n in range(count))
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def _columns(count: int, rows: int = 1) -> bytes:
    return _numbered("c#,", count)[:-1] + b"\n" + (b"," * (count - 1) + b"\n") * rows


def _inside(before: str, middle: str, after: str, count: int) -> bytes:
    return FRONT + (before * count + middle + after * count + "\n").encode()


def _long_names(count: int) -> list[bytes]:
    return [bytes(97 + (n * k) % 26 for k in range(4_000)) for n in range(1, count)]


TEXTS = [
    Bomb("one long line", ANYWHERE, lambda: b"a" * (10 * MB)),
    Bomb("one long line of spaces", ANYWHERE, lambda: b" " * (10 * MB)),
    Bomb("one long line just below a limit", ANYWHERE, lambda: b"a" * 999_999),
    Bomb("one long quoted line", ANYWHERE, lambda: b'"' + b"a" * 999_990 + b'"\n'),
    Bomb("a million empty lines", ANYWHERE, lambda: b"\n" * 999_999),
    Bomb("two million empty lines", DATASETS, lambda: b"\n" * 1_999_999),
    Bomb("a million short lines", ANYWHERE, lambda: b"a\n" * MB),
    Bomb("a million short rows", DATASETS, lambda: b"{}\n" * MB),
    Bomb("ten megabytes of dashes", DATASETS, lambda: b"- a\n" * (10 * MB // 4)),
    Bomb("ten megabytes of braces", ANYWHERE, lambda: b"{" * (10 * MB)),
    Bomb("ten megabytes of zero bytes", ANYWHERE, lambda: bytes(10 * MB)),
    Bomb("eleven megabytes", ANYWHERE, lambda: b"a\n" * (11 * MB // 2)),
    Bomb("bad bytes only", ANYWHERE, lambda: b"\xff" * 999_999),
    Bomb("many control characters", ANYWHERE, lambda: b"\x1b[31m" * 199_999),
]
YAML_TEXTS = [
    Bomb("billion laughs", YAML, lambda: _laughs(12, 10)),
    Bomb("wide laughs", YAML, lambda: _laughs(3, 5_000)),
    Bomb(
        "one long text, many aliases",
        (*YAML, "models.yaml"),
        lambda: b'a: &a "' + b"x" * 900_000 + b'"\nb: [' + b"*a, " * 20_000 + b"]\n",
    ),
    Bomb(
        "one long list, many aliases",
        YAML,
        lambda: b"a: &a [" + b"x, " * 1_000 + b"]\nb: [" + b"*a, " * 200_000 + b"]\n",
    ),
    Bomb("deep flow lists", YAML, lambda: b"[" * 900_000),
    Bomb("deep flow maps", YAML, lambda: b"{a: " * 190_000 + b"}" * 190_000),
    Bomb("deep block lists", YAML, lambda: b"- " * 490_000),
    Bomb("deep block maps", YAML, lambda: b"".join(b" " * n + b"a:\n" for n in range(1_350))),
    Bomb("deep question marks", YAML, lambda: b"? " * 490_000),
    Bomb("a long key", YAML, lambda: b"? " + b"k" * 900_000 + b"\n: 1\n"),
    Bomb("a long tag", YAML, lambda: b"!" + b"t" * 900_000 + b" a\n"),
    Bomb("a long anchor", YAML, lambda: b"&" + b"a" * 900_000 + b" a\n"),
    Bomb("a long alias", YAML, lambda: b"*" + b"a" * 900_000 + b"\n"),
    Bomb("a long number", YAML, lambda: b"version: " + b"9" * 900_000 + b"\n"),
    Bomb("an endless number", YAML, lambda: b"version: 1e" + b"9" * 900_000 + b"\n"),
    Bomb(
        "many unknown keys",
        ("experiments/hello.yaml",),
        lambda: _numbered("expermint#: 1\n", 10_000),
    ),
    Bomb("one key many times", YAML, lambda: b"version: 1\n" * 30_000),
    Bomb("many anchors", ("quarantine.yaml",), lambda: _numbered("k#: &k# a\n", 10_000)),
    Bomb("many quotes", YAML, lambda: b'"' * 900_001),
    Bomb("many comments", YAML, lambda: b"#" * 900_000),
    Bomb("many escapes", YAML, lambda: b'a: "' + b"\\u0041" * 150_000 + b'"\n'),
    Bomb("many percent signs", YAML, lambda: b"%" * 900_000),
    Bomb("many quoted newlines", YAML, lambda: b'a: "' + b"\r\n" * 400_000 + b'"\n'),
    Bomb(
        "secret after secret",
        ("rubrics/tone.yaml",),
        lambda: b"a: [" + b"'AKIAAAAAAAAAAAAAAAAA', " * 40_000 + b"]\n",
    ),
    Bomb("nearly a token", PROMPT, lambda: b"a: " + b"-eyJaaaaaaaaaaaa" * 60_000 + b"\n"),
    Bomb("nearly an address", PROMPT, lambda: b"a: " + b"a://" * 240_000 + b"\n"),
    Bomb("nearly a private key", PROMPT, lambda: b"-----BEGIN " + b"A " * 480_000 + b"\n"),
]
JSON_TEXTS = [
    Bomb("deep JSON lists", JSON, lambda: b"[" * 500_000 + b"]" * 499_999),
    Bomb("deep JSON objects", JSON, lambda: b'{"a":' * 160_000 + b"1" + b"}" * 160_000),
    Bomb("deep JSON, cut short", JSON, lambda: b'{"a": ' + b"[" * 990_000),
    Bomb(
        "deep JSON with a duplicate",
        JSON,
        lambda: b"[" * 800 + b'{"a": 1, "a": 2}' + b"]" * 800,
    ),
    Bomb("a long JSON number", JSON, lambda: b'{"id": ' + b"9" * 990_000 + b"}"),
    Bomb("a long JSON string", JSON, lambda: b'{"id": "' + b"a" * 990_000 + b'"}'),
    Bomb("a long JSON key", JSON, lambda: b'{"' + b"a" * 990_000 + b'": 1}'),
    Bomb(
        "many JSON keys", JSON, lambda: json.dumps(dict.fromkeys(map(str, range(20_000)))).encode()
    ),
    Bomb("many JSON duplicates", JSON, lambda: b"{" + b'"a": 1, ' * 20_000 + b'"a": 1}'),
    Bomb("many JSON escapes", JSON, lambda: b'{"id": "' + b"\\ud83d\\ude00" * 80_000 + b'"}'),
    Bomb("a late lone surrogate", JSON, lambda: b'{"id": "' + b"\\u0041" * 60_000 + b'\\ud800"}'),
    Bomb("many values", JSON, lambda: b'{"input": [' + b"1," * 60_000 + b"1]}\n"),
    Bomb(
        "many prices",
        (".edison/prices.json",),
        lambda: json.dumps(
            {"models": {f"openai/m{n}": {"in": 1, "out": 1} for n in range(20_000)}}
        ).encode(),
    ),
    Bomb(
        "a wide JSON Schema",
        ("schemas/reply.json",),
        lambda: json.dumps({"anyOf": [{"pattern": "(a+)+$"} for _ in range(6_000)]}).encode(),
    ),
    Bomb(
        "a deep JSON Schema",
        ("schemas/reply.json",),
        lambda: b'{"properties": {"a": ' * 24 + b"{}" + b"}}" * 24,
    ),
]
TABLES = [
    Bomb("nine megabytes of rows", DATASETS[:1], lambda: _jsonl(990, 9_000, 990)),
    Bomb("too many rows", DATASETS[:1], lambda: _jsonl(1_001, 1, 1_001)),
    Bomb("one id again and again", DATASETS[:1], lambda: _jsonl(1_000, 9_000, 400)),
    Bomb("a hundred thousand columns", DATASETS[1:2], lambda: _columns(100_000)),
    Bomb("one column again and again", DATASETS[1:2], lambda: b"a," * 400_000 + b"a\n"),
    Bomb("many wide rows", DATASETS[1:2], lambda: _columns(1_000, 990)),
    Bomb("one very long column name", DATASETS[1:2], lambda: b"a" * 900_000 + b"\n" + b"1\n" * 900),
    Bomb("an open quote", DATASETS[1:2], lambda: b'id,name\na,"' + b"b\n" * (4 * MB)),
    Bomb("a cell of newlines", DATASETS[1:2], lambda: b'id,name\na,"' + b"\r\n" * 400_000 + b'"\n'),
    Bomb("a list of empty cases", DATASETS[2:], lambda: b"- {}\n" * 990),
    Bomb(
        "a list with one anchor",
        DATASETS[2:],
        lambda: b'- &a {input: {name: "' + b"x" * 900_000 + b'"}}\n' + b"- *a\n" * 900,
    ),
    Bomb(
        "a list of deep lists", DATASETS[2:], lambda: (b"- " + b"[" * 48 + b"]" * 48 + b"\n") * 990
    ),
]
TEMPLATES = [
    Bomb(
        "deep parentheses",
        PROMPT,
        lambda: _inside("", "{{ " + "(" * 5_000 + "name" + ")" * 5_000 + " }}", "", 1),
    ),
    Bomb(
        "some parentheses",
        PROMPT,
        lambda: _inside("", "{{ " + "(" * 150 + "name" + ")" * 150 + " }}", "", 1),
    ),
    Bomb(
        "deep lists in a template",
        PROMPT,
        lambda: _inside("", "{{ " + "[" * 5_000 + "]" * 5_000 + " }}", "", 1),
    ),
    Bomb(
        "a long attribute chain",
        PROMPT,
        lambda: _inside("", "{{ name" + ".a" * 9_000 + " }}", "", 1),
    ),
    Bomb(
        "a very long attribute chain",
        PROMPT,
        lambda: _inside("", "{{ name" + ".a" * 300_000 + " }}", "", 1),
    ),
    Bomb(
        "a short attribute chain",
        PROMPT,
        lambda: _inside("", "{{ name" + ".a" * 150 + " }}", "", 1),
    ),
    Bomb(
        "a long index chain", PROMPT, lambda: _inside("", "{{ name" + "[0]" * 6_000 + " }}", "", 1)
    ),
    Bomb(
        "a long filter chain",
        PROMPT,
        lambda: _inside("", "{{ name" + "|lower" * 3_000 + " }}", "", 1),
    ),
    Bomb(
        "a long not",
        PROMPT,
        lambda: _inside("", "{% if " + "not " * 4_000 + "name %}a{% endif %}", "", 1),
    ),
    Bomb(
        "a long and",
        PROMPT,
        lambda: _inside("", "{% if name" + " and name" * 2_000 + " %}a{% endif %}", "", 1),
    ),
    Bomb(
        "a long comparison",
        PROMPT,
        lambda: _inside("", "{% if name" + " == name" * 2_000 + " %}a{% endif %}", "", 1),
    ),
    Bomb("deep ifs", PROMPT, lambda: _inside("{% if name %}", "a", "{% endif %}", 700)),
    Bomb("very deep ifs", PROMPT, lambda: _inside("{% if name %}", "a", "{% endif %}", 40_000)),
    Bomb(
        "ifs deeper than Python's blocks",
        PROMPT,
        lambda: _inside("{% if name %}", "a", "{% endif %}", 120),
    ),
    Bomb("deep loops", PROMPT, lambda: _inside("{% for x in name %}", "a", "{% endfor %}", 500)),
    Bomb(
        "loops deeper than Python's blocks",
        PROMPT,
        lambda: _inside("{% for x in name %}", "a", "{% endfor %}", 25),
    ),
    Bomb(
        "many elifs",
        PROMPT,
        lambda: _inside("", "{% if name %}a" + "{% elif name %}b" * 1_000 + "{% endif %}", "", 1),
    ),
    Bomb("many ifs", PROMPT, lambda: FRONT + b"{% if name %}a{% endif %}" * 35_000),
    Bomb("many loops", PROMPT, lambda: FRONT + b"{% for x in name %}a{% endfor %}" * 25_000),
    Bomb("many variables", PROMPT, lambda: FRONT + _numbered("{{ v# }}", 80_000)),
    Bomb("one variable many times", PROMPT, lambda: FRONT + b"{{ name }}\n" * 80_000),
    Bomb("one variable many times in a line", PROMPT, lambda: FRONT + b"{{ name }}" * 80_000),
    Bomb("many refusals", PROMPT, lambda: FRONT + b"{{ f() }}\n" * 80_000),
    Bomb("many refusals in a line", PROMPT, lambda: FRONT + b"{{ f() }}" * 80_000),
    Bomb("many open braces", PROMPT, lambda: FRONT + b"{{" * 400_000),
    Bomb("many template comments", PROMPT, lambda: FRONT + b"{# x #}" * 120_000 + b"{{ name }}"),
    Bomb(
        "many braces",
        PROMPT,
        lambda: b"---\nid: hello\nsyntax: braces\n---\n" + b"{name} {n} " * 80_000,
    ),
    Bomb(
        "many sections",
        PROMPT,
        lambda: FRONT + b"# user\nhello\n# assistant\nhi\n" * 12_000 + b"# user\n{{ name }}\n",
    ),
    Bomb("a front matter that never ends", PROMPT, lambda: b"---\n" + b"a: 1\n" * 150_000),
    Bomb(
        "many inputs",
        PROMPT,
        lambda: b"---\ninputs:\n" + _numbered("  nam#: string\n", 8_000) + b"---\nHi {{ name }}.\n",
    ),
    Bomb(
        "inputs with long names",
        PROMPT,
        lambda: (
            b"---\ninputs:\n"
            + b"".join(b"  ? %s\n  : string\n" % name for name in _long_names(25))
            + b"---\n"
            + b"".join(b"{{ x%s }}\n" % name for name in _long_names(25))
        ),
    ),
    Bomb("a long fence", PROMPT, lambda: FRONT + b"`" * 900_000 + b"\n{{ name }}\n"),
]
PARTS = [
    Bomb(
        "a chain of models",
        ("models.yaml",),
        lambda: _numbered("m#: {use: m1#}\n", 9_999) + b"m1: {provider: sim, model: small}\n",
    ),
    Bomb(
        "a long chain of models",
        ("models.yaml",),
        lambda: b"".join(b"m%d: {use: m%d}\n" % (n, n + 1) for n in range(8_000)),
    ),
    Bomb(
        "many models",
        ("models.yaml",),
        lambda: _numbered("m#: {provider: sim, model: small}\n", 5_000),
    ),
    Bomb("many wrong models", ("models.yaml",), lambda: _numbered("m#: {provider: simm}\n", 3_000)),
    Bomb(
        "many criteria",
        ("rubrics/tone.yaml",),
        lambda: b"rubric: tone\ncriteria:\n" + b"  - {name: A, wieght: 1}\n" * 2_500,
    ),
    Bomb(
        "many quarantined cases",
        ("quarantine.yaml",),
        lambda: (
            b"version: 1\ncases:\n"
            + _numbered(
                "  - {experiment: hello, case: nowhere-#, reason: x, since: '2026-01-01',"
                " until: '2999-01-01', owner: x}\n",
                6_000,
            )
        ),
    ),
    Bomb(
        "many misspelt quarantines",
        ("quarantine.yaml",),
        lambda: (
            b"version: 1\ncases:\n" + b"  - {expriment: a, csae: b, raeson: c, snce: d}\n" * 3_000
        ),
    ),
    Bomb(
        "many unknown checks",
        ("experiments/hello.yaml",),
        lambda: (
            b"checks: ["
            + (b"{any_of: [" + b"{any_of: [" + b"{contians: a}, " * 45 + b"]}, " * 1 + b"]}, ") * 95
            + b"]\n"
        ),
    ),
    Bomb(
        "many hosts",
        (".edison/trust.yaml",),
        lambda: (
            b"version: 1\nkeys:\n"
            + _numbered(
                "  - {env: ANTHROPIC_API_KEY, hosts: ['https://h#.example:99999']}\n", 3_000
            )
        ),
    ),
]
BOMBS = [*TEXTS, *YAML_TEXTS, *JSON_TEXTS, *TABLES, *TEMPLATES, *PARTS]
