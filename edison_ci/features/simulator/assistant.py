"""Replies of the simulated assistant: drafts of objectives, rubrics, prompts, cases and settings.

The kind of draft is given by the keys of the schema of the reply (`objectives`, `criteria`,
`prompts`, `cases`, `opinions`, `models`, `judges`, `max_iterations`, or `diff` for a change of a
prompt), which may be written in the message, else by the words of the message; its topic is in the
last user message, in blocks or not. It replies with JSON of that schema.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from edison_ci._dataclass import dataclass
from edison_ci.features.simulator.assignment import KEY, MAX_CHARS, Task, parse_blocks
from edison_ci.features.simulator.case_writer import cases, opinions
from edison_ci.features.simulator.generator import PLAYBOOKS
from edison_ci.features.simulator.options import (
    Pace,
    SimOptions,
    draw_key,
    make_completion,
    random_stream,
)
from edison_ci.features.simulator.refiner import refine, task_of_prompt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from edison_ci.features.simulator.assignment import Block
    from edison_ci.records import Completion, Request

    Draft = Callable[["DraftRequest", Random], list[dict[str, Any]]]


# The assistant knows the four tasks of the shipped examples; on other topics it repeats the
# request.
_FOCUS = {
    "clarity": "Say at once what matters, in plain words, so that nobody has to ask back.",
    "creativity": "Find an answer that is not the first one everybody thinks of.",
    "efficiency": "Use as few words as do the job, and nothing that the reader does not need.",
}
_STYLES = {
    "structured": "Rules in a list are followed most reliably and are easy to change one by one.",
    "conversational": "A model that is spoken to like a colleague answers in the same voice.",
    "minimal": "Few words leave the model free, and cost least.",
}
_CRITERIA = {
    "Accuracy": "States only what the material supports, and gets every fact right.",
    "Completeness": "Answers every part of what was asked, and leaves out nothing that matters.",
    "Clarity": "Can be understood at the first reading, without asking back.",
    "Conciseness": "Says what is needed and nothing more.",
    "Tone": "Suits the reader and the occasion.",
}
_WEIGHTS = (0.3, 0.25, 0.2, 0.15, 0.1)
_VARIABLE = re.compile(r"\{\{\s*([A-Za-z_]\w*)")
_ROOM = re.compile(r"room for at most (\d{1,3}) iterations")


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """The kind of draft that is requested."""

    task: Task
    topic: str
    """The topic, in the words of the request."""
    message: str
    """The whole message."""
    count: int | None = None
    choices: tuple[str, ...] = ()
    """The models that may be proposed, cheapest first."""
    slots: tuple[dict[str, Any], ...] = ()
    """What each case is to be like."""
    cases: tuple[dict[str, Any], ...] = ()
    """Cases to give an opinion on."""


def objectives(request: DraftRequest, rng: Random) -> list[dict[str, Any]]:
    """Return objectives, each with its own focus."""
    names = [*_FOCUS][: request.count or len(_FOCUS)]
    return [
        {
            "focus": name,
            "title": name.capitalize(),
            "text": f"{_sentence(request.topic)} {_FOCUS[name]}",
        }
        for name in names
    ]


def criteria(request: DraftRequest, rng: Random) -> list[dict[str, Any]]:
    """Return the criteria of a rubric: weights sum to 1, and none is above 40%."""
    names = [*_CRITERIA][: min(max(request.count or len(_CRITERIA), 4), len(_CRITERIA))]
    weights = [*_WEIGHTS[: len(names)]]
    weights[0] += round(1 - sum(weights), 2)
    return [
        {"name": name, "description": _CRITERIA[name], "weight": round(weight, 2), "scale": "0-5"}
        for name, weight in zip(names, weights, strict=True)
    ]


def prompts(request: DraftRequest, rng: Random) -> list[dict[str, Any]]:
    """Return prompts in three styles, each with a rationale."""
    lines = [rng.choice(feature.lines) for feature in PLAYBOOKS[request.task].features]
    rng.shuffle(lines)
    lines = lines or ["Answer what is asked, and nothing else.", "Say so where you are not sure."]
    names = dict.fromkeys(_VARIABLE.findall(request.message)) or {
        KEY.get(request.task, "input"): None
    }
    data = "\n".join(f"{name.replace('_', ' ').capitalize()}: {{{{ {name} }}}}" for name in names)
    goal = _sentence(request.topic)
    bodies = {
        "structured": "\n".join([goal, "", *(f"- {line}" for line in lines[:4]), "", data]),
        "conversational": f"{goal} {' '.join(lines[:2])}\n\n{data}",
        "minimal": f"{goal}\n\n{data}",
    }
    chosen = [*_STYLES][: request.count or len(_STYLES)]
    return [
        {"style": style, "text": f"# user\n{bodies[style]}\n", "rationale": _STYLES[style]}
        for style in chosen
    ]


_ROLES = {
    "fast": "It answers quickly, which is enough where the task is easy.",
    "balanced": "It is a compromise between the others.",
    "smart": "It is the one to ask where the task is hard.",
}


def models(request: DraftRequest, rng: Random) -> list[dict[str, Any]]:
    """Return the cheapest, the middle and the most expensive model of the list."""
    known = request.choices
    chosen = {"fast": known[:1], "smart": known[-1:]}
    if len(known) > 2:
        chosen = {"fast": known[:1], "balanced": (known[len(known) // 2],), "smart": known[-1:]}
    return [
        {"role": role, "model": name, "reason": _ROLES[role]}
        for role, names in chosen.items()
        for name in names
    ]


def judges(request: DraftRequest, rng: Random) -> dict[str, Any]:
    """Return up to three judges of the list."""
    known = request.choices
    chosen = [*dict.fromkeys((*known[:1], *known[len(known) // 2 :][:1], *known[-1:]))]
    why = "It scores every criterion, and says why."
    return {
        "judges": [{"model": name, "reason": why} for name in chosen],
        "combine": "median" if len(chosen) > 2 else "mean",
        "pairwise": "",
    }


def limits(request: DraftRequest, rng: Random) -> dict[str, Any]:
    """Return stop rules that suit most tasks, within the room that is given."""
    room = _ROOM.search(request.message)
    iterations = min(8, int(room[1])) if room else 8
    return {
        "max_iterations": iterations,
        "min_delta": 0.02,
        "window": min(2, iterations),
        "alert_at": 0.8,
        "prune_weak_prompts": True,
        "stop_if_no_refinement": True,
        "adaptive_sampling": False,
        "reason": "Most prompts gain little after a few rounds; two idle ones are enough to stop.",
    }


def _sentence(topic: str) -> str:
    text = topic.strip().rstrip(".!?")
    return f"{text[:1].upper()}{text[1:]}." if text else "Answer what is asked."


# Types, enumerations, required keys, and limits of numbers, strings and lists are respected; other
# keywords of a schema are ignored.
_FILLER = "This was made up by the simulator and says nothing about the world. "
_DEEPEST = 12


def schema_of(wanted: Any) -> dict[str, Any]:
    """Return the schema of a response format; empty if it has none."""
    if not isinstance(wanted, dict):
        return {}
    inner = wanted.get("json_schema")
    if wanted.get("type") == "json_schema" and isinstance(inner, dict):
        inner = inner.get("schema")
        return inner if isinstance(inner, dict) else {}
    return {} if wanted.get("type") in ("json_object", "text") else wanted


def fit_to_schema(value: Any, schema: Any, rng: Random, depth: int = 0) -> Any:
    """Return a value that fits the schema, as close to the given one as possible."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return value
    if "const" in schema:
        return schema["const"]
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return value if value in choices else rng.choice(choices)
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(key), list) and schema[key]:
            return fit_to_schema(value, schema[key][0], rng, depth + 1)
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object" or (kind is None and "properties" in schema):
        return _object(value, schema, rng, depth)
    if kind == "array":
        return _array(value, schema, rng, depth)
    return _plain(value, schema, kind)


def _plain(value: Any, schema: dict[str, Any], kind: Any) -> Any:
    if kind == "string":
        return _text(value, schema)
    if kind in ("number", "integer"):
        return _number(value, schema, whole=kind == "integer")
    if kind == "boolean":
        return bool(value)
    return None if kind == "null" else value


def _object(value: Any, schema: dict[str, Any], rng: Random, depth: int) -> dict[str, Any]:
    given = value if isinstance(value, dict) else {}
    known = schema.get("properties")
    known = known if isinstance(known, dict) else {}
    required = [name for name in schema.get("required", ()) if isinstance(name, str)]
    names = dict.fromkeys([*(name for name in given if name in known), *required])
    found = {
        name: fit_to_schema(given.get(name), known.get(name, {}), rng, depth + 1) for name in names
    }
    if schema.get("additionalProperties", True) is not False:
        found |= {name: each for name, each in given.items() if name not in found}
    return found


def _array(value: Any, schema: dict[str, Any], rng: Random, depth: int) -> list[Any]:
    given = value if isinstance(value, list) else [] if value is None else [value]
    least, most = schema.get("minItems"), schema.get("maxItems")
    if isinstance(most, int):
        given = given[:most]
    while isinstance(least, int) and len(given) < min(least, 1_000):
        given = [*given, given[-1] if given else None]
    return [fit_to_schema(item, schema.get("items", {}), rng, depth + 1) for item in given]


def _text(value: Any, schema: dict[str, Any]) -> str:
    text = value if isinstance(value, str) else "" if value is None else str(value)
    text = text or _FILLER.strip()
    least, most = schema.get("minLength"), schema.get("maxLength")
    while isinstance(least, int) and len(text) < min(least, 10_000):
        text = f"{text} {_FILLER}"
    return text[:most].rstrip() if isinstance(most, int) and len(text) > most else text


def _number(value: Any, schema: dict[str, Any], *, whole: bool) -> float:
    low, high = schema.get("minimum"), schema.get("maximum")
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else low or 0
    if isinstance(low, int | float):
        number = max(number, low)
    if isinstance(high, int | float):
        number = min(number, high)
    return round(number) if whole else number


PACE = Pace(350.0, 10.0)
DRAFTS: dict[str, Draft] = {
    "cases": cases,
    "opinions": opinions,
    "criteria": criteria,
    "prompts": prompts,
    "objectives": objectives,
    "models": models,
}
SETTINGS = {"judges": judges, "max_iterations": limits}
"""Drafts that are one object, not a list."""
_KINDS = (*DRAFTS, *SETTINGS, "diff")
_KIND_SIGNS = {
    "opinions": re.compile(r"\bopinions?\b", re.I),
    "cases": re.compile(r"\b(?:test )?(?:cases|rows|questions|dataset)\b", re.I),
    "criteria": re.compile(r"\b(?:rubric|criteria)\b", re.I),
    "diff": re.compile(r"\bdiff\b", re.I),
    "prompts": re.compile(r"\bprompts?\b", re.I),
    "objectives": re.compile(r"\bobjectives?\b", re.I),
}
_COUNT = re.compile(
    r"\b(\d{1,3}) (?:\w+ ){0,2}(?:cases|rows|questions|criteria|prompts|objectives)\b", re.I
)
_WRITTEN_SCHEMA = re.compile(r'"properties": \{"[^\n]{1,200}')
"""The start of a schema in the words of a message, for a model that is told the form."""
_TEMPLATE = re.compile(r"\{[{%].{0,200}?[%}]\}")
_TOPIC_CHARS = 300
_SHORTEST_TOPIC = 10


def assist(request: Request, options: SimOptions | None = None) -> Completion:
    """Return a draft, determined by the hash of the request and the seed."""
    options = options or SimOptions()
    schema = schema_of(request.response_format)
    said = next((m.content for m in reversed(request.messages) if m.role == "user"), "")
    told = "\n".join(m.content for m in request.messages)[:MAX_CHARS]
    kind = _kind(schema, told)
    if kind == "diff":
        return refine(request, options)
    rng = random_stream(draw_key(request), options.seed, "assist")
    wanted = _draft_request(said[:MAX_CHARS], told, _size(schema, kind))
    made = SETTINGS[kind](wanted, rng) if kind in SETTINGS else {kind: DRAFTS[kind](wanted, rng)}
    draft = fit_to_schema(made, schema, rng)
    return make_completion(request, options, json.dumps(draft, ensure_ascii=False), PACE, rng)


def _kind(schema: dict[str, Any], told: str) -> str:
    keys = schema.get("properties")
    for kind in _KINDS:
        if isinstance(keys, dict) and kind in keys:
            return kind
    if written := _WRITTEN_SCHEMA.search(told):
        kind = next((kind for kind in _KINDS if f'"{kind}":' in written[0]), "")
        if kind:
            return kind
    places = {
        kind: found.start() for kind, sign in _KIND_SIGNS.items() if (found := sign.search(told))
    }
    return min(places, key=lambda kind: places[kind], default="objectives")


def _size(schema: dict[str, Any], kind: str) -> int | None:
    """Return the number of items that the schema requires; None if it does not."""
    keys = schema.get("properties")
    entry = keys.get(kind) if isinstance(keys, dict) else None
    if not isinstance(entry, dict):
        return None
    sizes = (entry.get("minItems"), entry.get("maxItems"))
    return next((size for size in sizes if isinstance(size, int) and size > 0), None)


def _draft_request(said: str, told: str, size: int | None) -> DraftRequest:
    blocks = parse_blocks(said)
    shown = "\n".join(block.text for block in blocks) if blocks else said
    lines = [line.strip() for line in shown.splitlines() if len(line.strip()) > 3]
    topic = _topic(lines[-1] if blocks is None and lines else " ".join(lines[:1]))
    found = _COUNT.search(told)
    count = size or (int(found[1]) if found else None)
    listed = next((block.text for block in blocks or () if block.name == "models"), "")
    choices = tuple(line.partition(": ")[0] for line in listed.splitlines())
    slots, rows = (_rows(blocks or (), name) for name in ("slots", "cases"))
    prompt = "\n".join(block.text for block in blocks or () if block.name == "prompt")
    task = task_of_prompt(prompt or shown)
    topic = topic or "answer what is asked"
    return DraftRequest(task, topic, told, count, choices, slots, rows)


def _rows(blocks: Iterable[Block], name: str) -> tuple[dict[str, Any], ...]:
    """Return the objects of a block that is a list."""
    value = next((block.value for block in blocks if block.name == name), None)
    return tuple(row for row in value if isinstance(row, dict)) if isinstance(value, list) else ()


def _topic(line: str) -> str:
    """Return the topic of a line: the text after its last colon, without variables."""
    plain = " ".join(_TEMPLATE.sub(" ", line).split())
    said = plain.rpartition(": ")[2]
    topic = said if len(said) >= _SHORTEST_TOPIC else plain
    if len(topic) > _TOPIC_CHARS:  # whole sentences, if one ends early enough
        topic = topic[:_TOPIC_CHARS]
        topic = topic.rpartition(". ")[0] or topic
    return topic.rstrip(" .")
