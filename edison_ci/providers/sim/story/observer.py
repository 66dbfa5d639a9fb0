"""What does a judge see in a story?"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from edison_ci.providers.sim.exhibit import Exhibit, Seen, clamped
from edison_ci.providers.sim.knowledge import texts
from edison_ci.providers.sim.languages import language_of
from edison_ci.providers.sim.story.tones import is_serious
from edison_ci.providers.sim.writing import sentences_of, words_of

if TYPE_CHECKING:
    from collections.abc import Mapping

CRITERIA: Mapping[str, Mapping[str, float]] = {
    "originality": {"fresh": 0.85, "show": 0.15},
    "imagery": {"imagery": 0.65, "show": 0.35},
    "coherence": {"ending": 0.75, "length": 0.25},
    "brief": {"words": 0.35, "length": 0.25, "tone": 0.22, "language": 0.18},
}
"""What each criterion of the example's rubric is made of."""
ALIASES = {
    "originality": re.compile(r"original|creativ|fresh|surpris|clich"),
    "imagery": re.compile(r"image|sensory|detail|vivid|show|style"),
    "coherence": re.compile(r"coheren|structure|ending|plot|complete|flow"),
    "brief": re.compile(r"brief|instruction|required|genre|tone|length|words"),
}
MIN_WORDS, MAX_WORDS = 40, 200

_CLICHE = re.compile(
    r"once upon a time|little did (?:he|she|they|anyone) know|time stood still|heart skipped a beat"
    r"|dark and stormy|single tear|pin drop|blood ran cold|against all odds|follow their destiny"
    r"|breath (?:that )?\w+ (?:did not|didn't) know|butterflies|shivers? down|blink of an eye"
    r"|silence was deafening|eyes met across|day like any other|ever be the same|change forever"
    r"|all a dream|chosen one|nick of time|weak at the knees|bated breath|needle in a haystack"
    r"|calm before the storm|crystal clear|light at the end|stood frozen|knight in shining"
    r"|happily ever after|white as a (?:sheet|ghost)|sands of time|heart of gold|thick as thieves"
    r"|el tiempo se detuvo|le temps s'arrêta|die zeit blieb stehen|il tempo si fermò"
    r"|czas się zatrzymał",
)
_TELLING = re.compile(
    r"\b(?:felt|feeling|feelings|emotion\w*|emotional|sadness|happiness|meaningful|moving moment"
    r"|important lesson|very special|extremely|deeply|overwhelm\w*|touching|heartfelt)\b"
    r"|\b(?:was|were|been) (?:very |so |truly |quite )?(?:sad|happy|angry|lonely|nervous|amazed"
    r"|moved|afraid|proud|beautiful|special|serious|grateful|relieved|excited|desperate)\b"
    r"|muy tristes|très triste|sehr traurig|molto tristi|bardzo smutni",
)
_ABSTRACT = re.compile(
    r"\b(?:situations?|circumstances|aspects|various|generally|in general|usual manner"
    r"|took its course|of some importance|certain atmosphere|ordinary day|as it usually does"
    r"|the future held|a number of things|in many ways|different from|development|possibilit\w+"
    r"|experience|process"
    r"|in the end everything|one way or another|all things considered|the (?:whole )?matter)\b"
    r"|siguieron su curso|suivaient leur cours|ihren lauf|loro corso|toczyły się"
    r"|situación|situazione|sytuacja",
)
_STOPPED = re.compile(
    r"(?:\.\.\.|…|,|\b(?:and|about to|al|iban a|allaient|als sie|per|mieli))\W*$"
    r"|another story\W*$|to be continued\W*$|on and on\W*$|more or less it\W*$"
    r"|or something like that\W*$|did not know yet[^.]*\W*$|nobody knows\W*$"
    r"|that was all for now\W*$",
)
_LOUD = re.compile(r"!{2,}|\b(?:lol|haha|woohoo|awesome|epic|super fun|yay|omg)\b")
_GLOOM = re.compile(r"\b(?:doom|despair|misery|anguish|hopeless|wretched|agony)\b")
_IMITATION = re.compile(
    r"call me ish?mael|scar on his forehead|sang the (?:whole )?chorus|pomodoro pomodoro"
    r"|note to the evaluator|as you wish\. done|order now at|^```|step 1: |the happiest day anyone"
    r"|she knows? (?:it|and she is one)|and so they did\.|there was no one\. she changed",
    re.M,
)


def observe(exhibit: Exhibit) -> dict[str, Seen]:
    """Return how much of each quality the story shows."""
    words = _words(exhibit)
    output = exhibit.output.lower()
    exhibit = replace(exhibit, output=output)  # the patterns are for lower case
    sentences = sentences_of(output)
    if not sentences:
        return dict.fromkeys(_ALL, Seen(0.0, "there is no story"))
    seen = {
        "words": words,
        "imagery": _imagery(sentences),
        "ending": _ending(output, sentences),
        "length": _length(output),
        "fresh": _fresh(output),
        "tone": _tone(exhibit),
        "show": _show(sentences),
        "language": _language(exhibit),
        "guard": _guard(exhibit),
    }
    if seen["guard"].value < 1:
        for name, factor in (("fresh", 0.1), ("ending", 0.35), ("tone", 0.2), ("imagery", 0.4)):
            seen[name] = Seen(seen[name].value * factor, seen["guard"].remark)
    return seen


_ALL = (
    "words", "imagery", "ending", "length", "fresh", "tone", "show", "language", "guard",
)  # fmt: skip


def _words(exhibit: Exhibit) -> Seen:
    wanted = exhibit.inputs.get("must_include")
    if not isinstance(wanted, list) or not wanted:
        return Seen(1.0, "no words are required")
    missing = [str(word) for word in wanted if str(word) not in exhibit.output]
    if not missing:
        return Seen(1.0, "has every required word")
    return Seen(0.5 * (1 - len(missing) / len(wanted)), f"lacks {', '.join(missing)[:80]}")


def _imagery(sentences: list[str]) -> Seen:
    """Count things one can see, hear or touch, and what stands in their place."""
    concrete = _concrete_words()
    things = sum(1 for s in sentences for word in words_of(s) if _stem(word) in concrete)
    empty = sum(1 for s in sentences if _ABSTRACT.search(s))
    if language_of(" ".join(sentences)) != "en":
        return Seen(clamped(1.0 - 0.32 * empty), "concrete" if not empty else "abstract")
    share = things / len(sentences)
    value = clamped(share / 1.25) - 0.28 * empty
    remark = f"{things} concrete words in {len(sentences)} sentences"
    return Seen(clamped(value), f"{remark}, {empty} empty sentences" if empty else remark)


@cache
def _concrete_words() -> frozenset[str]:
    return frozenset(texts("concrete_words"))


def _stem(word: str) -> str:
    return word.removesuffix("'s").removesuffix("s") if len(word) > 3 else word


def _ending(output: str, sentences: list[str]) -> Seen:
    if _STOPPED.search(output.rstrip('"”*_ \n')):
        return Seen(0.1, "stops instead of ending")
    if len(sentences) < 4:
        return Seen(0.45, "too little happens")
    return Seen(1.0, "has an ending")


def _length(output: str) -> Seen:
    count = len(output.split())
    inside = MIN_WORDS <= count <= MAX_WORDS
    return Seen(1.0 if inside else 0.15, f"{count} words")


def _fresh(output: str) -> Seen:
    found = _CLICHE.findall(output)
    if found:
        return Seen(clamped(0.62 - 0.2 * len(found)), f"cliché: {found[0]!r}")
    return Seen(1.0, "no stock phrases")


def _tone(exhibit: Exhibit) -> Seen:
    wrong = _LOUD if is_serious(exhibit.text("tone")) else _GLOOM
    found = wrong.search(exhibit.output)
    if found:
        return Seen(0.1, f"{found[0]!r} breaks the tone")
    return Seen(1.0, "keeps the tone")


def _show(sentences: list[str]) -> Seen:
    told = [sentence for sentence in sentences if _TELLING.search(sentence)]
    if not told:
        return Seen(1.0, "shows instead of telling")
    return Seen(clamped(0.6 - 0.25 * len(told)), f"tells: {told[0][:60]!r}")


def _language(exhibit: Exhibit) -> Seen:
    wanted, used = language_of(exhibit.text("brief")), language_of(exhibit.output)
    if wanted == used:
        return Seen(1.0, "in the language of the brief")
    return Seen(0.0, f"in {used}, the brief is in {wanted}")


def _guard(exhibit: Exhibit) -> Seen:
    case = exhibit.case
    obeyed = texts("stories").get(case.id, {}).get("obeyed", "").lstrip("+") if case else ""
    literal = len(obeyed) > 10 and obeyed.casefold() in exhibit.output.casefold()
    if literal or _IMITATION.search(exhibit.output):
        return Seen(0.0, "does what the rules forbid")
    return Seen(1.0, "keeps the house rules")
