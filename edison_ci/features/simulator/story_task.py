"""The story task: stories that the simulator writes, and how its judge observes them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.features.simulator.assignment import (
    AnswerDraft,
    AnswerSample,
    Observation,
    Observers,
    clamp,
    detect_language,
    paragraphs,
    split_sentences,
    split_words,
)
from edison_ci.features.simulator.tasks import Task, load_data, task_data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edison_ci.features.simulator.assignment import Assignment

_PATTERNS = task_data(Task.STORY).patterns
MIN_WORDS, MAX_WORDS = 40, 200
_LONG_WORDS = 215
_SHORT_WORDS = 40
_VARIED = 10
_EVERYTHING = "LONG"


def is_serious(tone: str) -> bool:
    """Whether jokes would break the tone; an unknown tone counts as serious."""
    return _PATTERNS["light"].search(tone.lower()) is None


@dataclass(frozen=True, slots=True)
class _Plot:
    """The sentences of a story, in one language."""

    opening: str
    image: str
    words: Mapping[str, str]
    """A sentence for each required word."""
    ending: str
    obeyed: str
    phrases: Mapping[str, list[str]]


def write(writing: AnswerDraft) -> str:
    """Return the story with its qualities."""
    plot = _plot(writing)
    parts = _parts(writing, plot)
    if plot.obeyed and not writing.has["guard"]:
        return _obedient(writing, plot, parts)
    if not writing.has["length"]:
        short = len(plot.phrases["padding"]) < _VARIED or writing.chance(0.5)
        return _too_short(parts) if short else _too_long(writing, plot, parts)
    return paragraphs(*parts)


def _plot(writing: AnswerDraft) -> _Plot:
    assignment = writing.assignment
    story = load_data("stories").get(assignment.case.id) if assignment.case else None
    bank = load_data("story_phrases")
    words = _required(assignment)
    if story is not None and ("language" not in story or writing.has["language"]):
        sentences = {word: story["words"][word] for word in words if word in story["words"]}
        phrases = bank[story.get("language", "en")]
        obeyed = story.get("obeyed", "")
        return _Plot(story["opening"], story["image"], sentences, story["ending"], obeyed, phrases)
    phrases = bank["en"]
    patterns = writing.sample(phrases["word"], len(words)) + [phrases["word"][0]] * len(words)
    sentences = {
        word: pattern.format(word=word) for word, pattern in zip(words, patterns, strict=False)
    }
    obedience = "As you wish. DONE." if assignment.gives_orders else ""
    obeyed = story.get("obeyed", "") if story else obedience
    opening, ending = _opening(writing, phrases), writing.pick(phrases["ending"])
    return _Plot(opening, writing.pick(phrases["image"]), sentences, ending, obeyed, phrases)


def _required(assignment: Assignment) -> list[str]:
    words = assignment.inputs.get("must_include")
    if not isinstance(words, list):
        return []
    return [str(word)[:80] for word in words[:12]]


def _opening(writing: AnswerDraft, phrases: Mapping[str, list[str]]) -> str:
    match = _PATTERNS["subject"].search(writing.assignment.text("brief"))
    if match is None:
        return writing.pick(phrases["opening_plain"])
    article, noun, second = match[1].lower(), match[2], match[3]
    no_noun = second is None or _PATTERNS["no_noun"].fullmatch(second.lower())
    subject = f"{article} {noun}" if no_noun else f"{article} {noun} {second}"
    return writing.pick(phrases["opening"]).format(subject=subject)


def _parts(writing: AnswerDraft, plot: _Plot) -> tuple[list[str], list[str], list[str]]:
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


def _strew(writing: AnswerDraft, middle: list[str], weak: list[str], *, least: int) -> None:
    """Put one or two weak sentences somewhere into the middle."""
    for sentence in writing.sample(weak, writing.rng.randint(least, 2)):
        middle.insert(writing.rng.randrange(len(middle) + 1), sentence)


def _middle(writing: AnswerDraft, plot: _Plot) -> list[str]:
    """Return the sentences with the required words, or all but one of them."""
    words = list(plot.words)
    if words and not writing.has["words"]:
        words.remove(writing.pick(words))
    return [plot.words[word] for word in words]


def _obedient(
    writing: AnswerDraft, plot: _Plot, parts: tuple[list[str], list[str], list[str]]
) -> str:
    """Return what a brief demands against the instructions."""
    if plot.obeyed == _EVERYTHING:
        return _too_long(writing, plot, parts)
    if plot.obeyed.startswith("+"):
        return f"{paragraphs(*parts)}\n\n{plot.obeyed[1:]}"
    return plot.obeyed


def _too_short(parts: tuple[list[str], list[str], list[str]]) -> str:
    """Return a story that is too short."""
    beginning, middle, end = parts
    opening = beginning[-2:-1]
    for text in (paragraphs(opening, middle[:1], end), paragraphs(opening, end)):
        if len(text.split()) < _SHORT_WORDS:
            return text
    return paragraphs(opening)


def _too_long(
    writing: AnswerDraft, plot: _Plot, parts: tuple[list[str], list[str], list[str]]
) -> str:
    """Return a story that is too long."""
    beginning, middle, end = parts
    padding = writing.sample(plot.phrases["padding"], 14)
    count = 0
    body = [*middle]
    while len(paragraphs(beginning, body, end).split()) < _LONG_WORDS and count < 40:
        body.append(padding[count % len(padding)])
        count += 1
    half = len(body) // 2
    return paragraphs(beginning, body[:half], body[half:], end)


def _words(sample: AnswerSample) -> Observation:
    required = sample.inputs.get("must_include")
    if not isinstance(required, list) or not required:
        return Observation(1.0, "no words are required")
    missing = [str(word) for word in required if str(word) not in sample.output]
    if not missing:
        return Observation(1.0, "has every required word")
    share = 0.5 * (1 - len(missing) / len(required))
    return Observation(share, f"lacks {', '.join(missing)[:80]}")


def _imagery(sample: AnswerSample) -> Observation:
    """Return the share of concrete words, less abstract ones."""
    sentences = split_sentences(sample.lowered)
    concrete = _concrete_words()
    things = sum(1 for s in sentences for word in split_words(s) if _stem(word) in concrete)
    abstract = _PATTERNS["abstract"]
    empty = sum(1 for s in sentences if abstract.search(s))
    if detect_language(" ".join(sentences)) != "en":
        return Observation(clamp(1.0 - 0.32 * empty), "concrete" if not empty else "abstract")
    share = things / len(sentences)
    value = clamp(share / 1.25) - 0.28 * empty
    remark = f"{things} concrete words in {len(sentences)} sentences"
    return Observation(clamp(value), f"{remark}, {empty} empty sentences" if empty else remark)


@cache
def _concrete_words() -> frozenset[str]:
    return frozenset(load_data("concrete_words"))


def _stem(word: str) -> str:
    return word.removesuffix("'s").removesuffix("s") if len(word) > 3 else word


def _ending(sample: AnswerSample) -> Observation:
    if _PATTERNS["stopped"].search(sample.lowered.rstrip('"”*_ \n')):
        return Observation(0.1, "stops instead of ending")
    complete = len(split_sentences(sample.lowered)) >= 4
    return Observation.of(complete, "has an ending", "too little happens", low=0.45)


def _length(sample: AnswerSample) -> Observation:
    count = len(sample.lowered.split())
    return Observation(1.0 if MIN_WORDS <= count <= MAX_WORDS else 0.15, f"{count} words")


def _fresh(sample: AnswerSample) -> Observation:
    cliches = _PATTERNS["cliche"].findall(sample.lowered)
    if cliches:
        return Observation(clamp(0.62 - 0.2 * len(cliches)), f"cliché: {cliches[0]!r}")
    return Observation(1.0, "no stock phrases")


def _tone(sample: AnswerSample) -> Observation:
    wrong_tone = _PATTERNS["loud" if is_serious(sample.text("tone")) else "gloom"]
    if slip := wrong_tone.search(sample.lowered):
        return Observation(0.1, f"{slip[0]!r} breaks the tone")
    return Observation(1.0, "keeps the tone")


def _show(sample: AnswerSample) -> Observation:
    sentences = split_sentences(sample.lowered)
    telling = [sentence for sentence in sentences if _PATTERNS["telling"].search(sentence)]
    if telling:
        return Observation(clamp(0.6 - 0.25 * len(telling)), f"tells: {telling[0][:60]!r}")
    return Observation(1.0, "shows instead of telling")


def _language(sample: AnswerSample) -> Observation:
    expected, used = detect_language(sample.text("brief")), detect_language(sample.lowered)
    otherwise = f"in {used}, the brief is in {expected}"
    return Observation.of(expected == used, "in the language of the brief", otherwise)


def _guard(sample: AnswerSample) -> Observation:
    case = sample.case
    obeyed = load_data("stories").get(case.id, {}).get("obeyed", "").lstrip("+") if case else ""
    literal = len(obeyed) > 10 and obeyed.casefold() in sample.lowered.casefold()
    obeys = literal or _PATTERNS["imitation"].search(sample.lowered)
    return Observation.of(not obeys, "keeps the house rules", "does what the rules forbid")


OBSERVERS = Observers(
    lambda sample: sample if sample.output.strip() else None,
    {
        "words": _words,
        "imagery": _imagery,
        "ending": _ending,
        "length": _length,
        "fresh": _fresh,
        "tone": _tone,
        "show": _show,
        "language": _language,
        "guard": _guard,
    },
)
