"""Every body that we build is accepted by a service as strict as the vendors' own.

For every model of the table that OpenAI, Azure and Anthropic serve, in every role.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.config.models import Model, sent_params
from edison_ci.config.prices import load_prices
from edison_ci.judges.instructions import load_instructions
from edison_ci.judges.judge import Judge
from edison_ci.judges.pairwise import Pairwise
from edison_ci.judges.pointwise import Pointwise
from edison_ci.providers import anthropic, openai_compatible, openai_responses
from edison_ci.refine.refiner import refiner_of
from tests.judges.bench import CASE, TWO
from tests.loopback.protocols import Chat
from tests.loopback.strict import refusal
from tests.providers.kitchen import ask, model

if TYPE_CHECKING:
    from edison_ci.records import Json, Request

ENTRIES = {
    "openai": "{{provider: openai, model: {0}}}",
    "anthropic": "{{provider: anthropic, model: {0}}}",
    "azure": "{{provider: azure, model: {0}, base_url: 'https://x.example', "
    "options: {{deployment: d, api_version: '2024-10-21'}}}}",
}
ROWS = {
    key: row
    for key, row in load_prices().models.items()
    if key.split("/")[0] in ENTRIES and row.get("mode", "chat") in ("chat", "responses")
}
WRITTEN: list[dict[str, Any]] = [
    {},
    {"temperature": 0.3},
    {"top_p": 0.9},
    {"temperature": 0.2, "seed": 7, "stop": ["END"], "frequency_penalty": 0.5, "max_tokens": 2_000},
]
SCHEMA: Json = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
TOOLS: Json = [{"name": "search", "description": "Search.", "parameters": SCHEMA}]


def body_of(served: Model, request: Request) -> Chat:
    """Return what is sent to a model, as its service sees it."""
    named = replace(request, model=served.model)
    if served.provider == "anthropic":
        return Chat("anthropic", anthropic.request_body(named, served.capabilities))
    if served.capabilities.responses:
        return Chat("responses", openai_responses.request_body(named, served.capabilities))
    dialect = replace(openai_compatible.find_dialect(served), names_model=True)
    return Chat("openai", openai_compatible.request_body(named, dialect))


def wanted(served: Model, written: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters that validation lets a user write for a model."""
    taken = ("temperature", "top_p", "stop", "max_tokens", "reasoning")
    written = {k: v for k, v in written.items() if served.provider != "anthropic" or k in taken}
    most = served.capabilities.max_out or 2_000
    return {k: min(v, most) if k == "max_tokens" else v for k, v in written.items()}


def requests(served: Model) -> list[Request]:
    """Return what each role would send to a model."""
    levels = [{"reasoning": level} for level in served.capabilities.reasoning or ()]
    both = [{"temperature": 0.2, **level, "max_tokens": 2_000} for level in levels]
    found = []
    for written in [*WRITTEN, *levels, *both]:
        params, left_out = sent_params(served, wanted(served, written))
        found.append(ask(system="Be kind.", params=params, left_out=left_out))
        found.append(replace(found[-1], tools=TOOLS))
        found.append(replace(found[-2], response_format=SCHEMA))
    judge = Judge.of(served)
    found.append(Pointwise(judge, TWO, load_instructions("pointwise")).request(CASE, "Hi"))
    compare = Pairwise(judge, load_instructions("pairwise"), TWO)
    found.append(compare.request(CASE, "Hi", "Hello"))
    told = ask("Reply with JSON.", system="You refine prompts.").messages
    found.append(refiner_of(served).request(told))
    return found


@pytest.mark.parametrize("key", ROWS)
def test_every_model_takes_what_every_role_sends(key: str) -> None:
    provider, _, name = key.partition("/")
    served = model(ENTRIES[provider].format(name))
    for request in requests(served):
        if request.response_format is not None and served.capabilities.schema is False:
            continue  # said by validate
        chat = body_of(served, request)
        assert refusal(chat, provider) is None, chat.body


@pytest.mark.parametrize(
    ("protocol", "name", "more", "said"),
    [
        ("anthropic", "claude-opus-4-7", {"temperature": 0.3}, "deprecated"),
        ("anthropic", "claude-opus-4-5", {"temperature": 0.3, "top_p": 0.9}, "cannot both"),
        ("anthropic", "claude-fable-5", {"thinking": {"type": "disabled"}}, "always thinks"),
        ("anthropic", "claude-opus-4-5", {"max_tokens": 10**6}, "too large"),
        ("anthropic", "claude-opus-4-5", {"seed": 1}, "Extra inputs"),
        ("openai", "gpt-5.6", {"temperature": 0.3}, "Unsupported parameter: 'temperature'"),
        ("openai", "gpt-5.6", {"max_tokens": 9}, "max_completion_tokens"),
        ("openai", "gpt-5.6", {"reasoning_effort": "minimal"}, "does not support 'minimal'"),
        ("openai", "o3-pro", {}, "only supported in v1/responses"),
        ("openai", "gpt-4.1", {"top_k": 3}, "Unknown parameter: 'top_k'"),
        ("openai", "gpt-4.1", {"response_format": {"type": "json_object"}}, "the word 'json'"),
        ("responses", "o3-pro", {"seed": 3}, "Unknown parameter: 'seed'"),
        ("responses", "o3-pro", {"max_output_tokens": 3}, "must be between 16"),
    ],
)
def test_the_strict_service_refuses_what_the_vendors_refuse(
    protocol: str, name: str, more: dict[str, Any], said: str
) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    place = "input" if protocol == "responses" else "messages"
    body = {"model": name, place: messages, **more}
    if protocol == "anthropic":
        body = {"max_tokens": 50, **body}
    assert said in str(refusal(Chat(protocol, body)))
