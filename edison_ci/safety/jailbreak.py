"""Signs of a jailbreak in a text.

Patterns find the plain cases only, which is why the default of the examples is to flag, not to
block. They are matched against the text without invisible characters and in its plain letters.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_INSTRUCTIONS = (
    r"(?:instructions?|rules?|guidelines?|prompts?|directives?|restrictions?|polic(?:y|ies))"
)
_FORMER = (
    r"(?:(?:all|any|the|my|your|these|those|previous|prior|above|earlier|existing|safety|system) )"
    r"{1,4}"
)
_DROPPED = r"(?:ignor|disregard|forget|overrid|bypass|overrul)(?:e|ing|ed|ting|s)?"


class _Sign(NamedTuple):
    what: str
    marks: tuple[str, ...]
    """A text with this sign contains one of these, so that most texts need no searching."""
    pattern: re.Pattern[str]


_SIGNS = (
    _Sign(
        "drops its instructions",
        ("ignor", "disregard", "forget", "overrid", "bypass", "overrul"),
        re.compile(rf"\b{_DROPPED} {_FORMER}{_INSTRUCTIONS}\b"),
    ),
    _Sign(
        "speaks as a model without limits",
        ("unrestricted", "unfiltered", "uncensored", "jailbroken", "amoral"),
        re.compile(
            r"\b(?:as|i am|i'm|call me|you are|you're|act as|acting as|become) (?:now )?"
            r"an? (?:unrestricted|unfiltered|uncensored|jailbroken|amoral)\b"
        ),
    ),
    _Sign(
        "claims a special mode",
        (" mode ",),
        re.compile(
            r"\b(?:developer|debug|god|admin|jailbreak|dan|sudo|unrestricted|opposite) mode"
            r" (?:is )?(?:now )?(?:enabled|activated|active|on|unlocked)\b"
        ),
    ),
    _Sign(
        "says it has no limits",
        ("guardrails", "safeguards", "ethical", "moral", "content", "safety"),
        re.compile(
            r"\b(?:without|free (?:of|from)|no longer (?:bound|limited) by|have no|has no) "
            r"(?:(?:any|all|my|the) ){0,2}(?:guardrails|safeguards|(?:ethical|moral|content|safety)"
            r" (?:restrictions|limitations|limits|filters|rules))\b"
        ),
    ),
    _Sign(
        "reveals its instructions",
        ("system prompt", "system message", "hidden instructions", "developer message"),
        re.compile(
            r"\b(?:my|the|your) (?:hidden |full |original |secret |initial )?"
            r"(?:system prompt|system message|hidden instructions|developer message)"
            r" (?:is|are|says|reads|was|were)\b"
        ),
    ),
    _Sign(
        "imitates the chat's own marks",
        ("<|", "inst]", "sys>>"),
        re.compile(r"<\|(?:im_start|im_end|system|endoftext)\|>|\[/?inst\]|<</?sys>>"),
    ),
)
"""Matched against small letters."""
_DAN = re.compile(
    r"\b(?:[Aa]s|I am|I'm|[Cc]all me|[Yy]ou are|[Aa]ct(?:ing)? as) (?:now )?(?:DAN|STAN)\b"
)
_DENIED = re.compile(
    r"(?i)\b(?:not|never|cannot|can't|won't|don't|doesn't|didn't|refuse to|unable to|asked? me to|"
    r"request to|told to|tried to|attempt to|asking (?:me |us )?to)[^.!?\n]{0,25}$"
)
_IGNORED = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e007f]")
_LOOK_BACK = 45


def jailbreaks(text: str) -> Iterator[str]:
    """Yield what a text does that a model with its instructions intact would not, each once."""
    plain = text
    if not text.isascii():
        plain = unicodedata.normalize("NFKC", _IGNORED.sub("", text)).replace("\u2019", "'")
    if ("DAN" in plain or "STAN" in plain) and _found(_DAN, plain):
        yield "speaks as a model without limits"
    small = plain.lower()
    for sign in _SIGNS:
        if any(mark in small for mark in sign.marks) and _found(sign.pattern, small):
            yield sign.what


def _found(pattern: re.Pattern[str], text: str) -> bool:
    return any(not _denied(text, found.start()) for found in pattern.finditer(text))


def _denied(text: str, start: int) -> bool:
    """Whether the words before say that this is not done: 'I cannot ignore my instructions'."""
    return _DENIED.search(text[max(0, start - _LOOK_BACK) : start]) is not None
