"""The models of a project, what each accepts, and the configurations that an experiment runs.

What a model accepts comes from the table of models (`prices.py`). A model that is not in it is sent
everything that its provider takes; a parameter that it refuses is then left out by
`providers/adapting.py`.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import re
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from edison_ci._dataclass import dataclass
from edison_ci.config import problems
from edison_ci.config.model_entry import (
    APPLICATIONS,
    LITELLM_VENDORS,
    OFFLINE,
    PROVIDERS,
    Limits,
    ModelEntry,
    ModelRules,
    near,
    params_refused,
    takes,
)
from edison_ci.documents.secrets import names_secret
from edison_ci.errors import Location, Problem, Severity
from edison_ci.records import canonical_json
from edison_ci.shape import NAME_PATTERN, short
from edison_ci.spelling import odd_character

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.config.experiment import ModelUse
    from edison_ci.config.prices import Price
    from edison_ci.config.prompt import Prompt
    from edison_ci.documents.files import Tree
    from edison_ci.documents.marks import Document, Json

__all__ = [
    "DEFAULT_PARAMS",
    "MAX_CONFIGURATIONS",
    "OFFLINE",
    "Configuration",
    "Model",
    "RegistryReader",
    "configure",
    "grid",
    "params_refused",
    "retirement",
    "sent_params",
]

DEFAULT_PARAMS: dict[str, Any] = {"temperature": 1.0, "max_tokens": 4096}
MAX_CONFIGURATIONS = 10
_MAX_NAME = 100
_MAX_CHAIN = 20
_HINTED = 50
_MAX_POINTS = 1_000
_ADDRESS = {"base_url", "base_url_env"}
_NOT_IN_ANSWERS = frozenset({"latency_ms", "error_rate"})
"""Options of the simulator that delay or repeat a call and do not change its answer."""

_BASE_URL = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "ollama": "http://localhost:11434/v1",
}
_KEY_ENV = {
    "openai": {"api_key": "OPENAI_API_KEY"},
    "anthropic": {"api_key": "ANTHROPIC_API_KEY"},
    "azure": {"api_key": "AZURE_OPENAI_API_KEY"},
    "vertex": {"api_key": "GOOGLE_APPLICATION_CREDENTIALS"},
    "bedrock": {
        "access_key_id": "AWS_ACCESS_KEY_ID",
        "secret_access_key": "AWS_SECRET_ACCESS_KEY",
    },
}
"""Providers that need a key; some libraries would search for one in the environment."""


_SAMPLING = frozenset({"temperature", "top_p", "frequency_penalty", "presence_penalty"})
_OPENAI = ("openai", "azure")
_NOT_IN_RESPONSES = frozenset({"frequency_penalty", "presence_penalty", "seed", "stop"})
_NOT_WITH_REASONING = {
    **dict.fromkeys(_OPENAI, _SAMPLING | {"stop"}),
    "xai": frozenset({"frequency_penalty", "presence_penalty", "stop"}),
    "anthropic": frozenset({"temperature", "top_p"}),
}
"""Parameters that a vendor does not take from a model that reasons."""
_ONE_OF = frozenset({"temperature", "top_p"})
"""Newer models of Anthropic refuse the two together; the temperature is sent."""
FEWEST_TO_THINK = 1_024
"""Tokens of thinking at least, for models of Anthropic that take a number instead of a level."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model accepts. None: unknown."""

    known: bool = False
    """Whether the table lists the model."""
    responses: bool = False
    """Whether it is called with the Responses protocol of OpenAI, not with chat completions."""
    embedding: bool = False
    """Whether it returns embeddings of texts, and no answers."""
    sampling: bool = True
    """Whether it takes temperature and top_p."""
    system: bool = True
    """Whether it takes system messages."""
    schema: bool | None = None
    """Whether it can be held to a JSON Schema."""
    tools: bool | None = None
    reasoning: tuple[str, ...] | None = None
    """The levels of reasoning that it takes; empty if it does not reason."""
    adaptive: bool = False
    """Whether a model of Anthropic takes a level of thinking, not a number of tokens."""
    context: int | None = None
    """Tokens of input at most."""
    max_out: int | None = None
    """Tokens of output at most."""

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Capabilities:
        """Return the capabilities in a row of the table."""
        return cls(
            known=True,
            responses=row.get("mode") == "responses",
            embedding=row.get("mode") == "embedding",
            sampling=row.get("sampling", True),
            system=row.get("system", True),
            schema=row.get("schema", False),
            tools=row.get("tools", False),
            reasoning=tuple(row.get("reasoning", ())),
            adaptive=row.get("thinking") == "adaptive",
            context=row.get("context"),
            max_out=row.get("max_out"),
        )


UNKNOWN = Capabilities()


@dataclass(frozen=True)
class Model:
    """A model of the registry, with inherited values."""

    name: str
    provider: str
    model: str
    base_url: str | None
    base_url_env: str | None
    keys: Mapping[str, str]
    """Names of variables by field; `api_key` when there is one key."""
    options: Mapping[str, Any]
    params: Mapping[str, Any]
    """The parameters written in models.yaml."""
    price: Price | None
    """The price in models.yaml; None if it comes from the price table."""
    limits: Limits
    fallback: tuple[str, ...]
    store: str | None
    where: Location
    capabilities: Capabilities = UNKNOWN
    """What it accepts, according to the table of models."""
    code: str = ""
    """Hash of the files of a program; empty for other models."""
    tree: Tree | None = field(default=None, compare=False, repr=False)
    """The files that a program is run from."""

    @property
    def address(self) -> str:
        """The address as written, or the variable that holds it; empty if there is none."""
        if self.base_url_env is not None:
            return f"env:{self.base_url_env}"
        return self.base_url or ""

    @property
    def service(self) -> str | None:
        """The address that its keys are sent to; None if unknown."""
        if self.base_url is not None:
            return self.base_url
        if self.provider == "bedrock":
            return f"https://bedrock-runtime.{self.options['region']}.amazonaws.com"
        if self.provider == "vertex":
            location = self.options["location"]
            prefix = "" if location == "global" else f"{location}-"
            return f"https://{prefix}aiplatform.googleapis.com"
        if self.provider != "litellm":
            return None  # a plugin without base_url
        return LITELLM_VENDORS.get(self.model.partition("/")[0])

    @property
    def variables(self) -> list[str]:
        """The names of the variables that a call needs: of keys, and of the address."""
        return [*self.keys.values(), *([self.base_url_env] if self.base_url_env else [])]

    @property
    def posts_key(self) -> bool:
        """Whether it sends a key together with any body that its entry writes."""
        return self.provider == "http" and bool(self.keys)

    @property
    def moderates(self) -> bool:
        """Whether it is called at the moderations endpoint: it scores texts and does not answer.

        Every model behind such an endpoint has the word in its name, and no chat model has.
        """
        return self.provider in ("openai", "openai_compatible") and "moderation" in self.model

    @cached_property
    def endpoint(self) -> str:
        """What answers a call beside the model's name, part of the identity of the call.

        The address, the protocol if it is not the usual one of the provider, the options, such as
        deployment, API version, project or region, the files of a program, and the recording of a
        replay. Not what cannot change an answer: keys, limits and prices.
        """
        protocol = "responses" if self.capabilities.responses else ""
        protocol = "moderations" if self.moderates else protocol
        left_out = _NOT_IN_ANSWERS if self.simulated else ()
        own_options = {key: value for key, value in self.options.items() if key not in left_out}
        if isinstance(headers := own_options.get("headers"), dict):
            own_options["headers"] = {k: v for k, v in headers.items() if not names_secret(k)}
        options = canonical_json(own_options) if own_options else ""
        return " ".join(filter(None, (self.address, protocol, options, self.code, self.store)))

    @property
    def installed(self) -> bool:
        """Whether an installed plugin serves it."""
        return self.provider not in PROVIDERS.built_in

    @property
    def script(self) -> str | None:
        """The file with the answers of a scripted simulator model."""
        return self.options.get("file") if self.simulated else None

    @property
    def simulated(self) -> bool:
        """Whether the simulator generates its answers."""
        return self.provider == "sim"

    @property
    def key(self) -> str:
        """Name and identity as one text; a changed model has another key."""
        return f"{self.name} {canonical_json(self.identity())}"

    def identity(self) -> dict[str, Json]:
        """Return what determines its answers, except parameters."""
        return {
            "provider": self.provider,
            "endpoint": self.endpoint,
            "model": self.model,
            "options": dict(self.options),
            "store": self.store,
        }


@dataclass(frozen=True, slots=True)
class Configuration:
    """A model with the parameters of one prompt in one experiment."""

    name: str
    model: Model
    params: Mapping[str, Any] = field(hash=False)
    """The parameters that are sent."""
    left_out: tuple[str, ...] = ()
    """Parameters that are written and not sent, because the model does not accept them."""


class RegistryReader:
    """Turns models.yaml into models: inheritance, provider defaults and problems."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.problems: list[Problem] = []
        value = document.value if isinstance(document.value, dict) else {}
        self._entries: dict[str, Any] = {k: v for k, v in value.items() if k != "version"}
        self._uses: dict[str, str | None] = {}
        """The model that each valid model inherits from."""
        self._models: dict[str, Model | None] = {}
        self._said: dict[str, set[tuple[str, str]]] = {}
        """Problems of each model, including inherited ones."""

    def read(self) -> dict[str, Model]:
        """Return every valid model."""
        for name, entry in self._entries.items():
            if self._check_name(name):
                self._validate(name, entry)
        for name in self._uses:
            self._resolve(name)
        return {name: model for name in self._uses if (model := self._models[name]) is not None}

    def _check_name(self, name: str) -> bool:
        if re.fullmatch(NAME_PATTERN, name) and len(name) <= _MAX_NAME:
            return True
        odd = odd_character(name)
        what = f"contains {odd}" if odd else "is not a name"
        if len(name) > _MAX_NAME:
            what = f"has {len(name):,} characters; at most {_MAX_NAME}"
        hint = "use letters, digits, '-', '_' and '.'"
        self._problem((name,), "name", f"model name {short(name)} {what}", hint)
        return False

    def _validate(self, name: str, entry: Any) -> None:
        inherits = isinstance(entry, dict) and entry.get("use") is not None
        own = _merge({}, entry) if inherits else entry
        try:
            self._uses[name] = ModelEntry.model_validate(own).use
        except ValidationError as error:
            lacking = all(item["type"] == "missing" for item in error.errors(include_url=False))
            if lacking and inherits and isinstance(own["use"], str):
                self._uses[name] = own["use"]  # missing keys may be inherited
            else:
                self.problems += problems.problems_of(error, self._document, (name,))

    def _chain(self, name: str) -> list[str] | None:
        """Return a model and its ancestors, nearest first; None if there is a cycle."""
        chain = [name]
        while (parent := self._uses[chain[-1]]) is not None:
            if parent in chain:
                self._report_cycle(name, chain[chain.index(parent) :])
                return None
            if parent not in self._entries:
                if chain[-1] == name:
                    hint = near(parent, self._entries) if len(self.problems) < _HINTED else ""
                    self._problem((name, "use"), "unknown-model", f"unknown model {parent!r}", hint)
                return None
            if parent not in self._uses:
                return None  # its own problems are reported
            chain.append(parent)
            if len(chain) > _MAX_CHAIN:
                if all(problem.code != "chain" for problem in self.problems):
                    message = f"{name!r} inherits from more than {_MAX_CHAIN - 1} models"
                    self._problem((name, "use"), "chain", message, "shorten the chain")
                return None
        return chain

    def _report_cycle(self, name: str, members: list[str]) -> None:
        first = next(entry for entry in self._entries if entry in members)
        if name == first:
            cycle = " -> ".join([*members, members[0]])
            message = f"models use each other in a cycle: {cycle}"
            self._problem((name, "use"), "cycle", message, "remove use: from one of them")

    def _resolve(self, name: str) -> None:
        """Check a model; problems of an ancestor are not reported again."""
        if name in self._models:
            return
        self._models[name] = None
        chain = self._chain(name)
        if chain is None:
            return
        for ancestor in reversed(chain[1:]):
            self._resolve(ancestor)
        entry, problems = self._merged_entry(name, chain)
        inherited = set[tuple[str, str]]().union(
            *(self._said.get(other, ()) for other in chain[1:])
        )
        by_message = {(p.code, p.message.replace(repr(name), "")): p for p in problems}
        self.problems += [problem for key, problem in by_message.items() if key not in inherited]
        self._said[name] = inherited | by_message.keys()
        if entry is not None and not problems:
            self._models[name] = self._make_model(name, entry)

    def _merged_entry(self, name: str, chain: list[str]) -> tuple[ModelEntry | None, list[Problem]]:
        """Return a model with inherited values, and its problems."""
        merged: dict[str, Any] = dict(self._entries[chain[-1]])
        for ancestor in reversed(chain[:-1]):
            own = self._entries[ancestor]
            if _ADDRESS & own.keys():  # either of the two replaces the other
                merged = {key: value for key, value in merged.items() if key not in _ADDRESS}
            merged = _merge(merged, own)
        merged.pop("use", None)
        if "fallback" not in self._entries[name]:
            merged["fallback"] = [other for other in merged.get("fallback", ()) if other != name]
        try:
            entry = ModelEntry.model_validate(merged)
        except ValidationError as error:
            return None, problems.problems_of(error, self._document, (name,))
        rules = ModelRules(self._document, name, self._entries)
        return entry, rules.check(entry)

    def _make_model(self, name: str, entry: ModelEntry) -> Model:
        provider = str(entry.provider)
        keys = dict(entry.key_env or _KEY_ENV.get(provider, {}))
        base_url = entry.base_url
        if base_url is None and entry.base_url_env is None:
            base_url = _BASE_URL.get(provider)
        options = dict(entry.options or {})
        return Model(
            name=name,
            provider=provider,
            model=entry.model or str(options.get("deployment", "")),
            base_url=base_url,
            base_url_env=entry.base_url_env,
            keys=keys,
            options=options,
            params=entry.params.written() if entry.params else {},
            price=entry.price,
            limits=entry.limits or Limits.model_construct(),
            fallback=entry.fallback,
            store=entry.store,
            where=self._document.locate((name,), key=True),
        )

    def _problem(
        self, path: tuple[str | int, ...], code: str, message: str, hint: str = ""
    ) -> None:
        where = self._document.locate(path, key=len(path) == 1)
        self.problems.append(Problem(where, code, message, hint))


def _merge(lower: Any, upper: Any, depth: int = 0) -> Any:
    """Return the upper mapping merged over the lower one; mappings merge deeply, lists replace.

    A null value removes an inherited key.
    """
    if not isinstance(upper, dict):
        return upper
    merged = dict(lower) if isinstance(lower, dict) else {}
    for key, value in upper.items():
        merged[key] = _merge(merged.get(key), value, depth + 1)
        if value is None and depth < 3:
            del merged[key]
    return merged


def grid(use: ModelUse) -> list[tuple[str, dict[str, Any]]]:
    """Return name and parameters of each point of a parameter grid over one model."""
    written = use.params.written() if use.params else {}
    fixed = {key: value for key, value in written.items() if key in ("stop", "extra")}
    axes = {key: value for key, value in written.items() if key not in fixed}
    points = []
    for values in itertools.islice(itertools.product(*axes.values()), _MAX_POINTS):
        params = dict(zip(axes, values, strict=True)) | fixed
        suffix = ",".join(f"{key}={_short_value(value)}" for key, value in params.items())
        points.append((f"{use.use}[{suffix}]" if suffix else use.use, params))
    return points


def configure(name: str, model: Model, prompt: Prompt, params: Mapping[str, Any]) -> Configuration:
    """Return the configuration: experiment over prompt over models.yaml over defaults."""
    written = {**model.params, **prompt.header.written_params, **params}
    return Configuration(name, model, *sent_params(model, written))


def sent_params(
    model: Model, written: Mapping[str, Any], defaults: Mapping[str, Any] = DEFAULT_PARAMS
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the parameters that a model is sent, and the names of written ones that are not."""
    taken, refused = takes(model.provider), not_taken(model, written)
    if model.provider in APPLICATIONS:
        defaults = {}
    params = {key: value for key, value in defaults.items() if key in taken}
    if "top_p" in written and vendor_of(model) == "anthropic":
        params.pop("temperature", None)  # newer models refuse the two together
    if "max_tokens" in params:
        can = model.capabilities
        # Half of a small context is left to the input.
        sizes = (params["max_tokens"], can.max_out, can.context and can.context // 2)
        params["max_tokens"] = min(size for size in sizes if size)
    params = {key: value for key, value in {**params, **written}.items() if key not in refused}
    return params, tuple(key for key in written if key in refused)


def vendor_of(model: Model) -> str:
    """Return the vendor whose rules a model follows: the provider, or the one behind litellm."""
    if model.provider == "litellm":
        return model.model.partition("/")[0]
    if model.provider in ("bedrock", "vertex") and "claude" in model.model:
        return "anthropic"
    return model.provider


def not_taken(model: Model, params: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of parameters that the model would refuse, given the others."""
    can, vendor, level = model.capabilities, vendor_of(model), params.get("reasoning")
    refused: frozenset[str] = frozenset()
    if not can.sampling:
        refused |= _SAMPLING
    if can.responses:
        refused |= _NOT_IN_RESPONSES
    if can.known and vendor == "anthropic" and params.keys() >= _ONE_OF:
        refused |= {"top_p"}
    # Models of Anthropic reason on request, others unless it is switched off.
    reasons = level not in (None, "none") if vendor == "anthropic" else level != "none"
    if can.reasoning and reasons:
        refused |= _NOT_WITH_REASONING.get(vendor, frozenset())
    if can.known and not can.reasoning:
        refused |= {"reasoning"}
    return refused


def left_out_message(model: Model, key: str) -> str:
    """Return the warning that a written parameter is not sent."""
    both = key == "top_p" and model.capabilities.sampling and vendor_of(model) == "anthropic"
    beside = " beside temperature or reasoning" if both else ""
    return f"{model.model} takes no {key}{beside}; it is not sent"


def problems_with(model: Model, params: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each parameter whose value the model does not take, with the reason."""
    can, level = model.capabilities, params.get("reasoning")
    if level is not None and can.reasoning and level not in can.reasoning:
        levels = ", ".join(can.reasoning)
        yield "reasoning", f"{model.model} takes no reasoning {level}, only {levels}"
    most, max_tokens = can.max_out, params.get("max_tokens")
    counts = vendor_of(model) == "anthropic" and can.reasoning and not can.adaptive
    if counts and level not in (None, "none") and max_tokens and max_tokens <= FEWEST_TO_THINK:
        yield "max_tokens", f"{model.model} needs max_tokens above {FEWEST_TO_THINK:,} to reason"
    if most is not None and max_tokens is not None and max_tokens > most:
        yield "max_tokens", f"max_tokens is {max_tokens:,}; {model.model} writes at most {most:,}"


def _short_value(value: Any) -> str:
    """Return a parameter as part of a name: short, and distinct for distinct values."""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:6]


def retirement(
    name: str, retires: str, today: str, where: Location, successor: str | None = None
) -> Problem | None:
    """Return a warning when a model is retired or will be within 60 days."""
    left = (dt.date.fromisoformat(retires) - dt.date.fromisoformat(today)).days
    if left > 60:
        return None
    when = f"was retired on {retires}" if left < 0 else f"retires on {retires}"
    return Problem(
        where,
        "retired",
        f"model {name!r} {when}, according to the price table",
        f"change to {successor}" if successor else "choose a newer one",
        Severity.WARNING,
    )
