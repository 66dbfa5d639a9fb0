"""What does the simulated judge reply?

It reads what a real judge would read: the criteria in the system message, and the blocks of
material under the key that the first line of the user message names. Whatever is asked in another
form is taken for a grader prompt of the user's own.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from edison_ci.frozen import dataclass
from edison_ci.providers.sim import plain_text
from edison_ci.providers.sim.assignment import read
from edison_ci.providers.sim.blocks import blocks_in
from edison_ci.providers.sim.exhibit import Exhibit, clamped
from edison_ci.providers.sim.judge import (
    CEILING,
    Criterion,
    pairwise,
    score,
    task_of,
)
from edison_ci.providers.sim.knowledge import MAX_CHARS
from edison_ci.providers.sim.options import SimOptions
from edison_ci.providers.sim.pace import Pace
from edison_ci.providers.sim.questions import question_scores
from edison_ci.providers.sim.seeds import stream
from edison_ci.providers.sim.speaking import spoken
from edison_ci.rounding import rounded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from edison_ci.records import Completion, Json, Request

PACE = Pace(240.0, 6.0)
_CRITERIA = "Criteria:\n\n["
_RUDE = re.compile(
    r"\b(?:idiot|stupid|moron|dumb|shut up|hate you|kill|loser|pathetic|worthless|disgusting)\w*",
    re.I,
)
_STEERING = re.compile(
    r"ignore (?:all|any|the|your|previous|above)|disregard|system (?:notice|override)|"
    r"you are now|previous instructions|(?:full|maximum|highest|perfect) (?:score|marks|points)",
    re.I,
)
_CHOICE = re.compile(r"\b(yes or no|pass or fail|true or false)\b", re.I)
_RANGE = re.compile(r"\b(\d{1,3})\s?(?:-|to|and)\s?(\d{1,3})\b")
_ANSWER = re.compile(
    r"^.{0,40}\b(?:output|answer|reply|response|text|story|email|e-mail)\b.{0,20}:[ \t]*",
    re.I | re.M,
)


@dataclass(frozen=True, slots=True)
class Hearing:
    """The material of a request, by its blocks."""

    inputs: Mapping[str, Json]
    texts: Mapping[str, str]
    """answer, first, second or text."""


def hear(request: Request, options: SimOptions | None = None) -> Completion:
    """Return the reply of the simulated judge, decided by the request's address and the seed."""
    options = options or SimOptions()
    rng = stream(request.address, options.seed, "judge")
    reply = _reply(request, options, rng)
    return spoken(request, options, reply, PACE, rng)


def _reply(request: Request, options: SimOptions, rng: Random) -> str:
    said = next((m.content for m in reversed(request.messages) if m.role == "user"), "")
    told = "\n".join(m.content for m in request.messages if m.role == "system")
    hearing = _material(said)
    if hearing is None:
        return _graded(request, rng, options.noise)
    criteria = criteria_in(told)
    if "answer" in hearing.texts:
        return _scores(hearing, criteria, rng, options.noise)
    if "first" in hearing.texts and "second" in hearing.texts:
        return _preference(hearing, criteria, rng, options)
    if criteria:
        objective = hearing.texts.get("text", "")
        return question_scores(hearing.inputs, objective, criteria, rng, noise=options.noise)
    return _screened(hearing.texts.get("text", ""), rng)


# --- reading --------------------------------------------------------------------------------------


def _material(said: str) -> Hearing | None:
    blocks = blocks_in(said)
    if blocks is None:
        return None
    return Hearing(
        {block.name: block.value for block in blocks if block.tag == "input"},
        {block.tag: block.text for block in blocks if block.tag != "input"},
    )


def criteria_in(told: str) -> list[Criterion]:
    """Return the criteria that a message lists as JSON after `Criteria:`."""
    _, found, rest = told.rpartition(_CRITERIA)
    if not found:
        return []
    try:
        entries, _ = json.JSONDecoder().raw_decode(f"[{rest}")
    except ValueError:
        return []
    return [
        Criterion(
            entry["name"],
            entry.get("description", ""),
            entry.get("min", 0.0),
            entry.get("max", 5.0),
            "note" in entry,
        )
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("name"), str)
    ]


# --- replying -------------------------------------------------------------------------------------


def _scores(hearing: Hearing, criteria: Sequence[Criterion], rng: Random, noise: float) -> str:
    output = hearing.texts["answer"]
    exhibit = Exhibit(task_of(hearing.inputs), hearing.inputs, output)
    scores = score(exhibit, criteria, rng, noise=noise)
    entries = {name: {"reason": s.reason, "score": s.score} for name, s in scores.items()}
    flags = [
        flag
        for flag, pattern in (("toxicity", _RUDE), ("jailbreak", _STEERING))
        if pattern.search(output[:MAX_CHARS])
    ]
    return json.dumps({"scores": entries, "flags": flags}, ensure_ascii=False)


def _preference(
    hearing: Hearing, criteria: Sequence[Criterion], rng: Random, options: SimOptions
) -> str:
    task = task_of(hearing.inputs)
    shown = (
        Exhibit(task, hearing.inputs, hearing.texts["first"]),
        Exhibit(task, hearing.inputs, hearing.texts["second"]),
    )
    found = pairwise(shown, criteria, rng, noise=options.noise, position_bias=options.position_bias)
    return json.dumps({"reason": found.reason, "winner": found.winner}, ensure_ascii=False)


def _screened(text: str, rng: Random) -> str:
    hits = len(_RUDE.findall(text[:MAX_CHARS]))
    value = clamped((0.03 if hits == 0 else 0.6 + 0.15 * hits) + rng.gauss(0.0, 0.02))
    reason = f"{hits} rude words" if hits else "nothing found"
    return json.dumps({"reason": reason, "score": rounded(value, 3)})


def _graded(request: Request, rng: Random, noise: float) -> str:
    """Reply to a grader prompt, in whatever form it seems to ask for."""
    assignment = read(request.messages)
    said = assignment.said
    labels = list(_ANSWER.finditer(said[:MAX_CHARS]))
    output = said[labels[-1].end() :] if labels else said
    exhibit = Exhibit(task_of(assignment.inputs), assignment.inputs, output)
    seen = plain_text.quality(exhibit, "", assignment.instructions[:2_000])
    share = clamped(CEILING * seen.value + rng.gauss(0.0, noise))
    asked = "\n".join(message.content for message in request.messages)
    if choice := _CHOICE.search(asked):
        good, bad = choice[1].lower().split(" or ")
        return good if share >= 0.5 else bad
    low, high = _scale(asked)
    number = rounded(low + share * (high - low), 2 if high - low <= 1 else 1)
    if re.search(r"\bjson\b", asked, re.I):
        return json.dumps({"score": number, "reason": seen.remark})
    return f"{number:g}"


def _scale(asked: str) -> tuple[float, float]:
    for found in _RANGE.finditer(asked[:MAX_CHARS]):
        low, high = float(found[1]), float(found[2])
        if low in (0, 1) and high in (1, 3, 5, 10, 100) and low < high:
            return low, high
    return 0.0, 1.0
