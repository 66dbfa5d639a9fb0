"""Screens: what to do about a text with personal data, secrets or signs of a jailbreak."""

from __future__ import annotations

import itertools
import re
import unicodedata
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from edison_ci._dataclass import dataclass
from edison_ci.documents.secrets import secrets_in

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Finding", "ScreenResult", "screen"]

Action = Literal["block", "flag", "off"]
Status = Literal["block", "flag", "ok"]

MOST = 20
"""The most findings of a kind that are reported."""


class ScreenActions(Protocol):
    """The action of an experiment for each kind of finding."""

    @property
    def pii(self) -> Action:
        """Personal data."""

    @property
    def jailbreak(self) -> Action:
        """Signs of a jailbreak."""

    @property
    def secrets(self) -> Action:
        """Keys and tokens."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a screen; of personal data it has the kind only."""

    kind: str
    """pii, jailbreak or secrets."""
    what: str
    action: Action


@dataclass(frozen=True, slots=True)
class ScreenResult:
    """The findings of all screens in a text."""

    status: Status
    findings: tuple[Finding, ...] = ()

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of the findings, for `safety.KIND`."""
        return frozenset(finding.kind for finding in self.findings)

    @property
    def reason(self) -> str:
        """The findings in words, without duplicates."""
        texts = dict.fromkeys(f"{finding.kind}: {finding.what}" for finding in self.findings)
        return "; ".join(texts)


def screen(text: str, actions: ScreenActions, *, redacted: bool = False) -> ScreenResult:
    """Return the findings of the enabled screens, and the strictest of their actions.

    In a redacted text, replacements such as `[E-MAIL]` count as personal data.
    """
    findings = tuple(
        Finding(kind, what, action)
        for kind, finder, action in (
            ("pii", _redacted_pii if redacted else _pii, actions.pii),
            ("jailbreak", find_jailbreaks, actions.jailbreak),
            ("secrets", _secrets, actions.secrets),
        )
        if action != "off"
        for what in itertools.islice(finder(text), MOST)
    )
    done = {finding.action for finding in findings}
    return ScreenResult("block" if "block" in done else "flag" if done else "ok", findings)


# Patterns are compiled with the first text that needs them, as most runs have no screen.


def _pii(text: str) -> Iterator[str]:
    from edison_ci.safety.pii import find_personal_data

    return (found.what for found in find_personal_data(text))


def _redacted_pii(text: str) -> Iterator[str]:
    from edison_ci.safety.pii import redaction_marks

    return itertools.chain(redaction_marks(text), _pii(text))


def _secrets(text: str) -> Iterator[str]:
    return (fault.message.removeprefix("this looks like ") for fault in secrets_in(text))


# Patterns find the plain cases only, so the examples flag them and do not block. They are matched
# against the text without invisible characters, in NFKC.
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
    """A text with this sign contains one of these strings; the pattern is tried only then."""
    pattern: str


_SIGNS = (
    _Sign(
        "drops its instructions",
        ("ignor", "disregard", "forget", "overrid", "bypass", "overrul"),
        rf"\b{_DROPPED} {_FORMER}{_INSTRUCTIONS}\b",
    ),
    _Sign(
        "speaks as a model without limits",
        ("unrestricted", "unfiltered", "uncensored", "jailbroken", "amoral"),
        (
            r"\b(?:as|i am|i'm|call me|you are|you're|act as|acting as|become) (?:now )?"
            r"an? (?:unrestricted|unfiltered|uncensored|jailbroken|amoral)\b"
        ),
    ),
    _Sign(
        "claims a special mode",
        (" mode ",),
        (
            r"\b(?:developer|debug|god|admin|jailbreak|dan|sudo|unrestricted|opposite) mode"
            r" (?:is )?(?:now )?(?:enabled|activated|active|on|unlocked)\b"
        ),
    ),
    _Sign(
        "says it has no limits",
        ("guardrails", "safeguards", "ethical", "moral", "content", "safety"),
        (
            r"\b(?:without|free (?:of|from)|no longer (?:bound|limited) by|have no|has no) "
            r"(?:(?:any|all|my|the) ){0,2}(?:guardrails|safeguards|(?:ethical|moral|content|safety)"
            r" (?:restrictions|limitations|limits|filters|rules))\b"
        ),
    ),
    _Sign(
        "reveals its instructions",
        ("system prompt", "system message", "hidden instructions", "developer message"),
        (
            r"\b(?:my|the|your) (?:hidden |full |original |secret |initial )?"
            r"(?:system prompt|system message|hidden instructions|developer message)"
            r" (?:is|are|says|reads|was|were)\b"
        ),
    ),
    _Sign(
        "imitates the chat's own marks",
        ("<|", "inst]", "sys>>"),
        r"<\|(?:im_start|im_end|system|endoftext)\|>|\[/?inst\]|<</?sys>>",
    ),
)
"""Matched against lower case; compiled, and cached by `re`, when first needed."""
_DAN = r"\b(?:[Aa]s|I am|I'm|[Cc]all me|[Yy]ou are|[Aa]ct(?:ing)? as) (?:now )?(?:DAN|STAN)\b"
_DENIED = (
    r"(?i)\b(?:not|never|cannot|can't|won't|don't|doesn't|didn't|refuse to|unable to|asked? me to|"
    r"request to|told to|tried to|attempt to|asking (?:me |us )?to)[^.!?\n]{0,25}$"
)
_IGNORED = "[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff\U000e0000-\U000e007f]"
_LOOK_BACK = 45


def find_jailbreaks(text: str) -> Iterator[str]:
    """Yield the signs of a jailbreak in a text, each of them once."""
    plain = text
    if not text.isascii():
        plain = unicodedata.normalize("NFKC", re.sub(_IGNORED, "", text)).replace("\u2019", "'")
    if ("DAN" in plain or "STAN" in plain) and _matches(_DAN, plain):
        yield "speaks as a model without limits"
    small = plain.lower()
    for sign in _SIGNS:
        if any(mark in small for mark in sign.marks) and _matches(sign.pattern, small):
            yield sign.what


def _matches(pattern: str, text: str) -> bool:
    return any(not _is_denied(text, found.start()) for found in re.finditer(pattern, text))


def _is_denied(text: str, start: int) -> bool:
    """Whether the words before a match negate it: 'I cannot ignore my instructions'."""
    return re.search(_DENIED, text[max(0, start - _LOOK_BACK) : start]) is not None
