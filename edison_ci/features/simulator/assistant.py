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
from edison_ci.features.simulator.assignment import MAX_CHARS, known_cases, parse_blocks
from edison_ci.features.simulator.options import (
    Pace,
    SimOptions,
    draw_key,
    make_completion,
    random_stream,
)
from edison_ci.features.simulator.refiner import refine, task_of_prompt
from edison_ci.features.simulator.tasks import Task, load_data, task_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from edison_ci.features.simulator.assignment import Block, KnownCase
    from edison_ci.records import Completion, Request

    Draft = Callable[["DraftRequest", Random], list[dict[str, Any]]]


# The assistant knows the four tasks of the shipped examples; on other topics it repeats the
# request.
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

    @property
    def key(self) -> str:
        """The main input of a case of the task."""
        return task_data(self.task).key or "input"


def objectives(request: DraftRequest, rng: Random) -> list[dict[str, Any]]:
    """Return objectives, each with its own focus."""
    focus = _texts("focus")
    goal = _sentence(request.topic)
    return [
        {"focus": name, "title": name.capitalize(), "text": f"{goal} {focus[name]}"}
        for name in [*focus][: request.count or len(focus)]
    ]


def criteria(request: DraftRequest, rng: Random) -> list[dict[str, Any]]:
    """Return the criteria of a rubric: weights sum to 1, and none is above 40%."""
    descriptions = _texts("criteria")
    names = [*descriptions][: max(request.count or len(descriptions), 4)]
    weights = [*_WEIGHTS[: len(names)]]
    weights[0] += round(1 - sum(weights), 2)
    return [
        {
            "name": name,
            "description": descriptions[name],
            "weight": round(weight, 2),
            "scale": "0-5",
        }
        for name, weight in zip(names, weights, strict=True)
    ]


def prompts(request: DraftRequest, rng: Random) -> list[dict[str, Any]]:
    """Return prompts in three styles, each with a rationale."""
    lines = [rng.choice(feature.lines) for feature in task_data(request.task).features]
    rng.shuffle(lines)
    lines = lines or ["Answer what is asked, and nothing else.", "Say so where you are not sure."]
    names = [*dict.fromkeys(_VARIABLE.findall(request.message))] or [request.key]
    data = "\n".join(f"{name.replace('_', ' ').capitalize()}: {{{{ {name} }}}}" for name in names)
    goal = _sentence(request.topic)
    bodies = {
        "structured": "\n".join([goal, "", *(f"- {line}" for line in lines[:4]), "", data]),
        "conversational": f"{goal} {' '.join(lines[:2])}\n\n{data}",
        "minimal": f"{goal}\n\n{data}",
    }
    styles = _texts("styles")
    return [
        {"style": style, "text": f"# user\n{bodies[style]}\n", "rationale": styles[style]}
        for style in [*styles][: request.count or len(styles)]
    ]


def models(request: DraftRequest, rng: Random) -> list[dict[str, Any]]:
    """Return the cheapest, the middle and the most expensive model of the list."""
    choices = request.choices
    middle = choices[len(choices) // 2 :][:1] if len(choices) > 2 else ()
    by_role = {"fast": choices[:1], "balanced": middle, "smart": choices[-1:]}
    return [
        {"role": role, "model": name, "reason": _texts("roles")[role]}
        for role, names in by_role.items()
        for name in names
    ]


def judges(request: DraftRequest, rng: Random) -> dict[str, Any]:
    """Return up to three judges of the list."""
    choices = request.choices
    middle = choices[len(choices) // 2 :][:1]
    names = [*dict.fromkeys((*choices[:1], *middle, *choices[-1:]))]
    reason = "It scores every criterion, and says why."
    return {
        "judges": [{"model": name, "reason": reason} for name in names],
        "combine": "median" if len(names) > 2 else "mean",
        "pairwise": "",
    }


def limits(request: DraftRequest, rng: Random) -> dict[str, Any]:
    """Return stop rules that suit most tasks, within the room that is given."""
    room = _ROOM.search(request.message)
    iterations = min(8, int(room[1])) if room else 8
    return {
        **_texts("limits"),
        "max_iterations": iterations,
        "window": min(2, iterations),
    }


def _texts(name: str) -> Any:
    """Return texts for drafts, by their name."""
    return load_data("drafts")[name]


def _sentence(topic: str) -> str:
    text = topic.strip().rstrip(".!?")
    return f"{text[:1].upper()}{text[1:]}." if text else "Answer what is asked."


# Each slot of a request becomes a case: one of a shipped example with other words around it, or a
# plain question about the topic. Lengths, four languages and edge cases are those of the slot.
_INPUT = re.compile(r"^- input ([A-Za-z_]\w*):", re.M)
_EDGE_EVERY = 8
_AGREES = 0.9
_WORDS = {
    "0": (1, 10),
    "11": (11, 50),
    "51": (51, 200),
    "201": (201, 1_000),
    "more": (1_001, 1_400),
}
"""The fewest and the most words of a case, by the start of the length that a slot asks for."""


def cases(request: DraftRequest, rng: Random) -> list[dict[str, Any]]:
    """Return a case for each slot of the request; without slots, one in eight is an edge case."""
    if request.slots:
        return [_slot_case(request, rng, slot) for slot in request.slots]
    edges = _texts("edges")
    drafts = []
    for number in range(request.count or 10):
        edge = edges[(number // _EDGE_EVERY) % len(edges)] if number % _EDGE_EVERY == 0 else None
        drafts.append(_case(request, rng, number, edge))
    return drafts


def _slot_case(request: DraftRequest, rng: Random, slot: dict[str, Any]) -> dict[str, Any]:
    like = _like(request, rng)
    inputs, main = _inputs(request, like)
    topic = " ".join(str(slot.get("topic") or slot.get("tag") or request.topic).split()[:3])
    language, attack = str(slot.get("language", "en")), slot.get("attack")
    phrases = _texts("phrases").get(language[:2], _texts("phrases")["en"])
    sentence = rng.sample(phrases, len(phrases))[0].format(topic=topic)
    parts = [sentence, _detail(rng)]
    if like is not None and language.startswith("en"):
        parts = [str(like.inputs[main]), _detail(rng), sentence]
    if mentioned := slot.get("mentions"):
        parts.append(_texts("mentions").get(str(mentioned), "").format(n=rng.randint(2, 28)))
    if str(slot.get("ambiguity", "")).startswith("ambiguous"):
        parts.append("Or the other one.")
    if attack:
        parts = [_attack(str(attack), sentence, rng)]
    text = _sized(parts, slot, inputs, main, rng)
    edge = str(slot.get("edge", "")).partition(":")[0]
    by_edge = {"empty": "", "long": f"{text} " * 3, "typos": text.lower().replace("e", "")}
    answered = like is not None and not edge and not attack
    return {
        "slot": slot.get("slot"),
        "input": {**inputs, main: by_edge.get(edge, text).strip()},
        "expected": _written(like.expected) if like is not None and answered else None,
        "tags": [str(request.task)],
        "why": f"It tries {str(attack).partition(':')[0]}." if attack else "",
    }


def _detail(rng: Random) -> str:
    return str(rng.choice(_texts("details"))).format(n=rng.randint(2, 97), m=rng.randint(2, 97))


def _attack(attack: str, text: str, rng: Random) -> str:
    attacks = _texts("attacks")
    patterns = attacks.get(attack.partition(":")[0], attacks["other"])
    n, m = rng.randint(2, 9_999), rng.randint(2, 97)
    words = {"n": n, "m": m, "text": text, "detail": _detail(rng), "more": _detail(rng)}
    return str(rng.choice(patterns)).format(**words)


def _sized(
    parts: list[str], slot: dict[str, Any], inputs: dict[str, Any], main: str, rng: Random
) -> str:
    """Return the parts as a text of the length that the slot wants."""
    text = " ".join(parts)
    limits = _WORDS.get(str(slot.get("length", "")).partition(" ")[0])
    if limits is None:
        return text
    fewest, most = limits
    others = sum(len(str(value).split()) for name, value in inputs.items() if name != main)
    while len(text.split()) + others < fewest + 2:
        text = f"{text} {_detail(rng)}"
    return " ".join(text.split()[: max(most - others, 1)])


def _written(expected: Any) -> str:
    """Return an expected answer as the text of a reply."""
    return expected if isinstance(expected, str) else json.dumps(expected, ensure_ascii=False)


def opinions(request: DraftRequest, rng: Random) -> list[dict[str, Any]]:
    """Return an opinion on each case: nine of ten are agreed with."""
    return [
        {
            "case": row.get("case"),
            "own_answer": _written(row.get("expected"))[:200],
            "agrees": rng.random() < _AGREES,
            "reason": "The simulator drew this opinion by lot.",
        }
        for row in request.cases
    ]


def _case(
    request: DraftRequest, rng: Random, number: int, edge: tuple[str, str] | None
) -> dict[str, Any]:
    like = _like(request, rng)
    inputs, main = _inputs(request, like)
    text = str(inputs[main]) if like is not None else f"{request.topic} (question {number + 1})"
    opening, closing = rng.choice(_texts("openings")), rng.choice(_texts("closings"))
    text = f"{opening} {text} {closing}".strip()
    if edge is not None:
        text = edge[1].format(text=text, TEXT=text.upper()).strip()
    return {
        "input": {**inputs, main: text},
        "expected": like.expected if like is not None and edge is None else None,
        "tags": ["edge", edge[0]] if edge is not None else [str(request.task)],
        "difficulty": 4 if edge is not None else rng.randint(1, 3),
    }


def _like(request: DraftRequest, rng: Random) -> KnownCase | None:
    """Return a known case of a task as a pattern, if the main input of the task is requested."""
    names = _INPUT.findall(request.message)
    if request.task is Task.OTHER or (names and request.key not in names):
        return None
    return rng.choice([case for case in known_cases(request.task) if not case.adversarial])


def _inputs(request: DraftRequest, like: KnownCase | None) -> tuple[dict[str, Any], str]:
    """Return the inputs of a new case, and the name of the main one."""
    names = _INPUT.findall(request.message)
    if like is not None:
        return {
            name: like.inputs.get(name, request.topic) for name in names or like.inputs
        }, request.key
    names = [*dict.fromkeys([*_VARIABLE.findall(request.message), *names])] or [request.key]
    return dict.fromkeys(names, request.topic), names[-1]


# Types, enumerations, required keys, and limits of numbers, strings and lists are respected; other
# keywords of a schema are ignored.
_FILLER = "This was made up by the simulator and says nothing about the world. "
_DEEPEST = 12


def schema_of(response_format: Any) -> dict[str, Any]:
    """Return the schema of a response format; empty if it has none."""
    if not isinstance(response_format, dict):
        return {}
    inner = response_format.get("json_schema")
    if response_format.get("type") == "json_schema" and isinstance(inner, dict):
        inner = inner.get("schema")
        return inner if isinstance(inner, dict) else {}
    return {} if response_format.get("type") in ("json_object", "text") else response_format


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
    entries = value if isinstance(value, dict) else {}
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    required = [name for name in schema.get("required", ()) if isinstance(name, str)]
    names = dict.fromkeys([*(name for name in entries if name in properties), *required])
    fitted = {
        name: fit_to_schema(entries.get(name), properties.get(name, {}), rng, depth + 1)
        for name in names
    }
    if schema.get("additionalProperties", True) is not False:
        fitted |= {name: entry for name, entry in entries.items() if name not in fitted}
    return fitted


def _array(value: Any, schema: dict[str, Any], rng: Random, depth: int) -> list[Any]:
    items = value if isinstance(value, list) else [] if value is None else [value]
    least, most = schema.get("minItems"), schema.get("maxItems")
    if isinstance(most, int):
        items = items[:most]
    while isinstance(least, int) and len(items) < min(least, 1_000):
        items = [*items, items[-1] if items else None]
    return [fit_to_schema(item, schema.get("items", {}), rng, depth + 1) for item in items]


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
    last = next((m.content for m in reversed(request.messages) if m.role == "user"), "")
    messages = "\n".join(m.content for m in request.messages)[:MAX_CHARS]
    kind = _kind(schema, messages)
    if kind == "diff":
        return refine(request, options)
    rng = random_stream(draw_key(request), options.seed, "assist")
    wish = _draft_request(last[:MAX_CHARS], messages, _size(schema, kind))
    draft = SETTINGS[kind](wish, rng) if kind in SETTINGS else {kind: DRAFTS[kind](wish, rng)}
    reply = json.dumps(fit_to_schema(draft, schema, rng), ensure_ascii=False)
    return make_completion(request, options, reply, PACE, rng)


def _kind(schema: dict[str, Any], messages: str) -> str:
    keys = schema.get("properties")
    written = _WRITTEN_SCHEMA.search(messages)
    for kind in _KINDS:
        if isinstance(keys, dict) and kind in keys:
            return kind
    for kind in _KINDS:
        if written and f'"{kind}":' in written[0]:
            return kind
    places = {
        kind: sign.start()
        for kind, pattern in _KIND_SIGNS.items()
        if (sign := pattern.search(messages))
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


def _draft_request(message: str, messages: str, size: int | None) -> DraftRequest:
    blocks = parse_blocks(message)
    material = "\n".join(block.text for block in blocks) if blocks else message
    lines = [line.strip() for line in material.splitlines() if len(line.strip()) > 3]
    topic = _topic(lines[-1] if blocks is None and lines else " ".join(lines[:1]))
    stated = _COUNT.search(messages)
    listed = next((block.text for block in blocks or () if block.name == "models"), "")
    prompt = "\n".join(block.text for block in blocks or () if block.name == "prompt")
    return DraftRequest(
        task_of_prompt(prompt or material),
        topic or "answer what is asked",
        messages,
        size or (int(stated[1]) if stated else None),
        choices=tuple(line.partition(": ")[0] for line in listed.splitlines()),
        slots=_rows(blocks or (), "slots"),
        cases=_rows(blocks or (), "cases"),
    )


def _rows(blocks: Iterable[Block], name: str) -> tuple[dict[str, Any], ...]:
    """Return the objects of a block that is a list."""
    value = next((block.value for block in blocks if block.name == name), None)
    return tuple(row for row in value if isinstance(row, dict)) if isinstance(value, list) else ()


def _topic(line: str) -> str:
    """Return the topic of a line: the text after its last colon, without variables."""
    plain = " ".join(_TEMPLATE.sub(" ", line).split())
    end = plain.rpartition(": ")[2]
    topic = end if len(end) >= _SHORTEST_TOPIC else plain
    if len(topic) > _TOPIC_CHARS:  # whole sentences, if one ends early enough
        topic = topic[:_TOPIC_CHARS]
        topic = topic.rpartition(". ")[0] or topic
    return topic.rstrip(" .")
