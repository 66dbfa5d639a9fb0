"""Judges asked, and asked again when a reply cannot be used."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from edison_ci._dataclass import dataclass
from edison_ci.checks.evaluation import EvaluationError
from edison_ci.checks.time_limit import limited
from edison_ci.config.model_entry import takes
from edison_ci.contracts import CallError
from edison_ci.judges.replies import Failure, Missing, Outcome, failed_call
from edison_ci.records import Completion, Json, Message, Request

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from edison_ci.config.models import Model

Ask = Callable[[str, Request], Awaitable[Completion]]
"""Takes the name of a model and a request. Raises CallError when there is no answer; whatever else
it raises, such as an exhausted budget, ends the judging of this answer."""

JUDGE_PARAMS: dict[str, Any] = {"temperature": 0.3, "seed": 42, "max_tokens": 4096}
"""How judges sample where their provider takes it and models.yaml says nothing else."""
JSON_MODE = frozenset({"openai", "azure", "openai_compatible", "ollama", "vertex", "local", "sim"})
"""Providers with a JSON mode of their own. Behind litellm there may be anybody."""
JSON_OBJECT: Json = {"type": "json_object"}

Value = TypeVar("Value")
Other = TypeVar("Other")


def judge_params(model: Model, written: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what a judge is sent: prompt over models.yaml over the defaults of judges."""
    said = {**model.params, **(written or {})}
    taken = takes(model.provider)
    defaults = {key: value for key, value in JUDGE_PARAMS.items() if key in taken}
    if "top_p" in said:  # it is meant to sample by that; some models refuse both
        defaults.pop("temperature", None)
    return {**defaults, **said}


@dataclass(frozen=True, slots=True)
class Judge:
    """A model that judges, with the parameters it is sent."""

    model: Model
    params: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its name in models.yaml."""
        return self.model.name

    @classmethod
    def of(cls, model: Model, written: Mapping[str, Any] | None = None) -> Judge:
        """Return a model as a judge; `written` are parameters of a grader's front matter."""
        return cls(model, judge_params(model, written))

    def request(self, messages: tuple[Message, ...], *, form: Json = JSON_OBJECT) -> Request:
        """Return the call; `form` is JSON unless a grader prompt has a form of its own."""
        if form is JSON_OBJECT and self.model.provider not in JSON_MODE:
            form = None
        return Request(
            provider=self.model.provider,
            endpoint=self.model.endpoint,
            model=self.model.model,
            messages=messages,
            params=self.params,
            response_format=form,
        )


async def ask_twice(
    ask: Ask, judge: Judge, request: Request, read: Callable[[Completion], Outcome[Value]]
) -> Outcome[Value]:
    """Return what a judge says; a reply with something wrong in it is asked for once more.

    The second reply counts, whatever it is: choosing the better of two would be fishing.
    """
    outcome: Outcome[Value] = Outcome(None)
    for attempt in (request, None):
        if attempt is None:
            assert outcome.failure is not None
            attempt = again(request, outcome.failure.reason)
        try:
            completion = await ask(judge.name, attempt)
        except CallError as error:
            return Outcome(None, failed_call(error))
        try:
            outcome = limited("reading the reply", partial(read, completion))
        except EvaluationError as error:
            return Outcome(None, Failure(Missing.JUDGE_ERROR, str(error)))
        if outcome.failure is None:
            break
    return outcome


def again(request: Request, reason: str) -> Request:
    """Return the request with a note on what was wrong; nothing of the bad reply is repeated."""
    *before, last = request.messages
    note = f"Your last reply could not be used: {reason}. Reply in the form asked for, no more."
    return replace(request, messages=(*before, Message(last.role, f"{last.content}\n\n{note}")))


async def side_by_side(tasks: Sequence[Coroutine[Any, Any, Value]]) -> list[Value]:
    """Return the results of all; the first error cancels the others and is raised as it is."""
    if len(tasks) == 1:
        return [await tasks[0]]
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(task) for task in tasks]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in running]


async def both(
    one: Coroutine[Any, Any, Value], other: Coroutine[Any, Any, Other]
) -> tuple[Value, Other]:
    """Return the results of two tasks that run at the same time."""
    try:
        async with asyncio.TaskGroup() as group:
            first, second = group.create_task(one), group.create_task(other)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return first.result(), second.result()
