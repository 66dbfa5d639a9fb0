"""Drafts: what a model is asked for, the form of its reply, and the call.

The instructions are a text of the package, or `assist/KIND.md` of the project in its place,
followed by two parts that no project replaces: how material is marked as data, and the schema of
the reply. Their hash is the version of the instructions, which is kept with what is made by them.

A reply that does not fit is asked for once more, with the reason. A reply of the last hour is used
again, so the same question costs once; a person who wants another draft raises the number of the
draft. Where a model cannot be reached, its fallback models are asked in turn. Calls are booked
before they are sent, as every call is, and count against the budgets of the project.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import hashlib
import json
from contextlib import asynccontextmanager
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from edison_ci import utc
from edison_ci._dataclass import dataclass
from edison_ci.config import requirements
from edison_ci.contracts import REFUSED, CallError
from edison_ci.documents import secrets
from edison_ci.errors import CallFailed, EdisonError, UsageError
from edison_ci.execute import standalone
from edison_ci.judges import instructions as judge_instructions
from edison_ci.judges import judge as judge_judge
from edison_ci.judges import replies
from edison_ci.numeric import dollars
from edison_ci.proposals import guardrails
from edison_ci.providers import budget, resilience
from edison_ci.records import Message
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from edison_ci.config.load import Project
    from edison_ci.config.models import Model
    from edison_ci.execute.clients import ClientPool
    from edison_ci.execute.run_options import RunContext
    from edison_ci.judges.instructions import FencedText
    from edison_ci.records import Completion, Json, Request

T = TypeVar("T")

FOLDER = "assist"
"""Folder of the instructions of a project."""
REUSE = dt.timedelta(hours=1)
_TEXTS = Path(__file__).parent / "instructions"
_MOST_TURNS, _APART = 20, 1_000
"""How often stored replies that did not fit are passed over, and the numbers of those turns."""
_GRAMMAR = "local"
"""The provider that holds a model to every part of a schema."""
_LONGEST_TEXT = 300
_SPACES = "\u00a0\u202f\u3000"
"""Spaces that French and Japanese texts have."""
_INNER = 3
"""Items of a list inside an item."""
_SIMULATED = "assistant"
"""The model of the simulator that drafts."""


class DoesNotFit(Exception):
    """A reply has the right form, but not what was asked for."""


@dataclass(frozen=True, slots=True)
class DraftTask(Generic[T]):
    """What a model is asked for, and how its reply is read."""

    name: str
    """That of the instructions."""
    key: str
    """The key that a reply has."""
    schema: Json
    """The schema of the reply."""
    read: Callable[[dict[str, Json]], T]
    """Returns the draft; raises DoesNotFit."""
    material: tuple[FencedText, ...] = ()
    request: str = ""
    """What is asked for, after the material."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the call."""
    items: int = 0
    """How many items a list may have; 0 for any number."""

    def about(self, material: tuple[FencedText, ...], request: str) -> DraftTask[T]:
        """Return the task with what it is about."""
        return replace(self, material=material, request=request)


def list_task(
    name: str,
    key: str,
    item: Mapping[str, Json],
    read: Callable[[list[Json]], T],
) -> DraftTask[T]:
    """Return a task whose reply is a list of items with these keys."""

    def read_list(reply: dict[str, Json]) -> T:
        items = reply[key]
        if not isinstance(items, list):
            raise DoesNotFit(f"{key} is not a list")
        return read(items)

    rows: Json = {"type": "array", "items": replies.object_schema(**item)}
    schema = replies.object_schema(**{key: rows})
    return DraftTask(name, key, schema, read_list)


@dataclass(frozen=True, slots=True)
class Draft(Generic[T]):
    """A draft, by whom, and at what price."""

    value: T
    model: str
    instructions: str
    """The version of the instructions."""
    cost_microusd: int
    bought: int
    """Calls that were made; the others were stored."""
    instead_of: str = ""
    """The model that could not be reached; empty if the first one answered."""

    @property
    def price(self) -> str:
        """What it cost, as a text."""
        return dollars(self.cost_microusd) if self.bought else "stored, no cost"


@cache
def _shipped(name: str) -> str:
    return (_TEXTS / f"{name}.md").read_text(encoding="utf-8").strip()


def instructions_of(project: Project, task: DraftTask[T]) -> str:
    """Return the instructions for a draft: the system message."""
    text = judge_instructions.text_of_project(project.tree, f"{FOLDER}/{task.name}.md")
    form = json.dumps(task.schema, ensure_ascii=False)
    reply = f"Reply with one JSON object of this schema and nothing else:\n\n{form}"
    return "\n\n".join((text or _shipped(task.name), _shipped("material"), reply))


def assistant_of(project: Project, name: str | None) -> list[Model]:
    """Return the model that drafts, and its fallback models."""
    assistant = name or project.file.defaults.assistant or project.file.defaults.refiner
    if assistant is None:
        raise UsageError(
            "no model drafts", hint="name one: --by NAME, or defaults: {assistant: NAME}"
        )
    if assistant not in project.models:
        hint = did_you_mean(assistant, project.models, label="models")
        raise UsageError(f"there is no model {assistant!r}", hint=hint)
    first = project.models[assistant]
    models = [first, *(project.models[fallback] for fallback in first.fallback)]
    return [
        replace(model, model=_SIMULATED) if model.simulated and model.provider == "sim" else model
        for model in models
    ]


@dataclass(frozen=True, slots=True)
class Drafter:
    """Asks a model for drafts."""

    project: Project
    models: Sequence[Model]
    context: RunContext
    purpose: str = FOLDER
    """What the calls are booked for."""
    reuse: dt.timedelta = REUSE
    """How long a reply is used again."""

    @property
    def first(self) -> Model:
        """The model that is asked first; the others are its fallback models."""
        return self.models[0]

    def request(self, model: Model, task: DraftTask[T], number: int = 0) -> Request:
        """Return the call for a draft."""
        instructions = instructions_of(self.project, task)
        params = dict(task.params)  # those of the model are for short answers, not for drafts
        most = params.get("max_tokens", judge_judge.JUDGE_PARAMS["max_tokens"])
        params["max_tokens"] = max(most, model.params.get("max_tokens", 0))
        if "top_p" in model.params:  # some models refuse both parameters
            params.pop("temperature", None)
        judge = judge_judge.Judge.of(model, params)
        message = judge_instructions.fence_message(
            instructions,
            task.material,
            f"The material ends here. {task.request}",
            seed=judge.params.get("seed"),
        )
        messages = (Message("system", instructions), Message("user", message))
        schema = task.schema
        if task.items and model.provider == _GRAMMAR:
            schema = _bounded(schema, task.items)
        return replace(judge.request(messages, schema=schema), repeat=number)

    def draft(self, task: DraftTask[T], number: int = 0) -> Draft[T]:
        """Return a draft; raises CallFailed if no model returns a usable one."""

        async def ask() -> Draft[T]:
            async with self.clients() as clients:
                return await self.first_that_answers(clients, task, number)

        return asyncio.run(ask())

    @asynccontextmanager
    async def clients(self) -> AsyncIterator[ClientPool]:
        """Yield clients that use recent replies again."""
        newer_than = utc.timestamp(self.context.now() - self.reuse)
        async with standalone.standalone_client(
            self.project, None, self.context, purpose=self.purpose, newer_than=newer_than
        ) as clients:
            yield clients

    async def first_that_answers(
        self, clients: ClientPool, task: DraftTask[T], number: int
    ) -> Draft[T]:
        """Return the draft of the first model that answers; raises CallFailed, EdisonError."""
        failures: list[str] = []
        for model in self.models:
            if problems := [*requirements.missing_for_models([model])]:
                failures.append(f"{model.name}: {problems[0].message}")
                continue
            try:
                draft = await self._ask(clients, model, task, number)
            except (CallError, resilience.ClientClosed) as error:
                failures.append(f"{model.name}: {error}")
                if error.kind in REFUSED:
                    break
            except budget.BudgetExhausted as error:
                name = error.refused.cap.name
                raise EdisonError(f"{name} has no room for it", hint=f"raise {name}") from None
            else:
                first = self.first.name
                return replace(draft, instead_of="" if model.name == first else first)
        raise CallFailed("; ".join(failures), hint="see: edison models test")

    async def _ask(
        self, clients: ClientPool, model: Model, task: DraftTask[T], number: int
    ) -> Draft[T]:
        cost = bought = 0
        reason = ""
        for turn in range(_MOST_TURNS):
            request = self.request(model, task, number + turn * _APART)
            for attempt in (request, None):
                answer = await clients.of(model, self.purpose).answer(
                    attempt or judge_judge.retry_request(request, reason)
                )
                cost += answer.cost_microusd if answer.bought else 0
                bought += answer.bought
                value = _read(task, answer.completion)
                if not isinstance(value, DoesNotFit):
                    return Draft(value, model.name, self.version(task), cost, bought)
                reason = str(value)
            if bought:  # replies of the last hour that did not fit are no answer to a new question
                break
        raise CallFailed(
            f"{model.name} returned no usable draft: {reason}",
            hint="try again, or ask another model: --by NAME",
        )

    def version(self, task: DraftTask[T]) -> str:
        """Return the version of the instructions."""
        return hashlib.sha256(instructions_of(self.project, task).encode()).hexdigest()


def _bounded(schema: Any, items: int) -> Any:
    """Return a schema with limits of lists and texts, without which a small model does not end.

    Not all vendors accept the limits.
    """
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "array":
        return {**schema, "maxItems": items, "items": _bounded(schema["items"], _INNER)}
    if schema.get("type") == "string":
        return {**schema, "maxLength": _LONGEST_TEXT}
    properties = schema.get("properties", {})
    inner = {name: _bounded(value, items) for name, value in properties.items()}
    return {**schema, "properties": inner} if inner else schema


class DraftJob(NamedTuple, Generic[T]):
    """One of many drafts."""

    drafter: Drafter
    task: DraftTask[T]
    number: int = 0

    @property
    def call(self) -> tuple[Model, Request]:
        """The first model that is asked, and the request to it."""
        return self.drafter.first, self.drafter.request(self.drafter.first, self.task, self.number)


def draft_all(
    jobs: Sequence[DraftJob[T]],
    budget_microusd: int | None = None,
    on_done: Callable[[Draft[T] | EdisonError], None] = lambda _: None,
) -> list[Draft[T] | EdisonError]:
    """Draft all at once, as many as the models allow; return drafts and errors in the same order.

    `on_done` is called with each as soon as it is there.
    """

    async def ask() -> list[Draft[T] | EdisonError]:
        async with jobs[0].drafter.clients() as clients:
            clients.budget.limit(budget_microusd)

            async def draft(job: DraftJob[T]) -> Draft[T] | EdisonError:
                result: Draft[T] | EdisonError
                try:
                    result = await job.drafter.first_that_answers(clients, job.task, job.number)
                except EdisonError as error:
                    result = error
                on_done(result)
                return result

            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(draft(job)) for job in jobs]
            return [task.result() for task in tasks]

    return asyncio.run(ask()) if jobs else []


def _read(task: DraftTask[T], completion: Completion) -> T | DoesNotFit:
    reply = replies.reply_object(completion, task.key)
    if isinstance(reply, replies.Failure):
        return DoesNotFit(reply.reason)
    try:
        return task.read(reply)
    except DoesNotFit as error:
        return error


def text_of(item: Json, key: str, lengths: tuple[int, int]) -> str:
    """Return a text of an item of a reply; raises DoesNotFit."""
    text = item.get(key) if isinstance(item, dict) else None
    if not isinstance(text, str):
        raise DoesNotFit(f"an item has no text {key!r}")
    text, (fewest, most) = text.strip(), lengths
    if not fewest <= len(text) <= most:
        raise DoesNotFit(f"{key} has {len(text):,} characters; {fewest:,} to {most:,} fit")
    # What a model writes is read by a person before it counts, and that has to be all of it.
    if unseen := guardrails.unseen_in(text, but=f"\n{guardrails.NEEDED}{_SPACES}"):
        raise DoesNotFit(f"{key} has {unseen}, which cannot be seen")
    if secret := next(secrets.secrets_in(text), None):
        raise DoesNotFit(f"{key}: {secret.message}")
    return text
