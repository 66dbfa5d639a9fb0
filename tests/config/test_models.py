"""The registry: inheritance, what each provider needs and takes, grids, and what is sent."""

from __future__ import annotations

import datetime as dt
import time
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config.experiment import ModelUse
from edison_ci.config.load import inspect_project
from edison_ci.config.model_entry import APPLICATIONS, PROVIDERS, SIM_MODELS
from edison_ci.config.models import (
    DEFAULT_PARAMS,
    OFFLINE,
    Configuration,
    Model,
    RegistryReader,
    configure,
    grid,
    params_refused,
    retirement,
)
from edison_ci.config.prompt import Prompt, read_prompt
from edison_ci.documents.files import WorkingTree
from edison_ci.documents.yaml_text import read_yaml
from edison_ci.errors import Location, Severity

if TYPE_CHECKING:
    from tests.conftest import Folder

TODAY = dt.date(2026, 11, 15)
SIM = "provider: sim, model: small"
OPENAI = "provider: openai, model: gpt-4o"
AZURE = (
    'provider: azure, base_url: "https://x.example", '
    'options: {deployment: d, api_version: "2024-10-21"}'
)
VERTEX = "provider: vertex, model: gemini, options: {project: p, location: l}"
BEDROCK = "provider: bedrock, model: anthropic.claude-x, options: {region: eu-central-1}"


def registry(text: str) -> tuple[dict[str, Model], list[str]]:
    reader = RegistryReader(read_yaml(text, "models.yaml"))
    models = reader.read()
    problems = sorted(reader.problems, key=lambda problem: problem.where.order)
    return models, [str(problem) for problem in problems]


def good(text: str) -> dict[str, Model]:
    models, problems = registry(text)
    assert problems == []
    return models


def bad(text: str) -> list[str]:
    _, problems = registry(text)
    assert problems
    return problems


def a_prompt(params: str = "{}") -> Prompt:
    text = f"---\nparams: {params}\n---\nAnswer {{{{ q }}}} in one friendly sentence, nothing more."
    prompt, _ = read_prompt(text.encode(), "prompts/p.md")
    assert prompt is not None
    return prompt


# --- inheritance ----------------------------------------------------------------------------------


def test_use_inherits_and_merges_deeply_and_lists_replace() -> None:
    models = good(
        "base: {provider: openai, model: gpt-4o, key_env: MY_KEY, fallback: [other],\n"
        "  options: {organization: o},\n"
        "  params: {temperature: 0.5, stop: [a, b],\n"
        "    extra: {logit_bias: {x: 1, y: 2}, transforms: [a, b]}},\n"
        "  limits: {rpm: 100, attempts: 5}, price: {in: 1, out: 2, cached_in: 0.5}}\n"
        "other: {provider: sim, model: small}\n"
        "child: {use: base, model: gpt-4o-mini,\n"
        "  params: {max_tokens: 10, stop: [c], extra: {logit_bias: {y: 3}, transforms: [c]}},\n"
        "  limits: {rpm: 7}, price: {in: 3}}\n"
        "grandchild: {use: child, params: {temperature: 0.1}, fallback: []}\n"
    )
    child = models["child"]
    assert (child.provider, child.model) == ("openai", "gpt-4o-mini")
    assert child.keys == {"api_key": "MY_KEY"}
    assert child.options == {"organization": "o"}
    assert child.params == {
        "temperature": 0.5,
        "stop": ("c",),
        "max_tokens": 10,
        "extra": {"logit_bias": {"x": 1, "y": 3}, "transforms": ["c"]},
    }
    assert (child.limits.rpm, child.limits.attempts, child.limits.concurrency) == (7, 5, 10)
    assert child.price is not None
    assert (child.price.tokens_in, child.price.tokens_out, child.price.cached_in) == (3, 2, 0.5)
    assert child.fallback == ("other",)
    assert models["grandchild"].params["temperature"] == 0.1
    assert models["grandchild"].params["max_tokens"] == 10
    assert models["grandchild"].fallback == ()
    assert models["base"].params["stop"] == ("a", "b"), "parents are not changed"


def test_a_scalar_replaces_a_map_and_null_takes_away() -> None:
    models = good(
        "a: {provider: openai, model: m, price: {in: 1, out: 2}, options: {organization: o}}\n"
        "b: {use: a, price: free, options: null}\n"
        "c: {use: b, price: {in: 5, out: 6}}\n"
    )
    assert models["b"].price is not None and models["b"].price.tokens_in == 0
    assert models["b"].options == {}
    assert models["c"].price is not None and models["c"].price.tokens_in == 5


def test_null_takes_away_one_parameter_or_option_and_one_in_extra() -> None:
    models = good(
        "a:\n"
        "  provider: openai\n"
        "  model: m\n"
        "  params: {temperature: 0.5, seed: 1, extra: {user: me}}\n"
        "  options: {organization: o}\n"
        "  limits: {rpm: 5}\n"
        "b:\n"
        "  use: a\n"
        "  params: {seed: null, top_p: null, extra: {user: null}}\n"
        "  options: {organization: null}\n"
        "  limits: {rpm: null}\n"
    )
    assert models["b"].params == {"temperature": 0.5, "extra": {}}
    assert models["b"].options == {}
    assert models["b"].limits.rpm is None
    assert models["a"].limits.rpm == 5


def test_the_order_in_the_file_does_not_matter() -> None:
    models = good(f"c: {{use: b}}\nb: {{use: a, params: {{seed: 1}}}}\na: {{{SIM}}}\n")
    assert list(models) == ["c", "b", "a"]
    assert models["c"].params == {"seed": 1}


@pytest.mark.parametrize("own", ["base_url: 'https://b.example'", "base_url_env: B_URL"])
@pytest.mark.parametrize("inherited", ["base_url: 'https://a.example'", "base_url_env: A_URL"])
def test_an_address_of_either_kind_replaces_the_inherited_one(inherited: str, own: str) -> None:
    models = good(
        f"a: {{provider: openai_compatible, model: m, {inherited}}}\nb: {{use: a, {own}}}\n"
    )
    assert models["b"].endpoint in ("https://b.example", "env:B_URL")
    assert models["a"].endpoint in ("https://a.example", "env:A_URL")


def test_an_inherited_fallback_to_oneself_is_left_out() -> None:
    models = good(f"a: {{{SIM}, fallback: [b, c]}}\nb: {{use: a}}\nc: {{use: a}}\n")
    assert models["b"].fallback == ("c",)
    assert models["c"].fallback == ("b",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: {use: a}\n", "1:10: models use each other in a cycle: a -> a"),
        (
            "c: {use: a}\na: {use: b}\nb: {use: a}\nd: {use: c}\n",
            "2:10: models use each other in a cycle: a -> b -> a",
        ),
        (
            f"x: {{{SIM}}}\na: {{use: b}}\nb: {{use: c}}\nc: {{use: a}}\n",
            "2:10: models use each other in a cycle: a -> b -> c -> a",
        ),
        (f"big: {{{SIM}}}\na: {{use: bog}}\n", "2:10: unknown model 'bog' (did you mean 'big'?)"),
        (
            "a: {use: nowhere}\nb: {use: a}\nc: {use: b}\n",
            "1:10: unknown model 'nowhere'",
        ),
    ],
)
def test_a_chain_without_an_end_is_reported_once(text: str, problem: str) -> None:
    (found,) = bad(text)
    assert found.startswith(f"models.yaml:{problem}")


def test_a_chain_may_be_twenty_models_long() -> None:
    chain = f"m0: {{{SIM}}}\n" + "".join(f"m{n}: {{use: m{n - 1}}}\n" for n in range(1, 20))
    assert good(chain)["m19"].model == "small"
    (found,) = bad(chain + "m20: {use: m19}\nm21: {use: m20}\n")
    assert found.startswith("models.yaml:21:12: 'm20' inherits from more than 19 models")


WRONG_PARENTS = [
    ("provider: opnai, model: m", "provider is 'opnai'"),
    ("provider: openai", "model 'a' has no model name"),
    ("model: m", "model 'a' has no provider"),
    (f"{BEDROCK}, params: {{seed: 1}}", "bedrock takes no seed"),
    ("provider: azure, base_url: 'https://x.example'", "key 'options' is missing"),
    (f"{SIM}, key_env: K", "sim takes no key"),
    ("provider: replay", "a replay model needs a recording"),
    (f"{OPENAI}, fallback: [zzz]", "no other model 'zzz'"),
]


def test_what_is_wrong_with_a_parent_is_said_once(subtests: pytest.Subtests) -> None:
    for parent, problem in WRONG_PARENTS:
        with subtests.test(parent=parent):
            text = f"c: {{use: b}}\na: {{{parent}}}\nb: {{use: a, params: {{max_tokens: 5}}}}\n"
            models, found = registry(text)
            assert sum(problem in line for line in found) == 1, found
            assert all(line.startswith("models.yaml:2:") for line in found), found
            assert models == {}


def test_what_a_child_adds_is_said_beside_what_its_parent_was_told() -> None:
    found = bad(
        "a: {provider: anthropic, model: m, params: {seed: 1}}\n"
        "b: {use: a, params: {presence_penalty: 1}, store: x.jsonl}\n"
    )
    assert [line.split(" (")[0] for line in found] == [
        "models.yaml:1:51: anthropic takes no seed",
        "models.yaml:2:40: anthropic takes no presence_penalty",
        "models.yaml:2:51: store is for provider: replay",
    ]


def test_a_price_is_whole_only_once_it_is_merged() -> None:
    models = good(f"a: {{{OPENAI}, price: {{in: 1, out: 2}}}}\nb: {{use: a, price: {{out: 3}}}}\n")
    assert models["b"].price is not None
    assert (models["b"].price.tokens_in, models["b"].price.tokens_out) == (1, 3)
    (found,) = bad(f"a: {{{OPENAI}}}\nb: {{use: a, price: {{out: 3}}}}\n")
    assert found.startswith("models.yaml:2:20: key 'in' is missing")


def test_a_child_may_mend_what_its_parent_lacks() -> None:
    models, found = registry("a: {provider: openai}\nb: {use: a, model: gpt-4o}\n")
    assert list(models) == ["b"]
    assert len(found) == 1


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "gpt-4.1_mini", "4o", "A" * 100])
def test_these_are_names_of_models(name: str) -> None:
    assert list(good(f"'{name}': {{{SIM}}}\n")) == [name]


WRONG_NAMES = [
    ("a b", "is not a name"),
    ("-a", "is not a name"),
    ("", "is not a name"),
    ("a/b", "is not a name"),
    ("a[temperature=1]", "is not a name"),
    ("A" * 101, "has 101 characters; at most 100"),
    ("m\u0430x", "contains U+0430 (cyrillic small letter a)"),
    ("a\u200bb", "contains U+200B (zero width space)"),
    ("größe", "contains U+00F6"),
]


def test_these_are_not(subtests: pytest.Subtests) -> None:
    for name, what in WRONG_NAMES:
        with subtests.test(name=name):
            (found,) = bad(f'ok: {{{SIM}}}\n"{name}": {{{SIM}}}\n')
            assert found.startswith("models.yaml:2:1: model name ") and what in found


def test_a_name_does_not_end_in_a_newline() -> None:
    assert "contains U+000A" in bad(f'"a\\n": {{{SIM}}}\n')[0]


def test_the_version_of_the_file_is_not_a_model() -> None:
    assert list(good(f"version: 1\na: {{{SIM}}}\n")) == ["a"]


# --- what a provider needs and takes --------------------------------------------------------------

WHOLE = {
    "openai": OPENAI,
    "anthropic": "provider: anthropic, model: claude",
    "azure": AZURE,
    "ollama": "provider: ollama, model: llama3",
    "vertex": VERTEX,
    "bedrock": BEDROCK,
    "openai_compatible": "provider: openai_compatible, model: m, base_url: 'http://127.0.0.1:1/v1'",
    "litellm": "provider: litellm, model: groq/x, options: {organization: o}",
    "sim": SIM,
    "local": "provider: local, model: smollm2-135m-instruct",
    "replay": "provider: replay, store: runs/x.jsonl",
    "command": "provider: command, options: {run: [a], files: [a]}",
    "http": "provider: http, base_url: 'https://x.example', options: {body: {}}",
}


def test_every_provider_has_a_smallest_whole_entry() -> None:
    assert set(WHOLE) == set(PROVIDERS.built_in)
    for provider, entry in WHOLE.items():
        assert good(f"m: {{{entry}}}\n")["m"].provider == provider


VENDOR_DEFAULTS = [
    ("openai", {"api_key": "OPENAI_API_KEY"}, "https://api.openai.com/v1"),
    ("anthropic", {"api_key": "ANTHROPIC_API_KEY"}, "https://api.anthropic.com"),
    ("azure", {"api_key": "AZURE_OPENAI_API_KEY"}, "https://x.example"),
    ("ollama", {}, "http://localhost:11434/v1"),
    ("vertex", {"api_key": "GOOGLE_APPLICATION_CREDENTIALS"}, ""),
    (
        "bedrock",
        {
            "access_key_id": "AWS_ACCESS_KEY_ID",
            "secret_access_key": "AWS_SECRET_ACCESS_KEY",
        },
        "",
    ),
    ("openai_compatible", {}, "http://127.0.0.1:1/v1"),
    ("litellm", {}, ""),
    ("sim", {}, ""),
    ("local", {}, ""),
    ("replay", {}, ""),
]


def test_keys_and_addresses_have_the_vendors_defaults(subtests: pytest.Subtests) -> None:
    for provider, keys, address in VENDOR_DEFAULTS:
        with subtests.test(provider=provider):
            model = good(f"m: {{{WHOLE[provider]}}}\n")["m"]
            assert (model.keys, model.address) == (keys, address)
            assert model.simulated is (provider == "sim")


def test_azure_is_called_by_its_deployment_unless_it_names_a_model() -> None:
    assert good(f"m: {{{AZURE}}}\n")["m"].model == "d"
    assert good(f"m: {{{AZURE}, model: gpt-4o}}\n")["m"].model == "gpt-4o"


WRONG_ENTRIES = [
    ("{}", "", "model 'm' has no provider"),
    ("{provider: openai}", "", "model 'm' has no model name"),
    ("{provider: openai_compatible, model: m}", "", "openai_compatible needs an address"),
    (f"{{{AZURE.replace('base_url', 'key_env').replace('https://x.example', 'K')}}}", "",
     "azure needs an address"),
    ("{provider: azure, base_url: 'https://x'}", "{", "key 'options' is missing"),
    (f"{{{AZURE.replace('deployment: d, ', '')}}}", "{api", "key 'deployment' is missing"),
    (f"{{{AZURE.replace('2024-10-21', 'new')}}}", '"new', "'new' is not an API version"),
    (f"{{{VERTEX.replace('project: p, ', '')}}}", "{loc", "key 'project' is missing"),
    (f"{{{BEDROCK.replace('eu-central-1', 'EU west')}}}", "EU", "'EU west' is not a region"),
    (f"{{{OPENAI}, options: {{organisation: o}}}}", "organisation", "unknown key 'organisati"),
    ("{provider: anthropic, model: m, options: {a: 1}}", "{a", "anthropic takes no options"),
    (f"{{{SIM}, options: {{noise: 2}}}}", "2", "noise is 2; at most 1"),
    ("{provider: sim, model: smal}", "smal", "sim has no model 'smal' (did you mean 'small'?)"),
    ("{provider: sim, model: script}", "", "sim's script needs a file"),
    (f"{{{SIM}, key_env: K}}", "K", "sim takes no key"),
    ("{provider: local, model: smollm2-135m-instruct, key_env: K}", "K", "local takes no key"),
    ("{provider: replay, store: a, key_env: K}", "K", "replay takes no key"),
    ("{provider: replay}", "", "a replay model needs a recording"),
    (f"{{{OPENAI}, store: a.jsonl}}", "a.jsonl", "store is for provider: replay"),
    (f"{{{SIM}, base_url: 'https://x'}}", "'https", "sim takes no address"),
    (f"{{{VERTEX}, base_url_env: X}}", "X", "vertex takes no address"),
    (f"{{{OPENAI}, base_url: 'https://x', base_url_env: X}}", "X",
     "base_url and base_url_env are both given"),
    (f"{{{BEDROCK}, key_env: K}}", "K", "bedrock needs two keys"),
    (f"{{{BEDROCK}, key_env: {{access_key_id: K}}}}", "{acc", "bedrock needs two keys"),
    (f"{{{OPENAI}, key_env: {{Bad-Field: K}}}}", "K", "'Bad-Field' is not a field of a key"),
    (f"{{{OPENAI}, key_env: 'sk-123'}}", "'sk", "'sk-1"),
    (f"{{{OPENAI}, api_key: x}}", "api_key", "unknown key 'api_key' (never write a key"),
    (f"{{{OPENAI}, fallback: [m]}}", "m]", "no other model 'm'"),
    (f"{{{OPENAI}, fallback: [gone]}}", "gone", "no other model 'gone'"),
    ("[openai]", "[", ""),
    ("openai", "openai", ""),
    (f"{{{OPENAI}, price: cheap}}", "cheap", "'cheap' is not a price"),
    (f"{{{OPENAI}, price: {{in: 1}}}}", "{in", "key 'out' is missing"),
    (f"{{{OPENAI}, params: {{temperature: 2.1}}}}", "2.1", "temperature is 2.1; at most 2"),
]  # fmt: skip


def test_what_a_model_lacks_or_may_not_have_is_said_with_its_place(
    subtests: pytest.Subtests,
) -> None:
    for entry, at, problem in WRONG_ENTRIES:
        with subtests.test(entry=entry):
            found = bad(f"m: {entry}\n")
            column = f"m: {entry}".rindex(at) + 1 if at else 1
            assert any(line.startswith(f"models.yaml:1:{column}: {problem}") for line in found), (
                found
            )


@pytest.mark.parametrize(
    "address",
    ["http://localhost:1", "https://a.example/v1/", "https://[::1]:8080/x", "https://1.2.3.4"],
)
def test_these_are_addresses(address: str) -> None:
    model = good(f"m: {{provider: openai_compatible, model: m, base_url: '{address}'}}\n")["m"]
    assert model.endpoint == address, "as written: it is part of a call's identity"


WRONG_ADDRESSES = [
    "ftp://x", "x.example", "//x", "https://", "https:///path", "https://x:0", "https://x:99999",
    "https://a b", "https://u:p@x", "https://u@x", "https://x?k=v", "https://x#f", "file:///x",
    "https://[::1", "javascript:alert(1)", "HTTPS//x", "https://x\\ny", "",
]  # fmt: skip


def test_these_are_not_addresses(subtests: pytest.Subtests) -> None:
    for address in WRONG_ADDRESSES:
        with subtests.test(address=address):
            bad(f'm: {{provider: openai_compatible, model: m, base_url: "{address}"}}\n')


def test_several_keys_are_a_map_of_fields_to_variables() -> None:
    keys = "{access_key_id: AWS_ACCESS_KEY_ID, secret_access_key: AWS_SECRET, session_token: T}"
    model = good(f"m: {{{BEDROCK}, key_env: {keys}}}\n")["m"]
    assert model.keys == {
        "access_key_id": "AWS_ACCESS_KEY_ID",
        "secret_access_key": "AWS_SECRET",
        "session_token": "T",
    }


def test_the_simulator_has_just_these_models() -> None:
    for name in SIM_MODELS:
        options = ", options: {file: x.yaml}" if name == "script" else ""
        assert good(f"m: {{provider: sim, model: {name}{options}}}\n")["m"].model == name
    assert {"sim", "local", "replay"} == OFFLINE


# --- parameters -----------------------------------------------------------------------------------

ALL_PARAMS = {
    "temperature": "0.5", "max_tokens": "10", "top_p": "0.5", "frequency_penalty": "1",
    "presence_penalty": "1", "seed": "1", "stop": "[x]", "extra": "{top_k: 1}",
}  # fmt: skip
REFUSED = {
    "anthropic": {"frequency_penalty", "presence_penalty", "seed"},
    "bedrock": {"frequency_penalty", "presence_penalty", "seed"},
    "vertex": {"extra"},
    "local": {"extra"},
}


def test_only_what_the_provider_takes_may_be_written(subtests: pytest.Subtests) -> None:
    for param, provider in product(ALL_PARAMS, WHOLE):
        with subtests.test(param=param, provider=provider):
            models, found = registry(
                f"m: {{{WHOLE[provider]}, params: {{{param}: {ALL_PARAMS[param]}}}}}"
            )
            if param in REFUSED.get(provider, ()):
                assert (
                    len(found) == 1 and f"{provider} takes no {param} (remove {param})" in found[0]
                )
            else:
                assert found == [] and param in models["m"].params


@pytest.mark.parametrize("provider", ["anthropic", "bedrock"])
def test_some_providers_are_not_heated_above_one(provider: str) -> None:
    good(f"m: {{{WHOLE[provider]}, params: {{temperature: 1}}}}\n")
    (found,) = bad(f"m: {{{WHOLE[provider]}, params: {{temperature: 1.1}}}}\n")
    assert f"temperature is 1.1; {provider} takes at most 1" in found
    good(f"m: {{{OPENAI}, params: {{temperature: 2}}}}\n")


def test_every_provider_says_how_hot_it_takes(subtests: pytest.Subtests) -> None:
    for provider in sorted(WHOLE):
        with subtests.test(provider=provider):
            most = 1 if provider in ("anthropic", "bedrock") else 2
            told = f"temperature is 2.5; {provider} takes at most {most}"
            assert [*params_refused({"temperature": 2.5}, provider)] == [("temperature", told)]


def sent(entry: str, prompt: str = "{}", **experiment: Any) -> dict[str, Any]:
    model = good(f"m: {{{entry}}}\n")["m"]
    return dict(configure("m", model, a_prompt(prompt), experiment).params)


def test_defaults_are_sent_where_nothing_is_written(subtests: pytest.Subtests) -> None:
    for provider in sorted(WHOLE.keys() - APPLICATIONS):
        with subtests.test(provider=provider):
            assert (
                sent(WHOLE[provider]) == DEFAULT_PARAMS == {"temperature": 1.0, "max_tokens": 4096}
            )


def test_experiment_comes_before_prompt_before_registry_before_default() -> None:
    entry = f"{OPENAI}, params: {{temperature: 0.1, max_tokens: 1, top_p: 0.1, seed: 1}}"
    assert sent(entry) == {"temperature": 0.1, "max_tokens": 1, "top_p": 0.1, "seed": 1}
    prompt = "{temperature: 0.2, max_tokens: 2, top_p: 0.2}"
    assert sent(entry, prompt) == {"temperature": 0.2, "max_tokens": 2, "top_p": 0.2, "seed": 1}
    assert sent(entry, prompt, temperature=0.3, max_tokens=3) == {
        "temperature": 0.3, "max_tokens": 3, "top_p": 0.2, "seed": 1,
    }  # fmt: skip
    assert sent(OPENAI, "{max_tokens: 2}", seed=9) == {
        "temperature": 1.0, "max_tokens": 2, "seed": 9,
    }  # fmt: skip


@pytest.mark.parametrize("provider", ["anthropic", "bedrock"])
def test_a_default_that_would_be_refused_beside_top_p_is_left_out(provider: str) -> None:
    entry = f"{WHOLE[provider]}, params: {{top_p: 0.9}}"
    assert sent(entry) == {"top_p": 0.9, "max_tokens": 4096}
    assert sent(WHOLE[provider], "{top_p: 0.9}") == {"top_p": 0.9, "max_tokens": 4096}
    written = f"{WHOLE[provider]}, params: {{top_p: 0.9, temperature: 0.5}}"
    assert sent(written) == {"top_p": 0.9, "temperature": 0.5, "max_tokens": 4096}
    assert sent(f"{OPENAI}, params: {{top_p: 0.9}}")["temperature"] == 1.0
    other = WHOLE["bedrock"].replace("anthropic.claude-x", "meta.llama")
    assert sent(f"{other}, params: {{top_p: 0.9}}")["temperature"] == 1.0


def test_what_makes_an_answer_is_in_the_identity_and_nothing_else() -> None:
    base = good(f"m: {{{OPENAI}}}\n")["m"].identity()
    for same in ("key_env: K", "limits: {rpm: 1}", "price: free", "params: {seed: 1}"):
        assert good(f"m: {{{OPENAI}, {same}}}\n")["m"].identity() == base
    for other in ("base_url: 'https://x.example'", "base_url_env: U", "options: {organization: o}"):
        assert good(f"m: {{{OPENAI}, {other}}}\n")["m"].identity() != base
    assert good(f"n: {{{OPENAI}}}\n")["n"].identity() == base


# --- grids ----------------------------------------------------------------------------------------


def names(use: dict[str, Any]) -> list[str]:
    return [name for name, _ in grid(ModelUse.model_validate(use))]


def test_a_grid_is_named_by_its_parameters_in_the_order_written() -> None:
    params = {"temperature": [0.3, 1.0], "max_tokens": [512, 2048]}
    assert grid(ModelUse.model_validate({"use": "big", "params": params})) == [
        ("big[temperature=0.3,max_tokens=512]", {"temperature": 0.3, "max_tokens": 512}),
        ("big[temperature=0.3,max_tokens=2048]", {"temperature": 0.3, "max_tokens": 2048}),
        ("big[temperature=1,max_tokens=512]", {"temperature": 1.0, "max_tokens": 512}),
        ("big[temperature=1,max_tokens=2048]", {"temperature": 1.0, "max_tokens": 2048}),
    ]
    assert names({"use": "big"}) == ["big"]
    assert names({"use": "big", "params": {"top_p": 0.5}}) == ["big[top_p=0.5]"]


def test_names_tell_close_values_apart() -> None:
    found = names({"use": "m", "params": {"temperature": [0.1234567, 0.1234568, 0.1, 2]}})
    assert found == [
        "m[temperature=0.1234567]",
        "m[temperature=0.1234568]",
        "m[temperature=0.1]",
        "m[temperature=2]",
    ]
    assert names({"use": "m", "params": {"seed": [1000000, -12345678901]}}) == [
        "m[seed=1000000]",
        "m[seed=-12345678901]",
    ]


def test_names_tell_stop_texts_and_extras_apart() -> None:
    one, other = (names({"use": "m", "params": {"stop": [text]}})[0] for text in ("a", "b"))
    assert one != other and one.startswith("m[stop=")
    assert names({"use": "m", "params": {"extra": {"top_k": 1}}}) != names(
        {"use": "m", "params": {"extra": {"top_k": 2}}}
    )


def test_a_huge_grid_is_not_laid_out() -> None:
    tens = {
        key: [number / 10 for number in range(10)]
        for key in ("temperature", "top_p", "frequency_penalty", "presence_penalty")
    }
    use = {
        "use": "m",
        "params": {**tens, "seed": list(range(10)), "max_tokens": list(range(1, 11))},
    }
    started = time.process_time()
    assert len(names(use)) == 1_000
    assert time.process_time() - started < 1


def experiment(mini: Folder, models: str) -> tuple[list[Configuration], list[str]]:
    mini.edit("experiments/hello.yaml", "models: [small]", f"models: {models}")
    mini.write("models.yaml", mini.read("models.yaml") + f"claude: {{{WHOLE['anthropic']}}}\n")
    project, problems = inspect_project(WorkingTree(mini.path), root=mini.path, today=TODAY)
    assert project is not None
    found = project.experiments.get("hello")
    configurations = found.configurations(found.prompts[0]) if found else ()
    return list(configurations), [str(p) for p in problems if p.severity is Severity.ERROR]


def test_an_experiment_has_at_most_ten_configurations(mini: Folder) -> None:
    ten = "{use: small, params: {temperature: [0.1, 0.2, 0.3, 0.4, 0.5], max_tokens: [1, 2]}}"
    configurations, problems = experiment(mini, f"[{ten}]")
    assert len(configurations) == 10 and problems == []
    assert configurations[1].name == "small[temperature=0.1,max_tokens=2]"
    assert configurations[1].params == {"temperature": 0.1, "max_tokens": 2}


def test_eleven_configurations_are_too_many(mini: Folder) -> None:
    ten = "{use: small, params: {temperature: [0.1, 0.2, 0.3, 0.4, 0.5], max_tokens: [1, 2]}}"
    _, problems = experiment(mini, f"[{ten}, judge]")
    assert len(problems) == 1 and "11 configurations; at most 10" in problems[0]


@pytest.mark.parametrize(
    "models",
    [
        "[small, {use: small, params: {temperature: 1.0}}]",
        "[small, {use: small, params: {max_tokens: 4096}}]",
        "[{use: small, params: {temperature: [0.5]}}, {use: small, params: {temperature: 0.5}}]",
    ],
)
def test_two_equal_calls_are_an_error_with_the_hint_repeats(mini: Folder, models: str) -> None:
    _, problems = experiment(mini, models)
    assert len(problems) == 1
    assert "are the same call" in problems[0] and "set repeats" in problems[0]


def test_two_models_of_the_registry_may_not_be_the_same_call(mini: Folder) -> None:
    mini.write("models.yaml", mini.read("models.yaml") + "twin: {use: small, limits: {rpm: 1}}\n")
    _, problems = experiment(mini, "[small, twin]")
    assert len(problems) == 1 and "small and twin are the same call" in problems[0]


def test_parameters_of_an_experiment_are_checked_against_the_provider(mini: Folder) -> None:
    _, problems = experiment(mini, "[{use: claude, params: {seed: [1, 2], temperature: 1.5}}]")
    assert len(problems) >= 2
    assert all("anthropic takes" in problem for problem in problems)


# --- retirement -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retires", "said"),
    [
        ("2027-01-15", None),
        ("2027-01-14", "retires on 2027-01-14"),
        ("2026-11-16", "retires on 2026-11-16"),
        ("2026-11-15", "retires on 2026-11-15"),
        ("2026-11-14", "was retired on 2026-11-14"),
        ("2020-01-01", "was retired on 2020-01-01"),
    ],
)
def test_a_model_is_warned_about_from_sixty_days_before_it_retires(
    retires: str, said: str | None
) -> None:
    problem = retirement("m", retires, TODAY.isoformat(), Location("models.yaml", 3, 1))
    if said is None:
        assert problem is None
    else:
        assert problem is not None and problem.severity is Severity.WARNING
        assert str(problem) == (
            f"models.yaml:3:1: warning: model 'm' {said}, according to the price table "
            "(choose a newer one)"
        )


# --- size -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        "m{0}: {{use: m{1}}}\n",
        "m{0}: {{use: nope{0}}}\n",
        "m{0}: {{provider: sim, fallback: [z{0}]}}\n",
    ],
)
def test_a_registry_of_thousands_of_models_is_read_in_time(row: str) -> None:
    text = "".join(row.format(number, (number + 1) % 3_000) for number in range(3_000))
    document = read_yaml(text, "models.yaml")
    started = time.process_time()
    RegistryReader(document).read()
    assert time.process_time() - started < 5


# --- trust ----------------------------------------------------------------------------------------


def untrusted(mini: Folder, entry: str, trust: str = "") -> list[str]:
    mini.write("models.yaml", mini.read("models.yaml") + f"m: {{{entry}, price: free}}\n")
    if trust:
        mini.write(".edison/trust.yaml", f"version: 1\n{trust}\n")
    _, problems = inspect_project(WorkingTree(mini.path), root=mini.path, today=TODAY)
    return [str(problem) for problem in problems]


@pytest.mark.parametrize(
    "entry",
    [
        OPENAI,
        "provider: anthropic, model: m",
        "provider: openai_compatible, model: m, base_url: 'https://api.mistral.ai/v1', "
        "key_env: MISTRAL_API_KEY",
        "provider: openai_compatible, model: m, base_url: 'http://evil.example'",
        "provider: openai_compatible, model: m, base_url_env: WHERE, key_env: OPENAI_API_KEY",
        "provider: ollama, model: m",
    ],
)
def test_a_known_vendors_key_goes_to_that_vendor_and_no_key_goes_anywhere(
    mini: Folder, entry: str
) -> None:
    assert untrusted(mini, entry) == []


@pytest.mark.parametrize(
    ("entry", "key", "host"),
    [
        (f"{OPENAI}, base_url: 'https://evil.example/v1'", "OPENAI_API_KEY", "evil.example:443"),
        (f"{OPENAI}, base_url: 'http://api.openai.com/v1'", "OPENAI_API_KEY", "api.openai.com:80"),
        (f"{OPENAI}, base_url: 'https://api.openai.com:444'", "OPENAI_API_KEY", "com:444"),
        (f"{OPENAI}, base_url: 'https://api.openai.com.evil.example'", "OPENAI_API_KEY", "evil"),
        (f"{OPENAI}, key_env: GITHUB_TOKEN", "GITHUB_TOKEN", "https://api.openai.com:443"),
        (f"{OPENAI}, key_env: ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY", "https://api.openai.com"),
        (AZURE, "AZURE_OPENAI_API_KEY", "https://x.example:443"),
        ("provider: ollama, model: m, key_env: OPENAI_API_KEY", "OPENAI_API_KEY", "localhost"),
    ],
)
def test_a_key_for_another_host_needs_trust(mini: Folder, entry: str, key: str, host: str) -> None:
    (found,) = untrusted(mini, entry)
    assert found.startswith("models.yaml:3:1: model 'm' would send ")
    assert key in found and host in found and f"edison trust add {key} " in found


def test_trust_allows_just_the_pair_it_lists(mini: Folder) -> None:
    trust = 'keys: [{env: MY_KEY, hosts: ["https://llm.example:8443"]}]'
    base = "provider: openai_compatible, model: m, key_env: MY_KEY"
    assert untrusted(mini, f"{base}, base_url: 'https://llm.example:8443/v1'", trust) == []
    mini.write("models.yaml", mini.read("models.yaml").replace(":8443", ":9443"))
    _, problems = inspect_project(WorkingTree(mini.path), root=mini.path, today=TODAY)
    assert len(problems) == 1 and "would send MY_KEY to https://llm.example:9443" in str(
        problems[0]
    )


def test_trust_may_leave_out_the_built_in_pairs(mini: Folder) -> None:
    (found,) = untrusted(mini, OPENAI, "builtin: false")
    assert "would send OPENAI_API_KEY to https://api.openai.com:443" in found
