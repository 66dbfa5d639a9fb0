"""Attacks with JSON Schemas: files that are read, addresses that are asked, work without an end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.loopback.script import rule
from tests.redteam.attack import Attack, Variant

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from tests.redteam.attack import Change
    from tests.redteam.bench import Scene

OLD = "http://json-schema.org/draft-04/schema#"
FIXED: dict[str, dict[str, Any]] = {
    "$ref": {"$ref": "ADDRESS"},
    "$ref to a part": {"$ref": "ADDRESS#/enum"},
    "$id and $ref": {"$id": "ADDRESS", "$ref": "other#/x"},
    "$id and $ref to itself": {"$id": "ADDRESS", "properties": {"a": {"$ref": "#/y"}}},
    "$id within": {"x": {"allOf": [{"$id": "ADDRESS", "$ref": "#"}]}, "$ref": "#/x"},
    "$id within, part": {"x": {"allOf": [{"$id": "ADDRESS", "$ref": "#/y"}]}, "$ref": "#/x"},
    "id of an old draft": {
        "$schema": OLD,
        "allOf": [{"$ref": "#/x"}],
        "x": {"allOf": [{"id": "ADDRESS", "allOf": [{"$ref": "#"}]}]},
    },
    "$dynamicRef": {"$dynamicRef": "ADDRESS"},
    "$recursiveRef": {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "$recursiveRef": "ADDRESS",
    },
    "$schema": {"$schema": "ADDRESS"},
    "$schema within": {"$defs": {"a": {"$schema": "ADDRESS", "$id": "x"}}, "$ref": "#/$defs/a"},
    "$vocabulary": {"$vocabulary": {"ADDRESS": True}, "type": "string"},
    "contentSchema": {"contentMediaType": "application/json", "contentSchema": {"$ref": "ADDRESS"}},
    "circle": {"$ref": "#/x", "x": {"$ref": "#/y"}, "y": {"$ref": "#/x"}},
    "slow pattern": {"pattern": "^(a+)+$"},
    "slow names": {"patternProperties": {"^(a|a)*b$": {}}},
    "long enum": {"items": {"enum": [[[n]] for n in range(3_000)]}},
    "many of many": {"anyOf": [{"oneOf": [{"minLength": n} for n in range(9)]} for _ in range(99)]},
}  # fmt: skip
WRAPPED = (
    "allOf", "anyOf", "oneOf", "not", "if", "then", "items", "prefixItems", "properties",
    "additionalProperties", "patternProperties", "propertyNames", "contains", "dependentSchemas",
    "dependencies", "$defs", "definitions", "unevaluatedProperties", "x-of-nobody", "extends",
)  # fmt: skip
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
ANSWERS = ('"x"', '{"a": 1, "b": [1, {"a": "x"}]}', f'"{"a" * 60}!"', "[[[1]], [[2]]]")
CHECK = "  - contains: Welcome\n"
USES = ("file", "output", "inline", "tools")


def _schema(use: str, schema: dict[str, Any], address: str) -> Change:
    """Let the head have a schema for answers, in one of the places that take one."""

    def change(scene: Scene) -> None:
        thief, folder = scene.site.thief.url, scene.folder
        secret = f"{folder}/temp/gha-creds-1.json"
        real = {"thief": f"{thief}/s.json", "file": f"file://{secret}", "path": secret}[address]
        text = json.dumps(schema).replace("ADDRESS", real)
        scene.write("schemas/out.json", text)
        if use == "file":
            scene.edit("experiments/hello.yaml", CHECK, "  - json_schema: schemas/out.json\n")
        elif use == "output":
            scene.edit("prompts/hello.md", "id: hello\n", "id: hello\noutput: schemas/out.json\n")
        elif use == "inline":
            scene.edit("prompts/hello.md", "id: hello\n", f"id: hello\noutput: {text}\n")
        else:
            tool = {"name": "t", "description": "A tool.", "parameters": json.loads(text)}
            scene.write("schemas/tools.json", json.dumps([tool]))
            scene.edit("prompts/hello.md", "id: hello\n", "id: hello\ntools: schemas/tools.json\n")

    return change


def _few_cases(scene: Scene) -> None:
    rows = scene.read("datasets/names.jsonl").splitlines(keepends=True)
    scene.write("datasets/names.jsonl", "".join(rows[:4]))


def _variant(name: str, change: Change, answer: str) -> Variant:
    script = (rule(text=answer),)
    return Variant(name, change, _few_cases, script=script, may_pass=True, proxied=True)


def _fixed() -> Iterator[Variant]:
    for number, (name, schema) in enumerate(FIXED.items()):
        for address in ("thief", "file") if "ADDRESS" in json.dumps(schema) else ("thief",):
            use = "file" if address == "thief" else USES[number % len(USES)]
            answer = ANSWERS[number % len(ANSWERS)]
            yield _variant(f"{name}, {use}, {address}", _schema(use, schema, address), answer)


def _made(random: Random) -> Variant:
    """Nest references and bases under keywords that some validators follow and others do not."""
    schema = _nested(random, random.randrange(1, 5))
    use, address = random.choice(USES), random.choice(["thief", "file", "path"])
    if random.random() < 0.3:
        schema["$schema"] = random.choice([OLD, "http://json-schema.org/draft-07/schema#"])
    name = f"{use} {address} {json.dumps(schema)}"
    return _variant(name[:160], _schema(use, schema, address), random.choice(ANSWERS))


def _nested(random: Random, depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if random.random() < 0.5:
        made[random.choice(["$id", "id", "$anchor"])] = random.choice(["ADDRESS", "x", "#a"])
    if depth == 0 or random.random() < 0.4:
        parts = ["ADDRESS", "#", "#/x", "x.json", "#/x-of-nobody/a", "ADDRESS#/enum"]
        made[random.choice(REFERENCES)] = random.choice(parts)
    if depth:
        word = random.choice(WRAPPED)
        inner = _nested(random, depth - 1)
        listed = word in ("allOf", "anyOf", "oneOf", "prefixItems")
        plain = word in ("not", "if", "then", "items", "contains", "additionalProperties",
                         "propertyNames", "unevaluatedProperties")  # fmt: skip
        made[word] = [inner] if listed else inner if plain else {"a": inner}
        if not listed and not plain:
            made.setdefault("$ref", f"#/{word}/a")
    return made


ATTACKS = (
    Attack(
        "schemas",
        "a JSON Schema reads no file, asks no address, and comes to an end",
        _fixed,
        _made,
    ),
)
