"""Features: instructions in a prompt that give answers a quality, and how clear it is."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

_NEGATION = re.compile(
    r"\b(?:no|not|never|don't|do not|without|avoid|skip|leave out|no need (?:for|to))\b"
    r"[^.;:\n]{0,24}$"
)
_WRAP = re.compile(r"\n(?=[a-z(\"'])")
_TOKEN = re.compile(r"[a-z]{4,}")
_ODD = re.compile(r"[^aeiouy]{6,}|(.)\1{2,}|^(?!https?$|html$)[^aeiouy]+$")
_NOISE = re.compile(r"(?:[^\w\s]{4,}|\b[a-z]+\d+[a-z]+\w*\b)")
_MARKS = re.compile(r"`{3}|[-=_*#.]{3,}|<[^<>\n]{1,40}>")


@dataclass(frozen=True, slots=True)
class Feature:
    """An instruction that gives answers one concrete quality."""

    name: str
    pattern: re.Pattern[str]
    chance_if_silent: float
    """Probability of the quality if the prompt does not ask for it."""
    chance_if_asked: float
    """Probability of the quality if the prompt asks for it."""
    lines: tuple[str, ...]
    """Ways to ask for it."""
    against: re.Pattern[str] | None = None
    """Matches instructions for the opposite."""
    negatable: bool = True
    """Whether a 'not' before the instruction negates it."""


class Stance(Enum):
    """The position of a prompt on a quality."""

    SILENT = "silent"
    ASKED = "asked"
    AGAINST = "against"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Playbook:
    """The features of prompts for one task."""

    features: tuple[Feature, ...]
    assignment: re.Pattern[str]
    """Matches the sentence that states the task."""

    def feature(self, name: str) -> Feature:
        """Return a feature by its name."""
        return next(feature for feature in self.features if feature.name == name)


@dataclass(frozen=True, slots=True)
class Understanding:
    """How a model understands the instructions of a prompt."""

    stances: Mapping[str, Stance]
    confusion: float
    """From 0 (clear) to 1 (hardly readable)."""


def any_of(*patterns: str) -> re.Pattern[str]:
    """Return a pattern for lower-case text that matches any of these."""
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))


def understand(instructions: str, playbook: Playbook) -> Understanding:
    """Return which features the instructions ask for, and how confusing they are."""
    text = _WRAP.sub(" ", instructions).lower()
    stances = {feature.name: _stance(feature, text) for feature in playbook.features}
    conflicts = sum(stance is Stance.BOTH for stance in stances.values())
    confusion = 0.12 * conflicts + 1.6 * _gibberish(text)
    if not playbook.assignment.search(text):
        confusion += 0.25
    return Understanding(stances, min(1.0, confusion))


def _stance(feature: Feature, text: str) -> Stance:
    asked = against = False
    for found in feature.pattern.finditer(text):
        if feature.negatable and _NEGATION.search(text[max(0, found.start() - 48) : found.start()]):
            against = True
        else:
            asked = True
    if feature.against is not None and feature.against.search(text):
        against = True
    if asked and against:
        return Stance.BOTH
    if asked:
        return Stance.ASKED
    return Stance.AGAINST if against else Stance.SILENT


def _gibberish(text: str) -> float:
    """Return the share of words that are gibberish."""
    plain = _MARKS.sub(" ", text)
    words = _TOKEN.findall(plain)
    odd = sum(1 for word in words if _ODD.search(word)) + len(_NOISE.findall(plain))
    return odd / (len(words) + odd + 8) if odd else 0.0
