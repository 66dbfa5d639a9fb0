"""The tasks of the simulator: a data file each, and what a prompt asks for in their terms.

A data file names the features of prompts, which are instructions that give answers a quality, the
criteria of rubrics with the qualities behind them, and the patterns and sentences that writing and
judging an answer need.
"""

from __future__ import annotations

import json
import re
from enum import Enum, StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from edison_ci._dataclass import dataclass
from edison_ci.documents.yaml_text import read_beside

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DATA = Path(__file__).parent / "data"


class Task(StrEnum):
    """The tasks of the simulator."""

    SUPPORT = "support"
    STORY = "story"
    EXTRACTION = "extraction"
    CODE = "code"
    OTHER = "other"


@cache
def load_data(name: str) -> Any:
    """Return the content of a data file, by its name without the ending."""
    path = _DATA / f"{name}.json"
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    return read_beside(__file__, f"data/{name}.yaml")


def compile_any(alternatives: str | Sequence[str]) -> re.Pattern[str]:
    """Return a pattern, or one that matches any of several."""
    return re.compile(alternatives if isinstance(alternatives, str) else "|".join(alternatives))


@cache
def data_pattern(file: str, name: str) -> re.Pattern[str]:
    """Return a pattern of a data file that belongs to no task."""
    return compile_any(load_data(file)["patterns"][name])


_Pattern = Annotated[re.Pattern[str], BeforeValidator(compile_any)]


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Feature(_Data):
    """An instruction that gives answers one concrete quality."""

    name: str
    pattern: _Pattern
    """Matches instructions in lower case."""
    chance_if_silent: float
    """Probability of the quality if the prompt does not ask for it."""
    chance_if_asked: float
    """Probability of the quality if the prompt asks for it."""
    lines: tuple[str, ...]
    """Ways to ask for it."""
    against: _Pattern | None = None
    """Matches instructions for the opposite."""
    negatable: bool = True
    """Whether a 'not' before the instruction negates it."""


class TaskCriterion(_Data):
    """A criterion of the rubric of the example."""

    weights: dict[str, float]
    """Weights of the qualities in it."""
    alias: _Pattern
    """Matches the names and descriptions of similar criteria."""
    improved_by: tuple[str, ...]
    """Features that help it, the most effective first."""


class TaskData(_Data):
    """A task: how to recognize it, what its prompts may ask for, and what its answers are worth."""

    example: str = ""
    """The shipped example whose cases are known."""
    key: str = ""
    """The input that identifies a case."""
    inputs: frozenset[str] = frozenset()
    """Inputs by which a judge recognizes the task."""
    message_sign: _Pattern = re.compile(r"(?!)")
    """Matches messages, in lower case, of the task."""
    prompt_sign: _Pattern = re.compile(r"(?!)")
    """Matches prompts, in lower case, of the task."""
    assignment: _Pattern
    """Matches the sentence that states the task."""
    features: tuple[Feature, ...] = ()
    criteria: dict[str, TaskCriterion] = {}
    checks: dict[str, tuple[str, ...]] = {}
    """Features that help a check, by the names of checks in the example."""
    order: tuple[str, ...] = ()
    """Features to add if the weak criteria leave room."""
    nothing: str = ""
    """The remark on an answer that has nothing to look at."""
    spoiled: dict[str, float] = {}
    """What is left of qualities of an answer that obeys the data of the case."""
    patterns: dict[str, _Pattern] = {}
    texts: dict[str, Any] = {}

    def feature(self, name: str) -> Feature:
        """Return a feature by its name."""
        return next(feature for feature in self.features if feature.name == name)


@cache
def task_data(task: Task) -> TaskData:
    """Return what the data file of a task says."""
    return TaskData.model_validate(load_data(task))


class Stance(Enum):
    """The position of a prompt on a quality."""

    SILENT = "silent"
    ASKED = "asked"
    AGAINST = "against"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Understanding:
    """How a model understands the instructions of a prompt."""

    stances: Mapping[str, Stance]
    confusion: float
    """From 0 (clear) to 1 (hardly readable)."""


_NEGATION = re.compile(
    r"\b(?:no|not|never|don't|do not|without|avoid|skip|leave out|no need (?:for|to))\b"
    r"[^.;:\n]{0,24}$"
)
_WRAP = re.compile(r"\n(?=[a-z(\"'])")
_TOKEN = re.compile(r"[a-z]{4,}")
_ODD = re.compile(r"[^aeiouy]{6,}|(.)\1{2,}|^(?!https?$|html$)[^aeiouy]+$")
_NOISE = re.compile(r"(?:[^\w\s]{4,}|\b[a-z]+\d+[a-z]+\w*\b)")
_MARKS = re.compile(r"`{3}|[-=_*#.]{3,}|<[^<>\n]{1,40}>")


@lru_cache(maxsize=1_024)
def understanding_of(task: Task, instructions: str) -> Understanding:
    """Return which features the instructions ask for, and how confusing they are."""
    data = task_data(task)
    text = _WRAP.sub(" ", instructions).lower()
    stances = {feature.name: _stance(feature, text) for feature in data.features}
    conflicts = sum(stance is Stance.BOTH for stance in stances.values())
    confusion = 0.12 * conflicts + 1.6 * _gibberish(text)
    if not data.assignment.search(text):
        confusion += 0.25
    return Understanding(stances, min(1.0, confusion))


def _stance(feature: Feature, text: str) -> Stance:
    asked = against = False
    for match in feature.pattern.finditer(text):
        if feature.negatable and _NEGATION.search(text[max(0, match.start() - 48) : match.start()]):
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
