"""Does what a model of the registry says fit its provider?"""

from __future__ import annotations

import itertools
from dataclasses import field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from edison_ci.config.extra import extra_taken
from edison_ci.config.model_entry import OPTIONS, SIM_MODELS, ModelEntry, Params
from edison_ci.config.problems import problems_of
from edison_ci.errors import Problem
from edison_ci.frozen import dataclass
from edison_ci.names import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from edison_ci.documents.marks import Document

OFFLINE = frozenset({"sim", "local", "replay"})
"""Providers that call no service, need no key and cost nothing."""

_ALL = frozenset(Params.model_fields)
_TAKES: dict[str, frozenset[str]] = {
    "anthropic": frozenset({"temperature", "max_tokens", "top_p", "stop", "extra"}),
    "bedrock": frozenset({"temperature", "max_tokens", "top_p", "stop", "extra"}),
    "vertex": _ALL - {"extra"},
    "local": _ALL - {"extra"},
}
_HOTTEST = {"anthropic": 1.0, "bedrock": 1.0}
_HOT = 2.0
"""What every other provider takes at most."""
_NEEDS_ADDRESS = frozenset({"azure", "openai_compatible"})
_TAKES_ADDRESS = frozenset(
    {"openai", "anthropic", "azure", "ollama", "openai_compatible", "litellm"}
)
LITELLM_VENDORS = {
    "anthropic": "https://api.anthropic.com",
    "cohere_chat": "https://api.cohere.com",
    "deepseek": "https://api.deepseek.com",
    "fireworks_ai": "https://api.fireworks.ai",
    "gemini": "https://generativelanguage.googleapis.com",
    "groq": "https://api.groq.com",
    "mistral": "https://api.mistral.ai",
    "openai": "https://api.openai.com",
    "openrouter": "https://openrouter.ai",
    "together_ai": "https://api.together.ai",
    "xai": "https://api.x.ai",
}
"""Vendors that may be called through litellm, by the first part of the model's name, and where each
is: those that go to `base_url` and nowhere else where there is one."""
_AWS = frozenset({"access_key_id", "secret_access_key"})
_COMPARED = 100
_NAMELESS = frozenset({"azure", "replay"})


def near(name: str, known: Iterable[str]) -> str:
    """Return a hint at the nearest model; of a huge registry only the first ones are compared."""
    return did_you_mean(name, itertools.islice(known, _COMPARED))


def takes(provider: str) -> frozenset[str]:
    """Return the parameters that a provider takes."""
    return _TAKES.get(provider, _ALL)


def params_refused(written: Mapping[str, Any], provider: str) -> Iterator[tuple[str, str]]:
    """Yield each written parameter that the provider does not take, and why."""
    for key, value in written.items():
        if key not in takes(provider):
            yield key, f"{provider} takes no {key}"
        elif key == "temperature" and value > (most := _HOTTEST.get(provider, _HOT)):
            yield key, f"temperature is {value:g}; {provider} takes at most {most:g}"
        elif key == "extra" and (odd := sorted({*(value or {})} - extra_taken(provider))):
            yield key, f"{provider} takes no {odd[0]} under extra"


@dataclass(slots=True)
class ModelRules:
    """Checks one model, everything it inherits filled in."""

    _document: Document
    _name: str
    _known: Collection[str]
    """Names of all models."""
    _problems: list[Problem] = field(default_factory=list)

    def check(self, entry: ModelEntry) -> list[Problem]:
        """Return what is wrong with the model."""
        provider = entry.provider
        if provider is None:
            message = f"model {self._name!r} has no provider"
            self._add((), "missing", message, "add provider: openai")
            return self._problems
        if entry.model is None and provider not in _NAMELESS:
            message = f"model {self._name!r} does not say which model"
            self._add((), "missing", message, "add model: ...")
        self._check_address(entry, provider)
        self._check_keys(entry, provider)
        self._check_options(entry, provider)
        for key, message in params_refused(
            entry.params.written() if entry.params else {}, provider
        ):
            self._add(("params", key), "params", message, f"remove {key}")
        for index, other in enumerate(entry.fallback):
            if other not in self._known or other == self._name:
                hint = near(other, (name for name in self._known if name != self._name))
                self._add(("fallback", index), "unknown-model", f"no other model {other!r}", hint)
        self._check_kind(entry, provider)
        return self._problems

    def _check_kind(self, entry: ModelEntry, provider: str) -> None:
        """Check what only the offline providers need."""
        if provider == "replay" and entry.store is None:
            self._add((), "missing", "a replay model needs a recording", "add store: PATH")
        if provider != "replay" and entry.store is not None:
            self._add(("store",), "store", "store is for provider: replay", "remove store")
        vendor, slash, _ = (entry.model or "").partition("/")
        known = vendor in LITELLM_VENDORS and slash
        if provider == "litellm" and entry.model is not None and not known:
            message = f"litellm is not let call {vendor!r}: where its key would go is not known"
            hint = did_you_mean(vendor, LITELLM_VENDORS, label="write one of these before a slash")
            self._add(("model",), "vendor", message, hint or "use provider: openai_compatible")
        if provider == "sim" and entry.model is not None and entry.model not in SIM_MODELS:
            hint = did_you_mean(entry.model, SIM_MODELS)
            self._add(("model",), "unknown-model", f"sim has no model {entry.model!r}", hint)

    def _check_keys(self, entry: ModelEntry, provider: str) -> None:
        keys = entry.key_env or {}
        if provider in OFFLINE:
            if keys:
                self._add(("key_env",), "keys", f"{provider} takes no key", "remove key_env")
            return
        wanted = _AWS if provider == "bedrock" else {"api_key"}
        taken = {*wanted, "session_token"} if provider == "bedrock" else wanted
        if keys and not wanted <= {*keys} <= taken:
            said = "two keys" if provider == "bedrock" else "one key"
            hint = "write NAME_OF_VARIABLE"
            if provider == "bedrock":
                hint = "write {access_key_id: NAME, secret_access_key: NAME}"
            self._add(("key_env",), "keys", f"{provider} needs {said}", hint)

    def _check_address(self, entry: ModelEntry, provider: str) -> None:
        if entry.base_url is not None and entry.base_url_env is not None:
            message = "base_url and base_url_env are both given"
            self._add(("base_url_env",), "exactly-one", message, "remove one of them")
        given = entry.base_url or entry.base_url_env
        key = "base_url" if entry.base_url else "base_url_env"
        if given is None and provider in _NEEDS_ADDRESS:
            message = f"{provider} needs an address"
            self._add((), "missing", message, "add base_url: https://...")
        if given is not None and provider not in _TAKES_ADDRESS:
            self._add((key,), "address", f"{provider} takes no address", f"remove {key}")

    def _check_options(self, entry: ModelEntry, provider: str) -> None:
        shape = OPTIONS.get(provider)
        if shape is None:
            if entry.options:
                message = f"{provider} takes no options"
                self._add(("options",), "options", message, "remove options")
            return
        try:
            options = shape.model_validate(entry.options or {})
        except ValidationError as error:
            self._problems += problems_of(error, self._document, (self._name, "options"))
            return
        if provider == "sim" and entry.model == "script" and getattr(options, "file", None) is None:
            self._add((), "missing", "sim's script needs a file", "add options: {file: PATH}")

    def _add(self, place: tuple[str | int, ...], code: str, message: str, hint: str) -> None:
        where = self._document.locate((self._name, *place), key=not place)
        self._problems.append(Problem(where, code, message, hint))
