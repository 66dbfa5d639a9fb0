"""What does the simulated assistant reply?

What is asked for is told by the keys of the answer's schema (`objectives`, `criteria`, `prompts`,
`cases`, or `diff` for a change of a prompt) and else by the words of the message; what it is about
stands in the last user message, in blocks or not. It replies with JSON of that schema.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from edison_ci.providers.sim import drafts
from edison_ci.providers.sim.blocks import blocks_in
from edison_ci.providers.sim.drafts import Wish
from edison_ci.providers.sim.fitting import fitted, schema_of
from edison_ci.providers.sim.knowledge import MAX_CHARS
from edison_ci.providers.sim.options import SimOptions
from edison_ci.providers.sim.pace import Pace
from edison_ci.providers.sim.refiner import task_of_prompt
from edison_ci.providers.sim.refining import refine
from edison_ci.providers.sim.seeds import stream
from edison_ci.providers.sim.speaking import spoken

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from edison_ci.records import Completion, Request

    Draft = Callable[[Wish, Random], list[dict[str, Any]]]

PACE = Pace(350.0, 10.0)
DRAFTS: dict[str, Draft] = {
    "cases": drafts.cases,
    "criteria": drafts.criteria,
    "prompts": drafts.prompts,
    "objectives": drafts.objectives,
}
_ASKED = {
    "cases": re.compile(r"\b(?:test )?(?:cases|rows|questions|dataset)\b", re.I),
    "criteria": re.compile(r"\b(?:rubric|criteria)\b", re.I),
    "diff": re.compile(r"\bdiff\b", re.I),
    "prompts": re.compile(r"\bprompts?\b", re.I),
    "objectives": re.compile(r"\bobjectives?\b", re.I),
}
_COUNT = re.compile(
    r"\b(\d{1,3}) (?:\w+ ){0,2}(?:cases|rows|questions|criteria|prompts|objectives)\b", re.I
)
_TEMPLATE = re.compile(r"\{[{%].{0,200}?[%}]\}")
_TOPIC_CHARS = 300
_SHORTEST_TOPIC = 10


def assist(request: Request, options: SimOptions | None = None) -> Completion:
    """Return a draft, decided by the request's address and the seed."""
    options = options or SimOptions()
    schema = schema_of(request.response_format)
    said = next((m.content for m in reversed(request.messages) if m.role == "user"), "")
    told = "\n".join(m.content for m in request.messages)[:MAX_CHARS]
    kind = _kind(schema, told)
    if kind == "diff":
        return refine(request, options)
    rng = stream(request.address, options.seed, "assist")
    wish = _wish(said[:MAX_CHARS], told, _size(schema, kind))
    draft = fitted({kind: DRAFTS[kind](wish, rng)}, schema, rng)
    return spoken(request, options, json.dumps(draft, ensure_ascii=False), PACE, rng)


def _kind(schema: dict[str, Any], told: str) -> str:
    keys = schema.get("properties")
    for kind in (*DRAFTS, "diff"):
        if isinstance(keys, dict) and kind in keys:
            return kind
    places = {kind: found.start() for kind, sign in _ASKED.items() if (found := sign.search(told))}
    return min(places, key=lambda kind: places[kind], default="objectives")


def _size(schema: dict[str, Any], kind: str) -> int | None:
    """Return how many the schema asks for."""
    keys = schema.get("properties")
    entry = keys.get(kind) if isinstance(keys, dict) else None
    if not isinstance(entry, dict):
        return None
    sizes = (entry.get("minItems"), entry.get("maxItems"))
    return next((size for size in sizes if isinstance(size, int) and size > 0), None)


def _wish(said: str, told: str, size: int | None) -> Wish:
    blocks = blocks_in(said)
    shown = "\n".join(block.text for block in blocks) if blocks else said
    lines = [line.strip() for line in shown.splitlines() if len(line.strip()) > 3]
    topic = _topic(lines[-1] if blocks is None and lines else " ".join(lines[:1]))
    found = _COUNT.search(told)
    count = size or (int(found[1]) if found else None)
    return Wish(task_of_prompt(shown), topic or "answer what is asked", told, count)


def _topic(line: str) -> str:
    """Return what a line is about: what stands after its last colon, without variables."""
    plain = " ".join(_TEMPLATE.sub(" ", line).split())
    said = plain.rpartition(": ")[2]
    return (said if len(said) >= _SHORTEST_TOPIC else plain)[:_TOPIC_CHARS].rstrip(" .")
