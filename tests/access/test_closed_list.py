"""Whatever key of whatever file a proposal changes: its job does what the base's files say."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel

from edison_ci.access import closed_list
from edison_ci.access.closed_list import Rule
from edison_ci.config.base_limits import with_minimum_prices
from edison_ci.config.calibration import JudgeApprovalsFile
from edison_ci.config.load import load_project
from edison_ci.config.model_entry import Limits, ModelEntry
from edison_ci.config.prices import BatchPrice, Price

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic.fields import FieldInfo

    from edison_ci.config.load import Experiment, Project
    from edison_ci.config.models import Model
    from tests.conftest import Folder

FILES = {
    "edison.yaml": """\
version: 1
project: mini
description: Greetings.
team: support
paths: {experiments: experiments, prompts: prompts, rubrics: rubrics, datasets: datasets,
        models: models.yaml}
results: .edison/results.db
defaults: {model: small, judge: judge, refiner: judge, assistant: judge, budget_usd: 5,
           max_iterations: 4}
settings:
  {allow_synthetic_datasets: true, require_review_approval: true, approvals: 2, retention_days: 30,
   backups: 3, reuse_days: 7, allow_code: true, redact_pii_before_storage: true, private: false,
   monthly_budget_usd: 50}
shared_budget: {url_env: SITE_URL, token_env: SITE_TOKEN, if_unreachable: stop}
limits: {monthly_usd: 9, teams: {support: 5}, projects: {mini: 4}}
members: [{github: ann, role: owner}, {github: bo, role: reviewer}, {github: cy, role: reviewer}]
notifications: [{name: team, on: [alert], webhook_env: HOOK_URL}]
cache: {url_env: CACHE_URL, token_env: CACHE_TOKEN, unsigned: ignore}
features: {acme: {words: 5}}
""",
    "models.yaml": """\
small:
  provider: openai_compatible
  model: m
  base_url: http://127.0.0.1:9/v1
  key_env: VENDOR_KEY
  params: {temperature: 0.5, max_tokens: 50, extra: {service_tier: default}}
  price: {in: 1, out: 2, cached_in: 0.5, cache_write: 1.5, call: 0.01, batch: {in: 0.5, out: 1},
          above: [{tokens: 1000, in: 2, out: 4}]}
  limits: {concurrency: 2, rpm: 60, tpm: 1000, timeout_s: 9, attempts: 2}
  fallback: [judge]
judge: {provider: sim, model: judge}
recorded: {provider: replay, store: recordings/r.jsonl}
""",
    ".edison/trust.yaml": "keys: [{env: VENDOR_KEY, hosts: ['http://127.0.0.1:9']}]\n",
    "recordings/r.jsonl": '{"edison_recording":1}\n',
    "prompts/hello.md": """\
---
version: 1
id: hello
type: generator
inputs: {name: string}
params: {temperature: 0.2, extra: {service_tier: default}}
expect: none
syntax: jinja
description: A greeting.
production: 0123abcd
---
# user
Say hello to {{ name }} in one friendly sentence, and nothing else.
""",
    "experiments/hello.yaml": """\
version: 1
experiment: hello
title: Hello
description: Greetings.
archived: false
objective: Greet people by their name in a friendly way.
prompts: [prompts/hello.md]
models: [{use: small, params: {temperature: 0.1, extra: {service_tier: default}}}]
dataset: datasets/names.jsonl
coverage: {tags: [a]}
split: {holdout: 0.4}
repeats: 2
checks: [{contains: "{{ expected }}"}]
rubric: rubrics/tone.yaml
judges: {pointwise: [judge]}
safety: {pii: flag, inputs: {pii: redact, secrets: block}}
gates: [{metric: composite, no_worse_than: base, margin: 10pp}]
max_errors: 0.1
stop: {max_iterations: 3, min_delta: 0.1, window: 2, budget_usd: 2, daily_budget_usd: 3,
       max_total_tokens: 9000, alert_at: 0.6, prune_weak_prompts: false,
       stop_if_no_refinement: false, adaptive_sampling: true}
refine: {by: judge, allow: [variables]}
schedule: [{name: nightly, cron: "0 3 * * *"}]
alerts: {drop: 0.2}
production: {files: "logs/*.jsonl"}
tags: [greeting]
features: {acme: {words: 5}}
""",
}
"""A project in which every key has a value."""

OPEN = {
    *("edison.yaml paths." + key for key in (
        "experiments", "prompts", "rubrics", "datasets", "models",
    )),
    *("edison.yaml defaults." + key for key in ("model", "judge")),
    *("experiment " + key for key in (
        "experiment", "archived", "objective", "prompts", "models", "dataset", "datasets", "split",
        "repeats", "checks", "rubric", "judges", "safety", "gates", "max_errors",
    )),
    *("prompt " + key for key in (
        "id", "type", "inputs", "params", "expect", "output", "tools", "syntax", "scale",
    )),
    "model model",
    *("model params." + key for key in ("temperature", "max_tokens")),
}  # fmt: skip
"""Keys whose value in the head counts."""
STRICTER: dict[str, Callable[[Any, Any], bool]] = {
    "edison.yaml defaults.budget_usd": lambda used, base: used <= base,
    "edison.yaml settings.allow_synthetic_datasets": lambda used, base: used <= base,
    "edison.yaml settings.require_review_approval": lambda used, base: used >= base,
    "edison.yaml settings.approvals": lambda used, base: used >= base,
    "edison.yaml settings.allow_code": lambda used, base: used <= base,
    "edison.yaml settings.redact_pii_before_storage": lambda used, base: used >= base,
    "edison.yaml settings.private": lambda used, base: used >= base,
    "edison.yaml settings.monthly_budget_usd": lambda used, base: used is not None and used <= base,
    "experiment stop.budget_usd": lambda used, base: used is not None and used <= base,
    "experiment stop.daily_budget_usd": lambda used, base: used is not None and used <= base,
    "experiment stop.max_total_tokens": lambda used, base: used is not None and used <= base,
    **{f"model limits.{key}": lambda used, base: used is not None and used <= base
       for key in Limits.model_fields},
}  # fmt: skip
"""Keys of which the stricter value counts."""
QUIET = {
    *("edison.yaml " + key for key in (
        "version", "project", "description", "team", "results", "limits", "members",
        "notifications", "defaults.refiner", "defaults.assistant", "defaults.max_iterations",
        "settings.retention_days", "settings.backups",
    )),
    *("experiment " + key for key in (
        "version", "title", "description", "coverage", "refine", "schedule", "alerts", "production",
        "tags", "stop.max_iterations", "stop.min_delta", "stop.window", "stop.alert_at",
        "stop.stop_if_no_refinement",
    )),
    *("prompt " + key for key in ("version", "description", "production")),
    "model fallback",
}  # fmt: skip
"""Keys that keep the base's value and leave the verdict alone."""
SECTIONS = {"edison.yaml paths", "edison.yaml defaults", "edison.yaml settings", "experiment stop"}
"""Keys that are looked into."""


@pytest.fixture
def project(mini: Folder) -> Project:
    for name, text in FILES.items():
        mini.write(name, text)
    return load_project(mini.path)


@pytest.fixture
def mirrored(project: Project) -> Project:
    """The same project with each setting that is on or off the other way round."""
    settings = project.file.settings
    flipped = {
        key: not value
        for key in type(settings).model_fields
        if isinstance(value := getattr(settings, key), bool)
    }
    file = project.file.model_copy(update={"settings": settings.model_copy(update=flipped)})
    return replace(project, file=file)


# --- every key with another value -----------------------------------------------------------------


def another(value: Any) -> Any:
    """Return a value of the same kind that is not the same."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}-2"
        case tuple():
            return value[1:]
        case dict():
            return {**value, "other": "value"}
    return None


def values(value: Any, field: FieldInfo) -> Iterator[Any]:
    """Yield other values of a key: larger and smaller ones, and that of a file without it."""
    if not isinstance(value, BaseModel):
        yield another(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield value / 2 if isinstance(value, float) else value // 2
    if not field.is_required():
        yield field.get_default(call_default_factory=True)


def changed(shape: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Yield each key of a section with the section in which it has another value."""
    for key, field in type(shape).model_fields.items():
        value = getattr(shape, key)
        if f"{place}{key}" in SECTIONS:
            for name, section in changed(value, f"{place}{key}."):
                yield name, shape.model_copy(update={key: section})
        else:
            for other in values(value, field):
                yield f"{place}{key}", shape.model_copy(update={key: other})


MODEL_KEYS = {"key_env": "keys"}
MODEL_VALUES: dict[str, tuple[Any, ...]] = {
    "provider": ("openai", "anthropic", "http", "sim", "replay", "litellm"),
    "model": ("dearer", "n"),
    "base_url": ("http://127.0.0.1:9/v2", "http://127.0.0.1:8/v1", "https://api.openai.com/v1"),
    "base_url_env": ("OTHER_URL",),
    "keys": ({"api_key": "OTHER_KEY"}, {}),
    "options": ({"headers": {"X-A": "b"}}, {"usage": {"cost_usd": "$.nothing"}}),
    "fallback": ((), ("small",)),
    "store": ("recordings/other.jsonl",),
}


def changed_models(model: Model) -> Iterator[tuple[str, Model]]:
    """Yield each key of a model with the model in which it has another value."""
    for param in ("temperature", "max_tokens"):
        params = {**model.params, param: another(model.params.get(param, 1))}
        yield f"model params.{param}", replace(model, params=params)
    for extra in ({"service_tier": "priority"}, {"n": 4}, None):
        yield "model params.extra", replace(model, params={**model.params, "extra": extra})
    for place, limits in changed(model.limits, "model limits."):
        yield place, replace(model, limits=limits)
    for place, price in cheaper(model.price):
        yield f"model price.{place}", replace(model, price=price)
    # Inherited values (`use`) are those of the model.
    for key in ModelEntry.model_fields.keys() - {"use", "params", "limits", "price"}:
        name = MODEL_KEYS.get(key, key)
        for value in MODEL_VALUES[name]:
            yield f"model {key}", replace(model, **{name: value})


def cheaper(price: Price | None) -> Iterator[tuple[str, Price]]:
    """Yield the price with each of its fields at zero, and gone."""
    if price is None:
        return
    free = Price.model_validate({"in": 0, "out": 0})
    yield "whole", free
    for key, field in Price.model_fields.items():
        alias = field.alias or key
        zero = {"batch": free, "above": ()}.get(key, 0.0)
        yield alias, price.model_copy(update={key: zero})


def heads(base: Project) -> Iterator[tuple[str, Project]]:
    """Yield every key of every file with a head that changed it."""
    for place, file in changed(base.file, "edison.yaml "):
        yield place, replace(base, file=file)
    (experiment,) = base.experiments.values()
    for place, file in changed(experiment.file, "experiment "):
        yield place, with_experiment(base, replace(experiment, file=file))
    ((name, model, params),) = experiment.models
    for extra in ({"service_tier": "priority"}, None):
        own = (name, model, {**params, "extra": extra})
        yield (
            "experiment models.params.extra",
            with_experiment(base, replace(experiment, models=(own,))),
        )
    inputs = experiment.file.safety.inputs
    for weaker in (
        inputs.model_copy(update={"secrets": "flag"}),
        inputs.model_copy(update={"pii": inputs.pii.model_copy(update={"action": "flag"})}),
        type(inputs).model_construct(),
    ):
        safety = experiment.file.safety.model_copy(update={"inputs": weaker})
        file = experiment.file.model_copy(update={"safety": safety})
        yield "experiment safety.inputs", with_experiment(base, replace(experiment, file=file))
    (prompt,) = base.prompts.values()
    for place, header in changed(prompt.header, "prompt "):
        yield place, replace(base, prompts={prompt.path: replace(prompt, header=header)})
    for extra in ({"service_tier": "priority"}, None):
        assert prompt.header.params is not None
        params_of_prompt = prompt.header.params.model_copy(update={"extra": extra})
        header = prompt.header.model_copy(update={"params": params_of_prompt})
        other = {prompt.path: replace(prompt, header=header)}
        yield "prompt params.extra", replace(base, prompts=other)
    for entry in base.models.values():
        for place, other_model in changed_models(entry):
            yield place, with_model(base, other_model)
    yield "judge_approvals.yaml", replace(base, approvals=JudgeApprovalsFile.model_construct())


def with_experiment(base: Project, experiment: Experiment) -> Project:
    return replace(base, experiments={experiment.id: experiment})


def with_model(base: Project, model: Model) -> Project:
    (experiment,) = base.experiments.values()
    (own,) = experiment.models
    models = ((own[0], model, own[2]),) if own[1].name == model.name else (own,)
    judges = tuple(model if judge.name == model.name else judge for judge in experiment.judges)
    return with_experiment(
        replace(base, models={**base.models, model.name: model}),
        replace(experiment, models=models, judges=judges),
    )


# --- what a job would do --------------------------------------------------------------------------


def deeds(project: Project) -> dict[str, Any]:
    """Return what a job for a project does, leaf by leaf: whatever its files decide."""
    (experiment,) = project.experiments.values()
    (prompt,) = project.prompts.values()
    leaves: dict[str, Any] = {}
    leaves |= _leaves(project.file, "edison.yaml ")
    leaves |= _leaves(experiment.file, "experiment ")
    leaves |= _leaves(prompt.header, "prompt ")
    leaves["experiment safety.inputs"] = experiment.file.safety.inputs
    leaves["prompt params.extra"] = prompt.header.params and prompt.header.params.extra
    leaves["experiment models.params.extra"] = [own.get("extra") for _, _, own in experiment.models]
    leaves["judge_approvals.yaml"] = project.approvals
    called = [*(model for _, model, _ in experiment.models), *experiment.judges]
    for where, models in (("", project.models.values()), ("called ", called)):
        for model in models:
            for each in fields(model):
                if each.name not in {"where", "capabilities", "tree", "price", "params", "limits"}:
                    leaves[f"{where}{model.name} {each.name}"] = getattr(model, each.name)
            for key, value in model.params.items():
                leaves[f"{where}{model.name} params.{key}"] = value
            leaves |= _leaves(model.limits, f"{where}{model.name} limits.")
    leaves["refused"] = project.refused
    return leaves


def _leaves(shape: Any, place: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key in type(shape).model_fields:
        value = getattr(shape, key)
        if f"{place}{key}" in SECTIONS:
            found |= _leaves(value, f"{place}{key}.")
        else:
            found[f"{place}{key}"] = value
    return found


def violations(base: Project) -> set[str]:
    """Return the keys by which a head gets its job to do something else than the list allows."""
    before = deeds(closed_list.on_terms_of(base, base)[0])
    return {place for place, head in heads(base) if not _is_held(base, head, place, before)}


def _is_held(base: Project, head: Project, place: str, before: dict[str, Any]) -> bool:
    after, overruled = closed_list.on_terms_of(base, head)
    now = deeds(after)
    differing = {leaf for leaf in {*before, *now} if before.get(leaf) != now.get(leaf)}
    own = {leaf for leaf in differing if _key(leaf) == place}
    if place.startswith("model price"):
        return not differing and _as_dear(base, after)
    if place in OPEN:
        return differing == own
    if place in STRICTER:
        return differing == own and all(STRICTER[place](now[leaf], before[leaf]) for leaf in own)
    doubted = bool(closed_list.doubts_about(overruled))
    followed = deeds(head) == {**now, "refused": {}}
    return not differing and (followed or doubted is (place not in QUIET))


def _key(leaf: str) -> str:
    """Return the key of a leaf; all models have the same keys."""
    kind, _, key = leaf.removeprefix("called ").partition(" ")
    key = {"keys": "key_env"}.get(key, key)
    return leaf if kind in ("edison.yaml", "experiment", "prompt") else f"model {key}"


def _as_dear(base: Project, after: Project) -> bool:
    """Whether no field of a price is below that of the base."""
    prices = with_minimum_prices(after.prices, base.models.values(), base.prices)
    for name, model in base.models.items():
        least, used = base.prices.price_of(model), prices.price_of(after.models[name])
        if least is None or used is None:
            continue
        pairs: list[tuple[BatchPrice, BatchPrice]] = [
            (least, used),
            (least.batch or least, used.batch or used),
        ]
        if used.call < least.call or any(_is_cheaper(*pair) for pair in pairs):
            return False
    return True


def _is_cheaper(least: BatchPrice, used: BatchPrice) -> bool:
    return any(
        getattr(used.at(size), field) < getattr(least.at(size), field)
        for size in (1, 1_001)
        for field in ("tokens_in", "tokens_out", "read", "written")
    )


def test_no_key_that_is_not_on_the_closed_list_changes_what_a_job_does(
    project: Project, mirrored: Project
) -> None:
    assert violations(project) == set()
    assert violations(mirrored) == set()


def test_the_walk_reaches_every_key(project: Project) -> None:
    """A key without a value in `FILES` could not be tried: a new key needs one."""
    (experiment,) = project.experiments.values()
    (prompt,) = project.prompts.values()
    empty = {"datasets", "output", "tools", "scale"}  # which exclude another, or are the head's
    for shape in (project.file, experiment.file, prompt.header):
        lacking = {key for key in type(shape).model_fields if getattr(shape, key) is None}
        assert lacking <= empty
    places = {place for place, _ in heads(project)}
    assert {
        place.partition(" ")[2].partition(".")[0] for place in places if place.startswith("model ")
    } == {*ModelEntry.model_fields} - {"use"}
    assert places >= {*OPEN, *STRICTER, *QUIET} - {"model fallback"}


CLOSED = [
    *((closed_list.PROJECT, (key,)) for key in ("cache", "features", "shared_budget", "members")),
    *((closed_list.PROJECT, ("settings", key)) for key in (
        "reuse_days", "private", "allow_code", "approvals", "monthly_budget_usd",
        "redact_pii_before_storage", "require_review_approval", "allow_synthetic_datasets",
    )),
    (closed_list.PROJECT, ("defaults", "budget_usd")),
    *((closed_list.EXPERIMENT, ("stop", key)) for key in (
        "budget_usd", "daily_budget_usd", "max_total_tokens", "adaptive_sampling",
        "prune_weak_prompts",
    )),
    *((closed_list.EXPERIMENT, (key,)) for key in ("production", "refine", "schedule")),
    *((closed_list.LIMITS, (key,)) for key in Limits.model_fields),
    (closed_list.PROMPT, ("production",)),
]  # fmt: skip


@pytest.mark.nightly
def test_the_walk_finds_each_rule_that_is_switched_off(
    project: Project,
    mirrored: Project,
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
) -> None:
    for rules, (*sections, key) in CLOSED:
        with subtests.test(key), monkeypatch.context() as patch:
            section: Any = rules
            for name in sections:
                section = section[name]
            patch.setitem(section, key, Rule.HEAD)
            places = violations(project) or violations(mirrored)
            assert any(place.endswith(key) for place in places)


def test_the_walk_finds_a_service_that_may_be_changed(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = ("provider", "base_url", "base_url_env", "key_env", "options", "store", "params.extra")
    monkeypatch.setattr(closed_list, "_service", lambda model: model.name)
    assert violations(project) >= {f"model {part}" for part in parts}


def test_a_new_entry_needs_one_of_the_base_with_its_service(
    project: Project, subtests: pytest.Subtests
) -> None:
    small = project.models["small"]
    like = replace(small, name="like", model="other", limits=Limits.model_construct())
    after, overruled = closed_list.on_terms_of(project, with_model(project, like))
    assert (after.models["like"].model, after.refused) == ("other", {})
    assert after.models["like"].limits == small.limits
    assert not closed_list.doubts_about(overruled)
    for key in ("provider", "base_url", "base_url_env", "keys", "options", "store"):
        for value in MODEL_VALUES[key]:
            with subtests.test(key, value=value):
                head = with_model(project, replace(like, **{key: value}))
                after, overruled = closed_list.on_terms_of(project, head)
                assert set(after.refused) == {"like"}
                assert (after.models["like"].keys, after.models["like"].base_url_env) == ({}, None)
                assert closed_list.doubts_about(overruled)


def test_without_a_base_only_models_without_a_network_are_called(project: Project) -> None:
    after, overruled = closed_list.on_terms_of(None, project)
    assert set(after.refused) == {"small", "recorded"}
    assert closed_list.doubts_about(overruled)
    assert after.file.cache is None
    assert after.file.shared_budget is None
