"""What story does the simulator write?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edison_ci.frozen import dataclass
from edison_ci.providers.sim.knowledge import texts
from edison_ci.providers.sim.story.tones import is_serious
from edison_ci.providers.sim.writing import Writing, paragraphs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.providers.sim.assignment import Assignment

_SUBJECT = re.compile(r"\b(an?|the|two|one) ([a-z][a-z'-]{2,})(?: ([a-z][a-z'-]{2,}))?", re.I)
_NO_NOUN = re.compile(r".*(?:s|ed|ing)|who|that|which|has|and|for|with|from|into|when|where")
_LONG_WORDS = 215
_SHORT_WORDS = 40
_VARIED = 10
_EVERYTHING = "LONG"


@dataclass(frozen=True, slots=True)
class _Plot:
    """The sentences a story is made of, in one language."""

    opening: str
    image: str
    words: Mapping[str, str]
    """A sentence for each required word."""
    ending: str
    obeyed: str
    phrases: Mapping[str, list[str]]


def write(writing: Writing) -> str:
    """Return the story, with the qualities it is to have."""
    plot = _plot(writing)
    parts = _parts(writing, plot)
    if plot.obeyed and not writing.has["guard"]:
        return _obedient(writing, plot, parts)
    if not writing.has["length"]:
        short = len(plot.phrases["padding"]) < _VARIED or writing.chance(0.5)
        return _too_short(parts) if short else _too_long(writing, plot, parts)
    return paragraphs(*parts)


def _plot(writing: Writing) -> _Plot:
    assignment = writing.assignment
    known = texts("stories").get(assignment.case.id) if assignment.case else None
    bank = texts("story_phrases")
    words = _required(assignment)
    if known is not None and ("language" not in known or writing.has["language"]):
        shown = {word: known["words"][word] for word in words if word in known["words"]}
        phrases = bank[known.get("language", "en")]
        obeyed = known.get("obeyed", "")
        return _Plot(known["opening"], known["image"], shown, known["ending"], obeyed, phrases)
    phrases = bank["en"]
    patterns = writing.some(phrases["word"], len(words)) + [phrases["word"][0]] * len(words)
    sentences = {
        word: pattern.format(word=word) for word, pattern in zip(words, patterns, strict=False)
    }
    obeyed = known.get("obeyed", "") if known else _obedience(assignment)
    opening, ending = _opening(writing, phrases), writing.pick(phrases["ending"])
    return _Plot(opening, writing.pick(phrases["image"]), sentences, ending, obeyed, phrases)


def _required(assignment: Assignment) -> list[str]:
    words = assignment.inputs.get("must_include")
    if not isinstance(words, list):
        return []
    return [str(word)[:80] for word in words[:12]]


def _opening(writing: Writing, phrases: Mapping[str, list[str]]) -> str:
    found = _SUBJECT.search(writing.assignment.text("brief"))
    if found is None:
        return writing.pick(phrases["opening_plain"])
    second = "" if found[3] is None or _NO_NOUN.fullmatch(found[3].lower()) else f" {found[3]}"
    subject = f"{found[1].lower()} {found[2]}{second}"
    return writing.pick(phrases["opening"]).format(subject=subject)


def _obedience(assignment: Assignment) -> str:
    return "As you wish. DONE." if assignment.gives_orders else ""


def _parts(writing: Writing, plot: _Plot) -> tuple[list[str], list[str], list[str]]:
    """Return beginning, middle and end."""
    has, phrases = writing.has, plot.phrases
    beginning = [plot.opening, plot.image if has["imagery"] else ""]
    middle = _middle(writing, plot)
    for quality, kind in (("imagery", "abstract"), ("show", "telling"), ("fresh", "cliche")):
        if not has[quality]:
            _strew(writing, middle, phrases[kind], least=2 if kind == "abstract" else 1)
    if not has["tone"] and "loud" in phrases:
        wrong = "loud" if is_serious(writing.assignment.text("tone")) else "gloom"
        middle.append(writing.pick(phrases[wrong]))
    if not has["fresh"] and "cliche_opening" in phrases and writing.chance(0.25):
        beginning.insert(0, writing.pick(phrases["cliche_opening"]))
    end = [plot.ending if has["ending"] else writing.pick(phrases["stop"])]
    return beginning, middle, end


def _strew(writing: Writing, middle: list[str], weak: list[str], *, least: int) -> None:
    """Put one or two weak sentences somewhere into the middle."""
    for sentence in writing.some(weak, writing.rng.randint(least, 2)):
        middle.insert(writing.rng.randrange(len(middle) + 1), sentence)


def _middle(writing: Writing, plot: _Plot) -> list[str]:
    """Return the sentences with the required words, or all but one of them."""
    words = list(plot.words)
    if words and not writing.has["words"]:
        words.remove(writing.pick(words))
    return [plot.words[word] for word in words]


def _obedient(writing: Writing, plot: _Plot, parts: tuple[list[str], list[str], list[str]]) -> str:
    """Return what a brief asks for that it should not get."""
    if plot.obeyed == _EVERYTHING:
        return _too_long(writing, plot, parts)
    if plot.obeyed.startswith("+"):
        return f"{paragraphs(*parts)}\n\n{plot.obeyed[1:]}"
    return plot.obeyed


def _too_short(parts: tuple[list[str], list[str], list[str]]) -> str:
    """Return a story that is over before it has begun."""
    beginning, middle, end = parts
    opening = beginning[-2:-1]
    for text in (paragraphs(opening, middle[:1], end), paragraphs(opening, end)):
        if len(text.split()) < _SHORT_WORDS:
            return text
    return paragraphs(opening)


def _too_long(writing: Writing, plot: _Plot, parts: tuple[list[str], list[str], list[str]]) -> str:
    """Return a story that does not know when to stop."""
    beginning, middle, end = parts
    padding = writing.some(plot.phrases["padding"], 14)
    count = 0
    body = [*middle]
    while len(paragraphs(beginning, body, end).split()) < _LONG_WORDS and count < 40:
        body.append(padding[count % len(padding)])
        count += 1
    half = len(body) // 2
    return paragraphs(beginning, body[:half], body[half:], end)
