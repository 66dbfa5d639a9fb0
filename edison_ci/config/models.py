"""Which models are there, and which configurations does an experiment make of them?"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from edison_ci.config.model_entry import OPTIONS, SIM_MODELS, Limits, ModelEntry, Params, Price
from edison_ci.config.problems import problems_of
from edison_ci.errors import Location, Problem, Severity
from edison_ci.names import did_you_mean, odd_character
from edison_ci.shape import NAME_PATTERN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edison_ci.config.experiment import ModelUse
    from edison_ci.config.prompt import Prompt
    from edison_ci.documents.marks import Document, Json

DEFAULT_PARAMS: dict[str, Any] = {"temperature": 1.0, "max_tokens": 4096}
MAX_CONFIGURATIONS = 10

_ALL = frozenset(Params.model_fields)
_TAKES: dict[str, frozenset[str]] = {
    "anthropic": frozenset({"temperature", "max_tokens", "top_p", "stop", "extra"}),
    "bedrock": frozenset({"temperature", "max_tokens", "top_p", "stop", "extra"}),
    "vertex": _ALL - {"extra"},
    "local": _ALL - {"extra"},
}
"""Which parameters a provider takes; all of them when it is not listed."""
_HOTTEST = {"anthropic": 1.0, "bedrock": 1.0}
_BASE_URL = {
    "openai": "https://api.openai.com/v1",
    "anthropic": "https://api.anthropic.com",
    "ollama": "http://localhost:11434/v1",
}
_KEY_ENV = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "azure": "AZURE_OPENAI_API_KEY",
}
_NEEDS_ADDRESS = frozenset({"azure", "openai_compatible"})
_TAKES_ADDRESS = frozenset(
    {"openai", "anthropic", "azure", "ollama", "openai_compatible", "litellm"}
)
OFFLINE = frozenset({"sim", "local", "replay"})
"""Providers that call no service, need no key and cost nothing."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model of the registry with everything it inherits filled in."""

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
    """The price written in models.yaml; None means: look it up."""
    limits: Limits
    fallback: tuple[str, ...]
    store: str | None
    where: Location

    @property
    def endpoint(self) -> str:
        """The address as written, or the variable that holds it: part of a call's identity."""
        if self.base_url_env is not None:
            return f"env:{self.base_url_env}"
        return self.base_url or ""

    @property
    def simulated(self) -> bool:
        """Whether its answers are made up by the simulator."""
        return self.provider == "sim"

    def identity(self) -> dict[str, Json]:
        """Return what makes its answers what they are, parameters aside."""
        return {
            "provider": self.provider,
            "endpoint": self.endpoint,
            "model": self.model,
            "options": dict(self.options),
            "store": self.store,
        }


@dataclass(frozen=True, slots=True)
class Configuration:
    """A model with the parameters that one prompt in one experiment gives it."""

    name: str
    model: Model
    params: Mapping[str, Any] = field(hash=False)
    """What is sent: defaults that the provider does not take are left out."""


# --- the registry ---------------------------------------------------------------------------------


class RegistryReader:
    """Turns models.yaml into models: inheritance, defaults of providers, and what cannot be."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.problems: list[Problem] = []
        value = document.value if isinstance(document.value, dict) else {}
        self._entries = {k: v for k, v in value.items() if k != "version"}
        self._valid: dict[str, ModelEntry] = {}

    def read(self) -> dict[str, Model]:
        """Return every model that could be made whole."""
        for name, entry in self._entries.items():
            if self._check_name(name):
                self._validate(name, entry)
        models = {name: self._model(name) for name in self._valid}
        return {name: model for name, model in models.items() if model is not None}

    def _check_name(self, name: str) -> bool:
        import re

        if re.match(NAME_PATTERN, name) and len(name) <= 100:
            return True
        odd = odd_character(name) or "a character that is not allowed"
        self._problem(
            (name,),
            "name",
            f"model name {name[:60]!r} contains {odd}",
            "use letters, digits, '-', '_' and '.'",
        )
        return False

    def _validate(self, name: str, entry: Any) -> None:
        try:
            self._valid[name] = ModelEntry.model_validate(entry)
        except ValidationError as error:
            self.problems += problems_of(error, self._document, (name,))

    def _chain(self, name: str) -> list[str] | None:
        chain = [name]
        while (parent := self._valid[chain[-1]].use) is not None:
            if parent in chain:
                shown = " -> ".join([*chain[chain.index(parent) :], parent])
                self._problem((name, "use"), "cycle", f"models use each other in a circle: {shown}")
                return None
            if parent not in self._entries:
                if chain[-1] == name:
                    hint = did_you_mean(parent, self._entries)
                    self._problem((name, "use"), "unknown-model", f"unknown model {parent!r}", hint)
                return None
            if parent not in self._valid:
                return None  # its own problems are reported
            chain.append(parent)
        return chain

    def _model(self, name: str) -> Model | None:
        chain = self._chain(name)
        if chain is None:
            return None
        merged: dict[str, Any] = {}
        for ancestor in reversed(chain):
            merged = _merge(merged, self._entries[ancestor])
        merged.pop("use", None)
        try:
            entry = ModelEntry.model_validate(merged)
        except ValidationError as error:
            self.problems += problems_of(error, self._document, (name,))
            return None
        before = len(self.problems)
        self._check_whole(name, entry)
        if len(self.problems) > before:
            return None
        return self._finished(name, entry)

    def _check_whole(self, name: str, entry: ModelEntry) -> None:
        provider = entry.provider
        if provider is None:
            self._problem(
                (name,), "missing", f"model {name!r} has no provider", "add provider: openai"
            )
            return
        if entry.model is None and provider not in ("replay", "azure"):
            self._problem(
                (name,), "missing", f"model {name!r} does not say which model", "add model: ..."
            )
        self._check_address(name, entry, provider)
        self._check_options(name, entry, provider)
        self._check_params(name, entry.params, provider, (name, "params"))
        for index, other in enumerate(entry.fallback):
            if other not in self._entries or other == name:
                self._problem(
                    (name, "fallback", index),
                    "unknown-model",
                    f"no other model {other!r}",
                    did_you_mean(other, [n for n in self._entries if n != name]),
                )
        self._check_kind(name, entry, provider)

    def _check_kind(self, name: str, entry: ModelEntry, provider: str) -> None:
        """Check what only some providers need or refuse."""
        if provider == "replay" and entry.store is None:
            self._problem((name,), "missing", "a replay model needs a recording", "add store: PATH")
        if provider != "replay" and entry.store is not None:
            self._problem((name, "store"), "store", "store is for provider: replay")
        if provider == "sim" and entry.model not in SIM_MODELS and entry.model is not None:
            self._problem(
                (name, "model"),
                "unknown-model",
                f"sim has no model {entry.model!r}",
                did_you_mean(entry.model, SIM_MODELS),
            )
        if provider == "bedrock" and entry.key_env:
            wanted = {"access_key_id", "secret_access_key"}
            if not wanted <= entry.key_env.keys():
                self._problem(
                    (name, "key_env"),
                    "keys",
                    "bedrock needs two keys",
                    "write {access_key_id: NAME, secret_access_key: NAME}",
                )
        if provider in OFFLINE and entry.key_env:
            self._problem((name, "key_env"), "keys", f"{provider} takes no key", "remove key_env")

    def _check_address(self, name: str, entry: ModelEntry, provider: str) -> None:
        if entry.base_url is not None and entry.base_url_env is not None:
            self._problem(
                (name, "base_url_env"), "exactly-one", "base_url and base_url_env are both given"
            )
        given = entry.base_url or entry.base_url_env
        key = "base_url" if entry.base_url else "base_url_env"
        if given is None and provider in _NEEDS_ADDRESS:
            self._problem(
                (name,), "missing", f"{provider} needs an address", "add base_url: https://..."
            )
        if given is not None and provider not in _TAKES_ADDRESS:
            self._problem((name, key), "address", f"{provider} takes no address", f"remove {key}")

    def _check_options(self, name: str, entry: ModelEntry, provider: str) -> None:
        if provider == "litellm":
            return
        shape = OPTIONS.get(provider)
        if shape is None:
            if entry.options:
                self._problem((name, "options"), "options", f"{provider} takes no options")
            return
        try:
            options = shape.model_validate(entry.options or {})
        except ValidationError as error:
            self.problems += problems_of(error, self._document, (name, "options"))
            return
        if provider == "sim" and entry.model == "script" and getattr(options, "file", None) is None:
            self._problem(
                (name,), "missing", "sim's script needs a file", "add options: {file: PATH}"
            )

    def _check_params(
        self, name: str, params: Params | None, provider: str, path: tuple[str | int, ...]
    ) -> None:
        for key, message in params_refused(params.written() if params else {}, provider):
            self._problem((*path, key), "params", message)

    def _finished(self, name: str, entry: ModelEntry) -> Model:
        provider = str(entry.provider)
        keys = dict(entry.key_env or {})
        if not keys and provider in _KEY_ENV:
            keys = {"api_key": _KEY_ENV[provider]}
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
            limits=entry.limits or Limits(),
            fallback=entry.fallback,
            store=entry.store,
            where=self._document.locate((name,), key=True),
        )

    def _problem(
        self, path: tuple[str | int, ...], code: str, message: str, hint: str = ""
    ) -> None:
        where = self._document.locate(path, key=len(path) == 1)
        self.problems.append(Problem(where, code, message, hint))


def _merge(lower: Any, upper: Any) -> Any:
    """Return the upper mapping over the lower one; mappings merge deeply, lists replace."""
    if isinstance(lower, dict) and isinstance(upper, dict):
        merged = dict(lower)
        for key, value in upper.items():
            merged[key] = _merge(lower[key], value) if key in lower else value
        return merged
    return upper


def params_refused(written: Mapping[str, Any], provider: str) -> Iterator[tuple[str, str]]:
    """Yield each written parameter that the provider does not take, and why."""
    takes = _TAKES.get(provider, _ALL)
    for key, value in written.items():
        if key not in takes:
            yield key, f"{provider} takes no {key}"
        elif key == "temperature" and value > _HOTTEST.get(provider, 2):
            yield key, f"temperature is {value:g}; {provider} takes at most {_HOTTEST[provider]:g}"


# --- configurations -------------------------------------------------------------------------------


def grid(use: ModelUse) -> list[tuple[str, dict[str, Any]]]:
    """Return the name and parameters of each point of an experiment's grid over one model."""
    written = use.params.model_dump(exclude_unset=True, exclude_none=True)
    fixed = {key: value for key, value in written.items() if key in ("stop", "extra")}
    axes = {key: value for key, value in written.items() if key not in fixed}
    points = []
    for values in itertools.product(*axes.values()):
        params = dict(zip(axes, values, strict=True))
        shown = ",".join(f"{key}={_shown(value)}" for key, value in params.items())
        points.append((f"{use.use}[{shown}]" if shown else use.use, {**params, **fixed}))
    return points


def configure(name: str, model: Model, prompt: Prompt, params: Mapping[str, Any]) -> Configuration:
    """Return what is sent: experiment over prompt over models.yaml over default."""
    takes = _TAKES.get(model.provider, _ALL)
    defaults = {key: value for key, value in DEFAULT_PARAMS.items() if key in takes}
    sent = {**defaults, **model.params, **prompt.header.params.written(), **params}
    return Configuration(name, model, sent)


def _shown(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def retirement(name: str, retires: str, today: str, where: Location) -> Problem | None:
    """Return a warning when a model is retired or will be within 60 days."""
    import datetime as dt

    left = (dt.date.fromisoformat(retires) - dt.date.fromisoformat(today)).days
    if left > 60:
        return None
    when = f"was retired on {retires}" if left < 0 else f"retires on {retires}"
    return Problem(
        where,
        "retired",
        f"model {name!r} {when}, by the price table",
        "choose a newer one",
        Severity.WARNING,
    )
