"""A moderation endpoint is asked as its vendor describes it, and odd replies are errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edison_ci.contracts import CallError
from edison_ci.judges.moderation import moderation_request
from edison_ci.providers.adapters import provider_for
from tests.loopback.script import rule
from tests.loopback.server import LoopbackServer
from tests.providers.kitchen import model

if TYPE_CHECKING:
    from edison_ci.records import Completion


async def moderate(server: LoopbackServer, text: str = "You fool.") -> Completion:
    named = "model: omni-moderation-latest, price: free"
    entry = model(f"{{provider: openai_compatible, base_url: '{server.openai_url}', {named}}}")
    provider = provider_for(entry)
    try:
        return await provider.complete(moderation_request(entry, text))
    finally:
        await provider.aclose()  # type: ignore[attr-defined]  # this one has it


async def test_every_score_is_kept_also_of_a_category_that_is_new() -> None:
    told = json.dumps({"harassment": 0.83, "brand/new": 0.4})
    with LoopbackServer([rule(text=told)], strict=True) as server:
        completion = await moderate(server)
        (seen,) = server.requests
    assert seen.path.endswith("/v1/moderations")
    assert seen.json == {"model": "omni-moderation-latest", "input": "You fool."}
    said = json.loads(completion.text)
    assert said["flagged"] is True
    assert (said["scores"]["harassment"], said["scores"]["brand/new"]) == (0.83, 0.4)
    assert len(said["scores"]) == 14
    assert completion.served_model == "omni-moderation-latest"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"results": []},
        {"results": [{"category_scores": {}}]},
        {"results": [{"category_scores": {"hate": "high"}}]},
        {"results": [{"category_scores": {"hate": 7}}]},
        {"results": [{"category_scores": {"hate": True}}]},
        {"results": [{"category_scores": {"h" * 200: 0.5}}]},
        {"results": [{"category_scores": {"hate": 0.1}}] * 2},
    ],
    ids=range(8),
)
async def test_an_odd_reply_is_an_error(body: dict[str, Any]) -> None:
    with LoopbackServer([rule(body=body)]) as server, pytest.raises(CallError) as caught:
        await moderate(server)
    assert caught.value.kind == "BAD_RESPONSE"


async def test_an_address_without_moderation_is_said() -> None:
    missing = rule(status=404, body={"error": {"message": "no such path"}})
    said = "there is no moderation at this address"
    with LoopbackServer([missing]) as server, pytest.raises(CallError, match=said):
        await moderate(server)
