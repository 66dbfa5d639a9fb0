"""Entries of models.yaml, as written."""

from __future__ import annotations

import pytest

from edison_ci.config.model_entry import PROVIDERS, ModelEntry
from edison_ci.config.params import GridParams, Params
from edison_ci.config.prices import Price
from edison_ci.config.provider_options import OPTIONS
from tests.config.said import said
from tests.providers.kitchen import model, refused


def test_the_providers_are_those_of_the_contract() -> None:
    assert tuple(PROVIDERS.built_in) == (
        "openai",
        "anthropic",
        "azure",
        "ollama",
        "vertex",
        "bedrock",
        "openai_compatible",
        "litellm",
        "sim",
        "local",
        "replay",
        "command",
        "http",
    )
    assert all(callable(PROVIDERS.load(name)) for name in PROVIDERS.built_in)


def test_the_options_are_those_of_the_contract() -> None:
    listed = {name: set(shape.model_fields) for name, shape in OPTIONS.items()}
    assert listed["openai"] == {"organization"}
    assert listed["azure"] == {"deployment", "api_version"}
    assert listed["vertex"] == {"project", "location"}
    assert listed["bedrock"] == {"region"}
    others = {"sim", "local", "litellm", "command", "http"}
    assert set(OPTIONS) == {"openai", "azure", "vertex", "bedrock", *others}


def test_only_parameters_that_were_written_count() -> None:
    assert Params().written() == {}
    assert Params(temperature=0, stop=("a",)).written() == {"temperature": 0, "stop": ("a",)}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("temperature: 0.3\n", (0.3,)),
        ("temperature: [0.3]\n", (0.3,)),
        ("temperature: [0.3, 1]\n", (0.3, 1)),
    ],
)
def test_a_grid_is_one_value_or_several(text: str, values: tuple[float, ...]) -> None:
    assert said(GridParams, text) == []
    given = float(text.split(": ")[1]) if "[" not in text else list(values)
    assert GridParams.model_validate({"temperature": given}).temperature == values


def test_a_price_is_free_or_two_numbers() -> None:
    free = ModelEntry.model_validate({"price": "free"})
    paid = ModelEntry.model_validate({"price": {"in": 1, "out": 2.5}})
    assert free.price == Price.model_validate({"in": 0.0, "out": 0.0})
    assert paid.price is not None
    assert (paid.price.tokens_in, paid.price.tokens_out, paid.price.cached_in) == (1, 2.5, None)


@pytest.mark.parametrize(
    ("written", "keys"),
    [
        ("KEY", {"api_key": "KEY"}),
        (
            {"access_key_id": "A", "secret_access_key": "B"},
            {"access_key_id": "A", "secret_access_key": "B"},
        ),
    ],
)
def test_a_key_is_one_name_or_a_name_for_each_field(written: object, keys: dict[str, str]) -> None:
    assert ModelEntry.model_validate({"key_env": written}).key_env == keys


@pytest.mark.parametrize(
    "address", ["https://h.example", "http://localhost:11434/v1", "https://[::1]:8080/v1"]
)
def test_an_address_has_scheme_host_and_maybe_port_and_path(address: str) -> None:
    assert said(ModelEntry, f'base_url: "{address}"\n') == []


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("h.example", "'h.example' is not an address (write https://host:port/path)"),
        ("ftp://h.example", "'ftp://h.example' is not an address (write https://host:port/path)"),
        ("https://", "'https://' is not an address (write https://host:port/path)"),
        ("https://h:99999", "'https://h:99999' is not an address (write https://host:port/path)"),
        ("https://h h", "'https://h h' is not an address (write https://host:port/path)"),
        ("https://h/?a=b", "base_url has a query or fragment (leave it out)"),
        ("https://h/#a", "base_url has a query or fragment (leave it out)"),
        ("https://user:pass@h", "base_url contains a user or password (use key_env)"),
    ],
)
def test_another_address_is_refused(address: str, message: str) -> None:
    assert said(ModelEntry, f'base_url: "{address}"\n') == [f"1:11: {message}"]


def test_a_password_in_an_address_is_not_repeated() -> None:
    (message,) = said(ModelEntry, 'base_url: "https://ada:hunter2@h.example"\n')
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("provider", "text", "messages"),
    [
        ("azure", "deployment: d\napi_version: 2024-10-21-preview\n", []),
        (
            "azure",
            "deployment: d\napi_version: v1\n",
            ["2:14: 'v1' is not an API version (write a date in quotes: \"2024-10-21\")"],
        ),
        ("azure", "deployment: d\n", ["1:1: key 'api_version' is missing (add api_version: ...)"]),
        (
            "openai",
            'organization: "o\\r\\nHost: h"\n',
            [r"1:15: 'o\r\nHost: h' is not the value of a header (use printable ASCII only)"],
        ),
        ("bedrock", "region: eu-central-1\n", []),
        (
            "bedrock",
            "region: Frankfurt\n",
            ["1:9: 'Frankfurt' is not a region (write a region such as eu-central-1)"],
        ),
        ("vertex", "project: p\nlocation: us-central1\n", []),
        (
            "vertex",
            "projct: p\nlocation: l\n",
            [
                "1:1: key 'project' is missing (add project: ...)",
                "1:1: unknown key 'projct' (did you mean 'project'?)",
            ],
        ),
        ("sim", "latency_ms: 20\nerror_rate: 0.1\nseed: 7\n", []),
    ],
)
def test_options_belong_to_their_provider(provider: str, text: str, messages: list[str]) -> None:
    assert sorted(said(OPTIONS[provider], text)) == sorted(messages)


NAMES_IN_A_PATH = (
    "gemini/../../upload", "gemini/x?key=", "gemini/x#", "gemini/%2e%2e/x", "gemini//x",
    "gemini/x/", "gemini/x\\\\y", "gemini/x y", "gemini/./x", "gemini/..",
)  # fmt: skip


def test_a_model_name_leads_to_no_other_path(subtests: pytest.Subtests) -> None:
    vertex = "options: {project: p, location: us-central1}"
    bedrock = "options: {region: eu-central-1}"
    for name in NAMES_IN_A_PATH:
        own = name.removeprefix("gemini/")
        for entry in (
            f'{{provider: litellm, model: "{name}"}}',
            f'{{provider: vertex, model: "{own}", {vertex}}}',
            f'{{provider: bedrock, model: "{own}", {bedrock}}}',
        ):
            with subtests.test(entry):
                assert any("it becomes part of the address" in said for said in refused(entry))
    for entry in (
        "{provider: litellm, model: gemini/gemini-2.5-flash}",
        "{provider: litellm, model: 'fireworks_ai/accounts/a/models/m#accounts/a/deployments/d'}",
        f"{{provider: vertex, model: publishers/google/models/gemini-2.5-pro@001, {vertex}}}",
        "{provider: bedrock, model: 'arn:aws:bedrock:eu-west-1:1:inference-profile/eu.a.b-v1:0', "
        f"{bedrock}}}",
    ):
        assert model(entry).model
