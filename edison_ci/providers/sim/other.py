"""What does the simulator answer to a task it was not made for?"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edison_ci.providers.sim.writing import Writing

_NAME = re.compile(r"(?<=[a-z,] )[A-Z][\w'-]+")
_SALIENT = re.compile(r"\"([^\"\n]{2,60})\"|\b(\d[\d.,:%-]*\d|\d)\b|(?<=[a-z,:] )([A-Z][\w'-]+)")
_GREETING = re.compile(r"\b(?:hello|greet|welcome|good morning)\b", re.I)
_CHOICE = re.compile(r"\b(yes or no|true or false|positive or negative)\b", re.I)
_JSON = re.compile(r"\bjson\b", re.I)
_READ_CHARS = 4_000
_HELLO = (
    "Hello {name}, lovely to have you here today.",
    "Hello {name}, a warm welcome to you.",
    "Hello {name}, I hope your day has started well.",
    "Hello {name}, how good to see you.",
)
_ANSWERS = (
    "In short, {topic} comes down to one thing, and the rest follows from it.",
    "The point about {topic} is simple once it is put plainly.",
    "As for {topic}, the plain answer is the best one here.",
    "What matters for {topic} can be said in a sentence or two.",
)


def write(writing: Writing) -> str:
    """Return a short answer that takes up what the message is about."""
    said = writing.assignment.said[:_READ_CHARS]
    if choice := _CHOICE.search(said):
        return writing.pick(choice[1].lower().split(" or ")).capitalize()
    if _GREETING.search(said):
        names = _NAME.findall(said)
        return writing.pick(_HELLO).format(name=names[0] if names else "and welcome")
    salient = list(dict.fromkeys("".join(found) for found in _SALIENT.findall(said)))[:4]
    topic = ", ".join(salient) if salient else _last_words(said)
    answer = writing.pick(_ANSWERS).format(topic=topic or "this")
    return json.dumps({"answer": answer}, ensure_ascii=False) if _JSON.search(said) else answer


def _last_words(said: str) -> str:
    words = re.findall(r"[^\W\d_][\w'-]*", said)
    return " ".join(words[-3:])
