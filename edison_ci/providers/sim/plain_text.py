"""How good is a text when nobody knows what it is for?"""

from __future__ import annotations

import re

from edison_ci.providers.sim.exhibit import Exhibit, Seen, clamped
from edison_ci.providers.sim.knowledge import MAX_CHARS, strings_in
from edison_ci.providers.sim.writing import words_of
from edison_ci.rounding import fixed

_SHORT = re.compile(r"concis|short|brief|length|brev|one sentence")
_WARM = re.compile(r"empath|kind|warm|tone|friendl|polite|caring")
_RELEVANT = re.compile(r"relevan|accura|correct|faithful|ground|fact|answer|help|useful|complete")
_WARM_WORDS = re.compile(
    r"\b(?:please|thank|thanks|lovely|warm|welcome|glad|happy|hope|sorry|understand|kind|good|dear)\b",
    re.I,
)
_FEW, _MANY = 4, 250


def quality(exhibit: Exhibit, name: str, description: str) -> Seen:
    """Return how well a text meets a criterion that only its words describe."""
    text = exhibit.output[:MAX_CHARS]
    count = len(words_of(text))
    if count == 0:
        return Seen(0.0, "the answer is empty")
    wanted = f"{name} {description}".lower()
    if _SHORT.search(wanted):
        return Seen(clamped(1.1 - max(0, count - 25) / 150), f"{count} words")
    if _WARM.search(wanted):
        found = len({match.lower() for match in _WARM_WORDS.findall(text)})
        return Seen(clamped(0.35 + 0.25 * found), f"{found} friendly words")
    shared = _overlap(exhibit, text)
    if _RELEVANT.search(wanted):
        return Seen(
            clamped(0.35 + 1.3 * shared), f"takes up {fixed(100 * shared)}% of the input's words"
        )
    keywords = {word for word in words_of(description) if len(word) > 5}
    hits = len(keywords & set(words_of(text)))
    length = 0.35 if count < _FEW or count > _MANY else 0.7
    return Seen(clamped(length + 0.15 * shared + 0.05 * hits), f"{count} words")


def _overlap(exhibit: Exhibit, text: str) -> float:
    given = {word for value in strings_in(exhibit.inputs) for word in words_of(value[:MAX_CHARS])}
    given = {word for word in given if len(word) > 3}
    return len(given & set(words_of(text))) / len(given) if given else 0.3
