"""Calls that belong to no run: tests of models and keys, and the lists of models of services.

A key is tested with one cheapest authenticated call, to hosts that trust.yaml allows only. A list
of models costs nothing, so it is asked for where there is one. Some services show theirs to
everyone, which would call every key good: it is asked for without the key too, and counts only if
that is refused. Otherwise one short call to a model that names the key is made, if a person agrees.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from edison_ci._dataclass import dataclass
from edison_ci.access import site as sites
from edison_ci.access.job import key_environment
from edison_ci.access.proposal_terms import apply_base_terms
from edison_ci.api import model_edits
from edison_ci.api.sessions import require_editor, run_context
from edison_ci.config import load
from edison_ci.config.vendors import VENDORS
from edison_ci.contracts import WHAT_TO_CHECK, CallError, ErrorKind
from edison_ci.documents.record_json import Document, as_document, fields_of
from edison_ci.errors import EdisonError, UsageError
from edison_ci.execute.probe import probe
from edison_ci.plan import plan as planning
from edison_ci.providers.model_lists import HAVE_LISTS, lister_for
from edison_ci.spelling import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from edison_ci.access.job import KeyEnvironment
    from edison_ci.api.model_edits import ModelEdit, ModelRequest
    from edison_ci.config.load import Project
    from edison_ci.config.models import Model
    from edison_ci.config.trust import TrustFile
    from edison_ci.execute.probe import ProbeResult
    from edison_ci.plan.estimate import CostRange
    from edison_ci.providers.model_lists import ListedModel

_LIST_S = 30.0
"""Deadline of the list of one service."""
_MOST_EXPERIMENTS = 5
"""Experiments whose cost is estimated for a new model."""
NOT_THERE = "NOT_THERE"
"""The error of a model that cannot be called on its own, which is not an error of the others."""


def test_models(project: Project, names: Iterable[str], *, offline: bool) -> list[ProbeResult]:
    """Send one short call to each model, all of the project by default; raises UsageError."""
    models = [_find_model(project, name) for name in dict.fromkeys(names)]
    require_editor(project, "models test")
    return probe(
        project, models or [*project.models.values()], run_context(project, offline=offline)
    )


def _find_model(project: Project, name: str) -> Model:
    model = project.models.get(name)
    if model is None:
        hint = did_you_mean(name, project.models, label="models")
        raise UsageError(f"there is no model {name!r}", hint=hint)
    return model


def model_json(project: Project, model: Model) -> Document:
    """Return a model with its price, limits and abilities, and whether its keys are set."""
    price, can = project.prices.price_of(model), model.capabilities
    abilities: Document | None = None  # the table does not list it
    if can.known:
        chat = "responses" if can.responses else "chat"
        abilities = {
            "protocol": "embeddings" if can.embedding else chat,
            **fields_of(can, "sampling", "system", "schema", "tools", "context", "max_out"),
            "reasoning": list(can.reasoning or ()),
        }
    return {
        **fields_of(model, "name", "provider", "model", "simulated", "params"),
        "endpoint": model.address or None,
        "keys": {env: project.has_key(env) for env in model.keys.values()},
        "price": price.as_json() if price else None,
        "takes": abilities,
        "retires": project.prices.retires(model),
        "limits": model.limits.model_dump(),
    }


def probe_json(result: ProbeResult) -> Document:
    """Return the result of a short call."""
    error = {"code": result.error, "message": result.message} if result.error else None
    return {
        **fields_of(result.model, "name", "simulated"),
        "ok": not result.error,
        "error": error,
        **fields_of(result, "served_model", "latency_ms", "cost_microusd"),
    }


class AddedModel(NamedTuple):
    """A model that was added, its test, and what runs with it would cost."""

    project: Project
    """With the model."""
    edit: ModelEdit
    test: ProbeResult | None
    """None if a key is not set, or without a network."""
    costs: Mapping[str, CostRange | None]
    """By experiment, of a run with this model alone."""

    @property
    def model(self) -> Model:
        """The new model."""
        return self.project.models[self.edit.model.name]

    def as_json(self) -> Document:
        """Return it as a command prints it."""
        edit = self.edit
        return {
            "model": model_json(self.project, self.model),
            "written": sorted(edit.files),
            "trusted": [{"env": env, "host": host} for env, host in edit.trusted],
            "built_in": [{"env": env, "host": host} for env, host in edit.built_in],
            "without_place": as_document(edit.without_place),
            "test": None if self.test is None else probe_json(self.test),
            "runs": {
                name: None if cost is None else {"low": cost.low, "high": cost.high}
                for name, cost in self.costs.items()
            },
        }


def add_model(project: Project, request: ModelRequest, *, offline: bool) -> AddedModel:
    """Write a model to the files of the project, and test it if its keys are set."""
    edit = model_edits.prepare_model(project, request)
    model_edits.write_model(sites.Site(project.root, project.file), edit)
    project = load.load_project(project.root)
    model, test = project.models[edit.model.name], None
    if not offline and all(map(project.has_key, model.variables)):
        (test,) = probe(project, [model], run_context(project, offline=offline))
    return AddedModel(project, edit, test, dict(_costs(project, model)))


def _costs(project: Project, model: Model) -> Iterator[tuple[str, CostRange | None]]:
    """Yield what a run of each experiment with this model alone would cost."""
    for experiment in [*project.experiments.values()][:_MOST_EXPERIMENTS]:
        alone = replace(experiment, models=((model.name, model, {}),))
        try:
            yield experiment.id, planning.bare_plan(project, alone).cost_microusd
        except EdisonError:  # an experiment with other problems, which validate reports
            continue


class ModelOffer(NamedTuple):
    """A model of a service, its price for a million tokens, and its names in models.yaml."""

    id: str
    price: tuple[float, float] | None
    names: list[str]


class ModelList(NamedTuple):
    """What a service offers for a key, or why it gave no list."""

    name: str
    service: Model
    offers: list[ModelOffer]
    error: CallError | None

    def as_json(self) -> Document:
        """Return it as a command prints it."""
        error = self.error
        return {
            "name": self.name,
            "endpoint": self.service.address or None,
            "error": None if error is None else fields_of(error, "message", code="kind"),
            "models": [
                {
                    "id": offer.id,
                    "price": offer.price and {"in": offer.price[0], "out": offer.price[1]},
                    "names": offer.names,
                }
                for offer in self.offers
            ],
        }


def fetch_models(project: Project, names: Iterable[str], *, offline: bool) -> list[ModelList]:
    """Ask the services of vendors or models for their models; by default where a key is set."""
    require_editor(project, "models fetch")
    trust = apply_base_terms(project).trust
    services = {name: _service(project, name) for name in dict.fromkeys(names)}
    services = services or _with_keys(project)
    if not services:
        raise UsageError(
            "no key of a known vendor is set", hint="set one, such as OPENAI_API_KEY, or name one"
        )
    environ, lists = key_environment(project), []
    for name, service in services.items():
        listed = _list_models(service, environ, trust, offline=offline)
        if isinstance(listed, CallError):
            lists.append(ModelList(name, service, [], listed))
        else:
            offers = [_offer(project, service, model) for model in listed]
            lists.append(ModelList(name, service, offers, None))
    return lists


def _list_models(
    model: Model, environ: KeyEnvironment, trust: TrustFile, *, offline: bool
) -> list[ListedModel] | CallError:
    """Return the list of a service, or why it gave none; raises UsageError without a call."""
    lister = lister_for(model, environ=environ, offline=offline, trust=trust)

    async def ask() -> list[ListedModel]:
        async with asyncio.timeout(_LIST_S):
            return await lister.models()

    try:
        return asyncio.run(ask())
    except CallError as error:
        return error
    except TimeoutError:
        return CallError(ErrorKind.TIMEOUT, f"no list within {_LIST_S:g} s", charged=False)


def _offer(project: Project, service: Model, listed: ListedModel) -> ModelOffer:
    price = listed.price
    if price is None:
        listed_price = project.prices.price_of(replace(service, model=listed.id, price=None))
        price = None if listed_price is None else (listed_price.tokens_in, listed_price.tokens_out)
    place = (service.provider, service.base_url, listed.id)
    same = (m for m in project.models.values() if (m.provider, m.base_url, m.model) == place)
    return ModelOffer(listed.id, price, [model.name for model in same])


def _service(project: Project, name: str) -> Model:
    """Return a model of the project, or one made for the service of a vendor."""
    if name in project.models:
        return project.models[name]
    vendor = VENDORS.get(name)
    if vendor is None:
        hint = did_you_mean(name, [*project.models, *VENDORS], label="models and vendors")
        raise UsageError(f"there is no model or vendor {name!r}", hint=hint)
    if vendor.options:
        raise UsageError(
            f"{name} has no list of models that a key alone can read",
            hint="see the vendor's console, or list known models: edison admin prices show",
        )
    return model_edits.vendor_model(name)


def _with_keys(project: Project) -> dict[str, Model]:
    """Return the vendors whose key is set or sealed."""
    return {
        name: _service(project, name)
        for name, vendor in VENDORS.items()
        if vendor.key_env and not vendor.options and project.has_key(vendor.key_env)
    }


Verdict = Literal["ok", "refused", "no quota", "unknown"]
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
    """A model that names the key, while only a call to it could show more."""
    hint: str = ""
    """What to do about a failure."""


_ADVICE = {
    **WHAT_TO_CHECK,
    "NO_KEY": "set the variable",
    "NOT_INSTALLED": "a library is missing; list them all: edison doctor",
    NOT_THERE: "not an error: this model cannot be called on its own yet",
}


def advice_on(error: str, otherwise: str) -> str:
    """Return what to do about a failed test, by the kind of its failure."""
    return _ADVICE.get(error, otherwise)


_UNREACHED = (ErrorKind.NETWORK, ErrorKind.TIMEOUT)
_CHECK_ENTRY = "check base_url of its model in models.yaml"


def check_by_list(project: Project, name: str, *, offline: bool) -> KeyTest:
    """Test a key with a list of models, which costs nothing."""
    if (model := _model_of(project, name)) is None:
        return KeyTest(name, "unknown", "no model and no known vendor takes it")
    caller = None if model.name not in project.models else model
    if model.provider not in HAVE_LISTS:
        return KeyTest(name, "unknown", f"{model.provider} has no list of models to ask", caller)
    environ, trust = key_environment(project), apply_base_terms(project).trust
    try:
        models = _list_models(model, environ, trust, offline=offline)
        if isinstance(models, CallError):
            verdict = _VERDICTS.get(models.kind, "unknown")
            # A service without a list may answer calls: only these show whether the key is right.
            more = caller if verdict == "unknown" and models.kind not in _UNREACHED else None
            hint = advice_on(models.kind, _CHECK_ENTRY) if verdict != "ok" else ""
            return KeyTest(name, verdict, models.message, more, hint)
        keyless = _list_models(replace(model, keys={}), environ, trust, offline=offline)
    except UsageError as error:  # not set, not to be opened, or not allowed to go there
        return KeyTest(name, "unknown", error.message, hint=error.hint or "")
    if not isinstance(keyless, CallError):
        return KeyTest(name, "unknown", "its list of models is open to everyone", caller)
    return KeyTest(name, "ok", "a list of models was given")


def check_by_call(project: Project, name: str, model: Model, *, offline: bool) -> KeyTest:
    """Test a key with one short call to a model, which may cost a little."""
    (result,) = probe(project, [model], run_context(project, offline=offline))
    reply = result.message or f"{model.name} has answered"
    verdict = _VERDICTS.get(result.error, "unknown")
    hint = advice_on(result.error, _CHECK_ENTRY) if verdict != "ok" else ""
    return KeyTest(name, verdict, reply, hint=hint)


def _model_of(project: Project, name: str) -> Model | None:
    """Return a model that names a key, if possible with a list; else one of the key's vendor."""
    naming = [model for model in project.models.values() if name in model.keys.values()]
    naming.sort(key=lambda model: (model.provider not in HAVE_LISTS, model.name))
    vendors = [v for v, entry in VENDORS.items() if entry.key_env == name and not entry.options]
    return next(iter(naming), None) or (model_edits.vendor_model(vendors[0]) if vendors else None)
