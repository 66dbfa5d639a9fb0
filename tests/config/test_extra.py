"""What may stand under `extra`: a closed list, of which each name is booked or bounded."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pydantic import ValidationError

from edison_ci.config.extra_params import Extra, extra_taken
from edison_ci.config.model_entry import PROVIDERS, tokens_booked, writes_cache
from tests.providers.kitchen import model, refused

WHERE_TO = (
    "api_base", "base_url", "api_key", "api_version", "extra_headers", "headers", "extra_body",
    "custom_llm_provider", "model_list", "fallbacks", "context_window_fallback_dict", "router",
    "mock_response", "mock_tool_calls", "mock_timeout", "mock_delay", "client", "aclient",
    "aws_bedrock_runtime_endpoint", "aws_sts_endpoint", "aws_role_name", "aws_profile_name",
    "aws_web_identity_token", "vertex_credentials", "vertex_ai_project", "azure_ad_token",
    "proxy_server_request", "hostname", "success_callback", "logger_fn", "litellm_logging_obj",
    "litellm_credential_name", "configurable_clientside_auth_params", "input_cost_per_token",
    "mcp_servers", "container", "plugins", "provider", "models", "route", "webhook", "tools",
    "functions", "messages", "system", "model", "stream", "prompt_id", "vector_store_ids",
    "use_litellm_proxy", "ssl_verify", "deployment_id", "organization", "region_name",
    "hf_model_name",
)  # fmt: skip
COSTLY = (
    "max_completion_tokens", "max_output_tokens", "max_tokens", "num_predict", "n", "best_of",
    "num_retries", "max_retries", "web_search_options", "modalities", "audio", "speed",
    "inference_geo", "prediction", "num_beams", "use_beam_search", "candidate_count",
)  # fmt: skip
ONLINE = [name for name in PROVIDERS.built_in if name not in ("sim", "local", "replay")]


def test_a_name_that_is_not_on_the_list_is_refused_with_its_place(
    subtests: pytest.Subtests,
) -> None:
    for name in [*WHERE_TO, *COSTLY]:
        with subtests.test(name=name):
            entry = f"{{provider: litellm, model: openai/m, params: {{extra: {{{name}: 1}}}}}}"
            (problem,) = refused(entry)
            assert problem.startswith("models.yaml:1:"), problem
            assert name in problem
            for taken in map(extra_taken, ONLINE):
                assert name not in taken


@pytest.mark.parametrize("tier", ["priority", "scale", "fast", ""])
def test_a_dearer_class_of_service_is_refused(tier: str) -> None:
    with pytest.raises(ValidationError):
        Extra.model_validate({"service_tier": tier})


@pytest.mark.parametrize("options", ["model_list: []", "api_base: x", "mock_response: x", "a: 1"])
def test_litellm_takes_one_option_and_no_other(options: str) -> None:
    (problem,) = refused(f"{{provider: litellm, model: openai/m, options: {{{options}}}}}")
    assert f"unknown key '{options.partition(':')[0]}'" in problem


UNKNOWN_VENDORS = [
    "sagemaker/x", "sagemaker_chat/x", "huggingface/x", "gpt-4o", "azure/x", "bedrock/x",
    "vertex_ai/x", "ollama/x", "custom/x", "oobabooga/x", "OpenAI/x", "text-completion-openai/x",
    "aiohttp_openai/x", "litellm_proxy/x", "github/x", "/openai/x",
]  # fmt: skip


def test_a_vendor_whose_place_is_not_known_is_refused(subtests: pytest.Subtests) -> None:
    for name in UNKNOWN_VENDORS:
        with subtests.test(name=name):
            (problem,) = refused(f"{{provider: litellm, model: {name}}}")
            assert "may not call" in problem


def test_each_provider_has_its_own_names(subtests: pytest.Subtests) -> None:
    for provider in ONLINE:
        with subtests.test(provider=provider):
            more = {
                "azure": ", base_url: 'https://x.example', "
                "options: {deployment: d, api_version: '2024-10-21'}",
                "openai_compatible": ", base_url: 'https://x.example'",
                "vertex": ", options: {project: p, location: global}",
                "bedrock": ", options: {region: eu-west-1}",
                "command": ", options: {run: [a], files: [a]}",
                "http": ", base_url: 'https://x.example', options: {body: {}}",
            }.get(provider, "")
            name = "openai/m" if provider == "litellm" else "m"
            entry = f"provider: {provider}, model: {name}{more}"
            taken = extra_taken(provider)
            for field in Extra.model_fields:
                value = _value(field)
                written = f"{{{entry}, params: {{extra: {{{field}: {value}}}}}}}"
                if field in taken:
                    assert model(written).params["extra"].keys() == {field}
                else:
                    assert refused(written), (provider, field)


def _value(field: str) -> str:
    for value in ("true", "1", "low", "{a: b}", "{a: 1}", "[a]", "flex"):
        try:
            Extra.model_validate({field: _parsed(value)})
        except ValidationError:
            continue
        return value
    raise AssertionError(field)


def _parsed(value: str) -> Any:
    known = {"true": True, "1": 1, "{a: b}": {"a": "b"}, "{a: 1}": {"a": 1}, "[a]": ["a"]}
    return known.get(value, value)


COSTS = [
    ({"top_k": 40}, 0),
    ({"reasoning_effort": "high"}, 0),
    ({"thinking": {"type": "enabled", "budget_tokens": 30_000}}, 30_000),
    ({"reasoning": {"max_tokens": 500, "effort": "low"}}, 500),
    ({"thinking_budget": 70}, 70),
    ({"chat_template_kwargs": {"deep": [{"thinking_budget": 70}, {"x": 9}]}}, 70),
    ({"thinking": {"budget_tokens": -5}}, 0),
    ({"thinking": {"budget_tokens": True}}, 0),
]


def test_what_extra_can_cost_is_booked(subtests: pytest.Subtests) -> None:
    for extra, out in COSTS:
        with subtests.test(extra=extra):
            tokens_in, tokens_out = tokens_booked({"max_tokens": 5, "extra": extra})
            assert tokens_out == out
            assert tokens_in >= len(str(extra)) - str(extra).count(" ")


def test_nothing_is_booked_for_nothing() -> None:
    nothing: tuple[dict[str, Any], ...] = ({}, {"extra": None}, {"extra": {}})
    for params in nothing:
        assert tokens_booked(params) == (0, 0)
        assert not writes_cache(params)


def test_writing_to_a_cache_is_noticed() -> None:
    names = ("cache_control", "prompt_cache_key", "prompt_cache_retention")
    for name, other in itertools.product(names, ("top_k", "user")):
        assert writes_cache({"extra": {name: {}, other: 1}})
        assert not writes_cache({"extra": {other: 1}})
