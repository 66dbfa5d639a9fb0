"""A model as a judge: its parameters and requests, and a retry after an unusable reply."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from edison_ci._dataclass import dataclass
from edison_ci.checks.evaluation import EvaluationError
from edison_ci.checks.time_limit import run_limited
from edison_ci.config.models import sent_params
from edison_ci.contracts import CallError
from edison_ci.judges.replies import Failure, Missing, Outcome, call_failure
from edison_ci.records import Completion, Json, Message, Request

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from edison_ci.config.models import Model

Ask = Callable[[str, Request], Awaitable[Completion]]
"""Takes the name of a model and a request. Raises CallError if there is no answer; any other error,
such as an exhausted budget, ends the judging of this answer."""

JUDGE_PARAMS: dict[str, Any] = {"temperature": 0.3, "seed": 42, "max_tokens": 4096}
"""Defaults of judges, for parameters that the provider accepts and models.yaml does not set."""
JSON_MODE = frozenset({"openai", "azure", "openai_compatible", "ollama", "vertex", "local", "sim"})
"""Providers with a JSON mode. Behind litellm it depends on the vendor, which is unknown."""
JSON_OBJECT: Json = {"type": "json_object"}

Value = TypeVar("Value")
Other = TypeVar("Other")


@dataclass(frozen=True, slots=True)
class Judge:
    """A model that judges, with its parameters."""

    model: Model
    params: Mapping[str, Any]
    left_out: tuple[str, ...] = ()
    """Parameters that are written and not sent, because the model does not accept them."""

    @property
    def name(self) -> str:
        """Its name in models.yaml."""
        return self.model.name

    @classmethod
    def of(cls, model: Model, written: Mapping[str, Any] | None = None) -> Judge:
        """Return a model as a judge; `written` are parameters of the front matter of a grader."""
        defaults = dict(JUDGE_PARAMS)
        chosen = {**model.params, **(written or {})}
        if "top_p" in chosen:  # some models refuse both parameters
            defaults.pop("temperature")
        return cls(model, *sent_params(model, chosen, defaults))

    def request(
        self, messages: tuple[Message, ...], *, form: Json = JSON_OBJECT, schema: Json = None
    ) -> Request:
        """Return the request; `form` is JSON unless a grader prompt has another one.

        A model that can be held to a `schema` is; for the others the prompt describes the form.
        """
        if form is JSON_OBJECT and schema is not None and self.model.capabilities.schema:
            form = _strict(schema)
        elif form is JSON_OBJECT and self.model.provider not in JSON_MODE:
            form = None
        return Request(
            provider=self.model.provider,
            endpoint=self.model.endpoint,
            model=self.model.model,
            messages=messages,
            params=self.params,
            left_out=self.left_out,
            response_format=form,
        )


def _strict(schema: Json) -> Json:
    form: Json = {"name": "verdict", "strict": True, "schema": schema}
    return {"type": "json_schema", "json_schema": form}


async def ask_with_retry(
    ask: Ask, judge: Judge, request: Request, read: Callable[[Completion], Outcome[Value]]
) -> Outcome[Value]:
    """Return the outcome of a judge; after an unusable reply it is asked once more.

    The second reply always counts: choosing the better of two would bias the scores.
    """
    outcome: Outcome[Value] = Outcome(None)
    for attempt in (request, None):
        if attempt is None:
            assert outcome.failure is not None
            attempt = retry_request(request, outcome.failure.reason)
        try:
            completion = await ask(judge.name, attempt)
        except CallError as error:
            return Outcome(None, call_failure(error))
        try:
            outcome = run_limited("reading the reply", partial(read, completion))
        except EvaluationError as error:
            return Outcome(None, Failure(Missing.JUDGE_ERROR, str(error)))
        if outcome.failure is None:
            break
    return outcome


def retry_request(request: Request, reason: str) -> Request:
    """Return the request with a note on the problem, without the text of the bad reply."""
    *before, last = request.messages
    note = f"Your last reply could not be used: {reason}. Reply in the form asked for, no more."
    return replace(request, messages=(*before, Message(last.role, f"{last.content}\n\n{note}")))


async def run_concurrently(tasks: Sequence[Coroutine[Any, Any, Value]]) -> list[Value]:
    """Return the results of all tasks; the first error cancels the others and is raised."""
    if len(tasks) == 1:
        return [await tasks[0]]
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(task) for task in tasks]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in running]


async def run_both(
    task: Coroutine[Any, Any, Value], other_task: Coroutine[Any, Any, Other]
) -> tuple[Value, Other]:
    """Return the results of two tasks of different types that run concurrently."""
    try:
        async with asyncio.TaskGroup() as group:
            first, second = group.create_task(task), group.create_task(other_task)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return first.result(), second.result()
