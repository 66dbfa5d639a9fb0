"""Which keys of a model go with which provider, as far as a schema can say it?

An entry may inherit what it lacks from the model it `use`s, so a schema can demand a key only of an
entry that has no `use`; the registry's reader decides.
"""

from __future__ import annotations

from typing import Any

from edison_ci.config.model_entry import OPTIONS, SIM_MODELS
from edison_ci.config.model_rules import LITELLM_VENDORS

_OFFLINE = ("sim", "local", "replay")
_WITH_ADDRESS = ("openai", "anthropic", "azure", "ollama", "openai_compatible", "litellm")
_NEEDING_ADDRESS = ("azure", "openai_compatible")
_NAMELESS = ("azure", "replay")
_VENDORS = f"^(?:{'|'.join(LITELLM_VENDORS)})/"


def conditions(needed: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Return what holds for entries of models.yaml; `needed` are options by provider."""
    found: list[dict[str, Any]] = [
        {"anyOf": [{"required": ["use"]}, {"required": ["provider"]}]},
        {"not": {"required": ["base_url", "base_url_env"]}},
        _alone({"not": {"enum": list(_NAMELESS)}}, {"required": ["model"]}),
        _alone({"enum": list(_NEEDING_ADDRESS)}, _ADDRESS),
        _of({"not": {"enum": list(_WITH_ADDRESS)}}, {"not": _ADDRESS}),
        _alone({"const": "replay"}, {"required": ["store"]}),
        _of({"not": {"const": "replay"}}, {"not": {"required": ["store"]}}),
        _of({"enum": list(_OFFLINE)}, {"not": {"required": ["key_env"]}}),
        _of({"const": "sim"}, {"properties": {"model": {"enum": list(SIM_MODELS)}}}),
        _of({"const": "litellm"}, {"properties": {"model": {"pattern": _VENDORS}}}),
    ]
    for provider, names in needed.items():
        options = {"$ref": f"#/definitions/{OPTIONS[provider].__name__}"}
        found.append(_of({"const": provider}, {"properties": {"options": options}}))
        if names:
            whole = {"required": ["options"], "properties": {"options": {"required": names}}}
            found.append(_alone({"const": provider}, whole))
    closed = {"not": {"enum": [*needed]}}
    found.append(_of(closed, {"properties": {"options": {"maxProperties": 0}}}))
    return found


_ADDRESS = {"anyOf": [{"required": ["base_url"]}, {"required": ["base_url_env"]}]}


def _of(provider: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """Return a rule for entries that name such a provider."""
    given = {"required": ["provider"], "properties": {"provider": provider}}
    return {"if": given, "then": then}


def _alone(provider: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """Return a rule for entries that name such a provider and inherit from no other model."""
    given = {
        "required": ["provider"],
        "properties": {"provider": provider},
        "not": {"required": ["use"]},
    }
    return {"if": given, "then": then}
