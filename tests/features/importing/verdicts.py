"""Tests in the form of promptfoo, answers, and the verdicts that promptfoo gave on them.

The verdicts are stored in `verdicts.json`: for each test a text with 1 for each answer that passes
and 0 for each that does not. After a change of the tests or answers below, they are recorded again
where promptfoo is installed, by the Node.js that is named (promptfoo needs 22 or newer):

    python -m tests.features.importing.verdicts FOLDER_OF_node_modules NODE
"""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

STORED = Path(__file__).with_name("verdicts.json")

_WORDS = [
    "Paris",
    "paris",
    "PARIS",
    "the",
    "capital",
    "of",
    "France",
    "is",
    "yes",
    "no",
    "42",
    "ok",
]
_SPECIAL = [
    "",
    " ",
    "\n",
    "Paris",
    " Paris",
    "Paris ",
    "Paris\n",
    "paris",
    "PARIS",
    "Pari",
    "Parisian",
    "Parys",
    "yes",
    "Yes",
    "no",
    "ok",
    "OK",
    " ok ",
    "42",
    "42\n",
    "true",
    "null",
    "[]",
    "{}",
    "a,b",
    "é",
    "É",
    "caf\u00e9",
    "Paris \U0001f600",
    "\U0001f600",
    "a\u00a0b",
    "x\ty",
    "line\r\nline",
    "one\ntwo",
    "one\ntwo\nthree",
    "one\n\n  \ntwo\nthree",
    "٣",
    "price: 12.50 EUR",
    "2024-05-01",
    '{"a": 1}',
    ' {"a": 1}\n',
    '```json\n{"a": 1}\n```',
    '{"a": 1',
    "{'a': 1}",
    "[1, 2]",
    '"text"',
    '{"color": "yellow", "countries": ["Ecuador", "Peru"], "n": 3}',
    '{"color": "yellow", "countries": "Ecuador", "n": 3.5}',
    '{"color": "blue", "countries": [], "n": "3"}',
    '{"color": null, "n": -1, "ok": true}',
    'Here it is: {"color": "yellow"} as asked',
    '{"a": {"b": [{"c": "x"}]}}',
    '{"a": {"b": []}}',
    "<a><b/></a>",
    "<a><b></a>",
    "<a>1</a><b>2</b>",
    "text <a>1</a>",
    '<?xml version="1.0"?><r/>',
    "SELECT * FROM t",
    "I cannot help with that.",
    "a" * 50,
    "a" * 49,
    "word " * 20,
    "b" * 200,
]

_TEXTS = ["Paris", "paris", "a", "é", "the capital", " ", "Paris ", "\U0001f600", "42", "[", "(x)"]
_LISTS: list[Any] = [["Paris", "ok"], ["a", "é"], ["42"], "Paris, ok", '"a,b",zzz']
_PATTERNS = [
    "Paris",
    "^Paris$",
    "^P.r.s$",
    "\\d+",
    "^\\d+$",
    "\\bParis\\b",
    "\\w+\\s\\w+",
    "^\\s*$",
    "[Pp]aris",
    "(?<city>P)aris",
    "^[^a-z]*$",
    "a{3,}",
    "a{,3}",
    ".",
    "^.$",
    "\\S\\s\\S",
    "(one|two)\\n",
    "(a)\\1",
    "\\d{4}-\\d{2}-\\d{2}",
    "[\\s\\S]{50}",
    "^$",
    "\\u00e9",
    "[^]",
    "x|y",
    "^\\w+$",
    "Par(?=is)",
    "(?<!P)aris",
    "\\/",
    "\\.",
    "[a-c&&b]",
    "\\-",
]
_SCHEMAS: list[Any] = [
    {"type": "object"},
    {"type": "object", "required": ["a"]},
    {
        "type": "object",
        "properties": {"color": {"enum": ["yellow", "blue"]}},
        "required": ["color"],
    },
    {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    {"type": "array", "items": {"type": "number"}},
    {"type": "array", "items": [{"type": "number"}, {"type": "string"}]},
]
_JAVASCRIPT = [
    "output.includes('Paris')",
    'output.includes("the") && !output.includes("no")',
    "output.toLowerCase().includes('paris')",
    "output === 'Paris'",
    "output.trim() === 'Paris'",
    "output.trim().toLowerCase() === 'ok'",
    "output.startsWith('Pa')",
    "output.endsWith('s')",
    "output.length > 0",
    "output && output.trim().length > 0",
    "!output",
    "output.indexOf('a') !== -1",
    "/paris/i.test(output)",
    "/^\\d+$/.test(output)",
    "output.split('\\n').length >= 3",
    "output.split('\\n').filter(l => l.trim()).length === 3",
    "typeof output === 'string'",
    "['yes', 'no'].some(w => output.includes(w))",
    "['a', 'b'].every(w => output.includes(w))",
    "output.includes('Paris') ? 1 : 0",
    "(output.includes('a') || output.includes('b')) && true",
    "JSON.parse(output).color === 'yellow'",
    "JSON.parse(output).n > 2",
    "JSON.parse(output).a.b[0].c === 'x'",
    "JSON.parse(output).countries.includes('Ecuador')",
    "JSON.parse(output).color !== 'blue'",
    "Array.isArray(JSON.parse(output).countries)",
    "typeof JSON.parse(output).color === 'string'",
    "const data = JSON.parse(output); data.ok === true",
    "const low = output.toLowerCase();\nreturn low.includes('paris') || low.includes('ok');",
    "if (!output || output.includes('no')) {\n  return false;\n}\nreturn output.includes('Paris');",
    "// a remark\nreturn {pass: output.includes('a'), score: 1, reason: 'x'};",
]
_PYTHON = [
    "'Paris' in output",
    "'paris' in output.lower()",
    "output == 'Paris'",
    "output.strip() == 'ok'",
    "len(output) < 50",
    "len(output.split()) >= 3",
    "output.startswith(('Pa', 'pa'))",
    "any(w in output for w in ['yes', 'no'])",
    "'a' in output and 'b' not in output",
    "json.loads(output)['color'] == 'yellow'",
    "json.loads(output)['n'] >= 3",
    "if 'no' in output:\n    return False\nreturn 'Paris' in output",
]


def asked_tests() -> list[dict[str, Any]]:
    """Return tests with one assertion, and with several."""
    single = [*_texts(), *_structures(), *_code()]
    return [*({"assert": [assertion]} for assertion in single), *_several()]


def _texts() -> Iterator[dict[str, Any]]:
    for kind, text in itertools.product(("equals", "contains", "icontains", "starts-with"), _TEXTS):
        yield {"type": kind, "value": text}
        yield {"type": f"not-{kind}", "value": text}
    kinds = ("contains-any", "contains-all", "icontains-any", "icontains-all")
    for value, kind in itertools.product(_LISTS, kinds):
        yield {"type": kind, "value": value}
        yield {"type": f"not-{kind}", "value": value}
    yield from ({"type": "regex", "value": pattern} for pattern in _PATTERNS)
    for text in ("Paris", "", "ok \U0001f600"):
        yield {"type": "levenshtein", "value": text}
        for edits in (0, 1, 2.5):
            yield {"type": "levenshtein", "value": text, "threshold": edits}
    for limits in (1, 3, {"min": 2}, {"max": 5}, {"min": 2, "max": 20}):
        yield {"type": "word-count", "value": limits}


def _structures() -> Iterator[dict[str, Any]]:
    for kind in ("is-json", "contains-json", "not-is-json"):
        yield {"type": kind}
        yield from ({"type": kind, "value": schema} for schema in _SCHEMAS)
    yield from ({"type": kind} for kind in ("is-xml", "is-html", "is-sql", "is-refusal"))
    yield {"type": "equals", "value": {"a": 1}}
    yield {"type": "equals", "value": [1, 2]}


def _code() -> Iterator[dict[str, Any]]:
    yield from ({"type": "javascript", "value": code} for code in _JAVASCRIPT)
    yield from ({"type": "python", "value": code} for code in _PYTHON)
    yield {"type": "equals", "value": "yellow", "transform": "JSON.parse(output).color"}
    yield {"type": "contains", "value": "paris", "transform": "output.toLowerCase()"}
    yield {"type": "equals", "value": "Paris", "transform": "output.trim()"}


def _several() -> Iterator[dict[str, Any]]:
    a, b, c = ({"type": "contains", "value": each} for each in ("a", "Paris", "zzz"))
    for threshold in (None, 0, 0.5, 0.75, 1):
        given = {} if threshold is None else {"threshold": threshold}
        yield {"assert": [a, {**b, "weight": 2}, c], **given}
        members = [a, {**b, "weight": 3}]
        yield {"assert": [{"type": "assert-set", "assert": members, **given}]}
        yield {"assert": [a, {"type": "is-json", "weight": 0}], **given}


def answers() -> list[str]:
    """Return answers: special ones, and some made of words."""
    rng = random.Random("verdicts")
    made = [" ".join(rng.choices(_WORDS, k=rng.randint(1, 8))) for _ in range(30)]
    return [*_SPECIAL, *dict.fromkeys(made)]


_SCRIPT = """\
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import fs from 'node:fs';
const require = createRequire(process.argv[2] + '/x.js');
const promptfoo = (await import(pathToFileURL(require.resolve('promptfoo')).href)).default;
const { tests, answers } = JSON.parse(fs.readFileSync(process.argv[3], 'utf8'));
const found = [];
for (const test of tests) {
  let line = '';
  for (const output of answers) {
    let passed = false;
    try {
      const result = await promptfoo.assertions.runAssertions({
        providerResponse: { output }, test: { vars: {}, ...structuredClone(test) },
      });
      passed = result.pass;
    } catch { passed = false; }
    line += passed ? '1' : '0';
  }
  found.push(line);
}
fs.writeFileSync(process.argv[4], JSON.stringify(found));
process.exit(0);
"""


def _is_python(test: dict[str, Any]) -> bool:
    return any(assertion["type"] == "python" for assertion in test["assert"])


def _by_python(test: dict[str, Any]) -> str:
    """Return the verdicts of Python itself, on the function that promptfoo makes of the code."""
    (assertion,) = test["assert"]
    code = assertion["value"]
    body = code if "\n" in code else f"return {code}"
    lines = "\n".join(f"    {line}" for line in body.split("\n"))
    names: dict[str, Any] = {}
    exec(f"import json\n\ndef main(output, context):\n{lines}\n", names)

    def verdict(text: str) -> bool:
        try:
            return names["main"](text, {"vars": {}}) is True
        except Exception:
            return False

    return "".join(str(int(verdict(text))) for text in answers())


def record(modules: Path, node: str) -> None:
    """Ask promptfoo for its verdicts, and store them.

    Code in Python is run here: promptfoo starts a process for each answer, which takes minutes.
    """
    version = json.loads((modules / "promptfoo/package.json").read_text("utf-8"))["version"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script, asked, told = folder / "ask.mjs", folder / "asked.json", folder / "told.json"
        script.write_text(_SCRIPT, "utf-8")
        others = [test for test in asked_tests() if not _is_python(test)]
        asked.write_text(json.dumps({"tests": others, "answers": answers()}), "utf-8")
        words = [node, str(script), str(modules.resolve()), str(asked), str(told)]
        subprocess.run(words, check=True)
        by_promptfoo = iter(json.loads(told.read_text("utf-8")))
    verdicts = [
        _by_python(test) if _is_python(test) else next(by_promptfoo) for test in asked_tests()
    ]
    lines = ",\n".join(f'  "{line}"' for line in verdicts)
    STORED.write_text(f'{{"promptfoo": "{version}", "verdicts": [\n{lines}\n]}}\n', "utf-8")


if __name__ == "__main__":
    record(Path(sys.argv[1]), sys.argv[2])
