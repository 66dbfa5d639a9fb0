"""Replies of judges: parsing and validation.

Parsing is tolerant: fences, prose and thinking around the JSON do not matter. Validation is strict:
a score off its scale or not a number, an unknown criterion, or a second answer is a failure with a
reason, never a zero. The reasons are sent back to the judge, so changing them changes requests.
"""

from __future__ import annotations

import math
import re
from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Generic, TypeVar

from edison_ci._dataclass import dataclass
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault, shortened
from edison_ci.records import FinishReason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from edison_ci.config.rubric import Criterion, Scale
    from edison_ci.records import Completion, Json

MAX_REPLY = 100_000
"""The most characters of a reply."""
MAX_REASON = 1_000


def object_schema(**properties: Json) -> Json:
    """Return the schema of an object with exactly these keys, in the dialect of all vendors."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


FLAGS = ("policy", "pii", "toxicity", "jailbreak")


def verdict_schema(criteria: Iterable[Criterion]) -> Json:
    """Return the schema of a reply with scores, for models that can be held to one."""
    score = object_schema(reason={"type": "string"}, score={"type": "number"})
    return object_schema(
        scores=object_schema(**{criterion.name: score for criterion in criteria}),
        flags={"type": "array", "items": {"type": "string", "enum": [*FLAGS]}},
    )


WINNER_SCHEMA = object_schema(
    reason={"type": "string"},
    winner={"type": "string", "enum": ["first", "second", "tie"]},
)
"""The schema of a reply that compares two answers."""

TOLERANCE = 1e-9
"""Tolerance at the ends of a scale, as a score may be a sum of floats."""

_MOST_OBJECTS = 20
_MOST_LOOSE = 4
"""Unmatched braces that are tolerated; each one costs a scan of the whole reply."""
_STRUCTURE = re.compile(r'\\.|["{}]', re.DOTALL)
_END_OF_THINKING = ("</thinking>", "</think>")


class Missing(StrEnum):
    """Why there is no score (STATS.md section 1)."""

    JUDGE_ERROR = "judge_error"
    OUT_OF_RANGE = "out_of_range"
    REFUSED_TO_JUDGE = "refused_to_judge"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Failure:
    """A missing score or verdict, and the reason."""

    kind: Missing
    reason: str


Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Value]):
    """The outcome of a reply: a value, a failure, or a value with a failure."""

    value: Value | None
    failure: Failure | None = None
    """The first problem; None for a valid reply."""


@dataclass(frozen=True, slots=True)
class CriterionReply:
    """One score of one judge."""

    raw: float
    """On the criterion's scale."""
    share: float
    """From 0 (worst) to 1 (best), in either direction of the scale."""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of one judge on one answer."""

    scores: Mapping[str, CriterionReply]
    missing: Mapping[str, Failure] = field(default_factory=dict)
    """Criteria without a valid score."""
    flags: tuple[str, ...] = ()


def call_failure(error: CallError) -> Failure:
    """Return the failure for a call without an answer."""
    kinds = {
        ErrorKind.TIMEOUT: Missing.TIMEOUT,
        ErrorKind.CONTENT_FILTER: Missing.REFUSED_TO_JUDGE,
    }
    return Failure(kinds.get(error.kind, Missing.JUDGE_ERROR), shortened(str(error)))


def strip_thinking(text: str) -> str:
    """Return a reply without its thinking."""
    for tag in _END_OF_THINKING:
        text = text.rpartition(tag)[2]
    return text.strip()


def reply_object(completion: Completion, key: str) -> dict[str, Json] | Failure:
    """Return the only JSON object of a reply with this key."""
    if len(completion.text) > MAX_REPLY:
        return _bad(f"the reply has {len(completion.text):,} characters")
    text = strip_thinking(completion.text)
    answers: list[dict[str, Json]] = []
    fault = ""
    for candidate in _objects(text):
        try:
            value = parse_json(candidate)
        except Fault as problem:
            if f'"{key}"' in candidate:
                fault = problem.message
            continue
        if isinstance(value, dict) and key in value:
            answers.append(value)
    if len(answers) + bool(fault) > 1:
        return _bad("the reply holds more than one answer")
    if fault:
        return _bad(fault)
    return answers[0] if answers else _nothing(completion, key)


def _nothing(completion: Completion, key: str) -> Failure:
    if completion.finish_reason is FinishReason.CONTENT_FILTER:
        return Failure(Missing.REFUSED_TO_JUDGE, "the provider filtered the reply")
    if completion.finish_reason is FinishReason.LENGTH:
        return _bad("the reply was cut off at max_tokens")
    if not completion.text.strip():
        return _bad("the reply is empty")
    return _bad(f"the reply holds no JSON object with {key!r}")


def _objects(text: str) -> Iterator[str]:
    """Yield each outermost {...} of a text, in linear time."""
    start, loose = text.find("{"), 0
    for _ in range(_MOST_OBJECTS):
        if start < 0 or loose > _MOST_LOOSE:
            return
        end = _end_of_object(text, start)
        if end is None:  # a brace in prose, or an answer cut off
            start, loose = text.find("{", start + 1), loose + 1
            continue
        yield text[start:end]
        start = text.find("{", end)


def _end_of_object(text: str, start: int) -> int | None:
    depth, quoted = 0, False
    for match in _STRUCTURE.finditer(text, start):
        token = match.group()
        if token == '"':
            quoted = not quoted
        elif not quoted and token in "{}":
            depth += 1 if token == "{" else -1
            if depth == 0:
                return match.end()
    return None


def read_verdict(completion: Completion, criteria: Sequence[Criterion]) -> Outcome[Verdict]:
    """Return the verdict of a pointwise judge."""
    reply = reply_object(completion, "scores")
    if isinstance(reply, Failure):
        return Outcome(None, reply)
    entries = _by_criterion(reply["scores"], criteria)
    if isinstance(entries, Failure):
        return Outcome(None, entries)
    scores: dict[str, CriterionReply] = {}
    missing: dict[str, Failure] = {}
    for criterion in criteria:
        score = _entry(entries, criterion)
        if isinstance(score, Failure):
            missing[criterion.name] = score
        else:
            scores[criterion.name] = score
    flags, fault = _flags(reply.get("flags", []))
    failure = next(iter(missing.values()), fault)
    if not scores:
        return Outcome(None, failure)
    return Outcome(Verdict(scores, missing, flags), failure)


def _by_criterion(scores: Json, criteria: Sequence[Criterion]) -> dict[str, Json] | Failure:
    """Return the entries by slug, which ignores case and spaces; unknown names are a failure."""
    if not isinstance(scores, dict):
        return _bad("scores is not an object")
    slugs = {criterion.slug for criterion in criteria}
    entries: dict[str, Json] = {}
    for name, entry in scores.items():
        slug = "-".join(name.lower().split())
        if slug not in slugs:
            return _bad("the reply scores a criterion that was not asked for")
        if slug in entries:
            return _bad("the reply scores a criterion twice")
        entries[slug] = entry
    return entries


def _entry(entries: Mapping[str, Json], criterion: Criterion) -> CriterionReply | Failure:
    if criterion.slug not in entries:
        return _bad(f"{criterion.name} has no score")
    entry = entries[criterion.slug]
    if not isinstance(entry, dict) or "score" not in entry:
        return _bad(f"the entry of {criterion.name} is no object with a score")
    return score_criterion(criterion, entry["score"], read_reason(entry))


def score_criterion(criterion: Criterion, value: Json, reason: str) -> CriterionReply | Failure:
    """Return the score of a criterion, or the failure."""
    raw = check_scale(value, criterion.scale, criterion.name)
    if isinstance(raw, Failure):
        return raw
    share = scale_share(raw, criterion.scale)
    return CriterionReply(raw, 1 - share if criterion.lower_is_better else share, reason)


def check_scale(value: Json, scale: Scale, what: str) -> float | Failure:
    """Return a score on its scale, or the failure; values off the scale are not clipped."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return _bad(f"the score of {what} is not a number")
    if not scale.min - TOLERANCE <= value <= scale.max + TOLERANCE:
        reason = f"the score of {what} is not between {scale.min:g} and {scale.max:g}"
        return Failure(Missing.OUT_OF_RANGE, reason)
    return min(max(float(value), scale.min), scale.max)


def scale_share(raw: float, scale: Scale) -> float:
    """Return a score as a share of its scale."""
    share = (raw - scale.min) / (scale.max - scale.min)
    assert math.isfinite(share)
    return share


def read_reason(entry: Mapping[str, Json]) -> str:
    """Return the reason of an entry; empty if it is left out."""
    reason = entry.get("reason", "")
    return shortened(reason.strip(), MAX_REASON) if isinstance(reason, str) else ""


def _flags(value: Json) -> tuple[tuple[str, ...], Failure | None]:
    named = value if isinstance(value, list) else []
    flags = tuple(flag for flag in FLAGS if flag in named)
    if isinstance(value, list) and all(flag in FLAGS for flag in named):
        return flags, None
    return flags, _bad(f"flags is not a list of {', '.join(FLAGS)}")


def _bad(reason: str) -> Failure:
    return Failure(Missing.JUDGE_ERROR, reason)
