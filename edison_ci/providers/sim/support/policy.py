"""What does a shop policy say, put to the customer, and which of it is a hard fact?"""

from __future__ import annotations

import re
from functools import lru_cache

from edison_ci.providers.sim.writing import sentences_of

_TURNS = (
    (re.compile(r"\b(?:the|a) customer needs\b", re.I), "you need"),
    (re.compile(r"\b(?:the|a) customer (?=\w+s\b)", re.I), "you "),
    (re.compile(r"\b(?:the|a) customer\b", re.I), "you"),
    (re.compile(r"\bcustomers\b", re.I), "you"),
    (re.compile(r"\bsupport (?=cannot|may|can)", re.I), "we "),
    (re.compile(r"\bsupport opens\b", re.I), "we open"),
    (re.compile(r"\bsupport\b", re.I), "our team"),
    (re.compile(r"\byou (gets|sends|needs|chooses|prefers|does)\b"), ""),
)
_CONCRETE = re.compile(
    r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|\b[\w-]+(?:\.[\w-]+)*\.(?:example|com|org|net|shop)(?:/[\w-]+)*"
    r"|[€$£]\s?\d[\d.,]*"
    r"|\b\d[\d,.:]*\s?%?(?: to \d+)?(?: (?:working |business )?(?:days?|hours?|minutes?|months?"
    r"|years?|weeks?|mm|kg|V)\b)?"
    r"|\b[A-Z][a-z]+ > [A-Z][a-z]+"
    r"|(?<=[a-z,] )[A-Z][a-z]+(?: [A-Z][a-z]+)*"
)
_READ_CHARS = 4_000


@lru_cache(maxsize=1_024)
def facts_in(policy: str) -> tuple[str, ...]:
    """Return the concrete facts of a policy: numbers, dates, amounts, addresses, names."""
    found = (match[0].strip(" .,:") for match in _CONCRETE.finditer(policy[:_READ_CHARS]))
    return tuple(dict.fromkeys(fact for fact in found if len(fact) > 1))


def as_told(policy: str) -> str:
    """Return the sentence of a policy with most facts, turned to the customer."""
    sentences = sentences_of(policy[:_READ_CHARS])
    if not sentences:
        return ""
    best = max(sentences, key=lambda sentence: len(facts_in(sentence)))
    return _to_you(best)


def _to_you(sentence: str) -> str:
    for pattern, words in _TURNS[:-1]:
        sentence = pattern.sub(words, sentence)
    sentence = _TURNS[-1][0].sub(lambda found: f"you {_plain(found[1])}", sentence)
    return sentence[:1].upper() + sentence[1:]


def _plain(verb: str) -> str:
    return "do" if verb == "does" else verb.removesuffix("s")
