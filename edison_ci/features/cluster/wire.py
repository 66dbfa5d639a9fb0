"""Messages between the coordinator of a run and its workers: plain JSON, checked on arrival.

A worker is not trusted more than a model: every field of what it sends has a type and a limit, and
an answer that breaks one is a `WireError`, for which the worker is dropped. No message has a key:
models name the variables of their keys, which each worker reads from its own environment.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from edison_ci._dataclass import dataclass
from edison_ci.checks.evaluation import single_line
from edison_ci.config.model_entry import APPLICATIONS, PROVIDERS, Limits, ModelEntry
from edison_ci.config.models import Capabilities, Model
from edison_ci.config.program_files import LONGEST_PROGRAM
from edison_ci.contracts import CallError, CheckOutcome, ErrorKind
from edison_ci.documents.json_text import parse_json
from edison_ci.documents.marks import Fault
from edison_ci.documents.secrets import hidden_in
from edison_ci.errors import Location
from edison_ci.providers.openai_compatible import MOST_TOKENS, storable
from edison_ci.records import Completion, FinishReason, Message, Request, canonical_json
from edison_ci.shape import short

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping

PROTOCOL = 1
_NOT_HERE = frozenset({"command", "replay"})
"""Providers that the coordinator asks itself: they need files of the project."""
HANDLER = "edison"
"""The operation of a Dask worker that opens a connection of a run."""
MOST_TEXT = 20_000_000
"""Characters of an answer at most, as of a reply of a model."""
_PLACE = re.compile(r"[0-9]{1,4}")
_LONGEST_NAME = 300
_LONGEST_ERROR = 4_000
_MOST_LEFT_OUT = 100
_DAY_S = 86_400
MOST_REQUEST = 1_000_000
"""Characters at most that the code of a check reads at a worker; longer ones are run here."""
_MOST_MODELS = _MOST_PROGRAMS = 1_000
_MOST_PLACES = 1_000


class WireError(Exception):
    """A message that does not have the form it must have."""


class Hello(NamedTuple):
    """What a coordinator sends to a worker when it connects."""

    version: str
    run: str
    coordinator: str
    """Random name of the coordinator, by which a second one for the run is refused."""
    python: str
    """Version of Python, such as 3.11."""
    now: float
    """Seconds since 1970 by its clock."""
    models: tuple[Model, ...]
    programs: tuple[tuple[str, str], ...] = ()
    """What the code checks of the run are called with, and the hash of their files."""


class Welcome(NamedTuple):
    """What a worker answers to it."""

    version: str
    name: str
    now: float
    """Seconds since 1970 by its clock."""
    unready: Mapping[int, str]
    """Why it cannot call a model, by the place of the model in the hello."""
    unable: Mapping[int, str]
    """Why it does not run a program, by the place of the program in the hello."""
    places: int
    """Checks that it runs at once."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A call that a worker is to make: its money and its rate slot are taken already."""

    id: int
    model: int
    """Its place among the models of the hello."""
    request: Request


class CheckLease(NamedTuple):
    """A check whose code a worker is to run, as its own checkout has it."""

    id: int
    program: int
    """Its place among the programs of the hello."""
    request: str
    """What the code reads: the answer and its case, as JSON."""


class Checked(NamedTuple):
    """The result of a leased check."""

    lease: int
    outcome: CheckOutcome | None
    unable: str
    """Why the worker did not run it, if there is no outcome."""


class Answer(NamedTuple):
    """The result of a leased call."""

    lease: int
    completion: Completion | None
    error: CallError | None


class _Fields:
    """The fields of a message, each taken with its type and limits."""

    def __init__(self, value: Any, names: str) -> None:
        if not isinstance(value, dict) or not set(value) <= set(names.split()):
            raise WireError(f"unknown fields: {short(value)}")
        self._value = value

    def text(self, name: str, *, most: int = _LONGEST_NAME) -> str:
        value = self._value.get(name)
        if not isinstance(value, str) or len(value) > most:
            raise WireError(f"{name} is not a text of at most {most:,} characters")
        return value

    def whole(self, name: str, *, most: int, least: int = 0) -> int:
        value = self._value.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise WireError(f"{name} is not a whole number from {least:,} to {most:,}")
        return value

    def number(self, name: str, *, most: float) -> float:
        value = self._value.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most:
            raise WireError(f"{name} is not a number from 0 to {most:,}")
        return float(value)

    def flag(self, name: str) -> bool:
        value = self._value.get(name)
        if not isinstance(value, bool):
            raise WireError(f"{name} is neither true nor false")
        return value

    def missing(self, name: str) -> bool:
        return self._value.get(name) is None

    def whole_or_none(self, name: str, *, most: int, least: int = 0) -> int | None:
        return None if self.missing(name) else self.whole(name, most=most, least=least)

    def number_or_none(self, name: str, *, most: float) -> float | None:
        return None if self.missing(name) else self.number(name, most=most)

    def any(self, name: str) -> Any:
        return self._value.get(name)

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._value.get(name)
        if not isinstance(value, list) or len(value) > _MOST_LEFT_OUT:
            raise WireError(f"{name} is not a short list")
        if not all(isinstance(text, str) and len(text) <= _LONGEST_NAME for text in value):
            raise WireError(f"{name} is not a list of names")
        return tuple(value)

    def mapping(self, name: str) -> dict[str, Any]:
        value = self._value.get(name)
        if not isinstance(value, dict):
            raise WireError(f"{name} is not a mapping")
        return value


def _read(text: object, names: str, *, most: int) -> _Fields:
    if not isinstance(text, str) or len(text) > most:
        raise WireError(f"a message is not a text of at most {most:,} characters")
    try:
        return _Fields(parse_json(text), names)
    except Fault as fault:
        raise WireError(f"a message is not JSON that can be stored: {fault.message}") from None


def travels(model: Model) -> bool:
    """Whether workers can call a model; the coordinator calls those that need its files."""
    return model.provider not in _NOT_HERE and model.script is None


_MODEL = "name provider model base_url base_url_env keys options limits store capabilities"


def write_hello(hello: Hello) -> str:
    """Return the text of a hello."""
    models = [_model_json(model) for model in hello.models]
    return canonical_json({**hello._asdict(), "models": models, "protocol": PROTOCOL})


def read_hello(text: object) -> Hello:
    """Read what a coordinator says; raises WireError."""
    names = "protocol version run coordinator python now models programs"
    fields = _read(text, names, most=MOST_TEXT)
    if fields.any("protocol") != PROTOCOL:
        raise WireError(f"the coordinator speaks protocol {short(fields.any('protocol'))}")
    models = fields.any("models")
    if not isinstance(models, list) or len(models) > _MOST_MODELS:
        raise WireError(f"models is not a list of at most {_MOST_MODELS:,}")
    return Hello(
        fields.text("version"),
        fields.text("run"),
        fields.text("coordinator"),
        fields.text("python"),
        fields.number("now", most=1e12),
        tuple(map(_read_model, models)),
        _read_programs(fields.any("programs")),
    )


def _read_programs(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list) or len(value) > _MOST_PROGRAMS:
        raise WireError(f"programs is not a list of at most {_MOST_PROGRAMS:,}")
    for pair in value:
        if not isinstance(pair, list) or [type(part) for part in pair] != [str, str]:
            raise WireError("a program is not a text and a hash")
        if max(map(len, pair)) > LONGEST_PROGRAM:
            raise WireError(f"a program has more than {LONGEST_PROGRAM:,} characters")
    return tuple((program, digest) for program, digest in value)


def write_welcome(welcome: Welcome) -> str:
    """Return the text of a welcome."""
    values = welcome._asdict()
    for name in ("unready", "unable"):
        values[name] = {str(place): why for place, why in values[name].items()}
    return canonical_json(values)


def read_welcome(text: object) -> Welcome:
    """Read what a worker answers to a hello; raises WireError."""
    fields = _read(text, "version name now unready unable places", most=MOST_TEXT)
    name = fields.text("name")
    if not name or name != worker_name(name):
        raise WireError("its name is not letters, digits and -._@")
    return Welcome(
        fields.text("version"),
        name,
        fields.number("now", most=1e12),
        _read_reasons(fields, "unready"),
        _read_reasons(fields, "unable"),
        fields.whole("places", least=1, most=_MOST_PLACES),
    )


def _read_reasons(fields: _Fields, name: str) -> dict[int, str]:
    reasons = fields.mapping(name)
    if not all(isinstance(why, str) and _PLACE.fullmatch(place) for place, why in reasons.items()):
        raise WireError(f"{name} is not a mapping of places to texts")
    return {int(place): why[:_LONGEST_ERROR] for place, why in reasons.items()}


def worker_name(text: str) -> str:
    """Return a text as the name of a worker: letters, digits and -._@, at most 100."""
    return re.sub(r"[^A-Za-z0-9._@-]", "-", text)[-100:]


def _model_json(model: Model) -> dict[str, Any]:
    return {name: getattr(model, name) for name in _MODEL.split()} | {
        "keys": dict(model.keys),
        "options": dict(model.options),
        "limits": model.limits.model_dump(mode="json", exclude_none=True),
        "capabilities": asdict(model.capabilities),
    }


def _read_model(value: object) -> Model:
    """Read a model; the worker itself decides whether its keys may be sent there."""
    fields = _Fields(value, _MODEL)
    keys = fields.mapping("keys")
    values = {
        "provider": fields.text("provider"),
        "model": fields.text("model"),
        "base_url": fields.any("base_url"),
        "base_url_env": fields.any("base_url_env"),
        "options": fields.mapping("options"),
        "store": fields.any("store"),
        "key_env": keys or None,
    }
    capabilities = fields.mapping("capabilities")
    try:
        stated = {key: value for key, value in values.items() if value is not None}
        entry = ModelEntry.model_validate(stated)
        limits = Limits.model_validate(fields.mapping("limits"))
        can = Capabilities(**{**capabilities, "reasoning": _levels(capabilities)})
    except (ValidationError, TypeError) as error:
        raise WireError(f"a model is not valid: {short(str(error))}") from None
    return Model(
        name=fields.text("name"),
        provider=str(entry.provider),
        model=str(entry.model),
        base_url=entry.base_url,
        base_url_env=entry.base_url_env,
        keys=keys,
        options=entry.options or {},
        params={},
        price=None,
        limits=limits,
        fallback=(),
        store=entry.store,
        where=Location("models.yaml"),
        capabilities=can,
    )


def _levels(capabilities: Mapping[str, Any]) -> tuple[str, ...] | None:
    levels = capabilities.get("reasoning")
    return None if levels is None else tuple(map(str, levels))


_REQUEST = "provider endpoint model messages params tools response_format repeat left_out embedding"


def write_lease(lease: Lease) -> str:
    """Return the text of a lease."""
    request: dict[str, Any] = {name: getattr(lease.request, name) for name in _REQUEST.split()}
    request["messages"] = [[message.role, message.content] for message in lease.request.messages]
    request |= {"params": dict(request["params"]), "left_out": [*request["left_out"]]}
    return canonical_json({"id": lease.id, "model": lease.model, "request": request})


def read_lease(text: object) -> Lease:
    """Read a call that a coordinator asks for; raises WireError."""
    fields = _read(text, "id model request", most=10 * MOST_TEXT)
    asked = _Fields(fields.any("request"), _REQUEST)
    messages = asked.any("messages")
    try:
        chat = tuple(Message(role, str(content)) for role, content in messages)
    except (TypeError, ValueError):
        raise WireError("messages are not pairs of role and content") from None
    request = Request(
        provider=asked.text("provider"),
        endpoint=asked.text("endpoint", most=MOST_TEXT),
        model=asked.text("model"),
        messages=chat,
        params=asked.mapping("params"),
        tools=asked.any("tools"),
        response_format=asked.any("response_format"),
        repeat=asked.whole("repeat", most=1_000_000),
        left_out=asked.texts("left_out"),
        embedding=asked.flag("embedding"),
    )
    return Lease(fields.whole("id", most=2**53), fields.whole("model", most=_MOST_MODELS), request)


_COMPLETION = (
    "text finish_reason tokens_in tokens_out cached_in latency_ms served_model tool_calls "
    "written_in written_hour_in left_out cost_microusd details"
)
_ERROR = "kind message status retry_after_s charged garbled loading"


def write_answer(lease: int, result: Completion | CallError) -> str:
    """Return the text of an answer, or of the failure of a call, without the keys known here.

    A model may repeat the key of its caller, which the coordinator need not have and so not know.
    """
    if isinstance(result, CallError):
        error = {name: getattr(result, name) for name in _ERROR.split()}
        return storable(canonical_json(hidden_in({"id": lease, "error": error})))
    completion = {name: getattr(result, name) for name in _COMPLETION.split()}
    return canonical_json(hidden_in({"id": lease, "completion": completion}))


def read_answer(text: object, request_of: Callable[[int], Request | None]) -> Answer:
    """Read an answer of a worker to one of the calls it was given; raises WireError."""
    fields = _read(text, "id completion error", most=4 * MOST_TEXT)
    lease = fields.whole("id", most=2**53)
    request = request_of(lease)
    if request is None:
        raise WireError("it answered a call that it was not given")
    if fields.missing("error") == fields.missing("completion"):
        raise WireError("an answer has either a completion or an error")
    if not fields.missing("error"):
        return Answer(lease, None, _read_error(_Fields(fields.any("error"), _ERROR)))
    return Answer(lease, _read_completion(fields.any("completion"), request), None)


def _read_error(fields: _Fields) -> CallError:
    try:
        kind = ErrorKind(fields.text("kind"))
    except ValueError:
        raise WireError("unknown kind of error") from None
    error = CallError(
        kind,
        fields.text("message", most=MOST_TEXT)[:_LONGEST_ERROR],
        status=fields.whole_or_none("status", least=100, most=999),
        retry_after_s=fields.number_or_none("retry_after_s", most=_DAY_S),
        charged=fields.flag("charged"),
    )
    error.garbled = fields.flag("garbled")
    error.loading = not fields.missing("loading") and fields.flag("loading")
    return error


def _read_completion(value: object, request: Request) -> Completion:
    fields = _Fields(value, _COMPLETION)
    text = fields.text("text", most=MOST_TEXT)
    calls, details = fields.any("tool_calls"), fields.any("details")
    if calls is not None and not isinstance(calls, list):
        raise WireError("tool_calls is not a list")
    if len(canonical_json([calls, details])) > MOST_TEXT:
        raise WireError(f"tool_calls and details have more than {MOST_TEXT:,} characters")
    names_cost = details is not None or not fields.missing("cost_microusd")
    if names_cost and request.provider in PROVIDERS.built_in.keys() - APPLICATIONS:
        raise WireError("it names a cost or details, which only an application may do")
    try:
        finish = FinishReason(fields.text("finish_reason"))
    except ValueError:
        raise WireError("unknown finish reason") from None
    return Completion(
        text,
        finish,
        fields.whole_or_none("tokens_in", most=MOST_TOKENS),
        fields.whole_or_none("tokens_out", most=MOST_TOKENS),
        fields.whole("cached_in", most=MOST_TOKENS),
        fields.whole("latency_ms", most=1_000 * _DAY_S),
        fields.text("served_model"),
        calls,
        fields.whole("written_in", most=MOST_TOKENS),
        fields.whole("written_hour_in", most=MOST_TOKENS),
        fields.texts("left_out"),
        fields.whole_or_none("cost_microusd", most=10**12),
        details,
    )


def write_check(lease: CheckLease) -> str:
    """Return the text of a lease of a check."""
    return canonical_json(lease._asdict())


def read_check(text: object) -> CheckLease:
    """Read a check that a coordinator asks for; raises WireError."""
    fields = _read(text, "id program request", most=10 * MOST_REQUEST)
    return CheckLease(
        fields.whole("id", most=2**53),
        fields.whole("program", most=_MOST_PROGRAMS),
        fields.text("request", most=MOST_REQUEST),
    )


def write_outcome(lease: int, outcome: CheckOutcome | str) -> str:
    """Return the text of what a check found, or of why it was not run."""
    if isinstance(outcome, str):
        result = {"id": lease, "unable": single_line(outcome[:_LONGEST_ERROR])}
    else:
        result = {"id": lease, "outcome": outcome._asdict()}
    return canonical_json(hidden_in(result))


def read_outcome(text: object, leases: Container[int]) -> Checked:
    """Read what a worker found by one of the checks it was given; raises WireError."""
    fields = _read(text, "id outcome unable", most=10 * _LONGEST_ERROR)
    lease = fields.whole("id", most=2**53)
    if lease not in leases:
        raise WireError("it answered a check that it was not given")
    if fields.missing("outcome"):
        return Checked(lease, None, fields.text("unable", most=_LONGEST_ERROR))
    outcome = _Fields(fields.any("outcome"), "score reason passed")
    score = outcome.number_or_none("score", most=1)
    passed = None if outcome.missing("passed") else outcome.flag("passed")
    reason = single_line(outcome.text("reason", most=_LONGEST_ERROR))
    if score is None and (passed is not None or not reason):
        raise WireError("a check without a score has a reason, and does not pass")
    return Checked(lease, CheckOutcome(score, reason, passed), "")
