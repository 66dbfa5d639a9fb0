"""Replies of the simulated judge: scores and preferences.

It reads what a real judge reads: the criteria in the system message, and the blocks of material
under the key in the first line of the user message. A request of another form is answered like a
grader prompt of the user.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.features.simulator import code_task as code
from edison_ci.features.simulator import extraction_task as extraction
from edison_ci.features.simulator import story_task as story
from edison_ci.features.simulator import support_task as support
from edison_ci.features.simulator.assignment import (
    MAX_CHARS,
    AnswerSample,
    Observation,
    clamp,
    parse_blocks,
    read_assignment,
    split_words,
    strings_in,
)
from edison_ci.features.simulator.options import (
    Pace,
    SimOptions,
    draw_key,
    make_completion,
    random_stream,
)
from edison_ci.features.simulator.tasks import Task, data_pattern, load_data, task_data
from edison_ci.numeric import counted, fixed, mean, mean_or_none, rounded, weighted_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from edison_ci.records import Completion, Json, Request


_JUDGE_FEW, _JUDGE_MANY = 4, 250


def _matches(name: str, text: str) -> list[str]:
    """Return what a pattern of the judge finds in the part of a text that it reads."""
    return data_pattern("judging", name).findall(text[:MAX_CHARS])


def quality(sample: AnswerSample, name: str, description: str) -> Observation:
    """Return how well a text meets a criterion that is known by its description only."""
    text = sample.output[:MAX_CHARS]
    words = split_words(text)
    count = len(words)
    if count == 0:
        return Observation(0.0, "the answer is empty")
    criterion = f"{name} {description}".lower()
    if data_pattern("judging", "short").search(criterion):
        return Observation(clamp(1.1 - max(0, count - 25) / 150), f"{count} words")
    if data_pattern("judging", "warm").search(criterion):
        warm = len({word.lower() for word in _matches("warm_words", text)})
        return Observation(clamp(0.35 + 0.25 * warm), f"{warm} friendly words")
    shared = _overlap(sample, words)
    if data_pattern("judging", "relevant").search(criterion):
        remark = f"takes up {fixed(100 * shared)}% of the input's words"
        return Observation(clamp(0.35 + 1.3 * shared), remark)
    keywords = {word for word in split_words(description) if len(word) > 5}
    hits = len(keywords & set(words))
    length = 0.35 if count < _JUDGE_FEW or count > _JUDGE_MANY else 0.7
    return Observation(clamp(length + 0.15 * shared + 0.05 * hits), f"{count} words")


def _overlap(sample: AnswerSample, words: Sequence[str]) -> float:
    values = [value[:MAX_CHARS] for value in strings_in(sample.inputs)]
    asked = {word for value in values for word in split_words(value) if len(word) > 3}
    return len(asked & set(words)) / len(asked) if asked else 0.3


CEILING = 0.94
"""Mean share of the scale for a perfect answer: real judges seldom give the full score."""
_EAGERNESS = 9.0
"""Slope of the preference as a function of the difference in quality."""
_TIE = 0.06
_READ_CHARS = 20_000
"""The judge reads this many characters of an answer."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """A criterion of a rubric."""

    name: str
    description: str = ""
    minimum: float = 0.0
    maximum: float = 5.0
    lower_is_better: bool = False


class Score(NamedTuple):
    """A score on the scale of its criterion, and the reason."""

    score: float
    reason: str


class Preference(NamedTuple):
    """Which of two answers is better: `first`, `second` (as shown) or `tie`."""

    winner: str
    reason: str


_OBSERVERS = {
    Task.SUPPORT: support.OBSERVERS,
    Task.STORY: story.OBSERVERS,
    Task.EXTRACTION: extraction.OBSERVERS,
    Task.CODE: code.OBSERVERS,
}


def task_of_inputs(inputs: Mapping[str, Json]) -> Task:
    """Return the task whose cases have these inputs."""
    for task in _OBSERVERS:
        if task_data(task).inputs <= inputs.keys():
            return task
    return Task.OTHER


def observe(sample: AnswerSample) -> dict[str, Observation]:
    """Return how much of each quality an answer shows; nothing for an unknown task."""
    observers, task = _OBSERVERS.get(sample.task), task_data(sample.task)
    if observers is None:
        return {}
    shortened = replace(sample, output=sample.output[:_READ_CHARS])
    material = observers.read(shortened)
    if material is None:
        seen = dict.fromkeys(observers.qualities, Observation(0.0, task.nothing))
    else:
        seen = {name: observer(material) for name, observer in observers.qualities.items()}
    if seen["guard"].value < 1:
        for name, factor in task.spoiled.items():
            seen[name] = Observation(seen[name].value * factor, seen["guard"].remark)
    share = _on_topic(shortened) if sample.task in _WRITTEN_FOR_SOMEBODY else 1.0
    if share == 1.0:
        return seen
    return {name: Observation(share * quality.value, _STRAY) for name, quality in seen.items()}


_WRITTEN_FOR_SOMEBODY = (Task.SUPPORT, Task.STORY)
"""Tasks whose observers look at the form of a text, which nonsense has as well."""
_ON_TOPIC = (0.15, 0.4)
"""What is left of a text with no word and with one word of what was asked."""
_STRAY = "has little to do with what was asked"
_ROOT = 5
"""Letters by which two words count as the same."""


def _on_topic(sample: AnswerSample) -> float:
    """Return which share of a text counts, by the words that it has in common with its case."""
    inputs = sample.inputs
    asked = _roots(" ".join(strings_in(inputs))) | {*split_words(sample.text("customer_name"))}
    shared = asked & (_roots(sample.output) | {*split_words(sample.output)})
    return 1.0 if len(shared) >= min(2, len(asked)) else _ON_TOPIC[len(shared)]


def _roots(text: str) -> set[str]:
    words, common = split_words(text[:MAX_CHARS]), _common_words()
    return {word[:_ROOT] for word in words if len(word) > 3 and word not in common}


@cache
def _common_words() -> frozenset[str]:
    return frozenset(load_data("judging")["common_words"].split())


def score(
    sample: AnswerSample, criteria: Sequence[Criterion], rng: Random, *, noise: float = 0.05
) -> dict[str, Score]:
    """Return the score of each criterion, from the text alone.

    `noise` is a standard deviation as a share of the scale. Scores are rounded to the steps of the
    scale at random in proportion, so that rounding does not bias the mean.
    """
    seen = observe(sample)
    scores: dict[str, Score] = {}
    for criterion in criteria:
        value, remark = _quality(sample, criterion, seen)
        share = clamp(CEILING * value + rng.gauss(0.0, noise))
        if criterion.lower_is_better:
            share = 1.0 - share
        scores[criterion.name] = Score(_on_scale(criterion, share, rng), remark)
    return scores


def pairwise(
    answers: tuple[AnswerSample, AnswerSample],
    criteria: Sequence[Criterion],
    rng: Random,
    *,
    noise: float = 0.05,
    position_bias: float = 0.0,
) -> Preference:
    """Return which of two answers to one case is better, in the order in which they are shown.

    `position_bias` is added to the chance that the first one wins.
    """
    first, second = answers
    value, other = (_overall(sample, criteria) + rng.gauss(0.0, noise) for sample in answers)
    chance = clamp(1.0 / (1.0 + math.exp(-_EAGERNESS * (value - other))) + position_bias)
    draw = rng.random()
    if abs(draw - chance) < _TIE * (1.0 - 2.0 * abs(0.5 - chance)):
        return Preference("tie", "both do the same well")
    winner = "first" if draw < chance else "second"
    better, worse = (first, second) if winner == "first" else (second, first)
    return Preference(winner, _difference(better, worse, criteria))


def _overall(sample: AnswerSample, criteria: Sequence[Criterion]) -> float:
    seen = observe(sample)
    if not criteria:
        return mean_or_none([value.value for value in seen.values()]) or 0.0
    return mean([_quality(sample, criterion, seen).value for criterion in criteria])


def _difference(better: AnswerSample, worse: AnswerSample, criteria: Sequence[Criterion]) -> str:
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


def _quality(
    sample: AnswerSample, criterion: Criterion, seen: Mapping[str, Observation]
) -> Observation:
    """Return how well an answer meets a criterion, with the remark on its greatest loss."""
    parts = _qualities_of(sample.task, criterion)
    if not parts or not seen:
        return quality(sample, criterion.name, criterion.description)
    value = weighted_mean([(weight, seen[name].value) for name, weight in parts.items()])
    losses = {name: weight * (1 - seen[name].value) for name, weight in parts.items()}
    return Observation(value or 0.0, seen[max(losses, key=lambda name: losses[name])].remark)


def _qualities_of(task: Task, criterion: Criterion) -> Mapping[str, float]:
    """Return the weights of the qualities of a criterion, by its name or its description."""
    criteria = task_data(task).criteria
    name = criterion.name.lower().strip()
    if name in criteria:
        return criteria[name].weights
    for text in (name, criterion.description.lower()):
        for similar in criteria.values():
            if similar.alias.search(text):
                return similar.weights
    return {}


def _on_scale(criterion: Criterion, share: float, rng: Random) -> float:
    low, high = criterion.minimum, criterion.maximum
    step = _step(high - low)
    steps = (high - low) * share / step
    whole = math.floor(steps)
    rounded = whole + (rng.random() < steps - whole)
    return min(high, max(low, round(low + rounded * step, 6)))


def _step(width: float) -> float:
    """Return the step between two scores of a judge on a scale of this width."""
    if width <= 1:
        return width / 10 or 1.0
    return 0.5 if width <= 10 else 1.0


# Scores of questions use the text alone: whether something is asked, its length, the words shared
# with the objective, and unusual words. That is enough to try out the command.
_FEW, _MANY = 3, 200


def question_scores(
    inputs: Mapping[str, Json],
    objective: str,
    criteria: Sequence[Criterion],
    rng: Random,
    *,
    noise: float,
) -> str:
    """Return the reply of the simulated judge to a case as a question."""
    text = " ".join(strings_in(dict(inputs)))[:MAX_CHARS]
    seen = _observe_question(text, objective)
    scores = {}
    for criterion in criteria:
        value, remark = _observation_for(criterion, seen, split_words(text))
        share = clamp(value + rng.gauss(0.0, noise))
        width = criterion.maximum - criterion.minimum
        score = rounded(criterion.minimum + width * share, 0 if width > 1 else 1)
        scores[criterion.name] = {"reason": remark, "score": score}
    return json.dumps({"scores": scores}, ensure_ascii=False)


def _observe_question(text: str, objective: str) -> dict[str, Observation]:
    words = split_words(text)
    count, topic = len(words), {word for word in split_words(objective) if len(word) > 3}
    long = {word for word in words if len(word) > 7}
    shared = len(topic & set(words))
    tricks = len(_matches("tricks", text))
    if count < _FEW:
        clarity = Observation(0.1, f"{count} words say hardly anything")
    elif data_pattern("judging", "asks").search(text):
        remark = f"something is asked, in {count} words"
        clarity = Observation(0.85 if count <= _MANY else 0.6, remark)
    else:
        clarity = Observation(0.5, "nothing is asked outright")
    seen = {
        "clarity": clarity,
        "difficulty": Observation(
            clamp(0.15 + count / 250 + 0.12 * tricks), f"{count} words, {tricks} catches"
        ),
        "relevance": Observation(
            clamp(0.45 + 0.12 * shared), f"shares {shared} words with the objective"
        ),
        "originality": Observation(
            clamp(0.25 + 0.03 * len(long) + 0.1 * tricks), f"{len(long)} unusual words"
        ),
    }
    overall = mean([seen[name].value for name in ("clarity", "relevance", "originality")])
    seen["overall"] = Observation(overall, "as clear, relevant and original as that")
    return seen


def _observation_for(
    criterion: Criterion, seen: Mapping[str, Observation], words: Sequence[str]
) -> Observation:
    """Return the observation of a criterion; that of the whole for an unknown one."""
    name = criterion.name.lower().strip()
    if name == "statement":
        sentence = criterion.description.partition(": ")[2]
        common = len({word for word in split_words(sentence) if len(word) > 3} & set(words))
        value = clamp(0.3 + 0.2 * common)
        return Observation(value, f"shares {counted(common, 'word')} with the sentence")
    return seen.get(name, seen["overall"])


PACE = Pace(240.0, 6.0)
_CRITERIA = "Criteria:\n\n["
_CHOICE = re.compile(r"\b(yes or no|pass or fail|true or false)\b", re.I)
_RANGE = re.compile(r"\b(\d{1,3})\s?(?:-|to|and)\s?(\d{1,3})\b")
_ANSWER = re.compile(
    r"^.{0,40}\b(?:output|answer|reply|response|text|story|email|e-mail)\b.{0,20}:[ \t]*",
    re.I | re.M,
)


def judge_reply(request: Request, options: SimOptions | None = None) -> Completion:
    """Return the reply of the simulated judge, decided by the request's hash and the seed."""
    options = options or SimOptions()
    rng = random_stream(draw_key(request), options.seed, "judge")
    reply = _reply(request, options, rng)
    return make_completion(request, options, reply, PACE, rng)


def _reply(request: Request, options: SimOptions, rng: Random) -> str:
    message = next((m.content for m in reversed(request.messages) if m.role == "user"), "")
    system = "\n".join(m.content for m in request.messages if m.role == "system")
    blocks = parse_blocks(message)
    if blocks is None:
        return _grader_reply(request, rng, options.noise)
    inputs = {block.name: block.value for block in blocks if block.tag == "input"}
    texts = {block.tag: block.text for block in blocks if block.tag != "input"}
    answers = {
        tag: AnswerSample(task_of_inputs(inputs), inputs, texts[tag])
        for tag in ("answer", "first", "second")
        if tag in texts
    }
    criteria = criteria_in(system)
    if "answer" in answers:
        return _scores_reply(answers["answer"], criteria, rng, options.noise)
    if "first" in answers and "second" in answers:
        winner, reason = pairwise(
            (answers["first"], answers["second"]),
            criteria,
            rng,
            noise=options.noise,
            position_bias=options.position_bias,
        )
        return json.dumps({"reason": reason, "winner": winner}, ensure_ascii=False)
    text = texts.get("text", "")
    if criteria:
        return question_scores(inputs, text, criteria, rng, noise=options.noise)
    return _screening_reply(text, rng)


def criteria_in(message: str) -> list[Criterion]:
    """Return the criteria that a message lists as JSON after `Criteria:`."""
    _, heading, rest = message.rpartition(_CRITERIA)
    if not heading:
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


def _scores_reply(
    sample: AnswerSample, criteria: Sequence[Criterion], rng: Random, noise: float
) -> str:
    scores = score(sample, criteria, rng, noise=noise)
    entries = {name: {"reason": s.reason, "score": s.score} for name, s in scores.items()}
    signs = {"toxicity": "rude", "jailbreak": "steering"}
    flags = [flag for flag, pattern in signs.items() if _matches(pattern, sample.output)]
    return json.dumps({"scores": entries, "flags": flags}, ensure_ascii=False)


def _screening_reply(text: str, rng: Random) -> str:
    hits = len(_matches("rude", text))
    value = clamp((0.03 if hits == 0 else 0.6 + 0.15 * hits) + rng.gauss(0.0, 0.02))
    reason = f"{hits} rude words" if hits else "nothing found"
    return json.dumps({"reason": reason, "score": rounded(value, 3)})


def _grader_reply(request: Request, rng: Random, noise: float) -> str:
    """Return the reply to a grader prompt, in the form that it seems to ask for."""
    assignment = read_assignment(request.messages)
    message = assignment.message
    labels = list(_ANSWER.finditer(message[:MAX_CHARS]))
    output = message[labels[-1].end() :] if labels else message
    sample = AnswerSample(task_of_inputs(assignment.inputs), assignment.inputs, output)
    seen = quality(sample, "", assignment.instructions[:2_000])
    share = clamp(CEILING * seen.value + rng.gauss(0.0, noise))
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
    for match in _RANGE.finditer(asked[:MAX_CHARS]):
        low, high = float(match[1]), float(match[2])
        if low in (0, 1) and high in (1, 3, 5, 10, 100) and low < high:
            return low, high
    return 0.0, 1.0
