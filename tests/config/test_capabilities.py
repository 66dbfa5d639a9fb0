"""What models accept: the table, and the parameters that are sent."""

from __future__ import annotations

from typing import Any

import pytest

from edison_ci.config.models import UNKNOWN, not_taken, problems_with, sent_params
from edison_ci.config.prices import load_prices
from edison_ci.judges.judge import JUDGE_PARAMS, Judge
from tests.providers.kitchen import model

OPUS = "{provider: anthropic, model: claude-opus-4-7}"
OLDER = "{provider: anthropic, model: claude-opus-4-5}"
GPT = "{provider: openai, model: gpt-5.6}"
PLAIN = "{provider: openai, model: gpt-4.1}"
PRO = "{provider: openai, model: o3-pro}"


@pytest.mark.parametrize(
    ("entry", "written", "sent", "left_out"),
    [
        (OPUS, {"temperature": 0.2, "stop": ["x"]}, {"stop": ["x"]}, ("temperature",)),
        (OPUS, {"top_p": 0.9, "reasoning": "low"}, {"reasoning": "low"}, ("top_p",)),
        (OLDER, {"temperature": 0.2}, {"temperature": 0.2}, ()),
        (OLDER, {"temperature": 0.2, "reasoning": "low"}, {"reasoning": "low"}, ("temperature",)),
        (OLDER, {"top_p": 0.9}, {"top_p": 0.9}, ()),
        (OLDER, {"top_p": 0.9, "temperature": 0.2}, {"temperature": 0.2}, ("top_p",)),
        (GPT, {"temperature": 0.2, "seed": 1}, {"seed": 1}, ("temperature",)),
        (GPT, {"temperature": 0.2, "reasoning": "none"},
         {"temperature": 0.2, "reasoning": "none"}, ()),
        (PLAIN, {"temperature": 0.2, "reasoning": "low"}, {"temperature": 0.2}, ("reasoning",)),
        (PRO, {"seed": 1, "stop": ["x"], "reasoning": "high"}, {"reasoning": "high"},
         ("seed", "stop")),
    ],
)  # fmt: skip
def test_a_model_is_sent_what_it_accepts(
    entry: str, written: dict[str, Any], sent: dict[str, Any], left_out: tuple[str, ...]
) -> None:
    params, gone = sent_params(model(entry), written, {})
    assert (params, gone) == (sent, left_out)


def test_defaults_follow_the_model() -> None:
    assert sent_params(model(PLAIN), {})[0] == {"temperature": 1.0, "max_tokens": 4096}
    assert sent_params(model(GPT), {}) == ({"max_tokens": 4096}, ())
    assert sent_params(model(OPUS), {}) == ({"max_tokens": 4096}, ())
    short = model("{provider: openai, model: gpt-3.5-turbo-instruct}")
    assert short.capabilities.max_out == 4096
    narrow = model("{provider: azure, model: gpt-35-turbo, base_url: 'https://x.example', "
                   "options: {deployment: d, api_version: '2024-10-21'}}")  # fmt: skip
    assert narrow.capabilities.context == 4097
    assert sent_params(narrow, {})[0]["max_tokens"] == 2048
    assert sent_params(narrow, {"max_tokens": 4096})[0]["max_tokens"] == 4096
    assert "temperature" not in Judge.of(model(OPUS)).params
    assert Judge.of(model(PLAIN)).params == JUDGE_PARAMS


@pytest.mark.parametrize(
    ("entry", "known"),
    [
        ("{provider: openai, model: 'ft:gpt-4.1:acme::1'}", "openai/gpt-4.1"),
        ("{provider: anthropic, model: claude-opus-4-7-20270101}", "anthropic/claude-opus-4-7"),
        ("{provider: openai_compatible, base_url: 'https://x.example', "
         "model: anthropic/claude-opus-4-7}", "anthropic/claude-opus-4-7"),
        ("{provider: openai, model: gpt-99}", None),
    ],
)  # fmt: skip
def test_a_model_is_found_under_its_other_names(entry: str, known: str | None) -> None:
    found = model(entry).capabilities
    if known is None:
        assert found == UNKNOWN
        assert not not_taken(model(entry), {"temperature": 1, "reasoning": "max"})
    else:
        assert found.sampling is load_prices().models[known].get("sampling", True)
        assert found.context == load_prices().models[known]["context"]


def test_the_responses_protocol_is_for_openai_alone() -> None:
    assert model(PRO).capabilities.responses
    proxy = "{provider: openai_compatible, base_url: 'https://x.example', model: openai/o3-pro}"
    assert model(proxy).capabilities.known
    assert not model(proxy).capabilities.responses


@pytest.mark.parametrize(
    ("entry", "params", "said"),
    [
        (OPUS, {"reasoning": "minimal"},
         "claude-opus-4-7 takes no reasoning minimal, only none, low, medium, high, xhigh, max"),
        (PLAIN, {"max_tokens": 40_000}, "max_tokens is 40,000; gpt-4.1 writes at most 32,768"),
        (OLDER, {"reasoning": "low", "max_tokens": 500},
         "claude-opus-4-5 needs max_tokens above 1,024 to reason"),
    ],
)  # fmt: skip
def test_values_that_a_model_refuses_are_named(
    entry: str, params: dict[str, Any], said: str
) -> None:
    assert [message for _, message in problems_with(model(entry), params)] == [said]


def test_the_table_knows_what_the_vendors_say() -> None:
    rows = load_prices().models
    assert sum(row.get("sampling") is False for row in rows.values()) >= 100
    assert sum(row.get("mode") == "responses" for row in rows.values()) >= 50
    assert sum("above" in row for row in rows.values()) >= 100
    assert rows["openai/gpt-5.6"]["cache_write"] == 1.25 * rows["openai/gpt-5.6"]["in"]
