"""The simulator as a provider, and its models `small`, `large`, `echo` and `script`.

`small` and `large` write answers whose qualities depend on the instructions in the prompt.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from edison_ci._dataclass import dataclass
from edison_ci.checks.evaluation import EvaluationError
from edison_ci.checks.patterns import search
from edison_ci.checks.time_limit import run_limited
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.documents import files
from edison_ci.documents.decoding import decode
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault as TextFault
from edison_ci.errors import Location, UsageError
from edison_ci.features.simulator import code_task as code
from edison_ci.features.simulator import extraction_task as extraction
from edison_ci.features.simulator import story_task as story
from edison_ci.features.simulator import support_task as support
from edison_ci.features.simulator.assignment import AnswerDraft, read_assignment
from edison_ci.features.simulator.assistant import assist
from edison_ci.features.simulator.judge import judge_reply
from edison_ci.features.simulator.options import (
    Fault,
    Pace,
    SimOptions,
    break_text,
    case_normals,
    count_message_tokens,
    count_tokens,
    draw_breakage,
    draw_failure,
    draw_key,
    logit,
    make_completion,
    normal_cdf,
    probability_of,
    random_stream,
)
from edison_ci.features.simulator.refiner import refine
from edison_ci.features.simulator.tasks import Stance, Task, task_data, understanding_of
from edison_ci.records import Completion, FinishReason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
    from random import Random

    from edison_ci.documents.files import Tree
    from edison_ci.features.simulator.assignment import Assignment
    from edison_ci.features.simulator.tasks import Feature
    from edison_ci.records import Json, Request

    Answerer = Callable[[Request, SimOptions], Completion | Fault]


@dataclass(frozen=True, slots=True)
class Skill:
    """The quality, verbosity and speed of a model."""

    lift: float
    """Added to the log odds of all qualities."""
    courtesy: float
    """Probability of an extra sentence."""
    mishaps: float
    """Probability of an empty answer or a refusal."""
    pace: Pace


SKILLS = {
    "small": Skill(lift=0.0, courtesy=0.25, mishaps=0.006, pace=Pace(180.0, 5.0)),
    "large": Skill(lift=0.28, courtesy=0.85, mishaps=0.003, pace=Pace(420.0, 13.0)),
}


@dataclass(frozen=True, slots=True)
class AnswerNoise:
    """The randomness of one answer."""

    rng: Random
    seed: int
    temperature: float = 1.0

    def of(self, leaning: float) -> float:
        """Return a standard normal number that is correlated with that of the case."""
        steady = min(0.9, max(0.1, 0.9 - 0.25 * self.temperature))
        return _mix(leaning, self.rng.gauss(0, 1), steady)


_CONFUSED = 2.2
"""Log odds that a hardly readable prompt costs."""
_COMMON = 0.18
"""Share of the variance that all qualities of an answer have in common."""


def draw_qualities(assignment: Assignment, skill: Skill, luck: AnswerNoise) -> dict[str, bool]:
    """Return which qualities the answer has.

    Part of the randomness belongs to the case and not to the prompt, as hard cases are hard for
    every wording; with a higher temperature more of it belongs to the single answer. That does not
    change the probabilities.
    """
    features = task_data(assignment.task).features
    understanding = understanding_of(assignment.task, assignment.instructions)
    shift = skill.lift - _CONFUSED * understanding.confusion - hardness(assignment)
    own = case_normals("case", assignment.key, luck.seed, count=len(features) + 1)
    common = luck.of(own[-1])
    drawn: dict[str, bool] = {}
    for feature, lean in zip(features, own, strict=False):
        chance = probability_of(
            logit(_chance(feature, understanding.stances[feature.name])) + shift
        )
        drawn[feature.name] = normal_cdf(_mix(common, luck.of(lean), _COMMON)) < chance
    return drawn


def hardness(assignment: Assignment) -> float:
    """Return the log odds that a case costs."""
    return 0.1 * (assignment.difficulty - 2) + (0.25 if assignment.adversarial else 0.0)


def _mix(first: float, second: float, share: float) -> float:
    """Return a standard normal number made of two; `share` is the variance of the first."""
    return float(share**0.5 * first + (1 - share) ** 0.5 * second)


def _chance(feature: Feature, stance: Stance) -> float:
    if stance is Stance.ASKED:
        return feature.chance_if_asked
    if stance is Stance.AGAINST:
        return feature.chance_if_silent * 0.35
    return feature.chance_if_silent


_NAME = re.compile(r"(?<=[a-z,] )[A-Z][\w'-]+")
_SALIENT = re.compile(r"\"([^\"\n]{2,60})\"|\b(\d[\d.,:%-]*\d|\d)\b|(?<=[a-z,:] )([A-Z][\w'-]+)")
_SPOKEN = re.compile(r"[^\W\d_][\w'-]*")
_GREETING = re.compile(r"\b(?:hello|greet|welcome|good morning)\b", re.I)
_CHOICE = re.compile(r"\b(yes or no|true or false|positive or negative)\b", re.I)
_JSON = re.compile(r"\bjson\b", re.I)
_READ_CHARS = 4_000
_TEXTS = task_data(Task.OTHER).texts


def write(writing: AnswerDraft) -> str:
    """Return a short answer about the topic of the message."""
    message = writing.assignment.message[:_READ_CHARS]
    if choice := _CHOICE.search(message):
        return writing.pick(choice[1].lower().split(" or ")).capitalize()
    if _GREETING.search(message):
        names = _NAME.findall(message)
        return writing.pick(_TEXTS["hello"]).format(name=names[0] if names else "and welcome")
    salient = list(dict.fromkeys("".join(groups) for groups in _SALIENT.findall(message)))[:4]
    topic = ", ".join(salient) or " ".join(_SPOKEN.findall(message)[-3:]) or "this"
    answer = writing.pick(_TEXTS["answers"]).format(topic=topic)
    return json.dumps({"answer": answer}, ensure_ascii=False) if _JSON.search(message) else answer


WRITERS = {
    Task.SUPPORT: support.write,
    Task.STORY: story.write,
    Task.EXTRACTION: extraction.write,
    Task.CODE: code.write,
    Task.OTHER: write,
}
_RESPONSE_TAGS = re.compile(r"<response>", re.IGNORECASE)


def generate(request: Request, options: SimOptions | None = None) -> Completion:
    """Return the answer of `small` or `large`, determined by request hash and seed.

    The model sees the rendered messages only. Faults are added elsewhere, by `draw_failure` and
    `draw_breakage`.
    """
    options = options or SimOptions()
    skill = SKILLS.get(request.model)
    if skill is None:
        raise UsageError(
            f"the simulator has no generating model {request.model!r}",
            hint=f"use {', '.join(SKILLS)}, echo or script",
        )
    rng = random_stream(draw_key(request), options.seed, "generate")
    text = _answer(request, options, skill, rng)
    return make_completion(request, options, text, skill.pace, rng)


def _answer(request: Request, options: SimOptions, skill: Skill, rng: Random) -> str:
    assignment = read_assignment(request.messages)
    luck = AnswerNoise(rng, options.seed, _temperature(request.params))
    has = draw_qualities(assignment, skill, luck)
    if rng.random() < skill.mishaps * (3 if assignment.adversarial else 1):
        return "" if rng.random() < 0.35 else rng.choice(_TEXTS["refusals"])
    text = WRITERS[assignment.task](AnswerDraft(assignment, has, rng, skill.courtesy))
    if _RESPONSE_TAGS.search(assignment.instructions):
        return f"<response>\n{text}\n</response>"
    return text


def _temperature(params: Mapping[str, Json]) -> float:
    value = params.get("temperature", 1.0)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 1.0


@dataclass(frozen=True, slots=True)
class ScriptLine:
    """One line of a script: what to match in a request, and what to answer."""

    match: str
    """A text in the messages, or `/pattern/`; empty matches every request."""
    text: str = ""
    finish_reason: FinishReason = FinishReason.STOP
    latency_ms: int = 0
    error: str = ""
    """An error kind such as RATE_LIMIT; then there is no answer."""

    def fits(self, text: str) -> bool:
        """Whether the line matches the messages of a request."""
        if len(self.match) > 2 and self.match.startswith("/") and self.match.endswith("/"):
            try:
                return search(self.match[1:-1], text) is not None
            except EvaluationError as error:
                raise UsageError(f"a row of the script cannot be matched: {error}") from None
        return self.match in text


def parse_script(rows: Iterable[Mapping[str, Json]]) -> tuple[ScriptLine, ...]:
    """Return the lines of a script; raises UsageError that names the row."""
    return tuple(_line(number, row) for number, row in enumerate(rows, start=1))


def _line(number: int, row: Mapping[str, Json]) -> ScriptLine:
    unknown = sorted(set(row) - {"match", "text", "finish_reason", "latency_ms", "error"})
    if unknown:
        raise UsageError(f"script row {number} has an unknown key {unknown[0]!r}")
    match, text, error = row.get("match", ""), row.get("text", ""), row.get("error", "")
    latency_ms = row.get("latency_ms", 0)
    if not (isinstance(match, str) and isinstance(text, str) and isinstance(error, str)):
        raise UsageError(f"script row {number}: match, text and error must be strings")
    if not isinstance(latency_ms, int | float) or isinstance(latency_ms, bool) or latency_ms < 0:
        raise UsageError(f"script row {number}: latency_ms must be a number from 0")
    try:
        reason = FinishReason(str(row.get("finish_reason", "stop")))
        line = ScriptLine(match, text, reason, int(latency_ms), error)
        line.fits("")
    except (ValueError, UsageError) as problem:
        raise UsageError(f"script row {number}: {problem}") from None
    return line


def echo(request: Request) -> Completion:
    """Return the last user message as the answer."""
    texts = [message.content for message in request.messages if message.role == "user"]
    text = texts[-1] if texts else ""
    return _completion(request, text, FinishReason.STOP, 0)


def script(request: Request, lines: Sequence[ScriptLine]) -> Completion | Fault:
    """Return the answer, or the fault, of the first line that fits the request."""
    text = "\n".join(message.content for message in request.messages)
    for line in lines:
        if line.fits(text):
            if line.error:
                return Fault(line.error, line.text or f"scripted: {line.error}")
            return _completion(request, line.text, line.finish_reason, line.latency_ms)
    return Fault("BAD_REQUEST", "no line of the script fits this request")


def _completion(request: Request, text: str, reason: FinishReason, latency_ms: int) -> Completion:
    return Completion(
        text,
        reason,
        tokens_in=count_message_tokens(request.messages),
        tokens_out=count_tokens(text),
        latency_ms=latency_ms,
        served_model=f"sim/{request.model}",
    )


MAX_SCRIPT_BYTES = 10_000_000


def _echo(request: Request, _: SimOptions) -> Completion:
    return echo(request)


ANSWERERS: Mapping[str, Answerer] = {
    "small": generate,
    "large": generate,
    "judge": judge_reply,
    "refiner": refine,
    "assistant": assist,
    "echo": _echo,
}
"""The models of the simulator that need no file."""


class SimulatedProvider:
    """A model of the simulator as a provider."""

    def __init__(
        self,
        options: SimOptions,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        *,
        answerer: Answerer | None = None,
    ) -> None:
        self._options, self._sleep, self._answerer = options, sleep, answerer
        self._attempts: Counter[str] = Counter()

    async def complete(self, request: Request) -> Completion:
        """Return a simulated answer, or raise a simulated error."""
        if self._options.error_rate > 0:
            attempt = self._attempts[request.request_hash]
            self._attempts[request.request_hash] += 1
            fault = draw_failure(request, self._options, attempt=attempt)
            if fault is not None:
                raise _error(fault)
        answerer = self._answerer or ANSWERERS.get(request.model, generate)
        try:
            completion = run_limited("the simulator", lambda: answerer(request, self._options))
        except EvaluationError as error:  # it parses a prompt, which may be hostile
            raise CallError(ErrorKind.BAD_RESPONSE, str(error), charged=False) from None
        if isinstance(completion, Fault):
            raise _error(completion)
        if self._options.latency_ms > 0:
            await self._sleep(completion.latency_ms / 1000)
        how = draw_breakage(request, self._options)
        if how is None:
            return completion
        rng = random_stream(draw_key(request), self._options.seed, "broken")
        return replace(completion, text=break_text(completion.text, how, rng))


def simulated_model(name: str, options: Mapping[str, Json], tree: Tree) -> SimulatedProvider | None:
    """Return a model of the simulator by name; None if the name is unknown."""
    settings = SimOptions.from_mapping(options)
    if name in ANSWERERS:
        return SimulatedProvider(settings)
    if name == "script" and settings.file is not None:
        return SimulatedProvider(settings, answerer=script_answerer(settings.file, tree))
    return None


def script_answerer(path: str, tree: Tree) -> Answerer:
    """Return the model `script`, which answers from a JSONL file of the project."""
    try:
        text = decode(files.read(tree, path, max_bytes=MAX_SCRIPT_BYTES))
    except TextFault as fault:
        raise UsageError(fault.message, where=Location(path), hint=fault.hint) from None
    lines = parse_script(_rows(text, path))
    return lambda request, _: script(request, lines)


def _rows(text: str, path: str) -> Iterator[dict[str, Json]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = Location(path, number)
        try:
            row = parse_json(line)
        except TextFault as fault:
            raise UsageError(fault.message, where=where, hint=fault.hint) from None
        if not isinstance(row, dict):
            hint = 'write {"match": "...", "text": "..."}'
            raise UsageError("the line of the script is not an object", where=where, hint=hint)
        yield row


def _error(fault: Fault) -> CallError:
    try:
        kind = ErrorKind(fault.kind)
    except ValueError:
        message = f"unknown error {fault.kind!r} in a script"
        return CallError(ErrorKind.BAD_REQUEST, message, charged=False)
    return CallError(kind, fault.message, retry_after_s=fault.retry_after_s, charged=False)
