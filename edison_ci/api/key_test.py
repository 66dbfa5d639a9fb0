"""Tests of keys: one cheapest authenticated call for each, to hosts that trust.yaml allows only.

A list of models costs nothing, so it is asked for where there is one. Some services show theirs to
everyone, which would call every key good: it is first asked for without the key, and counts only if
that is refused. Otherwise one short call to a model that names the key is made, if a person agrees.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from edison_ci._dataclass import dataclass
from edison_ci.access.job import key_environment
from edison_ci.access.proposal_terms import apply_base_terms
from edison_ci.api.model_edits import vendor_model
from edison_ci.api.sessions import run_context
from edison_ci.config.vendors import VENDORS
from edison_ci.contracts import CallError, ErrorKind
from edison_ci.errors import UsageError
from edison_ci.execute.probe import probe
from edison_ci.providers.model_lists import HAVE_LISTS, lister_for

if TYPE_CHECKING:
    from edison_ci.config.load import Project
    from edison_ci.config.models import Model

Verdict = Literal["ok", "refused", "no quota", "unknown"]
_TIMEOUT_S = 30.0
_VERDICTS: dict[str, Verdict] = {
    "": "ok",
    ErrorKind.INVALID_KEY: "refused",
    ErrorKind.QUOTA: "no quota",
    ErrorKind.RATE_LIMIT: "ok",  # who is slowed down was recognised
}


@dataclass(frozen=True, slots=True)
class KeyTest:
    """What a service said about a key."""

    name: str
    verdict: Verdict
    said: str
    model: Model | None = None
    """A model that names the key, while only a call to it could tell more."""


def check_by_list(project: Project, name: str, *, offline: bool) -> KeyTest:
    """Test a key with a list of models, which costs nothing."""
    if (model := _model_of(project, name)) is None:
        return KeyTest(name, "unknown", "no model and no known vendor takes it")
    caller = None if model.name not in project.models else model
    if model.provider not in HAVE_LISTS:
        return KeyTest(name, "unknown", f"{model.provider} has no list of models to ask", caller)
    environ, trust = key_environment(project), apply_base_terms(project).trust

    async def ask(asking: Model) -> str:
        lister = lister_for(asking, environ=environ, offline=offline, trust=trust)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await lister.models()
        except CallError as error:
            return f"{error.kind}: {error.message}"
        except TimeoutError:
            return f"{ErrorKind.TIMEOUT}: no list within {_TIMEOUT_S:g} s"
        return ""

    try:
        said = asyncio.run(ask(model))
        if not said and not asyncio.run(ask(replace(model, keys={}))):
            why = "its list of models is open to everyone"
            return KeyTest(name, "unknown", why, caller)
    except UsageError as error:  # not set, not to be opened, or not allowed to go there
        return KeyTest(name, "unknown", error.message)
    kind, _, message = said.partition(": ")
    return KeyTest(name, _VERDICTS.get(kind, "unknown"), message or "a list of models was given")


def check_by_call(project: Project, name: str, model: Model, *, offline: bool) -> KeyTest:
    """Test a key with one short call to a model, which may cost a little."""
    (found,) = probe(project, [model], run_context(project, offline=offline))
    said = found.message or f"{model.name} has answered"
    return KeyTest(name, _VERDICTS.get(found.error, "unknown"), said)


def _model_of(project: Project, name: str) -> Model | None:
    """Return a model that names a key, if possible with a list; else one of the key's vendor."""
    naming = [model for model in project.models.values() if name in model.keys.values()]
    naming.sort(key=lambda model: (model.provider not in HAVE_LISTS, model.name))
    vendors = [v for v, known in VENDORS.items() if known.key_env == name and not known.options]
    return next(iter(naming), None) or (vendor_model(vendors[0]) if vendors else None)
