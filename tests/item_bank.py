"""Makes a project whose cases are known to tell models apart, or not to.

Ten scripted models of rising ability greet people. A `good` case is greeted by those who are
able enough, an `easy` one by all, a `wrong` one only by the unable, and a `coin` by chance. Each
case says in its metadata who wrote it.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.conftest import Folder

MODELS = 10
GOOD, EASY, COIN, WRONG = 15, 5, 5, 1
WRITERS = {"good": "careful", "easy": "hasty", "coin": "hasty", "wrong": "hasty"}


def names() -> list[str]:
    counts = {"good": GOOD, "easy": EASY, "coin": COIN, "wrong": WRONG}
    return [f"{kind}-{index}" for kind, count in counts.items() for index in range(count)]


def passes(case: str, ability: int) -> bool:
    """Whether a model of this ability answers a case rightly."""
    kind, _, index = case.partition("-")
    luck = hashlib.sha256(f"{case}/{ability}".encode()).digest()[0]
    if kind == "good":
        return ability > int(index) % 5 + 2
    if kind == "wrong":
        return ability < MODELS // 2
    return kind == "easy" or luck < 128


def build(folder: Folder, *, models: int = MODELS) -> None:
    """Write the project; it is not run."""
    folder.write("edison.yaml", "version: 1\nproject: bank\ndefaults: {judge: judge}\n")
    folder.write("prompts/hello.md", "---\nid: hello\n---\n# user\nGreet {{ name }} now.\n")
    folder.write(
        "experiments/hello.yaml",
        "experiment: hello\n"
        "objective: Greet people by their name in a friendly way.\n"
        "prompts: [prompts/hello.md]\n"
        f"models: [{', '.join(f'm{each}' for each in range(models))}]\n"
        "dataset: datasets/names.jsonl\n"
        'checks:\n  - contains: "{{ expected }}"\n',
    )
    entries = [
        f"m{each}: {{provider: sim, model: script, options: {{file: m{each}.jsonl}}}}"
        for each in range(models)
    ]
    judge = "judge: {provider: sim, model: judge}"
    writers = [f"{name}: {{provider: sim, model: small}}" for name in sorted({*WRITERS.values()})]
    folder.write("models.yaml", "\n".join([*entries, *writers, judge, ""]))
    folder.write("datasets/names.jsonl", _lines(row(name) for name in names()))
    for each in range(models):
        ability = each if models == MODELS else each * MODELS // models
        folder.write(
            f"m{each}.jsonl",
            _lines(
                {"match": f"Greet {name} now", "text": name if passes(name, ability) else "Hi."}
                for name in names()
            ),
        )


def row(name: str) -> dict[str, Any]:
    written = {"written_by": WRITERS[name.partition("-")[0]], "instructions": "ab12", "seed": 1}
    return {
        "id": name,
        "input": {"name": name},
        "expected": name,
        "metadata": {**written, "written_at": "2026-01-01T00:00:00.000Z"},
    }


def _lines(rows: Any) -> str:
    return "".join(json.dumps(each) + "\n" for each in rows)
