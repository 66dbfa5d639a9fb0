"""What the tests of the simulator share: the examples, and a way to ask about their cases."""

from __future__ import annotations

import re
from functools import cache
from random import Random
from typing import TYPE_CHECKING

from benchmarks.sim import NAMES, Case, Example, load, messages_of
from edison_ci.features.simulator.assignment import (
    AnswerDraft,
    AnswerSample,
    Assignment,
    KnownCase,
    Observation,
)
from edison_ci.features.simulator.judge import observe, task_of_inputs
from edison_ci.features.simulator.options import SimOptions
from edison_ci.features.simulator.provider import WRITERS, generate
from edison_ci.features.simulator.tasks import Stance, Task, task_data, understanding_of
from edison_ci.records import Completion, Message, Request

if TYPE_CHECKING:
    from edison_ci.records import Json

TASKS = {
    "customer-support": Task.SUPPORT,
    "creative-writing": Task.STORY,
    "data-extraction": Task.EXTRACTION,
    "code-generation": Task.CODE,
}
assert tuple(TASKS) == NAMES
PARAMS: dict[str, Json] = {"temperature": 1.0, "max_tokens": 4096}

example = cache(load)


def request(
    message: str, *, system: str = "", model: str = "small", repeat: int = 0, **params: Json
) -> Request:
    """Return a request with one user message."""
    messages = [Message("system", system)] if system else []
    messages.append(Message("user", message))
    return Request("sim", "", model, tuple(messages), params or PARAMS, repeat=repeat)


def asked(prompt: str, case: Case, *, model: str = "small", repeat: int = 0) -> Request:
    """Return the request for a case of an example."""
    return Request("sim", "", model, messages_of(prompt, case), PARAMS, repeat=repeat)


def answer(prompt: str, case: Case, *, repeat: int = 0) -> Completion:
    """Return the answer to a case of an example."""
    return generate(asked(prompt, case, repeat=repeat), SimOptions())


def seen(case: Case, output: str) -> dict[str, Observation]:
    """Return what a judge sees in an answer."""
    return observe(AnswerSample(task_of_inputs(case.inputs), case.inputs, output))


def asked_for(task: Task, instructions: str) -> frozenset[str]:
    """Return the features that the instructions ask for without taking it back."""
    stances = understanding_of(task, instructions).stances
    return frozenset(name for name, stance in stances.items() if stance is Stance.ASKED)


def variables_of(text: str) -> list[str]:
    """Return every template expression of a prompt, in order."""
    return re.findall(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", text)


def with_line(prompt: str, line: str) -> str:
    """Return the prompt with one more line of instruction."""
    return prompt.replace("# user\n", f"# user\n{line}\n", 1)


def written(case: KnownCase, *, without: str = "", seed: int = 1) -> str:
    """Return an answer to a known case that has every quality, or all but one."""
    names = [feature.name for feature in task_data(case.task).features]
    has = {name: name != without for name in names}
    assignment = Assignment(case.task, case.inputs, "You write for Kettle & Crag.", "", case)
    return WRITERS[case.task](AnswerDraft(assignment, has, Random(seed), 0.0))


def example_of(task: Task) -> Example:
    """Return the example of a task."""
    return example(next(name for name, its in TASKS.items() if its is task))
