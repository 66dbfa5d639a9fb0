"""Replies of the simulated judge: scores and preferences.

It reads what a real judge would read: the criteria in the system message, and the blocks of
material under the key that the first line of the user message names. Whatever is asked in another
form is taken for a grader prompt of the user's own.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.rounding import fixed, mean, mean_or_none, rounded, weighted_mean
from edison_ci.simulator import code_task as code
from edison_ci.simulator import extraction_task as extraction
from edison_ci.simulator import story_task as story
from edison_ci.simulator import support_task as support
from edison_ci.simulator.assignment import MAX_CHARS, Task, blocks_in, read, strings_in
from edison_ci.simulator.options import SimOptions
from edison_ci.simulator.pace import Pace, spoken, stream
from edison_ci.simulator.writing import Exhibit, Seen, clamped, words_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from edison_ci.records import Completion, Json, Request


_SHORT = re.compile(r"concis|short|brief|length|brev|one sentence")
_WARM = re.compile(r"empath|kind|warm|tone|friendl|polite|caring")
_RELEVANT = re.compile(r"relevan|accura|correct|faithful|ground|fact|answer|help|useful|complete")
_WARM_WORDS = re.compile(
    r"\b(?:please|thank|thanks|lovely|warm|welcome|glad|happy|hope|sorry|understand|kind|good|dear)\b",
    re.I,
)
_JUDGE_FEW, _JUDGE_MANY = 4, 250


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
    length = 0.35 if count < _JUDGE_FEW or count > _JUDGE_MANY else 0.7
    return Seen(clamped(length + 0.15 * shared + 0.05 * hits), f"{count} words")


def _overlap(exhibit: Exhibit, text: str) -> float:
    given = {word for value in strings_in(exhibit.inputs) for word in words_of(value[:MAX_CHARS])}
    given = {word for word in given if len(word) > 3}
    return len(given & set(words_of(text))) / len(given) if given else 0.3


CEILING = 0.94
"""Mean share of the scale that a faultless answer gets: no judge is that easily pleased."""
_EAGERNESS = 9.0
"""How steeply a difference in quality turns into a preference."""
_TIE = 0.06
_READ_CHARS = 20_000
"""A judge reads no further."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """One thing to score, as a rubric names it."""

    name: str
    description: str = ""
    minimum: float = 0.0
    maximum: float = 5.0
    lower_is_better: bool = False


class Score(NamedTuple):
    """A score on its criterion's scale, and why."""

    score: float
    reason: str


class Preference(NamedTuple):
    """Which of two answers is better: `first`, `second` (as shown) or `tie`."""

    winner: str
    reason: str


_OBSERVERS = {
    Task.SUPPORT: support.observe,
    Task.STORY: story.observe,
    Task.EXTRACTION: extraction.observe,
    Task.CODE: code.observe,
}
_JUDGE_CRITERIA = {
    Task.SUPPORT: support.CRITERIA,
    Task.STORY: story.CRITERIA,
    Task.EXTRACTION: extraction.CRITERIA,
    Task.CODE: code.CRITERIA,
}
_ALIASES = {
    Task.SUPPORT: support.ALIASES,
    Task.STORY: story.ALIASES,
    Task.EXTRACTION: extraction.ALIASES,
    Task.CODE: code.ALIASES,
}
_INPUT_SIGNS = (
    (Task.SUPPORT, {"message"}),
    (Task.STORY, {"brief"}),
    (Task.EXTRACTION, {"document"}),
    (Task.CODE, {"task", "signature"}),
)


def task_of(inputs: Mapping[str, Json]) -> Task:
    """Return the task whose cases have inputs like these."""
    for task, names in _INPUT_SIGNS:
        if names <= set(inputs):
            return task
    return Task.OTHER


def observe(exhibit: Exhibit) -> dict[str, Seen]:
    """Return how much of each quality an answer shows; nothing for an unknown task."""
    observer = _OBSERVERS.get(exhibit.task)
    if observer is None:
        return {}
    shortened = replace(exhibit, output=exhibit.output[:_READ_CHARS])
    return observer(shortened)


def score(
    exhibit: Exhibit, criteria: Sequence[Criterion], rng: Random, *, noise: float = 0.05
) -> dict[str, Score]:
    """Return the score of each criterion, from the text alone.

    `noise` is a standard deviation as a share of the scale. Rounding to the steps of the scale is
    left to chance in proportion, so that it moves no mean.
    """
    seen = observe(exhibit)
    scores: dict[str, Score] = {}
    for criterion in criteria:
        value, remark = _quality(exhibit, criterion, seen)
        share = clamped(CEILING * value + rng.gauss(0.0, noise))
        if criterion.lower_is_better:
            share = 1.0 - share
        scores[criterion.name] = Score(_on_scale(criterion, share, rng), remark)
    return scores


def pairwise(
    shown: tuple[Exhibit, Exhibit],
    criteria: Sequence[Criterion],
    rng: Random,
    *,
    noise: float = 0.05,
    position_bias: float = 0.0,
) -> Preference:
    """Return which of two answers to one case is better, in the order in which they are shown.

    `position_bias` is added to the chance that the first one wins.
    """
    first, second = shown
    one, other = (_overall(exhibit, criteria) + rng.gauss(0.0, noise) for exhibit in shown)
    chance = clamped(1.0 / (1.0 + math.exp(-_EAGERNESS * (one - other))) + position_bias)
    draw = rng.random()
    if abs(draw - chance) < _TIE * (1.0 - 2.0 * abs(0.5 - chance)):
        return Preference("tie", "both do the same well")
    winner = "first" if draw < chance else "second"
    better, worse = (first, second) if winner == "first" else (second, first)
    return Preference(winner, _difference(better, worse, criteria))


def _overall(exhibit: Exhibit, criteria: Sequence[Criterion]) -> float:
    seen = observe(exhibit)
    if not criteria:
        return mean_or_none([value.value for value in seen.values()]) or 0.0
    return mean([_quality(exhibit, criterion, seen).value for criterion in criteria])


def _difference(better: Exhibit, worse: Exhibit, criteria: Sequence[Criterion]) -> str:
    mine, theirs = observe(better), observe(worse)
    gaps = [
        (_quality(better, c, mine).value - _quality(worse, c, theirs).value, c) for c in criteria
    ]
    if not gaps:
        return "the better answer as a whole"
    gap, criterion = max(gaps, key=lambda pair: pair[0])
    if gap <= 0:
        return "close, but the better answer as a whole"
    return f"better in {criterion.name}: {_quality(better, criterion, mine).remark}"


def _quality(exhibit: Exhibit, criterion: Criterion, seen: Mapping[str, Seen]) -> Seen:
    """Return how well an answer meets a criterion, with what weighs most against it."""
    parts = _parts_of(exhibit.task, criterion)
    if not parts or not seen:
        return quality(exhibit, criterion.name, criterion.description)
    value = weighted_mean([(weight, seen[name].value) for name, weight in parts.items()])
    losses = {name: weight * (1 - seen[name].value) for name, weight in parts.items()}
    return Seen(value or 0.0, seen[max(losses, key=lambda name: losses[name])].remark)


def _parts_of(task: Task, criterion: Criterion) -> Mapping[str, float]:
    """Return what a criterion is made of: by its name, else by what its words say."""
    known = _JUDGE_CRITERIA.get(task, {})
    name = criterion.name.lower().strip()
    if name in known:
        return known[name]
    for text in (name, criterion.description.lower()):
        for alias, pattern in _ALIASES.get(task, {}).items():
            if pattern.search(text):
                return known[alias]
    return {}


def _on_scale(criterion: Criterion, share: float, rng: Random) -> float:
    low, high = criterion.minimum, criterion.maximum
    step = _step(high - low)
    steps = (high - low) * share / step
    whole = math.floor(steps)
    rounded = whole + (rng.random() < steps - whole)
    return min(high, max(low, round(low + rounded * step, 6)))


def _step(width: float) -> float:
    """Return the distance between two scores that a judge tells apart."""
    if width <= 1:
        return width / 10 or 1.0
    return 0.5 if width <= 10 else 1.0


# From the text alone: whether something is asked, how long it is, whether it talks about what the
# objective talks about, and how many of its words are unusual. Enough to try the command with, and
# no more: a real judge reads.
_ASKS = re.compile(
    r"\?|\b(?:how|what|when|where|why|which|can|could|please|write|return|extract|give|say)\b", re.I
)
_TRICKS = re.compile(r"ignore|disregard|system|instead|not |never|except|unless|only if", re.I)
_FEW, _MANY = 3, 200


def question_scores(
    inputs: Mapping[str, Json],
    objective: str,
    criteria: Sequence[Criterion],
    rng: Random,
    *,
    noise: float,
) -> str:
    """Return the reply of the simulated judge of questions."""
    text = " ".join(strings_in(dict(inputs)))[:MAX_CHARS]
    seen = _seen(text, objective)
    scores = {}
    for criterion in criteria:
        value, remark = _found(criterion.name, seen)
        share = clamped(value + rng.gauss(0.0, noise))
        width = criterion.maximum - criterion.minimum
        score = rounded(criterion.minimum + width * share, 0 if width > 1 else 1)
        scores[criterion.name] = {"reason": remark, "score": score}
    return json.dumps({"scores": scores}, ensure_ascii=False)


def _seen(text: str, objective: str) -> dict[str, Seen]:
    words = words_of(text)
    count, known = len(words), {word for word in words_of(objective) if len(word) > 3}
    long = {word for word in words if len(word) > 7}
    shared = len(known & set(words))
    tricks = len(_TRICKS.findall(text))
    if count < _FEW:
        clarity = Seen(0.1, f"{count} words say hardly anything")
    elif _ASKS.search(text):
        clarity = Seen(0.85 if count <= _MANY else 0.6, f"something is asked, in {count} words")
    else:
        clarity = Seen(0.5, "nothing is asked outright")
    found = {
        "clarity": clarity,
        "difficulty": Seen(
            clamped(0.15 + count / 250 + 0.12 * tricks), f"{count} words, {tricks} catches"
        ),
        "relevance": Seen(
            clamped(0.45 + 0.12 * shared), f"shares {shared} words with the objective"
        ),
        "originality": Seen(
            clamped(0.25 + 0.03 * len(long) + 0.1 * tricks), f"{len(long)} unusual words"
        ),
    }
    overall = mean([found[name].value for name in ("clarity", "relevance", "originality")])
    found["overall"] = Seen(overall, "as clear, relevant and original as that")
    return found


def _found(name: str, seen: Mapping[str, Seen]) -> Seen:
    """Return what is seen of a criterion; of one that nobody knows, what is seen of the whole."""
    return seen.get(name.lower().strip(), seen["overall"])


PACE = Pace(240.0, 6.0)
_CRITERIA = "Criteria:\n\n["
_RUDE = re.compile(
    r"\b(?:idiot|stupid|moron|dumb|shut up|hate you|kill|loser|pathetic|worthless|disgusting)\w*",
    re.I,
)
_STEERING = re.compile(
    r"ignore (?:all|any|the|your|previous|above)|disregard|system (?:notice|override)|"
    r"you are now|previous instructions|(?:full|maximum|highest|perfect) (?:score|marks|points)",
    re.I,
)
_CHOICE = re.compile(r"\b(yes or no|pass or fail|true or false)\b", re.I)
_RANGE = re.compile(r"\b(\d{1,3})\s?(?:-|to|and)\s?(\d{1,3})\b")
_ANSWER = re.compile(
    r"^.{0,40}\b(?:output|answer|reply|response|text|story|email|e-mail)\b.{0,20}:[ \t]*",
    re.I | re.M,
)


@dataclass(frozen=True, slots=True)
class Hearing:
    """The material of a request, by its blocks."""

    inputs: Mapping[str, Json]
    texts: Mapping[str, str]
    """answer, first, second or text."""


def hear(request: Request, options: SimOptions | None = None) -> Completion:
    """Return the reply of the simulated judge, decided by the request's address and the seed."""
    options = options or SimOptions()
    rng = stream(request.address, options.seed, "judge")
    reply = _reply(request, options, rng)
    return spoken(request, options, reply, PACE, rng)


def _reply(request: Request, options: SimOptions, rng: Random) -> str:
    said = next((m.content for m in reversed(request.messages) if m.role == "user"), "")
    told = "\n".join(m.content for m in request.messages if m.role == "system")
    hearing = _material(said)
    if hearing is None:
        return _graded(request, rng, options.noise)
    criteria = criteria_in(told)
    if "answer" in hearing.texts:
        return _scores(hearing, criteria, rng, options.noise)
    if "first" in hearing.texts and "second" in hearing.texts:
        return _preference(hearing, criteria, rng, options)
    if criteria:
        objective = hearing.texts.get("text", "")
        return question_scores(hearing.inputs, objective, criteria, rng, noise=options.noise)
    return _screened(hearing.texts.get("text", ""), rng)


# --- reading --------------------------------------------------------------------------------------


def _material(said: str) -> Hearing | None:
    blocks = blocks_in(said)
    if blocks is None:
        return None
    return Hearing(
        {block.name: block.value for block in blocks if block.tag == "input"},
        {block.tag: block.text for block in blocks if block.tag != "input"},
    )


def criteria_in(told: str) -> list[Criterion]:
    """Return the criteria that a message lists as JSON after `Criteria:`."""
    _, found, rest = told.rpartition(_CRITERIA)
    if not found:
        return []
    try:
        entries, _ = json.JSONDecoder().raw_decode(f"[{rest}")
    except ValueError:
        return []
    return [
        Criterion(
            entry["name"],
            entry.get("description", ""),
            entry.get("min", 0.0),
            entry.get("max", 5.0),
            "note" in entry,
        )
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("name"), str)
    ]


# --- replying -------------------------------------------------------------------------------------


def _scores(hearing: Hearing, criteria: Sequence[Criterion], rng: Random, noise: float) -> str:
    output = hearing.texts["answer"]
    exhibit = Exhibit(task_of(hearing.inputs), hearing.inputs, output)
    scores = score(exhibit, criteria, rng, noise=noise)
    entries = {name: {"reason": s.reason, "score": s.score} for name, s in scores.items()}
    flags = [
        flag
        for flag, pattern in (("toxicity", _RUDE), ("jailbreak", _STEERING))
        if pattern.search(output[:MAX_CHARS])
    ]
    return json.dumps({"scores": entries, "flags": flags}, ensure_ascii=False)


def _preference(
    hearing: Hearing, criteria: Sequence[Criterion], rng: Random, options: SimOptions
) -> str:
    task = task_of(hearing.inputs)
    shown = (
        Exhibit(task, hearing.inputs, hearing.texts["first"]),
        Exhibit(task, hearing.inputs, hearing.texts["second"]),
    )
    found = pairwise(shown, criteria, rng, noise=options.noise, position_bias=options.position_bias)
    return json.dumps({"reason": found.reason, "winner": found.winner}, ensure_ascii=False)


def _screened(text: str, rng: Random) -> str:
    hits = len(_RUDE.findall(text[:MAX_CHARS]))
    value = clamped((0.03 if hits == 0 else 0.6 + 0.15 * hits) + rng.gauss(0.0, 0.02))
    reason = f"{hits} rude words" if hits else "nothing found"
    return json.dumps({"reason": reason, "score": rounded(value, 3)})


def _graded(request: Request, rng: Random, noise: float) -> str:
    """Reply to a grader prompt, in whatever form it seems to ask for."""
    assignment = read(request.messages)
    said = assignment.said
    labels = list(_ANSWER.finditer(said[:MAX_CHARS]))
    output = said[labels[-1].end() :] if labels else said
    exhibit = Exhibit(task_of(assignment.inputs), assignment.inputs, output)
    seen = quality(exhibit, "", assignment.instructions[:2_000])
    share = clamped(CEILING * seen.value + rng.gauss(0.0, noise))
    asked = "\n".join(message.content for message in request.messages)
    if choice := _CHOICE.search(asked):
        good, bad = choice[1].lower().split(" or ")
        return good if share >= 0.5 else bad
    low, high = _scale(asked)
    number = rounded(low + share * (high - low), 2 if high - low <= 1 else 1)
    if re.search(r"\bjson\b", asked, re.I):
        return json.dumps({"score": number, "reason": seen.remark})
    return f"{number:g}"


def _scale(asked: str) -> tuple[float, float]:
    for found in _RANGE.finditer(asked[:MAX_CHARS]):
        low, high = float(found[1]), float(found[2])
        if low in (0, 1) and high in (1, 3, 5, 10, 100) and low < high:
            return low, high
    return 0.0, 1.0
