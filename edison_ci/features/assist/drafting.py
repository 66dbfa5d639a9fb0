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
from edison_ci.documents import decoding, files, marks, secrets
from edison_ci.errors import CallFailed, ConfigError, EdisonError, Location, Problem, UsageError
from edison_ci.execute import standalone
from edison_ci.judges import instructions as judge_instructions
from edison_ci.judges import judge as judge_judge
from edison_ci.judges import replies
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
_MAX_BYTES = 50_000
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
class DraftKind(Generic[T]):
    """What can be drafted."""

    name: str
    """That of its instructions."""
    key: str
    """The key that a reply has."""
    schema: Json
    """The schema of the reply."""
    read: Callable[[dict[str, Json]], T]
    """Returns the draft; raises DoesNotFit."""


def list_kind(name: str, key: str, item: Json, read: Callable[[list[Json]], T]) -> DraftKind[T]:
    """Return the kind of a draft that is a list of items of a schema."""

    def read_list(reply: dict[str, Json]) -> T:
        items = reply[key]
        if not isinstance(items, list):
            raise DoesNotFit(f"{key} is not a list")
        return read(items)

    schema = replies.object_schema(**{key: {"type": "array", "items": item}})
    return DraftKind(name, key, schema, read_list)


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


@cache
def _shipped(name: str) -> str:
    return (_TEXTS / f"{name}.md").read_text(encoding="utf-8").strip()


def instructions_of(project: Project, kind: DraftKind[T]) -> str:
    """Return the instructions for a kind of draft: the system message."""
    path, text = f"{FOLDER}/{kind.name}.md", _shipped(kind.name)
    if project.tree.exists(path):
        try:
            text = decoding.decode(files.read(project.tree, path, max_bytes=_MAX_BYTES)).strip()
        except marks.Fault as fault:
            found = Problem(Location(path), fault.code, fault.message, fault.hint)
            raise ConfigError([found]) from None
        if not text:
            hint = "write instructions, or remove the file to use the default ones"
            raise ConfigError([Problem(Location(path), "empty", f"{path} is empty", hint)])
    form = json.dumps(kind.schema, ensure_ascii=False)
    reply = f"Reply with one JSON object of this schema and nothing else:\n\n{form}"
    return "\n\n".join((text, _shipped("material"), reply))


def assistant_of(project: Project, name: str | None) -> list[Model]:
    """Return the model that drafts, and its fallback models."""
    wanted = name or project.file.defaults.assistant or project.file.defaults.refiner
    if wanted is None:
        raise UsageError(
            "no model drafts", hint="name one: --by NAME, or defaults: {assistant: NAME}"
        )
    if wanted not in project.models:
        hint = did_you_mean(wanted, project.models, label="models")
        raise UsageError(f"there is no model {wanted!r}", hint=hint)
    first = project.models[wanted]
    found = [first, *(project.models[each] for each in first.fallback)]
    return [
        replace(model, model=_SIMULATED) if model.simulated and model.provider == "sim" else model
        for model in found
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

    def request(
        self, model: Model, kind: DraftKind[T], question: Question, number: int = 0
    ) -> Request:
        """Return the call for a draft."""
        told = instructions_of(self.project, kind)
        params = dict(question.params)  # those of the model are for short answers, not for drafts
        most = params.get("max_tokens", judge_judge.JUDGE_PARAMS["max_tokens"])
        params["max_tokens"] = max(most, model.params.get("max_tokens", 0))
        if "top_p" in model.params:  # some models refuse both parameters
            params.pop("temperature", None)
        judge = judge_judge.Judge.of(model, params)
        said = judge_instructions.fence_message(
            told, question.pieces, question.wanted, seed=judge.params.get("seed")
        )
        messages = (Message("system", told), Message("user", said))
        schema = kind.schema
        if question.items and model.provider == _GRAMMAR:
            schema = _bounded(schema, question.items)
        return replace(judge.request(messages, schema=schema), repeat=number)

    def draft(self, kind: DraftKind[T], question: Question, number: int = 0) -> Draft[T]:
        """Return a draft; raises CallFailed if no model returns a usable one."""

        async def ask() -> Draft[T]:
            async with self.clients() as clients:
                return await self.first_that_answers(clients, kind, question, number)

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
        self, clients: ClientPool, kind: DraftKind[T], question: Question, number: int
    ) -> Draft[T]:
        """Return the draft of the first model that answers; raises CallFailed, EdisonError."""
        failures: list[str] = []
        for model in self.models:
            if problems := [*requirements.missing_for_models([model])]:
                failures.append(f"{model.name}: {problems[0].message}")
                continue
            try:
                found = await self._ask(clients, model, kind, question, number)
            except (CallError, resilience.ClientClosed) as error:
                failures.append(f"{model.name}: {error}")
                if error.kind in REFUSED:
                    break
            except budget.BudgetExhausted as error:
                name = error.refused.cap.name
                raise EdisonError(f"{name} has no room for it", hint=f"raise {name}") from None
            else:
                first = self.models[0].name
                return replace(found, instead_of="" if model.name == first else first)
        raise CallFailed("; ".join(failures), hint="see: edison models test")

    async def _ask(
        self, clients: ClientPool, model: Model, kind: DraftKind[T], question: Question, number: int
    ) -> Draft[T]:
        cost = bought = 0
        reason = ""
        for turn in range(_MOST_TURNS):
            request = self.request(model, kind, question, number + turn * _APART)
            for attempt in (request, None):
                answer = await clients.of(model, self.purpose).answer(
                    attempt or judge_judge.retry_request(request, reason)
                )
                cost += answer.cost_microusd if answer.bought else 0
                bought += answer.bought
                found = _read(kind, answer.completion)
                if not isinstance(found, DoesNotFit):
                    return Draft(found, model.name, self.version(kind), cost, bought)
                reason = str(found)
            if bought:  # replies of the last hour that did not fit are no answer to a new question
                break
        raise CallFailed(
            f"{model.name} returned no usable draft: {reason}",
            hint="try again, or ask another model: --by NAME",
        )

    def version(self, kind: DraftKind[T]) -> str:
        """Return the version of the instructions."""
        return hashlib.sha256(instructions_of(self.project, kind).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Question:
    """What a draft is about."""

    pieces: tuple[FencedText, ...]
    wanted: str
    """What is asked for, after the material."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the call."""
    items: int = 0
    """How many items a list may have; 0 for any number."""


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
    known = schema.get("properties", {})
    inner = {name: _bounded(each, items) for name, each in known.items()}
    return {**schema, "properties": inner} if inner else schema


class DraftJob(NamedTuple, Generic[T]):
    """One of many drafts."""

    drafter: Drafter
    kind: DraftKind[T]
    question: Question
    number: int = 0


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

            async def one(job: DraftJob[T]) -> Draft[T] | EdisonError:
                found: Draft[T] | EdisonError
                try:
                    found = await job.drafter.first_that_answers(
                        clients, job.kind, job.question, job.number
                    )
                except EdisonError as error:
                    found = error
                on_done(found)
                return found

            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(job)) for job in jobs]
            return [task.result() for task in tasks]

    return asyncio.run(ask()) if jobs else []


def _read(kind: DraftKind[T], completion: Completion) -> T | DoesNotFit:
    found = replies.reply_object(completion, kind.key)
    if isinstance(found, replies.Failure):
        return DoesNotFit(found.reason)
    try:
        return kind.read(found)
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
        raise DoesNotFit(f"{key} has {unseen}, which nobody can see")
    if secret := next(secrets.secrets_in(text), None):
        raise DoesNotFit(f"{key}: {secret.message}")
    return text
